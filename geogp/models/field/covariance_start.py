"""Start values of covariance and noise of the field model, found from a sample of places."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from geogp.errors import NumericalError
from geogp.models.field.matern import LEAST_SMOOTHNESS, MOST_SMOOTHNESS
from geogp.models.field.tile_process import ROUGH, Form
from geogp.models.field.vecchia import spacing, time_step

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

LEAST_ROWS = 300
"""With fewer rows, nothing changes: they tell too little about the noise."""

MOST_ROWS, MOST_PLACES = 3000, 1500
"""Largest numbers of rows and of places in the sample."""

COMPARED_ROWS = 1000
"""Number of rows, of whole places, with which possible starts are compared."""

RANGES, FACTORS = (5.0, 2.5), (0.3, 1.0, 6.0)
"""Possible ranges are these multiples of the median distance between neighbouring places, times one
of the factors.
"""

NOISE = (1.0, 0.1, 0.01, 0.001)
"""Possible multiples of the usual noise, and of the usual variance of single tiles."""

MEMORIES = (1.0, 5.0)
"""Possible values of τ_2 in Gneiting's form, in time steps of the rows."""

POWERS = (0.5, 0.5)
"""Start values of the powers in Gneiting's form."""

MOST_COPIES = 0.05
"""With a larger share of rows that repeat another row exactly, nothing changes: copies look like
measurements without noise.
"""

ITERATIONS = 40
"""Largest number of iterations of L-BFGS for each start value of the smoothness."""

PRIOR_SD, STRETCH_SD = 3.0, 1.0
"""Standard deviations of the parameters, and of the stretch, around their start values in a weak
prior.
"""

SMOOTHNESS = (0.5, 1.0, 1.5, 2.5)
"""Start values of the smoothness."""

SOME_STRETCH = 0.01
"""Start value of the stretch; at 0, it has no gradient."""

PLACES_AT_ONCE = 256

UNDEFINED = 1e6
"""Value of the objective where a covariance does not factorise."""


@dataclass(frozen=True)
class Start:
    """One of the compared starts: multiples of noise and ranges, and τ_2 of Gneiting's form."""

    noise: float
    factor: float
    memory: float | None = None
    smoothness: float = ROUGH


def start_covariance(model: "FieldNetwork", seed: int) -> None:
    """Set covariance and noise of precise measurements before the first training step.

    The usual start values suit noisy measurements, and gradient descent changes them slowly. So the
    likelihood of a sample first compares all `Start` values. If it is highest with the usual noise,
    the values and the usual form stay. Otherwise the start values and the `Form` of the covariance
    maximise the likelihood, plus a weak normal prior around the best of the compared values, by
    L-BFGS. This likelihood is Vecchia's, of the rows at randomly drawn places, given the rows that
    condition them, if the field is constant. The values also stay if there are fewer than
    `LEAST_ROWS` rows, if many rows are copies (see `MOST_COPIES`), or if there are covariates,
    whose effect this likelihood does not know.
    """
    model.tiles.take_form(model.tiles.form.nothing())
    if model.architecture.used_covariates or len(model.rows.y) < LEAST_ROWS:
        return
    rows = torch.cat([model.points(model.rows.x), model.rows.y[:, None]], 1)
    if len(torch.unique(rows, dim=0)) < (1 - MOST_COPIES) * len(rows):
        return
    sample = _Sample(model, seed)
    best = min(sample.starts(), key=sample.compared)
    if best.noise == NOISE[0]:
        sample.usual.set(model)
        return
    sample.take(best)
    smoother = (replace(best, smoothness=nu, noise=noise*best.noise) for nu in SMOOTHNESS for noise in (1.0, 0.1))
    import os
    if os.environ.get('TRACE'): print(best)
    best = min(smoother, key=sample.compared)
    if os.environ.get('TRACE'): print(best)
    sample.take(best)
    with _others_fixed(model):
        chosen = sample.fit()
    (chosen if chosen.loss < UNDEFINED else sample.usual).set(model)
    model.zero_grad(set_to_none=True)


@contextmanager
def _others_fixed(model: "FieldNetwork") -> Iterator[None]:
    """Compute no gradients of the other parameters, which saves half of the time."""
    own = {id(parameter) for parameter in _parameters(model)}
    others = [value for value in model.parameters() if id(value) not in own and value.requires_grad]
    for value in others:
        value.requires_grad = False
    try:
        yield
    finally:
        for value in others:
            value.requires_grad = True


def _parameters(model: "FieldNetwork") -> list[torch.nn.Parameter]:
    tiles, law = model.tiles, model.law
    return [
        *(tiles.log_sills, tiles.log_ranges, tiles.log_memories, law.log_floor, law.log_single),
        *(law.log_decays, law.gain, law.log_gain_decays, model.mean_constant),
    ]


@dataclass(frozen=True)
class _Values:
    """Values of `_parameters`, the form of the covariance, and the loss."""

    values: list[Tensor]
    form: Form
    loss: float

    @classmethod
    def of(cls, model: "FieldNetwork", loss: float = math.inf) -> "_Values":
        """Return the present values of a model."""
        values = [value.detach().clone() for value in _parameters(model)]
        return cls(values, model.tiles.form.detached(), loss)

    def set(self, model: "FieldNetwork") -> None:
        """Give a model these values."""
        with torch.no_grad():
            for parameter, value in zip(_parameters(model), self.values, strict=True):
                parameter.copy_(value)
        model.tiles.take_form(self.form)


class _Sample:
    """Rows at randomly drawn places of a model, and their likelihood."""

    def __init__(self, model: "FieldNetwork", seed: int) -> None:
        self.model = model
        random = np.random.default_rng([seed, 5])
        sites = model.sites.sites
        order = random.permutation(len(sites))[:MOST_PLACES]
        rows = np.cumsum(sites.count[order])
        self.few, self.many = (
            torch.from_numpy(np.sort(order[: int(np.searchsorted(rows, most)) + 1])).to(
                model.device
            )
            for most in (COMPARED_ROWS, MOST_ROWS)
        )
        self.n = int(sites.count[self.many.cpu().numpy()].sum())
        places = np.unique(sites.centre[:, :2], axis=0)
        self.spacing = spacing(places, random.permutation(len(places))[:MOST_PLACES])
        points = model.points(model.rows.x).cpu().numpy()
        place = np.unique(points[:, :2], axis=0, return_inverse=True)[1].reshape(-1)
        self.step = time_step(place, points[:, 2])
        self.usual = _Values.of(model)
        self.no_weights = model.posterior.m.new_zeros(model.basis.rank, 0).detach()

    def starts(self) -> Iterator[Start]:
        """Yield the starts to compare."""
        for noise, factor in product(NOISE, FACTORS):
            yield Start(noise, factor)
        if self.step is not None:
            for noise, factor, steps in product(NOISE[1:], FACTORS, MEMORIES):
                yield Start(noise, factor, steps * self.step)

    def compared(self, start: Start) -> float:
        """Return the loss of a start on a part of the sample."""
        self.take(start)
        try:
            with torch.no_grad():
                return float(self._loss(self.few))
        except NumericalError:
            return UNDEFINED

    def take(self, start: Start) -> None:
        """Set the model to a start."""
        self.usual.set(self.model)
        tiles, law = self.model.tiles, self.model.law
        with torch.no_grad():
            nugget = tiles.log_sills[2:].exp().sum() + law.log_floor.exp() + law.log_single.exp()
            shared = tiles.log_sills[:2].exp().sum()
            for value in (tiles.log_sills[2:], law.log_floor, law.log_single):
                value.add_(math.log(start.noise))
            # The total variance of a single test stays the same.
            tiles.log_sills[:2] += (1 + (1 - start.noise) * nugget / shared).log()
            ranges = torch.tensor(RANGES, dtype=torch.float64) * self.spacing * start.factor
            tiles.log_ranges.copy_(ranges.log())
            if start.memory is not None:
                tiles.log_memories[0] = math.log(start.memory)
                powers = torch.tensor(POWERS, dtype=torch.float64, device=self.model.device)
                tiles.take_form(replace(tiles.form, powers=powers))
            nu = torch.full_like(tiles.form.smoothness, start.smoothness)
            tiles.take_form(replace(tiles.form, smoothness=nu))

    def fit(self) -> _Values:
        """Maximise the likelihood, starting at the values that the model has.

        The optimiser also moves all parts of the noise together: a sum of parts falls more slowly
        if each part falls alone.
        """
        model, before = self.model, self.model.tiles.form.detached()
        stretch = torch.where(before.stretch == 0, SOME_STRETCH, before.stretch).requires_grad_()
        share = (before.smoothness - LEAST_SMOOTHNESS) / (MOST_SMOOTHNESS - LEAST_SMOOTHNESS)
        smooth, powers = (part.logit().requires_grad_() for part in (share, before.powers))
        parameters = _parameters(model)
        free: list[Tensor] = [*parameters, stretch, smooth]
        if not before.separable:
            free.append(powers)
        start = torch.cat([value.detach().double().reshape(-1) for value in free])
        sizes = [value.numel() for value in free]
        noise = torch.zeros_like(start)
        noise[2:4] = noise[8:10] = 1.0
        sd = torch.full_like(start, PRIOR_SD)
        first = sum(sizes[: len(parameters)])
        sd[first : first + 2] = STRETCH_SD
        away = torch.zeros(len(start) + 1, dtype=torch.float64, device=start.device)
        away.requires_grad_()
        optimiser = torch.optim.LBFGS(
            [away], max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe"
        )

        def closure() -> float:
            model.zero_grad()
            away.grad = (away.detach() / self.n).clone()
            moved = start + sd * away.detach()[:-1] + PRIOR_SD * away.detach()[-1] * noise
            with torch.no_grad():
                for value, part in zip(free, moved.split(sizes), strict=True):
                    value.grad = None
                    value.copy_(part.view_as(value))
            nu = LEAST_SMOOTHNESS + (MOST_SMOOTHNESS - LEAST_SMOOTHNESS) * smooth.sigmoid()
            found = before.powers if before.separable else powers.sigmoid()
            model.tiles.take_form(Form(stretch, found, nu))
            try:
                loss = self._loss(self.many)
                loss.backward()
            except NumericalError:
                return UNDEFINED
            by = torch.cat([
                (torch.zeros_like(value) if value.grad is None else value.grad).double().reshape(-1)
                for value in free
            ])
            away.grad += torch.cat([sd * by, PRIOR_SD * (noise @ by)[None]])
            return float(loss.detach() + away.detach().square().sum() / (2 * self.n))

        optimiser.step(closure)
        import os
        found=_Values.of(model, closure())
        if os.environ.get('TRACE'): print('fit loss',closure(),'grad',away.grad.abs().max(),'nu',model.tiles.form.smoothness.item(),'powers',model.tiles.form.powers.tolist(),'evals',optimiser.state[away]['func_evals'],optimiser.state[away]['n_iter'],[round(float(v.exp()),4) for v in (*model.tiles.log_sills,*model.tiles.log_ranges,*model.tiles.log_memories,model.law.log_floor,model.law.log_single)],flush=True)
        return found

    def _loss(self, sites: Tensor) -> Tensor:
        """Return the negative log likelihood of the rows at places, per row."""
        model, n = self.model, 0
        total = torch.zeros((), dtype=torch.float64, device=model.device)
        for part in sites.split(PLACES_AT_ONCE):
            block = model.block(part, factor=self.no_weights)
            total = total + block.residual.square().sum() / 2 + block.log_scale
            n += len(block.residual)
        return total / n


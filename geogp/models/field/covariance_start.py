"""Start values of covariance and noise of the field model, found from a sample of places."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import NumericalError
from geogp.models.field.blocks import BlockRows
from geogp.models.field.conditioning import block_at, rows_at
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.rows import FieldRows
from geogp.models.field.tile_process import ROUGH, Form
from geogp.models.field.vecchia import spacing, time_step
from geogp.models.fitting.optimisers import LBFGS
from geogp.models.numerics.devices import on_device
from geogp.models.process.matern import LEAST_SMOOTHNESS

LEAST_ROWS = 300
"""With fewer rows, nothing changes: they tell too little about the noise."""

SMALL_SAMPLE = 1000
"""Number of rows, of whole places, to which possible starts are compared."""

MEDIUM_SAMPLE = 3000
"""Number of rows, of whole places, to which each smoothness of `SMOOTHNESS` is fitted."""

LARGE_SAMPLE = 12_000
"""Number of rows, of whole places, to which any smoothness is fitted."""

MOST_PLACES = 1500
"""Largest number of places in the medium sample, and of places whose distance to the nearest is
measured."""

RANGES = (5.0, 2.5)
"""Ranges as multiples of the median distance between neighbouring places, before a factor."""

FACTORS = (0.3, 1.0, 6.0)
"""Possible factors of `RANGES`."""

NOISE = (1.0, 0.1, 0.01)
"""Possible multiples of the usual noise, and of the usual variance of single tiles."""

MEMORIES = (1.0, 5.0)
"""Possible values of τ_2 in Gneiting's form, in time steps of the rows."""

POWERS = (0.5, 0.5)
"""Start values of the powers in Gneiting's form."""

MOST_COPIES = 0.05
"""With a larger share of rows that repeat another row exactly, nothing changes: copies look like
measurements without noise.
"""

ITERATIONS = 15
"""Largest number of iterations of L-BFGS with a fixed smoothness."""

MORE_ITERATIONS = 40
"""Largest number of iterations of L-BFGS with any smoothness."""

TOLERANCE = 2e-6
"""Relative gain of an iteration at which L-BFGS with any smoothness ends."""

Floats = NDArray[np.float64]

MOST_AWAY = 4.0
"""Bound of the parameters' distance from their start values, in `PRIOR_SD`."""

PRIOR_SD = 3.0
"""Standard deviation of a parameter around its start value in a weak prior."""

STRETCH_SD = 1.0
"""Standard deviation of the stretch around its start value in a weak prior."""

SMOOTHNESS = (0.5, 1.5, 2.5)
"""Possible values of `Form.smoothness`, tried in this order until one gains too little."""

LEAST_GAIN = 0.01
"""Smallest gain in the log likelihood per row for which a larger smoothness is taken."""

SMOOTHER = ((0.5, 1.0), (1.0, 10.0))
"""Start values of any smoothness, each with a multiple of the best noise, because a rough process
without noise resembles a smooth process with noise.
"""

SMOOTH = 1.5
"""Upper bound of any smoothness."""

MOST_SHARE = 0.99
"""Largest share of the smoothness's range at a start; at 1, the gradient is 0."""

SOME_STRETCH = 0.01
"""Start value of the stretch; at 0, it has no gradient."""

PLACES_AT_ONCE = 256
"""Number of places whose rows are whitened at once."""

UNDEFINED = 1e6
"""Value of the objective where a covariance does not factorise."""


@dataclass(frozen=True)
class Start:
    """Multiples of noise and ranges, τ_2 of Gneiting's form, and the smoothness."""

    noise: float
    factor: float
    memory: float | None = None
    smoothness: float = ROUGH


def start_covariance(parameters: FieldParameters, rows: FieldRows, seed: int) -> None:
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
    parameters.tiles.take_form(parameters.tiles.form.nothing())
    if parameters.architecture.used_covariates or len(rows) < LEAST_ROWS:
        return
    values = torch.cat([rows.points, rows.y[:, None]], 1)
    if len(torch.unique(values, dim=0)) < (1 - MOST_COPIES) * len(rows):
        return
    sample = _Sample(parameters, rows, seed)
    best = min(sample.starts(), key=sample.compared)
    if best.noise == NOISE[0]:
        sample.usual.set(parameters)
        return
    with _others_fixed(parameters):
        sample.take(best)
        chosen = sample.usual
        for smoothness in SMOOTHNESS:
            fitted = sample.fit(smoothness)
            if fitted.loss > chosen.loss - LEAST_GAIN:
                break
            chosen = fitted
        if chosen.loss < UNDEFINED and not chosen.is_smooth_in_space:
            chosen = sample.any_smoothness(best, chosen)
    (chosen if chosen.loss < UNDEFINED else sample.usual).set(parameters)
    parameters.zero_grad(set_to_none=True)


@contextmanager
def _others_fixed(parameters: FieldParameters) -> Iterator[None]:
    """Compute no gradients of the other parameters, which saves half of the time."""
    covariance = {id(value) for value in _covariance(parameters)}
    others = [
        value
        for value in parameters.parameters()
        if id(value) not in covariance and value.requires_grad
    ]
    for value in others:
        value.requires_grad = False
    try:
        yield
    finally:
        for value in others:
            value.requires_grad = True


def _covariance(parameters: FieldParameters) -> list[torch.nn.Parameter]:
    """Return the parameters of covariance and noise."""
    tiles, law = parameters.tiles, parameters.law
    return [
        *(tiles.log_sills, tiles.log_ranges, tiles.log_memories, law.log_floor, law.log_single),
        *(law.log_decays, law.gain, law.log_gain_decays, parameters.mean_constant),
    ]


@dataclass(frozen=True)
class _Values:
    """Values of `_covariance`, the form of the covariance, and the loss."""

    values: list[Tensor]
    form: Form
    loss: float

    @property
    def is_smooth_in_space(self) -> bool:
        """Whether the covariance is smooth, and has no form in space and time.

        Then the smoothness stays. With any smoothness, the process of tiles takes slow variation
        from the field, and predictions in the large gaps of satellite temperatures were worse; see
        ``docs/spatial-benchmarks.md``.
        """
        return self.form.separable and float(self.form.smoothness) > ROUGH

    @classmethod
    def of(cls, parameters: FieldParameters, loss: float = math.inf) -> "_Values":
        """Return the present values."""
        values = [value.detach().clone() for value in _covariance(parameters)]
        return cls(values, parameters.tiles.form.detached(), loss)

    def set(self, parameters: FieldParameters) -> None:
        """Give the parameters these values."""
        with torch.no_grad():
            for parameter, value in zip(_covariance(parameters), self.values, strict=True):
                parameter.copy_(value)
        parameters.tiles.take_form(self.form)


class _Sample:
    """Rows at randomly drawn places, and their likelihood.

    `small`, `medium` and `large` are the numbers of the places in the three samples.
    """

    def __init__(self, parameters: FieldParameters, rows: FieldRows, seed: int) -> None:
        self.parameters, self.rows = parameters, rows
        random = np.random.default_rng([seed, 5])
        sites = rows.sites
        order = random.permutation(len(sites))
        samples = SMALL_SAMPLE, MEDIUM_SAMPLE, LARGE_SAMPLE
        small, medium, large = np.searchsorted(np.cumsum(sites.count[order]), samples) + 1
        ends = small, min(medium, MOST_PLACES), large
        chosen = (torch.as_tensor(np.sort(order[:end])) for end in ends)
        self.small, self.medium, self.large = chosen
        places = np.unique(sites.centre[:, :2], axis=0)
        self.spacing = spacing(places, random.permutation(len(places))[:MOST_PLACES])
        points = numpy_of(rows.points)
        place = np.unique(points[:, :2], axis=0, return_inverse=True)[1].reshape(-1)
        self.step = time_step(place, points[:, 2])
        self.usual = _Values.of(parameters)
        rank = parameters.basis.rank
        self.blocks: tuple[Tensor, list[BlockRows]] | None = None
        self.no_weights = parameters.posterior.m.new_zeros(rank, 0).detach()

    def starts(self) -> Iterator[Start]:
        """Yield the starts to compare."""
        for noise, factor in product(NOISE, FACTORS):
            yield Start(noise, factor)
        if self.step is not None:
            for noise, factor, steps in product(NOISE[1:], FACTORS, MEMORIES):
                yield Start(noise, factor, steps * self.step)

    def compared(self, start: Start) -> float:
        """Return the loss of a start on the small sample."""
        self.take(start)
        try:
            with torch.no_grad():
                return float(self._loss(self.small))
        except NumericalError:
            return UNDEFINED

    def take(self, start: Start) -> None:
        """Set the parameters to a start."""
        self.usual.set(self.parameters)
        tiles, law = self.parameters.tiles, self.parameters.law
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
                powers = torch.tensor(POWERS, dtype=torch.float64, device=self.parameters.device)
                tiles.take_form(replace(tiles.form, powers=powers))
            nu = torch.full_like(tiles.form.smoothness, start.smoothness)
            tiles.take_form(replace(tiles.form, smoothness=nu))

    def fit(self, smoothness: float) -> _Values:
        """Maximise the likelihood for one smoothness, starting at the present values."""
        parameters, before = self.parameters, self.parameters.tiles.form.detached()
        stretch = torch.where(before.stretch == 0, SOME_STRETCH, before.stretch).requires_grad_()
        logits = before.powers.logit().requires_grad_()
        nu = torch.full_like(before.smoothness, smoothness)
        free: list[Tensor] = [*_covariance(parameters), stretch]
        if not before.separable:
            free.append(logits)
        centres = [value.detach().clone() for value in free]
        n = self._count(self.medium)
        optimiser = LBFGS(free, max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            powers = before.powers if before.separable else logits.sigmoid()
            parameters.tiles.take_form(Form(stretch, powers, nu))
            squares = [
                ((value - centre) / (STRETCH_SD if value is stretch else PRIOR_SD))
                .double()
                .square()
                .sum()
                for value, centre in zip(free, centres, strict=True)
            ]
            prior = torch.stack(squares).sum() / 2
            return self._loss(self.medium) + prior / n

        def closure() -> float:
            optimiser.zero_grad()
            try:
                objective = loss()
            except NumericalError:
                for value in free:
                    value.grad = torch.zeros_like(value)
                return UNDEFINED
            objective.backward()
            return float(objective.detach())

        optimiser.step(closure)
        return _Values.of(parameters, closure())

    def any_smoothness(self, best: Start, other: _Values) -> _Values:
        """Maximise the likelihood of the large sample over the smoothness too.

        It starts at the highest likelihood of the medium sample from each of `SMOOTHER`. If no
        covariance factorises, `other` is the result.
        """
        maxima = []
        for smoothness, noise in SMOOTHER:
            self.take(replace(best, smoothness=smoothness, noise=noise * best.noise))
            maxima.append(self.maximum(self.medium))
        min(maxima, key=lambda values: values.loss).set(self.parameters)
        largest = self.maximum(self.large)
        return largest if largest.loss < UNDEFINED else other

    def maximum(self, sites: Tensor) -> _Values:
        """Maximise the likelihood of places, starting at the present values."""
        free = _FreeValues(self.parameters)
        n = self._count(sites)

        def loss(away: Floats) -> tuple[float, Floats]:
            free.move(away)
            try:
                objective = self._loss(sites)
            except NumericalError:
                return UNDEFINED, np.zeros_like(away)
            objective.backward()
            prior = float(away @ away) / (2 * n)
            return float(objective.detach()) + prior, free.gradient() + away / n

        best = scipy.optimize.minimize(
            loss,
            np.zeros(free.number),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-MOST_AWAY, MOST_AWAY)] * free.number,
            options={"maxiter": MORE_ITERATIONS, "maxcor": 20, "ftol": TOLERANCE},
        )
        return _Values.of(self.parameters, loss(best.x)[0])

    def _loss(self, sites: Tensor) -> Tensor:
        """Return the negative log likelihood of the rows at places, per row."""
        parameters, rows = self.parameters, self.rows
        total = torch.zeros((), dtype=torch.float64, device=parameters.device)
        for at in self._blocks(sites):
            block = block_at(parameters, rows, at, self.no_weights)
            total = total + block.residual.square().sum() / 2 + block.log_scale
        return total / self._count(sites)

    def _blocks(self, sites: Tensor) -> list[BlockRows]:
        """Return the rows at places; those of the last places are kept."""
        if self.blocks is None or self.blocks[0] is not sites:
            parts = sites.split(PLACES_AT_ONCE)
            self.blocks = sites, [rows_at(self.rows, places) for places in parts]
        return self.blocks[1]

    def _count(self, sites: Tensor) -> int:
        """Return the number of rows at places."""
        return int(self.rows.sites.count[sites.numpy()].sum())


class _FreeValues:
    """The values that maximise the likelihood, as coordinates with standard deviation 1 in a prior.

    The coordinates are 0 at the present values. The last one moves all parts of the noise together,
    because their sum falls more slowly if each part falls alone.
    """

    def __init__(self, parameters: FieldParameters) -> None:
        self.process, form = parameters.tiles, parameters.tiles.form.detached()
        self.form, self.span = form, SMOOTH - LEAST_SMOOTHNESS
        share = ((form.smoothness - LEAST_SMOOTHNESS) / self.span).clamp(max=MOST_SHARE)
        stretch = torch.where(form.stretch == 0, SOME_STRETCH, form.stretch)
        values_of_form = stretch, share.logit(), form.powers.logit()
        self.values_of_form = [value.requires_grad_() for value in values_of_form]
        used = self.values_of_form[: 2 if form.separable else 3]
        self.tensors = [*_covariance(parameters), *used]
        flat = [value.detach().double().reshape(-1) for value in self.tensors]
        self.start, self.sizes = torch.cat(flat), [len(value) for value in flat]
        sd = [torch.full_like(value, PRIOR_SD) for value in flat]
        sd[len(_covariance(parameters))].fill_(STRETCH_SD)
        noise = [torch.zeros_like(value) for value in flat]
        for steps in (noise[0][2:], noise[3], noise[4]):
            steps.fill_(PRIOR_SD)
        self.steps = torch.cat([torch.cat(sd).diag(), torch.cat(noise)[None]])
        self.number = len(self.steps)

    def move(self, away: Floats) -> None:
        """Set the values at coordinates (`number`,)."""
        at = self.start + on_device(away, self.start.device) @ self.steps
        with torch.no_grad():
            for value, moved in zip(self.tensors, at.split(self.sizes), strict=True):
                value.grad = torch.zeros_like(value)
                value.copy_(moved.view_as(value))
        stretch, smooth, powers = self.values_of_form
        nu = LEAST_SMOOTHNESS + self.span * smooth.sigmoid()
        powers = self.form.powers if self.form.separable else powers.sigmoid()
        self.process.take_form(Form(stretch, powers, nu))

    def gradient(self) -> Floats:
        """Return the gradient by the coordinates, (`number`,)."""
        gradients = [value.grad for value in self.tensors if value.grad is not None]
        by_values = torch.cat([gradient.double().reshape(-1) for gradient in gradients])
        by_coordinates: Floats = (self.steps @ by_values).cpu().numpy()
        return by_coordinates

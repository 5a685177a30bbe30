"""Start values of covariance and noise of the field model, found from a sample of places."""

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import NumericalError

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

MOST_ROWS, MOST_PLACES = 3000, 1500
"""Largest numbers of rows and of places in the sample."""

RANGES, FACTORS = (5.0, 2.5), (1.0, 6.0)
"""Possible ranges are these multiples of the median distance between neighbouring places, times one
of the factors.
"""

NOISE = (1.0, 0.1, 0.01)
"""Possible multiples of the usual noise, and of the usual variance of single tiles."""

MOST_COPIES = 0.05
"""With a larger share of rows that repeat another row exactly, nothing changes: copies look like
measurements without noise.
"""

ITERATIONS = 30
"""Largest number of iterations of L-BFGS."""

PRIOR_SD = 3.0
"""Standard deviation of the parameters around their start values in a weak prior."""

PLACES_AT_ONCE = 64

UNDEFINED = 1e6
"""Value of the objective where a covariance does not factorise."""


def start_covariance(model: "FieldNetwork", seed: int) -> None:
    """Set covariance and noise of precise measurements before the first training step.

    The usual start values suit noisy measurements, and gradient descent changes them slowly. So the
    likelihood of a sample first compares `NOISE` and `FACTORS`. If it is highest with the usual
    noise, nothing changes. Otherwise the start values maximise the likelihood, plus a weak normal
    prior around the best of the compared values, by L-BFGS. This likelihood is Vecchia's, of the
    rows at randomly drawn places, given the rows that condition them, if the field is constant.
    Nothing changes either if many rows are copies; see `MOST_COPIES`.
    """
    rows = torch.cat([model.points(model.rows.x), model.rows.y[:, None]], 1)
    if len(torch.unique(rows, dim=0)) < (1 - MOST_COPIES) * len(rows):
        return
    random = np.random.default_rng([seed, 5])
    sites = model.sites.sites
    order = random.permutation(len(sites))[:MOST_PLACES]
    order = order[: int(np.searchsorted(np.cumsum(sites.count[order]), MOST_ROWS)) + 1]
    chosen = torch.from_numpy(np.sort(order)).to(model.device)
    n = int(sites.count[order].sum())
    tiles, law = model.tiles, model.law
    parameters = [
        *(tiles.log_sills, tiles.log_ranges, tiles.log_memories, law.log_floor, law.log_single),
        *(law.log_decays, law.gain, law.log_gain_decays, model.mean_constant),
    ]
    usual = [value.detach().clone() for value in parameters]
    no_weights = model.posterior.m.new_zeros(model.basis.rank, 0).detach()

    def loss() -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=model.device)
        for part in chosen.split(PLACES_AT_ONCE):
            block = model.block(part, factor=no_weights)
            total = total + block.residual.square().sum() / 2 + block.log_scale
        return total / n

    def start(noise: float, factor: float) -> None:
        with torch.no_grad():
            for value, before in zip(parameters, usual, strict=True):
                value.copy_(before)
            nugget = tiles.log_sills[2:].exp().sum() + law.log_floor.exp() + law.log_single.exp()
            shared = tiles.log_sills[:2].exp().sum()
            tiles.log_sills[2:] += math.log(noise)
            law.log_floor.add_(math.log(noise))
            law.log_single.add_(math.log(noise))
            # The total variance of a single test stays the same.
            tiles.log_sills[:2] += (1 + (1 - noise) * nugget / shared).log()
            step = torch.tensor(RANGES, dtype=torch.float64) * distance * factor
            tiles.log_ranges.copy_(step.log())

    def at(pair: tuple[float, float]) -> float:
        start(*pair)
        with torch.no_grad():
            return float(loss())

    distance = _neighbour_distance(sites.centre, random)
    noise, factor = min(product(NOISE, FACTORS), key=at)
    if noise == NOISE[0]:
        with torch.no_grad():
            for value, before in zip(parameters, usual, strict=True):
                value.copy_(before)
        return
    start(noise, factor)
    centres = [value.detach().clone() for value in parameters]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        away = [(v - c).double().square().sum() for v, c in zip(parameters, centres, strict=True)]
        try:
            found = loss() + torch.stack(away).sum() / (2 * PRIOR_SD**2 * n)
        except NumericalError:
            for value in parameters:
                value.grad = torch.zeros_like(value)
            return UNDEFINED
        found.backward()
        return float(found.detach())

    optimiser.step(closure)
    model.zero_grad(set_to_none=True)


def _neighbour_distance(centre: np.ndarray, random: np.random.Generator) -> float:
    """Return the median distance from a place to the nearest other place, in km; 1 if alone."""
    places = np.unique(centre, axis=0)
    if len(places) < 2:
        return 1.0
    asked = places[random.permutation(len(places))[:MOST_PLACES]]
    distances = np.asarray(KDTree(places).query(asked, k=2)[0])
    return float(np.median(distances[:, 1]))

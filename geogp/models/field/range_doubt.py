"""How uncertain the range of the tile process is, and what follows for places far from the rows.

Rows within a region tell little about long ranges: processes with the same s / l^(2 p), with s the
variance, l the range and p the smoothness, are hardly told apart there (Zhang 2004). The fit takes
the likeliest pair, so that variances far from the rows are too small. Here the pair (s, l) is
varied along this curve. Its weight is the restricted likelihood of some rows, times the prior of
Fuglstad et al. (2019), which allows long ranges, but hardly large variances:

    p(s, l) ∝ exp(-λ sqrt(s)) / l^2  for two dimensions and long ranges.

λ is such that sqrt(s) is above `LARGE_SD` with the probability 0.05. The variance of a prediction,
averaged over the pairs, with the variance of their means, exceeds that of the likeliest pair. A
Matérn variogram is fitted to the excess as a function of the distance to the nearest row.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist
from torch import Tensor

from geogp.models.field.home import RANGES, matern
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.rows import FieldRows
from geogp.models.field.tile_process import TileProcess
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.trees import tree_of

Floats = NDArray[np.float64]

ROWS = 500
"""Number of rows whose likelihood weighs the ranges."""

FACTORS = 2.0 ** np.arange(-1, 4, 0.5)
"""Factors of the range."""

SHORTEST = 0.05
"""Ranges of the excess are above this share of the diagonal of the rows' bounding box, so that it
vanishes among the rows.
"""

LARGE_SD = 3.0
"""The standard deviation of the process is above this with the probability 0.05, a priori."""

PROBES = 128
"""Number of places, inside and around the rows, at which variances are compared."""

AROUND = 0.5
"""The places are in the bounding box of the rows and around it, up to this share of its sides."""


class Far(NamedTuple):
    """Process of the field far from its rows: range in km and variance of a Matérn correlation."""

    range_km: float
    variance: float


class Doubt(NamedTuple):
    """Variance that the doubt about the range adds at the distance d from the rows.

    With c a Matérn correlation, it is `variance` (1 - c(d / range_km))^power.
    """

    range_km: float
    variance: float
    power: float


@torch.no_grad()
def range_doubt(parameters: FieldParameters, rows: FieldRows, field: Far, seed: int) -> Doubt:
    """Return the excess of the variance far from the rows.

    `field` is the process of the field around its mean, which is not varied.
    """
    random = np.random.default_rng([seed, 7])
    chosen = np.sort(random.permutation(len(rows))[:ROWS])
    numbers = on_device(chosen, rows.x.device)
    terms = rows.terms(parameters, rows.x[numbers], rows.counts[numbers])
    known, asked = rows.points[numbers], _probes(rows, random)
    amplitude, noise = numpy_of(terms.amplitude), numpy_of(terms.noise)
    y = numpy_of(rows.y[numbers] - parameters.law.shift(rows.counts[numbers]))
    if c := parameters.architecture.used_covariates:
        y = y - numpy_of(terms.phi[:, -c:].double() @ parameters.posterior.m[-c:].double())
    at, there = numpy_of(known)[:, :2], numpy_of(asked)[:, :2]
    same, across = (
        field.variance * matern(cdist(at, places) / field.range_km) for places in (at, there)
    )
    columns = np.column_stack([np.ones(len(y)), y])
    weights, means, variances, plain = [], [], [], []
    for factor in FACTORS:
        tiles, log_prior = _stretched(parameters, factor)
        of_tiles = tiles(known[None], known[None])[0]
        K = numpy_of(of_tiles) * np.outer(amplitude, amplitude)
        k = numpy_of(tiles(known[None], asked[None])[0]) * amplitude[:, None]
        # Rounding moves eigenvalues by up to n times the precision, times the largest value.
        rounding = len(K) * torch.finfo(of_tiles.dtype).eps * K.max()
        L = cholesky(K + same + np.diag(noise + rounding), lower=True)
        white = solve_triangular(L, np.hstack([columns, k + across]), lower=True)
        one, values, near = white[:, 0], white[:, 1], white[:, 2:]
        information = one @ one
        mean = one @ values / information
        rest = values - mean * one
        logs = np.log(np.diagonal(L)).sum() + 0.5 * np.log(information)
        weights.append(log_prior - logs - 0.5 * rest @ rest)
        means.append(mean + near.T @ rest)
        plain.append(float(tiles.variance()) + field.variance - np.square(near).sum(0))
        variances.append(plain[-1] + np.square(1 - one @ near) / information)
    share = np.exp(np.array(weights) - max(weights))
    share /= share.sum()
    alone = plain[FACTORS.tolist().index(1.0)]
    spread = np.array(means) - share @ np.array(means)
    excess = share @ (np.array(variances) + np.square(spread)) - alone
    apart = np.asarray(tree_of(at).query(there)[0])
    diagonal = float(np.linalg.norm(np.ptp(at, axis=0)))
    power = float(parameters.tiles.smoothness) + 0.5
    total = alone + float(np.median(noise))
    return fitted(apart, excess, total, diagonal * RANGES[RANGES > SHORTEST], power)


def _probes(rows: FieldRows, random: np.random.Generator) -> Tensor:
    """Return points inside and around the rows, at their middle time, of the first provider."""
    low, high = (rows.points[:, :2].amin(0), rows.points[:, :2].amax(0))
    share = on_device(random.uniform(-AROUND, 1 + AROUND, (PROBES, 2)), low.device)
    others = rows.points[:1, 2:].repeat(PROBES, 1)
    others[:, 0] = rows.points[:, 2].median()
    return torch.cat([low + share * (high - low), others], 1)


def _stretched(parameters: FieldParameters, factor: float) -> tuple[TileProcess, float]:
    """Return the tile process with a longer or shorter range, and the log density of the prior.

    The range is that of the term with the largest variance among those that reach other places.
    The density is that of the logarithms.
    """
    tiles = deepcopy(parameters.tiles)
    largest = int(tiles.log_sills[: len(tiles.log_ranges)].argmax())
    with torch.no_grad():
        tiles.log_ranges[largest] += np.log(factor)
        tiles.log_sills[largest] += 2 * float(tiles.smoothness) * np.log(factor)
    sd = float((0.5 * tiles.log_sills[largest].double()).exp())
    return tiles, np.log(sd) + np.log(0.05) / LARGE_SD * sd - np.log(factor)


def fitted(
    distance: Floats, excess: Floats, variance: Floats, ranges: Floats, power: float
) -> Doubt:
    """Fit the excess (n,) at distances (n,) by least squares, relative to the variance (n,).

    With the smoothness p, variances near rows grow as d^(2 p), whatever the range, and the excess
    as a higher power; here it is 2 p + 1.
    """
    shape = (1 - matern(distance / ranges[:, None])) ** power
    sills = ((shape * excess) / variance**2).sum(1) / np.square(shape / variance).sum(1)
    sills = np.maximum(sills, 0)
    losses = np.square((excess - sills[:, None] * shape) / variance).sum(1)
    best = int(losses.argmin())
    return Doubt(float(ranges[best]), float(sills[best]), power)

"""Local kriging in space and time, with the likelihood of each row given the rows near it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from benchmarks.script import Floats
from geogp.models.field.near_summaries import Indices, Measurements

NEAREST = 48
"""Number of rows that predict a row."""

STRETCHES = (0.3, 0.1, 1.0)
"""Kilometres that count as a quarter in the choice of near rows; the fit uses the first value."""

FITTED, FIT_NEAREST, STEPS = 1_000, 32, 60
"""Numbers of rows whose likelihood is maximised, of rows near each row, and of steps of Adam."""

START = (0.03, 0.03, 0.05, 0.05, 0.5, 8.0, 8.0, 8.0)
"""Two variances, two parts of the noise, two ranges in km and two in quarters."""

CHUNK = 1024


@dataclass(frozen=True)
class Covariance:
    """Covariance and noise of the difference between a row and the mean of its quarter.

    The covariance at a distance of h km and u quarters is the sum of two terms v exp(-h / r - u /
    t). The noise variance is a constant and a term divided by the weight of the row. `parameters`
    (8,) are logarithms of the values of `START`; `stretch` is one of `STRETCHES`.
    """

    parameters: Tensor
    stretch: float

    def features(self, source: Measurements, asked: Measurements, own: Indices | None) -> Floats:
        """Return the kriging mean and variance without noise, (n, 2); arguments of `Summaries`."""
        levels, rows = quarter_means(source), np.arange(len(asked))
        source = replace(source, y=source.y - levels(source.time))
        near = _near(source, asked, own, self.stretch)
        found = np.empty((len(asked), 2))
        with torch.no_grad():
            for start in range(0, len(asked), CHUNK):
                c = rows[start : start + CHUNK]
                found[c] = _solved(source, asked.at(c), near[c], self.parameters).numpy()
        found[:, 0] += levels(asked.time)
        return found


def quarter_means(rows: Measurements) -> Callable[[Floats], Floats]:
    """Return a function that maps times to the weighted mean of the rows of a time."""
    times, number = np.unique(rows.time, return_inverse=True)
    means = np.bincount(number, rows.weight * rows.y) / np.bincount(number, rows.weight)
    return lambda time: np.interp(time, times, means)


def fit_covariance(source: Measurements, seed: int) -> Covariance:
    """Return the covariance of the largest likelihood of random rows given the rows near them."""
    source = replace(source, y=source.y - quarter_means(source)(source.time))
    chosen = np.random.default_rng(seed).permutation(len(source))[:FITTED]
    asked = source.at(chosen)
    parameters = torch.tensor(START, dtype=torch.float64).log().requires_grad_()
    near = _near(source, asked, chosen, STRETCHES[0])[:, :FIT_NEAREST]
    optimiser = torch.optim.Adam([parameters], lr=0.1)
    for _ in range(STEPS):
        optimiser.zero_grad()
        _loss(source, asked, near, parameters).backward()
        optimiser.step()
    parameters = parameters.detach()

    def loss(stretch: float) -> float:
        return float(_loss(source, asked, _near(source, asked, chosen, stretch), parameters))

    return Covariance(parameters, min(STRETCHES, key=loss))


def _loss(source: Measurements, asked: Measurements, near: Indices, parameters: Tensor) -> Tensor:
    """Return the mean negative log density of asked rows given the rows near them."""
    mean, variance = _solved(source, asked, near, parameters).unbind(1)
    total = variance + _noise(asked.weight, parameters)
    error = torch.from_numpy(asked.y) - mean
    return 0.5 * (total.log() + error.square() / total + math.log(2 * math.pi)).mean()


def _solved(source: Measurements, asked: Measurements, near: Indices, parameters: Tensor) -> Tensor:
    """Return mean and variance without noise, (n, 2), given the rows `near` (n, k)."""
    place, time, y = (torch.from_numpy(v) for v in (source.place, source.time, source.y))
    place, time = place[near], time[near]
    inside = _covariance(torch.cdist(place, place), time[:, :, None] - time[:, None], parameters)
    inside = inside + torch.diag_embed(_noise(source.weight[near], parameters))
    apart = torch.from_numpy(asked.place)[:, None] - place
    lag = torch.from_numpy(asked.time)[:, None] - time
    across = _covariance(apart.square().sum(2).sqrt(), lag, parameters)
    factor = torch.linalg.cholesky(inside)
    sides = torch.stack([across, y[near]], 2)
    across, y = torch.linalg.solve_triangular(factor, sides, upper=False).unbind(2)
    variance = parameters[:2].exp().sum() - across.square().sum(1)
    return torch.stack([(across * y).sum(1), variance], 1)


def _covariance(apart: Tensor, lag: Tensor, parameters: Tensor) -> Tensor:
    v, r, t = parameters[:2], parameters[4:6], parameters[6:]
    terms = [(v[k] - apart * (-r[k]).exp() - lag.abs() * (-t[k]).exp()).exp() for k in (0, 1)]
    return terms[0] + terms[1]


def _noise(weight: Floats, parameters: Tensor) -> Tensor:
    return parameters[2].exp() + parameters[3].exp() / torch.from_numpy(weight)


def _near(
    source: Measurements, asked: Measurements, own: Indices | None, stretch: float
) -> Indices:
    """Return the numbers (n, k) of the source rows near each row, without the row itself."""
    tree = cKDTree(np.column_stack([source.place, stretch * source.time]))
    k = min(NEAREST, len(source) - (own is not None))
    asked_points = np.column_stack([asked.place, stretch * asked.time])
    _, found = tree.query(asked_points, k + (own is not None))
    if own is None:
        return np.asarray(found)
    # The row itself moves to the end of its line.
    order = np.argsort(found == own[:, None], axis=1, kind="stable")
    return np.take_along_axis(found, order, 1)[:, :k]

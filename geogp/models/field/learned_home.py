"""What the rows tell about the field far from them: its range, its variance, and a trend."""

from dataclasses import replace
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.home import (
    ANCHORS,
    MOST_TIMES,
    RANGES,
    TINY,
    Home,
    covariance,
    spread,
)
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.range_doubt import Far, range_doubt
from geogp.models.field.rows import FieldRows
from geogp.models.numerics.devices import on_device

Floats = NDArray[np.float64]

PLACES = 128
"""Number of places from which range and variance are learned."""

LEAST_PLACES = 16
"""With fewer places, the field goes nowhere: they tell nothing about its range."""

LEAST_VARIANCE = 0.135
"""Smallest variance of the field far from rows, for a standardised target.

It is that of parts of Puerto Rico, and of the Virgin Islands, around a level learned without them
(`benchmarks/answers/far_from_data.py`). The field at the rows' places is a posterior mean, which is
smoother than the field itself, and other parts may differ more than those that have rows.
"""

ONE_SIDE = 0.3
"""Share of the places on one side for which mean and trend are compared."""

ON_LINE = 1e-3
"""Places within so thin a strip, as a share of its length, count as places on a line."""

TREND_GAIN = 3.0
"""A trend has squared errors this many times smaller than the mean's, on each of the four sides."""


def at_rows(home: Home, rows: FieldRows) -> Home:
    """Return the home with the anchors and times of these rows."""
    if not home.exists:
        return Home.nowhere(rows.x)
    at = spread_rows(rows, ANCHORS)
    times, quarters = times_of(rows)
    places = numpy_of(rows.points[at])[:, :2]
    return replace(home, anchors=rows.x[at], places=places, times=times, quarters=quarters)


def times_of(rows: FieldRows) -> tuple[Tensor, Floats]:
    """Return distinct times of rows, scaled and in quarters, or `MOST_TIMES` equally spaced ones.

    Without times among the inputs, the scaled times mean nothing.
    """
    quarters, first = np.unique(numpy_of(rows.points[:, 2]), return_index=True)
    times = rows.x[on_device(first, rows.x.device), 2:3].flatten()
    if len(quarters) <= MOST_TIMES:
        return times, quarters
    share = np.linspace(0, 1, MOST_TIMES)
    spaced = times[0] + on_device(share, times.device).to(times.dtype) * (times[-1] - times[0])
    return spaced, quarters[0] + share * np.ptp(quarters)


def spread_rows(rows: FieldRows, most: int) -> Tensor:
    """Return the numbers of a row at each of at most `most` places, far from each other."""
    first = rows.sites.first
    chosen = spread(rows.sites.centre[:, :2], most)
    return on_device(first[chosen], rows.x.device)


def learned_home(parameters: FieldParameters, rows: FieldRows) -> Home:
    """Learn range and variance, and whether there is a trend, from the field at rows' places.

    Each place has the middle time of the rows, and the first row's provider. The range is that of
    `RANGES` with the largest restricted likelihood, whose variance is in closed form. For the
    trend, see `has_trend`; for the doubt about the range of the tile process, `range_doubt`.
    """
    at = spread_rows(rows, PLACES)
    if len(at) < LEAST_PLACES:
        return Home.nowhere(rows.x)
    places = numpy_of(rows.points[at])[:, :2]
    x = rows.x[at].clone()
    if parameters.has_time:
        x[:, 2] = rows.x[:, 2].median()
    if providers := parameters.architecture.used_providers:
        x[:, -providers:] = rows.x[0, -providers:]
    c = parameters.architecture.used_covariates
    with torch.no_grad():
        phi = parameters.basis.values(x).double()
        r = phi.shape[1] - c
        field = numpy_of(phi[:, :r] @ parameters.posterior.m[:r].double())
    mean = np.ones((len(places), 1))
    linear = np.hstack([mean, places - places.mean(0)])
    range_km, variance = likeliest(places, field, mean)
    trend = has_trend(places, field, range_km)
    if trend:
        range_km, variance = likeliest(places, field, linear)
    doubt = range_doubt(parameters, rows, Far(range_km, variance), rows.seed)
    found = replace(
        Home.nowhere(rows.x),
        range_km=range_km,
        variance=max(variance, LEAST_VARIANCE),
        trend=trend,
        doubt_km=doubt.range_km,
        doubt=doubt.variance,
        doubt_power=doubt.power,
    )
    return at_rows(found, rows)


def likeliest(places: Floats, field: Floats, T: Floats) -> tuple[float, float]:
    """Return range in km and variance of a Matérn process with the mean T b, from its values.

    `places` (n, 2) are in km, `field` (n,) are the values, and T is (n, q).
    """
    diagonal = float(np.linalg.norm(np.ptp(places, axis=0)))
    free = len(T) - T.shape[1]
    best, found = -np.inf, (diagonal, 0.0)
    for range_km in diagonal * RANGES:
        L = np.linalg.cholesky(covariance(places, range_km))
        white, values = np.hsplit(np.linalg.solve(L, np.column_stack([T, field])), [-1])
        b = np.linalg.lstsq(white, values, rcond=None)[0]
        variance = max(float(np.square(values - white @ b).sum()) / free, TINY)
        logs = 2 * np.log(np.diagonal(L)).sum() + np.linalg.slogdet(white.T @ white)[1]
        likelihood = -0.5 * (free * np.log(variance) + logs)
        if likelihood > best:
            best, found = likelihood, (float(range_km), variance)
    return found


def has_trend(places: Floats, field: Floats, range_km: float) -> bool:
    """Return whether a linear trend continues beyond the places on each side; see `TREND_GAIN`.

    The `ONE_SIDE` of the places that lie farthest to one side are predicted from the others. On the
    stationary fields of `benchmarks/beyond_cases.py`, a trend that is better on some sides, or a
    little better on all, makes predictions beyond all places worse.
    Places on a line have none, because their plane is not determined.
    """
    across, along = np.linalg.svd(places - places.mean(0), compute_uv=False)[::-1]
    if across < ON_LINE * along:
        return False
    for axis, sign in product((0, 1), (1, -1)):
        side = sign * places[:, axis]
        far = side > np.quantile(side, 1 - ONE_SIDE)
        L = np.linalg.cholesky(covariance(places[~far], range_km))
        values = np.linalg.solve(L, field[~far])
        errors = []
        for T in (np.ones((len(places), 1)), np.column_stack([np.ones(len(places)), places])):
            b = np.linalg.lstsq(np.linalg.solve(L, T[~far]), values, rcond=None)[0]
            errors.append(np.square(field - T @ b)[far].sum())
        if not errors[0] > TREND_GAIN * errors[1]:
            return False
    return True

"""What the rows tell about the field far from them: its range, its variance, and a trend."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from geogp.models.field.home import ANCHORS, TINY, Home, covariance, spread
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.rows import FieldRows
from geogp.models.numerics.devices import on_device

Floats = NDArray[np.float64]

PLACES = 128
"""Number of places from which range and variance are learned."""

LEAST_PLACES = 16
"""With fewer places, the field goes nowhere: they tell nothing about its range."""

RANGES = np.geomspace(0.02, 2.0, 24)
"""Possible ranges, as a share of the diagonal of the rows' bounding box."""

TREND_GAIN = 5.0
"""Smallest gain in the log likelihood for which the mean is a linear trend."""


class Fitted(NamedTuple):
    """Log likelihood, variance and range, in km, of a Matérn process with a mean or a trend."""

    likelihood: float
    variance: float
    range_km: float


def home_of(rows: FieldRows, range_km: float, variance: float, *, trend: bool) -> Home:
    """Return the home, with this range and variance, of a field that predicts from rows."""
    if not variance:
        return Home.nowhere(rows.x)
    at = spread_rows(rows, ANCHORS)
    places = numpy_of(rows.points[at])[:, :2]
    return Home(range_km, variance, trend, rows.x[at], places)


def spread_rows(rows: FieldRows, most: int) -> Tensor:
    """Return the numbers of a row at each of at most `most` places, far from each other."""
    first = rows.sites.first
    chosen = spread(rows.sites.centre[:, :2], most)
    return on_device(first[chosen], rows.x.device)


def learned_home(parameters: FieldParameters, rows: FieldRows) -> Home:
    """Learn range and variance, and whether there is a trend, from the field at rows' places.

    Each place has the middle time of the rows. The range is that of `RANGES` with the largest
    likelihood, whose variance is in closed form.
    """
    at = spread_rows(rows, PLACES)
    if len(at) < LEAST_PLACES:
        return Home.nowhere(rows.x)
    places = numpy_of(rows.points[at])[:, :2]
    x = rows.x[at].clone()
    if parameters.has_time:
        x[:, 2] = rows.x[:, 2].median()
    c = parameters.architecture.used_covariates
    with torch.no_grad():
        phi = parameters.basis.values(x).double()
        r = phi.shape[1] - c
        field = numpy_of(phi[:, :r] @ parameters.posterior.m[:r].double())
    one = np.ones((len(places), 1))
    linear = np.hstack([one, places - places.mean(0)])
    mean, trend = (_likeliest(places, field, T) for T in (one, linear))
    better = trend if trend.likelihood - mean.likelihood > TREND_GAIN else mean
    if better.variance < TINY:
        return Home.nowhere(rows.x)
    return home_of(rows, better.range_km, better.variance, trend=better is trend)


def _likeliest(places: Floats, field: Floats, T: Floats) -> Fitted:
    """Fit a Matérn process with the mean T b to values at places, by restricted likelihood.

    The likelihood in the result is the usual one, which compares different T.
    """
    diagonal = float(np.linalg.norm(np.ptp(places, axis=0)))
    n, q = T.shape
    fits = []
    for share in RANGES:
        K = covariance(places, share * diagonal)
        factor = cho_factor(K, lower=True)
        white = cho_solve(factor, T)
        information = T.T @ white
        residual = field - T @ np.linalg.solve(information, white.T @ field)
        square = float(residual @ cho_solve(factor, residual))
        logs = 2 * np.log(np.diagonal(factor[0])).sum()
        variance = max(square / (n - q), TINY)
        restricted = -0.5 * ((n - q) * np.log(variance) + logs + np.linalg.slogdet(information)[1])
        usual = -0.5 * (n * np.log(max(square / n, TINY)) + logs)
        fits.append((restricted, Fitted(float(usual), variance, share * diagonal)))
    return max(fits, key=lambda fit: fit[0])[1]

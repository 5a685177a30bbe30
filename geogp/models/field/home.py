"""The field far from the rows: it returns to its mean, or to a trend, and its variance grows.

A learned basis knows nothing beyond the rows. With d the distance to the nearest row, and c(d) a
Matérn correlation of smoothness 3/2 whose range l and variance v are learned from the field at the
rows' places, the field uses the features

    psi(x) = c(d) phi(x) + (1 - c(d)) t(x)' B(time).

t is 1, or (1, x, y) if a linear trend earns its place, and B (q, r) are the coefficients of
generalised least squares of the features at `ANCHORS` places, so that t' B m is the mean or the
trend of the field (universal kriging; Chilès and Delfiner 2012, section 3.4). If phi were right,
the field would differ from that of psi by 1 - c times its deviation from t' B m. So the level has
an error δ, which is the same at all times, with the covariance

    Cov(δ(x), δ(x')) = (1 - c)(1 - c') (v C(x, x') + t(x)' G t(x')).

G is the covariance of the coefficients of t, and C the correlation at the distance of x and x',
approximated from `KNOTS` places with C(x, x) = 1.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from torch import Tensor
from torch.nn.functional import pad

from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.numerics.devices import on_device
from geogp.models.process.placement import MAX_CANDIDATES, farthest_points

Floats = NDArray[np.float64]

ANCHORS = 64
"""Number of places whose features give those of the mean and of the trend."""

KNOTS = 32
"""Largest number of places from which correlations of δ are approximated."""

NUGGET = 0.01
"""Share of independent variation in the field; a smooth field so has no endless range."""

BEYOND = 0.5
"""A trend continues to this share of the bounding box beyond its sides, and is then constant."""

MOST_TIMES = 64
"""Largest number of times that have features of mean and trend of their own."""

TINY = 1e-12
"""Variances, and eigenvalues of correlations, below this value count as this value."""

NEAR = 1e-9
"""Rows with 1 - c below this value use phi alone."""


def matern(distance: Floats) -> Floats:
    """Return the Matérn correlation of smoothness 3/2 at distances in ranges."""
    s = np.sqrt(3.0) * distance
    return np.asarray((1 + s) * np.exp(-s))


@dataclass(frozen=True, eq=False)
class Home:
    """Where the field goes with the distance from the rows, and how uncertain it is there.

    `range_km`: l. `variance`: v, for a standardised target; 0 if the field goes nowhere.
    `trend`: whether t is (1, x, y).
    `anchors`: scaled inputs of rows at distant places, (a, d), on the device of the model.
    `places`: their coordinates in km, (a, 2).
    `times`: scaled times of the rows, sorted, (k,); see `times_of`. Mean and trend at another time
        are those of the nearest of these times.
    """

    range_km: float
    variance: float
    trend: bool
    anchors: Tensor
    places: Floats
    times: Tensor

    @classmethod
    def nowhere(cls, x: Tensor) -> "Home":
        """Return the home of a field that stays what its basis says; `x` are scaled inputs."""
        places = np.zeros((0, 2))
        return cls(1.0, 0.0, trend=False, anchors=x[:0], places=places, times=x.new_zeros(0))

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device."""
        return replace(self, anchors=self.anchors.to(device), times=self.times.to(device))

    @property
    def exists(self) -> bool:
        """Whether the field goes anywhere."""
        return self.variance > 0

    @cached_property
    def _box(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Centre and half width of the anchors' box, and the bounds of t's coordinates."""
        low, high = self.places.min(0), self.places.max(0)
        half = np.maximum((high - low) / 2, TINY)
        most = np.full(2, 1 + 2 * BEYOND)
        return (low + high) / 2, half, -most, most

    def _terms(self, places: Floats) -> Floats:
        """Return t at places in km, (n, q)."""
        one = np.ones((len(places), 1))
        if not self.trend:
            return one
        centre, half, low, high = self._box
        return np.hstack([one, np.clip((places - centre) / half, low, high)])

    @cached_property
    def _least_squares(self) -> tuple[Floats, Floats]:
        """The matrix (q, a) that gives B from features of the anchors, and the root of G (q, q)."""
        K = covariance(self.places, self.range_km)
        T = self._terms(self.places)
        white = cho_solve(cho_factor(K, lower=True), T)
        G = np.linalg.inv(T.T @ white)
        return G @ white.T, np.sqrt(self.variance) * np.linalg.cholesky(G)

    def correlation(self, distance: Floats) -> Floats:
        """Return c at distances to the nearest row in km, (n,)."""
        return matern(distance / self.range_km)

    def features(self, parameters: FieldParameters, x: Tensor, distance: Floats) -> Tensor:
        """Return psi (n, r) at scaled inputs within the rows' times, at distances (n,) in km."""
        phi: Tensor = parameters.basis.values(x)
        away = 1 - self.correlation(distance)
        far = np.flatnonzero(away > NEAR)
        if not self.exists or not len(far):
            return phi
        at = on_device(far, x.device)
        mean = self._mean_features(parameters, x[at])
        if c := parameters.architecture.used_covariates:
            mean[:, -c:] = phi[at, -c:]
        share = torch.as_tensor(away[far]).to(phi)[:, None]
        return phi.index_copy(0, at, phi[at] + share * (mean - phi[at]))

    def _mean_features(self, parameters: FieldParameters, x: Tensor) -> Tensor:
        """Return t' B at scaled inputs, (n, r)."""
        # A row may have no time, but each needs a column to be compared by.
        columns = pad(self._keys(parameters, x), (1, 0))
        keys, number = torch.unique(columns, dim=0, return_inverse=True)
        a, k = len(self.anchors), len(keys)
        inputs = self.anchors.new_zeros(k, a, x.shape[1])
        inputs[..., :2] = self.anchors[:, :2]
        inputs[..., 2:] = keys[:, None, 1:]
        phi = parameters.basis.values(inputs.flatten(0, 1)).view(k, a, -1)
        solve = torch.as_tensor(self._least_squares[0]).to(phi)
        terms = torch.as_tensor(self._terms(numpy_of(parameters.points(x))[:, :2])).to(phi)
        B = solve @ phi
        return torch.stack([terms[:, i, None] * B[number, i] for i in range(len(solve))]).sum(0)

    def _keys(self, parameters: FieldParameters, x: Tensor) -> Tensor:
        """Return nearest times and providers of scaled inputs, other covariates 0, (n, d - 2)."""
        keys = x[:, 2:].clone()
        hidden = slice(
            parameters.coordinates - 2,
            keys.shape[1] - parameters.architecture.used_providers,
        )
        keys[:, hidden] = 0
        if parameters.has_time:
            between = (self.times[1:] + self.times[:-1]) / 2
            keys[:, 0] = self.times[torch.bucketize(keys[:, 0].contiguous(), between)]
        return keys

    def variances(self, places: Floats, distance: Floats) -> Floats:
        """Return the variance of δ for a standardised target, (n,), at places (n, 2) in km."""
        if not self.exists:
            return np.zeros(len(distance))
        mean = self._terms(places) @ self._least_squares[1]
        variance: Floats = np.square(1 - self.correlation(distance))
        variance *= self.variance + np.square(mean).sum(1)
        return variance

    def factor(self, places: Floats, distance: Floats) -> Floats:
        """Return R (n, q), R R' the covariance of δ for a standardised target."""
        if not self.exists:
            return np.zeros((len(places), 0))
        distinct = np.unique(places, axis=0)
        knots = distinct[spread(distinct, KNOTS)]
        value, vectors = np.linalg.eigh(matern(cdist(knots, knots) / self.range_km))
        basis = vectors / np.sqrt(value.clip(min=TINY))
        white = matern(cdist(places, knots) / self.range_km) @ basis
        size = np.sqrt(np.square(white).sum(1)).clip(min=TINY)
        mean = self._terms(places) @ self._least_squares[1]
        away = 1 - self.correlation(distance)
        root = np.hstack([np.sqrt(self.variance) * white / size[:, None], mean])
        return np.asarray(away[:, None] * root)


def covariance(places: Floats, range_km: float) -> Floats:
    """Return correlations of the field between places, with `NUGGET`, (n, n)."""
    K: Floats = NUGGET * np.eye(len(places))
    K += (1 - NUGGET) * matern(cdist(places, places) / range_km)
    return K


def times_of(x: Tensor) -> Tensor:
    """Return the distinct times of scaled inputs, or as many equally spaced ones as allowed."""
    times: Tensor = torch.unique(x[:, 2:3])
    if len(times) <= MOST_TIMES:
        return times
    low, high = float(times[0]), float(times[-1])
    return torch.linspace(low, high, MOST_TIMES, dtype=x.dtype, device=x.device)


def spread(places: Floats, most: int) -> NDArray[np.int64]:
    """Return the numbers of distinct places (n, 2), each far from the others."""
    some = np.arange(0, len(places), -(-len(places) // MAX_CANDIDATES))
    distinct = some[np.unique(places[some], axis=0, return_index=True)[1]]
    points = places[distinct]
    chosen = farthest_points(torch.as_tensor(points), min(most, len(points)))
    number = (cdist(chosen.numpy(), points) == 0).argmax(1)
    return np.asarray(distinct[number], np.int64)

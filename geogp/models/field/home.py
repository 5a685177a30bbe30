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

    Cov(δ(x), δ(x')) = (1 - c)(1 - c') (v C(x, x') + t(x)' G t(x'))
                       + ((1 - e)(1 - e'))^(k/2) u E(x, x').

G is the covariance of the coefficients of t, and C the correlation at the distance of x and x',
approximated from `KNOTS` places with C(x, x) = 1. The second line says how uncertain the range of
the tile process is (`range_doubt`): e(d) and E are as c and C, with another range. u is a variance,
and the power k follows from the smoothness of the tile process.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from torch import Tensor

from geogp.models.field.parameters import FieldParameters
from geogp.models.numerics.devices import on_device
from geogp.models.process.placement import MAX_CANDIDATES, farthest_points

Floats = NDArray[np.float64]

ANCHORS = 64
"""Number of places whose features give those of the mean and of the trend."""

KNOTS = 32
"""Largest number of places from which correlations of δ are approximated."""

NUGGET = 0.01
"""Share of independent variation in the field; a smooth field so has no endless range."""

ALONE_RANGES = 6.0
"""A place farther than so many ranges from all knots is hardly correlated with any of them."""

BEYOND = 0.5
"""A trend continues to this share of the bounding box beyond its sides, and is then constant."""

RANGES = np.geomspace(0.02, 2.0, 24)
"""Possible ranges, as a share of the diagonal of the rows' bounding box."""

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


class Locations(NamedTuple):
    """Where inputs lie, on the host, so that a chunk on a GPU need not be waited for.

    `points`: in km and quarters, and the provider, (n, 3 or 4). `distance`: to the nearest row, in
    km, (n,).
    """

    points: Floats
    distance: Floats


@dataclass(frozen=True, eq=False)
class Home:
    """Where the field goes with the distance from the rows, and how uncertain it is there.

    `range_km`: l. `variance`: v, for a standardised target; 0 if the field goes nowhere.
    `trend`: whether t is (1, x, y).
    `doubt_km`, `doubt`, `doubt_power`: range of e, u for a standardised target, and k.
    `anchors`: scaled inputs of rows at distant places, (a, d), on the device of the model.
    `places`: their coordinates in km, (a, 2).
    `times`: scaled times of the rows, sorted, (k,), or `MOST_TIMES` equally spaced ones. Mean and
        trend at another time are those of the nearest of these times.
    `quarters`: the same times in quarters, (k,).
    """

    range_km: float
    variance: float
    trend: bool
    doubt_km: float
    doubt: float
    doubt_power: float
    anchors: Tensor
    places: Floats
    times: Tensor
    quarters: Floats

    @classmethod
    def nowhere(cls, x: Tensor) -> "Home":
        """Return the home of a field that stays what its basis says; `x` are scaled inputs."""
        nothing = np.zeros(0)
        return cls(
            range_km=1.0,
            variance=0.0,
            trend=False,
            doubt_km=1.0,
            doubt=0.0,
            doubt_power=1.0,
            anchors=x[:0],
            places=nothing.reshape(0, 2),
            times=x.new_zeros(0),
            quarters=nothing,
        )

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

    def features(
        self, parameters: FieldParameters, phi: Tensor, x: Tensor, at: Locations
    ) -> Tensor:
        """Return psi (n, r) from phi (n, r), at scaled inputs within the rows' times."""
        away = 1 - self.correlation(at.distance)
        far = np.flatnonzero(away > NEAR)
        if not self.exists or not len(far):
            return phi
        rows = on_device(far, x.device)
        own = phi[rows]
        mean = self._mean_features(parameters, x[rows], at.points[far])
        if c := parameters.architecture.used_covariates:
            mean[:, -c:] = own[:, -c:]
        share = on_device(away[far, None], x.device).to(phi.dtype)
        return phi.index_copy(0, rows, own + share * (mean - own))

    def _mean_features(self, parameters: FieldParameters, x: Tensor, points: Floats) -> Tensor:
        """Return t' B at scaled inputs, (n, r); `points` are as in `Locations`."""
        time = np.searchsorted((self.quarters[1:] + self.quarters[:-1]) / 2, points[:, 2])
        _, first, number = np.unique(
            np.column_stack([time, points[:, 3:]]), axis=0, return_index=True, return_inverse=True
        )
        a, k = len(self.anchors), len(first)
        inputs = self.anchors.new_zeros(k, a, x.shape[1])
        inputs[..., :2] = self.anchors[:, :2]
        if parameters.has_time:
            inputs[..., 2] = self.times[on_device(time[first], x.device), None]
        if providers := parameters.architecture.used_providers:
            inputs[..., -providers:] = x[on_device(first, x.device), None, -providers:]
        phi = parameters.basis.values(inputs.flatten(0, 1)).view(k, a, -1)
        solve, terms = (
            on_device(values, x.device).to(phi.dtype)
            for values in (self._least_squares[0], self._terms(points[:, :2]))
        )
        B = (solve @ phi)[on_device(number.reshape(-1), x.device)]
        return (terms[:, None] @ B).squeeze(1)

    def variances(self, at: Locations) -> Floats:
        """Return the variance of δ for a standardised target, (n,)."""
        if not self.exists:
            return np.zeros(len(at.distance))
        mean = self._terms(at.points[:, :2]) @ self._least_squares[1]
        variance: Floats = np.square(1 - self.correlation(at.distance))
        variance *= self.variance + np.square(mean).sum(1)
        return variance + self._doubts(at)

    def _doubts(self, at: Locations) -> Floats:
        """Return the variance of the second line of the covariance, (n,)."""
        away = 1 - matern(at.distance / self.doubt_km)
        return np.asarray(self.doubt * away**self.doubt_power)

    def factor(self, at: Locations) -> Floats:
        """Return R (n, q), R R' the covariance of δ for a standardised target."""
        places = at.points[:, :2]
        if not self.exists:
            return np.zeros((len(places), 0))
        distinct = np.unique(places, axis=0)
        knots = distinct[spread(distinct, KNOTS)]
        apart = cdist(places, knots)
        mean = self._terms(places) @ self._least_squares[1]
        away = 1 - self.correlation(at.distance)
        own = np.sqrt(self.variance) * _root(knots, apart, self.range_km)
        shared = np.sqrt(self._doubts(at))[:, None] * _root(knots, apart, self.doubt_km)
        return np.hstack([away[:, None] * np.hstack([own, mean]), shared])


def _root(knots: Floats, apart: Floats, range_km: float) -> Floats:
    """Return W (n, k) with rows of length 1, W W' about the correlations of n places.

    `knots` are k places, and `apart` (n, k) the distances to them. A place more than `ALONE_RANGES`
    from all knots has the correlations of its nearest knot.
    """
    nearest = apart.min(1, keepdims=True)
    apart = np.where(nearest > ALONE_RANGES * range_km, apart - nearest, apart)
    value, vectors = np.linalg.eigh(matern(cdist(knots, knots) / range_km))
    white = matern(apart / range_km) @ (vectors / np.sqrt(value.clip(min=TINY)))
    return np.asarray(white / np.sqrt(np.square(white).sum(1, keepdims=True)))


def covariance(places: Floats, range_km: float) -> Floats:
    """Return correlations of the field between places, with `NUGGET`, (n, n)."""
    K: Floats = NUGGET * np.eye(len(places))
    K += (1 - NUGGET) * matern(cdist(places, places) / range_km)
    return K


def spread(places: Floats, most: int) -> NDArray[np.int64]:
    """Return the numbers of distinct places (n, 2), each far from the others."""
    some = np.arange(0, len(places), -(-len(places) // MAX_CANDIDATES))
    distinct = some[np.unique(places[some], axis=0, return_index=True)[1]]
    points = places[distinct]
    chosen = farthest_points(torch.as_tensor(points), min(most, len(points)))
    number = (cdist(chosen.numpy(), points) == 0).argmax(1)
    return np.asarray(distinct[number], np.int64)

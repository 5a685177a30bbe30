"""The covariance of an exact process: Matérn in space, exponential in time, and both together."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import expm, expm_frechet
from scipy.special import expit
from torch import Tensor

Floats = NDArray[np.float64]

FORMS = ((0.5, False), (1.5, False), (2.5, False), (1.5, True))
"""Smoothness of each form of covariance, and whether it has two nested ranges."""

NUGGET = 3
"""Position of logit λ among the parameters."""

LEAST = 1e-20
"""Added to squares, whose roots have no derivative at 0."""

AXES = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [1.0, 0.0]]])
"""Derivatives of S by rho, a and b, (3, 2, 2)."""

DOUBLE = torch.float64


class Lags(NamedTuple):
    """Differences between pairs of points: east², north², 2 east north and |time|, each (n,).

    `together` is 1 for two rows of one session, and 0 for others; None if no rows share sessions.
    """

    east: Tensor
    north: Tensor
    both: Tensor
    time: Tensor | None
    together: Tensor | None = None

    @classmethod
    def between(cls, first: Tensor, second: Tensor, together: Tensor | None = None) -> "Lags":
        """Return the lags between points whose columns are east, north and time, if any."""
        columns = zip(first.unbind(-1), second.unbind(-1), strict=True)
        east, north, *time = (own - other for own, other in columns)
        apart = time[0].abs() if time else None
        return cls(east.square(), north.square(), 2 * east * north, apart, together)


@dataclass(frozen=True)
class Covariance:
    """The correlation of measurements at two points, as a function of parameters θ.

    With S = [[rho + a, b], [b, rho - a]] the logarithm of the ranges, the distance is
    h = |exp(-S) (place - place')|. In space, N is a Matérn correlation M of `smoothness`, or nested
    with an exponential one, usually of shorter range q. In time, T = exp(-|time - time'| / τ):

        N = M(h), or (1 - g) M(h) + g exp(-h / q) if `nested`,
        C = (1 - λ) N                                    without time,
        C = (1 - λ) (N T + u N + v T) / (1 + u + v)      with time (product-sum, De Cesare, Myers
                                                         and Posa 2001),

    and C = 1 for a row with itself: λ is the share of the nugget, which is the noise. Rows of one
    session share a part of their noise, so that C also has the term

        λ κ (w + (1 - w) exp(-d / τ_s)),

    where d is the time between the rows, or without times their distance. If a row is the mean of k
    tests and `has_tests`, c / k is added to C for a row with itself. θ is rho, a, b and logit λ, if
    nested also logit g and log q, with time also log τ, log u and log v, with sessions also logit
    κ, logit w and log τ_s, if `has_tests` also log c, and if `has_sill` the logarithm of the
    variance of a row, on which C does not depend. a and b are 0 if the field has the same range in
    all directions; the logarithms of the ranges in east and north differ by 2 a.

    `smoothness`: 1/2, 3/2 or 5/2.
    `width`, `duration`: largest extent of the rows in space and in time; 0 without time.
    `session`: longest duration of a session, or without times its extent; 0 without sessions.
    """

    smoothness: float
    width: float
    duration: float = 0.0
    nested: bool = False
    has_sill: bool = False
    session: float = 0.0
    has_tests: bool = False

    @property
    def form(self) -> tuple[float, bool]:
        """Smoothness and whether two ranges are nested, one of `FORMS`."""
        return self.smoothness, self.nested

    @property
    def centre(self) -> Floats:
        """Means of the normal prior of θ."""
        return np.array(
            [math.log(0.3 * self.width), 0.0, 0.0, -1.0]
            + self.nested * [-1.0, -2.0]
            + (self.duration > 0) * [math.log(0.3 * self.duration or 1.0), 0.0, -1.0]
            + (self.session > 0) * [0.0, 0.0, math.log(0.3 * self.session or 1.0)]
            + self.has_tests * [-1.0]
            + self.has_sill * [0.0]
        )

    @property
    def spread(self) -> Floats:
        """Standard deviations of the normal prior of θ."""
        in_time = (self.duration > 0) * [1.5, 1.5, 1.5]
        in_space = [1.5, 0.7, 0.7, 3.0] + self.nested * [1.5, 0.7]
        of_session = (self.session > 0) * [1.5, 1.5, 1.5]
        own = (self.has_tests + self.has_sill) * [1.5]
        return np.array(in_space + in_time + of_session + own)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Smallest and largest values of θ."""
        low, high = self.centre - 5 * self.spread, self.centre + 5 * self.spread
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def starts(self) -> list[Floats]:
        """Return θ at which a search of the maximum starts: a short and a long range."""
        short = self.centre.copy()
        short[0] = math.log(0.1 * self.width)
        return [short, self.centre + np.eye(len(short))[NUGGET]]

    def log_prior(self, theta: Floats) -> float:
        """Return the logarithm of the prior density."""
        # The module scipy.stats would take half a second to import.
        z = (theta - self.centre) / self.spread
        return float(np.sum(-(z**2) / 2 - np.log(np.sqrt(2 * np.pi)) - np.log(self.spread)))

    def prior_slopes(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the gradient (m,) and the negative second derivative (m, m) of `log_prior`."""
        precision = 1 / np.square(self.spread)
        return precision * (self.centre - theta), np.diag(precision)

    def of_test(self, theta: Floats) -> float:
        """Return c, the variance of a single test relative to that of a row; 0 without tests."""
        return math.exp(theta[len(theta) - self.has_sill - 1]) if self.has_tests else 0.0

    def __call__(self, theta: Floats, lags: Lags) -> Tensor:
        """Return C for pairs of different rows."""
        total = self._derived(theta, lags)[0]
        if lags.together is None:
            return total
        return total.add_(self._of_session(theta, lags, lags.together)[0])

    def slopes(self, theta: Floats, lags: Lags) -> list[Tensor]:
        """Return the derivative of C, for different rows, by all of θ but log c and a sill."""
        total, by_space, others = self._derived(theta, lags)
        of_space = [by_space * _quadratic(matrix, lags) for matrix in _metric(*theta[:NUGGET])[1]]
        by_nugget = -nugget(theta) * total
        if lags.together is not None:
            noise, of_session = self._of_session(theta, lags, lags.together)
            by_nugget += (1 - nugget(theta)) * noise
            others += of_session
        return [*of_space, by_nugget, *others]

    def _of_session(
        self, theta: Floats, lags: Lags, together: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the noise that rows share, and its derivatives by its own entries of θ."""
        end = len(theta) - self.has_sill - self.has_tests
        shared, lasting, tau = theta[end - 3 : end].tolist()
        w = expit(lasting)
        apart = (lags.east + lags.north).sqrt_()
        if lags.time is not None and self.duration > 0:
            apart = lags.time
        steps = apart * math.exp(-tau)
        most = nugget(theta) * expit(shared) * together
        fading = (1 - w) * most * (-steps).exp_()
        noise = w * most + fading
        return noise, [expit(-shared) * noise, w * (1 - w) * most - w * fading, fading * steps]

    def _derived(self, theta: Floats, lags: Lags) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return C without sessions, its derivative by the squared distance, and some others.

        These are the derivatives by the entries of θ after λ, but for those of sessions.
        """
        share = 1 - nugget(theta)
        others = theta[NUGGET + 1 :].tolist()
        squared = _quadratic(_metric(*theta[:NUGGET])[0], lags)
        h = squared.clamp_(min=0).add_(LEAST).sqrt_()
        in_space, by_square = _matern(h, self.smoothness)
        slopes = []
        if self.nested:
            short, q = expit(others.pop(0)), math.exp(others.pop(0))
            exponential = (h / -q).exp_()
            slopes.append(share * short * (1 - short) * (exponential - in_space))
            slopes.append(share * short / q * h * exponential)
            in_space = (1 - short) * in_space + short * exponential
            by_square = (1 - short) * by_square - short / (2 * q) * exponential / h
        if lags.time is None or not self.duration:
            return share * in_space, share * by_square, slopes
        tau, u, v = (math.exp(value) for value in others[:3])
        in_time = (lags.time / -tau).exp_()
        scale = share / (1 + u + v)
        by_space = (in_time + u) / (1 + u + v)
        total = share * by_space * in_space + scale * v * in_time
        slopes = [by_space * slope for slope in slopes]
        slopes.append(scale / tau * lags.time * in_time * (in_space + v))
        slopes.append(u / (1 + u + v) * (share * in_space - total))
        slopes.append(v / (1 + u + v) * (share * in_time - total))
        return total, share * by_space * by_square, slopes


def nugget(theta: Floats) -> float:
    """Return the share λ of the nugget."""
    return float(expit(theta[NUGGET]))


@lru_cache(maxsize=1)
def _metric(rho: float, a: float, b: float) -> tuple[Floats, list[Floats]]:
    """Return exp(-2 S) and its derivatives by rho, a and b, (2, 2) each; all chunks need them."""
    exponent = -2 * np.tensordot((rho, a, b), AXES, 1)
    slopes = [np.asarray(expm_frechet(exponent, -2 * axis)[1], np.float64) for axis in AXES]
    return expm(exponent), slopes


def _quadratic(matrix: Floats, lags: Lags) -> Tensor:
    """Return x' A x for the differences x in space, with a symmetric matrix A, (2, 2)."""
    total: Tensor = lags.east * matrix[0, 0]
    return total.add_(lags.north, alpha=matrix[1, 1]).add_(lags.both, alpha=matrix[0, 1])


def _matern(h: Tensor, smoothness: float) -> tuple[Tensor, Tensor]:
    """Return Matérn correlations at distances, and their derivatives by the squared distances.

    See Rasmussen and Williams 2006, equation 4.16.
    """
    x = math.sqrt(2 * smoothness) * h
    decay = (-x).exp_()
    if smoothness == 0.5:
        return decay, -0.5 * decay / h
    if smoothness == 1.5:
        return (1 + x) * decay, -1.5 * decay
    return (1 + x + x.square() / 3) * decay, -5 / 6 * (1 + x) * decay

"""The covariance of an exact process: Matérn in space, exponential in time, and both together."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

FORMS = ((0.5, False), (1.5, False), (2.5, False), (1.5, True))
"""Smoothness of each form of covariance, and whether it has two nested ranges."""

NUGGET = 3
"""Position of logit λ among the parameters."""

LEAST = 1e-20
"""Added to squares, whose roots have no derivative at 0."""

DOUBLE = torch.float64


class Lags(NamedTuple):
    """Differences between pairs of points: east², north², 2 east north and |time|, each (n,)."""

    east: Tensor
    north: Tensor
    both: Tensor
    time: Tensor | None

    @classmethod
    def between(cls, first: Tensor, second: Tensor) -> "Lags":
        """Return the lags between points whose columns are east, north and time, if any."""
        east, north, *time = (first - second).unbind(-1)
        return cls(east.square(), north.square(), 2 * east * north, time[0].abs() if time else None)


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

    and C = 1 for a row with itself: λ is the share of the nugget, which is the noise. θ is rho, a,
    b and logit λ, if nested also logit g and log q, and with time also log τ, log u and log v. a
    and b are 0 if the field has the same range in all directions; the logarithms of the ranges in
    east and north differ by 2 a.

    `smoothness`: 1/2, 3/2 or 5/2.
    `width`, `duration`: largest extent of the rows in space and in time; 0 without time.
    """

    smoothness: float
    width: float
    duration: float = 0.0
    nested: bool = False

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
        )

    @property
    def spread(self) -> Floats:
        """Standard deviations of the normal prior of θ."""
        in_time = (self.duration > 0) * [1.5, 1.5, 1.5]
        return np.array([1.5, 0.7, 0.7, 3.0] + self.nested * [1.5, 0.7] + in_time)

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

    def log_prior(self, theta: Floats) -> tuple[float, Floats]:
        """Return the logarithm of the prior density, and its gradient."""
        z = (theta - self.centre) / self.spread
        scale = float(np.log(self.spread).sum()) + len(z) / 2 * math.log(2 * math.pi)
        return -0.5 * float(z @ z) - scale, -z / self.spread

    def __call__(self, theta: Tensor, lags: Lags) -> Tensor:
        """Return C for pairs of different rows; it is differentiable in θ."""
        rho, a, b, logit, *others = theta
        size = (a.square() + b.square() + LEAST).sqrt()
        cosh, sinh = (2 * size).cosh(), (2 * size).sinh() / size
        scale = (-2 * rho).exp()
        squared = scale * (
            (cosh - a * sinh) * lags.east + (cosh + a * sinh) * lags.north - b * sinh * lags.both
        )
        h = (squared.clamp(min=0) + LEAST).sqrt()
        in_space = _matern(h, self.smoothness)
        if self.nested:
            of_short, log_q, *others = others
            short = torch.sigmoid(of_short)
            in_space = (1 - short) * in_space + short * (-h / log_q.exp()).exp()
        share = torch.sigmoid(-logit)
        if lags.time is None:
            static: Tensor = share * in_space
            return static
        tau, u, v = torch.stack(others).exp()
        in_time = (-lags.time / tau).exp()
        total: Tensor = share / (1 + u + v) * (in_space * in_time + u * in_space + v * in_time)
        return total


def nugget(theta: Floats) -> float:
    """Return the share λ of the nugget."""
    return 1 / (1 + math.exp(-theta[NUGGET]))


def _matern(h: Tensor, smoothness: float) -> Tensor:
    """Return Matérn correlations at distances (Rasmussen and Williams 2006, equation 4.16)."""
    x = math.sqrt(2 * smoothness) * h
    decay = (-x).exp()
    if smoothness == 0.5:
        return decay
    if smoothness == 1.5:
        return (1 + x) * decay
    return (1 + x + x.square() / 3) * decay

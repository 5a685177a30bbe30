"""The covariance of an exact process: Matérn in space, exponential in time, and both together."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

SMOOTHNESSES = (0.5, 1.5, 2.5)
"""Smoothnesses of a Matérn correlation that has a closed form."""

IN_SPACE, IN_TIME = 4, 3
"""Numbers of parameters in space, and of further parameters in time; see `Covariance`."""

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

    With M the Matérn correlation of `smoothness`, S = [[ρ + a, b], [b, ρ - a]] the logarithm of the
    ranges, h = |exp(-S) (place - place')|, and T = exp(-|time - time'| / τ),

        C = (1 - λ) M(h)                                    without time,
        C = (1 - λ) (M(h) T + u M(h) + v T) / (1 + u + v)   with time (product-sum, De Cesare,
                                                            Myers and Posa 2001),

    and C = 1 at the same row: λ is the share of the nugget, which is the noise. θ is ρ, a, b and
    logit λ, and with time also log τ, log u and log v. a and b are 0 if the field has the same
    range in all directions; with a the logarithms of the ranges in east and north differ by 2 a.

    `smoothness`: one of `SMOOTHNESSES`.
    `width`, `duration`: largest extent of the rows in space and in time; 0 without time.
    """

    smoothness: float
    width: float
    duration: float = 0.0

    @property
    def centre(self) -> Floats:
        """Means of the normal prior of θ."""
        space = [math.log(0.3 * self.width), 0.0, 0.0, -1.0]
        return np.array(
            [*space, math.log(0.3 * self.duration), 0.0, -1.0] if self.duration else space
        )

    @property
    def spread(self) -> Floats:
        """Standard deviations of the normal prior of θ."""
        space = [1.5, 0.7, 0.7, 3.0]
        return np.array([*space, 1.5, 1.5, 1.5] if self.duration else space)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Smallest and largest values of θ."""
        low, high = self.centre - 5 * self.spread, self.centre + 5 * self.spread
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def starts(self) -> list[Floats]:
        """Return θ at which a search of the maximum starts: a short and a long range."""
        short = self.centre.copy()
        short[0] = math.log(0.1 * self.width)
        return [short, self.centre + np.eye(len(short))[3]]

    def log_prior(self, theta: Floats) -> tuple[float, Floats]:
        """Return the logarithm of the prior density up to a constant, and its gradient."""
        z = (theta - self.centre) / self.spread
        return -0.5 * float(z @ z), -z / self.spread

    def __call__(self, theta: Tensor, lags: Lags) -> Tensor:
        """Return C for pairs of different rows; it is differentiable in θ."""
        rho, a, b, logit = theta[:IN_SPACE]
        size = (a.square() + b.square() + LEAST).sqrt()
        cosh, sinh = (2 * size).cosh(), (2 * size).sinh() / size
        scale = (-2 * rho).exp()
        squared = scale * (
            (cosh - a * sinh) * lags.east + (cosh + a * sinh) * lags.north - b * sinh * lags.both
        )
        matern = _matern(squared.clamp(min=0), self.smoothness)
        share = torch.sigmoid(-logit)
        if lags.time is None:
            return share * matern
        tau, u, v = theta[IN_SPACE:].exp()
        in_time = (-lags.time / tau).exp()
        return share / (1 + u + v) * (matern * in_time + u * matern + v * in_time)


def nugget(theta: Floats) -> float:
    """Return the share λ of the nugget."""
    return 1 / (1 + math.exp(-theta[IN_SPACE - 1]))


def _matern(squared: Tensor, smoothness: float) -> Tensor:
    """Return Matérn correlations at squared distances (Rasmussen and Williams 2006, eq. 4.16)."""
    h = (2 * smoothness * squared + LEAST).sqrt()
    decay = (-h).exp()
    if smoothness == SMOOTHNESSES[0]:
        return decay
    if smoothness == SMOOTHNESSES[1]:
        return (1 + h) * decay
    return (1 + h + h.square() / 3) * decay

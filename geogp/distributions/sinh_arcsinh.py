"""The sinh-arcsinh shape, with skewness and with heavy or light tails."""

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import scipy

from geogp.distributions.shapes import GAUSSIAN, Floats, Shape, shape_of_rows
from geogp.errors import RequestError

MIN_TAILWEIGHT = 0.6
"""Smallest tail weight that a fit may choose; at 0.5 and below, the mean of 10^X is infinite."""

MAX_TAILWEIGHT = 2.0
MAX_SKEWNESS = 2.0

_REACH = 9.0
_STEP = 0.01
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class SinhArcsinh(Shape):
    """The sinh-arcsinh distribution of Jones and Pewsey (2009), standardised to mean 0, variance 1.

    X = (W - E W) / sd(W) with W = sinh((asinh(Z) + ε) / δ) and Z standard normal. The shape is
    skewed to the right if ε > 0, and to the left if ε < 0. The tails are heavier than normal tails
    if δ < 1, and lighter if δ > 1. With ε = 0 and δ = 1, X is standard normal.

    `skewness` is ε, and `tailweight` is δ. Raises RequestError if ε or δ is out of range.
    """

    skewness: float
    tailweight: float

    def __post_init__(self) -> None:
        if not (
            abs(self.skewness) <= MAX_SKEWNESS
            and MIN_TAILWEIGHT <= self.tailweight <= MAX_TAILWEIGHT
        ):
            raise RequestError(
                f"expected a skewness from -{MAX_SKEWNESS:g} to {MAX_SKEWNESS:g} and a "
                f"tailweight from {MIN_TAILWEIGHT:g} to {MAX_TAILWEIGHT:g}, found "
                f"{self.skewness} and {self.tailweight}."
            )

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shape in a table: skewness ε and tail weight δ."""
        return {"skewness": self.skewness, "tailweight": self.tailweight}

    def from_normal(self, z: Floats) -> Floats:
        """Return X at Z = z."""
        mean, sd = self._moments
        z = np.asarray(z, np.float64)
        return (_transform(z, self.skewness, self.tailweight) - mean) / sd

    def normal_score(self, x: Floats) -> Floats:
        """Return z(x) = sinh(δ asinh(w) - ε) with w = E W + x sd(W)."""
        return np.sinh(self.tailweight * np.arcsinh(self._raw(x)) - self.skewness)

    def log_density(self, x: Floats) -> Floats:
        """Return log φ(z) + log dz/dx, with dz/dw = δ sqrt((1 + z²) / (1 + w²))."""
        w, z = self._raw(x), self.normal_score(x)
        slope = 0.5 * (np.log1p(z**2) - np.log1p(w**2))
        return GAUSSIAN.log_density(z) + slope + math.log(self.tailweight * self._moments[1])

    def crps(self, x: Floats) -> Floats:
        """Return the CRPS, E|X - x| - ½ E|X - X'|, with both expectations as integrals over Z.

        Let q(z) be the value of X at Z = z, and I(z) the integral of q φ up to z. Then E|X - x| is
        x (2 F(x) - 1) - 2 I(z(x)), because E X = 0, and ½ E|X - X'| is E[q(Z) (2 Φ(Z) - 1)].
        """
        z = self.normal_score(x)
        inside = np.clip(z, -_REACH, _REACH)
        return x * (2 * GAUSSIAN.cdf(z) - 1) - 2 * self._partial(inside) - self._half_spread

    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)], integrated over Z from -9 to 9.

        The result is infinity if the integrand is not negligible at -9 or at 9, as for a large t.
        """
        nodes, weights = _grid()
        values = self.from_normal(nodes)
        flat = np.atleast_1d(np.asarray(t, np.float64)).ravel()
        distinct, inverse = np.unique(np.round(flat, 6), return_inverse=True)
        coarse = np.linspace(distinct[0], distinct[-1], 2001) if len(distinct) > 2001 else distinct
        # log E[exp(t X)] is smooth in t, so 2,001 values of t are enough for a whole map.
        terms = coarse[:, None] * values + np.log(weights)
        top = terms.max(1)
        cut = (terms[:, [0, -1]] > top[:, None] + math.log(_NEGLIGIBLE)).any(1)
        logs = top + np.log(np.exp(terms - top[:, None]).sum(1))
        # If the mean is infinite at one end of an interval, the whole interval gets infinity.
        place = np.minimum(np.searchsorted(coarse, distinct), len(coarse) - 1)
        ends = cut[place] | ((coarse[place] > distinct) & cut[np.maximum(place - 1, 0)])
        with np.errstate(over="ignore"):
            found = np.exp(np.interp(distinct, coarse, logs))
        return np.where(ends, np.inf, found)[inverse].reshape(np.shape(t))

    def _raw(self, x: Floats) -> Floats:
        mean, sd = self._moments
        return mean + sd * np.asarray(x, np.float64)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        return moments(self.skewness, self.tailweight)

    @cached_property
    def _half_spread(self) -> float:
        nodes, weights = _grid()
        return float((self.from_normal(nodes) * (2 * GAUSSIAN.cdf(nodes) - 1)) @ weights)

    @cached_property
    def _partial(self) -> "scipy.interpolate.PPoly":
        """The integral I(z), which `crps` defines, from -9 to z, as a spline."""
        nodes, _ = _grid()
        slopes = self.from_normal(nodes) * np.exp(GAUSSIAN.log_density(nodes))
        return scipy.interpolate.CubicSpline(nodes, slopes).antiderivative()


def shape_of(skewness: float | Floats, tailweight: float | Floats) -> Shape:
    """Return the sinh-arcsinh shape; skewness 0 and tail weight 1 give the normal shape.

    The parameters are numbers, or arrays (n,) with one value per row.
    """
    if np.ndim(skewness) == np.ndim(tailweight) == 0:
        if skewness == 0 and tailweight == 1:
            return GAUSSIAN
        return SinhArcsinh(float(skewness), float(tailweight))
    return shape_of_rows(np.column_stack(np.broadcast_arrays(skewness, tailweight)), shape_of)


def _transform(z: Floats, skewness: float, tailweight: float) -> Floats:
    return np.sinh((np.arcsinh(z) + skewness) / tailweight)


def moments(skewness: float, tailweight: float) -> tuple[float, float]:
    """Return mean and standard deviation of sinh((asinh(Z) + ε) / δ), with Z standard normal."""
    nodes, weights = _grid()
    w = _transform(nodes, skewness, tailweight)
    mean = float(w @ weights)
    return mean, float(np.sqrt(np.square(w - mean) @ weights))


@cache
def _grid() -> tuple[Floats, Floats]:
    """Return nodes from -9 to 9, and weights for E[g(Z)] by the trapezoidal rule."""
    nodes = np.linspace(-_REACH, _REACH, round(2 * _REACH / _STEP) + 1)
    weights = np.exp(GAUSSIAN.log_density(nodes))
    return nodes, weights / weights.sum()

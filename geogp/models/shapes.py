"""Shapes of predictive distributions: location-scale families in standard form.

A shape is a distribution with mean 0 and variance 1. A prediction with mean mu and variance v
is that of mu + sqrt(v) X with X of the shape. Repaired shapes alone
(`geogp.models.warped_shapes`) may have another mean and variance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from geogp.errors import RequestError

Floats = NDArray[np.float64]
RowChoice = NDArray[np.bool_] | NDArray[np.intp] | slice

_LOG_2PI = math.log(2 * math.pi)

LEAST_TAILWEIGHT = 0.6
"""Heavier tails are not fitted: at 0.5 and below 10^X has no mean."""

MOST_TAILWEIGHT = 2.0
MOST_SKEWNESS = 2.0

BURR_COLUMNS = ("burr_c", "burr_d", "burr_rows", "burr_distance")

SHAPE_COLUMNS = {
    "skewness": 0.0,
    "tailweight": 1.0,
    "df": math.inf,
    "noise_df": math.inf,
    **dict.fromkeys(BURR_COLUMNS, math.inf),
}
"""Columns that describe shapes, and their values for the normal, which absent ones stand for."""

_LEAST_PROBABILITY = 1e-300
_MOST_BELOW_1 = 1 - 2.0**-53

_REACH = 9.0
_STEP = 0.01
_NEGLIGIBLE = 1e-6


class Shape(ABC):
    """What a prediction asks of its shape; all values are elementwise."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[float | Floats, float | Floats]:
        """Skewness and tail weight of `shape_of`."""

    @property
    def columns(self) -> dict[str, float | Floats]:
        """What a table holds of it, a number or one a row, by names of `SHAPE_COLUMNS`.

        `geogp.models.shape_columns.shape_from` makes the same shape from them.
        """
        return dict(zip(("skewness", "tailweight"), self.parameters, strict=True))

    @property
    def has_power_mean(self) -> bool:
        """Whether E[exp(t X)] exists for some t other than 0."""
        return True

    def __getitem__(self, _rows: RowChoice) -> "Shape":
        """Return the shape of some of the rows."""
        return self

    @property
    def symmetric(self) -> bool:
        """Whether X and -X are known to have one distribution."""
        return False

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return a number for each of n rows, (n,); rows of one number have one shape."""
        return np.zeros(n, np.intp)

    def from_normal(self, z: Floats) -> Floats:
        """Return the quantiles at Φ(z), with their digits in both tails."""
        found: Floats = self.quantile(np.clip(special.ndtr(z), _LEAST_PROBABILITY, _MOST_BELOW_1))
        return found

    def normal_score(self, x: Floats) -> Floats:
        """Return Φ^(-1)(P(X <= x)), with its digits in both tails; at least from -37 to 37."""
        x = np.asarray(x, np.float64)
        lower, upper = self.cdf(x), self.survival(x)
        tail = special.ndtri(np.maximum(np.minimum(lower, upper), _LEAST_PROBABILITY))
        found: Floats = np.where(lower < upper, tail, -tail)
        return found

    @abstractmethod
    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles at probabilities strictly between 0 and 1."""

    @abstractmethod
    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""

    @abstractmethod
    def survival(self, x: Floats) -> Floats:
        """Return P(X > x), with its digits where it is small."""

    @abstractmethod
    def log_density(self, x: Floats) -> Floats:
        """Return the log density at x."""

    @abstractmethod
    def crps(self, x: Floats) -> Floats:
        """Return the continuous ranked probability score of the shape at x."""

    @abstractmethod
    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)]."""


@dataclass(frozen=True)
class Gaussian(Shape):
    """The standard normal."""

    @property
    def parameters(self) -> tuple[float, float]:
        """0 and 1."""
        return 0.0, 1.0

    @property
    def symmetric(self) -> bool:
        """It is."""
        return True

    def from_normal(self, z: Floats) -> Floats:
        """Return z."""
        return np.asarray(z, np.float64)

    def normal_score(self, x: Floats) -> Floats:
        """Return x."""
        return np.asarray(x, np.float64)

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles Φ^(-1)(p)."""
        return _of_torch(torch.special.ndtri, probability)

    def cdf(self, x: Floats) -> Floats:
        """Return Φ(x)."""
        # erfc keeps the digits of the lower tail, where torch's ndtr loses them.
        return 0.5 * _of_torch(torch.special.erfc, -x * math.sqrt(0.5))

    def survival(self, x: Floats) -> Floats:
        """Return 1 - Φ(x)."""
        return self.cdf(-x)

    def log_density(self, x: Floats) -> Floats:
        """Return log φ(x)."""
        return -0.5 * (_LOG_2PI + x**2)

    def crps(self, x: Floats) -> Floats:
        """Return x (2 Φ(x) - 1) + 2 φ(x) - 1 / sqrt(π) (Gneiting and Raftery 2007, (21))."""
        density = np.exp(self.log_density(x))
        found: Floats = x * (2 * self.cdf(x) - 1) + 2 * density - 1 / math.sqrt(math.pi)
        return found

    def exponential_mean(self, t: Floats) -> Floats:
        """Return exp(t² / 2)."""
        found: Floats = np.exp(np.square(t) / 2)
        return found


GAUSSIAN = Gaussian()


@dataclass(frozen=True)
class SinhArcsinh(Shape):
    """The sinh-arcsinh distribution of Jones and Pewsey (2009), brought to mean 0, variance 1.

    W = sinh((asinh(Z) + ε) / δ) with Z standard normal, X = (W - E W) / sd(W). ε > 0 leans to
    the right, ε < 0 to the left; δ < 1 has heavier tails than the normal, δ > 1 lighter ones;
    ε = 0, δ = 1 is the normal.

    Attributes
    ----------
    skewness, tailweight
        ε and δ.

    Raises
    ------
    RequestError
        A parameter is out of range.
    """

    skewness: float
    tailweight: float

    def __post_init__(self) -> None:
        if not (
            abs(self.skewness) <= MOST_SKEWNESS
            and LEAST_TAILWEIGHT <= self.tailweight <= MOST_TAILWEIGHT
        ):
            raise RequestError(
                f"expected a skewness from -{MOST_SKEWNESS:g} to {MOST_SKEWNESS:g} and a "
                f"tailweight from {LEAST_TAILWEIGHT:g} to {MOST_TAILWEIGHT:g}, found "
                f"{self.skewness} and {self.tailweight}."
            )

    @property
    def parameters(self) -> tuple[float, float]:
        """ε and δ."""
        return self.skewness, self.tailweight

    def from_normal(self, z: Floats) -> Floats:
        """Return W at z, standardised."""
        return self._standardised(np.asarray(z, np.float64))

    def normal_score(self, x: Floats) -> Floats:
        """Return z(x)."""
        return self._normal(np.asarray(x, np.float64))

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles: W at the normal quantile, standardised."""
        return self._standardised(GAUSSIAN.quantile(probability))

    def cdf(self, x: Floats) -> Floats:
        """Return Φ(z(x)) with z(x) = sinh(δ asinh(w) - ε)."""
        return GAUSSIAN.cdf(self._normal(x))

    def survival(self, x: Floats) -> Floats:
        """Return Φ(-z(x))."""
        return GAUSSIAN.cdf(-self._normal(x))

    def log_density(self, x: Floats) -> Floats:
        """Return log φ(z) + log dz/dx, dz/dw = δ sqrt((1 + z²) / (1 + w²))."""
        w, z = self._raw(x), self._normal(x)
        slope = 0.5 * (np.log1p(z**2) - np.log1p(w**2))
        found: Floats = GAUSSIAN.log_density(z) + slope + math.log(self.tailweight * self._sd)
        return found

    def crps(self, x: Floats) -> Floats:
        """Return E|X - x| - ½ E|X - X'|, with both expectations as integrals over Z.

        With q(z) the value of X at Z = z and I(z) the integral of q φ up to z, the first is
        x (2 F(x) - 1) - 2 I(z(x)), as E X = 0, and the second E[q(Z) (2 Φ(Z) - 1)].
        """
        z = self._normal(x)
        found: Floats = x * (2 * GAUSSIAN.cdf(z) - 1) - 2 * self._partial(z) - self._half_spread
        return found

    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)] over 9 standard deviations of Z on both sides.

        Infinity where the integrand has not vanished there: t is too large for the tails.
        """
        nodes, weights = _grid()
        values = self._standardised(nodes)
        flat = np.atleast_1d(np.asarray(t, np.float64)).ravel()
        distinct, inverse = np.unique(np.round(flat, 6), return_inverse=True)
        coarse = np.linspace(distinct[0], distinct[-1], 2001) if len(distinct) > 2001 else distinct
        # The logarithm is smooth in t: a grid of 2,001 values serves a whole map.
        terms = coarse[:, None] * values + np.log(weights)
        top = terms.max(1)
        cut = (terms[:, [0, -1]] > top[:, None] + math.log(_NEGLIGIBLE)).any(1)
        logs = top + np.log(np.exp(terms - top[:, None]).sum(1))
        # An end of infinity makes all of its interval infinite.
        place = np.minimum(np.searchsorted(coarse, distinct), len(coarse) - 1)
        ends = cut[place] | ((coarse[place] > distinct) & cut[np.maximum(place - 1, 0)])
        with np.errstate(over="ignore"):
            found = np.exp(np.interp(distinct, coarse, logs))
        return np.where(ends, np.inf, found)[inverse].reshape(np.shape(t))

    def _raw(self, x: Floats) -> Floats:
        return self._mean + self._sd * x

    def _normal(self, x: Floats) -> Floats:
        found: Floats = np.sinh(self.tailweight * np.arcsinh(self._raw(x)) - self.skewness)
        return found

    def _standardised(self, z: Floats) -> Floats:
        found: Floats = (_transform(z, self.skewness, self.tailweight) - self._mean) / self._sd
        return found

    @cached_property
    def _mean(self) -> float:
        return moments(self.skewness, self.tailweight)[0]

    @cached_property
    def _sd(self) -> float:
        return moments(self.skewness, self.tailweight)[1]

    @cached_property
    def _half_spread(self) -> float:
        nodes, weights = _grid()
        return float((self._standardised(nodes) * (2 * GAUSSIAN.cdf(nodes) - 1)) @ weights)

    def _partial(self, z: Floats) -> Floats:
        """Return I(z), by cubic Hermite interpolation between the nodes of the grid."""
        nodes, totals, slopes = self._partial_table
        inside = np.clip(z, -_REACH, _REACH)
        at = np.clip(((inside + _REACH) / _STEP).astype(np.intp), 0, len(nodes) - 2)
        s = (inside - nodes[at]) / _STEP
        rise = totals[at + 1] - totals[at]
        left, right = slopes[at] * _STEP, slopes[at + 1] * _STEP
        found: Floats = totals[at] + s * (
            left + s * (3 * rise - 2 * left - right + s * (left + right - 2 * rise))
        )
        return found

    @cached_property
    def _partial_table(self) -> tuple[Floats, Floats, Floats]:
        nodes, _ = _grid()
        half = nodes[:-1] + _STEP / 2

        def slope(z: Floats) -> Floats:
            found: Floats = self._standardised(z) * np.exp(GAUSSIAN.log_density(z))
            return found

        slopes = slope(nodes)
        # Simpson's rule on each step.
        pieces = (slopes[:-1] + 4 * slope(half) + slopes[1:]) * _STEP / 6
        return nodes, np.concatenate([[0.0], np.cumsum(pieces)]), slopes


class RowShapes(Shape):
    """One shape for each row, of few different ones; values are those of the rows, in order.

    Parameters
    ----------
    shapes
        The different ones.
    number
        Which of them each row has, (n,).
    """

    def __init__(self, shapes: Sequence[Shape], number: NDArray[np.intp]) -> None:
        self.shapes, self.number = tuple(shapes), number

    @property
    def parameters(self) -> tuple[float | Floats, float | Floats]:
        """Skewness and tail weight of each row, each (n,)."""
        table = np.array([shape.parameters for shape in self.shapes], np.float64)[self.number]
        return table[:, 0], table[:, 1]

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of all the shapes, those of each row, each (n,)."""
        held = [shape.columns for shape in self.shapes]
        names = [name for name in SHAPE_COLUMNS if any(name in each for each in held)]
        return {
            name: np.array([each.get(name, SHAPE_COLUMNS[name]) for each in held])[self.number]
            for name in names
        }

    @property
    def has_power_mean(self) -> bool:
        """Whether that of each row has."""
        return all(shape.has_power_mean for shape in self.shapes)

    def __getitem__(self, rows: RowChoice) -> Shape:
        """Return the shapes of some of the rows."""
        return RowShapes(self.shapes, self.number[rows])

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return which of the shapes each row has, (n,)."""
        return self.number[:n]

    def from_normal(self, z: Floats) -> Floats:
        """Return the quantiles at Φ(z)."""
        return self._each(lambda shape, part: shape.from_normal(part), z)

    def normal_score(self, x: Floats) -> Floats:
        """Return Φ^(-1)(P(X <= x))."""
        return self._each(lambda shape, part: shape.normal_score(part), x)

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles."""
        return self._each(lambda shape, part: shape.quantile(part), probability)

    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""
        return self._each(lambda shape, part: shape.cdf(part), x)

    def survival(self, x: Floats) -> Floats:
        """Return P(X > x)."""
        return self._each(lambda shape, part: shape.survival(part), x)

    def log_density(self, x: Floats) -> Floats:
        """Return the log density at x."""
        return self._each(lambda shape, part: shape.log_density(part), x)

    def crps(self, x: Floats) -> Floats:
        """Return the continuous ranked probability score."""
        return self._each(lambda shape, part: shape.crps(part), x)

    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)]."""
        return self._each(lambda shape, part: shape.exponential_mean(part), t)

    def _each(self, function: Callable[[Shape, Floats], Floats], values: Floats) -> Floats:
        values = np.broadcast_to(np.asarray(values, np.float64), self.number.shape)
        found = np.empty(values.shape)
        for number, shape in enumerate(self.shapes):
            rows = self.number == number
            if rows.any():
                found[rows] = function(shape, values[rows])
        return found


def shape_of(skewness: float | Floats, tailweight: float | Floats) -> Shape:
    """Return the shape of parameters: the normal for 0 and 1, else sinh-arcsinh.

    Parameters
    ----------
    skewness, tailweight
        Numbers, or one for each row, (n,); `RowShapes` where they differ.
    """
    if np.ndim(skewness) == np.ndim(tailweight) == 0:
        if skewness == 0 and tailweight == 1:
            return GAUSSIAN
        return SinhArcsinh(float(skewness), float(tailweight))
    pairs = np.column_stack(np.broadcast_arrays(skewness, tailweight))
    distinct, number = np.unique(pairs, axis=0, return_inverse=True)
    shapes = [shape_of(*pair) for pair in distinct.tolist()]
    return shapes[0] if len(shapes) == 1 else RowShapes(shapes, number.reshape(-1))


def _transform(z: Floats, skewness: float, tailweight: float) -> Floats:
    found: Floats = np.sinh((np.arcsinh(z) + skewness) / tailweight)
    return found


def moments(skewness: float, tailweight: float) -> tuple[float, float]:
    """Return mean and standard deviation of sinh((asinh(Z) + ε) / δ)."""
    nodes, weights = _grid()
    w = _transform(nodes, skewness, tailweight)
    mean = float(w @ weights)
    return mean, float(np.sqrt(np.square(w - mean) @ weights))


@cache
def _grid() -> tuple[Floats, Floats]:
    """Return nodes over ±9 and the weights of E[g(Z)] by the trapezoidal rule."""
    nodes = np.linspace(-_REACH, _REACH, round(2 * _REACH / _STEP) + 1)
    weights = np.exp(GAUSSIAN.log_density(nodes))
    return nodes, weights / weights.sum()


def _of_torch(function: object, values: Floats) -> Floats:
    tensor = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    found: Floats = function(tensor).numpy().reshape(np.shape(values))  # type: ignore[operator]
    return found

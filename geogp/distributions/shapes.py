"""Shapes of predictive distributions, standardised to mean 0 and variance 1.

A shape is the distribution of a variable X with mean 0 and variance 1. A prediction with mean m and
variance v is the distribution of m + sqrt(v) X. Only repaired shapes (`warped_shapes.py`) may have
another mean and variance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
RowChoice = NDArray[np.bool_] | NDArray[np.intp] | slice

_LOG_2PI = math.log(2 * math.pi)

BURR_COLUMNS = ("burr_c", "burr_d", "burr_rows", "burr_distance")

SHAPE_COLUMNS = {
    "skewness": 0.0,
    "tailweight": 1.0,
    "df": math.inf,
    "noise_df": math.inf,
    **dict.fromkeys(BURR_COLUMNS, math.inf),
}
"""Columns that describe shapes, with default values; these are the values of a normal shape."""


class Shape(ABC):
    """The interface of a shape; all methods work elementwise.

    By default, quantiles and probabilities are computed from normal scores.

    `symmetric` is true if X and -X are known to have the same distribution. `linear_scores` is true
    if normal scores are known to be linear in x; then two quantiles determine all others.
    """

    symmetric: ClassVar[bool] = False
    linear_scores: ClassVar[bool] = False

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shape in a table, by name: numbers, or arrays (n,).

        `shape_from` makes the same shape from these columns.
        """
        return {"skewness": 0.0, "tailweight": 1.0}

    @property
    def has_power_mean(self) -> bool:
        """Whether E[exp(t X)] exists for some t other than 0."""
        return True

    def __getitem__(self, _rows: RowChoice) -> "Shape":
        """Return the shape of some of the rows."""
        return self

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return one number per row, (n,); rows with equal numbers have equal shapes."""
        return np.zeros(n, np.intp)

    @abstractmethod
    def from_normal(self, z: Floats) -> Floats:
        """Return the quantiles at the probabilities Φ(z), accurate in both tails."""

    @abstractmethod
    def normal_score(self, x: Floats) -> Floats:
        """Return Φ^(-1)(P(X <= x)), accurate at least from -37 to 37."""

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles at probabilities strictly between 0 and 1."""
        return self.from_normal(special.ndtri(probability))

    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""
        return special.ndtr(self.normal_score(x))

    def survival(self, x: Floats) -> Floats:
        """Return P(X > x), accurate also for small probabilities."""
        return special.ndtr(-self.normal_score(x))

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
    """The standard normal distribution."""

    symmetric = True
    linear_scores = True

    def from_normal(self, z: Floats) -> Floats:
        """Return z."""
        return np.asarray(z, np.float64)

    def normal_score(self, x: Floats) -> Floats:
        """Return x."""
        return np.asarray(x, np.float64)

    def log_density(self, x: Floats) -> Floats:
        """Return log φ(x)."""
        return -0.5 * (_LOG_2PI + x**2)

    def crps(self, x: Floats) -> Floats:
        """Return x (2 Φ(x) - 1) + 2 φ(x) - 1 / sqrt(π) (Gneiting and Raftery 2007)."""
        density = np.exp(self.log_density(x))
        found: Floats = x * (2 * self.cdf(x) - 1) + 2 * density - 1 / math.sqrt(math.pi)
        return found

    def exponential_mean(self, t: Floats) -> Floats:
        """Return exp(t² / 2)."""
        return np.exp(np.square(t) / 2)


GAUSSIAN = Gaussian()


def _by_shape(name: str) -> Callable[..., Floats]:
    """Return a method of `RowShapes` that calls the method `name` of each row's shape."""

    def method(self: "RowShapes", values: Floats) -> Floats:
        values = np.broadcast_to(np.asarray(values, np.float64), self.number.shape)
        found = np.empty(values.shape)
        for shape, rows in self.rows_by_shape:
            found[rows] = getattr(shape, name)(values[rows])
        return found

    return method


class RowShapes(Shape):
    """The shapes of n rows, of which only few differ; methods take one value for each row.

    `shapes` are the different shapes, and `number` (n,) is the index of each row's shape.
    """

    def __init__(self, shapes: Sequence[Shape], number: NDArray[np.intp]) -> None:
        self.shapes, self.number = tuple(shapes), number

    from_normal = _by_shape("from_normal")
    normal_score = _by_shape("normal_score")
    quantile = _by_shape("quantile")
    cdf = _by_shape("cdf")
    survival = _by_shape("survival")
    log_density = _by_shape("log_density")
    crps = _by_shape("crps")
    exponential_mean = _by_shape("exponential_mean")

    @cached_property
    def rows_by_shape(self) -> list[tuple[Shape, NDArray[np.intp]]]:
        """The shapes that rows have, and the indices of the rows of each."""
        ends = np.cumsum(np.bincount(self.number, minlength=len(self.shapes)))
        rows = np.split(np.argsort(self.number, kind="stable"), ends[:-1])
        return [(shape, own) for shape, own in zip(self.shapes, rows, strict=True) if len(own)]

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shapes in a table, one value for each row."""
        held = [shape.columns for shape in self.shapes]
        names = [name for name in SHAPE_COLUMNS if any(name in each for each in held)]
        return {
            name: np.array([each.get(name, SHAPE_COLUMNS[name]) for each in held])[self.number]
            for name in names
        }

    @property
    def has_power_mean(self) -> bool:
        """Whether E[exp(t X)] exists for the shapes of all rows."""
        return all(shape.has_power_mean for shape in self.shapes)

    def __getitem__(self, rows: RowChoice) -> Shape:
        """Return the shapes of some of the rows."""
        return RowShapes(self.shapes, self.number[rows])

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return the index of each row's shape, (n,)."""
        return self.number[:n]


def shape_of_rows(parameters: Floats, make: Callable[..., Shape]) -> Shape:
    """Return the shapes of n rows with parameters (n, k); `make` makes a shape of k parameters."""
    distinct, number = np.unique(parameters, axis=0, return_inverse=True)
    shapes = [make(*row) for row in distinct.tolist()]
    return shapes[0] if len(shapes) == 1 else RowShapes(shapes, number.reshape(-1))

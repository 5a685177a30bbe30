"""Fields with a known covariance, and rows beyond their data: simulated cases with an oracle.

Each case draws a Gaussian field exactly, by a dense factorisation. A tenth of the rows inside the
data, and rows elsewhere, are test rows. The oracle is kriging with the true mean, covariance and
noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from benchmarks.script import Floats
from geogp.distributions.prediction import Prediction
from geogp.distributions.student_sum import NormalPlusStudent

SIDE = 100.0
"""Side of the square in which places lie."""

MEAN = 3.0
"""Mean of the values."""

NOISE = 0.15
"""Variance of the noise of the values; the variance of most fields is 0.85."""

SHARE_INSIDE = 0.1
"""Share of the rows inside the data that are test rows."""

ROWS_BEYOND = 0.4
"""Number of test rows beyond the data for each training row."""

ENDS = (0.05, 0.15, 0.4)
"""Ends of the classes of distance, in widths of the training data."""

DISTANCES = (
    *(f"{low:g} to {high:g}" for low, high in zip((0, *ENDS), ENDS, strict=False)),
    f"{ENDS[-1]:g} or more",
)
"""Names of these classes."""

BESIDE = 0.04
"""Rows nearer to the border than this share of the width are in a class of their own."""

DEGREES = 4
"""Degrees of freedom of heavy noise."""

NOISES = ("little noise", "some noise", "much noise")
"""Classes of the standard deviation of the noise."""

POLYNOMIALS: dict[float, Callable[[Floats], Floats]] = {
    0.5: np.ones_like,
    1.5: lambda s: 1 + s,
    2.5: lambda s: 1 + s + s**2 / 3,
}
"""A Matérn correlation at the distance h is the polynomial of s = sqrt(2 smoothness) h, times
exp(-s)."""

Draw = np.random.Generator
Layout = Callable[[Draw, int], Floats]
Where = Callable[[Floats], NDArray[np.bool_]]


@dataclass(frozen=True)
class World:
    """Training rows and test rows with a column ``value``, and what is known of the test rows.

    Attributes
    ----------
    train, test
        Rows with the columns of `columns`.
    classes
        Class of each test row, (m,).
    columns
        Arguments of `geogp.FieldGP` that name the columns.
    oracle
        Distributions of the test rows by the oracle; None for measured data.
    blocks
        Numbers of the blocks of the test rows, (m,), whose rows err together; None for simulated
        data.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    classes: NDArray[np.str_]
    columns: dict[str, Any]
    oracle: Prediction | None = None
    blocks: NDArray[np.intp] | None = None


@dataclass(frozen=True)
class Term:
    """A Matérn term of a covariance.

    Attributes
    ----------
    variance
        Variance of the term.
    ranges
        Range of each coordinate, by which it is divided; infinite if the term does not depend on
        it.
    smoothness
        One of `POLYNOMIALS`.
    period
        Period of the last coordinate, which then is a place on a circle of radius 1; 0 for none.
    """

    variance: float
    ranges: tuple[float, ...]
    smoothness: float = 1.5
    period: float = 0

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Return the covariance of points (n, d) and (m, d), (n, m)."""
        h = np.sqrt(2 * self.smoothness) * cdist(self._scaled(a), self._scaled(b))
        return np.asarray(self.variance * POLYNOMIALS[self.smoothness](h) * np.exp(-h))

    def _scaled(self, points: Floats) -> Floats:
        found = points / np.array(self.ranges)
        if not self.period:
            return found
        angle = 2 * np.pi * points[:, -1] / self.period
        circle = np.column_stack([np.cos(angle), np.sin(angle)]) / self.ranges[-1]
        return np.column_stack([found[:, :-1], circle])


Terms = Sequence[Term]

MIXED = (Term(0.6, (25.0, 25.0)), Term(0.25, (3.0, 3.0), 0.5))
"""A smooth field with a range of a quarter of the square, and a rough field with a short range."""


def covariance(terms: Terms, a: Floats, b: Floats) -> Floats:
    """Return the covariance of points (n, d) and (m, d), (n, m)."""
    return np.sum([term(a, b) for term in terms], axis=0)


def drawn(rng: Draw, terms: Terms, points: Floats, noise: Floats) -> Floats:
    """Return values with mean 0 at points, with independent noise of variances `noise`, (n,)."""
    factor = cholesky(covariance(terms, points, points) + np.diag(noise), lower=True)
    return np.asarray(factor @ rng.standard_normal(len(points)))


def distance_classes(train: Floats, asked: Floats) -> NDArray[np.str_]:
    """Return a class for each asked place: its distance to the nearest training place, in widths.

    The width of the training data is the longer side of their bounding box.
    """
    apart, _ = cKDTree(train, balanced_tree=False).query(asked)
    return np.array(DISTANCES)[np.searchsorted(ENDS, apart / np.ptp(train, axis=0).max(), "right")]


@dataclass(frozen=True)
class Rows:
    """Points of a case, which of them are test rows, and their classes.

    Attributes
    ----------
    points
        Coordinates, (n, d): place, and then time if there is one.
    test
        Mask of the test rows, (n,).
    classes
        Class of each row, (n,); not used for training rows.
    """

    points: Floats
    test: NDArray[np.bool_]
    classes: NDArray[np.str_]

    def world(self, value: Floats, oracle: Prediction) -> World:
        """Return the world of values (n,), with the oracle's distributions of the test rows."""
        names = ["x", "y", "time"][: self.points.shape[1]]
        table = pd.DataFrame(self.points, columns=names).assign(value=value)
        columns: dict[str, Any] = {"x": "x", "y": "y", "crs": None}
        if "time" in names:
            columns |= {"time": "time", "time_unit": "quarter"}
        test = self.test
        return World(table[~test], table[test], self.classes[test], columns, oracle)


def rows_of(inside: Floats, beyond: Floats, town: Where | None = None) -> Rows:
    """Return the rows of a case, from points in random order; test rows in a town are `cluster`."""
    points = np.concatenate([inside, beyond])
    number = np.arange(len(points))
    test = (number < round(SHARE_INSIDE * len(inside))) | (number >= len(inside))
    classes = distance_classes(points[~test, :2], points[:, :2])
    classes = np.where(number < len(inside), "inside", classes)
    if town is not None:
        classes = np.where((number < len(inside)) & town(points), "cluster", classes)
    return Rows(points, test, classes)


def kriged(rows: Rows, terms: Terms, value: Floats, noise: Floats) -> Prediction:
    """Return the distributions of the test rows given the training rows, by exact kriging.

    Values (n,) have mean 0, and noise variances `noise`, (n,).
    """
    known, asked = rows.points[~rows.test], rows.points[rows.test]
    total = covariance(terms, known, known) + np.diag(noise[~rows.test])
    across = covariance(terms, known, asked)
    weights = cho_solve((cholesky(total, lower=True), True), across)
    prior = sum(term.variance for term in terms)
    variance = np.maximum(prior - (across * weights).sum(0), 0)
    return Prediction(weights.T @ value[~rows.test], variance, noise[rows.test])


def gaussian(
    rng: Draw,
    rows: Rows,
    terms: Terms = MIXED,
    noise: ArrayLike = NOISE,
    mean: ArrayLike = MEAN,
) -> World:
    """Return the world of a Gaussian field with a mean and a noise variance, of each row or of all.

    The oracle knows mean, covariance and noise variances.
    """
    noises, means = (np.broadcast_to(each, len(rows.points)) for each in (noise, mean))
    value = drawn(rng, terms, rows.points, noises)
    law = kriged(rows, terms, value, noises)
    return rows.world(means + value, replace(law, mean=means[rows.test] + law.mean))


def uniform(rng: Draw, n: int) -> Floats:
    """Return places in the square, (n, 2)."""
    return rng.uniform(0, SIDE, (n, 2))


def taken(rng: Draw, layout: Layout, where: Where, n: int) -> Floats:
    """Return n places of a layout at which `where` is true."""
    found = np.empty((0, 2))
    while len(found) < n:
        more = layout(rng, 4 * n)
        found = np.concatenate([found, more[where(more)]])
    return found[:n]


def numbers(n: int) -> tuple[int, int]:
    """Return the numbers of rows inside and beyond, of which n are training rows."""
    return round(n / (1 - SHARE_INSIDE)), round(ROWS_BEYOND * n)


def divided(
    rng: Draw, n: int, held: Where, layout: Layout = uniform, town: Where | None = None
) -> Rows:
    """Return rows of a layout; all rows at which `held` is true are beyond the data."""
    inside, beyond = numbers(n)
    return rows_of(
        taken(rng, layout, lambda place: ~held(place), inside),
        taken(rng, layout, held, beyond),
        town,
    )


def within(low: ArrayLike, high: ArrayLike) -> Where:
    """Return a function that says which places are in a box."""
    return lambda place: ((place >= low) & (place <= high)).all(1)


def from_centre(place: Floats) -> Floats:
    """Return the distance from the centre of the square, (n,)."""
    return np.hypot(*(place - SIDE / 2).T)


def east(place: Floats) -> NDArray[np.bool_]:
    """Return whether places are in the eastern 30 % of the square."""
    return place[:, 0] > 0.7 * SIDE


def corners(place: Floats) -> NDArray[np.bool_]:
    """Return whether places are within 35 % of the width of a corner."""
    return np.hypot(*np.minimum(place, SIDE - place).T) < 0.35 * SIDE


def ring(place: Floats) -> NDArray[np.bool_]:
    """Return whether places are inside or outside of a ring around the centre."""
    return abs(from_centre(place) - 0.4 * SIDE) > 0.1 * SIDE


def cut(rng: Draw, n: int, held: Where, terms: Terms = MIXED, noise: float = NOISE) -> World:
    """Return a world of uniform places, a region of which has no training rows."""
    return gaussian(rng, divided(rng, n, held), terms, noise)


def towns(rng: Draw, n: int) -> World:
    """Return 60 towns of different sizes in metres, without training rows in the east.

    Most rows are near the centres of few towns; the field has a long range and a very short one.
    """
    low, high = np.array([484e3, 195e3]), np.array([538e3, 230e3])
    centres, size = rng.uniform(low, high, (60, 2)), rng.pareto(1.2, 60) + 1

    def layout(rng: Draw, n: int) -> Floats:
        chosen = rng.choice(60, n, p=size / size.sum())
        scale = 1500 * rng.uniform(0.2, 1, (n, 1))
        return np.asarray(centres[chosen] + scale * rng.standard_normal((n, 2)))

    edge = np.quantile(layout(rng, 10_000)[:, 0], 0.7)
    rows = divided(
        rng, n, lambda place: place[:, 0] > edge, layout, lambda p: np.ones(len(p), np.bool_)
    )
    terms = (Term(0.16, (8000.0, 8000.0), 0.5), Term(0.1225, (400.0, 400.0), 0.5))
    return gaussian(rng, rows, terms, 0.04, 11.0)


def cluster(rng: Draw, n: int) -> World:
    """Return rows of which 90 % are in 1 % of the square; rows anywhere are asked."""
    low, high = 0.45 * SIDE, 0.55 * SIDE
    inside, beyond = numbers(n)
    place = uniform(rng, inside)
    place = np.where(rng.random((inside, 1)) < 0.9, low + (high - low) * place / SIDE, place)
    town = within((low, low), (high, high))
    return gaussian(rng, rows_of(place, uniform(rng, beyond), town))


def border(rng: Draw, n: int) -> World:
    """Return a field with a step of 1.5 standard deviations at a winding border.

    The classes are by distance to the border, along x. The oracle knows the border and the step.
    """
    inside, beyond = numbers(n)
    points = uniform(rng, inside + beyond)
    away = points[:, 0] - SIDE * (0.5 + 0.1 * np.sin(points[:, 1] * 2 * np.pi / SIDE))
    number = np.arange(len(points))
    classes = np.where(abs(away) < BESIDE * SIDE, "border", "away")
    return gaussian(
        rng,
        Rows(points, number >= n, classes),
        (Term(0.85, (25.0, 25.0)),),
        NOISE,
        MEAN + np.where(away > 0, 1.5, 0),
    )


def line(rng: Draw, n: int) -> World:
    """Return rows along a winding road; rows anywhere in the square are asked."""
    inside, beyond = numbers(n)
    along = rng.uniform(0, SIDE, inside)
    across = SIDE * (0.5 + 0.2 * np.sin(along * 2 * np.pi / SIDE)) + rng.normal(0, 0.2, inside)
    return gaussian(rng, rows_of(np.column_stack([along, across]), uniform(rng, beyond)))


def sparse(rng: Draw, n: int) -> World:
    """Return a town in 4 % of the square with 80 % of the rows, without training rows in the east.

    The other rows are anywhere outside of the east.
    """
    low, high = np.array([0.1, 0.4]) * SIDE, np.array([0.3, 0.6]) * SIDE

    def layout(rng: Draw, n: int) -> Floats:
        place = uniform(rng, n)
        return np.where(rng.random((n, 1)) < 0.8, low + (high - low) * place / SIDE, place)

    return gaussian(rng, divided(rng, n, east, layout, within(low, high)))


def seasons(rng: Draw, n: int) -> World:
    """Return a field over three years with a part that returns each year, the last quarter unseen.

    Times are in quarters.
    """
    inside, beyond = numbers(n)
    time = np.concatenate([rng.uniform(0, 11, inside), rng.uniform(11, 12, beyond)])
    points = np.column_stack([uniform(rng, inside + beyond), time])
    number = np.arange(len(points))
    classes = np.where(number < inside, "inside", "last season")
    terms = (
        Term(0.35, (25.0, 25.0, np.inf)),
        Term(0.35, (40.0, 40.0, 1.0), 2.5, period=4),
        Term(0.15, (10.0, 10.0, 2.0), 0.5),
    )
    return gaussian(
        rng,
        Rows(points, (number < round(SHARE_INSIDE * inside)) | (number >= inside), classes),
        terms,
    )


def heavy(rng: Draw, n: int) -> World:
    """Return a field with Student-t noise of 4 degrees of freedom; the east has no training rows.

    The oracle is kriging with the true variances; its distributions have the true shape of the
    noise. A posterior that knows the shape would be slightly better.
    """
    rows, noise = divided(rng, n, east), 2 * NOISE
    scale = np.sqrt(noise * (DEGREES - 2) / DEGREES)
    field = drawn(rng, MIXED, rows.points, np.full(len(rows.points), 1e-9))
    value = field + scale * rng.standard_t(DEGREES, len(field))
    law = kriged(rows, MIXED, value, np.full(len(field), noise))
    shape = NormalPlusStudent(law.function_variance, law.noise_variance, DEGREES)
    return rows.world(MEAN + value, replace(law, mean=MEAN + law.mean, shape=shape))


def noise_by_place(rng: Draw, n: int) -> World:
    """Return a field whose noise has a standard deviation that changes from 0.1 to 0.9 over space.

    The classes are by this standard deviation.
    """
    inside, beyond = numbers(n)
    points = uniform(rng, inside + beyond)
    sd = 0.5 + 0.4 * np.sin(points @ [2 * np.pi, 3 * np.pi] / SIDE)
    classes = np.array(NOISES)[np.searchsorted((0.3, 0.7), sd)]
    return gaussian(rng, Rows(points, np.arange(len(points)) >= n, classes), noise=np.square(sd))


CASES: dict[str, Callable[[Draw, int], World]] = {
    "east": partial(cut, held=east),
    "halves": partial(cut, held=lambda place: place[:, 0] > 0.5 * SIDE),
    "corners": partial(cut, held=corners),
    "ring": partial(cut, held=ring),
    "hole": partial(cut, held=lambda place: from_centre(place) < 0.2 * SIDE),
    "line": line,
    "sparse": sparse,
    "stretched": partial(cut, held=east, terms=(Term(0.85, (60.0, 3.0)),)),
    "cluster": cluster,
    "towns": towns,
    "smooth": partial(cut, held=east, terms=(Term(1, (20.0, 20.0), 2.5),), noise=1e-4),
    "rough": partial(cut, held=east, terms=(Term(0.6, (10.0, 10.0), 0.5),), noise=0.4),
    "border": border,
    "seasons": seasons,
    "heavy": heavy,
    "noise-by-place": noise_by_place,
}
"""Each case draws a world with n training rows."""

STATIONARY = tuple(
    name for name in CASES if name not in {"border", "seasons", "heavy", "noise-by-place"}
)
"""Cases in which field and noise are Gaussian and stationary."""

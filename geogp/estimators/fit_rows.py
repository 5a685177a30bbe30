"""Prepares the data of a fit: targets, inputs of models, and validation rows."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import check_size, numbers_of
from geogp.distributions.amounts import LAWS, NormalScores
from geogp.distributions.shares import BINOMIAL, error_variance
from geogp.errors import DataError, RequestError, named
from geogp.estimators.point_columns import PointColumns, Points, is_geographic
from geogp.estimators.point_scale import PointScale
from geogp.evaluation.splits.point_splits import CELL_KM, ValidationPart, validation_part
from geogp.models.catalogue.fit_plan import FitPlan, Tell
from geogp.models.numerics.arrays import as_floats
from geogp.models.process.data import Data

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

VALIDATIONS = ("blocks", "random")
"""Named ways to choose the validation rows; the user may also give a mask of the rows."""

MANY_EQUAL, FEWEST_EQUAL = 0.05, 5
"""Share and number of measurements that equal the smallest of which `fit` warns."""

MANY_BELOW = 0.1
"""Share of intervals of positive measurements that begin below 0 of which `fit` warns."""

MOST_CHECKED = 1_000
"""Number of rows whose intervals are looked at after a fit."""

AUTO = "auto"
"""Name of a law that the measurements choose."""

MOST_COMPARED = 500
"""Number of rows on which laws are compared."""

FAR_AWAY = 1e5
"""Distance from the median, in interquartile ranges, that even heavy tails do not reach."""


def warn_caller(text: str) -> None:
    """Issue a warning that points to the user's line of code that called geogp."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("geogp."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def warn_of_absent_counts(columns: PointColumns, points: Points, warn: Tell) -> None:
    """Warn if a table for a fit lacks a column that the user named for tests or devices."""
    if columns.tests is not None and points.tests is None:
        warn(f"the table has no column {columns.tests!r}: every measurement counts as one test.")
    if columns.devices is not None and points.devices is None:
        warn(
            f"the table has no column {columns.devices!r}: geogp assumes one device for each test."
        )


def warn_of_absent_devices(columns: PointColumns, points: Points) -> None:
    """Warn if a table for prediction has a column of tests, but lacks the column of devices."""
    if columns.devices is not None and points.devices is None and points.tests is not None:
        warn_caller(
            f"the table has no column {columns.devices!r}: geogp assumes the typical number of "
            "devices for the tests of each row."
        )


def warn_of_outliers(y: Floats, warn: Tell) -> None:
    """Warn if a measurement is so far from the others that it alone decides the fit."""
    low, middle, high = np.percentile(y, (25, 50, 75))
    away = np.abs(y - middle)
    if high > low and away.max() > FAR_AWAY * (high - low):
        row = int(away.argmax())
        warn(
            f"the measurement {y[row]:g} in row {row} is {away[row] / (high - low):.3g} "
            f"interquartile ranges from the median: the fit and all intervals depend on it. "
            f"Correct it or drop its row."
        )


def warn_of_amounts(y: Floats, lower_ends: Floats, warn: Tell) -> None:
    """Warn if a usual law is plainly wrong for measurements, and a law of amounts is not.

    `lower_ends` are those of 95 % intervals of some of the rows.
    """
    least = float(y.min())
    share = float((y == least).mean())
    if _are_many(y == least):
        laws = "; law='positive' (or 'proportion') gives 0 a probability" if least == 0 else ""
        warn(
            f"{share:.0%} of the measurements equal the smallest, {least:g}, to which the "
            f"predictive distribution gives no probability{laws}."
        )
    below = float((lower_ends < 0).mean())
    if least >= 0 and below >= MANY_BELOW:
        warn(
            f"{below:.0%} of the 95 % intervals begin below 0, but no measurement is negative: "
            "law='positive' keeps amounts above 0."
        )


def _are_many(equal: Mask) -> bool:
    return bool(equal.mean() >= MANY_EQUAL and equal.sum() >= FEWEST_EQUAL)


def chosen_law(
    y: Floats,
    log_density: Callable[[str | None, Mask, Mask], Floats],
    *,
    limits: bool = True,
) -> str | None:
    """Return the law that predicts measurements best, of `LAWS` and None.

    A law is admissible if all measurements, (n,), are in its range; without `limits`, if none is at
    its ends. If many are at an end, only laws that give it a probability are admissible.
    `log_density` returns log densities of the rows in a second mask, predicted by a law from those
    in a first. Each half of at most `MOST_COMPARED` random rows is predicted from the other half.
    None is left for a law, and a law for another, if the mean log density of measurements inside
    all ranges rises by more than its standard error.
    """
    some = np.random.default_rng(0).permutation(len(y))[:MOST_COMPARED]
    halves = [np.isin(np.arange(len(y)), part) for part in (some[::2], some[1::2])]

    parts = [y, *(y[half] for half in halves)]

    def admissible(law: str) -> bool:
        try:
            sides = [NormalScores.of(law, part).limits(part) for part in parts]
        except DataError:
            return False
        return limits or not sides[0].any()

    laws: list[str | None] = [None, *(law for law in LAWS if admissible(law))]
    if _are_many(y == 0):
        laws = laws[1:] or laws
    if _are_many(y == 1) and "proportion" in laws:
        laws = ["proportion"]
    if len(laws) == 1:
        return laws[0]
    inside = (y != 0) & ((y != 1) if "proportion" in laws else True)
    tests = [half & inside for half in halves]
    best, highest = laws[0], np.empty(0)
    for law in laws:
        pairs = zip(halves[::-1], tests, strict=True)
        own = np.concatenate([log_density(law, known, test) for known, test in pairs])
        gain = own - (highest if len(highest) else own)
        if not len(highest) or gain.mean() > gain.std() / np.sqrt(len(gain)):
            best, highest = law, own
    return best


def scored_target(
    law: str | None, y: Floats, points: Points, warn: Tell
) -> tuple[NormalScores | None, Floats, NDArray[np.int8] | None]:
    """Return the map of normal scores for a law of amounts, the targets, and sides as in `Data`.

    Without a law, the targets are `y`, and `warn` is told about values that no usual law has.
    """
    if law in {None, BINOMIAL}:
        warn_of_outliers(y, warn)
        return None, y, None
    scores = NormalScores.of(str(law), y)
    side = scores.limits(y)
    if points.group is not None and side.any():
        raise RequestError(
            f"law={law!r} and group cannot be given together if measurements are at an end of the "
            f"range, such as 0; found {np.count_nonzero(side)} of {len(y)}."
        )
    return scores, scores.score(y), side


def data_of(
    scale: PointScale,
    points: Points,
    y: Floats,
    groups: NDArray[np.int64] | None = None,
    side: NDArray[np.int8] | None = None,
) -> Data:
    """Return points and targets as `Data`; by default each row is one test of one device."""
    tests = np.ones(len(points)) if points.tests is None else points.tests
    devices = tests if points.devices is None else points.devices
    alone = np.arange(len(points)) if groups is None else groups
    known = np.zeros(len(points)) if points.error_variance is None else points.error_variance
    sides = np.zeros(len(points), np.int8) if side is None else side
    return Data(scale.inputs(points), y, tests, devices, alone, known, sides, points.group)


def with_binomial_errors(data: Data, plan: FitPlan) -> Data:
    """Return percentages of tests with known variances of their errors, for an exact process.

    Rows that no exact process takes keep their numbers of tests instead. Raises DataError as
    `error_variance` does.
    """
    single = np.ones(len(data.y))
    errors = error_variance(data.y, data.tests)
    known = replace(data, tests=single, devices=single, error_variance=errors)
    return known if plan.takes_exact(known) else data


def column_of(y: ArrayLike, warn: Tell = warn_caller) -> NDArray[Any]:
    """Return the targets as an array; a table with one column becomes a vector."""
    if y is None:
        raise DataError("fit requires y to be passed, but the target y is None.")
    column = y.to_numpy() if isinstance(y, pd.Series | pd.DataFrame) else y
    if not isinstance(column, np.ma.MaskedArray):
        try:
            column = np.asarray(column)
        except ValueError as error:
            raise DataError(f"expected y to be one column, found {error}.") from None
    if column.ndim == 2 and column.shape[1] == 1:
        warn("expected y of shape (n,), found shape (n, 1): geogp uses the column as a vector.")
        column = column[:, 0]
    return column


class Targets(NamedTuple):
    """Several targets of the same rows, y (n, t), with their names; NaN where a row lacks one."""

    names: tuple[str, ...]
    y: Floats


def several_targets_of(y: ArrayLike, n: int, warn: Tell = warn_caller) -> Targets | None:
    """Return two or more targets; None if `y` has one.

    `warn` is told how many rows lack each target. Raises DataError if `y` has not n rows of
    numbers, two names are equal, or a row has no target.
    """
    values: Any = y.to_numpy() if isinstance(y, pd.DataFrame) else y
    try:
        shape = np.shape(values)
    except ValueError:  # lists of different lengths, which are no one target either
        return None
    if len(shape) != 2 or shape[1] < 2:
        return None
    numbered = [f"y{k}" for k in range(shape[1])]
    names = tuple(map(str, y.columns if isinstance(y, pd.DataFrame) else numbered))
    if len(set(names)) < len(names):
        raise DataError(f"expected targets with different names, found {named(names)}.")
    numbers = numbers_of(values, "measurements y")
    if numbers.shape != (n, len(names)):
        raise DataError(
            f"expected {n} rows of measurements, one for each row of X, found shape "
            f"{numbers.shape}."
        )
    lacking = np.isnan(numbers)
    check_size(np.where(lacking, 0.0, numbers), "measurements y")
    empty = np.flatnonzero(lacking.all(1))
    if len(empty):
        raise DataError(
            f"expected one target or more in each row, found none in {len(empty):,} rows, the "
            f"first is row {empty[0]}. Drop these rows."
        )
    if lacking.any():
        counts = [f"{k:,} lack {name}" for name, k in zip(names, lacking.sum(0), strict=True) if k]
        alone = int((lacking.sum(1) == len(names) - 1).sum())
        warn(
            f"of {n:,} rows, {', '.join(counts)}; {alone:,} have one target alone. They tell about "
            "the targets that they lack by what rows with all targets have in common."
        )
    return Targets(names, np.asarray(numbers, np.float64))


def target_of(y: ArrayLike, n: int, warn: Tell = warn_caller) -> Floats:
    """Return the targets, (n,), as float64; raise DataError unless `y` has n finite numbers."""
    values = as_floats(column_of(y, warn), "measurements y")
    check_size(values, "measurements y")
    if values.shape != (n,):
        raise DataError(
            f"expected {n} measurements, one for each row of X, found shape {values.shape}."
        )
    return values


def validation_rows(validation: Any, points: Points, crs: Any, seed: int) -> ValidationPart:
    """Return the validation rows: the rows of the user's mask, or about a tenth of all rows.

    Raises RequestError if `validation` is not allowed, and DataError if it selects all or no rows.
    """
    if isinstance(validation, str) and validation in VALIDATIONS:
        km = PointScale.of_points(points, crs).km
        side = 0.1 if km is None else CELL_KM / km  # degrees, or 11 km in units
        return validation_part(
            points.x, points.y, points.time, how=validation, seed=seed, side=(side, side)
        )
    return ValidationPart(mask_of(validation, len(points), " or ".join(VALIDATIONS)), None)


def mask_of(validation: Any, n: int, names: str) -> Mask:
    """Return the user's mask of the validation rows; raise the errors of `validation_rows`.

    `names` are the named ways to choose the rows, for the message.
    """
    try:
        mask = np.asarray(validation)
    except ValueError:  # lists of different lengths
        mask = np.asarray(None)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        shown = repr(validation) if mask.ndim == 0 else f"{mask.dtype} of shape {mask.shape}"
        raise RequestError(f"expected validation as {names}, or a mask of {n} rows, found {shown}.")
    if not 0 < mask.sum() < n:
        raise DataError("expected a mask that selects some of the rows, found all rows or none.")
    return mask


def check_width(X: Any, width: int, *, named: bool) -> None:
    """Raise DataError if the number of columns is not as in the fit; warn if names are missing."""
    if isinstance(X, pd.DataFrame):
        return
    columns = np.asarray(X).shape[1]
    if named:
        warn_caller(
            "X has no column names, but the estimator was fitted to a table with column names: "
            "the columns of X are read, in this order, as x, y, time, tests, devices."
        )
    elif columns != width:
        raise DataError(
            f"X has {columns} features, but the estimator is expecting {width} features as input: "
            f"give the columns that the estimator was fitted to."
        )


def check_metres(points: Points, crs: Any, scale: PointScale | None = None) -> None:
    """Raise DataError if points of a projected CRS look like degrees.

    `scale` is that of the fit of a model; its box may be near the origin of the coordinates.
    """
    near = scale is not None and scale.is_near_origin
    if crs is None or is_geographic(crs) or near or not points.look_like_degrees:
        return
    raise DataError(
        f"expected coordinates in the unit of crs={crs!r}, found x up to "
        f"{np.abs(points.x).max():g} and y up to {np.abs(points.y).max():g}, which look like "
        f"longitudes and latitudes. Use crs='EPSG:4326' for degrees, or crs=None for plane "
        f"coordinates in any unit."
    )

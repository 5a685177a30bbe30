"""The figures of one split, by stratum, worked out from its test predictions."""

import math
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.calibration.classes import ClassReport
from geogp.calibration.metrics import (
    Scores,
    binomial_interval,
    coverage_hits,
    difference_from_baseline,
    pit_histogram,
    rows_by_group,
    score_by_stratum,
    widths,
)
from geogp.errors import DataError
from geogp.models.counts import CountPrediction
from geogp.models.prediction import Prediction
from geogp.models.shape_columns import shape_from
from geogp.models.shapes import SHAPE_COLUMNS
from geogp.models.warped_shapes import REPAIR_COLUMNS

LEVELS = (*(round(0.05 * step, 2) for step in range(1, 20)), 0.99)
"""Nominal levels of the reliability curve."""

TABLE_LEVELS = (50, 80, 95)
"""Levels, in percent, whose coverage stands in the tables."""

TOLERANCE = 1e-6
"""Largest difference between a figure on file and the same figure worked out again."""

COLUMNS = (
    "split",
    "quadkey",
    "quarter",
    "longitude",
    "latitude",
    "y",
    "tests",
    "stratum",
    "mean",
    "function_variance",
    "noise_variance",
    "lower_95",
    "upper_95",
)
"""Columns of test_predictions.parquet that a report needs."""

OPTIONAL = {"tile_variance": 0.0, **SHAPE_COLUMNS, **dict.fromkeys(REPAIR_COLUMNS, math.nan)}
"""Columns that may be absent, and what that means: no tile process, a normal distribution, no
repair."""

DISPERSION = "dispersion"
"""Column that predictions of counts have, and others do not."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reliability:
    """Observed against nominal coverage, with exact binomial 95 % bounds; lists of one length."""

    level: list[float]
    observed: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class GroupReport:
    """Figures of one stratum (or of all rows) of one split; None where there are no rows.

    Attributes
    ----------
    n, tiles
        Test rows, and different tiles among them.
    scores, baseline, difference
        The figures of `metrics.Scores` but n, by name: the model's, the baseline's, and model
        minus baseline.
    coverage_expected
        Coverage that right predictions would have, by name of figure: the stated level; for
        counts the mean probability of the intervals, bounds included, which is more.
    coverage_bounds
        Exact binomial 95 % bounds of the model's coverage, by name of figure.
    median_width_95
        Median width of the 95 % intervals, on the scale of the target.
    median_factor_95
        10 to the median width: upper bound over lower bound, for a target in log10; None for
        counts.
    reliability
        Share of the integral transforms within each of a grid of levels around the middle.
    pit
        Counts in ten equal bins of the probability integral transform.
    """

    n: int
    tiles: int
    scores: dict[str, float | None]
    baseline: dict[str, float | None]
    difference: dict[str, float | None]
    coverage_expected: dict[str, float | None]
    coverage_bounds: dict[str, list[float] | None]
    median_width_95: float | None
    median_factor_95: float | None
    reliability: Reliability | None
    pit: list[int] | None


@dataclass(frozen=True)
class SplitReport:
    """Figures of one split.

    Attributes
    ----------
    name, title, question
        As in `splits.Split`.
    rows
        Rows by part: train, validation, test; empty where the run does not say.
    groups
        By ``all``, ``urban`` and ``rural``.
    width_ratio
        Median rural over median urban width of the 95 % intervals, or None.
    classes
        Coverage by quarter and by tests per tile.
    """

    name: str
    title: str
    question: str
    rows: dict[str, int]
    groups: dict[str, GroupReport]
    width_ratio: float | None
    classes: list[ClassReport]


def prediction_of(rows: pd.DataFrame) -> Prediction:
    """Return the predictive distributions of rows of test_predictions.parquet.

    A column `dispersion` tells that they are of counts.

    Raises
    ------
    NumericalError
        A mean or a variance is missing or out of range.
    RequestError
        A parameter of a shape is out of range.
    """
    names = ("mean", "function_variance", "noise_variance")
    mean, function, noise = (rows[name].to_numpy(np.float64) for name in names)
    if counted(rows):
        dispersion = rows[DISPERSION].to_numpy(np.float64)
        return CountPrediction(mean, function, noise, dispersion=dispersion)
    optional = {name: rows[name].to_numpy(np.float64) for name in OPTIONAL if name in rows}
    tile = optional.pop("tile_variance", np.zeros(len(rows)))
    return Prediction(mean, function, noise, tile, shape_from(optional, function, noise))


def counted(rows: pd.DataFrame) -> bool:
    """Tell whether rows of test_predictions.parquet are predictions of counts."""
    return DISPERSION in rows.columns


def widths_by_group(rows: pd.DataFrame) -> dict[str, Floats]:
    """Return the widths of the 95 % intervals of one split's rows, by stratum and overall."""
    width = widths(prediction_of(rows))
    return {
        name: width[chosen] for name, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }


def check_columns(predictions: pd.DataFrame) -> None:
    """Refuse a table without rows or without a column that the report needs.

    Raises
    ------
    DataError
        Names the missing columns.
    """
    missing = [name for name in COLUMNS if name not in predictions.columns]
    if missing:
        raise DataError(
            f"expected the columns of test_predictions.parquet, missing {', '.join(missing)}. "
            "Run `geogp map` again."
        )
    if predictions.empty:
        raise DataError("expected test predictions, found a table without rows.")


def check_bounds(name: str, rows: pd.DataFrame, prediction: Prediction) -> None:
    """Refuse rows whose stored bounds are not those of their prediction.

    Raises
    ------
    DataError
        Says how many rows differ, and by how much.
    """
    lower, upper = prediction.interval(0.95)
    off = np.maximum(
        np.abs(rows["lower_95"].to_numpy(np.float64) - lower),
        np.abs(rows["upper_95"].to_numpy(np.float64) - upper),
    )
    wrong = ~(off <= TOLERANCE)
    if wrong.any():
        raise DataError(
            f"expected lower_95 and upper_95 to follow from mean and variances, found "
            f"{int(wrong.sum())} rows of the split {name!r} that differ. Was "
            "test_predictions.parquet edited? Run `geogp map` again with --fresh."
        )


def check_scores(
    name: str, found: dict[str, Scores], on_file: dict[str, dict[str, float | None]]
) -> None:
    """Refuse figures of run.json that do not follow from the predictions.

    Raises
    ------
    DataError
        Names the first figure that differs by more than 1e-6, and counts them.
    """
    wrong: list[str] = []
    for group, scores in found.items():
        stored = on_file.get(group, {})
        for figure, value in asdict(scores).items():
            other = stored.get(figure)
            if not _agree(value, other):
                wrong.append(f"{figure} of {name}/{group} is {other} on file, {value} here")
    if wrong:
        raise DataError(
            "expected the figures of run.json to follow from test_predictions.parquet, found "
            f"{len(wrong)} that differ: {wrong[0]}. Was one of the files edited? "
            "Run `geogp map` again with --fresh."
        )


def group_reports(
    rows: pd.DataFrame,
    prediction: Prediction,
    baseline: dict[str, dict[str, float | None]],
) -> dict[str, GroupReport]:
    """Work out the figures of one split's rows, overall and by stratum.

    Parameters
    ----------
    rows
        Rows of test_predictions.parquet of one split.
    prediction
        Theirs; see `prediction_of`.
    baseline
        The run's baseline figures by stratum; missing ones stay missing.

    Raises
    ------
    DataError
        A measurement is not finite, a stratum has an unknown name, or the baseline was scored
        on another number of rows.
    """
    y = rows["y"].to_numpy(np.float64)
    quadkey = rows["quadkey"].to_numpy()
    chosen = rows_by_group(rows["stratum"], len(rows))
    scores = score_by_stratum(prediction, y, rows["stratum"])
    for level in TABLE_LEVELS:  # once for all groups: counts keep what was worked out
        prediction.interval_mass(level / 100)
    return {
        name: _group_report(
            scores[name],
            prediction[chosen[name]],
            y[chosen[name]],
            len(pd.unique(quadkey[chosen[name]])),
            baseline.get(name),
        )
        for name in scores
    }


def _group_report(
    scores: Scores,
    prediction: Prediction,
    y: Floats,
    tiles: int,
    baseline: dict[str, float | None] | None,
) -> GroupReport:
    other = Scores(scores.n) if baseline is None else _stored_scores(baseline)
    bounds: dict[str, list[float] | None] = {
        f"coverage_{level}": _bounds(prediction, y, level / 100) for level in TABLE_LEVELS
    }
    median = float(np.median(widths(prediction))) if scores.n else None
    return GroupReport(
        n=scores.n,
        tiles=tiles,
        scores=_figures(scores),
        baseline=_figures(other),
        difference=difference_from_baseline(scores, other),
        coverage_expected={
            f"coverage_{level}": _expected(prediction, level / 100) for level in TABLE_LEVELS
        },
        coverage_bounds=bounds,
        median_width_95=median,
        median_factor_95=_factor(prediction, median),
        reliability=_reliability(prediction, y) if scores.n else None,
        pit=pit_histogram(prediction, y).tolist() if scores.n else None,
    )


def _bounds(prediction: Prediction, y: Floats, level: float) -> list[float] | None:
    if len(y) == 0:
        return None
    return list(binomial_interval(coverage_hits(prediction, y, level), len(y)))


def _expected(prediction: Prediction, level: float) -> float | None:
    return float(prediction.interval_mass(level).mean()) if len(prediction) else None


def _factor(prediction: Prediction, width: float | None) -> float | None:
    return None if width is None or isinstance(prediction, CountPrediction) else 10.0**width


def _reliability(prediction: Prediction, y: Floats) -> Reliability:
    away = np.abs(prediction.pit(y) - 0.5)
    hits = [int(np.count_nonzero(away <= level / 2)) for level in LEVELS]
    bounds = [binomial_interval(count, len(y)) for count in hits]
    return Reliability(
        list(LEVELS),
        [count / len(y) for count in hits],
        [bound.lower for bound in bounds],
        [bound.upper for bound in bounds],
    )


def _figures(scores: Scores) -> dict[str, float | None]:
    return {name: value for name, value in asdict(scores).items() if name != "n"}


def _stored_scores(stored: dict[str, float | None]) -> Scores:
    figures = {name: stored.get(name) for name in Scores.__dataclass_fields__ if name != "n"}
    return Scores(int(stored.get("n") or 0), **figures)


def _agree(value: float | None, other: float | None) -> bool:
    if value is None or other is None:
        return value is None and other is None
    return abs(value - other) <= TOLERANCE

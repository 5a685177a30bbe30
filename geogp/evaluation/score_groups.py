"""Scores of model and baseline in one split, by stratum, and the spread of scores over folds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from geogp.arrays import Floats, Numbers
from geogp.evaluation.assessment import TABLE_LEVELS
from geogp.evaluation.metrics import (
    difference_from_baseline,
    mean_scores,
    pit_counts,
    rows_by_group,
)
from geogp.evaluation.scores import Scores, no_scores
from geogp.evaluation.simultaneous_coverage import drives_of_rows, share_interval

LEVELS = (*(round(0.05 * step, 2) for step in range(1, 20)), 0.99)
"""Nominal levels of the reliability curve."""

GAIN = "gain"
"""The log score of the baseline minus the log score of the model; above 0 is better."""


@dataclass(frozen=True)
class Reliability:
    """Observed and nominal coverage, with 95 % bounds (`share_interval`), as lists."""

    level: list[float]
    observed: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class GroupReport:
    """Scores of one stratum, or of all rows, in one split; None if there are no rows.

    `scores`, `baseline` and `difference` (model minus baseline) contain coverage_90 and the scores
    in `Scores` except n. `coverage_expected` is the coverage that correct predictions would have;
    for counts, it is above the level. `coverage_bounds` are the 95 % bounds of the coverage
    (`share_interval`). `median_factor_95` is the ratio of the upper to the lower bound at the
    median width, or None for counts and decibels. `pit` is the result of `pit_counts`.
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

    @property
    def gain(self) -> float | None:
        """Log score of the baseline minus log score of the model; None if one is missing."""
        difference = self.difference["nll"]
        return None if difference is None else -difference


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a score over folds; `sd` is None for one fold."""

    folds: int
    mean: float
    sd: float | None
    values: list[float]


def group_reports(
    rows: pd.DataFrame,
    scored: pd.DataFrame,
    baseline: Mapping[str, Scores],
    *,
    factors: bool = True,
) -> dict[str, GroupReport]:
    """Return the scores of the rows of one split, overall and by stratum.

    `scored` is the result of `split_rows` for `rows`; with `factors`, the values are log10, so that
    a width is a factor. Raises DataError if a stratum is unknown, or
    if the baseline has another number of rows.
    """
    quadkey, drives = rows["quadkey"].to_numpy(), drives_of_rows(rows)
    return {
        name: _group_report(
            scored[chosen],
            len(pd.unique(quadkey[chosen])),
            None if drives is None else drives[chosen],
            baseline.get(name),
            factors=factors,
        )
        for name, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }


def _group_report(
    scored: pd.DataFrame,
    tiles: int,
    drives: Numbers | None,
    baseline: Scores | None,
    *,
    factors: bool,
) -> GroupReport:
    scores = mean_scores(scored)
    other = baseline or no_scores(scores.n)
    median = float(np.median(scored["width"])) if scores.n else None
    names = [f"coverage_{level}" for level in TABLE_LEVELS]
    return GroupReport(
        n=scores.n,
        tiles=tiles,
        scores=scores.figures | _shares(scored, "coverage"),
        baseline=dict.fromkeys(names) | other.figures,
        difference=dict.fromkeys(names) | difference_from_baseline(scores, other),
        coverage_expected=_shares(scored, "mass"),
        coverage_bounds={
            name: list(share_interval(scored[name].to_numpy(), drives)) if scores.n else None
            for name in names
        },
        median_width_95=median,
        median_factor_95=10.0**median if factors and median is not None else None,
        reliability=_reliability(scored["pit"].to_numpy(), drives) if scores.n else None,
        pit=pit_counts(scored["pit"].to_numpy()).tolist() if scores.n else None,
    )


def _shares(scored: pd.DataFrame, of: str) -> dict[str, float | None]:
    """Return the coverage, or the mean predicted probability, of intervals at each level."""
    columns = {level: scored[f"{of}_{level}"].to_numpy() for level in TABLE_LEVELS}
    return {
        f"coverage_{level}": float(values.mean()) if len(values) else None
        for level, values in columns.items()
    }


def _reliability(pit: Floats, drives: Numbers | None) -> Reliability:
    away = np.abs(pit - 0.5)
    inside = [away <= level / 2 for level in LEVELS]
    bounds = [share_interval(one, drives) for one in inside]
    return Reliability(
        list(LEVELS),
        [float(one.mean()) for one in inside],
        [bound.lower for bound in bounds],
        [bound.upper for bound in bounds],
    )


def fold_spread(
    rows: pd.DataFrame, scored: pd.DataFrame, entries: Sequence[Any]
) -> dict[str, dict[str, Spread]]:
    """Return the spread of each score over folds, by stratum; empty if there is only one fold.

    `entries` contains the `FoldRecord` of each fold; without it, a fold has no gain.
    """
    fold = scored["fold"].to_numpy()
    numbers, baselines = np.unique(fold), {k: one.baseline for k, one in enumerate(entries)}
    if len(numbers) < 2:
        return {}
    found: dict[str, dict[str, Spread]] = {}
    for group, chosen in rows_by_group(rows["stratum"], len(rows)).items():
        folds = [
            _fold_figures(scored[chosen & (fold == number)], baselines.get(number, {}).get(group))
            for number in numbers
        ]
        known = {
            name: [value for one in folds if (value := one[name]) is not None] for name in folds[0]
        }
        found[group] = {name: _spread(values) for name, values in known.items() if values}
    return found


def _fold_figures(part: pd.DataFrame, baseline: Scores | None) -> dict[str, float | None]:
    """Return the scores of the rows of one fold and stratum."""
    scores = mean_scores(part)
    return {**scores.figures, **_shares(part, "coverage"), GAIN: scores.gain(baseline)}


def _spread(values: list[float]) -> Spread:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), sd, values)

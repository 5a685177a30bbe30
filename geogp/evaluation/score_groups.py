"""The scores of the model and the baseline in one split, overall and by stratum."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.evaluation.assessment import TABLE_LEVELS
from geogp.evaluation.metrics import (
    binomial_interval,
    difference_from_baseline,
    mean_scores,
    pit_counts,
    rows_by_group,
)
from geogp.evaluation.scores import Scores, no_scores

LEVELS = (*(round(0.05 * step, 2) for step in range(1, 20)), 0.99)
"""Nominal levels of the reliability curve."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reliability:
    """Observed and nominal coverage, with exact binomial 95 % bounds, as lists of equal length."""

    level: list[float]
    observed: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class GroupReport:
    """Scores of one stratum (or of all rows) of one split; values are None if there are no rows.

    `scores`, `baseline` and `difference` (model minus baseline) are the scores in `Scores` except
    n, and coverage_90, by name. `coverage_expected` is the coverage that right predictions would
    have, which for counts is above the stated level. `coverage_bounds` are exact binomial 95 %
    bounds. `median_factor_95` is 10 to the power of the median width: the ratio of upper to lower
    bound; None for counts. `pit` are the counts of `pit_counts`.
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
        """The log score of the baseline minus that of the model; None if one is missing."""
        difference = self.difference["nll"]
        return None if difference is None else -difference


def group_reports(
    rows: pd.DataFrame,
    scored: pd.DataFrame,
    baseline: Mapping[str, Scores],
    *,
    counts: bool = False,
) -> dict[str, GroupReport]:
    """Return the scores of the rows of one split, overall and by stratum.

    `scored` contains the scores of `rows`. Raises DataError if a stratum has another name, or a
    baseline has another number of rows.
    """
    quadkey = rows["quadkey"].to_numpy()
    return {
        name: _group_report(
            scored[chosen], len(pd.unique(quadkey[chosen])), baseline.get(name), counts=counts
        )
        for name, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }


def _group_report(
    scored: pd.DataFrame, tiles: int, baseline: Scores | None, *, counts: bool
) -> GroupReport:
    scores = mean_scores(scored)
    other = baseline or no_scores(scores.n)
    median = float(np.median(scored["width"])) if scores.n else None
    names = [f"coverage_{level}" for level in TABLE_LEVELS]
    return GroupReport(
        n=scores.n,
        tiles=tiles,
        scores=scores.figures | {name: share_of(scored[name]) for name in names},
        baseline=dict.fromkeys(names) | other.figures,
        difference=dict.fromkeys(names) | difference_from_baseline(scores, other),
        coverage_expected={
            f"coverage_{level}": share_of(scored[f"mass_{level}"]) for level in TABLE_LEVELS
        },
        coverage_bounds={
            name: list(binomial_interval(int(scored[name].sum()), scores.n)) if scores.n else None
            for name in names
        },
        median_width_95=median,
        median_factor_95=None if counts or median is None else 10.0**median,
        reliability=_reliability(scored["pit"].to_numpy()) if scores.n else None,
        pit=pit_counts(scored["pit"].to_numpy()).tolist() if scores.n else None,
    )


def share_of(values: pd.Series) -> float | None:
    """Return the mean of probabilities or hits; None if there are no rows."""
    return float(values.to_numpy().mean()) if len(values) else None


def _reliability(pit: Floats) -> Reliability:
    away = np.abs(pit - 0.5)
    hits = [int(np.count_nonzero(away <= level / 2)) for level in LEVELS]
    bounds = [binomial_interval(count, len(pit)) for count in hits]
    return Reliability(
        list(LEVELS),
        [count / len(pit) for count in hits],
        [bound.lower for bound in bounds],
        [bound.upper for bound in bounds],
    )

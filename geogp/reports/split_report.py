"""The report on one split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from msgspec import to_builtins
from numpy.typing import NDArray

from geogp.evaluation.assessment import (
    check_scores,
    counted,
    prediction_of,
    split_rows,
)
from geogp.evaluation.metrics import rows_by_group
from geogp.evaluation.score_groups import GroupReport, Spread, fold_spread, group_reports
from geogp.evaluation.threshold_reliability import ExceedanceReport, exceedance_reports
from geogp.geodata.places.stratum_column import ALL
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_record import RunDrawing, RunRecord, given
from geogp.reports.area_shares import AreaShare, area_shares
from geogp.reports.report_facts import SplitFacts, split_facts
from geogp.reports.stratum_reports import StratumReport, stratum_reports

Floats = NDArray[np.float64]

AREA = "county"
"""Column of test_predictions.parquet with the areas whose shares are compared."""


@dataclass(frozen=True)
class SplitReport(SplitFacts):
    """Scores and coverages of one split.

    `width_ratio` is the median width of the 95 % intervals in the second stratum divided by the
    median width in the first, or None. `strata` has reports on strata of all kinds. `spread` is
    mean and standard deviation over folds, by group and score, empty for one fold. `exceedances`
    judge the probabilities of meeting the map's thresholds, and `shares` compare stated and
    observed shares below them by county. `repair` is the entry of run.json about the conformal
    repair of this split, empty without a repair.
    """

    groups: dict[str, GroupReport]
    width_ratio: float | None
    strata: list[StratumReport]
    spread: dict[str, dict[str, Spread]]
    exceedances: list[ExceedanceReport]
    shares: list[AreaShare]
    repair: dict[str, Any]

    @property
    def kinds(self) -> dict[str, list[StratumReport]]:
        """Strata by kind, in the order of `strata`."""
        found: dict[str, list[StratumReport]] = {}
        for stratum in self.strata:
            found.setdefault(stratum.kind, []).append(stratum)
        return found

    def is_marked(self, group: str) -> bool:
        """Return whether the coverage at 95 % of a group (all rows, or a stratum) is marked."""
        name = "all rows" if group == ALL else group
        return any(
            one.coverage[-1].off
            for one in self.strata
            if one.kind in {"all", "stratum"} and one.name == name
        )


def split_report(name: str, rows: pd.DataFrame, run: RunRecord) -> SplitReport:
    """Return the report on one split, from the rows of the split in test_predictions.parquet.

    Raises DataError if rows contradict run.json or the bounds in the rows (see `split_rows`,
    `fold_spread` and `stratum_reports`), and NumericalError if a mean or variance is out of range.
    """
    scored = split_rows(name, rows)
    if name in run.metrics:
        parts = rows_by_group(rows["stratum"], len(rows))
        found = {group: scored[chosen] for group, chosen in parts.items()}
        check_scores(name, found, run.metrics[name], mae_of_mean=run.is_of_version_0_1)
    baseline = given(run.baseline, {}).get(name, {})
    groups = group_reports(rows, scored, baseline, counts=counted(rows))
    entries = given(run.folds, {}).get(name, [])
    calibration = given(run.calibration, CalibrationRecord())
    first, second = (group.median_width_95 for group in groups.values() if group is not groups[ALL])
    exceedances, shares = _exceedances(rows, scored, run)
    return SplitReport(
        **vars(split_facts(name, rows, run, groups)),
        width_ratio=None if not first or second is None else second / first,
        strata=stratum_reports(rows, scored, run.target),
        spread=fold_spread(name, rows, scored, entries, mae_of_mean=run.is_of_version_0_1),
        exceedances=exceedances,
        shares=shares,
        repair=to_builtins(given(calibration.splits, {})).get(name, {}),
    )


def _exceedances(
    rows: pd.DataFrame, scored: pd.DataFrame, run: RunRecord
) -> tuple[list[ExceedanceReport], list[AreaShare]]:
    """Return what test rows say about the thresholds of the map: by stratum, and by county."""
    values = given(given(run.drawing, RunDrawing()).thresholds, [])
    thresholds = thresholds_of(run.target, values) if values else ()
    if not thresholds:
        return [], []
    parts = list(scored.groupby("fold").indices.values())
    predictions = [prediction_of(rows.iloc[part]) for part in parts]

    def probability(threshold: Threshold) -> Floats:
        found = np.empty(len(rows))
        for part, prediction in zip(parts, predictions, strict=True):
            found[part] = threshold.probability(prediction)
        return found

    found = exceedance_reports(rows, probability, thresholds)
    return found, area_shares(rows, AREA, probability, thresholds) if AREA in rows else []

"""The report on one split, with scores and coverages of all its strata."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from msgspec import to_builtins
from numpy.typing import NDArray

from geogp.arrays import Numbers
from geogp.evaluation.assessment import (
    counted,
    prediction_of,
    split_rows,
)
from geogp.evaluation.metrics import pit_counts
from geogp.evaluation.rough_places import ROUGHNESS, roughness_strata
from geogp.evaluation.score_groups import GroupReport, Spread, fold_spread, group_reports
from geogp.evaluation.simultaneous_coverage import (
    Check,
    ClassReport,
    class_reports,
    drives_of_rows,
    independent_parts,
    most_missed,
    share_interval,
)
from geogp.evaluation.strata import Stratum, strata_of
from geogp.evaluation.threshold_reliability import ExceedanceReport, exceedance_reports
from geogp.geodata.places.stratum_names import ALL
from geogp.geodata.tiles.targets import find_target, target_names
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_record import RunDrawing, RunRecord, given
from geogp.reports.area_shares import AreaShare, area_shares
from geogp.reports.place_checks import PlaceCheck, checks_of_split
from geogp.reports.report_facts import SplitFacts, split_facts
from geogp.reports.together import TogetherReport, together_report

Floats = NDArray[np.float64]

AREA = "county"
"""Column of test_predictions.parquet with the areas whose shares are compared."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of one stratum at one level.

    `observed` is the share of rows inside the central interval of the level, by their probability
    integral transforms (PIT). `exact` has the 95 % bounds of this share (`share_interval`). `band`
    has bounds that hold for all coverages of the split together, or is None if the stratum is not
    judged. `off` is true if the coverage is marked (see `simultaneous_coverage.Check`).
    """

    level: float
    observed: float
    exact: list[float]
    band: list[float] | None
    off: bool


@dataclass(frozen=True)
class StratumReport:
    """Scores and coverages of one stratum, on the scale of the target.

    `kind` is ``all``, ``stratum``, ``tests``, ``expected``, ``distance``, ``speed``, ``quarter``,
    ``county``, ``provider``, ``roughness``, or ``layer_`` and a name; `name` and `members` are as
    in `strata.Stratum`. `n` is the number of test rows, and `blocks` the number of blocks of 0.1
    degrees, or of drives, with such rows. Scores and errors are means over the rows; `mean_error`
    is measurement minus predictive mean, so it is above 0 if predictions are too low. `pit` counts
    the rows by their probability integral transform, in ten equal bins. `most_missed` has longitude
    and latitude of the centre of the block with the most rows outside their 95 % intervals, for
    rough places; otherwise it is None.
    """

    kind: str
    name: str
    members: list[str]
    n: int
    blocks: int
    coverage: list[Coverage]
    mean_width_95: float
    median_width_95: float
    crps: float
    log_score: float
    mean_error: float
    pit: list[int]
    most_missed: list[float] | None

    @property
    def judged(self) -> bool:
        """Whether the stratum has enough rows and blocks to judge its coverage."""
        return self.coverage[0].band is not None

    @property
    def off(self) -> list[Coverage]:
        """The coverages that are marked."""
        return [each for each in self.coverage if each.off]

    @property
    def bars(self) -> list[float]:
        """Heights of the bars of the PIT histogram, at most 20; the mean height is 10."""
        level = self.n / len(self.pit)
        return [min(10 * count / level, 20.0) for count in self.pit]


@dataclass(frozen=True)
class SplitReport(SplitFacts):
    """Scores and coverages of one split.

    `width_ratio` is the median width of the 95 % intervals in the second stratum divided by the
    median width in the first, or None. `strata` has reports on strata of all kinds. `spread` is
    mean and standard deviation over folds, by group and score, empty for one fold. `exceedances`
    judge the probabilities of meeting the map's thresholds, and `shares` compare stated and
    observed shares below them by county. `drives` is the number of drives with test rows, or None:
    with drives, intervals and bands take drives, not rows or blocks, as independent. `repair` is
    the entry of run.json about the conformal repair of this split, empty without a repair.
    `places_checked` has the checks by kind of place, see `PlaceCheck`. `together` is about several
    targets, None for one.
    """

    groups: dict[str, GroupReport]
    width_ratio: float | None
    strata: list[StratumReport]
    spread: dict[str, dict[str, Spread]]
    exceedances: list[ExceedanceReport]
    shares: list[AreaShare]
    drives: int | None
    repair: dict[str, Any]
    places_checked: dict[str, PlaceCheck]
    together: TogetherReport | None = None

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

    Raises the errors of `split_rows`, `group_reports` and `stratum_reports`.
    """
    scored = split_rows(rows)
    baseline = given(run.baseline, {}).get(name, {})
    factors = not counted(rows) and find_target(run.target).scale.logarithmic
    groups = group_reports(rows, scored, baseline, factors=factors)
    entries = given(run.folds, {}).get(name, [])
    calibration = given(run.calibration, CalibrationRecord())
    first, second = (group.median_width_95 for group in groups.values() if group is not groups[ALL])
    exceedances, shares = _exceedances(rows, scored, run)
    return SplitReport(
        **vars(split_facts(name, rows, run, groups)),
        width_ratio=None if not first or second is None else second / first,
        strata=stratum_reports(rows, scored, run.target),
        spread=fold_spread(rows, scored, entries),
        exceedances=exceedances,
        shares=shares,
        drives=None if "drive" not in rows else rows["drive"].nunique(),
        repair=to_builtins(given(calibration.splits, {})).get(name, {}),
        places_checked=checks_of_split(name, rows, scored, factors=factors),
        together=together_report(name, rows, scored, run),
    )


def _exceedances(
    rows: pd.DataFrame, scored: pd.DataFrame, run: RunRecord
) -> tuple[list[ExceedanceReport], list[AreaShare]]:
    """Return what test rows say about the thresholds of the map: by stratum, and by county."""
    values = given(given(run.drawing, RunDrawing()).thresholds, [])
    thresholds = thresholds_of(target_names(run.target)[0], values) if values else ()
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


def stratum_reports(rows: pd.DataFrame, scored: pd.DataFrame, target: str) -> list[StratumReport]:
    """Return the reports on all strata of one split; `scored` has the scores of the same rows.

    Raises DataError if a distance is out of range, or a location is not finite.
    """
    pit = scored["pit"].to_numpy()
    place = rows[["longitude", "latitude"]].to_numpy(np.float64)
    drives = drives_of_rows(rows)
    strata = strata_of(rows, scored["median"].to_numpy(), target) | roughness_strata(rows, pit)
    groups = {kind: {one.name: one.rows for one in of} for kind, of in strata.items()}
    found = class_reports(pit, groups, independent_parts(rows))
    flat = [stratum for of in strata.values() for stratum in of]
    return [
        _report(
            judged,
            stratum,
            scored[stratum.rows],
            place[stratum.rows],
            None if drives is None else drives[stratum.rows],
        )
        for judged, stratum in zip(found, flat, strict=True)
    ]


def _report(
    judged: ClassReport,
    stratum: Stratum,
    scored: pd.DataFrame,
    place: Floats,
    drives: Numbers | None,
) -> StratumReport:
    mean = {
        name: float(scored[name].to_numpy().mean()) for name in ("width", "crps", "nll", "error")
    }
    pit = scored["pit"].to_numpy()
    return StratumReport(
        judged.kind,
        stratum.name,
        stratum.members,
        judged.n,
        judged.blocks,
        [_coverage(check, pit, drives) for check in judged.checks],
        mean_width_95=mean["width"],
        median_width_95=float(np.median(scored["width"])),
        crps=mean["crps"],
        log_score=mean["nll"],
        mean_error=mean["error"],
        pit=pit_counts(pit).tolist(),
        most_missed=most_missed(pit, *place.T) if judged.kind == ROUGHNESS else None,
    )


def _coverage(check: Check, pit: Floats, drives: Numbers | None) -> Coverage:
    exact = list(share_interval(np.abs(pit - 0.5) <= 0.5 * check.level, drives))
    judged = check.lower is not None and check.upper is not None
    band = [float(check.lower or 0.0), float(check.upper or 0.0)] if judged else None
    return Coverage(check.level, check.observed, exact, band, check.off)

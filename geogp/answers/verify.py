"""The check of a finished run on quarters after those to which it was fitted.

A run is a forecast of later quarters. When they are published, the stored model predicts each of
their rows, with its tests and devices, and with the conformal repair of the run; nothing is fitted
again. The baseline gives all rows the mean and the variance of the run's rows in its last quarter.
It is stronger than that of the split ``latest``, which has those of all quarters: speeds rise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from msgspec import UNSET

from geogp.answers.answer import Answer, AnswerKind, Clock, Column, of_target, plain_rows, with_rows
from geogp.answers.area_files import forget, write_json
from geogp.answers.requests import VerifyRequest
from geogp.arrays import Mask
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError, named
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.joint_scores import TierEvent
from geogp.evaluation.metrics import STORED_LEVELS, mean_scores, row_scores
from geogp.evaluation.paired import paired_estimates
from geogp.evaluation.simultaneous_coverage import (
    class_reports,
    drives_of_rows,
    independent_parts,
    share_interval,
)
from geogp.evaluation.threshold_reliability import ExceedanceReport, exceedance_reports
from geogp.files import sha256_of
from geogp.geodata.places.stratum_column import stratum_column
from geogp.geodata.places.stratum_names import UNKNOWN
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index, quarter_label
from geogp.geodata.tiles.tiers import parse_tier
from geogp.maps.csv_tables import write_csv
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.record_names import INPUTS
from geogp.records.run_record import RunDrawing, RunRecord, given
from geogp.runs.file_records import damaged_files
from geogp.runs.pipeline.read import Inputs, read_points, read_rows
from geogp.runs.pipeline.repair import places_of
from geogp.runs.question import check_quarter
from geogp.runs.reopen import Reopened
from geogp.runs.run_folder import MODEL_FILE
from geogp.runs.run_names import RUN_FILE

NOTES = (
    (
        "Coverages have exact binomial intervals; for logs of drives, drives are independent. The "
        "band takes blocks of 0.1 degrees as independent and holds for all groups together; the "
        "interval of a difference also takes blocks. All rows of a quarter share the change of the "
        "level since the run, so the coverage of one quarter varies more than these say."
    ),
)


@dataclass(frozen=True)
class LaterScores:
    """The scores of a run on later quarters.

    `scores` has one row for each group of rows: all, each stratum, each quarter, and tiles with and
    without rows in the run. ``mae``, ``rmse``, ``crps``, ``width_95`` and ``coverage_...`` are as
    in `Scores`, on the scale of the model; ``log_score`` is its ``nll``, ``difference`` the log
    score minus the baseline's with the ends of its 95 % interval, and ``mean_error`` the mean of
    measurement minus predictive mean. Coverages have 95 % intervals (`share_interval`), and
    ``band_95_...`` is the band of `class_reports`. `reliability` judges the probabilities of the
    map's thresholds, and of its tiers, and `described` has facts.
    """

    scores: pd.DataFrame
    reliability: list[ExceedanceReport]
    described: dict[str, Any]


def check_forecast(request: VerifyRequest, record: RunRecord) -> None:
    """Raise an error if a run is not the forecast that was made, or forecasts no such quarter.

    Raises DataError if a file of the run is missing or differs from its hash in run.json, or if
    run.json has no hashes. Raises RequestError for quarters that are not after all quarters of the
    run, for models that predict no later quarters, and for tests in place of tiles or the reverse.
    """
    path, records = request.run, given(record.file_records, {})
    if MODEL_FILE not in records:
        raise DataError(
            f"{path / RUN_FILE} has no hash of {MODEL_FILE}, so nothing shows that the run is "
            "unchanged. Make the run again with --fresh."
        )
    changed = damaged_files(path, record)
    if MODEL_FILE not in changed and sha256_of(path / MODEL_FILE) != records[MODEL_FILE].sha256:
        changed.append(MODEL_FILE)
    if changed:
        raise DataError(
            f"{named(changed)} of {path} changed or disappeared since the run was made, so this "
            "is not the forecast that was made. Restore the files; geogp report writes a report "
            "again."
        )
    _check_quarters(request, record)
    measured, own = given(record.settings.data.points, None), request.points
    if measured is None and own is not None:
        raise RequestError(f"{path} is of tiles, which --source has. Leave --points out.")
    if measured is not None and own is None:
        raise RequestError(f"{path} is of own tests. Give a file of later tests with --points.")


def _check_quarters(request: VerifyRequest, record: RunRecord) -> None:
    """Raise RequestError if a requested quarter is not after those of the run."""
    known = [quarter_index(label) for label in given(record.quarters, [])]
    first, last = quarter_label(known[0]), quarter_label(known[-1])
    for quarter in parse_quarters(request.quarters).all:
        where = None
        if quarter in known:
            where = "is a quarter to which the run was fitted"
        elif quarter < known[0]:
            where = "lies before the quarters of the run"
        elif quarter < known[-1]:
            where = "lies between the quarters of the run"
        if where is not None:
            raise RequestError(
                f"--quarters {quarter_label(quarter)} {where} ({first} to {last}). Choose quarters "
                f"after {last}: a forecast is checked on what came later."
            )
        timeless = record.settings.model.inputs == INPUTS[0] or len(known) == 1
        model = find_model(record.model)
        check_quarter(quarter, known, model, timeless=timeless, option="--quarters")


def later_scores(opened: Reopened, request: VerifyRequest) -> LaterScores:
    """Return the scores of a run, which `check_forecast` accepts, on the rows of later quarters.

    Raises the errors of `read_rows`, for example DataError if the source lacks a quarter.
    """
    later = _read_later(opened, request)
    own = later.of_target(opened.settings.target)
    seen, before = own.observations, opened.inputs.observations
    opened.listener.stage(f"predicting {len(seen):,} later rows")
    law = later_law(opened, own)
    last = before.quarters[-1]
    reference = quarter_baseline(before.quarter, before.y, np.full(len(seen), last), type(law))
    if reference.rows_pooled:
        opened.listener.warn(
            f"the run has too few rows in {quarter_label(last)}, so the baseline has the mean and "
            "variance of all its quarters."
        )
    rows = _rows_of(seen)
    guessed = row_scores(reference.prediction.of_tests_like(law), seen.y)["nll"].to_numpy()
    known = np.isin(seen.quadkey, before.quadkey)
    judged = exceedance_reports(
        rows, lambda threshold: threshold.probability(law), opened.thresholds
    )
    judged += exceedance_reports(rows, lambda tier: tier.stated, _tiers(opened, later))
    return LaterScores(
        _scores(rows, _groups(seen, known), law, guessed), judged, _facts(opened, seen)
    )


def _tiers(opened: Reopened, later: Inputs) -> list[TierEvent]:
    """Return the tiers of the map of several targets in later rows; none for one target."""
    y = later.observations.every
    if opened.together is None or y is None:
        return []
    opened.listener.stage("predicting all targets of the later rows")
    joint, targets = opened.together.predict_distribution(later.table), later.observations.targets
    names = given(given(opened.record.drawing, RunDrawing()).tiers, [])
    tiers = [parse_tier(name, targets) for name in names]
    return [
        TierEvent(float(k), tier.met, tier.probability(joint), tier.holds(y, targets))
        for k, tier in enumerate(tiers)
    ]


def _read_later(opened: Reopened, request: VerifyRequest) -> Inputs:
    """Return the inputs of the run with the rows of later quarters in place of its own."""
    settings = replace(
        opened.settings,
        target=opened.record.target,
        quarters=request.quarters,
        points=request.points,
    )
    opened.listener.stage(f"reading {request.quarters}")
    points = read_points(settings, opened.listener)
    ingested = read_rows(settings, opened.inputs.region, points, opened.listener)
    for text in ingested.warnings:
        opened.listener.warn(text)
    return replace(opened.inputs, ingested=ingested)


def later_law(opened: Reopened, later: Inputs) -> Prediction:
    """Return the predictions of all rows of `later` by the stored model, repaired as the run's."""
    law: Prediction = opened.model.predict_distribution(later.table)
    if not opened.repair.n:
        return law
    every = np.ones(len(later.observations), np.bool_)
    return opened.repair.apply(law, places_of(later.observations, every))


def _rows_of(seen: Observations) -> pd.DataFrame:
    """Return the columns of rows that bands and reliabilities need."""
    rows = pd.DataFrame(
        {
            "quarter": [quarter_label(quarter) for quarter in seen.quarter.tolist()],
            "longitude": seen.longitude,
            "latitude": seen.latitude,
            "y": seen.y,
            "stratum": stratum_column(seen.stratum, seen.strata),
        }
    )
    return rows if seen.drive is None else rows.assign(drive=seen.drive)


def _groups(seen: Observations, known: Mask) -> dict[str, dict[str, Mask]]:
    """Return a mask (n,) of the rows of each group, by kind and name; no group is empty."""
    groups = {
        "all": {"all": np.ones(len(seen), np.bool_)},
        "stratum": {name: seen.stratum == name for name in (*seen.strata, UNKNOWN)},
        "quarter": {quarter_label(quarter): seen.quarter == quarter for quarter in seen.quarters},
        "tiles": {"measured before": known, "not measured before": ~known},
    }
    if seen.provider is not None:
        names = np.unique(seen.provider.astype(str))
        groups["provider"] = {str(name): seen.provider == name for name in names}
    found = {kind: {k: rows for k, rows in of.items() if rows.any()} for kind, of in groups.items()}
    # A kind with a single group says nothing beyond all rows.
    return {kind: of for kind, of in found.items() if kind == "all" or len(of) > 1}


def _scores(
    rows: pd.DataFrame, groups: dict[str, dict[str, Mask]], law: Prediction, guessed: Any
) -> pd.DataFrame:
    """Return the table of `LaterScores.scores`; `guessed` (n,) are log scores of the baseline."""
    y, blocks, drives = rows["y"].to_numpy(), independent_parts(rows), drives_of_rows(rows)
    scored = row_scores(law, y)
    difference = scored["nll"].to_numpy() - guessed
    table = []
    for judged in class_reports(law.pit(y), groups, blocks, levels=(0.95,)):
        chosen = groups[judged.kind][judged.name]
        own, figures = scored[chosen], mean_scores(scored[chosen]).figures
        (estimate,) = paired_estimates(difference[chosen, None], blocks[chosen])
        row = {"kind": judged.kind, "group": judged.name, "n": judged.n}
        for level in STORED_LEVELS:
            name = f"coverage_{level}"
            inside = own[name].to_numpy()
            ends = share_interval(inside, None if drives is None else drives[chosen])
            row |= {name: figures[name], f"{name}_lower": ends.lower, f"{name}_upper": ends.upper}
        row |= {"band_95_lower": judged.checks[0].lower, "band_95_upper": judged.checks[0].upper}
        row |= {name: figures[name] for name in ("width_95", "mae", "rmse", "crps")}
        row |= {"mean_error": float(own["error"].mean()), "log_score": figures["nll"]}
        row |= {"baseline_log_score": float(guessed[chosen].mean()), "difference": estimate.value}
        row |= {"difference_lower": estimate.lower, "difference_upper": estimate.upper}
        table.append(row)
    return pd.DataFrame(table)


def _facts(opened: Reopened, seen: Observations) -> dict[str, Any]:
    """Return what was forecast, when, from what, and on what it was checked."""
    record, settings = opened.record, opened.settings
    model = given(record.file_records, {})[MODEL_FILE]
    made = None
    if model.modified_ns is not UNSET:
        made = datetime.fromtimestamp(model.modified_ns // 10**9, UTC).isoformat(sep=" ")
    quarters = [quarter_label(quarter) for quarter in seen.quarters]
    about = quantity_of(settings.target)
    frozen = (
        f"The run {opened.path.resolve().name} was made at {made or 'an unknown time'} from "
        f"{record.quarters[0]} to {record.quarters[-1]}; {MODEL_FILE} has the SHA-256 "
        f"{model.sha256}. It is unchanged, and nothing was fitted again."
    )
    baseline = (
        "The baseline gives all rows the mean and the variance of the run's rows in "
        f"{record.quarters[-1]}, its last quarter. Lower log scores are better, so a difference "
        "below 0 speaks for the run."
    )
    return {
        "region": record.region,
        **opened.about,
        "unit": about.scale.unit(about.unit),
        "model": record.model,
        "model_sha256": model.sha256,
        "made": made,
        "fitted_quarters": list(record.quarters),
        "quarters": quarters,
        "rows": len(seen),
        "level": 0.95,
        "notes": [frozen, baseline, *NOTES],
        "warnings": list(opened.listener.warnings),
    }


def reliability_table(reports: Sequence[ExceedanceReport]) -> pd.DataFrame:
    """Return one row for each threshold and group: stated and observed shares, and Brier scores."""
    names = ("threshold", "meets", "group", "n", "stated", "observed", "brier", "skill")
    return pd.DataFrame(
        {name: getattr(report, name) for name in names}
        | {"difference": report.difference.value, "off": report.difference.off}
        | {f"difference_{end}": getattr(report.difference, end) for end in ("lower", "upper")}
        for report in reports
    )


def _bins(reports: Sequence[ExceedanceReport]) -> pd.DataFrame:
    """Return one row for each threshold, group and bin of rows with similar probabilities."""
    names = ("n", "stated", "observed", "lower", "upper")
    return pd.DataFrame(
        {"threshold": report.threshold, "group": report.group}
        | {name: getattr(part, name) for name in names}
        | {f"band_{end}": getattr(part.difference, end) for end in ("lower", "upper")}
        for report in reports
        for part in report.bins
    )


def answer_verify(opened: Reopened, request: VerifyRequest, clock: Clock) -> tuple[Answer, ...]:
    """Return the scores and the reliability as answers, and write them into the run folder.

    Raises the errors of `later_scores`, and OutputError if a file cannot be written.
    """
    found = later_scores(opened, request)
    opened.listener.stage("writing the scores of later quarters")
    facts = {"run": str(request.run), **found.described, **clock()}
    reliability, bins = reliability_table(found.reliability), _bins(found.reliability)
    ends = dict.fromkeys((facts["quarters"][0], facts["quarters"][-1]))
    tag = "_".join([facts["target"], *ends])
    return (
        _written(opened, f"verify_scores_{tag}", facts, LATER_SCORES, {"": found.scores}),
        _written(
            opened,
            f"verify_thresholds_{tag}",
            facts | {"bins": plain_rows(bins)},
            LATER_THRESHOLDS,
            {"": reliability, "_bins": bins},
        ),
    )


def _written(
    opened: Reopened,
    name: str,
    facts: dict[str, Any],
    kind: AnswerKind,
    tables: dict[str, pd.DataFrame],
) -> Answer:
    """Write tables as CSV, the first of them with the facts as JSON, and return the answer."""
    path = opened.path / f"{name}.json"
    forget(path)
    files = [path]
    for end, table in tables.items():
        files.append(opened.path / f"{name}{end}.csv")
        write_csv(files[-1], table)
    content = with_rows(facts, kind.key, tables[""])
    write_json(path, content)
    return replace(kind.read(name, content, tables[""]), files=tuple(files))


def _with_ends(name: str) -> tuple[str, str]:
    return f"{name}_lower", f"{name}_upper"


def read_scores(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer about scores with a name and a content."""
    low, middle, high = (
        Column(f"in {k} %", (f"coverage_{k}",), "{:.1%}", minor=k < STORED_LEVELS[-1])
        for k in STORED_LEVELS
    )
    span = "{:.1%} to {:.1%}"
    columns = (
        Column("rows", ("group",), "{}"),
        Column("n", ("n",), "{:,}"),
        low,
        middle,
        high,
        Column("interval of in 95 %", _with_ends("coverage_95"), span),
        Column("band", _with_ends("band_95"), span, minor=True),
        Column("mean width", ("width_95",), "{:.3f}", minor=True),
        Column("MAE", ("mae",), "{:.3f}", minor=True),
        Column("CRPS", ("crps",), "{:.3f}", minor=True),
        Column("mean error", ("mean_error",), "{:+.3f}", minor=True),
        Column("log score", ("log_score",), "{:.3f}"),
        Column("minus baseline", ("difference",), "{:+.3f}"),
        Column("its interval", _with_ends("difference"), "{:+.3f} to {:+.3f}", minor=True),
    )
    title = _title(content, "coverage and scores")
    before = tuple(content["notes"][:2])
    return Answer(name, title, content, LATER_SCORES.key, table, columns, before=before)


def read_thresholds(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer about thresholds with a name and a content."""
    columns = (
        Column("value", ("meets",), "{}"),
        Column("rows", ("group",), "{}"),
        Column("n", ("n",), "{:,}"),
        Column("stated", ("stated",), "{:.1%}"),
        Column("observed", ("observed",), "{:.1%}"),
        Column("observed minus stated", ("difference",), "{:+.1%}"),
        Column("its band", _with_ends("difference"), "{:+.1%} to {:+.1%}"),
        Column("Brier score", ("brier",), "{:.4f}", minor=True),
        Column("skill", ("skill",), "{:+.3f}", minor=True),
    )
    title, key = _title(content, "stated probabilities and observed shares"), LATER_THRESHOLDS.key
    return Answer(name, title, content, key, table, columns, other_names=(f"{name}_bins",))


def _title(content: dict[str, Any], what: str) -> str:
    return f"How it did later, {', '.join(content['quarters'])}{of_target(content)}: {what}"


LATER_SCORES = AnswerKind("verify_scores_*.json", "scores", read_scores)
LATER_THRESHOLDS = AnswerKind("verify_thresholds_*.json", "thresholds", read_thresholds)

"""Makes one map: reads data, fits models, draws the map and writes the report."""

import json
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from msgspec import UNSET, UnsetType, convert, to_builtins
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from geogp.errors import named
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.evaluation.splits.row_parts import CALIBRATION, TEST, TRAIN, VALIDATION
from geogp.evaluation.splits.split_names import RANDOM
from geogp.files import sha256_of, write_bytes, write_text
from geogp.geodata.points.point_tests import PointTests
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.csv_tables import write_csv
from geogp.models.joint.law import two_variances
from geogp.models.numerics.threads import aside, one_core_each
from geogp.records.input_records import PointsRecord, ProviderRecord, UnitRecord
from geogp.records.map_settings import MapSettings
from geogp.records.record_names import NOISE_IN_SPREAD, POINT, STEPS
from geogp.records.record_reading import complete_record
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_record import (
    AreasCheck,
    FittedRecord,
    RowsLeftOut,
    RunIdentity,
    RunMap,
    RunNote,
    RunRecord,
    Strata,
    VarianceCheck,
    given,
)
from geogp.runs.file_records import damaged_files, record_files
from geogp.runs.locks import lock_folder
from geogp.runs.pipeline.areas_check import areas_check
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.drawing import draw
from geogp.runs.pipeline.fitting import (
    fit_model,
    take_rank,
    threads_for,
    weights_of,
)
from geogp.runs.pipeline.identity import identity_of
from geogp.runs.pipeline.job import Job, prepare, timed
from geogp.runs.pipeline.phase_rates import expect, remember
from geogp.runs.pipeline.repair import repair_of, repaired_splits, with_repair
from geogp.runs.pipeline.target_kinds import kind_of
from geogp.runs.pipeline.validation import (
    Plan,
    SplitOutcome,
    block_degrees,
    make_plan,
    map_calibration_rows,
    run_split,
    tuning_rows,
)
from geogp.runs.progress import PhaseClock, ProgressListener
from geogp.runs.run_folder import (
    GRID_FILE,
    MODEL_FILE,
    PREDICTIONS_FILE,
    RunFolder,
    locked_run,
    read_predictions,
    read_run_record,
)
from geogp.runs.run_identity import flat_settings, input_paths
from geogp.runs.run_names import RUN_FILE
from geogp.runs.run_pages import show_answers, write_pages

CHECKED_ROWS = 2000
"""Largest number of test rows in the comparison of two calculations of variances."""

LEFT_OUT_FILE = "left_out.csv"
"""The rows of the user's own file that a run leaves out, with the reasons."""

PAGE_FILE = "map.html"
"""The interactive page in a run folder."""

REPORT_FILES = ("report.json", "report.md", "report.html")
"""The report in a run folder, which is made from run.json and the test predictions."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, its record, and whether the run was complete before the call."""

    path: Path
    record: RunRecord
    already_there: bool = False


def make_map(request: MapSettings, listener: ProgressListener | None = None) -> RunResult:
    """Lock the run folder, make one map with its report, and return the finished run.

    Finished fits in the folder are not repeated. If the settings of the map are also the same, only
    missing or changed files are made again.

    Raises RequestError if the request cannot be met, the output path is a file, the run folder
    contains another run, or another process has locked the folder. Raises DataError if data are
    wrong or missing, NetworkError if a remote source failed, and OutputError if results cannot be
    written. After an OutputError or KeyboardInterrupt, the same call without `fresh` resumes the
    run.
    """
    listener = listener or ProgressListener()
    with ExitStack() as stack:
        if request.out is not None:  # otherwise `prepare` names the folder
            RunFolder(request.out).check()
            stack.enter_context(lock_folder(request.out))
        clock = PhaseClock()
        listener.phases(clock)
        clock.begin("read")
        job = prepare(request, listener, clock)
        if request.out is None:
            stack.enter_context(lock_folder(job.folder.path))
        return run_job(job)


def run_job(job: Job) -> RunResult:
    """Make the map of a job, whose folder the caller has locked; see `make_map`."""
    request, folder, identity = job.request, job.folder, identity_of(job)
    folder.check()  # another process may have changed the folder since `prepare`
    folder.check_inputs(input_paths(to_builtins(identity.settings)))
    folder.prepare(fresh=request.fresh)
    with arithmetic(precision=request.precision):
        held = None if request.fresh else folder.finished(identity)
        made = None if held is None else _kept(job, identity, held)
        return made or _fit(job, identity)


def _kept(job: Job, identity: RunIdentity, held: RunRecord) -> RunResult | None:
    """Restore missing files of a finished run, and return the run; None if a fit is needed."""
    same = held.drawing == identity.drawing
    lost = damaged_files(job.folder.path, held)
    if same and not lost:
        return RunResult(job.folder.path, held, already_there=True)
    if lost:
        job.listener.stage(f"missing, or changed since the run was made: {named(lost)}")
    if {MODEL_FILE, PREDICTIONS_FILE} & set(lost):
        job.listener.stage("making the run again from its data")
        return None
    if same and set(lost) <= set(REPORT_FILES):
        job.listener.stage("writing the report again from run.json and the test predictions")
        return _remade_report(job.folder.path)
    job.listener.stage("drawing the map of the fitted model again")
    return _redraw(job, identity, held, keep_later=same)


def _fit(job: Job, identity: RunIdentity) -> RunResult:
    """Start or continue the fits, draw the map, and return the result."""
    before, plan, request = len(job.warnings), make_plan(job), job.request
    expect(job, fits=True)
    note = RunNote(**asdict(identity), threads=torch.get_num_threads(), call=job.call or UNSET)
    note = job.folder.begin(note)
    with arithmetic(threads_for(job, note.threads)):
        weights, chosen = weights_of(job, *tuning_rows(job, plan))
        first = request.splits[0]
        rank = take_rank(job, plan.rows(first, 0, TRAIN), plan.rows(first, 0, VALIDATION))
        splits = {name: run_split(job, name, plan, weights) for name in request.splits}
        if job.refits:
            validation = plan.rows(RANDOM.name, 0, VALIDATION)
            final = fit_model(job, "map", (_map_rows(job, plan), validation), weights)
        else:
            final = splits[RANDOM.name].folds[0].model
        folds = {name: [one.scores for one in split.folds] for name, split in splits.items()}
        repairs = {name: [one.repair for one in split.folds] for name, split in splits.items()}
        checks = _areas_checks(splits)
        fitted = FittedRecord(
            **asdict(identity),
            weights=chosen,
            rank=rank,
            n={name: found[0].n for name, found in folds.items()},
            block_degrees=block_degrees(job),
            metrics={name: split.scores.metrics for name, split in splits.items()},
            baseline={name: split.scores.baseline for name, split in splits.items()},
            baseline_by_stratum=_by_stratum(splits),
            folds=folds,
            calibration=CalibrationRecord(splits=repaired_splits(request.conformal, repairs)),
            variance_check=_variance_check(job, final, plan),
            areas_check={k: v for k, v in checks.items() if not isinstance(v, str)} or UNSET,
            areas_unchecked={k: v for k, v in checks.items() if isinstance(v, str)} or UNSET,
            seconds=job.seconds,
            fit_warnings=job.warnings[before:],
            threads=note.threads,
            call=note.call,
        )
        tables = [one.table for split in splits.values() for one in split.folds]
        notes = {"region": job.region.code, "target": request.target, "service": request.service}
        keep = partial(final.save, notes=notes)
        return _complete(job, fitted, final, keep, pd.concat(tables, ignore_index=True))


def _redraw(job: Job, identity: RunIdentity, held: RunRecord, *, keep_later: bool) -> RunResult:
    """Draw the map of a finished run again from its stored model."""
    expect(job, fits=False)
    fitted = complete_record(job.folder.path, held, FittedRecord)
    predictions = read_predictions(job.folder.path, held)
    file = job.folder.path / MODEL_FILE
    model = load_with_notes(file, device=str(job.device))[0]
    content = file.read_bytes()
    for text in fitted.fit_warnings:
        job.warn(text)
    job.seconds["fit"] = fitted.seconds.get("fit", 0.0)
    return _complete(
        job,
        replace(fitted, **asdict(identity)),
        model,
        partial(write_bytes, content=content),
        predictions,
        keep_later=keep_later,
    )


def _complete(
    job: Job,
    fitted: FittedRecord,
    model: SpatialGP,
    keep_model: Callable[[Path], None],
    predictions: pd.DataFrame,
    *,
    keep_later: bool = False,
) -> RunResult:
    """Draw the map, write all files of the run, and return the result."""
    chosen = {"alpha": fitted.weights.alpha, "beta": fitted.weights.beta}
    each = one_core_each() if job.about.has_tiles else nullcontext()
    with timed(job.seconds, "predict"), each:
        job.clock.begin("predict")
        job.listener.stage("predicting the map")
        repair = repair_of(job, model, map_calibration_rows(job))
        settings = {
            **flat_settings(fitted),
            "r": fitted.rank.r,
            "weights": json.dumps(chosen),
            **job.ingested.credits,
        }
        drawing = draw(job, model, repair, settings)
        quarter = job.question.quarter
        covariates = [
            one.record(drawing.content.tiles, quarter, model) for one in job.places.covariates
        ]
    for text in drawing.warnings:
        job.warn(text)
    job.clock.begin("write")
    job.listener.stage("writing maps and report")

    def write(folder: Path) -> RunRecord:
        with timed(job.seconds, "write"):
            keep_model(folder / MODEL_FILE)
            plain = predictions.astype({"stratum": str})
            table = plain.to_parquet(index=False, compression="zstd", write_page_checksum=True)
            write_bytes(folder / PREDICTIONS_FILE, table)
            # The figures change settings of matplotlib meanwhile, none of which the page uses.
            with aside(drawing.page, job.device) as page:
                drawing.write(folder)
            write_text(folder / PAGE_FILE, page())
            if job.points is not None and len(job.points.left_out):
                write_csv(folder / LEFT_OUT_FILE, job.points.left_out)
            run = replace(
                fitted,
                region_name=job.region.name,
                quarters_missing=[quarter_label(q) for q in job.ingested.missing],
                quarters_unreached=[quarter_label(q) for q in job.ingested.unreached],
                rows_left_out=[
                    convert(one.described(), RowsLeftOut) for one in job.ingested.left_out
                ],
                calibration=with_repair(fitted.calibration, repair),
                covariates=covariates or UNSET,
                providers=[_provider(job.observations, name) for name in job.providers] or UNSET,
                points=UNSET if job.points is None else _points_record(job.points),
                seconds=job.seconds,
                warnings=job.warnings,
                map=replace(drawing.record, grid_sha256=sha256_of(folder / GRID_FILE)),
                attribution=job.ingested.attribution,
            )
            write_report(folder, run, predictions)
            write_pages(folder, run, [PAGE_FILE])
            size = (folder / PAGE_FILE).stat().st_size
            return replace(run, map=replace(given(run.map, RunMap()), page_bytes=size))

    run = job.folder.complete(write, keep_later=keep_later)
    job.clock.end()
    remember(job)
    return RunResult(job.folder.path, show_answers(job.folder.path) if keep_later else run)


def remake_report(path: Path, *, latex: bool = False) -> RunResult:
    """Write the report of a finished run again; with `latex`, also report.tex for a paper.

    Raises RequestError if the folder is not a finished run or is locked, DataError if a file is
    damaged, and OutputError if the report cannot be written.
    """
    with locked_run(path):
        return _remade_report(path, latex=latex)


def _remade_report(path: Path, *, latex: bool = False) -> RunResult:
    """Write the report of a finished run again, and store its new hashes in run.json."""
    _, run = read_run_record(path)
    write_report(path, run, read_predictions(path, run), latex=latex)
    record_files(path / RUN_FILE, run, REPORT_FILES)
    return RunResult(path, show_answers(path))


def write_report(
    folder: Path, run: RunRecord, predictions: pd.DataFrame, *, latex: bool = False
) -> None:
    """Write `REPORT_FILES` into a folder; with `latex`, also report.tex for a paper.

    The report shows the picture of the map and the answers that are in the folder.
    """
    for name, text in kind_of(run.target).report(run, predictions, latex=latex).items():
        write_text(folder / name, text)
    write_pages(folder, run, REPORT_FILES)


def _points_record(points: PointTests) -> PointsRecord:
    """Return what run.json says of the user's own file of tests."""
    return PointsRecord(
        understood=dict(points.notes),
        units={
            name: UnitRecord(unit=unit, read_from=origin)
            for name, (unit, origin) in points.units.items()
        },
        rows=points.rows,
        left_out=points.counts,
    )


def _provider(seen: Observations, name: str) -> ProviderRecord:
    own = seen.of_provider(name)
    return ProviderRecord(name=name, rows=len(own), tests=int(own.tests.sum()))


def _by_stratum(splits: dict[str, SplitOutcome]) -> dict[str, Strata] | UnsetType:
    """Return the scores of the second baseline of classes in each split; UNSET for numbers."""
    found = {name: split.scores.by_stratum for name, split in splits.items()}
    known = {name: strata for name, strata in found.items() if strata is not None}
    return known or UNSET


def _areas_checks(splits: dict[str, SplitOutcome]) -> dict[str, AreasCheck | str]:
    """Return the check of means over areas in each split, or the reason why there is none."""
    return {name: areas_check([one.areas for one in each.folds]) for name, each in splits.items()}


def _map_rows(job: Job, plan: Plan) -> NDArray[np.bool_]:
    """Return a mask of the rows to which the map's model is fitted, (n,)."""
    if not job.refits:
        return plan.rows(RANDOM.name, 0, TRAIN)
    validation, kept = (plan.rows(RANDOM.name, 0, part) for part in (VALIDATION, CALIBRATION))
    return ~(validation | kept)


def _variance_check(job: Job, fitted: SpatialGP, plan: Plan) -> VarianceCheck | None:
    """Compare two calculations of the standard deviation of the level at test rows.

    Returns None for counts. Also returns None for closed-form posteriors, and for models that
    store their rows: both results are equal.
    """
    model = fitted.network_
    if model.level_in_closed_form or not model.has_level:
        return None
    job.clock.begin("check")
    job.listener.stage("comparing two calculations of the level's variance")
    test = plan.rows(job.request.splits[0], 0, TEST)
    chosen = np.flatnonzero(test)
    test[chosen] = np.arange(len(chosen)) % -(-len(chosen) // CHECKED_ROWS) == 0
    found = two_variances(model, job.data(_map_rows(job, plan)), fitted.inputs(job.table[test]))
    return VarianceCheck(differ_by=_difference(job), **found)


def _difference(job: Job) -> str:
    """Return why a model's own variance of the level differs from the closed-form variance."""
    if job.about.spread_is_noise:
        return NOISE_IN_SPREAD
    return STEPS if job.about.has_spread else POINT

"""The way of a run: read, plan, fit, draw, write."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import to_builtins

from geogp.errors import named
from geogp.models.numerics.devices import pick_device
from geogp.records.map_settings import MapSettings
from geogp.runs.file_records import damaged_files, record_files
from geogp.runs.finished_run import RunResult, run_name
from geogp.runs.known_requests import files_of_request, keep_request
from geogp.runs.locks import lock_folder
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.draw import draw_map
from geogp.runs.pipeline.fit import Fits, fit_splits, stored_fits
from geogp.runs.pipeline.identity import identity_of
from geogp.runs.pipeline.phase_rates import expect, remember
from geogp.runs.pipeline.plan import Plan, plan_map
from geogp.runs.pipeline.read import Inputs, read_inputs
from geogp.runs.pipeline.write import REPORT_FILES, write_report, write_run
from geogp.runs.progress import ProgressListener, RunListener
from geogp.runs.run_folder import MODEL_FILE, PREDICTIONS_FILE, RunFolder, read_run_record
from geogp.runs.run_identity import input_paths
from geogp.runs.run_names import RUN_FILE
from geogp.runs.stored_predictions import read_predictions


def run_map(
    settings: MapSettings,
    outer: ProgressListener | None = None,
    *,
    call: str | None = None,
    wait: bool = False,
    finish: Callable[[RunResult], RunResult] = lambda result: result,
) -> RunResult:
    """Lock the run folder, make one map with its report, and return the finished run.

    Finished fits in the folder are not repeated. If the settings of the map are also the same, only
    missing or changed files are made again. `call` is as in `RunNote`. With `wait`, a locked folder
    is waited for. `finish` is called with the result while the folder is locked.

    Raises RequestError if the request cannot be met, the output path is a file, the run folder
    contains another run, or another process has locked the folder. Raises DataError if data are
    wrong or missing, NetworkError if a remote source failed, and OutputError if results cannot be
    written. After an OutputError or KeyboardInterrupt, the same call without `fresh` resumes the
    run.
    """
    with ExitStack() as stack:
        if settings.out is not None:  # otherwise the region names the folder
            RunFolder(settings.out).check()
            stack.enter_context(lock_folder(settings.out, wait=wait))
        device, listener = pick_device(settings.device), RunListener(outer)
        files = files_of_request(settings)
        listener.outer.phases(listener.clock)
        inputs = read_inputs(settings, listener)
        asked, settings = settings, inputs.settled(settings)
        folder = RunFolder(settings.out or Path("runs") / run_name(settings, inputs.region.code))
        folder.check()  # another process may have changed the folder meanwhile
        if settings.out is None:
            stack.enter_context(lock_folder(folder.path, wait=wait))
        plan = plan_map(settings, inputs, device, listener)
        keep_request(asked, files, identity_of(inputs, plan), listener.warnings)
        with arithmetic(precision=settings.precision):
            return finish(_made(inputs, plan, folder, listener, call))


def _made(
    inputs: Inputs, plan: Plan, folder: RunFolder, listener: RunListener, call: str | None
) -> RunResult:
    """Make what is missing of a run in its locked folder, and return the run."""
    settings, identity = plan.model.settings, identity_of(inputs, plan)
    folder.check_inputs(input_paths(to_builtins(identity.settings)))
    folder.prepare(fresh=settings.fresh)
    run = None if settings.fresh else folder.finished(identity)
    lost = [] if run is None else damaged_files(folder.path, run)
    if run is None or not _keeps_fits(lost, listener):
        fits = fit_splits(inputs, plan, identity, folder, listener, call=call)
        return _drawn(folder, inputs, plan, fits, listener)
    same = run.drawing == identity.drawing
    if same and not lost:
        return RunResult(folder.path, run, already_there=True)
    if same and set(lost) <= set(REPORT_FILES):
        listener.stage("writing the report again from run.json and the test predictions")
        return _remade_report(folder.path)
    listener.stage("drawing the map of the fitted model again")
    expect(listener.clock, inputs, plan, fits=False)
    fits = stored_fits(folder.path, run, identity, plan.model.device, listener)
    return _drawn(folder, inputs, plan, fits, listener, keep_later=same)


def _keeps_fits(lost: list[str], listener: RunListener) -> bool:
    """Return whether the fits of a finished run are intact; `lost` are damaged files."""
    if lost:
        listener.stage(f"missing, or changed since the run was made: {named(lost)}")
    if {MODEL_FILE, PREDICTIONS_FILE} & set(lost):
        listener.stage("making the run again from its data")
        return False
    return True


def _drawn(
    folder: RunFolder,
    inputs: Inputs,
    plan: Plan,
    fits: Fits,
    listener: RunListener,
    *,
    keep_later: bool = False,
) -> RunResult:
    """Draw the map of fits, write all files, and return the run."""
    content = draw_map(inputs, plan, fits, listener)
    base_map = not plan.model.settings.self_contained
    run = write_run(
        folder, inputs, fits, content, listener, base_map=base_map, keep_later=keep_later
    )
    remember(listener.clock, plan.model)
    return RunResult(folder.path, run)


def _remade_report(path: Path) -> RunResult:
    """Write the report of a finished run again, and store its new hashes in run.json."""
    _, run = read_run_record(path)
    write_report(path, run, read_predictions(path, run))
    return RunResult(path, record_files(path / RUN_FILE, run, REPORT_FILES))

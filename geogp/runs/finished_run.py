"""The check whether a requested run is complete already; it imports no model and reads no data."""

from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from geogp.models.options import NOISES
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import RunRecord
from geogp.runs.file_records import damaged_files
from geogp.runs.known_requests import known_request
from geogp.runs.locks import lock_folder
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import input_paths
from geogp.runs.run_names import RUN_FILE, RUNS


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, its record, and whether the run was complete before the call."""

    path: Path
    record: RunRecord
    already_there: bool = False


def run_name(settings: MapSettings, region: str) -> str:
    """Return the name of a run's folder in ``runs``."""
    target = "+".join(settings.targets)
    parts = [region, settings.service, target, settings.model, settings.preset]
    return "-".join(parts if settings.noise == NOISES[0] else [*parts, settings.noise])


def finished_run(
    settings: MapSettings, listener: ProgressListener | None = None, *, wait: bool = False
) -> RunResult | None:
    """Return the run of a request if it is complete already, with the warnings of its inputs.

    Returns None if this machine does not know the inputs of the request as they are now (see
    `known_request`), or if something of the run is missing; then `run_map` finds out more. With
    `wait`, a locked folder is waited for. Raises the errors of `RunFolder`, and RequestError if
    another process has locked the folder.
    """
    known = None if settings.fresh else known_request(settings)
    if known is None:
        return None
    identity = known.identity
    folder = RunFolder(settings.out or RUNS / run_name(settings, identity.region))
    if not (folder.path / RUN_FILE).is_file():
        return None
    folder.check()
    with lock_folder(folder.path, wait=wait):
        folder.check_inputs(input_paths(to_builtins(identity.settings)))
        folder.prepare()
        run = folder.finished(identity)
        if run is None or run.drawing != identity.drawing or damaged_files(folder.path, run):
            return None
    listener = listener or ProgressListener()
    for text in known.warnings:
        listener.warn(text)
    return RunResult(folder.path, run, already_there=True)

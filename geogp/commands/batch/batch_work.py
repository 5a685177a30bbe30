"""How a worker makes one run of a batch."""

import os
import socket
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from geogp.answers.shown_map import make_shown_map
from geogp.commands.batch.batch_plan import PlannedRun
from geogp.errors import DataError, OtherRunError
from geogp.runs.locks import lock_folder
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_names import RUN_FILE

TOPIC = "geogp-batch"
"""Topic of Dask under which workers publish their progress."""


@dataclass(frozen=True)
class WorkOrder:
    """A task for a worker: a run, and the folder of the batch.

    `call` is the id of a call of ``geogp batch --fresh``, which makes all runs of earlier calls
    again; each run stores the id of its call. If `keeps` is true, another finished run in the run
    folder is an error; otherwise it is replaced.
    """

    run: PlannedRun
    folder: Path
    call: str | None = None
    keeps: bool = False


@dataclass(frozen=True)
class WorkOutcome:
    """The result of a task: whether the run was ``made`` or ``kept``, by which worker, and how."""

    how: str
    cpu_seconds: float
    peak_bytes: int | None
    worker: str


def make_run(order: WorkOrder) -> WorkOutcome:
    """Make one run of a batch, unless the run is already complete.

    If a run fails, its folder stays, and the next attempt continues from its checkpoints. If two
    workers get the same run, the second worker waits for the first. Raises the errors of
    `run_map`; OtherRunError only if `order.keeps` is true and the folder has a finished run.
    """
    start, folder = time.process_time(), RunFolder(order.folder / order.run.name)
    with lock_folder(folder.path, wait=True):
        continues = order.call is None or _call_of(folder) == order.call
    request = replace(order.run.request, out=folder.path, fresh=not continues)
    listener, dask = _WorkerProgress(order.run.name), sys.modules.get("dask")
    # In a task of Dask, xarray would use the cluster's locks.
    with dask.config.set(scheduler="synchronous") if dask else nullcontext():
        try:
            result = make_shown_map(request, listener, call=order.call, wait=True)
        except OtherRunError:
            if order.keeps and (folder.path / RUN_FILE).exists():
                raise
            result = make_shown_map(
                replace(request, fresh=True), listener, call=order.call, wait=True
            )
    how, cpu_seconds = "kept" if result.already_there else "made", time.process_time() - start
    return WorkOutcome(how, cpu_seconds, peak_bytes(), _process())


def _call_of(folder: RunFolder) -> str | None:
    """Return the id of the call that began the run in a folder; None if the folder is damaged."""
    with suppress(DataError):
        folder.prepare()
        return folder.call
    return None


def _process() -> str:
    """Return the host and the process id of this worker."""
    return f"{socket.gethostname()}:{os.getpid()}"


def peak_bytes() -> int | None:
    """Return the largest resident memory of this process so far, in bytes; None on Windows."""
    try:
        import resource  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class _WorkerProgress(ProgressListener):
    """Publishes the progress of a run if this process is a worker of Dask."""

    def __init__(self, name: str) -> None:
        self._name, self._at = name, 0.0

    def stage(self, text: str) -> None:
        distributed = sys.modules.get("distributed")
        if distributed is not None:
            with suppress(ValueError):  # this is no task of Dask
                worker = distributed.get_worker()
                worker.log_event(TOPIC, {"name": self._name, "text": text, "process": _process()})

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if time.monotonic() - self._at >= 1 or done == total:
            self._at = time.monotonic()
            self.stage(f"{text} {done}/{total} {note}".strip())

"""How a worker makes one run: in the batch folder, or in a local folder that is then copied."""

import os
import socket
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from geogp.answers.pages import shown_again
from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_plan import PlannedRun
from geogp.errors import DataError, OutputError, RequestError
from geogp.files import ELSEWHERE, output_error, remove
from geogp.geodata.store.cache import cache_folder
from geogp.records.run_record import given
from geogp.runs.locks import LOCK_FILES, lock_folder
from geogp.runs.pipeline.identity import identity_of
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.pipeline.make_map import run_job
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import same_map
from geogp.runs.run_names import RUN_FILE

TOPIC = "geogp-batch"
"""Topic of Dask under which workers publish their progress."""

_CURE = "name another --scratch"


@dataclass(frozen=True)
class WorkOrder:
    """A task for a worker: a run, the address of the batch folder, and the scratch folder.

    `fresh` is the id of a call of ``geogp batch --fresh``, which makes all runs of earlier calls
    again. Each run folder stores the id of its call. If `keeps` is true, another finished run in
    the run folder is an error; otherwise it is replaced.
    """

    run: PlannedRun
    place: str
    scratch: Path | None
    fresh: str | None = None
    keeps: bool = False


@dataclass(frozen=True)
class WorkOutcome:
    """The result of a task: ``made`` or ``kept``, and the digest of run.json (see `digest_of`)."""

    how: str
    mark: str
    cpu_seconds: float
    peak_bytes: int | None
    worker: str


def scratch_folder(place: str, scratch: Path | None) -> Path:
    """Return the local folder for unfinished runs of a batch with a remote address."""
    return (scratch or cache_folder() / "batch") / sha256(place.encode()).hexdigest()[:16]


def check_scratch(scratch: Path | None, place: Place) -> None:
    """Raise RequestError if the scratch folder and the batch folder overlap."""
    own, root = scratch and scratch.resolve(), Path(place.root)
    if own and place.local and (own.is_relative_to(root) or root.is_relative_to(own)):
        raise RequestError(
            f"expected --scratch outside the folder of the batch, {root}; found {own}. Neither "
            "folder may contain the other: choose another --scratch, or leave --scratch out."
        )


def make_run(order: WorkOrder) -> WorkOutcome:
    """Make one run of a batch, unless the run is already complete.

    If a run fails, its folder stays, and the next attempt continues from its checkpoints. If two
    workers get the same run, the second worker waits for the first. Raises the errors of `make_map`
    and of `Place`, and RequestError for another run in the folder if `order.keeps` is true.
    """
    start, name, place = time.process_time(), order.run.name, open_place(order.place)
    base = Path(place.root) if place.local else scratch_folder(order.place, order.scratch)
    request = replace(order.run.request, out=base / name)
    with lock_folder(base / name, wait=True, cure=ELSEWHERE if place.local else _CURE):
        if not place.local:
            _clean_up(base / name)
        job = replace(prepare(request, _WorkerProgress(name)), call=order.fresh)
        if not _can_continue(job, keeps=order.keeps and place.local):
            job = replace(job, request=replace(request, fresh=True))
        how = _make(job) if place.local else _make_and_copy(job, place, order)
    content = place.read(name, RUN_FILE)
    if content is None:
        raise OutputError(f"{place.show(name, RUN_FILE)} is missing, although it was written.")
    cpu_seconds = time.process_time() - start
    return WorkOutcome(how, digest_of(content), cpu_seconds, peak_bytes(), _process())


def digest_of(content: bytes) -> str:
    """Return a digest that identifies a run.json."""
    return sha256(content).hexdigest()


def _make(job: Job) -> str:
    """Make a run in the folder of its job; return ``made`` or ``kept``."""
    dask = sys.modules.get("dask")  # in a task of Dask, xarray would use the cluster's locks
    with dask.config.set(scheduler="synchronous") if dask else nullcontext():
        return "kept" if shown_again(run_job(job)).already_there else "made"


def _make_and_copy(job: Job, place: Place, order: WorkOrder) -> str:
    """Make a run and copy it to the remote batch folder, unless the run is already there."""
    name = order.run.name
    held = place.record(name)
    same = held is not None and same_map(held, identity_of(job))
    if held is not None and same and job.call in {None, given(held.call, None)}:
        how = "made" if place.lacks(name, held) else "kept"
    else:
        how = "made"
    if how == "made":
        if order.keeps and not same and place.holds_files(name):
            raise RequestError(
                f"{place.show(name)} contains another run or other files. Start over with "
                "--fresh, or choose another place with --out."
            )
        _make(job)
        job.listener.stage("copying")
        place.put_run(job.folder.path, name)
    _empty(job.folder.path)
    return how


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


def _can_continue(job: Job, *, keeps: bool) -> bool:
    """Return whether a job can continue from the files in its folder.

    If `keeps` is true, raises the error for another finished run in the folder.
    """
    try:
        job.folder.prepare()
        job.folder.finished(identity_of(job))
        begun_by = job.folder.call
    except (RequestError, DataError):
        if keeps and (job.folder.path / RUN_FILE).exists():
            raise
        return False
    return job.call in (None, begun_by)


def _clean_up(folder: Path) -> None:
    """Empty the scratch folder of an interrupted run if it contains no valid run.json."""
    try:
        RunFolder(folder).check()
    except (RequestError, DataError):
        _empty(folder)


def _empty(folder: Path) -> None:
    """Remove all files in a run folder except the lock; run.json is removed last."""
    RunFolder(folder).clear()
    try:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RUN_FILE):
            if path.name not in LOCK_FILES:
                remove(path)
    except OSError as error:
        raise output_error(folder, error, _CURE) from error

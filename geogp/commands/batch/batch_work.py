"""How a worker makes one run: in a folder of its own machine first, then at the place."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from msgspec import UNSET

from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_plan import PlannedRun, check_name
from geogp.errors import DataError, OutputError, RequestError
from geogp.files import output_error, remove
from geogp.geodata.store.cache import cache_folder
from geogp.records.run_record import RunIdentity
from geogp.runs.locks import LOCK_FILES, hold, is_vacant
from geogp.runs.pipeline.job import identity_of, prepare
from geogp.runs.pipeline.make_map import carry_out
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import same_map
from geogp.runs.run_names import RUN_FILE

TOPIC = "geogp-batch"
"""What workers publish their progress under."""

MADE, KEPT = "made", "kept"


@dataclass(frozen=True)
class Order:
    """What a worker is told to do.

    Attributes
    ----------
    run
        The run.
    place
        Address of the place.
    scratch
        Folder of the worker's machine; None takes that of `scratch_folder`.
    fresh
        Start over, whatever there is.
    attempt
        How often it was given out, from 1.
    """

    run: PlannedRun
    place: str
    scratch: str | None
    fresh: bool = False
    attempt: int = 1


@dataclass(frozen=True)
class WorkOutcome:
    """What a worker did.

    Attributes
    ----------
    how
        ``made``, or ``kept`` where the place had the very run.
    mark
        SHA-256 of its run.json.
    seconds, cpu_seconds
        That the worker took, by the clock and of its cores.
    peak_bytes
        The largest resident memory of the worker's process so far; None on Windows.
    worker
        Host and process.
    warnings
        Of the run.
    """

    how: str
    mark: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int | None
    worker: str
    warnings: tuple[str, ...]


def scratch_folder(place: str) -> Path:
    """Return where a machine keeps the unfinished runs of a place: a folder of the cache."""
    return cache_folder() / "batch" / sha256(place.encode()).hexdigest()[:16]


def check_scratch(scratch: Path | None, place: Place) -> None:
    """Refuse a folder of unfinished runs that is the place of a batch, in it or around it.

    A run there would wait for its own lock, or be emptied for what is unfinished.

    Raises
    ------
    RequestError
        It is.
    """
    if scratch is None or not place.local:
        return
    own, root = scratch.resolve(), Path(place.root)
    if own.is_relative_to(root) or root.is_relative_to(own):
        raise RequestError(
            f"expected --scratch apart from the place of the batch, {root}; found {own}. "
            "Choose a folder that is neither in nor around it, or leave --scratch out."
        )


def make_run(order: Order) -> WorkOutcome:
    """Make one run of a batch, or find that it is there.

    The folder of an unfinished run stays where it is: another attempt on this machine goes on
    from its checkpoints. Of two workers that were given one run, as where the first seemed lost,
    the second waits.

    Raises
    ------
    GeogpError
        As `make_map` says, and as the place has them.
    """
    start = time.monotonic(), time.process_time()
    run, place = order.run, open_place(order.place)
    scratch = Path(order.scratch) if order.scratch else scratch_folder(order.place)
    folder = scratch / check_name(run.name)
    listener = _Telling(run.name, order.attempt)
    request = replace(run.request, out=folder)
    with hold(folder, wait=True, cure="name another --scratch"):
        if order.fresh and order.attempt == 1:
            _empty(folder)
        if not _is_run(folder):  # a stop while it was emptied or filled
            _empty(folder)
        held = None if order.fresh else place.read_run(run.name)
        job = None
        if held is not None or not is_vacant(folder):
            job = prepare(request, listener)
            identity = identity_of(job)
            if held is not None and same_map(held, identity):
                _empty(folder)
                if not place.spoilt(run.name, held):
                    return _outcome(KEPT, place, run.name, start, ())
                place.get_run(folder, run.name, held)  # what is whole serves to make the rest
            elif not _goes_on(folder, identity):
                _empty(folder)
        with _apart_from_dask():
            result = carry_out(job or prepare(request, listener))
        listener.stage("copying")
        place.put_run(folder, run.name)
        _empty(folder)
        warnings = () if result.record.warnings is UNSET else tuple(result.record.warnings)
        return _outcome(MADE, place, run.name, start, warnings)


def worker_name() -> str:
    """Return host and process of this worker."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def _apart_from_dask() -> Iterator[None]:
    """Compute here: in a task xarray would take its locks from the cluster, also for memory."""
    dask = sys.modules.get("dask")
    if dask is None:
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield


def tell(what: dict[str, object]) -> None:
    """Publish a message where this process is a worker of Dask; else do nothing."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        worker = distributed.get_worker()
    except ValueError:  # not in a task
        return
    worker.log_event(TOPIC, what | {"process": worker_name()})  # Dask adds `worker`


class _Telling(ProgressListener):
    """Publishes stages and progress."""

    def __init__(self, name: str, attempt: int) -> None:
        self._told = {"name": name, "attempt": attempt}
        self._at = 0.0

    def stage(self, text: str) -> None:
        tell({**self._told, "text": text})

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if time.monotonic() - self._at < 1 and done < total:
            return
        self._at = time.monotonic()
        tell({**self._told, "text": f"{text} {done}/{total} {note}".strip()})


def _is_run(folder: Path) -> bool:
    try:
        RunFolder(folder).check()
    except (RequestError, DataError):
        return False
    return True


def _goes_on(folder: Path, identity: RunIdentity) -> bool:
    """Tell whether what was begun in a folder is this run; its inputs may be others now."""
    held = RunFolder(folder)
    try:
        held.settle()
        held.finished(identity)
    except (RequestError, DataError):
        return False
    return True


def _outcome(
    how: str, place: Place, name: str, start: tuple[float, float], warnings: tuple[str, ...]
) -> WorkOutcome:
    mark = place.mark(name)
    if mark is None:
        raise OutputError(f"{place.show(name, RUN_FILE)} is not there after it was written.")
    seconds, cpu_seconds = time.monotonic() - start[0], time.process_time() - start[1]
    return WorkOutcome(how, mark, seconds, cpu_seconds, peak_bytes(), worker_name(), warnings)


def peak_bytes() -> int | None:
    """Return the largest resident memory of this process so far; Windows does not tell."""
    try:
        import resource  # noqa: PLC0415 - which Windows has not
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _empty(folder: Path) -> None:
    """Remove all that is in a folder but its lock, run.json last: it says what a file is of."""
    RunFolder(folder).clear()
    try:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RUN_FILE):
            if path.name not in LOCK_FILES:
                remove(path)
    except OSError as error:
        raise output_error(folder, error, "name another --scratch") from error

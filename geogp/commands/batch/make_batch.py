"""A batch from the request to the joined products: give out, hear, try again, keep account."""

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_plan import BatchRequest, runs_of, shared_settings
from geogp.commands.batch.batch_work import KEPT, Order, check_scratch, make_run, scratch_folder
from geogp.commands.batch.cluster import Crew, dask_crew
from geogp.commands.batch.execution import Execution
from geogp.commands.batch.failures import OTHER, PASSING, kind_of, told_of
from geogp.commands.batch.fingerprints import Fingerprints
from geogp.commands.batch.ledger import (
    DONE,
    FAILED,
    LEDGER_FILE,
    RUNNING,
    WAITING,
    Ledger,
    LedgerEntry,
    National,
    read_ledger,
    write_ledger,
)
from geogp.commands.batch.national import FOLDER, NATIONAL_FILES, NationalOrder, join_runs
from geogp.errors import DataError, GeogpError, NetworkError, OutputError, RequestError
from geogp.runs.locks import hold

_LOOK_S = 0.5


class BatchProgressListener:
    """Hears how a batch goes; this one says nothing."""

    def begin(self, ledger: Ledger, names: Sequence[str]) -> None:
        """Take note of the runs that are asked for."""

    def changed(self, name: str, entry: LedgerEntry) -> None:
        """Take note of a run that changed its state."""

    def working(self, name: str, text: str) -> None:
        """Take note of what a worker does on a run, or on what is joined."""

    def stage(self, text: str) -> None:
        """Take note of a stage that begins."""


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch: the place, the runs asked for, and what was joined."""

    place: str
    entries: dict[str, LedgerEntry]
    national: dict[str, National]

    @property
    def failures(self) -> list[str]:
        """Kinds of all failures."""
        entries, joined = self.entries.values(), self.national.values()
        return [
            *(one.kind or OTHER for one in entries if one.state != DONE),
            *(one.kind or OTHER for one in joined if one.error is not None),
        ]

    @property
    def exit_code(self) -> int:
        """0 where all is done; 4 where all that failed may pass; else 3."""
        failures = set(self.failures)
        if not failures:
            return 0
        return NetworkError.exit_code if failures <= PASSING else DataError.exit_code

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "place": self.place,
            "runs": {name: entry.described() for name, entry in self.entries.items()},
            "national": {name: vars(one) for name, one in self.national.items()},
            "failed": sorted(name for name, one in self.entries.items() if one.state != DONE),
        }


def make_batch(
    request: BatchRequest,
    place: str,
    execution: Execution | None = None,
    *,
    listener: BatchProgressListener | None = None,
    crew: Crew | None = None,
) -> BatchResult:
    """Make all runs of a batch, and join them.

    A run that the place has, made from what it would be made from now, is left as it is. One that
    fails stops no other. ``batch.json`` at the place keeps what became of each.

    Parameters
    ----------
    request
        The runs.
    place
        Folder, or address that fsspec knows.
    execution
        Who works, and how often.
    listener
        Hears how it goes.
    crew
        Those who work; None starts, or joins, a Dask cluster.

    Raises
    ------
    RequestError
        The runs cannot be made as asked for, the place holds runs of other settings, or another
        process makes a batch there.
    DataError
        The boundaries or batch.json are damaged.
    NetworkError
        The boundaries, the place or the scheduler cannot be reached.
    OutputError
        The place cannot be written.
    KeyboardInterrupt
        Stopped; `resume_batch` continues.
    """
    execution = execution or Execution()
    where = open_place(place)
    check_scratch(execution.scratch, where)
    runs = runs_of(request)
    settings = shared_settings(request, runs[0])
    listener = listener or BatchProgressListener()
    with _held(where, execution, listener):
        ledger = None if execution.fresh else read_ledger(where)
        if ledger is None:
            ledger = Ledger(settings)
        if ledger.settings != settings:
            odd = sorted(key for key in settings if settings[key] != ledger.settings.get(key))
            raise RequestError(
                f"{where.address} holds a batch with other {', '.join(odd)}. Choose another place "
                "with --out, or start over with --fresh."
            )
        for run in runs:
            ledger.entries.setdefault(run.name, LedgerEntry(run))
        names = [run.name for run in runs]
        return _Batch(where, ledger, names, execution, listener).carry_out(crew)


def resume_batch(
    place: str,
    execution: Execution | None = None,
    *,
    listener: BatchProgressListener | None = None,
    crew: Crew | None = None,
) -> BatchResult:
    """Go on with all runs that batch.json of a place names.

    Raises
    ------
    RequestError
        There is no batch.
    GeogpError
        As `make_batch` says.
    """
    where, listener = open_place(place), listener or BatchProgressListener()
    execution = execution or Execution()
    check_scratch(execution.scratch, where)
    none = f"{where.address} holds no {LEDGER_FILE}; there is no batch to go on with."
    if not where.has(LEDGER_FILE):
        raise RequestError(none)
    with _held(where, execution, listener):
        ledger = read_ledger(where)
        if ledger is None:
            raise RequestError(none)
        names = list(ledger.entries)
        return _Batch(where, ledger, names, execution, listener).carry_out(crew)


@contextmanager
def _held(where: Place, execution: Execution, listener: BatchProgressListener) -> Iterator[None]:
    """Hold the place of a batch, where it is a folder, and the scratch folder of this machine.

    Of a place at an address the default scratch folder is one for all batches that this user makes
    there from this machine; a batch that another machine makes there is not seen.
    """
    own = execution.scratch if execution.scheduler is None else None
    with ExitStack() as stack:
        if where.local:
            stack.enter_context(hold(Path(where.root)))
        else:
            listener.stage(f"no lock holds {where.address}: make no other batch there meanwhile")
            stack.enter_context(hold(scratch_folder(where.address)))
        if own is not None:
            stack.enter_context(hold(own, cure="name another --scratch"))
        yield


class _Batch:
    """One call: the runs it was asked for, of those that the ledger knows."""

    def __init__(
        self,
        place: Place,
        ledger: Ledger,
        names: list[str],
        execution: Execution,
        listener: BatchProgressListener,
    ) -> None:
        self._place, self._ledger, self._names = place, ledger, names
        self._execution, self._listener = execution, listener
        self._fingerprints = Fingerprints()
        self._heard: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def carry_out(self, crew: Crew | None) -> BatchResult:
        self._listener.stage("looking at what is there")
        entries = {name: self._ledger.entries[name] for name in self._names}
        waiting = [name for name in self._names if not self._kept(entries[name])]
        self._listener.begin(self._ledger, self._names)
        self._save()
        joins = self._joins() if not waiting else None
        if waiting or joins:
            try:
                with self._crew(crew) as those:
                    if waiting:
                        self._run(those, waiting)
                    self._join(those)
            finally:
                for entry in entries.values():
                    entry.state = WAITING if entry.state == RUNNING else entry.state
                self._save()
        groups = {entry.run.group for entry in entries.values()}
        national = {k: v for k, v in self._ledger.national.items() if k in groups}
        return BatchResult(self._place.address, entries, national)

    def _crew(self, crew: Crew | None) -> AbstractContextManager[Crew]:
        if crew is not None:
            return nullcontext(crew)
        device = self._ledger.entries[self._names[0]].run.request.device
        scratch = self._execution.scratch or scratch_folder(self._place.address)
        return dask_crew(self._execution, device, scratch, self._heard.put)

    def _kept(self, entry: LedgerEntry) -> bool:
        """Tell whether a run is there as it would be made now, without reading its data."""
        fingerprint = self._fingerprints.of(entry.run.request)
        mark = None if self._execution.fresh else self._place.mark(entry.run.name)
        kept = (
            entry.state == DONE
            and None not in {fingerprint, mark}
            and (fingerprint, mark) == (entry.fingerprint, entry.mark)
            and self._is_whole(entry.run.name)
        )
        entry.attempts, entry.error, entry.kind = 0, None, None
        entry.state, entry.how = (DONE, KEPT) if kept else (WAITING, None)
        return kept

    def _is_whole(self, name: str) -> bool:
        held = self._place.read_run(name)
        return held is not None and not self._place.spoilt(name, held)

    def _run(self, crew: Crew, waiting: list[str]) -> None:
        """Give out runs, one to each worker, until none is left."""
        queue, flying = deque(waiting), dict[Future[Any], str]()
        try:
            while queue or flying:
                while queue and len(flying) < crew.size():
                    name = queue.popleft()
                    flying[crew.executor.submit(make_run, self._order(name))] = name
                for future in self._finished(flying):
                    name = flying.pop(future)
                    if self._settle(self._ledger.entries[name], future):
                        queue.append(name)
        finally:
            for future in flying:
                future.cancel()

    def _finished(self, flying: dict[Future[Any], str]) -> Iterator[Future[Any]]:
        """Wait a moment, pass on what workers told, and return what is done."""
        done, _ = wait(flying, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        while True:
            try:
                told = self._heard.get_nowait()
            except Empty:
                break
            name, text = str(told.get("name")), str(told.get("text"))
            entry = self._ledger.entries.get(name)
            if entry is not None and entry.state == RUNNING:
                if told.get("attempt") != entry.attempts:
                    continue  # of a worker that is gone
                entry.worker = str(told.get("process"))
            self._listener.working(name, text)
        return iter(done)

    def _order(self, name: str) -> Order:
        entry = self._ledger.entries[name]
        entry.state, entry.attempts = RUNNING, entry.attempts + 1
        self._changed(entry)
        scratch = None if self._execution.scratch is None else str(self._execution.scratch)
        return Order(entry.run, self._place.address, scratch, self._execution.fresh, entry.attempts)

    def _settle(self, entry: LedgerEntry, future: Future[Any]) -> bool:
        """Take down what became of a run; tell whether it is tried again."""
        error = _error_of(future) or self._absent(entry.run.name, future.result().mark)
        if error is None:
            outcome = future.result()
            entry.state, entry.how, entry.mark = DONE, outcome.how, outcome.mark
            entry.fingerprint = self._fingerprints.of(entry.run.request)
            entry.seconds, entry.cpu_seconds = outcome.seconds, outcome.cpu_seconds
            entry.peak_bytes = outcome.peak_bytes
            entry.worker, entry.warnings = outcome.worker, list(outcome.warnings)
            entry.error = entry.kind = None
        else:
            entry.kind, entry.error = kind_of(error), told_of(error)
            again = entry.kind in PASSING and entry.attempts <= self._execution.retries
            entry.state = WAITING if again else FAILED
        self._changed(entry)
        return entry.state == WAITING

    def _absent(self, name: str, mark: str) -> GeogpError | None:
        """Return the error of a run that was made, but is not there; None where it is."""
        try:
            if self._place.mark(name) == mark:
                return None
        except NetworkError as error:
            return error
        return OutputError(
            f"{self._place.address} of the workers is not that of this machine: the run was made, "
            "and is not there. Choose a place that all of them see."
        )

    def _changed(self, entry: LedgerEntry) -> None:
        """Tell and take down a change; a store that fails now may take it down with the next."""
        self._listener.changed(entry.run.name, entry)
        try:
            self._save()
        except NetworkError as error:
            self._listener.stage(str(error))

    def _save(self) -> None:
        write_ledger(self._place, self._ledger)

    def _joins(self) -> list[tuple[str, National, NationalOrder]]:
        """Return what is to be joined: groups of this call whose runs are others than before."""
        found = []
        for group in dict.fromkeys(self._ledger.entries[name].run.group for name in self._names):
            members = [one for one in self._ledger.entries.values() if one.run.group == group]
            done = sorted(
                (one for one in members if one.state == DONE and one.mark),
                key=lambda one: one.run.region,
            )
            if not done:
                continue
            names = [one.run.name for one in done]
            missing = [one.run.name for one in members if one not in done]
            content = json.dumps([names, [one.mark for one in done]])
            digest = sha256(content.encode()).hexdigest()
            held = self._ledger.national.get(group)
            if held is not None and held.digest == digest and held.error is None:
                held.missing = missing
                if all(self._place.has(FOLDER, group, name) for name in NATIONAL_FILES):
                    continue
            scratch = None if self._execution.scratch is None else str(self._execution.scratch)
            order = NationalOrder(
                group,
                done[0].run.request.target,
                tuple((one.run.name, one.run.region) for one in done),
                self._place.address,
                scratch,
            )
            found.append((group, National(digest, names, missing), order))
        return found

    def _join(self, crew: Crew) -> None:
        """Join the runs of each group; a worker that dies costs one more attempt."""
        for _ in range(self._execution.retries + 1):
            flying: dict[Future[Any], str] = {}
            for group, joined, order in self._joins():
                self._listener.stage(f"joining {len(order.runs)} runs: {FOLDER}/{group}")
                self._ledger.national[group] = joined
                flying[crew.executor.submit(join_runs, order)] = group
            if not flying:
                return
            again = False
            while flying:
                for future in self._finished(flying):
                    again |= self._joined(self._ledger.national[flying.pop(future)], future)
            self._save()
            if not again:
                return
            time.sleep(_LOOK_S)

    def _joined(self, joined: National, future: Future[Any]) -> bool:
        """Take down what became of what is joined; tell whether it may be tried again."""
        error = _error_of(future)
        if error is not None:
            joined.kind, joined.error = kind_of(error), told_of(error)
            return joined.kind in PASSING
        made = future.result()
        joined.tiles, joined.files = made.tiles, list(made.files)
        joined.seconds, joined.peak_bytes = made.seconds, made.peak_bytes
        return False


def _error_of(future: Future[Any]) -> BaseException | None:
    if future.cancelled():
        return ConnectionError("the worker's scheduler took the run back.")
    return future.exception()

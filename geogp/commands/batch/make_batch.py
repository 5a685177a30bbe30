"""A batch from the request to the joined products: give out, try again, keep account."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from geogp.commands.batch.batch_place import Place, open_place, run_in
from geogp.commands.batch.batch_plan import (
    BatchRequest,
    Execution,
    PlannedRun,
    runs_of,
    shared_settings,
)
from geogp.commands.batch.batch_table import (
    BATCH_FILE,
    DONE,
    FAILED,
    RUNNING,
    WAITING,
    BatchRow,
    BatchTable,
    NationalRow,
    read_table,
)
from geogp.commands.batch.batch_work import Order, check_scratch, make_run, mark_of, scratch_folder
from geogp.commands.batch.cluster import Crew, workers
from geogp.commands.batch.failures import PASSING, kind_of, told_of
from geogp.commands.batch.national import (
    FOLDER,
    NATIONAL_FILES,
    NationalOrder,
    join_runs,
    joined_before,
)
from geogp.errors import DataError, NetworkError, OutputError, RequestError
from geogp.runs.locks import hold
from geogp.runs.progress import ProgressListener
from geogp.runs.run_names import RUN_FILE


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch: the place, the runs asked for, and what was joined."""

    place: str
    rows: dict[str, BatchRow]
    national: dict[str, NationalRow]

    @property
    def exit_code(self) -> int:
        """0 where all is done; 4 where all that failed may pass; else 3."""
        failed = [one for one in self.rows.values() if one.state != DONE]
        kinds = {one.kind for one in (*failed, *self.national.values()) if one.error}
        if not failed and not kinds:
            return 0
        return NetworkError.exit_code if kinds <= PASSING else DataError.exit_code

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "place": self.place,
            "runs": msgspec.to_builtins(self.rows),
            "national": msgspec.to_builtins(self.national),
            "failed": sorted(name for name, one in self.rows.items() if one.state != DONE),
        }


def make_batch(
    request: BatchRequest | None,
    place: str,
    execution: Execution | None = None,
    *,
    listener: ProgressListener | None = None,
) -> BatchResult:
    """Make all runs of a batch, and join them.

    A run that the place has, made from what it would be made from now, is left as it is. One that
    fails stops no other. ``batch.json`` at the place says what became of each.

    Parameters
    ----------
    request
        The runs; None goes on with all that batch.json names.
    place
        Folder, or address that fsspec knows.
    execution
        Who works, and how often.
    listener
        Hears how it goes.

    Raises
    ------
    RequestError
        The runs cannot be made as asked for, there is no batch to go on with, the place holds runs
        of other settings, or another process makes a batch there.
    DataError
        The boundaries or batch.json are damaged.
    NetworkError
        The boundaries, the place or the scheduler cannot be reached.
    OutputError
        The place cannot be written.
    KeyboardInterrupt
        Stopped; the same call continues.
    """
    execution, listener = execution or Execution(), listener or ProgressListener()
    where = open_place(place)
    check_scratch(execution.scratch, where)
    runs = [] if request is None else runs_of(request)
    held = Path(where.root)
    if not where.local:
        listener.stage(f"no lock holds {where.address}: make no other batch there meanwhile")
        held = scratch_folder(where.address, execution.scratch)  # against those of this machine
    with hold(held):
        if request is None:
            table = read_table(where)
            if table is None:
                raise RequestError(
                    f"{where.address} holds no {BATCH_FILE}; there is no batch to go on with."
                )
            runs = list(table.planned().values())
        else:
            table = _table_for(where, shared_settings(request, runs[0]), fresh=execution.fresh)
        for run in runs:
            table.add(run)
        return _Batch(where, table, [run.name for run in runs], execution, listener).carry_out()


def _table_for(where: Place, settings: dict[str, Any], *, fresh: bool) -> BatchTable:
    """Return the table of a place, or a new one; refuse one of other settings."""
    table = None if fresh else read_table(where)
    if table is None:
        return BatchTable(settings=settings)
    if table.settings != settings:
        odd = sorted(key for key in settings if settings[key] != table.settings[key])
        raise RequestError(
            f"{where.address} holds a batch with other {', '.join(odd)}. Choose another place "
            "with --out, or start over with --fresh."
        )
    return table


class _Batch:
    """One call: the runs it was asked for, of those that the table names."""

    def __init__(
        self,
        place: Place,
        table: BatchTable,
        names: list[str],
        execution: Execution,
        listener: ProgressListener,
    ) -> None:
        self._place, self._table, self._names = place, table, names
        self._execution, self._listener = execution, listener
        self._planned: dict[str, PlannedRun] = table.planned()
        self._rows = {name: table.runs[name] for name in names}
        self._groups = dict.fromkeys(self._planned[name].group for name in names)
        self._orders: dict[str, NationalOrder] = {}
        self._ended: set[str] = set()
        self._tries: Counter[str] = Counter()

    def carry_out(self) -> BatchResult:
        listener, device = self._listener, self._planned[self._names[0]].request.device
        listener.stage(f"{len(self._names)} runs at {self._place.address}")
        self._save()
        scratch = scratch_folder(self._place.address, self._execution.scratch)
        try:
            with workers(self._execution, device, scratch) as crew:
                look = self._look(crew)
                crew.work(make_run, self._names, self._run_order, self._run_ended, look)
                self._find_joins()
                if self._orders:
                    crew.work(join_runs, self._orders, self._join_order, self._join_ended, look)
        finally:
            for row in self._rows.values():
                row.state = WAITING if row.state == RUNNING else row.state
            self._save()
        national = {k: v for k, v in self._table.national.items() if k in self._groups}
        return BatchResult(self._place.address, self._rows, national)

    def _look(self, crew: Crew) -> Callable[[list[str]], None]:
        """Return what tells how far the batch is, and what is worked on."""

        def look(working: list[str]) -> None:
            heard = {name: crew.heard[name] for name in working if name in crew.heard}
            told = [f"{name}, {one['process']}: {one['text']}" for name, one in heard.items()]
            many = len(self._rows) + len(self._groups)
            self._listener.progress("batch", len(self._ended), many, "; ".join(told))

        return look

    def _run_order(self, name: str) -> Order:
        row = self._rows[name]
        row.state, row.attempts = RUNNING, row.attempts + 1
        execution = self._execution
        # What another attempt finds is of this call.
        fresh = execution.fresh and row.attempts == 1
        self._tell(name, "begun" if row.attempts == 1 else f"begun again ({row.attempts})")
        return Order(self._planned[name], self._place.address, execution.scratch, fresh)

    def _run_ended(self, name: str, future: Future[Any]) -> bool:
        """Take down what became of a run; tell whether it is tried again."""
        row = self._rows[name]
        try:
            outcome = _result(future)
            self._take(name, row, outcome)
        except Exception as error:  # noqa: BLE001 - whatever ended it, the others go on
            row.kind, row.error = kind_of(error), told_of(error)
            again = row.kind in PASSING and row.attempts <= self._execution.retries
            row.state = WAITING if again else FAILED
            if not again:
                self._ended.add(name)
            self._tell(name, f"failed: {row.error}{' It is tried again.' if again else ''}")
            return again
        self._ended.add(name)
        peak = "" if row.peak_bytes is None else f", peak {row.peak_bytes / 1e9:.2f} GB"
        self._tell(name, f"{row.how}, {row.seconds or 0:.0f} s{peak}, {row.worker}")
        return False

    def _take(self, name: str, row: BatchRow, outcome: Any) -> None:
        """Take down a run that was made, by its run.json at the place."""
        content = self._place.read(name, RUN_FILE)
        run = run_in(content)
        if content is None or run is None or mark_of(content) != outcome.mark:
            raise OutputError(
                f"{self._place.address} of the workers is not that of this machine: the run was "
                "made, and is not there. Choose a place that all of them see."
            )
        row.take(run)
        row.how, row.worker = outcome.how, outcome.worker
        row.cpu_seconds, row.peak_bytes = outcome.cpu_seconds, outcome.peak_bytes
        row.state, row.error, row.kind = DONE, None, None

    def _tell(self, name: str, text: str) -> None:
        """Tell and take down a change; a store that fails now may take it down with the next."""
        self._listener.stage(f"[{len(self._ended)}/{len(self._rows)}] {name}: {text}")
        try:
            self._save()
        except NetworkError as error:
            self._listener.stage(str(error))

    def _save(self) -> None:
        self._table.write(self._place)

    def _find_joins(self) -> None:
        """Find what is to be joined: groups of this call whose runs are others than before."""
        for group in self._groups:
            members = [run for run in self._planned.values() if run.group == group]
            marks = {}
            for run in sorted(members, key=lambda run: run.region):
                row = self._table.runs[run.name]
                content = self._place.read(run.name, RUN_FILE) if row.state == DONE else None
                if run_in(content) is not None and content is not None:
                    marks[run.name] = mark_of(content)
            if not marks:
                self._ended.add(group)
                continue
            missing = [run.name for run in members if run.name not in marks]
            files = [f"{FOLDER}/{group}/{file}" for file in NATIONAL_FILES]
            row = NationalRow(runs=list(marks), missing=missing, files=files)
            self._table.national[group] = row
            before, tiles = joined_before(self._place, group)
            if before == marks:
                row.tiles = tiles
                self._ended.add(group)
                continue
            self._orders[group] = NationalOrder(
                group,
                members[0].request.target,
                {name: self._planned[name].region for name in marks},
                marks,
                self._place.address,
                self._execution.scratch,
            )

    def _join_order(self, group: str) -> NationalOrder:
        order = self._orders[group]
        self._tries[group] += 1
        self._listener.stage(f"joining {len(order.marks)} runs: {FOLDER}/{group}")
        return order

    def _join_ended(self, group: str, future: Future[Any]) -> bool:
        """Take down what became of what is joined; tell whether it is tried again."""
        row = self._table.national[group]
        try:
            made = _result(future)
        except Exception as error:  # noqa: BLE001 - whatever ended it, the others go on
            row.kind, row.error = kind_of(error), told_of(error)
            if row.kind in PASSING and self._tries[group] <= self._execution.retries:
                return True
        else:
            row.kind = row.error = None
            row.tiles, row.seconds, row.peak_bytes = made.tiles, made.seconds, made.peak_bytes
        self._ended.add(group)
        return False


def _result(future: Future[Any]) -> Any:
    """Return what a worker did, or raise what ended it."""
    try:
        return future.result()
    except CancelledError as error:
        raise ConnectionError("the worker's scheduler took the run back.") from error

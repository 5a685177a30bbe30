"""Makes the runs of a batch on workers, records the results, and joins the finished runs."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

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
    BatchRow,
    BatchTable,
    NationalRow,
    joined_groups,
    read_table,
)
from geogp.commands.batch.batch_work import (
    WorkOrder,
    WorkOutcome,
    check_scratch,
    digest_of,
    make_run,
    scratch_folder,
)
from geogp.commands.batch.cluster import (
    TRANSIENT,
    WorkerPool,
    failure_message,
    kind_of,
    workers,
)
from geogp.commands.batch.national import (
    FOLDER,
    NATIONAL_FILES,
    JoinedRun,
    bands_of,
    join_runs,
    joined_runs,
    tiles_joined,
)
from geogp.errors import DataError, NetworkError, OutputError, RequestError, named
from geogp.runs.locks import lock_folder
from geogp.runs.output_files import OutputFiles
from geogp.runs.progress import ProgressListener
from geogp.runs.run_names import RUN_FILE

LOOK_S = 0.5
"""Seconds between checks for new workers, and between reports of progress."""


@dataclass(frozen=True)
class BatchResult:
    """The result of a batch: the address of its folder, its runs, and the joined files."""

    place: str
    rows: dict[str, BatchRow]
    national: dict[str, NationalRow]

    @property
    def exit_code(self) -> int:
        """0 if all runs are done; 4 if every failure may be temporary; else 3."""
        failed = [one for one in self.rows.values() if one.state != "done"]
        rows: list[BatchRow | NationalRow] = [*failed, *self.national.values()]
        kinds = {one.kind for one in rows if one.error}
        if not failed and not kinds:
            return 0
        return NetworkError.exit_code if kinds <= TRANSIENT else DataError.exit_code

    def described(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "place": self.place,
            "runs": msgspec.to_builtins(self.rows),
            "national": msgspec.to_builtins(self.national),
            "failed": sorted(name for name, one in self.rows.items() if one.state != "done"),
        }


def make_batch(
    request: BatchRequest | None,
    place: str,
    execution: Execution | None = None,
    *,
    listener: ProgressListener | None = None,
) -> BatchResult:
    """Make all runs of a batch, and join the finished runs.

    `place` is the batch folder: a local path, or an address that fsspec supports. A finished run
    with the same inputs is kept. If a run fails, the other runs continue. The file ``batch.json``
    records the result of each run. If `request` is None, all runs in batch.json are continued.

    Raises RequestError if the request is not possible, there is no batch to continue, the batch in
    the folder has other settings, another process is using the folder, or a file may not be
    overwritten (see `check_output`). Raises DataError,
    NetworkError or OutputError if boundaries, batch.json, `place` or the scheduler cannot be used.
    After KeyboardInterrupt, the same call continues the batch.
    """
    execution, listener = execution or Execution(), listener or ProgressListener()
    where = open_place(place)
    check_scratch(execution.scratch, where)
    runs = [] if request is None else runs_of(request)
    if request is not None:
        check_output(where, runs, force=execution.force)
    held = Path(where.root)
    if not where.local:
        listener.stage(
            f"{where.address} cannot be locked: do not start another batch there while this batch "
            "runs"
        )
        held = scratch_folder(where.address, execution.scratch)  # keeps out other local calls
    with lock_folder(held):
        if request is None:
            table = read_table(where)
            if table is None:
                raise RequestError(
                    f"{where.address} contains no {BATCH_FILE}, so there is no batch to continue."
                )
            runs = list(table.planned().values())
        else:
            table = _table_for(where, shared_settings(request, runs[0]), fresh=execution.fresh)
        return _Batch(where, table, runs, execution, listener).make_runs()


def check_output(where: Place, runs: Sequence[PlannedRun], *, force: bool) -> None:
    """Raise RequestError if batch.json or the joined files would overwrite other files.

    `force` allows files that are neither inputs nor in a run folder. Each run folder is checked
    when its run is made.
    """
    request = runs[0].request
    places = request.source, request.boundaries, request.strata
    reads = (*places, *request.layers, *request.covariates)
    groups = joined_groups(where.read(BATCH_FILE))
    files: dict[tuple[str, ...], bool] = {(BATCH_FILE,): groups is not None}
    for group in dict.fromkeys(run.group for run in runs):
        own = group in (groups or ()) or joined_runs(where, group) is not None
        files |= {(FOLDER, group, name): own for name in NATIONAL_FILES}
    for parts, own in files.items():
        if where.local:
            path = Path(where.root, *parts)
            OutputFiles("batch", [path], reads=reads, own=own, force=force)
        elif not (own or force) and where.read(*parts) is not None:
            raise RequestError(
                f"{where.show(*parts)} exists, and geogp batch did not write it. To overwrite it, "
                "add --force, or choose another place with --out."
            )


def _table_for(where: Place, settings: dict[str, Any], *, fresh: bool) -> BatchTable:
    """Return the table in batch.json, or a new table; raise RequestError if settings differ."""
    begun = joined_groups(where.read(BATCH_FILE)) is not None  # else a file of the user (--force)
    table = read_table(where) if begun and not fresh else None
    if table is None:
        return BatchTable(settings=settings)
    if table.settings != settings:
        odd = sorted(key for key in settings if settings[key] != table.settings[key])
        raise RequestError(
            f"{where.address} contains a batch that differs in {named(odd)}. Choose another "
            "place with --out, or start over with --fresh."
        )
    return table


class _Batch:
    """One call of `make_batch`; the table may also contain runs of other calls."""

    def __init__(
        self,
        place: Place,
        table: BatchTable,
        runs: list[PlannedRun],
        execution: Execution,
        listener: ProgressListener,
    ) -> None:
        self._place, self._table, self._execution = place, table, execution
        self._listener = listener
        for run in runs:
            table.add(run, fresh=execution.fresh)
        self._fresh = uuid4().hex if execution.fresh else None
        self._planned: dict[str, PlannedRun] = table.planned()
        self._rows = {run.name: table.runs[run.name] for run in runs}

    def make_runs(self) -> BatchResult:
        device = next(iter(self._planned.values())).request.device
        self._listener.stage(f"{len(self._rows)} runs at {self._place.address}")
        self._table.write(self._place)
        scratch = scratch_folder(self._place.address, self._execution.scratch)
        groups = dict.fromkeys(self._planned[name].group for name in self._rows)
        try:
            with workers(self._execution, device, scratch) as pool:
                self._run(pool)
                for group in groups:
                    self._join(pool, group)
        finally:
            for row in self._rows.values():
                row.state = "waiting" if row.state == "running" else row.state
            self._table.write(self._place)
        national = {k: v for k, v in self._table.national.items() if k in groups}
        return BatchResult(self._place.address, self._rows, national)

    def _run(self, pool: WorkerPool) -> None:
        """Assign the runs, one at a time to each worker, until no run is left.

        Dask's own queue is not used: it would repeat permanent failures. If a worker died, Dask
        would also count a failure for each run that waits for this worker.
        """
        queue, flying = deque(self._rows), dict[Future[WorkOutcome], str]()
        try:
            while queue or flying:
                while queue and len(flying) < pool.size():
                    name = queue.popleft()
                    flying[pool.executor.submit(make_run, self._order(name))] = name
                for future in wait(flying, timeout=LOOK_S, return_when=FIRST_COMPLETED).done:
                    name = flying.pop(future)
                    if self._ended(name, future):
                        queue.append(name)
                last = {name: pool.last_messages.get(name) for name in flying.values()}
                messages = [
                    f"{name}, {one['process']}: {one['text']}" for name, one in last.items() if one
                ]
                note = "; ".join(messages) or f"{len(queue) + len(flying)} waiting"
                self._listener.progress("runs", self._done, len(self._rows), note)
        finally:
            for future in flying:
                future.cancel()

    @property
    def _done(self) -> int:
        return sum(row.state in {"done", "failed"} for row in self._rows.values())

    def _order(self, name: str) -> WorkOrder:
        row, execution = self._rows[name], self._execution
        row.state, row.attempts = "running", row.attempts + 1
        self._tell(name, "begun" if row.attempts == 1 else f"started again ({row.attempts})")
        run, place = self._planned[name], self._place.address
        return WorkOrder(run, place, execution.scratch, self._fresh, keeps=not row.own)

    def _ended(self, name: str, future: Future[WorkOutcome]) -> bool:
        """Record the result of a run; return whether to repeat the run."""
        row = self._rows[name]
        try:
            self._take(name, row, _result(future))
        except Exception as error:  # noqa: BLE001 - the other runs continue after any error
            row.kind, row.error = kind_of(error), failure_message(error)
            again = row.kind in TRANSIENT and row.attempts <= self._execution.retries
            row.state = "waiting" if again else "failed"
            self._tell(name, f"failed: {row.error}{' geogp tries again.' if again else ''}")
            return again
        peak = "" if row.peak_bytes is None else f", peak {row.peak_bytes / 1e9:.2f} GB"
        self._tell(name, f"{row.how}, {row.seconds or 0:.0f} s{peak}, {row.worker}")
        return False

    def _take(self, name: str, row: BatchRow, outcome: WorkOutcome) -> None:
        """Record a finished run, using its run.json in the batch folder."""
        content = self._place.read(name, RUN_FILE)
        run = run_in(content)
        if content is None or run is None or digest_of(content) != outcome.mark:
            raise OutputError(
                f"{self._place.address} is not the same place for the workers and for this "
                f"machine: a worker finished the run, but the run is not there. Choose a place "
                f"that all machines share."
            )
        row.take(run)
        row.how, row.worker = outcome.how, outcome.worker
        row.cpu_seconds, row.peak_bytes = outcome.cpu_seconds, outcome.peak_bytes
        row.state, row.error, row.kind = "done", None, None

    def _tell(self, name: str, text: str) -> None:
        """Report a change, and write batch.json."""
        self._listener.stage(f"[{self._done}/{len(self._rows)}] {name}: {text}")
        self._save()

    def _save(self) -> None:
        """Write batch.json; a network failure is only reported."""
        try:
            self._table.write(self._place)
        except NetworkError as error:
            self._listener.stage(str(error))

    def _join(self, pool: WorkerPool, group: str) -> None:
        """Join the finished runs of a group, unless they are already joined."""
        members = [run for run in self._planned.values() if run.group == group]
        found = {}
        for run in sorted(members, key=lambda run: run.region):
            done = self._table.runs[run.name].state == "done"
            content = self._place.read(run.name, RUN_FILE) if done else None
            if content is not None:
                found[run.name] = JoinedRun(run.region, digest_of(content))
        if not found:
            return
        missing = [run.name for run in members if run.name not in found]
        row = NationalRow(runs=list(found), missing=missing)
        self._table.national[group] = row
        row.tiles = tiles_joined(self._place, group, found)
        if row.tiles is not None:
            return
        self._listener.stage(f"joining {len(found)} runs: {FOLDER}/{group}")
        self._save()  # then the files of a stopped join count as files of the batch
        scratch, bands = self._execution.scratch, bands_of(members[0].request.target)
        for _ in range(self._execution.retries + 1):
            future = pool.executor.submit(
                join_runs, self._place.address, group, found, bands, scratch
            )
            try:
                made = _result(future)
            except Exception as error:  # noqa: BLE001 - other groups are joined after any error
                row.kind, row.error = kind_of(error), failure_message(error)
                if row.kind not in TRANSIENT:
                    return
            else:
                row.tiles, row.seconds, row.peak_bytes = made.tiles, made.seconds, made.peak_bytes
                row.kind = row.error = None
                return


def _result(future: Future[Any]) -> Any:
    """Return the result of a worker, or raise the worker's error."""
    try:
        return future.result()
    except CancelledError as error:
        raise ConnectionError("the scheduler cancelled the run.") from error

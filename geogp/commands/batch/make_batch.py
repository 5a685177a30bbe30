"""Makes the runs of a batch on workers, records the results, and joins the finished runs."""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec

from geogp.commands.batch.batch_place import Place, open_place
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
from geogp.commands.batch.batch_work import WorkOrder, WorkOutcome, make_run, peak_bytes
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
    bands_of,
    join_runs,
    joined_runs,
    tiles_joined,
)
from geogp.errors import DataError, NetworkError, RequestError, named
from geogp.files import read_json
from geogp.records.record_reading import record_of
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
        failed = [row for row in self.rows.values() if row.state != "done"]
        rows: list[BatchRow | NationalRow] = [*failed, *self.national.values()]
        kinds = {row.kind for row in rows if row.error}
        if not failed and not kinds:
            return 0
        return NetworkError.exit_code if kinds <= TRANSIENT else DataError.exit_code

    def described(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "place": self.place,
            "runs": msgspec.to_builtins(self.rows),
            "national": msgspec.to_builtins(self.national),
            "failed": sorted(name for name, row in self.rows.items() if row.state != "done"),
        }


def make_batch(
    request: BatchRequest | None,
    place: str,
    execution: Execution | None = None,
    *,
    listener: ProgressListener | None = None,
) -> BatchResult:
    """Make all runs of a batch, and join the finished runs.

    `place` is the folder of the batch, which all workers share, or an address to which the finished
    files are copied at the end. A finished run with the same inputs is kept. If a run fails, the
    other runs continue. The file ``batch.json`` records the result of each run. If `request` is
    None, all runs in batch.json are continued.

    Raises RequestError if the request is not possible, there is no batch to continue, the batch in
    the folder has other settings, another process is using the folder, a worker does not share the
    folder, or a file may not be overwritten (see `check_output`). Raises DataError, NetworkError or
    OutputError if boundaries, batch.json, `place` or the scheduler cannot be used. After
    KeyboardInterrupt, the same call continues the batch.
    """
    execution, listener = execution or Execution(), listener or ProgressListener()
    where = open_place(place, execution.scratch)
    runs = [] if request is None else runs_of(request)
    if request is not None:
        check_output(where, runs, force=execution.force)
    if where.files:
        listener.stage(
            f"{where.name} cannot be locked: do not start another batch there while this batch "
            f"runs. Its runs are made in {where.folder}"
        )
    with lock_folder(where.folder, cure=f"choose another folder with {where.option}"):
        if request is None:
            table = read_table(where.folder)
            if table is None:
                raise RequestError(
                    f"{where.folder} contains no {BATCH_FILE}, so there is no batch to continue."
                )
            runs = list(table.planned().values())
        else:
            table = _table_for(where, shared_settings(request, runs[0]), fresh=execution.fresh)
        return _Batch(where, table, runs, execution, listener).make_runs()


def check_output(where: Place, runs: Sequence[PlannedRun], *, force: bool) -> None:
    """Raise RequestError if batch.json or the joined files would overwrite other files.

    `force` allows files that are neither inputs nor in a run folder. Each run folder is checked
    when its run is made. At an address, only files are overwritten that the batch in the folder
    wrote. Raises NetworkError if an address cannot be read.
    """
    request = runs[0].request
    places = request.source, request.boundaries, request.strata
    reads = (*places, *request.layers, *request.covariates)
    groups = joined_groups(where.folder)
    files = {where.folder / BATCH_FILE: groups is not None}
    for group in dict.fromkeys(run.group for run in runs):
        own = group in (groups or ()) or joined_runs(where.folder, group) is not None
        files |= {where.folder / FOLDER / group / name: own for name in NATIONAL_FILES}
    for path, own in files.items():
        OutputFiles("batch", [path], reads=reads, own=own, force=force)
    if not force:
        names = [run.name for run in runs]
        where.check_address(names if groups is not None else [BATCH_FILE, FOLDER, *names])


def _table_for(where: Place, settings: dict[str, Any], *, fresh: bool) -> BatchTable:
    """Return the table in batch.json, or a new table; raise RequestError if settings differ."""
    begun = joined_groups(where.folder) is not None  # else a file of the user (--force)
    table = read_table(where.folder) if begun and not fresh else None
    if table is None:
        return BatchTable(settings=settings)
    if table.settings != settings:
        odd = sorted(key for key in settings if settings[key] != table.settings[key])
        raise RequestError(
            f"{where.name} contains a batch that differs in {named(odd)}. Choose another "
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
        self._folder, self._listener = place.folder, listener
        for run in runs:
            table.add(run, fresh=execution.fresh)
        self._call = uuid4().hex if execution.fresh else None
        self._planned: dict[str, PlannedRun] = table.planned()
        self._rows = {run.name: table.runs[run.name] for run in runs}

    def make_runs(self) -> BatchResult:
        device = next(iter(self._planned.values())).request.device
        self._listener.stage(f"{len(self._rows)} runs at {self._place.name}")
        self._table.write(self._folder)
        self._place.upload(BATCH_FILE)  # raises NetworkError now if the address cannot be written
        groups = dict.fromkeys(self._planned[name].group for name in self._rows)
        try:
            with workers(self._execution, device, self._place) as pool:
                self._run(pool)
            for group in groups:
                self._join(group)
        finally:
            for row in self._rows.values():
                row.state = "waiting" if row.state == "running" else row.state
            self._table.write(self._folder)
        national = {k: v for k, v in self._table.national.items() if k in groups}
        if self._place.files:
            self._upload(national)
        return BatchResult(self._place.name, self._rows, national)

    def _upload(self, national: dict[str, NationalRow]) -> None:
        """Copy the finished runs, the joined files and batch.json to the address."""
        for name in filter(self._is_finished, self._planned):
            self._listener.stage(f"copying {name} to {self._place.name}")
            self._place.upload_run(name)
        joined = [group for group, row in national.items() if not row.error]
        files = [f"{FOLDER}/{group}/{file}" for group in joined for file in NATIONAL_FILES]
        self._place.upload(*files, BATCH_FILE)

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
                    f"{name}, {message['process']}: {message['text']}"
                    for name, message in last.items()
                    if message
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
        row = self._rows[name]
        row.state, row.attempts = "running", row.attempts + 1
        self._tell(name, "begun" if row.attempts == 1 else f"started again ({row.attempts})")
        return WorkOrder(self._planned[name], self._folder, self._call, keeps=not row.own)

    def _ended(self, name: str, future: Future[WorkOutcome]) -> bool:
        """Record the result of a run; return whether to repeat the run."""
        row = self._rows[name]
        try:
            outcome = future.result()
            row.take(record_of(read_json(self._folder / name / RUN_FILE)))
            row.how, row.worker = outcome.how, outcome.worker
            row.cpu_seconds, row.peak_bytes = outcome.cpu_seconds, outcome.peak_bytes
            row.state, row.error, row.kind = "done", None, None
        except Exception as error:  # noqa: BLE001 - the other runs continue after any error
            row.kind, row.error = kind_of(error), failure_message(error)
            again = row.kind in TRANSIENT and row.attempts <= self._execution.retries
            row.state = "waiting" if again else "failed"
            self._tell(name, f"failed: {row.error}{' geogp tries again.' if again else ''}")
            return again
        peak = "" if row.peak_bytes is None else f", peak {row.peak_bytes / 1e9:.2f} GB"
        self._tell(name, f"{row.how}, {row.seconds or 0:.0f} s{peak}, {row.worker}")
        return False

    def _tell(self, name: str, text: str) -> None:
        """Report a change, and write batch.json."""
        self._listener.stage(f"[{self._done}/{len(self._rows)}] {name}: {text}")
        self._table.write(self._folder)

    def _is_finished(self, name: str) -> bool:
        """Return whether a run of this or an earlier call is done, and still in its folder."""
        row, file = self._table.runs[name], self._folder / name / RUN_FILE
        return row.state == "done" and file.is_file()

    def _join(self, group: str) -> None:
        """Join the finished runs of a group on this machine, unless they are already joined."""
        members = [run for run in self._planned.values() if run.group == group]
        regions = {
            run.name: run.region
            for run in sorted(members, key=lambda run: run.region)
            if self._is_finished(run.name)
        }
        if not regions:
            return
        missing = [run.name for run in members if run.name not in regions]
        row = NationalRow(runs=list(regions), missing=missing)
        self._table.national[group] = row
        row.tiles = tiles_joined(self._folder, group, regions)
        if row.tiles is not None:
            return
        self._listener.stage(f"joining {len(regions)} runs: {FOLDER}/{group}")
        self._table.write(self._folder)  # then files of a stopped join are those of the batch
        start = time.monotonic()
        try:
            join_runs(self._folder, group, regions, bands_of(members[0].request.target))
        except Exception as error:  # noqa: BLE001 - other groups are joined after any error
            row.kind, row.error = kind_of(error), failure_message(error)
        else:
            row.tiles = tiles_joined(self._folder, group, regions)
            row.seconds, row.peak_bytes = time.monotonic() - start, peak_bytes()

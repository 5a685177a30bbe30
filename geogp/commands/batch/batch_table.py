"""The file batch.json in the batch folder: the requested runs, their settings and results.

Whether a run is done depends on its run.json, not on this file.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from geogp import __version__
from geogp.commands.batch.batch_plan import MAP_SETTINGS, VARIED, PlannedRun, check_apart, run_of
from geogp.errors import DataError, GeogpError
from geogp.files import write_bytes
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import RunRecord, given

BATCH_FILE = "batch.json"

_FORMER = ("assets", "region_file", "region_name")
"""Settings in the batch.json of earlier versions of geogp, which are ignored."""

_LATER = ("crs",)
"""Settings that the batch.json of earlier versions lacks."""


class BatchRow(Struct, kw_only=True):
    """One run of a batch: what the run maps, and the latest result.

    `how` is ``made``, or ``kept`` if the run was already complete. Scores are for all test rows, by
    split: numbers have a coverage, and classes an accuracy. For a failed run, `error` is the
    message and `kind` the kind of failure (see `kind_of`). If `own` is true, the batch may replace
    a finished run in the folder: an earlier call made or kept it, or ``--fresh`` was given.
    """

    region: str
    service: str
    target: str
    quarters: str | None
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    how: str | None = None
    attempts: int = 0
    log_score: dict[str, float | None] = {}
    coverage_95: dict[str, float | None] = {}
    accuracy: dict[str, float | None] = {}
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    worker: str | None = None
    error: str | None = None
    kind: str | None = None
    warnings: list[str] = []
    own: bool = False

    def take(self, run: RunRecord) -> None:
        """Copy scores, seconds and warnings from the run.json of a finished run."""
        scores = {split: strata["all"] for split, strata in run.metrics.items()}
        self.log_score = {split: score.nll for split, score in scores.items()}
        for name in ("coverage_95", "accuracy"):
            values = {
                k: getattr(score, name) for k, score in scores.items() if hasattr(score, name)
            }
            setattr(self, name, values)
        self.seconds = sum(given(run.seconds, {}).values())
        self.warnings = given(run.warnings, [])


class NationalRow(Struct, kw_only=True):
    """The joined files (table, raster, page) for one service, target and set of quarters.

    `missing` names the runs that are not done; `tiles` is the number of rows of the joined table.
    """

    runs: list[str]
    missing: list[str]
    tiles: int | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    error: str | None = None
    kind: str | None = None


class BatchTable(Struct, kw_only=True):
    """The content of batch.json: the settings, the runs by name, and the joined files by group."""

    format: Literal["geogp-batch-1"] = "geogp-batch-1"
    geogp: str = __version__
    settings: dict[str, Any]
    runs: dict[str, BatchRow] = {}
    national: dict[str, NationalRow] = {}

    def add(self, run: PlannedRun, *, fresh: bool) -> None:
        """Add a run as waiting; replace an earlier entry of the same run."""
        values = {name: getattr(run.request, name) for name in VARIED}
        before = self.runs.get(run.name)
        own = fresh or (before is not None and (before.own or before.state == "done"))
        self.runs[run.name] = BatchRow(**values, own=own)

    def planned(self) -> dict[str, PlannedRun]:
        """Return the runs by folder name.

        Raises GeogpError or msgspec.ValidationError if an entry of a run is not valid.
        """
        if set(self.settings) != set(MAP_SETTINGS) or not self.runs:
            raise DataError("expected runs and settings of this version of geogp.")
        rows = ({name: getattr(row, name) for name in VARIED} for row in self.runs.values())
        runs = [run_of(msgspec.convert(self.settings | row, MapSettings)) for row in rows]
        check_apart(runs)
        return {run.name: run for run in runs}

    def write(self, folder: Path) -> None:
        """Write batch.json; raise OutputError if it cannot be written."""
        content = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_bytes(folder / BATCH_FILE, content + b"\n")


class _BatchMark(Struct):
    """The entries of batch.json in all versions of geogp."""

    format: str
    national: dict[str, Any] = {}


def joined_groups(folder: Path) -> list[str] | None:
    """Return the groups with joined files that batch.json names; None if no batch wrote it."""
    try:
        mark = msgspec.json.decode((folder / BATCH_FILE).read_bytes(), type=_BatchMark)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return [*mark.national] if mark.format.startswith("geogp-batch-") else None


def read_table(folder: Path) -> BatchTable | None:
    """Return the content of batch.json, or None without this file; raise DataError if damaged."""
    try:
        table = msgspec.json.decode((folder / BATCH_FILE).read_bytes(), type=BatchTable)
        for name in _FORMER:
            table.settings.pop(name, None)
        for name in _LATER:
            table.settings.setdefault(name, None)
        names = table.planned()
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError, GeogpError, RecursionError) as error:
        raise DataError(
            f"{folder / BATCH_FILE} is damaged ({error}). Delete this file; geogp still "
            "recognises the finished runs by their content."
        ) from error
    table.geogp = __version__
    table.runs = dict(zip(names, table.runs.values(), strict=True))
    return table

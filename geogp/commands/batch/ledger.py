"""What became of each run of a batch: batch.json at the place."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from geogp import __version__
from geogp.commands.batch.batch_place import Place
from geogp.commands.batch.batch_plan import (
    VARIED,
    PlannedRun,
    check_apart,
    plain_fields,
    request_of,
    run_of,
)
from geogp.errors import DataError

LEDGER_FILE = "batch.json"
FORMAT = "geogp-batch-1"

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
STATES = (WAITING, RUNNING, DONE, FAILED)

_FORMER = ("assets",)
"""Settings that earlier versions wrote, and that no run has any more."""


@dataclass
class LedgerEntry:
    """One run of a batch.

    Attributes
    ----------
    run
        What it is.
    state
        One of `STATES`.
    attempts
        How often it was begun in the last call that did.
    fingerprint
        What it was made from; see `fingerprints.py`.
    mark
        SHA-256 of its run.json, of a run that is done.
    how
        ``made`` or ``kept``, in the last call.
    seconds, cpu_seconds, peak_bytes, worker
        As the worker told them.
    error, kind
        Of a failed run: the message, and one of the kinds of `kind_of`.
    warnings
        Of the run.
    """

    run: PlannedRun
    state: str = WAITING
    attempts: int = 0
    fingerprint: str | None = None
    mark: str | None = None
    how: str | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    worker: str | None = None
    error: str | None = None
    kind: str | None = None
    warnings: list[str] = field(default_factory=list)

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "run"}
        request = plain_fields(self.run.request)
        return {**{name: request[name] for name in VARIED}, **told}


@dataclass
class National:
    """What was joined from the runs of one service, target and set of quarters.

    Attributes
    ----------
    digest
        Hash of the runs it was made from.
    runs, missing
        Names of those runs, and of those of the batch that are not done.
    tiles, files, seconds, peak_bytes
        Rows of the table, files, and what it took.
    error
        Why it could not be made.
    """

    digest: str
    runs: list[str]
    missing: list[str]
    tiles: int | None = None
    files: list[str] = field(default_factory=list)
    seconds: float | None = None
    peak_bytes: int | None = None
    error: str | None = None
    kind: str | None = None


@dataclass
class Ledger:
    """The runs of a batch by name, and what was joined from them by group."""

    settings: dict[str, Any]
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    national: dict[str, National] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "format": FORMAT,
            "geogp": __version__,
            "settings": self.settings,
            "runs": {name: entry.described() for name, entry in self.entries.items()},
            "national": {name: asdict(one) for name, one in self.national.items()},
        }


def read_ledger(place: Place) -> Ledger | None:
    """Return what batch.json of a place says; None where there is none.

    Names of folders are made anew from the requests: none is taken from the file.

    Raises
    ------
    DataError
        The file is damaged, or no batch.json.
    NetworkError, OutputError
        The place cannot be read.
    """
    content = place.read(LEDGER_FILE)
    if content is None:
        return None
    try:
        plain = json.loads(content)
        if plain["format"] != FORMAT:
            raise DataError(f"expected the format {FORMAT}, found {plain['format']!r}.")
        held = plain["settings"].items()
        ledger = Ledger({name: value for name, value in held if name not in _FORMER})
        for told in plain["runs"].values():
            entry = _entry(told, ledger.settings)
            ledger.entries[entry.run.name] = entry
        ledger.national = {
            str(name): National(**_typed(one, National)) for name, one in plain["national"].items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{place.show(LEDGER_FILE)} is damaged ({error}). Delete it: finished runs are found "
            "by what they hold."
        ) from error
    check_apart([entry.run for entry in ledger.entries.values()])
    return ledger


def write_ledger(place: Place, ledger: Ledger) -> None:
    """Write batch.json.

    Raises
    ------
    OutputError, NetworkError
        It cannot be written.
    """
    place.write((json.dumps(ledger.described(), indent=1) + "\n").encode(), LEDGER_FILE)


def _entry(told: Mapping[str, Any], settings: Mapping[str, Any]) -> LedgerEntry:
    request = {**settings, **{name: told[name] for name in VARIED}}
    entry = LedgerEntry(
        run_of(request_of(request)), **_typed(told, LedgerEntry, leave=("run", *VARIED))
    )
    if entry.state not in STATES:
        raise DataError(f"expected a state of {', '.join(STATES)}, found {entry.state!r}.")
    return entry


def _typed(told: Mapping[str, Any], kind: type, leave: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass among what was told."""
    known = {one.name for one in fields(kind)} - set(leave)
    return {name: value for name, value in told.items() if name in known}

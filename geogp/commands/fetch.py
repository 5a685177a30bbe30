"""Bring tiles and boundaries into the cache before they are needed."""

from dataclasses import dataclass
from typing import Any

from geogp.commands.data_requests import FetchRequest
from geogp.errors import DataError, RequestError
from geogp.geodata.store.fetch_quarters import fetch_quarters
from geogp.geodata.store.sources import Folder, LocalFile, open_source
from geogp.geodata.tiles.ookla import all_quarters
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.runs.progress import ProgressListener


@dataclass(frozen=True)
class FetchedQuarter:
    """A quarter in the cache.

    `fresh` is true if this call read the quarter. `whole` is true if the rows of all regions were
    read, because the row groups do not separate regions. geogp has read `rows` of the
    `rows_in_source` rows, `groups_read` of the `groups_in_source` row groups, and `bytes_read`
    bytes over the network. `bytes_stored` is the size of the file at the source, `source` and
    `etag` identify this file, and `date` is when geogp read it.
    """

    quarter: str
    fresh: bool
    whole: bool
    rows: int
    rows_in_source: int
    groups_read: int
    groups_in_source: int
    bytes_read: int
    bytes_stored: int
    source: str
    etag: str | None
    date: str


@dataclass(frozen=True)
class FetchResult:
    """The content of the cache for a region and service.

    The cache has the quarters in `quarters`. The source lacks the quarters in `missing`, and did
    not answer for the quarters in `unreached`.
    """

    region: str
    service: str
    quarters: tuple[FetchedQuarter, ...]
    missing: tuple[str, ...]
    unreached: tuple[str, ...]
    warnings: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {**vars(self), "quarters": [vars(one) for one in self.quarters]}


def fetch(request: FetchRequest, listener: ProgressListener | None = None) -> FetchResult:
    """Bring a region's tiles and boundaries into the cache; the same call continues after a stop.

    If the source does not answer, the cached quarters of a range are enough; the other quarters are
    in `unreached`. Raises RequestError if the region or service is unknown, or the source is a
    local folder, which needs no cache. Raises DataError if a quarter that is listed alone is
    missing, a range has no data, or a file is damaged. Raises NetworkError if a remote source
    fails; complete quarters stay in the cache. Raises OutputError if the cache cannot be written.
    """
    listener = listener or ProgressListener()
    source = open_source(request.source)
    if isinstance(source, Folder):
        raise RequestError(
            f"{source.where} is a folder on this machine: geogp map reads this folder directly, so "
            "there is nothing to download."
        )
    wanted = parse_quarters(request.quarters) if request.quarters else None
    listener.stage("downloading boundaries and tiles")
    found = request.place.read()
    for text in found.warnings:
        listener.warn(text)
    region = found.region
    quarters = wanted.all if wanted else all_quarters()
    held = fetch_quarters(
        source,
        region,
        request.service,
        quarters,
        refresh=request.refresh,
        progress=lambda done, total, note: listener.progress("tiles", done, total, note),
    )
    held.check_named(wanted.named if wanted else (), source.where, request.service)
    if not held.files:
        period = ", ".join(map(quarter_label, quarters[:1] + quarters[-1:]))
        raise DataError(
            f"{source.where} has no {request.service} tiles for {period} or any quarter between. "
            "Choose other quarters."
        )
    warnings = tuple(held.warnings(source.where))
    for text in warnings:
        listener.warn(text)
    return FetchResult(
        region.code,
        request.service,
        tuple(_fetched(quarter, one) for quarter, one in held.files.items()),
        tuple(map(quarter_label, held.missing)),
        tuple(map(quarter_label, held.unreached)),
        warnings,
    )


def _fetched(quarter: int, held: LocalFile) -> FetchedQuarter:
    note = held.note
    assert note is not None
    return FetchedQuarter(
        quarter_label(quarter),
        held.fresh,
        note.ranges is None,
        note.rows,
        note.rows_in_source,
        note.groups_read,
        note.groups_in_source,
        note.bytes_read,
        note.bytes_stored,
        note.source,
        note.etag,
        note.date,
    )

"""Tiles and boundaries into the cache, before they are needed."""

from dataclasses import dataclass
from typing import Any

from geogp.commands.data_requests import FetchRequest
from geogp.errors import DataError, RequestError
from geogp.geodata.store.fetch_quarters import hold_quarters
from geogp.geodata.store.sources import Folder, Held, open_source
from geogp.geodata.tiles.ookla import all_quarters
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.runs.progress import ProgressListener


@dataclass(frozen=True)
class FetchedQuarter:
    """A quarter in the cache.

    Attributes
    ----------
    quarter
        Its label.
    fresh
        Whether it was read just now.
    whole
        Whether the rows of all regions were read, as the row groups do not tell them apart.
    rows, rows_in_source
        Rows kept, of how many.
    groups_read, groups_in_source
        Row groups read, of how many.
    bytes_read, bytes_stored
        Bytes that came over the network for it, and size of the file at the source.
    source, etag, date
        The file at the source, and when it was read.
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
    """What is in the cache for a region and service, and what is not.

    Attributes
    ----------
    region, service
        As asked for.
    quarters
        Those in the cache.
    missing
        Quarters that the source has not.
    unreached
        Quarters that were not fetched, as nothing answered at the source.
    warnings
        What the user should know.
    """

    region: str
    service: str
    quarters: tuple[FetchedQuarter, ...]
    missing: tuple[str, ...]
    unreached: tuple[str, ...]
    warnings: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**vars(self), "quarters": [vars(one) for one in self.quarters]}


def fetch(request: FetchRequest, listener: ProgressListener | None = None) -> FetchResult:
    """Bring a region's tiles and boundaries into the cache; the same call goes on where it stopped.

    Where nothing answers, quarters of a range that are in the cache are enough; the others are
    the result's `unreached`.

    Raises
    ------
    RequestError
        Unknown region or service, or a source that is a folder, which is read in place.
    DataError
        A quarter named singly is missing, a range holds none, or a file is damaged.
    NetworkError
        A remote source failed; quarters that are complete stay in the cache.
    OutputError
        The cache cannot be written.
    """
    listener = listener or ProgressListener()
    source = open_source(request.source)
    if isinstance(source, Folder):
        raise RequestError(
            f"{source.where} is a folder on this machine: geogp map reads it in place, and there "
            "is nothing to fetch."
        )
    wanted = parse_quarters(request.quarters) if request.quarters else None
    listener.stage("fetching boundaries and tiles")
    found = request.place.read()
    for text in found.warnings:
        listener.warn(text)
    region = found.region
    quarters = wanted.all if wanted else all_quarters()
    held = hold_quarters(
        source,
        region,
        request.service,
        quarters,
        refresh=request.refresh,
        progress=lambda done, total, note: listener.progress("tiles", done, total, note),
    )
    held.check_named(wanted.named if wanted else (), source.where, request.service)
    if not held.files:
        told = ", ".join(map(quarter_label, quarters[:1] + quarters[-1:]))
        raise DataError(
            f"{source.where} has no {request.service} tiles for {told}, nor between. Ask for "
            "other quarters."
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


def _fetched(quarter: int, held: Held) -> FetchedQuarter:
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

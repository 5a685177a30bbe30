"""Tiles and boundaries into the cache, before they are needed."""

from dataclasses import dataclass
from typing import Any

from geogp.errors import DataError, RequestError
from geogp.geodata.holding import hold_quarters
from geogp.geodata.observations import SERVICES
from geogp.geodata.ookla import PUBLIC_SOURCE, all_quarters
from geogp.geodata.quarters import parse_quarters, quarter_label
from geogp.geodata.sources import Folder, open_source
from geogp.region_choice import RegionChoice
from geogp.watcher import Watcher


@dataclass(frozen=True)
class FetchRequest:
    """What to bring into the cache.

    Attributes
    ----------
    place
        The region, and where its boundaries are.
    source
        Where Ookla's files are.
    service, quarters
        As `geogp.settings.MapRequest` has them.
    refresh
        Take new files where the source's changed since they were read.
    """

    place: RegionChoice
    source: str = PUBLIC_SOURCE
    service: str = "mobile"
    quarters: str | None = None
    refresh: bool = False

    def __post_init__(self) -> None:
        if self.service not in SERVICES:
            raise RequestError(
                f"unknown service {self.service!r}; choose one of {', '.join(SERVICES)}."
            )


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
    """What is in the cache for a region and service, and what the source has not."""

    region: str
    service: str
    quarters: tuple[FetchedQuarter, ...]
    missing: tuple[str, ...]
    warnings: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**vars(self), "quarters": [vars(one) for one in self.quarters]}


def fetch(request: FetchRequest, watcher: Watcher | None = None) -> FetchResult:
    """Bring a region's tiles and boundaries into the cache; the same call goes on where it stopped.

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
    watcher = watcher or Watcher()
    source = open_source(request.source)
    if isinstance(source, Folder):
        raise RequestError(
            f"{source.where} is a folder on this machine: geogp map reads it in place, and there "
            "is nothing to fetch."
        )
    wanted = parse_quarters(request.quarters) if request.quarters else None
    watcher.stage("fetching boundaries and tiles")
    found = request.place.read()
    for text in found.warnings:
        watcher.warn(text)
    region = found.region
    quarters = wanted.all if wanted else all_quarters()
    held = hold_quarters(
        source,
        region,
        request.service,
        quarters,
        refresh=request.refresh,
        progress=lambda done, total, note: watcher.progress("tiles", done, total, note),
    )
    missing = tuple(q for q in quarters if q not in held.files and q not in held.unreached)
    named = set(wanted.named) if wanted else set()
    for quarter, error in held.unreached.items():
        if quarter in named:
            raise error
    absent = sorted(named & set(missing))
    if absent or not held.files:
        told = ", ".join(map(quarter_label, absent or quarters[:1] + quarters[-1:]))
        raise DataError(
            f"{source.where} has no {request.service} tiles for {told}. Leave the quarter out, or "
            "give a range, in which gaps are allowed."
        )
    warnings = tuple(held.warnings(source.where))
    for text in warnings:
        watcher.warn(text)
    fetched = []
    for quarter, one in held.files.items():
        assert one.note is not None
        note = one.note
        fetched.append(
            FetchedQuarter(
                quarter_label(quarter),
                one.fresh,
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
        )
    labels = tuple(map(quarter_label, missing))
    return FetchResult(region.code, request.service, tuple(fetched), labels, warnings)

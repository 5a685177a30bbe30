"""Downloads the tiles and boundaries of a region into the cache."""

from typing import Any

from geogp.commands.data_requests import FetchRequest
from geogp.errors import DataError, RequestError
from geogp.geodata.store.fetch_quarters import fetch_quarters
from geogp.geodata.store.sources import Folder, LocalFile, open_source
from geogp.geodata.tiles.ookla import all_quarters
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.runs.progress import ProgressListener

_FROM_NOTE = (
    *("rows", "rows_in_source", "groups_read", "groups_in_source", "bytes_read", "bytes_stored"),
    *("source", "etag", "date"),
)
"""Facts about the source file of a quarter, and about the part of the file that was read."""


def fetch(request: FetchRequest, listener: ProgressListener | None = None) -> dict[str, Any]:
    """Download the tiles and boundaries of a region; the same call continues a stopped download.

    Returns `region`, `service`, `warnings` and three lists: `quarters` in the cache, `missing`
    quarters that the source lacks, and `unreached` quarters for which the source did not answer.
    For a quarter, `fresh` tells whether this call downloaded rows. `whole` is true if the file
    does not separate regions, so that geogp had to read the rows of all regions.

    Raises RequestError if the region or service is unknown, or the source is a local folder, which
    needs no cache. Raises DataError if a quarter that is requested by name is missing, a range of
    quarters has no data, or a file is damaged. Raises NetworkError if a remote source fails;
    complete quarters stay in the cache. Raises OutputError if the cache cannot be written.
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
    boundaries = request.place.read()
    for text in boundaries.warnings:
        listener.warn(text)
    quarters = wanted.all if wanted else all_quarters()
    fetched = fetch_quarters(
        source,
        boundaries.region,
        request.service,
        quarters,
        refresh=request.refresh,
        progress=lambda done, total, note: listener.progress("tiles", done, total, note),
    )
    fetched.check_named(wanted.named if wanted else (), source.where, request.service)
    if not fetched.files:
        period = ", ".join(map(quarter_label, quarters[:1] + quarters[-1:]))
        raise DataError(
            f"{source.where} has no {request.service} tiles for {period} or any quarter between. "
            "Choose other quarters."
        )
    warnings = fetched.warnings(source.where)
    for text in warnings:
        listener.warn(text)
    return {
        "region": boundaries.region.code,
        "service": request.service,
        "quarters": [_quarter(quarter, file) for quarter, file in fetched.files.items()],
        "missing": list(map(quarter_label, fetched.missing)),
        "unreached": list(map(quarter_label, fetched.unreached)),
        "warnings": warnings,
    }


def _quarter(quarter: int, file: LocalFile) -> dict[str, Any]:
    note = file.note
    assert note is not None
    facts = {name: getattr(note, name) for name in _FROM_NOTE}
    return {
        "quarter": quarter_label(quarter),
        "fresh": file.fresh,
        "whole": note.ranges is None,
        **facts,
    }

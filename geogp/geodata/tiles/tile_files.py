"""Names, columns and row groups of Ookla's Parquet files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geogp.errors import DataError, named
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_files import DamagedParquetError, RowGroup

QUADKEY = "quadkey"

VALUES = ("avg_d_kbps", "avg_u_kbps", "avg_lat_ms", "tests", "devices")
"""The columns with numbers that geogp reads."""

GEOMETRY = "tile"
"""The column with the outlines of tiles; geogp does not read it, because quadkeys suffice."""

SIMULATION_FILE = "simulation.json"  # a source with this file contains simulated tiles

BATCH = 1 << 17
"""Number of quadkeys converted from text to codes at once; text takes ten times the memory."""

_IN_PLACE = "Repair the file or leave its quarter out."

_AT_SOURCE = (
    "Leave its quarter out until the source has a better file; then download the better file with "
    "geogp fetch --refresh."
)

Ranges = NDArray[np.int64]
"""Ranges of quadkey codes, (n, 2): the first and the last code, both included."""


def tile_file(service: str, quarter: int) -> str:
    """Return the path of a quarter's file in Ookla's bucket."""
    year, month = quarter // 4, 3 * (quarter % 4) + 1
    return (
        f"parquet/performance/type={service}/year={year}/quarter={quarter % 4 + 1}/"
        f"{year}-{month:02d}-01_performance_{service}_tiles.parquet"
    )


def groups_touching(groups: Sequence[RowGroup], ranges: Ranges) -> list[int]:
    """Return the row groups that may contain quadkeys in the ranges.

    A row group is also returned if its least and greatest quadkey are unknown. Raises DataError if
    the least or greatest value of a group is not a quadkey.
    """
    chosen = []
    for number, group in enumerate(groups):
        if group.ends is not None:
            least, greatest = quadkeys.parse_quadkeys(list(group.ends)).astype(np.int64)
            if not ((ranges[:, 0] <= greatest) & (ranges[:, 1] >= least)).any():
                continue
        chosen.append(number)
    return chosen


def in_ranges(codes: NDArray[np.uint64], ranges: Ranges) -> NDArray[np.bool_]:
    """Return whether each code lies in one of the ranges, which are sorted and disjoint."""
    signed = codes.astype(np.int64)
    place = np.searchsorted(ranges[:, 0], signed, side="right") - 1
    return np.asarray((place >= 0) & (signed <= ranges[np.maximum(place, 0), 1]), np.bool_)


def check_schema(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise DataError if one of the columns `names` is missing, repeated, or of a wrong type."""
    faults = []
    for name in names:
        times = schema.names.count(name)
        if times != 1:
            what = "a column" if times == 0 else "one column"
            faults.append(f"expected {what} {name}, found {named(schema.names)}.")
            continue
        kind = schema.field(name).type
        if name == QUADKEY:
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                faults.append(f"expected strings in column quadkey, found {kind}.")
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            faults.append(f"expected numbers in column {name}, found {kind}.")
    refuse(faults)


def quadkey_codes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the codes of a column of quadkeys; raise DataError unless all have zoom level 16."""
    if column.null_count:
        raise DataError(empty_values(QUADKEY, column.null_count))
    batches = (column.slice(start, BATCH) for start in range(0, len(column), BATCH))
    try:
        parts = [quadkeys.parse_quadkeys(batch.to_numpy()) for batch in batches]
    except DataError:
        return quadkeys.parse_quadkeys(column.to_numpy())  # its message counts all wrong quadkeys
    return np.concatenate([np.zeros(0, np.uint64), *parts])


def empty_values(name: str, count: int) -> str:
    """Return the message about empty values in a column."""
    return f"expected no empty values in {name}, found {count}."


def refuse(faults: Sequence[str]) -> None:
    """Raise DataError with the list of faults, if there are any."""
    if faults:
        raise DataError("\n  - ".join(faults))


@contextmanager
def blaming(where: Path | str, *, at_source: bool) -> Iterator[None]:
    """Add the file's name and advice to errors about its content, and raise them as DataError."""
    cure = _AT_SOURCE if at_source else _IN_PLACE
    try:
        yield
    except DamagedParquetError as error:
        raise DataError(f"{where} is not a complete Parquet file ({error}). {cure}") from error
    except DataError as error:
        raise DataError(f"{where} cannot be used:\n  - {error}\n{cure}") from error

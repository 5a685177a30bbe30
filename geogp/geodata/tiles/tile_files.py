"""What Ookla's Parquet files have in common, wherever they are: names, columns, row groups."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_files import RowGroup

QUADKEY = "quadkey"

VALUES = ("avg_d_kbps", "avg_u_kbps", "avg_lat_ms", "tests", "devices")
"""The numbers of a tile that geogp has a use for."""

GEOMETRY = "tile"
"""The outline of a tile as text, which follows from its quadkey and is never read."""

SIMULATION_FILE = "simulation.json"
"""A source that holds this file holds simulated tiles."""

BATCH = 1 << 17
"""Quadkeys that are turned from text into numbers at once: as text they take ten times the room."""

IN_PLACE = "Repair the file or leave its quarter out."
"""What to do about faults of a file on this machine."""

AT_SOURCE = (
    "Leave its quarter out until the source has a better file; then download it with geogp fetch "
    "--refresh."
)
"""What to do about faults of a file at its source."""

Ranges = NDArray[np.int64]
"""First and last codes of quadkeys, both included, (n, 2)."""


def tile_file(service: str, quarter: int) -> str:
    """Return the name of a quarter's file in the bucket's layout."""
    year, month = quarter // 4, 3 * (quarter % 4) + 1
    return (
        f"parquet/performance/type={service}/year={year}/quarter={quarter % 4 + 1}/"
        f"{year}-{month:02d}-01_performance_{service}_tiles.parquet"
    )


def groups_touching(groups: Sequence[RowGroup], ranges: Ranges) -> list[int]:
    """Choose row groups by the least and greatest quadkey; one that does not say them is chosen.

    Raises
    ------
    DataError
        What it says is no quadkey.
    """
    chosen = []
    for number, group in enumerate(groups):
        if group.ends is not None:
            least, greatest = quadkeys.parse_quadkeys(list(group.ends)).astype(np.int64)
            if not ((ranges[:, 0] <= greatest) & (ranges[:, 1] >= least)).any():
                continue
        chosen.append(number)
    return chosen


def schema_faults(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """List what is wrong with the columns of those names."""
    faults = []
    for name in names:
        times = schema.names.count(name)
        if times != 1:
            what = "a column" if times == 0 else "one column"
            faults.append(f"expected {what} {name}, found {', '.join(schema.names)}.")
            continue
        kind = schema.field(name).type
        if name == QUADKEY:
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                faults.append(f"expected strings in column quadkey, found {kind}.")
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            faults.append(f"expected numbers in column {name}, found {kind}.")
    return faults


def quadkey_codes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the codes of a column of quadkeys.

    Raises
    ------
    DataError
        One is empty, no text, or no quadkey of zoom 16.
    """
    if column.null_count:
        raise DataError(empty_values(QUADKEY, column.null_count))
    batches = (column.slice(start, BATCH) for start in range(0, len(column), BATCH))
    try:
        parts = [quadkeys.parse_quadkeys(batch.to_numpy()) for batch in batches]
    except DataError:
        return quadkeys.parse_quadkeys(column.to_numpy())  # to count all that are wrong
    return np.concatenate([np.zeros(0, np.uint64), *parts])


def empty_values(name: str, count: int) -> str:
    """Return the words for values that are missing."""
    return f"expected no empty values in {name}, found {count}."


def faulty(where: Path | str, faults: Sequence[str], cure: str = IN_PLACE) -> DataError:
    """Return the error that lists the faults of a file."""
    lines = "".join(f"\n  - {fault}" for fault in faults)
    return DataError(f"{where} cannot be used:{lines}\n{cure}")

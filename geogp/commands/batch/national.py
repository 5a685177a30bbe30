"""One table, one raster and one page from many finished runs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset, parquet

from geogp.commands.batch.mosaic import damaged, join_rasters
from geogp.commands.gallery import make_gallery
from geogp.errors import DataError
from geogp.files import sha256_of, write_into
from geogp.maps.target_quantities import quantity_of
from geogp.runs.run_names import RUN_FILE

FOLDER = "national"
"""Folder of the joined files: table, raster and page."""

TABLE_FILE, RASTER_FILE, PAGE_FILE = "tiles.parquet", "map.tif", "index.html"

NATIONAL_FILES = (RASTER_FILE, PAGE_FILE, TABLE_FILE)
"""Files in the order of writing; the table is last, because it records which runs were joined."""

ROWS = 65_536
"""Number of rows in a row group of the table, and largest number of rows in memory."""

_ODD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that can occur if metadata lack the form in which geogp writes them."""


def bands_of(target: str) -> tuple[str, ...]:
    """Return the names of a run's rasters that become bands of the joined raster."""
    quantity = quantity_of(target)
    if quantity.classes:
        return quantity.suffix, *quantity.at_least, "p_most_probable"
    middle = "expected" if quantity.counted else "median"
    return tuple(f"{name}_{quantity.suffix}" for name in (middle, "lower", "upper"))


def join_runs(place: Path, group: str, regions: dict[str, str], bands: Sequence[str]) -> None:
    """Join finished runs of one service, target and set of quarters.

    `regions` has the region of each run, by name. ``tiles.parquet`` holds all tiles of all runs
    (see `join_tables`); ``map.tif`` is one raster of `bands` (see `mosaic.py`); ``index.html`` is
    the page of `gallery.py`. Raises DataError if a file of a run is damaged, and OutputError if a
    file cannot be written.
    """
    runs = [place / name for name in regions]

    def write(folder: Path) -> None:
        join_rasters(runs, bands, folder / RASTER_FILE)
        make_gallery(runs, out=folder, files=(RASTER_FILE, TABLE_FILE))
        join_tables(place, regions, folder / TABLE_FILE)

    write_into(place / FOLDER / group, NATIONAL_FILES, write)


def tiles_joined(place: Path, group: str, names: Iterable[str]) -> int | None:
    """Return the number of tiles of the joined table; None if it is not of these runs."""
    joined = joined_runs(place, group)
    if joined is None or joined[0] != _marks(place, names):
        return None
    whole = all((place / FOLDER / group / file).is_file() for file in NATIONAL_FILES)
    return joined[1] if whole else None


def joined_runs(place: Path, group: str) -> tuple[list[str], int] | None:
    """Return the digests of the runs in a joined table, and its number of tiles.

    Returns None if there is no such table, or if it is damaged or of an earlier version.
    """
    try:
        table = parquet.read_metadata(place / FOLDER / group / TABLE_FILE)
        return json.loads(table.metadata[b"geogp"])["marks"], table.num_rows
    except (pa.ArrowException, OSError, *_ODD):
        return None


def join_tables(place: Path, regions: dict[str, str], out: Path) -> None:
    """Write the tiles of runs as one table, in the order of `regions`.

    The first column is ``region``; the other columns are as in `tile_table.py`. A column that only
    some runs have (``county``) is null for the other runs. At most `ROWS` rows are in memory.
    Raises DataError if a table is damaged or the type of a column differs between runs.
    """
    parts = [_Part.of(place / name / TABLE_FILE) for name in regions]
    try:
        columns = pa.unify_schemas([table.schema.remove_metadata() for table in parts])
    except pa.ArrowException as error:
        raise DataError(f"expected tables with the same columns in all runs: {error}.") from error
    geo = parts[0].geo
    last = columns.field(geo["primary_column"])
    columns = pa.schema([column for column in columns if column.name != last.name] + [last])
    west, south, east, north = zip(*(table.box for table in parts), strict=True)
    geo["columns"][last.name]["bbox"] = [min(west), min(south), max(east), max(north)]
    metadata = {
        "runs": list(regions),
        "marks": _marks(place, regions),
        "attribution": " ".join(sorted({table.attribution for table in parts} - {""})),
    }
    whole = pa.schema(
        [pa.field("region", pa.string()), *columns],
        metadata={"geo": json.dumps(geo), "geogp": json.dumps(metadata)},
    )
    floats = [column.name for column in whole if pa.types.is_float32(column.type)]
    with parquet.ParquetWriter(
        out,
        whole,
        compression="zstd",
        use_dictionary=[column.name for column in whole if pa.types.is_string(column.type)],
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    ) as writer:
        for name, region in regions.items():
            for batch in _batches(place / name / TABLE_FILE, columns):
                first = pa.array([region] * len(batch), pa.string())
                full = pa.RecordBatch.from_arrays([first, *batch.columns], schema=whole)
                writer.write_batch(full, ROWS)


def _marks(place: Path, names: Iterable[str]) -> list[str]:
    """Return the SHA-256 of the run.json of each run, which tells whether a run has changed."""
    return [sha256_of(place / name / RUN_FILE) for name in names]


@dataclass(frozen=True)
class _Part:
    """Facts about the table of a run: columns, GeoParquet metadata, and attribution of the data."""

    schema: pa.Schema
    geo: dict[str, Any]
    box: list[float]
    attribution: str

    @classmethod
    def of(cls, path: Path) -> "_Part":
        try:
            schema = parquet.read_schema(path)
            geo = json.loads(schema.metadata[b"geo"])
            shape = schema.field(geo["primary_column"]).name
            west, south, east, north = map(float, geo["columns"][shape]["bbox"])
            metadata = json.loads(schema.metadata.get(b"geogp", b"{}"))
            attribution = str(metadata.get("attribution", ""))
        except (pa.ArrowException, OSError, *_ODD) as error:
            raise damaged(path, error) from error
        return cls(schema, geo, [west, south, east, north], attribution)


def _batches(path: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a table in chunks, each with all columns in `columns`."""
    try:
        source = dataset.dataset(path, schema=columns, format="parquet")
        yield from source.to_batches(batch_size=ROWS, batch_readahead=1, fragment_readahead=1)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error

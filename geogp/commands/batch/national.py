"""One table, one raster and one page from many finished runs."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset, parquet

from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_work import peak_bytes, scratch_folder
from geogp.commands.batch.mosaic import damaged, join_rasters
from geogp.commands.gallery import make_gallery
from geogp.errors import DataError, OutputError
from geogp.files import write_into
from geogp.maps.target_quantities import quantity_of
from geogp.runs.run_folder import GRID_FILE, PREDICTIONS_FILE
from geogp.runs.run_names import RUN_FILE

FOLDER = "national"
"""Folder of the joined files: table, raster and page."""

TABLE_FILE, RASTER_FILE, PAGE_FILE = "tiles.parquet", "map.tif", "index.html"

NATIONAL_FILES = (RASTER_FILE, PAGE_FILE, TABLE_FILE)
"""Files in the order of writing; the table is last, because it records which runs were joined."""

ROWS = 65_536
"""Number of rows in a row group of the table, and largest number of rows in memory."""

_SHOWN = ("map.html", "report.html", PREDICTIONS_FILE)
"""Files of a run that the page does not read; the page only checks whether they exist."""

_ODD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that can occur if metadata lack the form in which geogp writes them."""


@dataclass(frozen=True)
class JoinedRun:
    """A run to join: its region, and the digest of its run.json (see `digest_of`)."""

    region: str
    mark: str


@dataclass(frozen=True)
class Joined:
    """The result of a join: rows of the table, seconds, and the worker's peak memory in bytes."""

    tiles: int
    seconds: float
    peak_bytes: int | None


def bands_of(target: str) -> tuple[str, ...]:
    """Return the names of a run's rasters that become bands of the joined raster."""
    quantity = quantity_of(target)
    if quantity.classes:
        return quantity.suffix, *quantity.at_least, "p_most_probable"
    middle = "expected" if quantity.counted else "median"
    return tuple(f"{name}_{quantity.suffix}" for name in (middle, "lower", "upper"))


def join_runs(
    address: str,
    group: str,
    found: dict[str, JoinedRun],
    bands: Sequence[str],
    scratch: Path | None,
) -> Joined:
    """Join finished runs (`found`) of one service, target and set of quarters.

    ``tiles.parquet`` holds all tiles of all runs (see `join_tables`); ``map.tif`` is one raster of
    `bands` (see `mosaic.py`); ``index.html`` is the page of `gallery.py`. Raises DataError if a
    file of a run is damaged, and OutputError or NetworkError if a file cannot be written or read.
    """
    start, place, rows = time.monotonic(), open_place(address), 0
    with _runs_here(place, list(found), bands, scratch) as base:
        runs = [base / name for name in found]

        def write(folder: Path) -> None:
            nonlocal rows
            join_rasters(runs, bands, folder / RASTER_FILE)
            make_gallery(runs, out=folder, files=(RASTER_FILE, TABLE_FILE))
            rows = join_tables(base, found, folder / TABLE_FILE)

        try:
            write_into(base / FOLDER / group, NATIONAL_FILES, write)
        except DataError as error:  # show the address that the user gave
            raise DataError(str(error).replace(str(base), place.address)) from error
        if not place.local:
            for file in NATIONAL_FILES:
                place.put(base / FOLDER / group / file, FOLDER, group, file)
    return Joined(rows, time.monotonic() - start, peak_bytes())


def tiles_joined(place: Place, group: str, found: dict[str, JoinedRun]) -> int | None:
    """Return the number of tiles of the joined table; None if it contains other runs."""
    held = joined_runs(place, group)
    if held is None or held[0] != [run.mark for run in found.values()]:
        return None
    return held[1] if set(NATIONAL_FILES) <= set(place.sizes(FOLDER, group)) else None


def joined_runs(place: Place, group: str) -> tuple[list[str], int] | None:
    """Return the digests of the runs in a joined table, and its number of tiles.

    Returns None if there is no such table, or if it is damaged or of an earlier version.
    """
    if TABLE_FILE not in place.sizes(FOLDER, group):
        return None
    with place.opened(FOLDER, group, TABLE_FILE) as stream:
        try:
            held = parquet.read_metadata(stream)
            return json.loads(held.metadata[b"geogp"])["marks"], held.num_rows
        except (pa.ArrowException, *_ODD):
            return None


@contextmanager
def _runs_here(
    place: Place, names: Sequence[str], bands: Sequence[str], scratch: Path | None
) -> Iterator[Path]:
    """Yield the batch folder, or a local copy of the needed files; those in `_SHOWN` are empty."""
    if place.local:
        yield Path(place.root)
        return
    base = scratch_folder(place.address, scratch)
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f".{FOLDER}-"))
    except OSError as error:
        raise OutputError(f"cannot write {base}: {error}. Name another --scratch.") from error
    try:
        for name in names:
            for file in (RUN_FILE, GRID_FILE, TABLE_FILE, *(f"{band}.tif" for band in bands)):
                place.fetch(folder / name / file, name, file)
            for file in set(_SHOWN) & set(place.sizes(name)):
                (folder / name / file).touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def join_tables(base: Path, found: dict[str, JoinedRun], out: Path) -> int:
    """Write the tiles of runs as one table, in the order of `found`; return the number of rows.

    The first column is ``region``; the other columns are as in `tile_table.py`. A column that only
    some runs have (``county``) is null for the other runs. At most `ROWS` rows are in memory.
    Raises DataError if a table is damaged or the type of a column differs between runs.
    """
    parts = [_Part.of(base / name / TABLE_FILE) for name in found]
    try:
        columns = pa.unify_schemas([one.schema.remove_metadata() for one in parts])
    except pa.ArrowException as error:
        raise DataError(f"expected tables with the same columns in all runs: {error}.") from error
    geo = parts[0].geo
    last = columns.field(geo["primary_column"])
    columns = pa.schema([one for one in columns if one.name != last.name] + [last])
    west, south, east, north = zip(*(one.box for one in parts), strict=True)
    geo["columns"][last.name]["bbox"] = [min(west), min(south), max(east), max(north)]
    metadata = {
        "runs": list(found),
        "marks": [run.mark for run in found.values()],
        "attribution": " ".join(sorted({one.attribution for one in parts} - {""})),
    }
    whole = pa.schema(
        [pa.field("region", pa.string()), *columns],
        metadata={"geo": json.dumps(geo), "geogp": json.dumps(metadata)},
    )
    floats = [one.name for one in whole if pa.types.is_float32(one.type)]
    rows = 0
    with parquet.ParquetWriter(
        out,
        whole,
        compression="zstd",
        use_dictionary=[one.name for one in whole if pa.types.is_string(one.type)],
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    ) as writer:
        for name, run in found.items():
            for batch in _batches(base / name / TABLE_FILE, columns):
                region = pa.array([run.region] * len(batch), pa.string())
                full = pa.RecordBatch.from_arrays([region, *batch.columns], schema=whole)
                writer.write_batch(full, ROWS)
                rows += len(batch)
    return rows


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
            about = json.loads(schema.metadata.get(b"geogp", b"{}"))
            attribution = str(about.get("attribution", ""))
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

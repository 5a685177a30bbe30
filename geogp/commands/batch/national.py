"""One table, one raster and one page of many finished runs."""

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
from geogp.commands.batch.batch_work import peak_bytes, scratch_folder, tell
from geogp.commands.batch.mosaic import join_rasters
from geogp.commands.gallery import make_gallery
from geogp.errors import DataError, OutputError
from geogp.files import write_folder
from geogp.geodata.tiles.targets import TARGETS
from geogp.maps.grid import quantity_of
from geogp.runs.run_folder import GRID_FILE, PREDICTIONS_FILE
from geogp.runs.run_names import RUN_FILE

FOLDER = "national"
"""Folder of what is joined from all runs."""

TABLE_FILE, RASTER_FILE, PAGE_FILE = "tiles.parquet", "map.tif", "index.html"

NATIONAL_FILES = (RASTER_FILE, PAGE_FILE, TABLE_FILE)
"""The table comes last: it says what all are made from."""

REGION = "region"
"""The column of the table that tells the regions apart."""

ROWS = 65_536
"""Rows of a row group of the table, and of what is in memory at once."""

_SHOWN = ("map.html", "report.html", PREDICTIONS_FILE)
"""Files of a run whose being there decides what the page links to."""


@dataclass(frozen=True)
class NationalOrder:
    """What a worker is told to join: the runs of a group, at a place as `Order` has it.

    `regions` and `marks` say of each run by name its region, and what `mark_of` tells of it.
    """

    group: str
    target: str
    regions: dict[str, str]
    marks: dict[str, str]
    place: str
    scratch: Path | None


@dataclass(frozen=True)
class Joined:
    """What was joined: rows of the table, and what it took."""

    tiles: int
    seconds: float
    peak_bytes: int | None


def bands_of(target: str) -> tuple[str, ...]:
    """Return the rasters of a run that the mosaic has as bands."""
    suffix = quantity_of(target).suffix
    middle = "expected" if TARGETS[target].counted else "median"
    return tuple(f"{name}_{suffix}" for name in (middle, "lower", "upper"))


def join_runs(order: NationalOrder) -> Joined:
    """Join the finished runs of one service, target and set of quarters.

    ``tiles.parquet``
        All tiles of all runs, with a column ``region``; see `join_tables`.
    ``map.tif``
        One raster of the median and the bounds of the intervals; see `mosaic.py`.
    ``index.html``
        The page of `gallery.py`, with links to the maps and reports of the runs.

    Of a place at an address, the files of the runs that they need are brought to the worker.

    Raises
    ------
    DataError
        A file of a run is damaged.
    OutputError, NetworkError
        A file cannot be written or read.
    """
    start, name, place = time.monotonic(), f"{FOLDER}/{order.group}", open_place(order.place)
    bands = bands_of(order.target)
    with _runs_here(place, order, [f"{band}.tif" for band in bands]) as base:
        runs = {base / run: region for run, region in order.regions.items()}
        rows = 0

        def write(folder: Path) -> None:
            nonlocal rows
            tell(name, "raster")
            join_rasters(list(runs), bands, folder / RASTER_FILE)
            tell(name, "page")
            make_gallery(list(runs), out=folder)
            tell(name, "table")
            rows = join_tables(runs, order.marks, folder / TABLE_FILE)

        try:
            write_folder(base / FOLDER / order.group, write)
        except DataError as error:  # of a file that the user knows by another address
            raise DataError(str(error).replace(str(base), place.address)) from error
        if not place.local:
            for file in NATIONAL_FILES:
                place.put(base / FOLDER / order.group / file, FOLDER, order.group, file)
    return Joined(rows, time.monotonic() - start, peak_bytes())


def joined_before(place: Place, group: str) -> tuple[dict[str, str], int]:
    """Return the marks of the runs that the products at a place are made from, and their tiles.

    Raises
    ------
    OutputError, NetworkError
        The place cannot be read.
    """
    if not set(NATIONAL_FILES) <= set(place.sizes(FOLDER, group)):
        return {}, 0
    with place.opened(FOLDER, group, TABLE_FILE) as stream:
        try:
            found = parquet.read_metadata(stream)
            return json.loads(found.metadata[b"geogp"])["marks"], found.num_rows
        except (pa.ArrowException, LookupError, TypeError, ValueError):
            return {}, 0  # damaged, or of an earlier version


@contextmanager
def _runs_here(place: Place, order: NationalOrder, rasters: Sequence[str]) -> Iterator[Path]:
    """Give a folder of this machine with the runs: the place, or one with what is needed of them.

    Files that the page only links to are empty in it.
    """
    if place.local:
        yield Path(place.root)
        return
    base = scratch_folder(order.place, order.scratch)
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f".{FOLDER}-"))
    except OSError as error:
        raise OutputError(f"cannot write {base}: {error}. Name another --scratch.") from error
    try:
        for name in order.regions:
            for file in (RUN_FILE, GRID_FILE, TABLE_FILE, *rasters):
                place.fetch(folder / name / file, name, file)
            for file in set(_SHOWN) & set(place.sizes(name)):
                (folder / name / file).touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def join_tables(runs: dict[Path, str], marks: dict[str, str], out: Path) -> int:
    """Write the tiles of several runs as one table, in the order of the runs; return its rows.

    Columns are those of `tile_table.py`, after a first one, ``region``; where one run has a
    column that another has not (counties), the other's are null. At most `ROWS` rows are in memory.

    Parameters
    ----------
    runs
        Run folders, and the region of each.
    marks
        What the table says of the runs.
    out
        The file.

    Raises
    ------
    DataError
        A run's table is damaged, or the types of its columns are not those of another's.
    OutputError
        The file cannot be written.
    """
    parts = [_Part.of(run / TABLE_FILE) for run in runs]
    try:
        columns = pa.unify_schemas([one.schema.remove_metadata() for one in parts])
    except pa.ArrowException as error:
        raise DataError(f"expected tables of the same columns in all runs: {error}.") from error
    geo = parts[0].geo
    last = columns.field(geo["primary_column"])
    columns = pa.schema([one for one in columns if one.name != last.name] + [last])
    west, south, east, north = zip(*(one.box for one in parts), strict=True)
    geo["columns"][last.name]["bbox"] = [min(west), min(south), max(east), max(north)]
    told = {
        "runs": list(marks),
        "attribution": " ".join(sorted({one.attribution for one in parts} - {""})),
        "marks": marks,
    }
    whole = pa.schema(
        [pa.field(REGION, pa.string()), *columns],
        metadata={"geo": json.dumps(geo), "geogp": json.dumps(told)},
    )
    rows = 0
    with parquet.ParquetWriter(
        out,
        whole,
        compression="zstd",
        use_dictionary=[one.name for one in whole if pa.types.is_string(one.type)],
        column_encoding={
            one.name: "BYTE_STREAM_SPLIT" for one in whole if pa.types.is_float32(one.type)
        },
    ) as writer:
        for run, region in runs.items():
            for batch in _batches(run / TABLE_FILE, columns):
                names = pa.array([region] * len(batch), pa.string())
                writer.write_batch(
                    pa.RecordBatch.from_arrays([names, *batch.columns], schema=whole), ROWS
                )
                rows += len(batch)
    return rows


@dataclass(frozen=True)
class _Part:
    """The table of a run: its columns, what GeoParquet says of it, and whom the data are by."""

    schema: pa.Schema
    geo: dict[str, Any]
    box: list[float]
    attribution: str

    @classmethod
    def of(cls, path: Path) -> "_Part":
        try:
            schema = parquet.read_schema(path)
            geo = json.loads(schema.metadata[b"geo"])
            west, south, east, north = geo["columns"][geo["primary_column"]]["bbox"]
            about = json.loads(schema.metadata.get(b"geogp", b"{}"))
            attribution = str(about.get("attribution", ""))
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            raise _damaged(path, error) from error
        return cls(schema, geo, [west, south, east, north], attribution)


def _batches(path: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a table in parts, with all of the columns."""
    try:
        source = dataset.dataset(path, schema=columns, format="parquet")
        yield from source.to_batches(batch_size=ROWS, batch_readahead=1, fragment_readahead=1)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged ({error}). Delete the folder and resume.")

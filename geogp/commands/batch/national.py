"""One table, one raster and one page of many finished runs."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_tables import join_tables
from geogp.commands.batch.batch_work import peak_bytes, scratch_folder, tell
from geogp.commands.batch.mosaic import join_rasters
from geogp.commands.gallery import make_gallery
from geogp.errors import OutputError
from geogp.geodata.tiles.targets import TARGETS
from geogp.maps.grid import quantity_of
from geogp.runs.run_folder import GRID_FILE, PREDICTIONS_FILE
from geogp.runs.run_names import RUN_FILE

FOLDER = "national"
"""Folder of what is joined from all runs."""

TABLE_FILE, RASTER_FILE, PAGE_FILE = "tiles.parquet", "map.tif", "index.html"

NATIONAL_FILES = (TABLE_FILE, RASTER_FILE, PAGE_FILE)

_SHOWN = ("map.html", "report.html", PREDICTIONS_FILE)
"""Files of a run whose being there decides what the page links to."""


@dataclass(frozen=True)
class NationalOrder:
    """What a worker is told to join.

    Attributes
    ----------
    group
        Name of the service, target and quarters.
    target
        The target.
    runs
        Names and regions of the runs.
    place, scratch
        As `Order` has them.
    """

    group: str
    target: str
    runs: tuple[tuple[str, str], ...]
    place: str
    scratch: str | None


@dataclass(frozen=True)
class Joined:
    """What was joined: rows of the table, files, and what it took."""

    tiles: int
    files: tuple[str, ...]
    seconds: float
    peak_bytes: int | None


def bands_of(target: str) -> tuple[str, ...]:
    """Return the rasters of a run that the mosaic has as bands."""
    suffix = quantity_of(target).suffix
    if TARGETS[target].counted:
        return tuple(f"{name}_{suffix}" for name in ("expected", "lower", "upper"))
    return tuple(f"{name}_{suffix}" for name in ("median", "lower", "upper"))


def join_runs(order: NationalOrder) -> Joined:
    """Join the finished runs of one service, target and set of quarters.

    ``tiles.parquet``
        All tiles of all runs, with a column ``region``; see `batch_tables.py`.
    ``map.tif``
        One raster of the median and the bounds of the intervals; see `mosaic.py`.
    ``index.html``
        The page of `gallery.py`, with links to the maps and reports of the runs.

    They are made on the worker's machine and copied to the place, the page last.

    Raises
    ------
    DataError
        A file of a run is damaged.
    OutputError, NetworkError
        A file cannot be written or read.
    """
    start = time.monotonic()
    place = open_place(order.place)
    base = Path(order.scratch) if order.scratch else scratch_folder(order.place)
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f".{FOLDER}-"))
    except OSError as error:
        raise OutputError(f"cannot write {base}: {error}. Name another --scratch.") from error
    try:
        told = {"name": f"{FOLDER}/{order.group}", "attempt": 1}
        tell({**told, "text": "table"})
        made = folder / FOLDER / order.group
        made.mkdir(parents=True)
        tiles = join_tables(place, order.runs, made / TABLE_FILE)
        tell({**told, "text": "raster"})
        names = [name for name, _ in order.runs]
        join_rasters(place, names, bands_of(order.target), made / RASTER_FILE)
        tell({**told, "text": "page"})
        _mirror(place, names, folder)
        make_gallery([folder / name for name in names], out=made)
        for name in NATIONAL_FILES:
            place.put(made / name, FOLDER, order.group, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Joined(
        tiles,
        tuple(f"{FOLDER}/{order.group}/{name}" for name in NATIONAL_FILES),
        time.monotonic() - start,
        peak_bytes(),
    )


def _mirror(place: Place, names: list[str], folder: Path) -> None:
    """Bring here what the page shows of the runs, so that its links are right at the place.

    Files that it only links to are empty here.
    """
    for name in names:
        for file in (RUN_FILE, GRID_FILE):
            place.fetch(folder / name / file, name, file)
        written = place.modified(name, RUN_FILE)
        os.utime(folder / name / RUN_FILE, (written, written))
        for file in _SHOWN:
            if place.has(name, file):
                (folder / name / file).touch()

"""The rasters of many runs as one, window by window."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.windows import Window

from geogp.commands.batch.batch_place import Place
from geogp.errors import DataError, OutputError
from geogp.geodata.tiles import quadkeys
from geogp.maps.frame import Frame

BLOCK = 512
"""Width and height of the blocks of the raster, in pixels."""

CACHE_BYTES = 256 * 2**20
"""What GDAL may keep in memory."""


_OFF = 1e-6
"""How far a number may be from a whole one that it stands for."""

Floats = NDArray[np.float32]


def join_rasters(place: Place, names: Sequence[str], bands: Sequence[str], out: Path) -> None:
    """Write one cloud-optimised GeoTIFF, float32, EPSG:3857, with a band for each variable.

    Its frame is the smallest around all runs; columns beyond the edge of the world come in on the
    other side of it. Runs at a coarser zoom than the finest are repeated to that. A pixel holds
    the value of the first run that has one: as the centre of a tile lies in one region, there is
    another only where two boundaries overlap. Blocks without any value take no room.

    A row of blocks of one run is in memory at once, and `CACHE_BYTES` of GDAL's; beside `out` an
    uncompressed raster of the blocks with values stands while it is made.

    Parameters
    ----------
    place
        Where the runs are.
    names
        Their names, in the order that decides where two have a value.
    bands
        Names of the variables.
    out
        The file; its folder is used for what is brought here.

    Raises
    ------
    DataError
        A raster is damaged, or is not one of tiles.
    OutputError, NetworkError
        A file cannot be read or written.
    """
    whole = out.with_name(f".{out.name}.whole.tif")
    brought = out.with_name(f".{out.name}.part.tif")
    try:
        with rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES):
            frame = _frame([_frame_of(place, name, bands[0], brought) for name in names])
            with rasterio.open(whole, "w+", **_profile(frame, len(bands))) as target:
                sources = set[str]()
                for number, band in enumerate(bands, 1):
                    for name in names:
                        fetched = _Fetched(place, name, band, brought)
                        sources.add(_paste(fetched, target, frame, number))
                target.update_tags(
                    runs=" ".join(names),
                    variables=" ".join(bands),
                    attribution=" ".join(sorted(sources - {""})),
                )
            rasterio.shutil.copy(whole, out, **_cog(frame))
    except RasterioError as error:
        raise OutputError(f"cannot write {out}: {error}.") from error
    finally:
        whole.unlink(missing_ok=True)
        brought.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Fetched:
    """The raster of one variable of one run, brought to a file here."""

    place: Place
    name: str
    band: str
    path: Path

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open it."""
        file = f"{self.band}.tif"
        self.place.fetch(self.path, self.name, file)
        try:
            with rasterio.open(self.path) as raster:
                yield raster
        except RasterioError as error:
            raise DataError(
                f"{self.place.show(self.name, file)} is damaged ({error}). Delete the folder and "
                "resume."
            ) from error


def _frame_of(place: Place, name: str, band: str, path: Path) -> Frame:
    with _Fetched(place, name, band, path).opened() as raster:
        return _tiles_of(raster, place.show(name, f"{band}.tif"))


def _tiles_of(raster: Any, where: str) -> Frame:
    """Return the frame of a raster of tiles.

    Raises
    ------
    DataError
        Its pixels are not tiles of Web Mercator.
    """
    step = raster.transform
    zoom = math.log2(2 * quadkeys.HALF_WORLD_M / step.a) if step.a > 0 else -1
    column = (step.c + quadkeys.HALF_WORLD_M) / step.a if step.a else math.nan
    row = (quadkeys.HALF_WORLD_M - step.f) / step.a if step.a else math.nan
    whole = all(abs(value - round(value)) < _OFF for value in (zoom, column, row))
    square = math.isclose(step.a, -step.e, rel_tol=_OFF)
    if not whole or not square or raster.crs is None or raster.crs.to_epsg() != 3857:
        raise DataError(f"expected a raster of tiles in EPSG:3857, found another in {where}.")
    return Frame(round(zoom), round(column), round(row), raster.width, raster.height)


def _frame(parts: Sequence[Frame]) -> Frame:
    """Return the smallest frame around all, at the finest zoom, inside the world."""
    zoom = max(part.zoom for part in parts)
    spans, tops, bottoms = [], [], []
    for part in parts:
        fine = 1 << (zoom - part.zoom)
        spans += [(start, stop) for start, stop, _ in _spans(part, zoom)]
        tops.append(part.row * fine)
        bottoms.append((part.row + part.height) * fine)
    west, east = min(start for start, _ in spans), max(stop for _, stop in spans)
    return Frame(zoom, west, min(tops), east - west, max(bottoms) - min(tops))


def _spans(part: Frame, zoom: int) -> list[tuple[int, int, int]]:
    """Return columns of the world that a part covers: first, last + 1, and the part's own first.

    All at `zoom`; where the part crosses the edge of the world, there are two.
    """
    fine, world = 1 << (zoom - part.zoom), 1 << zoom
    start, width = part.column * fine, part.width * fine
    found, own = [], 0
    while own < width:
        first = (start + own) % world
        many = min(width - own, world - first)
        found.append((first, first + many, own))
        own += many
    return found


def _paste(source: _Fetched, target: Any, frame: Frame, number: int) -> str:
    """Put the values of one run into a band, where no run before had one; whom they are by."""
    with source.opened() as raster:
        part = _tiles_of(raster, source.place.show(source.name, f"{source.band}.tif"))
        target.set_band_description(number, raster.descriptions[0] or source.band)
        target.set_band_unit(number, raster.units[0] or "")
        fine = 1 << (frame.zoom - part.zoom)
        first = part.row * fine - frame.row
        last = first + part.height * fine
        for top in range(first - first % BLOCK, last, BLOCK):
            rows = max(top, first), min(top + BLOCK, last)
            values = _strip(raster, fine, rows[0] - first, rows[1] - first)
            for start, stop, own in _spans(part, frame.zoom):
                window = Window(start - frame.column, rows[0], stop - start, rows[1] - rows[0])
                _fill(target, number, window, values[:, own : own + stop - start])
        return str(raster.tags().get("attribution", ""))


def _strip(raster: Any, fine: int, top: int, bottom: int) -> Floats:
    """Return rows of a raster, each pixel repeated `fine` times on both axes."""
    first, last = top // fine, -(-bottom // fine)
    values = raster.read(1, window=Window(0, first, raster.width, last - first))
    values = values.astype(np.float32)
    if raster.nodata is not None and not np.isnan(raster.nodata):
        values[values == raster.nodata] = np.nan
    if fine > 1:
        values = values.repeat(fine, axis=0).repeat(fine, axis=1)
    rows: Floats = values[top - first * fine : bottom - first * fine]
    return rows


def _fill(target: Any, number: int, window: Window, values: Floats) -> None:
    if np.isnan(values).all():
        return
    there = target.read(number, window=window)
    target.write(np.where(np.isnan(there), values, there), number, window=window)


def _profile(frame: Frame, bands: int) -> dict[str, Any]:
    """Return how to write the raster that is filled: without compression, as blocks come again."""
    return {
        "driver": "GTiff",
        "width": frame.width,
        "height": frame.height,
        "count": bands,
        "dtype": "float32",
        "crs": "EPSG:3857",
        "transform": frame.transform,
        "nodata": math.nan,
        "tiled": True,
        "blockxsize": BLOCK,
        "blockysize": BLOCK,
        "interleave": "band",
        "sparse_ok": True,
        "bigtiff": "IF_SAFER",
    }


def _cog(frame: Frame) -> dict[str, Any]:
    """Return how to write the finished raster."""
    chosen: dict[str, Any] = {
        "driver": "COG",
        "compress": "DEFLATE",
        "predictor": "YES",
        "blocksize": BLOCK,
        "sparse_ok": True,
        "bigtiff": "IF_SAFER",
        "overview_resampling": "AVERAGE",
    }
    if 1 < max(frame.width, frame.height) <= BLOCK:
        chosen["overview_count"] = 1  # where the driver would make none
    return chosen

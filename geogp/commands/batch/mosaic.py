"""One raster from the rasters of many runs, joined by rasterio some rows at a time.

rasterio writes no virtual raster (VRT) of several files. `rasterio.merge` joins rasters that have
the same bands, but a run has a raster for each band, and it places nothing beyond longitude 180 in
the far west.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.windows import Window

from geogp.errors import DataError, OutputError
from geogp.geodata.tiles import quadkeys
from geogp.maps.frame import Frame
from geogp.maps.rasters import cog_options

BLOCK = 512
"""Width and height of the blocks of the raster, in pixels."""

ROWS = 128
"""Number of rows of one raster in memory, counted in rows of the joined raster."""

CACHE_BYTES = 256 * 2**20
"""Largest size of GDAL's cache in memory, in bytes."""

_OFF = 1e-6
"""Largest rounding error of an edge or a width of a raster, as a part of a pixel."""

_Span = tuple[int, int]
"""First number, and how many."""


def join_rasters(runs: Sequence[Path], bands: Sequence[str], out: Path) -> None:
    """Write the rasters of run folders as one cloud-optimised GeoTIFF, float32, EPSG:3857.

    The raster covers the smallest rectangle around all runs. Columns beyond longitude 180 are
    placed in the far west. Rasters with a lower zoom are enlarged to the highest zoom. Where
    several runs have a value, the raster has the value of the first run. Overviews have means, or,
    if a band has numbers of classes, the values of single pixels. In memory are GDAL's cache of at
    most `CACHE_BYTES`, and `ROWS` rows of one raster.

    Raises DataError if a raster is damaged or is not a raster of tiles, and OutputError if a file
    cannot be written.
    """
    frames, attributions = zip(*(_outline(run / f"{bands[0]}.tif") for run in runs), strict=True)
    frame, plain = _around(frames), out.with_name(f".{out.name}")
    try:
        with rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES):
            with rasterio.open(
                plain,
                "w+",
                driver="GTiff",
                width=frame.width,
                height=frame.height,
                count=len(bands),
                dtype="float32",
                crs="EPSG:3857",
                transform=frame.transform,
                nodata=np.nan,
                tiled=True,
                blockxsize=BLOCK,
                blockysize=BLOCK,
                sparse_ok=True,
                bigtiff="IF_SAFER",
            ) as whole:
                whole.update_tags(
                    runs=" ".join(run.name for run in runs),
                    variables=" ".join(bands),
                    attribution=" ".join(sorted({*attributions} - {""})),
                )
                classes = [_fill(whole, number, band, runs) for number, band in enumerate(bands, 1)]
            options = cog_options(frame, BLOCK, "NEAREST" if any(classes) else "AVERAGE")
            # GDAL only copies a raster to this format; it cannot write such a raster in parts.
            rasterio.shutil.copy(plain, out, **options, sparse_ok=True, bigtiff="IF_SAFER")
    except RasterioError as error:
        raise OutputError(f"cannot write {out}: {error}.") from error
    finally:
        plain.unlink(missing_ok=True)


def damaged(path: Path, error: Exception) -> DataError:
    """Return the error for a damaged file of a run."""
    return DataError(
        f"{path} is damaged ({error}). Delete its folder, and continue the batch with --resume."
    )


def _fill(whole: Any, number: int, band: str, runs: Sequence[Path]) -> bool:
    """Fill a band of the joined raster; return whether the band has numbers of classes.

    The first run is drawn last, so its values stay. Its raster also describes the band.
    """
    for run in reversed(runs):
        for window, values in _stripes(run / f"{band}.tif", whole):
            below = whole.read(number, window=window)
            whole.write(np.where(np.isnan(values), below, values), number, window=window)
    with rasterio.open(runs[0] / f"{band}.tif", driver="GTiff") as raster:
        whole.set_band_description(number, raster.descriptions[0] or band)
        whole.set_band_unit(number, raster.units[0] or "")
        flags = {key: text for key, text in raster.tags(1).items() if key.startswith("flag_")}
    whole.update_tags(number, **flags)
    return bool(flags)


def _outline(path: Path) -> tuple[Frame, str]:
    """Return the frame of a raster, and the attribution of its data."""
    try:
        with rasterio.open(path, driver="GTiff") as raster:
            return _tiles_of(raster), str(raster.tags().get("attribution", ""))
    except (RasterioError, DataError) as error:
        raise damaged(path, error) from error


def _stripes(path: Path, whole: Any) -> Iterator[tuple[Window, NDArray[np.float32]]]:
    """Yield a raster in stripes: the window in the joined raster, and its values, NaN for none."""
    frame = _tiles_of(whole)
    try:
        with rasterio.open(path, driver="GTiff") as raster:
            tiles = _tiles_of(raster)
            fine = 1 << (frame.zoom - tiles.zoom)
            step = max(1, ROWS // fine)
            for (own, many), (first, wide) in _spans(tiles, fine):
                for top in range(0, tiles.height, step):
                    high = min(step, tiles.height - top)
                    values = raster.read(
                        1,
                        window=Window(own, top, many, high),
                        out_shape=(high * fine, wide),
                        out_dtype="float32",
                        masked=True,
                    ).filled(np.nan)
                    row = (tiles.row + top) * fine - frame.row
                    yield Window(first - frame.column, row, wide, high * fine), values
    except (RasterioError, DataError) as error:
        raise damaged(path, error) from error


def _tiles_of(raster: Any) -> Frame:
    """Return zoom, position and size of a raster whose pixels are tiles of Web Mercator."""
    step, world = raster.transform, quadkeys.HALF_WORLD_M
    if raster.crs is not None and raster.crs.to_epsg() == 3857 and step.a > 0:
        zoom = round(math.log2(2 * world / step.a))
        size = quadkeys.tile_size_m(zoom)
        column, row = round((step.c + world) / size), round((world - step.f) / size)
        frame = Frame(zoom, column, row, raster.width, raster.height)
        if frame.transform.almost_equals(step, precision=_OFF * size):
            return frame
    raise DataError(
        "expected a raster of tiles in EPSG:3857, found a raster with other tiles or another CRS."
    )


def _around(parts: Sequence[Frame]) -> Frame:
    """Return the smallest rectangle of tiles that contains all frames, at the highest zoom."""
    zoom = max(frame.zoom for frame in parts)
    spans, rows = [], []
    for frame in parts:
        fine = 1 << (zoom - frame.zoom)
        spans += [span for _, span in _spans(frame, fine)]
        rows += [frame.row * fine, (frame.row + frame.height) * fine]
    west, east = min(first for first, _ in spans), max(first + many for first, many in spans)
    return Frame(zoom, west, min(rows), east - west, max(rows) - min(rows))


def _spans(frame: Frame, fine: int) -> list[tuple[_Span, _Span]]:
    """Return pairs of column ranges (first, number): in the raster, and in the grid of the world.

    The world has `fine` columns for each column of the raster. A raster that crosses longitude 180
    has two pairs.
    """
    world = 1 << frame.zoom
    inside = min(frame.width, world - frame.column % world)
    return [
        ((own, many), ((frame.column + own) % world * fine, many * fine))
        for own, many in ((0, inside), (inside, frame.width - inside))
        if many
    ]

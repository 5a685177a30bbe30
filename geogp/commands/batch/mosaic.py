"""One raster from the rasters of many runs, joined block by block by GDAL."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import rasterio
import rasterio.shutil
from rasterio.errors import RasterioError

from geogp.errors import DataError, OutputError
from geogp.geodata.tiles import quadkeys
from geogp.maps.frame import Frame
from geogp.maps.rasters import cog_options

BLOCK = 512
"""Width and height of the blocks of the raster, in pixels."""

CACHE_BYTES = 256 * 2**20
"""Largest size of GDAL's cache in memory, in bytes."""

_OFF = 1e-6
"""Largest rounding error of a number that should be whole."""

_WHOLE = """<VRTDataset rasterXSize="{frame.width}" rasterYSize="{frame.height}">
<SRS>EPSG:3857</SRS><GeoTransform>{transform}</GeoTransform><Metadata>{metadata}</Metadata>
{bands}</VRTDataset>
"""
_BAND = """<VRTRasterBand dataType="Float32" band="{number}"><Description>{about}</Description>
<UnitType>{unit}</UnitType><NoDataValue>nan</NoDataValue><Metadata>{flags}</Metadata>
{sources}</VRTRasterBand>
"""
_SOURCE = """<ComplexSource><SourceFilename>{path}</SourceFilename><SourceBand>1</SourceBand>
<SrcRect xOff="{own}" yOff="0" xSize="{many}" ySize="{high}"/>
<DstRect xOff="{left}" yOff="{top}" xSize="{wide}" ySize="{deep}"/>{nodata}</ComplexSource>
"""
"""Templates of a virtual raster, in GDAL's format VRT."""


def join_rasters(runs: Sequence[Path], bands: Sequence[str], out: Path) -> None:
    """Write the rasters of run folders as one cloud-optimised GeoTIFF, float32, EPSG:3857.

    The raster covers the smallest rectangle around all runs. Columns beyond longitude 180 are
    placed in the far west. Rasters with a lower zoom are enlarged to the highest zoom. Where
    several runs have a value, the raster has the value of the first run. Overviews have means, or,
    if a band has numbers of classes, the values of single pixels. GDAL reads only the data that a
    block needs, and keeps at most `CACHE_BYTES` in memory.

    Raises DataError if a raster is damaged or is not a raster of tiles, and OutputError if a file
    cannot be written.
    """
    sources = [[_source(run / f"{band}.tif") for run in runs] for band in bands]
    frame, virtual = _around(sources[0]), out.with_suffix(".vrt")
    metadata = {
        "runs": " ".join(run.name for run in runs),
        "variables": " ".join(bands),
        "attribution": " ".join(sorted({one.attribution for one in sources[0]} - {""})),
    }
    resampling = "NEAREST" if any(many[0].flags for many in sources) else "AVERAGE"
    options = cog_options(frame, BLOCK, resampling) | {"sparse_ok": True, "bigtiff": "IF_SAFER"}
    virtual.write_text(_virtual(sources, frame, metadata), "utf-8")
    try:
        with rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES):
            rasterio.shutil.copy(virtual, out, **options)
    except RasterioError as error:
        raise OutputError(f"cannot write {out}: {error}.") from error
    finally:
        virtual.unlink()


@dataclass(frozen=True)
class _Source:
    """The raster of one variable of one run, with its metadata."""

    path: Path
    frame: Frame
    nodata: float | None
    about: str
    unit: str
    attribution: str
    flags: dict[str, str]


def _source(path: Path) -> _Source:
    try:
        with rasterio.open(path, driver="GTiff") as raster:
            about, unit = raster.descriptions[0] or path.stem, raster.units[0] or ""
            attribution = str(raster.tags().get("attribution", ""))
            flags = {key: text for key, text in raster.tags(1).items() if key.startswith("flag_")}
            return _Source(path, _tiles_of(raster), raster.nodata, about, unit, attribution, flags)
    except (RasterioError, DataError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DataError:
    """Return the error for a damaged file of a run."""
    return DataError(
        f"{path} is damaged ({error}). Delete its folder, and continue the batch with --resume."
    )


def _tiles_of(raster: Any) -> Frame:
    """Return zoom, position and size of a raster whose pixels are tiles of Web Mercator."""
    step, world = raster.transform, quadkeys.HALF_WORLD_M
    if raster.crs is not None and raster.crs.to_epsg() == 3857 and step.a > 0:
        zoom_of = math.log2(2 * world / step.a)
        found = (zoom_of, (step.c + world) / step.a, (world - step.f) / step.a)
        square = math.isclose(step.a, -step.e, rel_tol=_OFF)
        if square and all(abs(value - round(value)) < _OFF for value in found):
            zoom, column, row = map(round, found)
            return Frame(zoom, column, row, raster.width, raster.height)
    raise DataError(
        "expected a raster of tiles in EPSG:3857, found a raster with other tiles or another CRS."
    )


def _around(sources: Sequence[_Source]) -> Frame:
    """Return the smallest rectangle of tiles that contains all rasters, at the highest zoom."""
    zoom = max(one.frame.zoom for one in sources)
    spans, rows = [], []
    for one in sources:
        fine = 1 << (zoom - one.frame.zoom)
        spans += [span for _, span in _spans(one.frame, fine)]
        rows += [one.frame.row * fine, (one.frame.row + one.frame.height) * fine]
    west, east = min(first for first, _ in spans), max(first + many for first, many in spans)
    return Frame(zoom, west, min(rows), east - west, max(rows) - min(rows))


def _spans(part: Frame, fine: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return pairs of column ranges (first, number): in the raster, and in the grid of the world.

    The world has `fine` columns for each column of the raster. A raster that crosses longitude 180
    has two pairs.
    """
    world = 1 << part.zoom
    inside = min(part.width, world - part.column % world)
    return [
        ((own, many), ((part.column + own) % world * fine, many * fine))
        for own, many in ((0, inside), (inside, part.width - inside))
        if many
    ]


def _virtual(sources: Sequence[Sequence[_Source]], frame: Frame, metadata: dict[str, str]) -> str:
    """Return the virtual raster; where rasters overlap, GDAL uses the last raster with a value."""
    bands = (
        _BAND.format(
            number=number,
            about=escape(many[0].about),
            unit=escape(many[0].unit),
            flags=_entries(many[0].flags),
            sources="".join(_drawn(one, frame) for one in reversed(many)),
        )
        for number, many in enumerate(sources, 1)
    )
    return _WHOLE.format(
        frame=frame,
        transform=", ".join(map(repr, frame.transform.to_gdal())),
        metadata=_entries(metadata),
        bands="".join(bands),
    )


def _entries(metadata: dict[str, str]) -> str:
    return "".join(f'<MDI key="{key}">{escape(text)}</MDI>' for key, text in metadata.items())


def _drawn(source: _Source, frame: Frame) -> str:
    """Return the entries of one raster in the virtual raster, with its position."""
    part, fine = source.frame, 1 << (frame.zoom - source.frame.zoom)
    return "".join(
        _SOURCE.format(
            path=escape(str(source.path.resolve())),
            own=own,
            many=many,
            high=part.height,
            left=first - frame.column,
            top=part.row * fine - frame.row,
            wide=wide,
            deep=part.height * fine,
            nodata="" if source.nodata is None else f"<NODATA>{source.nodata}</NODATA>",
        )
        for (own, many), (first, wide) in _spans(part, fine)
    )

"""Writers of NetCDF (CF), Zarr and cloud-optimised GeoTIFF files."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import xarray as xr
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.io import MemoryFile

from geogp.errors import DataError
from geogp.files import write_bytes, write_folder
from geogp.maps.frame import Frame

BLOCK = 256
"""Width and height of a GeoTIFF's blocks in pixels."""

CHUNK = 256
"""Width and height of a Zarr array's chunks in pixels."""

LARGE_TILES = 100_000
"""Number of tiles above which a map is also written as Zarr, which can be read in parts."""


def write_netcdf(grid: xr.Dataset, path: Path) -> None:
    """Write a grid as compressed NetCDF-4, made in memory; raise OutputError if that fails."""
    compressed = grid.copy()
    for variable in compressed.data_vars.values():
        # Passing `encoding` to `to_netcdf` would drop fill values and the grid mapping.
        variable.encoding |= {"zlib": True, "complevel": 4, "shuffle": True}
    write_bytes(path, bytes(compressed.to_netcdf(engine="h5netcdf")))


def has_zarr() -> bool:
    """Return whether zarr is installed, an optional dependency (``geogp[zarr]``)."""
    return find_spec("zarr") is not None


def write_zarr(grid: xr.Dataset, path: Path) -> None:
    """Write a grid as a Zarr store (a folder) with square chunks and consolidated metadata.

    The format is Zarr 2, which GDAL and older readers can open, too. Raises OutputError if the
    store cannot be written; no incomplete store remains.
    """
    chunked = grid.copy()
    for variable in chunked.data_vars.values():
        variable.encoding["chunks"] = tuple(min(CHUNK, size) for size in variable.shape)

    def write(folder: Path) -> None:
        chunked.to_zarr(folder, mode="w", zarr_format=2, consolidated=True)

    write_folder(path, write)


def write_geotiffs(grid: xr.Dataset, folder: Path) -> list[Path]:
    """Write each variable of a grid as a cloud-optimised GeoTIFF of one band; return the paths.

    Each file has the name, the type and the no-data value of its variable, lossless compression,
    and the attributes of the grid as tags. Overviews (at lower resolution) have means, or the most
    frequent value of a flag. The band has the description and unit of the variable, and statistics.
    Raises OutputError if a file cannot be written.
    """
    paths = {str(name): folder / f"{name}.tif" for name in grid.data_vars}
    for name, path in paths.items():
        _write_geotiff(grid, name, path)
    return list(paths.values())


def read_geotiff(path: Path, like: Path) -> NDArray[np.float64]:
    """Return the band of a GeoTIFF, NaN for no data.

    Raises DataError if it cannot be read, or does not have the pixels of the GeoTIFF `like`.
    """
    try:
        with (
            rasterio.open(like, driver="GTiff") as other,
            rasterio.open(path, driver="GTiff") as raster,
        ):
            if (raster.shape, raster.transform) != (other.shape, other.transform):
                raise DataError(
                    f"{path.name} has other pixels than {like.name}. Give the command again."
                )
            return np.asarray(raster.read(1, masked=True).astype(np.float64).filled(np.nan))
    except RasterioError as error:
        raise DataError(
            f"{path.name} or {like.name} is missing or damaged. Give the command again."
        ) from error


def _write_geotiff(grid: xr.Dataset, name: str, path: Path) -> None:
    band, frame = grid[name], Frame.of_grid(grid)
    values, nodata = band.to_numpy(), nodata_of(band)
    with MemoryFile() as memory:
        with memory.open(
            width=frame.width,
            height=frame.height,
            count=1,
            dtype=values.dtype.name,
            crs="EPSG:3857",
            transform=frame.transform,
            nodata=nodata,
            **cog_options(frame, BLOCK, "MODE" if "flag_values" in band.attrs else "AVERAGE"),
        ) as dataset:
            dataset.write(values, 1)
            dataset.set_band_description(1, str(band.attrs["long_name"]))
            dataset.set_band_unit(1, str(band.attrs.get("units", "")))
            # GDAL does not write a scale of 1, so a tag states the scale.
            tags = {"scale": "1", "offset": "0"}
            for key, value in statistics_of(values, nodata).items():
                digits = ".6g" if key == "valid_percent" else ".17g"
                tags[f"STATISTICS_{key.upper()}"] = format(value, digits)
            if "flag_values" in band.attrs:
                tags["flag_values"] = " ".join(map(str, band.attrs["flag_values"]))
                tags["flag_meanings"] = str(band.attrs["flag_meanings"])
            dataset.update_tags(1, **tags)
            dataset.update_tags(**{str(key): str(value) for key, value in grid.attrs.items()})
        write_bytes(path, bytes(memory.getbuffer()))


def cog_options(frame: Frame, block: int, resampling: str) -> dict[str, Any]:
    """Return GDAL's options for a cloud-optimised GeoTIFF with square blocks of `block` pixels."""
    options = {
        "driver": "COG",
        "compress": "DEFLATE",
        "predictor": "YES",
        "blocksize": block,
        "overview_resampling": resampling,
    }
    # By default, GDAL makes no overview for a raster of one block.
    small = 1 < max(frame.width, frame.height) <= block
    return options | ({"overview_count": 1} if small else {})


def nodata_of(band: xr.DataArray) -> float | None:
    """Return the value of pixels without data; None for whole numbers all of which are known."""
    fill = band.encoding.get("_FillValue", np.nan if band.dtype.kind == "f" else None)
    return None if fill is None else float(fill)


def statistics_of(values: NDArray[Any], nodata: float | None) -> dict[str, float]:
    """Return statistics of the values of a band, computed in float64, by the names of STAC.

    GDAL has the same names, but GDAL 3.10 itself computes a wrong share of valid pixels.
    """
    missing = np.isnan(values) if nodata is None or np.isnan(nodata) else values == nodata
    valid = values[~missing].astype(np.float64)
    share = {"valid_percent": 100 * valid.size / values.size}
    if not valid.size:
        return share
    return share | {
        "minimum": float(valid.min()),
        "maximum": float(valid.max()),
        "mean": float(valid.mean()),
        "stddev": float(valid.std()),
    }

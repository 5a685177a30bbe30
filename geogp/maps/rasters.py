"""Files that standard tools read: NetCDF (CF) and cloud-optimised GeoTIFF."""

from pathlib import Path

import numpy as np
import xarray as xr
from rasterio.io import MemoryFile

from geogp.files import write_bytes
from geogp.maps.frame import Frame
from geogp.maps.grid import TESTS, quantity_of


def write_netcdf(grid: xr.Dataset, path: Path) -> None:
    """Write a grid as compressed NetCDF-4.

    The whole file is made in memory first: a full disk leaves no half of it behind.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    compressed = grid.copy()
    for variable in compressed.data_vars.values():
        # Passing `encoding` to `to_netcdf` would drop fill values and the grid mapping.
        variable.encoding |= {"zlib": True, "complevel": 4, "shuffle": True}
    write_bytes(path, bytes(compressed.to_netcdf(engine="h5netcdf")))


def write_geotiffs(grid: xr.Dataset, folder: Path) -> list[Path]:
    """Write the main variables as cloud-optimised GeoTIFFs, one band each.

    Each is float32, EPSG:3857, NaN for no data, compressed without loss, with overviews; the
    band has the variable's description and unit, the file the grid's attributes as tags.

    Parameters
    ----------
    grid
        A grid made by `geogp.maps.grid.build_grid`.
    folder
        Where ``median_mbps.tif`` and the others go.

    Returns
    -------
    list of Path
        The files: median, mean, lower and upper bound, width, function and noise sd, and the
        probability of each threshold; expected number, bounds and probability of none where
        tests are counted.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    end = quantity_of(grid.attrs["target"]).suffix
    if grid.attrs["target"] == TESTS:
        names = ["expected_tests", "lower_tests", "upper_tests", "p_none"]
    else:
        parts = [f"{part}_sd_log10" for part in ("function", "field", "tile", "noise")]
        values = [f"{value}_{end}" for value in ("median", "mean", "lower", "upper")]
        chances = [str(name) for name in grid.data_vars if str(name).startswith("p_at_")]
        names = [*values, "width_log10", *parts, *chances]
    paths = []
    for name in names:
        path = folder / f"{name}.tif"
        write_geotiff(grid, name, path)
        paths.append(path)
    return paths


def write_geotiff(grid: xr.Dataset, name: str, path: Path) -> None:
    """Write one variable of a grid as `write_geotiffs` does.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    write_bytes(path, _geotiff(grid, name))


def _geotiff(grid: xr.Dataset, name: str) -> bytes:
    band, frame = grid[name], Frame.of_grid(grid)
    with MemoryFile() as memory:
        with memory.open(
            driver="COG",
            width=frame.width,
            height=frame.height,
            count=1,
            dtype="float32",
            crs="EPSG:3857",
            transform=frame.transform,
            nodata=np.nan,
            compress="DEFLATE",
            predictor="YES",
        ) as dataset:
            dataset.write(np.asarray(band.values, np.float32), 1)
            dataset.set_band_description(1, str(band.attrs["long_name"]))
            dataset.set_band_unit(1, str(band.attrs["units"]))
            dataset.update_tags(**{str(key): str(value) for key, value in grid.attrs.items()})
        return bytes(memory.getbuffer())

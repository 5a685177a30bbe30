"""A run with its pictures: every file opens elsewhere, and the seed fixes its numbers."""

import json

import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
from PIL import Image
from run_worlds import run_json

from geogp.runs.pipeline.run_map import run_map

GRID = [
    *("median_mbps", "mean_mbps", "lower_mbps", "upper_mbps", "width_log10"),
    *("function_sd_log10", "field_sd_log10", "tile_sd_log10", "noise_sd_log10"),
]


@pytest.fixture(scope="module")
def no_pictures():
    """Leave out none here."""


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    return run_map(small.request(tmp_path_factory.mktemp("whole") / "run", zoom=12))


def test_every_file_opens_in_standard_tools(whole):
    with xr.open_dataset(whole.path / "grid.nc", engine="h5netcdf") as grid:
        assert [name for name in GRID if name not in grid] == []
        assert grid.attrs["region"] == "DEMO"
        assert grid.attrs["attribution"].startswith("Simulated")
        median = grid["median_mbps"].to_numpy()
    with netCDF4.Dataset(whole.path / "grid.nc") as grid:
        np.testing.assert_array_equal(np.ma.filled(grid["median_mbps"][:], np.nan), median)
    with rasterio.open(whole.path / "median_mbps.tif") as raster:
        assert raster.crs.to_epsg() == 3857
        np.testing.assert_array_equal(raster.read(1), median)
    for name in ("median.png", "mean.png", "bound.png", "width.png", "kernel.png"):
        with Image.open(whole.path / name) as picture:
            picture.load()
            assert picture.width > 300
    for name in ("map.html", "report.html", "report.md"):
        assert "Demo" in (whole.path / name).read_text()
    json.loads((whole.path / "report.json").read_text())
    assert not (whole.path / ".unfinished").exists()


def test_same_seed_same_numbers(whole, finished):
    """The other split and the zoom of the finished run do not matter."""
    assert run_json(whole)["metrics"]["random"] == run_json(finished)["metrics"]["random"]

"""A run's map in all its formats, and what becomes of the old ones."""

import geopandas as gpd
import mercantile
import numpy as np
import pytest
import rasterio
import xarray as xr
from run_worlds import run_json

from geogp.runs.pipeline.run_map import run_map


@pytest.fixture
def grid(finished):
    with xr.open_dataset(finished.path / "grid.nc", mask_and_scale=False) as opened:
        yield opened.load()


def test_every_format_holds_the_same_values(finished, grid):
    table = gpd.read_parquet(finished.path / "tiles.parquet")
    assert len(table) == run_json(finished)["map"]["tiles"]
    tiles = [mercantile.quadkey_to_tile(quadkey) for quadkey in table["quadkey"]]
    west, north = min(tile.x for tile in tiles), min(tile.y for tile in tiles)
    pixels = np.array([(tile.y - north, tile.x - west) for tile in tiles]).T
    names = [str(name) for name in grid.data_vars if grid[name].ndim == 2]
    assert len(names) > 12
    for name in names:
        with rasterio.open(finished.path / f"{name}.tif") as raster:
            np.testing.assert_array_equal(raster.read(1), grid[name].to_numpy())
        values = grid[name].to_numpy()[tuple(pixels)]
        np.testing.assert_array_equal(table[name].to_numpy(), values, err_msg=name)
    assert set(table["stratum"]) == {"urban", "rural"}
    names = {*names, "quadkey", "longitude", "latitude", "stratum", "geometry"}
    names |= {f"{side}_{percent}_mbps" for side in ("lower", "upper") for percent in (50, 80)}
    assert set(table.columns) == names
    assert {"tiles.parquet", "far.tif", "tests.tif"} <= set(run_json(finished)["files"])
    assert not (finished.path / "grid.zarr").exists()


@pytest.mark.trial
def test_a_large_map_is_written_as_zarr_while_it_is_large(small, tmp_path, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setattr("geogp.runs.pipeline.draw.LARGE_TILES", 10)
    for zoom in (12, 11):  # the second replaces the first
        made = run_map(small.request(out, epochs=1, zoom=zoom))
        assert run_json(made)["map"]["tiles"] > 10
        assert "grid.zarr" in run_json(made)["files"]
        with (
            xr.open_zarr(out / "grid.zarr") as found,
            xr.open_dataset(out / "grid.nc") as expected,
        ):
            xr.testing.assert_equal(found.load(), expected.load())
    monkeypatch.setattr("geogp.runs.pipeline.draw.LARGE_TILES", 1_000_000)
    made = run_map(small.request(out, epochs=1, zoom=12))
    assert "grid.zarr" not in run_json(made)["files"]
    assert not (out / "grid.zarr").exists()

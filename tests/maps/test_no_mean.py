"""A map whose distributions have no mean, as their tails fall as a power."""

from dataclasses import replace

import numpy as np
import pytest
import rasterio
from maps_worlds import irregular_region, make_world, smooth_prediction

from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import NumericalError
from geogp.maps.figures.map_figures import write_map_figures
from geogp.maps.grid import build_grid
from geogp.maps.rasters import write_geotiffs
from geogp.maps.views import views_of


def heavy(tiles):
    p = smooth_prediction(tiles)
    return replace(p, shape=NormalPlusStudent(p.function_variance, p.noise_variance, 3.0))


@pytest.fixture(scope="module")
def world():
    return make_world(irregular_region(), 12)


def grid_of(world, prediction):
    return build_grid(
        world.region,
        world.tiles,
        prediction,
        target="download",
        distance_km=world.distance_km,
        far_km=5.0,
        measured=world.measured,
    )


@pytest.fixture(scope="module")
def grid(world):
    return grid_of(world, heavy(world.tiles))


def test_the_mean_holds_no_data_and_says_why(world, grid):
    assert np.isnan(grid["mean_mbps"]).all()
    assert "does not exist" in grid["mean_mbps"].attrs["long_name"]
    np.testing.assert_array_equal(grid["median_mbps"], world.grid["median_mbps"])
    lower = heavy(world.tiles).quantile(0.025)
    found = grid["lower_mbps"].values
    np.testing.assert_allclose(np.sort(found[np.isfinite(found)]), np.sort(10**lower), rtol=1e-6)


def test_files_of_the_mean(world, grid, tmp_path):
    write_geotiffs(grid, tmp_path)
    with rasterio.open(tmp_path / "mean_mbps.tif") as found:
        assert np.isnan(found.nodata)
        assert np.isnan(found.read(1)).all()
    assert [view.name for view in views_of(grid)] == ["median", "bound", "width"]
    assert [view.name for view in views_of(world.grid)] == ["median", "mean", "bound", "width"]
    names = [path.name for path in write_map_figures(grid, world.region, tmp_path)]
    assert names == ["median.png", "bound.png", "width.png"]


def test_a_mean_beyond_float32_is_no_data_in_grid_and_files(world, tmp_path):
    p = smooth_prediction(world.tiles)
    wide = np.arange(len(p.mean)) < 5
    found = grid_of(world, replace(p, function_variance=np.where(wide, 40.0, 0.1)))
    mean = found["mean_mbps"].values
    assert not np.isinf(mean).any()
    assert np.isfinite(mean).sum() == (~wide).sum()
    assert np.isfinite(found["median_mbps"].values).sum() == len(wide)
    write_geotiffs(found, tmp_path)
    with rasterio.open(tmp_path / "mean_mbps.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), mean)
        assert np.isfinite(float(raster.tags(1)["STATISTICS_MAXIMUM"]))


def test_values_that_overflow_are_still_refused(world):
    p = smooth_prediction(world.tiles)
    with pytest.raises(NumericalError, match="upper_mbps is not finite"):
        grid_of(world, replace(p, noise_variance=np.full(len(p.mean), 900.0)))

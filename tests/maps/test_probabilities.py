"""Probabilities of thresholds on the map."""

import numpy as np
import pytest
import rasterio
from scipy.stats import norm

from geogp.errors import RequestError
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.maps.frame import Frame
from geogp.maps.grid import build_grid
from geogp.maps.rasters import write_geotiffs


def mapped(world, target="download", thresholds=()):
    return build_grid(
        world.region,
        world.tiles,
        world.prediction,
        target=target,
        distance_km=world.distance_km,
        far_km=5.0,
        measured=world.measured,
        thresholds=thresholds,
    )


@pytest.mark.parametrize(
    ("target", "value", "name"),
    [("download", 20.0, "p_at_least_20_mbps"), ("latency", 20.0, "p_at_most_20_ms")],
)
def test_values_are_those_of_the_normal_law(world, target, value, name):
    grid = mapped(world, target, (Threshold(value, target),))
    p = world.prediction
    law = norm(p.mean, np.sqrt(p.function_variance + p.noise_variance))
    expected = law.cdf(np.log10(value)) if target == "latency" else law.sf(np.log10(value))
    down, across = Frame.of_tiles(world.tiles).pixels(world.tiles)
    found = grid[name].values
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[down, across], expected, atol=1e-6)
    assert expected.min() < 0.1
    assert expected.max() > 0.9
    assert np.isnan(found).sum() == found.size - len(expected)
    assert grid[name].attrs["units"] == "1"
    side = "at most 20 ms" if target == "latency" else "at least 20 Mbps"
    assert grid[name].attrs["long_name"].endswith(f"is {side}")


def test_higher_thresholds_are_met_less(world):
    grid = mapped(world, thresholds=thresholds_of("download"))
    parts = [grid[f"p_at_least_{value}_mbps"].values for value in (7, 35, 100)]
    inside = np.isfinite(parts[0])
    assert (parts[0] >= parts[1])[inside].all()
    assert (parts[1] > parts[2])[inside].all()


def test_each_is_a_geotiff(world, tmp_path):
    grid = mapped(world, thresholds=thresholds_of("download", (7, 1.5)))
    files = {path.name for path in write_geotiffs(grid, tmp_path)}
    assert {"p_at_least_7_mbps.tif", "p_at_least_1_5_mbps.tif"} <= files
    with rasterio.open(tmp_path / "p_at_least_7_mbps.tif") as found:
        np.testing.assert_array_equal(found.read(1), grid["p_at_least_7_mbps"].values)
        assert found.descriptions == ("probability that download speed is at least 7 Mbps",)


def test_a_threshold_of_another_target_is_refused(world):
    with pytest.raises(
        RequestError, match="at most 50 ms is not a threshold of the target download"
    ):
        mapped(world, thresholds=thresholds_of("latency"))

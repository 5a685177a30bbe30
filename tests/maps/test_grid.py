import numpy as np
import pytest
from scipy.stats import norm

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, NumericalError, RequestError
from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.grid import build_grid

# rioxarray still multiplies transforms in the way that affine 3 no longer likes.
AFFINE_3 = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")

CONTRACT = {
    "median_mbps",
    "mean_mbps",
    "lower_mbps",
    "upper_mbps",
    "width_log10",
    "function_sd_log10",
    "field_sd_log10",
    "tile_sd_log10",
    "noise_sd_log10",
}


def rebuild(world, **changes):
    options = {
        "target": "download",
        "distance_km": world.distance_km,
        "far_km": 5.0,
        "measured": world.measured,
        "stratum": world.stratum,
        "settings": {},
    } | changes
    prediction = options.pop("prediction", world.prediction)
    tiles = options.pop("tiles", world.tiles)
    return build_grid(world.region, tiles, prediction, **options)


def test_names_of_variables(world, latency_world):
    others = {"distance_km", "far", "tests"}
    assert set(world.grid.data_vars) == CONTRACT | others | {"urban"}
    renamed = {name.replace("_mbps", "_ms") for name in CONTRACT}
    assert set(latency_world.grid.data_vars) == renamed | others


def test_a_level_is_a_variable_of_its_own(world):
    level = np.arange(1.0, len(world.tiles) + 1)
    found = rebuild(world, level=level)["level_mbps"]
    np.testing.assert_array_equal(
        found.values[Frame.of_tiles(world.tiles).pixels(world.tiles)], level
    )
    assert found.attrs["units"] == "Mbps"
    assert "without measurement noise" in found.attrs["long_name"]
    with pytest.raises(DataError, match=rf"but level has {len(level) - 1}"):
        rebuild(world, level=level[1:])


def test_values_are_those_of_the_log_normal_distribution(world):
    frame, p = Frame.of_tiles(world.tiles), world.prediction
    variance = p.function_variance + p.noise_variance
    draws = norm(p.mean, np.sqrt(variance))
    log_normal_mean = np.exp(np.log(10) * p.mean + np.log(10) ** 2 * variance / 2)
    expected = {
        "median_mbps": 10**p.mean,
        "mean_mbps": log_normal_mean,
        "lower_mbps": 10 ** draws.ppf(0.025),
        "upper_mbps": 10 ** draws.ppf(0.975),
        "width_log10": draws.ppf(0.975) - draws.ppf(0.025),
        "function_sd_log10": np.sqrt(p.function_variance),
        "field_sd_log10": np.sqrt(p.function_variance - p.tile_variance),
        "tile_sd_log10": np.sqrt(p.tile_variance),
        "noise_sd_log10": np.sqrt(p.noise_variance),
        "distance_km": world.distance_km,
    }
    down, across = frame.pixels(world.tiles)
    for name, values in expected.items():
        found = world.grid[name].values
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[down, across], values, rtol=1e-6, err_msg=name)
        assert np.isnan(found).sum() == found.size - len(values), name


def test_mean_and_bounds_agree_with_sampling(world):
    one = Prediction(np.array([1.0]), np.array([0.05]), np.array([0.10]))
    tiles = Tiles(world.tiles.column[:1], world.tiles.row[:1], 14)
    grid = rebuild(
        world,
        tiles=tiles,
        prediction=one,
        distance_km=np.zeros(1),
        measured=np.zeros(1),
        stratum=None,
    )
    speeds = 10 ** np.random.default_rng(0).normal(1.0, np.sqrt(0.15), 400_000)
    assert grid["mean_mbps"].item() == pytest.approx(speeds.mean(), rel=0.01)
    inside = (speeds > grid["lower_mbps"].item()) & (speeds < grid["upper_mbps"].item())
    assert inside.mean() == pytest.approx(0.95, abs=0.002)


def test_flags_and_counts(world):
    down, across = Frame.of_tiles(world.tiles).pixels(world.tiles)
    far = world.grid["far"].values
    np.testing.assert_array_equal(far[down, across] == 1, world.distance_km > 5.0)
    assert 0 < (far == 1).sum() < len(world.tiles)
    assert (far == 255).sum() == far.size - len(world.tiles)
    np.testing.assert_array_equal(world.grid["tests"].values[down, across], world.measured)
    urban = world.grid["urban"].values[down, across]
    np.testing.assert_array_equal(urban == 1, world.stratum == "urban")
    assert world.grid["urban"].attrs["flag_meanings"] == "rural urban"
    assert "2000" in world.grid["urban"].attrs["long_name"]


def test_the_lake_is_outside_and_the_island_inside(world):
    frame = Frame.of_tiles(world.tiles)
    values = world.grid["median_mbps"].values

    def at(longitude, latitude):
        from geogp.geodata.tiles.quadkeys import tiles_at

        column, row = tiles_at(longitude, latitude, 14)
        return values[row - frame.row, column - frame.column]

    assert np.isnan(at(-66.4, 18.25))
    assert np.isfinite(at(-65.75, 18.15))
    assert np.isnan(at(-65.9, 18.0))


@AFFINE_3
def test_georeference_and_attributes(world):
    grid = world.grid
    assert grid.rio.crs.to_epsg() == 3857
    frame = Frame.of_tiles(world.tiles)
    assert grid.rio.transform().almost_equals(frame.transform, precision=1e-6)
    written = [float(part) for part in grid["spatial_ref"].attrs["GeoTransform"].split()]
    np.testing.assert_allclose(written, frame.transform.to_gdal(), rtol=1e-14)
    assert np.all(np.diff(grid["y"]) < 0)
    assert grid["x"].attrs["standard_name"] == "projection_x_coordinate"
    assert grid.attrs["model"] == "dbk-rbf"
    assert grid.attrs["seed"] == 3
    assert grid["median_mbps"].attrs["units"] == "Mbit s-1"
    assert Frame.of_grid(grid) == Frame.of_tiles(world.tiles)


@pytest.mark.parametrize("part", ["distance_km", "measured", "stratum"])
def test_parts_of_another_length_are_refused(world, part):
    n = len(world.tiles)
    with pytest.raises(DataError, match=rf"each of {n} tiles, but {part} has {n - 1}"):
        rebuild(world, **{part: getattr(world, part)[:-1]})


def test_a_prediction_of_another_length_is_refused(world):
    n = len(world.tiles)
    with pytest.raises(DataError, match=rf"each of {n} tiles, but prediction has {n - 2}"):
        rebuild(world, prediction=world.prediction[2:])


def test_bad_requests_are_refused(world):
    with pytest.raises(
        RequestError, match="unknown target 'speed'; choose one of download, upload, latency, tests"
    ):
        rebuild(world, target="speed")
    with pytest.raises(RequestError, match="fresh = True"):
        rebuild(world, settings={"fresh": True})
    with pytest.raises(RequestError, match="target = 'upload' contradicts"):
        rebuild(world, settings={"target": "upload"})


def test_a_speed_beyond_float32_is_an_error(world):
    p = world.prediction
    diverged = Prediction(p.mean + 40, p.function_variance, p.noise_variance)
    with pytest.raises(NumericalError, match="median_mbps is not finite"):
        rebuild(world, prediction=diverged)

"""Maps of numbers of tests: the variables, the views and their scales."""

import json

import numpy as np
import pytest
import rasterio
from maps_worlds import irregular_region, make_slices, middle_values
from scipy import stats

from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.maps.figures.map_figures import write_map_figures
from geogp.maps.figures.panels import slices_panels
from geogp.maps.frame import Frame
from geogp.maps.grid import build_grid
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.rasters import write_geotiffs
from geogp.maps.scales import count_scale, share_scale
from geogp.maps.views import find_view, kernel_label, veiled, views_of

NAMES = ["expected", "lower", "upper", "none"]


def grid_of(zoom=12, **changes):
    region = irregular_region()
    tiles = region.tiles(zoom)
    lon, lat = tiles.centres
    log_rate = 2 + 3 * np.sin(20 * lon) * np.cos(15 * lat)
    prediction = predict_counts(log_rate, np.zeros(len(tiles)), np.full(len(tiles), 0.5))
    far = np.where(lat > lat.mean(), 20.0, 1.0)
    settings = {"target": "tests", "distance_km": far, "far_km": 5.0} | changes
    measured = np.zeros(len(tiles), np.int64)
    return (
        region,
        tiles,
        prediction,
        build_grid(region, tiles, prediction, measured=measured, **settings),
    )


def test_variables_are_those_of_the_law():
    _, tiles, prediction, grid = grid_of()
    rows = Frame.of_tiles(tiles).pixels(tiles)
    law = stats.nbinom(2.0, 1 / (1 + 0.5 * prediction.mean))
    expected = {
        "expected_tests": law.mean(),
        "lower_tests": law.ppf(0.025),
        "upper_tests": law.ppf(0.975),
        "p_none": law.pmf(0),
        "log_rate_sd": 0 * law.mean(),
        "dispersion": 0.5 + 0 * law.mean(),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(grid[name].values[rows], values, rtol=1e-5, atol=1e-9)
        assert grid[name].attrs["units"] == "1"
        assert "speed" not in grid[name].attrs["long_name"]
    assert not any("log10" in name for name in grid.data_vars)


def test_every_view_is_drawn_and_written(tmp_path):
    region, tiles, _, grid = grid_of()
    assert [view.name for view in views_of(grid)] == NAMES
    paths = write_map_figures(grid, region, tmp_path, quarter="2023Q4")
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    assert len({path.read_bytes() for path in paths}) == 4
    files = write_geotiffs(grid, tmp_path)
    expected = ["expected_tests.tif", "lower_tests.tif", "upper_tests.tif", "p_none.tif"]
    assert [path.name for path in files][:4] == expected
    assert [path.stem for path in files] == list(grid.data_vars)
    with rasterio.open(files[3]) as band:
        np.testing.assert_array_equal(band.read(1), grid["p_none"].values)
    slices = make_slices(tiles)
    tests, speeds = (
        slices_panels(region, tiles, slices, target=target).png()
        for target in ("tests", "download")
    )
    assert tests != speeds


def test_the_page_speaks_of_tests():
    region, tiles, prediction, grid = grid_of()
    quarters = [QuarterMap("2023Q4", tiles, prediction)]
    slices = make_slices(tiles)
    content = PageContent(region, tiles, "Tests", "numbers of tests", quarters, 0, slices)
    page = json.dumps(page_data(grid, content), ensure_ascii=False)
    for text in (
        "expected tests per tile of zoom 12 and quarter",
        "upper end of the 95 % interval, tests per tile of zoom 12 and quarter",
        "probability of no test in a tile of zoom 12 and quarter",
        "Probability of no test",
        "(ln)²",
    ):
        assert text in page
    for word in ("Mbps", "log10", "Median", "farther than"):
        assert word not in page


def test_tiles_without_tests_are_not_veiled():
    _, _, _, grid = grid_of()
    assert (grid["far"].values == 1).any()
    assert not veiled(grid).any()


def test_a_coarser_tile_is_named():
    _, _, _, grid = grid_of()
    assert find_view(grid, "expected").unit == "tests per tile of zoom 12 and quarter"
    grid.attrs["zoom"] = 16
    assert find_view(grid, "expected").unit == "tests per tile and quarter"
    assert kernel_label("tests") != kernel_label("download")


def test_refusals():
    _, tiles, _, grid = grid_of()
    with pytest.raises(
        RequestError, match="unknown view 'median'; choose one of expected, lower, upper, none"
    ):
        find_view(grid, "median")
    with pytest.raises(RequestError, match="expected a prediction of the target download"):
        grid_of(target="download")
    ones = np.ones(len(tiles))
    with pytest.raises(RequestError, match="expected a prediction of the target tests"):
        build_grid(
            irregular_region(),
            tiles,
            Prediction(ones, ones, ones),
            target="tests",
            distance_km=ones,
            far_km=5.0,
            measured=ones,
        )


@pytest.mark.parametrize("most", [0, 1, 3, 47, 900, 123_456])
def test_scales_of_counts_start_at_nothing(most):
    values = np.round(np.linspace(0, 1, 200) ** 3 * most)
    scale = count_scale(values, label="tests", palette="viridis")
    assert scale.ticks[0] == scale.low == 0
    assert scale.ticks[-1] == scale.high >= np.percentile(values, 99)
    assert 3 <= len(scale.ticks) <= 7
    assert all(tick == round(tick) for tick in scale.ticks)
    assert np.diff(scale.fraction(scale.ticks)).min() > 0.05
    place = scale.fraction(values)
    assert place[0] == 0
    # Equal steps are equal factors of count + 1; the middles of the colours turn it around.
    np.testing.assert_allclose(
        place[values <= scale.high],
        np.log1p(values[values <= scale.high]) / np.log1p(scale.high),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        scale.fraction(middle_values(scale)), (np.arange(96) + 0.5) / 96, atol=1e-12
    )


def test_shares_go_from_0_to_1():
    scale = share_scale(np.array([0.4, 0.5]), label="p", palette="viridis")
    assert (scale.low, scale.high, scale.ticks) == (0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1))

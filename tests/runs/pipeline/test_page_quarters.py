"""The quarters of a run's page, and what was measured in each."""

import json
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from run_worlds import run_json

from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.prediction import Prediction
from geogp.estimators.point_columns import Points
from geogp.estimators.point_scale import PointScale
from geogp.evaluation.conformal.conformal_repair import NO_REPAIR
from geogp.geodata.places.census import read_region
from geogp.geodata.places.region import Tiles
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import ZOOM, codes_to_tiles
from geogp.geodata.tiles.quarters import quarter_index
from geogp.maps.frame import Frame
from geogp.maps.page.kernel_basis import coarser
from geogp.maps.page.kernel_error import interpolated, random_places
from geogp.maps.page.packing import unpack
from geogp.maps.page.page_quantiles import PAST_LEVELS, unpack_quantiles
from geogp.models.catalogue.storage import load_model
from geogp.records.record_names import LEVEL
from geogp.runs.pipeline.map_predictor import (
    OTHER_LARGER,
    MapPredictor,
    other_zoom,
)
from geogp.runs.pipeline.run_covariates import PlaceTables
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.question import Question

QUARTERS = (quarter_index("2023Q3"), quarter_index("2023Q4"))

MOST = 300_000  # tiles of other quarters together


def data_of(result):
    page = (result.path / "map.html").read_text("utf-8")
    found = re.search(
        r'<script type="application/json" id="geogp-data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(found.group(1))


def decoded(data, tiles):
    return unpack_quantiles(data["quantiles"], data["levels"])[
        (slice(None), *Frame.of_tiles(tiles).pixels(tiles))
    ]


def past_of(data, place, tiles):
    """Return the quantiles of a quarter other than the shown one at three levels, (3, n)."""
    pixels = Frame.of_tiles(tiles).pixels(tiles)
    middle, lower, more = (unpack(one)[(place, *pixels)] for one in data["past"]["quantiles"])
    return np.stack([middle - lower, middle, middle + lower + more])


def region_of(small):
    return read_region(open_source(str(small.folder / "boundaries")), "DEMO").region


def inputs_of(region, tiles, quarter):
    scale = PointScale(region.bounds, times=QUARTERS)
    return scale.inputs(Points(*tiles.centres, np.full(len(tiles), float(quarter))))


def predicted(result, region, tiles, quarter, level):
    model = load_model(result.path / "model.safetensors")[0]
    inputs = inputs_of(region, tiles, quarter)
    asked = run_json(result)["map"]
    return model.predict(inputs, asked["tests"], asked["devices"]).quantile(level)


def test_every_quarter_of_the_data_is_in_the_page(finished, small):
    data, region = data_of(finished), region_of(small)
    assert data["quarters"] == ["2023Q3", "2023Q4"]
    assert data["shown"] == 1
    tiles = region.tiles(13)
    assert data["frame"] == data["past"]["frame"]
    for found, levels, quarter, step in (
        (past_of(data, 0, tiles), PAST_LEVELS, QUARTERS[0], "past_quantile_log10"),
        (decoded(data, tiles), data["levels"], QUARTERS[1], "quantile_log10"),
    ):
        half = data["steps"][step] * 0.50001 + 1e-6  # models compute in float32
        for level, values in zip(levels, found, strict=True):
            expected = predicted(finished, region, tiles, quarter, level)
            assert np.abs(values - expected).max() <= half


def test_the_page_holds_the_measured_averages(finished, small):
    """In each quarter, the mean of the tiles of zoom 16 in a tile, weighted by their tests."""
    data, region = data_of(finished), region_of(small)
    seen = read_observations(open_source(str(small.folder)), region).observations
    values, tests = unpack(data["measured"]), unpack(data["arrays"]["tests"])
    frame = Frame(**data["frame"])
    column, row = codes_to_tiles(seen.quadkey)
    for k, quarter in enumerate(QUARTERS):
        sums, weights = np.zeros((2, *tests.shape))
        here = seen.quarter == quarter
        at = (row[here] >> 3) - frame.row, (column[here] >> 3) - frame.column
        np.add.at(sums, at, seen.tests[here] * 10 ** seen.y[here])
        np.add.at(weights, at, seen.tests[here])
        with np.errstate(invalid="ignore"):
            found = np.log10((sums / weights)[tests > 0])
            np.testing.assert_allclose(values[k], found, rtol=0, atol=0.00251)


def test_the_page_holds_the_grid(finished, small):
    data, tiles = data_of(finished), region_of(small).tiles(13)
    middle = decoded(data, tiles)[data["levels"].index(0.5)]
    with xr.open_dataset(finished.path / "grid.nc", engine="h5netcdf") as grid:
        median = grid["median_mbps"].to_numpy()[Frame.of_tiles(tiles).pixels(tiles)]
        tests = grid["tests"].to_numpy()
    assert (
        np.abs(middle - np.log10(median)).max() <= data["steps"]["quantile_log10"] * 0.50001 + 1e-6
    )
    found = unpack(data["arrays"]["tests"])
    np.testing.assert_array_equal(found, tests)


def test_run_json_says_what_the_page_takes(finished):
    said = run_json(finished)["map"]
    assert said["page_bytes"] == (finished.path / "map.html").stat().st_size
    assert said["other_quarters"] == 1
    assert said["other_quarters_zoom"] == 13


def test_the_live_kernel_is_that_of_the_model(finished, small):
    kernel, region = data_of(finished)["kernel"], region_of(small)
    places = random_places(region.tiles(13), np.random.default_rng(7), 1500)
    c = interpolated(unpack(kernel["components"]), Frame(**kernel["frame"]), places)
    model = load_model(finished.path / "model.safetensors")[0]
    inputs = inputs_of(region, places, QUARTERS[1])
    exact = model.kernel(inputs, inputs)
    found = np.abs(c @ c.T - exact).max() / np.abs(exact).max()
    assert found <= 1.1 * kernel["error"]  # the largest k is over other places
    assert kernel["error"] < 4 * found + 1e-6


@pytest.mark.trial
def test_a_model_of_place_alone_has_one_quarter(small, tmp_path):
    result = run_map(small.request(tmp_path / "run", inputs="place", model="dbk-rbf"))
    data = data_of(result)
    assert data["quarters"] == ["2023Q4"]
    assert data["past"] is data["measured"] is None
    assert run_json(result)["map"]["other_quarters"] == 0
    assert run_json(result)["map"]["other_quarters_zoom"] is None


def test_other_quarters_have_the_maps_tiles_unless_these_are_too_many():
    column, row = (part.ravel() for part in np.meshgrid(np.arange(512), np.arange(512)))
    tiles = Tiles(column, row, 16)
    assert other_zoom(tiles[column < 256], 3_000_000) == 16
    for allowed in (1_000_000, 20_000, 500):
        zoom, most = other_zoom(tiles, allowed), min(OTHER_LARGER, allowed)
        assert len(coarser(tiles, zoom)) <= most < len(coarser(tiles, zoom + 1))


@dataclass
class _Told:
    """A model that answers with what it was asked."""

    counts: bool = False

    def predict_distribution(self, places, *, level):
        tests = set(places["tests"]) if "tests" in places else None
        self.asked = (tests, level)
        quarter = places["quarter"].dt.year * 4.0 + places["quarter"].dt.quarter - 1
        mean, longitude = quarter.to_numpy(), places["longitude"].to_numpy()
        if self.counts:
            return predict_counts(mean / 1000, np.zeros(len(mean)), np.zeros(len(mean)))
        return Prediction(mean, longitude**2 + 1, np.ones(len(mean)))


@dataclass
class _Repair:
    """A repair that notes the places and moves the mean by one."""

    n: int = 5

    def apply(self, prediction, places):
        self.places = places
        variance = prediction.function_variance
        return Prediction(prediction.mean + 1, variance, prediction.noise_variance)


@pytest.fixture
def asking(small):
    region = region_of(small)
    seen = read_observations(open_source(str(small.folder)), region).observations

    def make(model, repair, question, zoom=13):
        inputs = SimpleNamespace(region=region, observations=seen, places=PlaceTables())
        return MapPredictor(inputs, question, model, repair, zoom)

    return make


def test_the_question_and_the_repair_are_those_of_the_map(asking, small):
    tiles, repair, model = region_of(small).tiles(13), _Repair(), _Told()
    asker = asking(model, repair, Question("tile-mean", 8095, 8095, 4))
    maps = asker.other_quarters(tiles, [8090, 8094], MOST)
    assert [one.label for one in maps] == ["2022Q3", "2023Q3"]
    assert model.asked == ({4}, False)
    for one, quarter in zip(maps, (8090, 8094), strict=True):
        np.testing.assert_array_equal(one.prediction.mean, quarter + 1)
        np.testing.assert_allclose(one.prediction.function_variance, one.tiles.centres[0] ** 2 + 1)
    n = len(maps[0].tiles)
    assert len(repair.places.longitude) == 2 * n
    np.testing.assert_array_equal(repair.places.longitude[n:], maps[0].tiles.centres[0])
    assert set(repair.places.stratum) == {"urban", "rural"}
    assert (repair.places.tests == 4).all()


def test_a_level_is_not_repaired(asking, small):
    model = _Told()
    asker = asking(model, _Repair(), Question(LEVEL, 8095, 8095, None))
    (found,) = asker.other_quarters(region_of(small).tiles(13), [8094], MOST)
    assert model.asked == (None, True)
    np.testing.assert_array_equal(found.prediction.mean, 8094)


def test_numbers_of_tests_are_those_of_a_tile_of_the_map(asking, small):
    asker = asking(_Told(counts=True), NO_REPAIR, Question("count", 8095, 8095, None))
    (found,) = asker.other_quarters(region_of(small).tiles(13), [8094], MOST)
    np.testing.assert_allclose(found.prediction.mean, np.exp(8.094) * 4 ** (ZOOM - 13))

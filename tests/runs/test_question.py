"""What a map predicts: the question, the tests and the quarter."""

import html
import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from run_worlds import Heard, run_json

from geogp.answers.run import open_run
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.catalogue.storage import load_model
from geogp.models.field.predictive_law import no_law
from geogp.runs.finished_run import RunResult
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.trial


def _grid(result: RunResult) -> xr.Dataset:
    with xr.open_dataset(result.path / "grid.nc", engine="h5netcdf") as grid:
        return grid.load()


def _predicted(result: RunResult, *, plain: bool = False) -> Prediction:
    """Predictions of the tiles of a map; `plain` has no law of prediction errors."""
    run = open_run(result.path)
    opened = run.reopen(tests=run.record.map.tests, devices=run.record.map.devices)
    asked, network = opened.question, opened.model.network_
    table = opened.inputs.places.of_tiles(
        opened.tiles, asked.quarter, tests=asked.tests, devices=asked.devices
    )
    if plain:
        errors = replace(network.errors, law=no_law())
        opened.model.network_ = replace(network, errors=errors)
    return opened.model.predict_distribution(table)


@pytest.fixture(scope="module")
def maps(small, tmp_path_factory) -> dict[str, RunResult]:
    folder = tmp_path_factory.mktemp("questions")
    fitted = {"usual": {}, "level": {"question": "level"}, "later": {"at": "2025Q4"}}
    drawn = {
        "one": {"question": "single-test"},
        "many": {"tests": 50},
        "earlier": {"at": "2023Q3"},
    }
    made = {name: run_map(small.request(folder / name, **more)) for name, more in fitted.items()}
    for name in drawn:
        shutil.copytree(made["usual"].path, folder / name)
    return made | {
        name: run_map(small.request(folder / name, **more)) for name, more in drawn.items()
    }


def test_the_usual_map_is_of_the_median_tests_in_the_latest_quarter(maps):
    assert run_json(maps["usual"])["map"]["for"] == "tile-mean"
    assert run_json(maps["usual"])["map"]["tests"] == 3
    assert run_json(maps["usual"])["map"]["at"] == "2023Q4"
    assert run_json(maps["usual"])["map"]["quarters_beyond_data"] == 0
    page = html.unescape((maps["usual"].path / "map.html").read_text("utf-8"))
    assert "The map predicts tile averages over 3 tests from 2 devices." in page
    assert "19 of 20 tile averages over 3 tests from 2 devices" in page


def test_more_tests_are_narrower_and_the_level_narrowest(maps):
    one, usual, many, level = (
        np.nanmean(_grid(maps[name])["width_log10"]) for name in ("one", "usual", "many", "level")
    )
    assert one > usual > many > level > 0
    assert float(_grid(maps["level"])["noise_sd_log10"].max()) == 0
    page = (maps["level"].path / "map.html").read_text("utf-8")
    assert "19 of 20 levels around which measurements scatter" in page


def test_the_question_changes_no_score(maps):
    scores = [run_json(result)["metrics"] for result in maps.values()]
    assert all(found == scores[0] for found in scores)


def test_the_parts_make_up_the_whole(maps):
    grid = _grid(maps["usual"])
    variance = grid["function_sd_log10"] ** 2 + grid["noise_sd_log10"] ** 2
    tile, function = (grid[f"{part}_sd_log10"].to_numpy() for part in ("tile", "function"))
    inside = np.isfinite(function)
    assert inside.sum() > 200
    assert (tile[inside] > 0).all()
    assert (tile[inside] <= function[inside]).all()
    found = _predicted(maps["usual"])
    low, high = found.interval()
    np.testing.assert_allclose(
        np.sort(grid["width_log10"].to_numpy()[inside]), np.sort(high - low), rtol=1e-4
    )
    np.testing.assert_allclose(
        np.sort(variance.to_numpy()[inside]), np.sort(found.variance), rtol=1e-4
    )


def test_beyond_the_data_the_level_stays_and_the_width_grows(maps):
    usual, later = _grid(maps["usual"]), _grid(maps["later"])
    wider = later["width_log10"].to_numpy() - usual["width_log10"].to_numpy()
    wider = wider[np.isfinite(wider)]
    # Far from tiles, and without a drift, it grows by less than the grid's float32 tells.
    assert (wider >= 0).all()
    assert np.mean(wider > 0) > 0.9
    # With two quarters their one change is what eight more quarters may do again and again.
    model = load_model(maps["later"].path / "model.safetensors")[0]
    grown = later["field_sd_log10"].to_numpy() ** 2 - usual["field_sd_log10"].to_numpy() ** 2
    law = _predicted(maps["usual"]).variance / _predicted(maps["usual"], plain=True).variance
    expected = 8 * float(model.drift[0]) * float(model.y_sd) ** 2 * law
    grown = grown[np.isfinite(grown)]
    assert (grown >= 0.95 * expected.min() - 1e-5).all()
    # After eight quarters, the rows of a tile also tell a little less about the tile itself.
    assert (grown <= 1.05 * expected.max() + 1e-3).all()
    assert run_json(maps["later"])["map"]["quarters_beyond_data"] == 8
    assert any("the data end in 2023Q4" in text for text in run_json(maps["later"])["warnings"])
    page = (maps["later"].path / "map.html").read_text("utf-8")
    assert "2025Q4 (data end in 2023Q4)" in page


def test_another_quarter_of_the_data_is_another_map(maps):
    usual, earlier = _grid(maps["usual"]), _grid(maps["earlier"])
    assert run_json(maps["earlier"])["map"]["quarter"] == "2023Q3"
    assert run_json(maps["earlier"])["map"]["quarters_beyond_data"] == 0
    assert not np.allclose(usual["median_mbps"], earlier["median_mbps"], equal_nan=True)


class TestRefusals:
    def test_a_quarter_before_the_data(self, small, tmp_path):
        with pytest.raises(
            RequestError, match="2020Q1 lies before the data, which start in 2023Q3"
        ):
            run_map(small.request(tmp_path / "run", at="2020Q1"))

    def test_a_quarter_beyond_the_data_without_the_field_model(self, small, tmp_path):
        with pytest.raises(
            RequestError, match="only the model field states the uncertainty of later quarters"
        ):
            run_map(small.request(tmp_path / "run", at="2025Q1", model="dbk-silu"))

    def test_a_quarter_without_time(self, small, tmp_path):
        with pytest.raises(RequestError, match="--at 2023Q3 needs the quarter as an input"):
            run_map(small.request(tmp_path / "run", at="2023Q3", inputs="place"))

    def test_no_tests(self, small, tmp_path):
        with pytest.raises(RequestError, match="expected tests from 1 to 1,000,000, found 0"):
            small.request(tmp_path / "run", tests=0)

    def test_an_unknown_question(self, small, tmp_path):
        with pytest.raises(RequestError, match="tile-mean"):
            small.request(tmp_path / "run", question="tile-maen")

    def test_a_model_that_does_not_know_tests_says_so(self, small, tmp_path):
        request = small.request(tmp_path / "run", model="dbk-silu", epochs=1, tests=5)
        run = run_json(run_map(request))
        assert any("does not depend on the number of tests" in text for text in run["warnings"])
        assert run["map"]["tests"] is None
        page = (tmp_path / "run" / "map.html").read_text("utf-8")
        assert "19 of 20 new measurements, with as many tests as in the data" in page


def test_another_question_is_answered_from_the_fitted_model(small, maps, tmp_path):
    first, folder = maps["usual"], tmp_path / "run"
    shutil.copytree(first.path, folder)
    model = (folder / "model.safetensors").read_bytes()
    heard = Heard()
    again = run_map(small.request(folder, question="level"), heard)
    assert "drawing the map of the fitted model again" in heard.texts
    assert not any(text.startswith("fitting") for text in heard.texts)
    xr.testing.assert_identical(_grid(again), _grid(maps["level"]))
    assert (folder / "model.safetensors").read_bytes() == model
    assert again.record.seconds["fit"] == first.record.seconds["fit"]
    for key in ("metrics", "baseline", "n", "weights", "warnings"):
        assert getattr(again.record, key) == getattr(first.record, key)
    assert "levels around which measurements scatter" in (folder / "map.html").read_text("utf-8")
    assert run_map(small.request(folder, question="level")).already_there
    back = run_map(small.request(folder, zoom=12))
    assert run_json(back)["map"]["zoom"] == 12
    assert run_json(back)["map"]["for"] == "tile-mean"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"zoom": 9}, "no tile of zoom 9 has its centre in Demo; choose a higher zoom"),
        ({"question": "level"}, "dnn does not state the uncertainty of its level"),
    ],
)
def test_what_cannot_be_mapped_is_refused_before_any_fit(small, tmp_path, asked, message):
    heard = Heard()
    with pytest.raises(RequestError, match=message):
        run_map(small.request(tmp_path / "run", model="dnn", split="random", **asked), heard)
    assert heard.texts == ["reading boundaries and tiles"]
    assert not (tmp_path / "run").exists()

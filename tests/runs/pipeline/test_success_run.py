"""Maps of successes and of measurements with known errors, from the file to the answers."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import run_json
from scipy.special import expit

import geogp
from geogp.answers.run import open_run
from geogp.errors import RequestError
from geogp.maps.page.packing import unpack
from geogp.models.exact import passes
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline import plan
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import RunListener

WEST, EAST, SOUTH, NORTH = -66.5, -66.3, 18.0, 18.15


def probability(longitude):
    """Return the true probability of success in per cent: higher in the east."""
    return 100 * expit(-1.5 + 5 * (longitude - WEST) / (EAST - WEST))


def written(path, n, seed=0):
    random = np.random.default_rng(seed)
    longitude, latitude = random.uniform((WEST, SOUTH), (EAST, NORTH), (n, 2)).T
    longitude, latitude = longitude.round(2), latitude.round(2)  # several tests in a tile
    works = random.random(n) < probability(longitude) / 100
    error = random.choice([0.5, 8.0], n)
    speed = 10 ** (1.5 + (longitude - WEST)) + error * random.standard_normal(n) / 4
    table = {
        "time": np.where(random.random(n) < 0.5, "2023-08-05", "2023-11-05"),
        "lat": latitude,
        "lon": longitude,
        "download_mbps": np.where(works, speed, np.nan),
        "precision": error,
    }
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def request(path, out, **changes):
    given = {"preset": "quick", "zoom": 14, "self_contained": True, "split": "random", "out": out}
    return MapSettings(points=str(path), **given | changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("success")
    path = written(folder / "own.csv", 600)
    return run_map(
        request(path, folder / "run", target="success", at_least=1.0, threshold=(80.0,)), wait=True
    )


@pytest.fixture(scope="module")
def opened(run):
    return open_run(run.path)


def test_the_map_is_the_probability_of_success(run):
    told = run_json(run)
    assert (told["target"], told["map"].get("for"), told["map"].get("tests")) == (
        "success",
        "level",
        None,
    )
    assert told["settings"]["data"]["at_least"] == 1.0
    tiles = pd.read_parquet(run.path / "tiles.parquet")
    truth = probability(tiles["longitude"].to_numpy())
    lower, middle, upper = (tiles[f"{end}_percent"] for end in ("lower", "median", "upper"))
    assert ((lower >= 0) & (lower < middle) & (middle < upper) & (upper <= 100)).all()
    assert np.sqrt(np.mean((middle - truth) ** 2)) < 0.3 * truth.std()
    assert ((lower <= truth) & (truth <= upper)).mean() > 0.8
    likely = tiles["p_at_least_80_percent"]
    assert likely[truth > 93].min() > 0.5 > likely[truth < 60].max()
    np.testing.assert_allclose(tiles["width_points"], upper - lower, atol=1e-3)


def test_test_rows_are_scored_by_their_numbers_of_tests(run):
    scores, base = (run_json(run)[part]["random"]["all"] for part in ("metrics", "baseline"))
    rows = pd.read_parquet(run.path / "test_predictions.parquet")
    np.testing.assert_array_equal(rows["share_tests"], rows["tests"])
    assert rows["y"].between(0, 100).all()
    assert scores["nll"] < base["nll"]
    assert scores["coverage_80"] > 0.75


def in_page(run, name):
    page = (run.path / "map.html").read_text()
    return json.loads(re.search(rf'id="geogp-{name}">(.*?)</script>', page, re.DOTALL)[1])


def test_report_and_page_speak_of_shares_in_per_cent(run):
    report, data = (run.path / "report.md").read_text(), in_page(run, "data")
    assert "Errors, scores and widths are in points." in report
    assert "Map of the share of tests that succeeded" in report
    assert (data["unit"], data["most"], data["linear"]) == ("%", 100.0, True)
    assert data["subject"] == "share of tests that succeeded"
    assert data["predicted"] == "probabilities that a test succeeds"
    assert data["threshold"]["shown"] == 80
    assert all(0 < value < 100 for value in data["threshold"]["values"])
    labels = {layer["label"] for layer in data["layers"]}
    assert "median share of tests that succeeded, %" in labels
    assert "width of the 95 % interval, points" in labels
    scale = next(layer for layer in data["layers"] if layer["id"] == "level")["scale"]
    assert scale["low"] >= 0
    assert scale["high"] <= 100
    middle = unpack(data["quantiles"][data["levels"].index(0.5)])
    with xr.open_dataset(run.path / "grid.nc") as grid:
        assert grid["median_percent"].attrs["units"] == "percent"
        np.testing.assert_allclose(
            middle, grid["median_percent"].to_numpy(), atol=data["steps"]["quantile_points"]
        )
    for text in (report, json.dumps(data)):
        assert not re.search(r"log10|Mbps|How fast|geometric|as a factor|tenfold|\bdB", text)


def test_answers_are_in_per_cent(opened):
    place = opened.at([18.07], [-66.31])
    assert place["median_percent"].iloc[0] == pytest.approx(probability(-66.31), abs=8)
    assert place["upper_95_percent"].iloc[0] <= 100
    areas = opened.areas(by="h3:5")
    assert areas["level_mean_percent"].between(0, 100).all()
    assert (areas["level_mean_upper_percent"] <= 100).all()
    change = opened.change(start="2023Q3", by="h3:5")
    assert change["change_points"].abs().max() < 30
    below = opened.exceedance(threshold=(80.0,))
    assert 0.2 < below["mean"].iloc[0] < 0.9


def test_what_depends_on_the_noise_of_a_share_is_refused(opened):
    with pytest.raises(RequestError, match="predicts the probability that a test succeeds"):
        opened.at([18.07], [-66.31], question="single-test")
    with pytest.raises(RequestError, match="means of tests are not defined for shares of tests"):
        opened.areas(by="h3:5", question="tile-mean")
    with pytest.raises(RequestError, match="geogp next needs a noise that is the same"):
        opened.next(tiles=2)


def same_as_the_library(run, settings, **parameters):
    """Compare the model of a run with that of the library, on the same rows and some places."""
    inputs = read_inputs(settings, RunListener())
    table = inputs.table
    model = geogp.FieldGP(time="quarter", tests="tests", validation="random", **parameters)
    model.fit_watched(
        table, inputs.observations.y, scale=geogp.load_model(run.path / "model.safetensors").scale_
    )
    loaded = geogp.load_model(run.path / "model.safetensors")
    assert (loaded.path_, model.path_) == ("exact", "exact")
    some = table.iloc[:20]
    for level in (True, False):
        own, other = (one.predict_distribution(some, level=level) for one in (loaded, model))
        np.testing.assert_allclose(own.mean, other.mean, rtol=1e-6)
        np.testing.assert_allclose(own.variance, other.variance, rtol=1e-5)
    return loaded, table


def settings_of_all_rows(path, out, **changes):
    """Return settings whose map is fitted to all rows, as the library's model is."""
    return request(path, out, preset="standard", **changes)


def test_known_errors_reach_the_model_of_the_map(tmp_path):
    path = written(tmp_path / "own.csv", 200)
    settings = settings_of_all_rows(path, tmp_path / "run", columns=("error_sd=precision",))
    run = run_map(settings, wait=True)
    loaded, table = same_as_the_library(run, settings, error_variance="error_variance")
    assert table["error_variance"].max() > 50 * table["error_variance"].min() > 0
    perfect = loaded.predict_distribution(table.drop(columns="error_variance"))
    known = loaded.predict_distribution(table)
    np.testing.assert_allclose(known.variance - perfect.variance, table["error_variance"])
    assert run_json(run)["points"]["understood"]["error_sd"] == "from the column precision, Mbps"


def test_more_rows_than_an_exact_process_takes_are_refused(tmp_path, monkeypatch):
    assert plan.MOST_ROWS == passes.MOST_ROWS
    monkeypatch.setattr(plan, "MOST_ROWS", 50)
    path = written(tmp_path / "own.csv", 200)
    with pytest.raises(RequestError, match=r"error_sd= needs an exact process, of at most 50 rows"):
        run_map(request(path, tmp_path / "run", columns=("error_sd=precision",)))

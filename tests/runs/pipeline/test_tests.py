"""The main job for numbers of tests, from files to files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import Heard, run_json

import geogp
from geogp.answers.pages import remake_report
from geogp.distributions.count_prediction import CountPrediction
from geogp.errors import DataError, RequestError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.metrics import score
from geogp.geodata.places.census import read_region
from geogp.geodata.store.sources import open_source
from geogp.models.catalogue.storage import load_model
from geogp.models.papers.counts.cox import CoxGP
from geogp.records.map_settings import MapSettings
from geogp.runs.finished_run import RunResult
from geogp.runs.pipeline.run_map import run_map


def _table(run: RunResult) -> pd.DataFrame:
    return pd.read_parquet(run.path / "test_predictions.parquet")


def test_the_run_is_whole(counted, small):
    run = json.loads((counted.path / "run.json").read_text())
    assert (run["target"], run["model"]) == ("tests", "cox-nb")
    assert run["map"]["for"] == "count"
    region = read_region(open_source(str(small.folder / "boundaries")), "DEMO").region
    assert sum(run["n"]["random"].values()) == 2 * len(region.tiles(16))
    assert sum(run["n"]["blocks"].values()) == 2 * len(region.tiles(16))
    expected = {"expected.png", "lower.png", "upper.png", "none.png", "kernel.png", "map.html"}
    expected |= {"grid.nc", "expected_tests.tif", "lower_tests.tif", "upper_tests.tif"}
    assert expected | {"p_none.tif", "report.html"} <= set(run["files"])
    model, context = load_model(counted.path / "model.safetensors")
    assert isinstance(model, CoxGP)
    assert context["inputs"]["area_km2"] == pytest.approx(0.34, abs=0.1)


def test_its_model_predicts_the_tiles_that_a_program_reads(counted, small):
    table = _table(counted)
    region = geogp.read_region("DEMO", boundaries=small.folder / "boundaries")
    tiles = geogp.read_tiles(region, target="tests", source=small.folder)
    rows = table[table["split"] == "random"][["quadkey", "quarter", "lower_95", "upper_95"]]
    both = tiles.assign(label=tiles["quarter"].astype(str)).merge(
        rows, left_on=["quadkey", "label"], right_on=["quadkey", "quarter"], suffixes=("", "_row")
    )
    found = geogp.load_model(counted.path / "model.safetensors").predict_distribution(both)
    assert len(both) == len(rows) > 100
    np.testing.assert_array_equal(found.interval(0.95), [both["lower_95"], both["upper_95"]])


def test_figures_follow_from_the_table_and_beat_the_baseline(counted):
    table = _table(counted)
    assert (table["y"] == table["tests"]).all()
    assert (table["y"] == 0).mean() > 0.5
    for split, rows in table.groupby("split"):
        prediction = prediction_of(rows)
        assert isinstance(prediction, CountPrediction)
        own, other = (run_json(counted)[key][split]["all"] for key in ("metrics", "baseline"))
        assert own["nll"] == pytest.approx(score(prediction, rows["y"].to_numpy()).nll)
        if split == "random":  # a few tests in a few places do not tell of other places
            assert own["nll"] < other["nll"] - 0.02
            assert own["crps"] < other["crps"]
        mae = np.abs(rows["y"] - prediction.quantile(0.5)).mean()
        assert own["mae"] == pytest.approx(mae)
        lower, upper = prediction.interval(0.95)
        np.testing.assert_array_equal(rows["lower_95"], lower)
        inside = (rows["y"] >= lower) & (rows["y"] <= upper)
        assert own["coverage_95"] == pytest.approx(inside.mean())
        assert inside.mean() > 0.95


def test_the_map_says_what_is_expected_and_where_nothing_is(counted):
    with xr.open_dataset(counted.path / "grid.nc", engine="h5netcdf") as grid:
        expected, none = grid["expected_tests"].to_numpy(), grid["p_none"].to_numpy()
        lower, upper = grid["lower_tests"].to_numpy(), grid["upper_tests"].to_numpy()
        inside = np.isfinite(expected)
        assert (lower[inside] <= upper[inside]).all()
        assert ((none[inside] >= 0) & (none[inside] <= 1)).all()
        # Tiles of zoom 13 hold 64 of zoom 16: the map sums to about the tests of a quarter.
        measured = grid["tests"].to_numpy()[inside].sum() / 2
        assert expected[inside].sum() == pytest.approx(measured, rel=0.35)
        assert np.corrcoef(none[inside], expected[inside])[0, 1] < 0


def test_the_report_says_how_counts_are_judged_and_is_rebuilt(counted):
    names = ("report.json", "report.md", "report.html")
    before = {name: (counted.path / name).read_bytes() for name in names}
    for name in names:
        (counted.path / name).unlink()
    remake_report(counted.path)
    assert before == {name: (counted.path / name).read_bytes() for name in names}
    text = (counted.path / "report.md").read_text()
    assert "tests per tile and quarter" in text
    assert "correct intervals would contain" in text
    assert "Counts are whole numbers" in text
    assert "expected tests per tile and quarter" in text
    assert "factor" not in text
    report = json.loads(before["report.json"])
    for split in report["splits"].values():
        group = split["groups"]["all"]
        assert group["coverage_expected"]["coverage_95"] > 0.95
        assert group["median_factor_95"] is None
        kinds = {one["kind"] for one in split["strata"]}
        assert kinds >= {"stratum", "quarter", "expected"}
        assert not kinds & {"tests", "speed"}


def test_an_edited_table_is_noticed(counted, tmp_path):
    (tmp_path / "run.json").write_bytes((counted.path / "run.json").read_bytes())
    table = _table(counted)
    table["y"] += 1
    table.to_parquet(tmp_path / "test_predictions.parquet")
    with pytest.raises(DataError, match=r"predictions\.parquet with the size and SHA-256 that run"):
        remake_report(tmp_path)


@pytest.mark.trial
def test_the_poisson_model_can_be_asked_for_and_redrawn(small, tmp_path):
    request = small.request(tmp_path / "run", target="tests", model="cox", epochs=1)
    heard = Heard()
    run = run_map(request, heard)
    assert run_json(run)["model"] == "cox"
    assert "the model cox predicts numbers of tests" in heard.texts
    assert _table(run)["dispersion"].max() == 0
    again = run_map(
        small.request(tmp_path / "run", target="tests", model="cox", epochs=1, at="2023Q3")
    )
    assert run_json(again)["map"]["at"] == "2023Q3"
    assert again.record.metrics == run.record.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target": "tests", "model": "dbk-rbf"},
            "found --model dbk-rbf. Leave --model out to use cox-nb",
        ),
        ({"target": "tests", "model": "field"}, "needs a model for numbers of tests"),
        ({"target": "upload", "model": "cox"}, "use field, or map --target tests"),
        ({"target": "tests", "question": "level"}, "--for, --tests and --devices describe"),
        ({"target": "tests", "tests": 5}, "--for, --tests and --devices describe"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(RequestError, match=message):
        MapSettings("PR", source="tiles", boundaries="borders", **changes)


def test_the_model_follows_the_target():
    assert MapSettings("PR", source="tiles", boundaries="borders").model == "field"
    assert MapSettings("PR", source="tiles", boundaries="borders", target="tests").model == "cox-nb"


@pytest.mark.trial
def test_place_alone_has_the_offset_too(small, tmp_path):
    request = small.request(tmp_path / "run", target="tests", inputs="place", epochs=1)
    assert run_json(run_map(request))["settings"]["model"]["inputs"] == "place"
    model, _ = load_model(Path(tmp_path / "run" / "model.safetensors"))
    assert model.architecture.columns == ("longitude", "latitude", "log_exposure")

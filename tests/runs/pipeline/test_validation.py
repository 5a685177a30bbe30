"""Splits and folds within the main job, from files to files."""

import json
import shutil

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from run_worlds import Heard, Small, run_json
from shapely.geometry import box

from geogp.answers.pages import remake_report
from geogp.answers.run import open_run
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.evaluation.metrics import score
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles import parquet_files
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.models.catalogue.storage import load_model
from geogp.runs.finished_run import RunResult
from geogp.runs.pipeline import splits
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.pipeline.splits import make_splits
from geogp.runs.progress import RunListener

pytestmark = pytest.mark.trial

SPLITS = ["random", "tiles", "blocks", "buffer", "county", "latest"]
FOLDS = 2


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Small:
    """A source of 2,000 rows in four quarters, with twelve counties and a layer of two halves."""
    folder, region = tmp_path_factory.mktemp("wide"), simple_region()
    quarters = parse_quarters("2023Q1..2023Q4").all
    write_simulation(simulate(region, rows=2000, quarters=quarters, seed=1), region, folder)
    west, south, east, north = region.bounds
    x, y = np.linspace(west, east, 5), np.linspace(south, north, 4)
    cells = [box(x[i], y[j], x[i + 1], y[j + 1]) for i in range(4) for j in range(3)]
    counties = gpd.GeoDataFrame({"NAME": [f"C{k}" for k in range(12)]}, geometry=cells, crs=4269)
    counties.to_parquet(folder / "boundaries" / "counties_DEMO.parquet")
    halves = [box(west, south, x[2], north), box(x[2], south, x[3], north)]
    layer = gpd.GeoDataFrame({"zone": ["west", "middle"]}, geometry=halves, crs=4326)
    layer.to_parquet(folder / "halves.parquet")
    return Small(folder)


def request_of(wide: Small, out, **changes):
    more = {"model": "dbk-silu", "epochs": 1, "zoom": 12, **changes}
    return wide.request(out, **more)


@pytest.fixture(scope="module")
def everything(wide, tmp_path_factory) -> RunResult:
    """All splits, two folds each, calibration rows kept, one layer."""
    out = tmp_path_factory.mktemp("everything") / "run"
    layers = (f"{wide.folder / 'halves.parquet'}:zone",)
    return run_map(
        request_of(
            wide, out, split="all", folds=FOLDS, buffer_km=4.0, conformal="marginal", layers=layers
        )
    )


@pytest.fixture(scope="module")
def unrepaired(wide, tmp_path_factory) -> RunResult:
    return run_map(request_of(wide, tmp_path_factory.mktemp("unrepaired") / "run"))


@pytest.fixture(scope="module")
def marginal(wide, tmp_path_factory) -> RunResult:
    out = tmp_path_factory.mktemp("marginal") / "run"
    return run_map(request_of(wide, out, conformal="marginal"))


def table_of(run: RunResult) -> pd.DataFrame:
    return pd.read_parquet(run.path / "test_predictions.parquet")


def test_run_json_tells_of_every_fold(everything):
    run = json.loads((everything.path / "run.json").read_text())
    assert list(run["metrics"]) == list(run["folds"]) == list(run["n"]) == SPLITS
    settings = run["settings"]["checks"]
    assert (settings["splits"], settings["folds"]) == (SPLITS, FOLDS)
    assert (settings["conformal"], settings["buffer_km"]) == ("marginal", 4.0)
    assert settings["layers"][0].endswith("halves.parquet:zone")
    assert "halves.parquet" in {file["name"] for file in run["inputs"]}
    for split, folds in run["folds"].items():
        assert len(folds) == FOLDS
        assert run["n"][split] == folds[0]["n"]
        for fold in folds:
            assert sum(fold["n"].values()) == 2000
            assert fold["n"]["calibration"] > 50
            assert fold["n"]["test"] == fold["metrics"]["all"]["n"] == fold["baseline"]["all"]["n"]
        tested = sum(fold["n"]["test"] for fold in folds)
        for key in ("metrics", "baseline"):
            assert run[key][split]["all"]["n"] == tested
            nll = [fold[key]["all"]["nll"] * fold["n"]["test"] / tested for fold in folds]
            assert run[key][split]["all"]["nll"] == pytest.approx(sum(nll))


def test_a_small_part_is_a_warning_once_for_all_folds(everything):
    """Test rows of both folds count together; validation rows are those of the smaller fold."""
    run = run_json(everything)
    said = [text for text in run["warnings"] if "split has only" in text]
    expected = []
    for split in SPLITS:
        n = min(fold["n"]["validation"] for fold in run["folds"][split])
        expected.append(f"the {split} split has only {n} validation rows, fewer than 300")
    assert [text.split(":")[0] for text in said] == expected


def test_pooled_figures_follow_from_the_table(everything):
    table = table_of(everything)
    for split in SPLITS:
        rows = table[table["split"] == split]
        assert sorted(rows["fold"].unique()) == [0, 1]
        assert not rows.duplicated(["quadkey", "quarter"]).any()
        found = score(prediction_of(rows), rows["y"].to_numpy())
        stored = run_json(everything)["metrics"][split]["all"]
        assert (found.nll, found.rmse) == pytest.approx((stored["nll"], stored["rmse"]))
        for fold, of_fold in rows.groupby("fold"):
            held = run_json(everything)["folds"][split][fold]["metrics"]["all"]
            assert score(prediction_of(of_fold), of_fold["y"].to_numpy()).crps == pytest.approx(
                held["crps"]
            )


def test_rows_are_told_by_county_layer_and_distance(everything):
    table = table_of(everything)
    of_split = dict(list(table.groupby("split")))
    assert set(table["layer_halves"]) == {"west", "middle", "elsewhere"}
    assert of_split["random"]["distance_km"].min() == 0
    assert of_split["tiles"]["distance_km"].min() > 0
    assert of_split["blocks"]["distance_km"].min() > 0
    assert of_split["buffer"]["distance_km"].min() >= 4.0
    assert of_split["blocks"]["distance_km"].min() < 4.0
    tested = of_split["county"].groupby("county")["fold"].nunique()
    assert len(tested) >= 4
    assert (tested == 1).all()
    latest = of_split["latest"].groupby("fold")["quarter"].unique()
    assert [list(quarters) for quarters in latest] == [["2023Q4"], ["2023Q3"]]


def test_the_report_is_rebuilt_and_says_what_each_split_asks(everything):
    before = (everything.path / "report.html").read_bytes()
    (everything.path / "report.html").unlink()
    remake_report(everything.path)
    assert (everything.path / "report.html").read_bytes() == before
    report = json.loads((everything.path / "report.json").read_text())
    assert list(report["splits"]) == ["blocks", "buffer", "county", "random", "tiles", "latest"]


def test_the_map_does_not_learn_from_its_calibration_rows(everything, wide, tmp_path):
    """A model standardises by the rows it is fitted to."""
    request = request_of(wide, tmp_path / "run", conformal="local")
    inputs = read_inputs(request, RunListener())
    plan = make_splits(request, inputs, RunListener())
    kept = plan.rows("random", 0, "train")
    model, _ = load_model(everything.path / "model.safetensors")
    assert float(model.y_mean) == pytest.approx(inputs.observations.y[kept].mean(), abs=1e-12)
    np.testing.assert_array_equal(
        splits.map_calibration_rows(request, inputs), plan.rows("random", 0, "calibration")
    )
    refitted = run_map(request_of(wide, tmp_path / "run", conformal="marginal", split="latest"))
    kept = ~(plan.rows("random", 0, "validation") | plan.rows("random", 0, "calibration"))
    model, _ = load_model(refitted.path / "model.safetensors")
    assert float(model.y_mean) == pytest.approx(inputs.observations.y[kept].mean(), abs=1e-12)


@pytest.mark.parametrize("split", ["blocks", "random,blocks"])
def test_rows_that_choose_the_weights_are_neither_tested_nor_kept(wide, tmp_path, split):
    request = request_of(wide, tmp_path / "run", split=split, conformal="strata", folds=2)
    plan = make_splits(request, read_inputs(request, RunListener()), RunListener())
    train, check = splits.tuning_rows(request, plan)
    assert min(train.sum(), check.sum()) > 20
    for name in request.splits:
        assert not (plan.rows(name, 0, "test") & (train | check)).any()
        assert not (plan.rows(name, 1, "calibration") & (train | check)).any()
    assert not (plan.rows("random", 0, "calibration") & (train | check)).any()
    assert not (train & check).any()


def test_weights_that_no_row_is_left_to_choose_are_refused(wide, tmp_path):
    request = request_of(
        wide, tmp_path / "run", split="all", conformal="strata", folds=2, tune_weights=True
    )
    plan = make_splits(request, read_inputs(request, RunListener()), RunListener())
    everything = {one: np.full_like(codes, 2) for one, codes in plan.codes.items()}
    with pytest.raises(RequestError, match="no rows left: "):
        splits.tuning_rows(request, splits.Splits(everything))


def test_too_few_rows_to_calibrate_are_refused_before_any_fit(small, tmp_path):
    request = small.request(
        tmp_path / "run", quarters="2023Q4", conformal="local", model="dbk-silu", epochs=1, zoom=12
    )
    with pytest.raises(DataError, match=r"at least 157 calibration rows .* choose marginal"):
        run_map(request)
    assert not list((tmp_path / "run").glob("**/*.safetensors"))


def test_the_first_fold_does_not_depend_on_the_others(everything, wide, tmp_path):
    alone = run_map(request_of(wide, tmp_path / "run", split="county", conformal="strata"))
    assert run_json(alone)["folds"]["county"] == [run_json(everything)["folds"]["county"][0]]
    table = table_of(everything)
    same = table[(table["split"] == "county") & (table["fold"] == 0)]
    np.testing.assert_array_equal(table_of(alone)["mean"], same["mean"])


def test_a_stopped_run_of_folds_continues_to_the_same_numbers(everything, wide, tmp_path):
    heard = Heard(lambda *_: len(heard.parts) == 2)
    request = request_of(wide, tmp_path / "run", folds=2, conformal="marginal")
    with pytest.raises(KeyboardInterrupt):
        run_map(request, heard)
    done = run_map(request, heard)
    assert [text for text, _ in heard.parts] == ["fit (random)", "fit (random-1)"]
    assert run_json(done)["folds"]["random"] == run_json(everything)["folds"]["random"]


def test_another_way_of_checking_is_another_run_but_another_question_is_not(wide, tmp_path):
    out = tmp_path / "run"
    first = run_map(request_of(wide, out, split="county", folds=2))
    for changes in ({"folds": 1}, {"folds": 2, "conformal": "local"}):
        with pytest.raises(RequestError, match="contains a run that differs in settings"):
            run_map(request_of(wide, out, split="county", **changes))
    layers = (f"{wide.folder / 'halves.parquet'}:zone",)
    with pytest.raises(RequestError, match="contains a run that differs in settings, inputs"):
        run_map(request_of(wide, out, split="county", folds=2, layers=layers))
    redrawn = run_map(request_of(wide, out, split="county", folds=2, zoom=11))
    assert run_json(redrawn)["map"]["zoom"] == 11
    for key in ("folds", "metrics", "warnings", "n"):
        assert getattr(redrawn.record, key) == getattr(first.record, key)


def test_a_changed_layer_is_not_passed_off_as_the_same_run(wide, tmp_path):
    path = tmp_path / "zones.parquet"
    shutil.copy(wide.folder / "halves.parquet", path)
    request = request_of(wide, tmp_path / "run", layers=(f"{path}:zone",))
    run_map(request)
    gpd.read_parquet(path).assign(zone=["a", "b"]).to_parquet(path)
    with pytest.raises(RequestError, match="contains a run that differs in inputs"):
        run_map(request)


@pytest.mark.parametrize(
    ("quarters", "model", "said"),
    [
        ("2023Q3,2023Q4", "field", "trains on a single quarter, which does not show how much"),
        ("2023Q2..2023Q4", "dbk-silu", "dbk-silu predicts a quarter after the training"),
    ],
)
def test_what_is_weak_about_the_latest_quarter_is_said(wide, tmp_path, quarters, model, said):
    run = run_json(
        run_map(request_of(wide, tmp_path / "run", split="latest", quarters=quarters, model=model))
    )
    assert any(said in text for text in run["warnings"])
    assert any(
        "the baseline is the mean and variance of all quarters" in text for text in run["warnings"]
    )
    assert run["metrics"]["latest"]["all"]["n"] == run["n"]["latest"]["test"]


def test_every_prediction_passes_through_the_repair(marginal, wide, tmp_path, monkeypatch):
    seen = []

    class Shift(Repair):
        def apply(self, prediction, rows):
            assert len(rows.tests) == len(rows.stratum) == len(prediction)
            p = prediction
            return Prediction(p.mean + 1, p.function_variance, p.noise_variance, p.tile_variance)

    def shifted(_method, _inputs, _model, rows):
        seen.append(int(rows.sum()))
        return Shift("local", 1)

    monkeypatch.setattr("geogp.runs.pipeline.validation.repair_of", shifted)
    monkeypatch.setattr("geogp.runs.pipeline.draw.repair_of", shifted)
    moved = run_map(request_of(wide, tmp_path / "moved", conformal="marginal"))
    np.testing.assert_allclose(table_of(moved)["mean"], table_of(marginal)["mean"] + 1)
    assert seen == [run_json(moved)["n"]["random"]["calibration"]] * 2
    medians = []
    for run in (marginal, moved):
        with rasterio.open(run.path / "median_mbps.tif") as raster:
            medians.append(raster.read(1))
    inside = np.isfinite(medians[0])
    np.testing.assert_allclose(medians[1][inside], 10 * medians[0][inside], rtol=1e-5)


def test_a_budget_is_shared_by_all_folds(wide, tmp_path, monkeypatch):
    from geogp.models.catalogue.budget import RankChoice
    from geogp.runs.pipeline import fitting

    asked = []
    monkeypatch.setattr(
        fitting, "rank_for", lambda seconds, *_: asked.append(seconds) or RankChoice(60, 1.0)
    )
    run_map(request_of(wide, tmp_path / "run", model="nngp", folds=3, budget=30.0))
    assert asked == [10.0]


@pytest.mark.parametrize("method", ["marginal", "strata", "local"])
def test_a_repaired_run_says_so_everywhere(unrepaired, marginal, wide, tmp_path, method):
    """Scores, table, report, map and run.json all speak of the repaired intervals."""
    if method == "marginal":
        shutil.copytree(marginal.path, tmp_path / "run")
    result = run_map(request_of(wide, tmp_path / "run", conformal=method))
    run, table = run_json(result), table_of(result)
    held = run["calibration"]
    assert held["method"] == method
    assert held["n"] == run["n"]["random"]["calibration"]
    said = held["splits"]["random"]
    promise = "there is no guarantee" if method == "local" else "drawn in the same way"
    assert promise in said["statement"]
    assert (said["folds"][0]["cells"] == []) == (method == "local")
    inside = (table["lower_95"] <= table["y"]) & (table["y"] <= table["upper_95"])
    assert run["metrics"]["random"]["all"]["coverage_95"] == pytest.approx(inside.mean())
    assert {"repair_10", "repair_95"} <= set(table)
    text = (result.path / "report.html").read_text()
    assert "repaired by split conformal" in text
    shown = _widths(result)
    assert not np.allclose(shown, _widths(unrepaired), rtol=1e-3)
    level = run_map(request_of(wide, tmp_path / "run", conformal=method, question="level"))
    assert run_json(level)["calibration"] == held
    assert any("this map is not repaired" in text for text in run_json(level)["warnings"])


def _widths(result):
    with rasterio.open(result.path / "width_log10.tif") as raster:
        found = raster.read(1)
    return found[np.isfinite(found)]


def test_repairs_of_counts_are_refused(wide, tmp_path):
    with pytest.raises(RequestError, match="not intervals of numbers of tests"):
        request_of(wide, tmp_path / "run", target="tests", model="auto", conformal="strata")


def test_a_table_that_no_report_would_read_is_refused_before_the_fit(
    wide, tmp_path, monkeypatch, everything
):
    """What was fitted for hours must be readable; see `read_predictions`."""
    table = table_of(everything)
    assert len(table.columns) - 1 <= splits.OWN_COLUMNS
    texts = [name for name in table.select_dtypes(["object", "string"]) if "layer" not in name]
    assert sum(table[name].str.len().max() for name in texts) < splits.OWN_TEXT_BYTES
    request = request_of(wide, tmp_path / "run", split="random", folds=2)
    a_row = 8 * splits.OWN_COLUMNS + splits.OWN_TEXT_BYTES
    monkeypatch.setattr(splits, "MAX_TABLE_BYTES", len(table) * a_row)
    inputs = read_inputs(request, RunListener())
    make_splits(request, inputs, RunListener())
    monkeypatch.setattr(splits, "MAX_TABLE_BYTES", 100 * a_row)
    with pytest.raises(
        RequestError, match=r"at most 100 test rows in all splits and folds.*found [\d,]+\."
    ):
        make_splits(request, inputs, RunListener())
    monkeypatch.undo()
    monkeypatch.setattr(parquet_files, "MAX_TABLE_BYTES", 1000)
    with pytest.raises(DataError, match=r"cannot be used: the unpacked rows have more") as told:
        _ = open_run(everything.path).predictions
    assert "damaged" not in str(told.value)

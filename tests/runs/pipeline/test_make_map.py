"""The main job from files to files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from run_worlds import Heard, made_up_run, run_json

from geogp.answers.pages import remake_report
from geogp.distributions.prediction import Prediction
from geogp.distributions.sinh_arcsinh import shape_of
from geogp.errors import DataError, OutputError, RequestError
from geogp.estimators.point_columns import Points
from geogp.estimators.point_scale import PointScale
from geogp.evaluation.metrics import score
from geogp.evaluation.splits.split_rows import cell_side
from geogp.geodata.places.census import read_region
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import parse_quadkeys
from geogp.models.catalogue.budget import RankChoice
from geogp.models.catalogue.storage import load_model
from geogp.models.numerics.devices import pick_device
from geogp.runs.locks import LOCK_FILE
from geogp.runs.pipeline import fitting
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.pipeline.validation import groups_below_baseline

KEYS = {
    *("versions", "files", "folds"),
    *("geogp", "region", "service", "target", "quarters", "quarters_missing", "model", "preset"),
    "quarters_unreached",
    "rows_left_out",
    *("seed", "settings", "inputs", "n", "seconds", "device", "warnings", "metrics", "baseline"),
}
SCORES = [
    *("n", "mae", "rmse", "nll", "crps", "coverage_50", "coverage_80", "coverage_95", "width_95")
]
COLUMNS = [
    *(
        "split",
        "fold",
        "quadkey",
        "quarter",
        "longitude",
        "latitude",
        "y",
        "tests",
        "devices",
        "stratum",
    ),
    *("distance_km", "mean"),
    *("function_variance", "tile_variance", "noise_variance", "skewness", "tailweight"),
    *("lower_95", "upper_95"),
]


def stopper(epoch):
    """Return a listener that interrupts a job after some epochs."""
    return Heard(lambda _, done: done == epoch)


def observations_of(small):
    region = read_region(open_source(str(small.folder / "boundaries")), "DEMO").region
    return region, read_observations(open_source(str(small.folder)), region).observations


def test_run_json_keeps_its_contract(finished, small):
    run = json.loads((finished.path / "run.json").read_text())
    assert set(run) >= KEYS
    assert run["region"] == "DEMO"
    assert run["quarters"] == ["2023Q3", "2023Q4"]
    assert set(run["seconds"]) == {"read", "fit", "predict", "write"}
    assert all(seconds > 0 for seconds in run["seconds"].values())
    assert set(run["metrics"]) == set(run["baseline"]) == set(run["n"]) == {"random", "blocks"}
    for part in ("metrics", "baseline"):
        for split in ("random", "blocks"):
            assert list(run[part][split]) == ["all", "urban", "rural"]
            assert all(list(scores) == SCORES for scores in run[part][split].values())
            counts = {name: found["n"] for name, found in run[part][split].items()}
            assert counts["all"] == counts["urban"] + counts["rural"] == run["n"][split]["test"]
    assert all(sum(parts.values()) == 1500 for parts in run["n"].values())
    used = [file for file in run["inputs"] if file["name"].endswith("_tiles.parquet")]
    assert sum(file["rows"] for file in used) == 1500
    assert all(len(file["sha256"]) == 64 for file in run["inputs"])


def test_blocks_and_small_parts_are_as_in_run_json(finished, small):
    run, (_, seen) = run_json(finished), observations_of(small)
    assert run["block_degrees"] == cell_side(seen.longitude, seen.latitude)
    report = json.loads((finished.path / "report.json").read_text())
    told = f"own block of {run['block_degrees']} by {run['block_degrees']} degrees"
    assert told in report["splits"]["blocks"]["question"]
    few = {
        split: [f"{n} {part} rows" for part, n in run["n"][split].items() if n < 300]
        for split in ("random", "blocks")
    }
    assert [len(parts) for parts in few.values()] in ([2, 1], [2, 2])
    for split, parts in few.items():
        said = [text for text in run["warnings"] if f"the {split} split has only" in text]
        assert len(said) == 1
        assert f"has only {' and '.join(parts)}, fewer than 300: its fit and its scores" in said[0]


def test_a_model_with_its_rows_has_one_variance(finished):
    assert run_json(finished).get("variance_check") is None


def test_rasters_name_the_data_but_no_folder(finished):
    run = run_json(finished)
    for path in finished.path.glob("*.tif"):
        with rasterio.open(path) as raster:
            tags = raster.tags()
        assert tags["attribution"] == run["attribution"]
        source = Path(run["settings"]["data"]["source"])
        assert tags["source"] == source.name
        assert not any(str(source.parent) in one for one in tags.values())


def test_means_over_areas_stand_in_run_and_report(finished):
    run = run_json(finished)
    checks, reasons = run["areas_check"], run.get("areas_unchecked", {})
    assert set(checks) | set(reasons) == {"random", "blocks"}
    assert not set(checks) & set(reasons)
    found = json.loads((finished.path / "report.json").read_text())["areas"]
    for split, check in checks.items():
        assert check["rows"] >= 5 * check["areas"] > 0
        assert check["coverage_95_independent"] <= check["coverage_95"] <= 1
        share = f"{100 * check['coverage_95']:.1f} % of their means"
        (said,) = [text for text in found if "means over areas" in text and share in text]
        assert f"and {check['areas']} areas" in said, split


def test_test_predictions_agree_with_the_metrics(finished, small):
    table = pd.read_parquet(finished.path / "test_predictions.parquet")
    assert list(table.columns) == COLUMNS
    _, seen = observations_of(small)
    truth = {
        (int(k), int(q)): y for k, q, y in zip(seen.quadkey, seen.quarter, seen.y, strict=True)
    }
    for split, rows in table.groupby("split"):
        names = ("mean", "function_variance", "noise_variance", "tile_variance")
        shape = shape_of(*(rows[name].to_numpy() for name in ("skewness", "tailweight")))
        prediction = Prediction(*(rows[name].to_numpy() for name in names), shape)
        found = score(prediction, rows["y"])
        assert found.nll == pytest.approx(
            run_json(finished)["metrics"][split]["all"]["nll"], abs=1e-12
        )
        codes = parse_quadkeys(rows["quadkey"].to_numpy(str))
        quarters = [int(q[:4]) * 4 + int(q[5]) - 1 for q in rows["quarter"]]
        told = [truth[int(k), q] for k, q in zip(codes, quarters, strict=True)]
        np.testing.assert_array_equal(rows["y"], told)


def test_the_saved_model_predicts_the_map(finished, small):
    model, context = load_model(finished.path / "model.safetensors")
    region, _ = observations_of(small)
    assert context["inputs"]["quarters"] == [8094, 8095]
    tiles = region.tiles(13)
    places = Points(*tiles.centres, np.full(len(tiles), 8095.0))
    inputs = PointScale(region.bounds, times=(8094, 8095)).inputs(places)
    asked = run_json(finished)["map"]
    median = 10 ** model.predict(inputs, asked["tests"], asked["devices"]).quantile(0.5)
    with xr.open_dataset(finished.path / "grid.nc", engine="h5netcdf") as grid:
        found = grid["median_mbps"].to_numpy()
    np.testing.assert_allclose(np.sort(found[np.isfinite(found)]), np.sort(median), rtol=1e-6)


@pytest.mark.trial
def test_an_interrupted_run_continues_to_the_same_numbers(small, tmp_path):
    whole = run_map(small.request(tmp_path / "whole", epochs=4))
    out = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        run_map(small.request(out, epochs=4), stopper(2))
    assert not (out / "run.json").exists()
    assert {path.name for path in out.iterdir()} == {".unfinished", LOCK_FILE}
    heard = Heard()
    continued = run_map(small.request(out, epochs=4), heard)
    assert [done for _, done in heard.parts] == [3, 4]
    assert run_json(continued)["metrics"] == run_json(whole)["metrics"]
    first = (whole.path / "test_predictions.parquet").read_bytes()
    assert (out / "test_predictions.parquet").read_bytes() == first


def test_a_finished_run_is_not_made_again(finished, small):
    before = (finished.path / "run.json").stat().st_mtime_ns
    again = run_map(small.request(finished.path, split="both"))
    assert again.already_there
    assert (finished.path / "run.json").stat().st_mtime_ns == before


@pytest.mark.trial
def test_another_request_does_not_overwrite_a_run(small, tmp_path):
    out = tmp_path / "run"
    first = run_map(small.request(out))
    with pytest.raises(RequestError, match=r"contains a run that differs in seed.*--fresh"):
        run_map(small.request(out, seed=3))
    fresh = run_map(small.request(out, seed=3, fresh=True))
    assert json.loads((out / "run.json").read_text())["seed"] == run_json(fresh)["seed"] == 3
    assert fresh.record.metrics != first.record.metrics


@pytest.mark.trial
def test_a_fresh_run_that_is_interrupted_continues_without_fresh(small, tmp_path):
    out = tmp_path / "run"
    first = run_map(small.request(out))
    with pytest.raises(KeyboardInterrupt):
        run_map(small.request(out, epochs=3, fresh=True), stopper(2))
    continued = run_map(small.request(out, epochs=3))
    assert run_json(continued)["settings"]["model"]["epochs"] == 3
    assert continued.record.metrics != first.record.metrics
    assert not (out / ".unfinished").exists()


@pytest.mark.trial
def test_a_fresh_run_leaves_no_file_of_the_old_one(small, tmp_path):
    out = tmp_path / "run"
    run_map(small.request(out))
    (out / "notes.txt").write_text("mine")
    run_map(small.request(out, target="latency", fresh=True))
    assert (out / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in out.glob("*_mbps.tif")) == []
    files = json.loads((out / "run.json").read_text())["files"]
    assert {*files, "level_2023Q4.safetensors", "run.json", "notes.txt", LOCK_FILE} == {
        path.name for path in out.iterdir()
    }


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_the_users_own_is_refused_and_kept(small, tmp_path, fresh):
    for name, content in (("report.md", "my report"), ("run.json", '{"a": 1}')):
        own = tmp_path / name.partition(".")[0]
        own.mkdir()
        (own / name).write_text(content)
        with pytest.raises(RequestError, match="contains files that are not part of a run"):
            run_map(small.request(own, fresh=fresh))
        assert [path.name for path in own.iterdir()] == [name]
        assert (own / name).read_text() == content


def test_a_model_that_loses_to_the_baseline_says_so():
    empty = made_up_run().metrics["random"]["all"]
    own = {"all": replace(empty, nll=1.0), "urban": replace(empty, nll=0.8), "rural": empty}
    other = {"all": replace(empty, nll=0.9), "urban": replace(empty, nll=0.9), "rural": empty}
    assert groups_below_baseline(own, other) == ["all"]


@pytest.mark.trial
def test_changed_data_are_not_passed_off_as_the_same_run(own_small, tmp_path):
    out = tmp_path / "run"
    run_map(own_small.request(out))
    table = pd.read_parquet(own_small.tiles(0))
    table["avg_d_kbps"] += 1
    table.to_parquet(own_small.tiles(0), index=False)
    with pytest.raises(RequestError, match="contains a run that differs in inputs"):
        run_map(own_small.request(out))


@pytest.mark.trial
def test_one_quarter_is_mapped_by_place_alone(small, tmp_path):
    one = run_map(small.request(tmp_path / "one", quarters="2023Q4"))
    assert run_json(one)["settings"]["model"]["inputs"] == "place"
    model, _ = load_model(one.path / "model.safetensors")
    assert model.architecture.d == 2
    with pytest.raises(RequestError, match="needs data of two quarters or more"):
        run_map(small.request(tmp_path / "two", quarters="2023Q4", inputs="place-quarter"))


@pytest.mark.trial
def test_a_region_without_urban_areas_is_mapped_and_says_so(own_small, tmp_path):
    (own_small.folder / "boundaries" / "urban_areas_DEMO.parquet").unlink()
    found = run_map(own_small.request(tmp_path / "run"))
    scores = run_json(found)["metrics"]["random"]
    assert scores["urban"] == {**dict.fromkeys(SCORES), "n": 0} == scores["rural"]
    assert scores["all"]["n"] == run_json(found)["n"]["random"]["test"]
    assert any("no urban areas" in text for text in run_json(found)["warnings"])
    for page in ("report.html", "map.html"):
        assert "no urban areas" in (found.path / page).read_text()


@pytest.mark.trial
@pytest.mark.parametrize("target", ["upload", "latency"])
def test_other_targets(small, tmp_path, target):
    found = run_map(small.request(tmp_path / target, target=target))
    suffix = "ms" if target == "latency" else "mbps"
    with xr.open_dataset(found.path / "grid.nc", engine="h5netcdf") as grid:
        assert f"lower_{suffix}" in grid
    assert (found.path / f"upper_{suffix}.tif").exists()


@pytest.mark.trial
@pytest.mark.parametrize("model", ["sv-rbf", "sv-dkl"])
def test_other_models(small, tmp_path, model):
    found = run_map(small.request(tmp_path / model, model=model))
    assert np.isfinite(run_json(found)["metrics"]["random"]["all"]["nll"])


@pytest.mark.trial
def test_presets_other_than_quick_draw_the_map_from_all_but_the_validation_rows(small, tmp_path):
    request = small.request(tmp_path / "run", preset="standard", epochs=1)
    found = run_map(request)
    assert set(run_json(found)["metrics"]) == {"random", "tiles", "blocks"}
    model, _ = load_model(found.path / "model.safetensors")
    _, seen = observations_of(small)
    counts = run_json(found)["n"]["random"]
    assert counts["train"] + counts["test"] < 1500
    # The model standardises by its training rows: all but the validation tenth.
    from geogp.evaluation.splits.split_rows import random_split

    kept = random_split(seen.quadkey, seen.quarter, 0) != "validation"
    assert float(model.y_mean) == pytest.approx(seen.y[kept].mean(), abs=1e-12)


@pytest.mark.trial
def test_a_zoom_of_too_many_tiles_drops_and_says_so(small, tmp_path, monkeypatch):
    monkeypatch.setattr("geogp.runs.pipeline.draw.MAX_TILES", 200)
    found = run_map(small.request(tmp_path / "run"))
    assert run_json(found)["map"]["zoom"] < 13
    assert run_json(found)["map"]["tiles"] <= 200
    assert any("more than 200 tiles" in text for text in run_json(found)["warnings"])


@pytest.mark.trial
def test_a_large_map_without_zarr_says_what_is_missing(small, tmp_path, monkeypatch):
    monkeypatch.setattr("geogp.runs.pipeline.draw.LARGE_TILES", 10)
    monkeypatch.setattr("geogp.runs.pipeline.draw.has_zarr", lambda: False)
    run = run_json(run_map(small.request(tmp_path / "run")))
    assert "grid.zarr" not in run["files"]
    assert any("geogp[zarr]" in text for text in run["warnings"])


def test_a_bad_source_leaves_nothing(own_small, tmp_path):
    own_small.tiles(1).write_bytes(own_small.tiles(1).read_bytes()[:2000])
    with pytest.raises(DataError, match="not a complete Parquet file"):
        run_map(own_small.request(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_constant_target_is_refused(own_small, tmp_path):
    for path in (own_small.tiles(0), own_small.tiles(1)):
        table = pd.read_parquet(path)
        table.assign(avg_d_kbps=5000).to_parquet(path, index=False)
    with pytest.raises(DataError, match="same value in all 1500 rows of Demo"):
        run_map(own_small.request(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.trial
def test_a_disk_that_fills_up_leaves_no_results_and_can_continue(small, tmp_path, monkeypatch):
    out = tmp_path / "run"

    def full(*_args, **_more):
        raise OutputError("cannot write: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("geogp.runs.pipeline.write.write_report", full)
        with pytest.raises(OutputError, match="disk is full"):
            run_map(small.request(out))
    assert {path.name for path in out.iterdir()} == {".unfinished", LOCK_FILE}
    assert not (out / ".unfinished" / "files").exists()
    assert run_json(run_map(small.request(out)))["metrics"]["random"]["all"]["n"] > 0


@pytest.mark.trial
def test_the_report_is_made_again_and_contradictions_are_refused(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    (copy / "report.html").unlink()
    assert remake_report(copy).path == copy
    assert (copy / "report.html").read_text() == (finished.path / "report.html").read_text()
    assert not (copy / "report.tex").exists()
    remake_report(copy, latex=True)
    assert "\\begin{tabular}" in (copy / "report.tex").read_text()
    run = json.loads((copy / "run.json").read_text())
    run["metrics"]["random"]["all"]["nll"] -= 0.1
    (copy / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match="nll"):
        remake_report(copy)
    (copy / "test_predictions.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="damaged"):
        remake_report(copy)
    with pytest.raises(RequestError, match="not a finished run"):
        remake_report(tmp_path)


def test_devices():
    assert pick_device("cpu").type == "cpu"
    import torch

    if torch.cuda.is_available():
        assert pick_device("auto").type == "cuda"
    else:
        with pytest.raises(RequestError, match="no CUDA device"):
            pick_device("cuda")


@pytest.mark.trial
def test_a_budget_picks_the_rank_once(small, tmp_path, monkeypatch):
    out, asked = tmp_path / "run", []

    def choose(seconds, make, rows, settings):
        asked.append((seconds, make(60).basis.rank, len(rows.y), settings.epochs))
        return RankChoice(70, 12.0)

    monkeypatch.setattr(fitting, "rank_for", choose)
    request = small.request(out, model="nystrom-mixed", epochs=2, split="both", budget=30.0)
    with pytest.raises(KeyboardInterrupt):
        run_map(request, stopper(1))
    done = run_map(request)
    train = run_json(done)["n"]["random"]["train"]
    assert asked == [(15.0, 60, train, 2)]
    assert run_json(done)["rank"] == {"r": 70, "chosen_by": "budget", "expected_seconds": 12.0}
    assert run_json(done)["settings"]["model"]["r"] == "budget"
    assert load_model(out / "model.safetensors")[0].basis.rank == 70
    assert run_map(request).already_there


@pytest.mark.trial
@pytest.mark.parametrize(("split", "fits"), [("random", 1), ("blocks", 2), ("both", 2)])
def test_a_budget_is_shared_by_all_fits(small, tmp_path, monkeypatch, split, fits):
    asked = []

    def choose(seconds, *_):
        asked.append(seconds)
        return RankChoice(60, 1.0)

    monkeypatch.setattr(fitting, "rank_for", choose)
    heard = Heard()
    request = small.request(tmp_path / "run", model="nngp", epochs=1, split=split, budget=30.0)
    run_map(request, heard)
    assert asked == [30.0 / fits]
    assert sum(text.startswith("fitting") for text in heard.texts) == fits
    with xr.open_dataset(tmp_path / "run" / "grid.nc", engine="h5netcdf") as grid:
        assert grid.attrs["r"] == 60


def test_a_damaged_choice_of_the_rank_is_refused(small, tmp_path, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setattr(fitting, "rank_for", lambda *_: RankChoice(70, 12.0))
    request = small.request(out, model="nystrom-mixed", epochs=2, budget=30.0)
    with pytest.raises(KeyboardInterrupt):
        run_map(request, stopper(1))
    (out / ".unfinished" / "rank.json").write_text("{}")
    with pytest.raises(DataError, match=r"rank\.json is damaged.*--fresh"):
        run_map(request)

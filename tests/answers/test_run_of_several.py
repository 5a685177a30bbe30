"""A run of several targets: its record, rasters and report, and answers of targets and tiers."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from geogp import open_run
from geogp.answers.make import make_answer, make_answers
from geogp.answers.requests import AreasRequest, ExceedanceRequest, FiguresRequest, NextRequest
from geogp.commands.compare_runs import compare_runs
from geogp.commands.paper_figures import make_figures
from geogp.errors import RequestError
from geogp.evaluation.joint_scores import joint_of, target_rows
from geogp.evaluation.metrics import score_by_stratum
from geogp.geodata.places.stratum_column import stratum_column
from geogp.geodata.tiles.quadkeys import tile_centres, tiles_at
from geogp.geodata.tiles.tiers import parse_tier, tiers_of
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_folder import read_run_record

TARGETS = ("download", "upload", "latency")
TIERS = ["5/1", "7/1", "35/3", "100/20", "100/20/100ms"]


@pytest.fixture(scope="module")
def three(made_run):
    return made_run("three", target=",".join(TARGETS), split="random")


@pytest.fixture(scope="module")
def run(three):
    return open_run(three.path)


@pytest.fixture(scope="module")
def tiles(three):
    return pd.read_parquet(three.path / "tiles.parquet", columns=None)


def test_the_record_names_all_targets_and_the_first_is_the_one_of_the_map(three):
    record = three.record
    content = json.loads((three.path / "run.json").read_text())
    assert content["target"] == "download,upload,latency"
    assert [one["name"] for one in content["targets"]] == [*TARGETS]
    assert content["drawing"]["tiers"] == TIERS
    assert record.targets[0].metrics == record.metrics
    assert record.targets[0].baseline == record.baseline
    assert record.targets[1].metrics != record.metrics


def test_stored_predictions_give_the_scores_of_the_record(run):
    rows, record = run.predictions, run.record
    joint, y = joint_of(rows, TARGETS)
    stored = record.joint["random"]
    assert stored.n == len(rows)
    np.testing.assert_allclose(joint.joint_log_score(y).mean(), stored.log_score, rtol=1e-9)
    alone = sum(joint.marginal(k).log_score(y[:, k]).mean() for k in range(3))
    np.testing.assert_allclose(alone, stored.independent_log_score, rtol=1e-9)
    np.testing.assert_allclose(stored.stated[1], joint.correlation[:, 0, 2].mean(), rtol=1e-9)
    for k, target in enumerate(record.targets):
        own = target_rows(rows, TARGETS, target.name)
        stratum = stratum_column(own["stratum"].to_numpy(str), ("urban", "rural"))
        again = score_by_stratum(joint.marginal(k), own["y"].to_numpy(), stratum)
        for name, scores in target.metrics["random"].items():
            np.testing.assert_allclose(
                list(again[name].figures.values()), list(scores.figures.values()), rtol=1e-9
            )


def test_the_map_has_tiers_and_further_targets(three, tiles):
    grid = xr.open_dataset(three.path / "grid.nc")
    assert (grid.attrs["target"], grid.attrs["targets"]) == ("download", "download,upload,latency")
    names = [tier.variable for tier in tiers_of(",".join(TARGETS))]
    p = tiles[names].to_numpy()
    assert ((p >= 0) & (p <= 1)).all()
    assert (np.diff(p, axis=1) <= 1e-6).all(), "an easier tier is at least as probable"
    assert p[:, 0].std() > 0
    limits = tiles["p_at_least_7_mbps"].to_numpy()
    assert (tiles["p_tier_7_1"].to_numpy() <= limits + 1e-6).all()
    for name in (*names, "median_mbps_upload", "lower_ms_latency", "upper_ms_latency"):
        assert (three.path / f"{name}.tif").is_file()
        assert np.isfinite(grid[name].to_numpy()).sum() == len(tiles)
    assert grid["median_ms_latency"].attrs["units"] == "ms"


def test_the_report_defines_the_tiers_and_counts_them(three):
    text = (three.path / "report.md").read_text()
    assert "100/20/100ms: download speed of at least 100 Mbps, upload speed of at least 20" in text
    report = json.loads((three.path / "report.json").read_text())
    together = report["splits"]["random"]["together"]
    assert [one["target"] for one in together["targets"][::3]] == [*TARGETS]
    everywhere = [one for one in together["tiers"] if one["group"] == "all"]
    rows = pd.read_parquet(three.path / "test_predictions.parquet")
    reached = (rows["y"] >= np.log10(7)) & (rows["y_upload"] >= 0)
    assert everywhere[1]["observed"] == pytest.approx(reached.mean())
    total = sum(group["n"] for group in together["groups"] if group["kind"] == "quarter")
    assert total == len(rows)
    assert "Several targets together" in (three.path / "report.html").read_text()


def test_at_says_what_the_map_says_of_tiers_and_of_each_target(run, tiles):
    tile = tiles.iloc[len(tiles) // 2]
    place = tile["latitude"], tile["longitude"]
    columns = [parse_tier(name, TARGETS).variable for name in TIERS]
    first = run.at(*place)
    zoomed = run.at(*place, target="upload")
    assert {*columns} <= {*first.columns}
    longitude, latitude = tile_centres(*tiles_at(*(np.array([x]) for x in place[::-1])))
    drawn = run.record.map
    joint = run.model.predict_distribution(
        pd.DataFrame(
            {
                "longitude": longitude,
                "latitude": latitude,
                "quarter": pd.PeriodIndex(["2023Q4"], freq="Q"),
                "tests": drawn.tests,
                "devices": drawn.devices,
            }
        )
    )
    tier = parse_tier("7/1", TARGETS)
    assert first["p_tier_7_1"][0] == pytest.approx(tier.probability(joint)[0], rel=1e-4)
    assert zoomed["median_mbps"][0] == pytest.approx(10 ** joint.marginal(1).median[0], rel=1e-4)
    assert run.at(*place, target="latency")["level_ms"][0] > 0
    with pytest.raises(RequestError, match="unknown target 'tests'; choose one of download, upl"):
        run.at(*place, target="tests")


def test_areas_are_those_of_the_chosen_target(run, three):
    download, upload = run.areas("urban"), run.areas("urban", target="upload")
    assert (upload["level_mean_mbps"] < download["level_mean_mbps"]).all()
    answer = make_answer(AreasRequest(three.path, by="urban", target="latency"))
    assert answer.content["target"] == "latency"
    assert answer.content["unit"] == "ms"
    assert any("areas_urban_latency" in file.name for file in answer.files)
    with pytest.raises(RequestError, match="unknown target 'rsrp'"):
        run.areas("urban", target="rsrp")


def test_shares_of_tiers_come_from_draws_of_all_levels(three, run):
    request = ExceedanceRequest(three.path, tier=("7/1", "35/3"), draws=400, by="urban")
    one, two = make_answers(request)
    table = one.table
    error = np.abs(table["mean"] - table["closed_form"]).to_numpy(float)
    assert (error < 4 * table["error"].to_numpy(float) + 0.004).all()
    assert one.content["definition"].startswith("download speed of at least 7 Mbps and upload")
    assert one.title == "What is below 7/1 Mbps, 2023Q4"
    assert (table["mean"] <= two.table["mean"] + 1e-9).all()
    limit = run.exceedance([7.0], draws=400)
    assert limit["mean"][0] <= table["mean"][0] + 0.02, "a tier asks more than its download"
    assert "7/1" in (three.path / "report.md").read_text()


def test_another_target_has_its_own_thresholds(run):
    shares = run.exceedance(target="upload", draws=200)
    assert sorted({*shares["threshold"]}) == [1, 3, 20]
    assert sorted({*run.exceedance(draws=200)["threshold"]}) == [7, 35, 100]


def test_tiers_need_several_targets(finished):
    with pytest.raises(RequestError, match="--tier is for several targets"):
        make_answers(ExceedanceRequest(finished.path, tier=("7/1",)))
    with pytest.raises(RequestError, match="leave out --threshold and --target"):
        ExceedanceRequest(finished.path, tier=("7/1",), threshold=(7.0,))
    with pytest.raises(RequestError, match="unknown target 'upload'; choose one of download"):
        make_answer(AreasRequest(finished.path, target="upload"))


def test_figures_and_tiles_to_measure_are_of_the_chosen_target(three, run):
    made = make_figures(FiguresRequest(three.path, target="upload"))
    assert {path.parent.name for path in made.files} == {"figures-upload"}
    assert "upload speed" in made.captions["interval_widths"]
    first = make_answer(NextRequest(three.path, tiles=3))
    other = make_answer(NextRequest(three.path, tiles=3, target="latency"))
    assert {path.stem for path in first.files} == {"next_tiles"}
    assert {path.stem for path in other.files} == {"next_tiles_latency"}
    assert other.title.endswith(", latency")


def test_a_run_of_several_is_compared_with_one_of_its_first_target(three, finished, tmp_path):
    alone = shutil.copytree(finished.path, tmp_path / "alone")
    found = compare_runs([three.path, alone], out=tmp_path / "compared")
    assert found.target == "download"


def test_other_tiers_can_be_asked_at_a_place(run, tiles):
    tile = tiles.iloc[len(tiles) // 2]
    place = tile["latitude"], tile["longitude"]
    own = run.at(*place, tier=["9/2/60ms", "7/1"])
    drawn = run.at(*place)
    assert 0 < own["p_tier_9_2_60ms"][0] <= own["p_tier_7_1"][0]
    assert own["p_tier_7_1"][0] == pytest.approx(drawn["p_tier_7_1"][0], rel=1e-4)
    assert "p_tier_35_3" not in own
    with pytest.raises(RequestError, match="such as 7/1, or 7/1/100ms"):
        run.at(*place, tier=["7"])


def test_other_tiers_are_drawn_without_a_fit(three, small, no_pictures, short_field_fits):
    request = small.request(
        three.path, target=",".join(TARGETS), split="random", tier=("9/2/60ms",)
    )
    result = run_map(request)
    record = read_run_record(three.path)[1]
    assert not result.already_there
    assert record.drawing.tiers == ["9/2/60ms"]
    assert record.seconds["fit"] == three.record.seconds["fit"]
    assert "p_tier_9_2_60ms" in xr.open_dataset(three.path / "grid.nc")

"""Runs scored on later quarters: by hand, by the library, and by the scores of their own rows."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from batch_worlds import leave_out_pictures, shorten_field_fits
from run_worlds import Small, edited_copy, run_json
from scipy.stats import norm

import geogp
from geogp.answers.make import make_answers
from geogp.answers.requests import VerifyRequest
from geogp.answers.run import open_run
from geogp.answers.verify import _groups, _rows_of, _scores, later_law, later_scores
from geogp.errors import DataError, RequestError
from geogp.evaluation.metrics import binomial_interval
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quadkeys import format_quadkeys, tile_centres, tiles_at
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.models.fitting import few_rows
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

FITTED, LATER = "2022Q1..2022Q3", "2022Q4..2023Q1"
SCORES = "verify_scores_download_2022Q4_2023Q1"
THRESHOLDS = "verify_thresholds_download_2022Q4_2023Q1"


def write_source(folder):
    region = simple_region()
    made = simulate(region, rows=4500, quarters=parse_quarters("2022Q1..2023Q1").all, seed=1)
    write_simulation(made, region, folder)


@pytest.fixture(scope="module")
def source(made_once):
    return Small(made_once("five-quarters", write_source))


@pytest.fixture(scope="module")
def made(source, made_once):
    """A run of three quarters with a conformal repair. Tests must not change it."""
    how = {"quarters": FITTED, "split": "random", "conformal": "marginal"}
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)
        shorten_field_fits(patch)
        return made_once("frozen", lambda out: run_map(source.request(out, **how)))


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    """A copy, where answers may be added."""
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("frozen") / "run"))


@pytest.fixture(scope="module")
def answers(run):
    return make_answers(VerifyRequest(run, quarters=LATER))


@pytest.fixture(scope="module")
def tiles(source):
    """The later rows, as the library reads them."""
    boundaries = source.folder / "boundaries"
    region = geogp.read_region("DEMO", boundaries=str(boundaries))
    return geogp.read_tiles(region, quarters=LATER, source=str(source.folder))


def test_it_agrees_with_the_library_where_nothing_is_repaired(made, tiles):
    opened = open_run(made).reopen()
    plain = replace(opened, settings=replace(opened.settings, conformal="none"))
    found = later_scores(plain, VerifyRequest(made, quarters=LATER)).scores
    law = geogp.load_model(made / "model.safetensors").predict_distribution(tiles)
    quarter = tiles["quarter"].astype(str)
    for kind, groups in ("stratum", tiles["stratum"].astype(str)), ("quarter", quarter):
        wanted = geogp.evaluate(law, tiles["y"], groups=groups)
        own = found[found["kind"].isin(["all", kind])].set_index("group")
        assert set(own.index) == set(wanted.index)
        for name in ("n", "mae", "rmse", "crps", "coverage_50", "coverage_80", "coverage_95"):
            np.testing.assert_allclose(own[name], wanted[name][own.index], err_msg=name)
        np.testing.assert_allclose(own["log_score"], wanted["nll"][own.index])
        np.testing.assert_allclose(own["width_95"], wanted["width_95"][own.index])


def test_its_scores_of_the_test_rows_are_those_of_the_run(made):
    """The stored model is that of the random split, so its test rows are new to it, too."""
    run = open_run(made)
    table, inputs = run.predictions, run.reopen().inputs
    seen = inputs.observations
    keys = [format_quadkeys(seen.quadkey), list(map(quarter_label, seen.quarter.tolist()))]
    known = pd.Series(range(len(seen)), index=pd.MultiIndex.from_arrays(keys))
    rows = seen.taken(known.loc[list(zip(table["quadkey"], table["quarter"], strict=True))])
    test = replace(inputs, ingested=replace(inputs.ingested, observations=rows))
    law = later_law(run.reopen(), test)
    for end, bound in zip(("lower_95", "upper_95"), law.interval(0.95), strict=True):
        np.testing.assert_allclose(bound, table[end], rtol=1e-6)
    groups = _groups(rows, np.ones(len(rows), bool))
    found = _scores(_rows_of(rows), groups, law, np.zeros(len(rows))).set_index("group")
    for name, wanted in run.record.metrics["random"].items():
        assert found["coverage_95"][name] == wanted.coverage_95
        for own, score in (("log_score", "nll"), ("crps", "crps"), ("width_95", "width_95")):
            assert found[own][name] == pytest.approx(getattr(wanted, score), rel=1e-6)


def test_coverage_and_baseline_by_hand(made, answers, source):
    """Count the rows of one quarter between two quantiles, one by one."""
    run = open_run(made)
    opened = run.reopen()
    scores = answers[0].table.set_index("group")
    rows = pd.read_parquet(
        next(source.folder.rglob("2022-10-01_performance_mobile_tiles.parquet")),
        columns=["quadkey", "avg_d_kbps", "tests", "devices"],
    )
    y = np.log10(rows["avg_d_kbps"].to_numpy() / 1000)
    assert scores["n"]["2022Q4"] == len(rows)
    fitted = opened.inputs.observations
    last = fitted.y[fitted.quarter == fitted.quarters[-1]]
    baseline = norm(last.mean(), last.std(ddof=1))
    expected = -baseline.logpdf(y).mean()
    assert scores["baseline_log_score"]["2022Q4"] == pytest.approx(expected)
    lone = scores.loc["2022Q4"]
    assert lone["difference"] == pytest.approx(lone["log_score"] - expected)
    ends = binomial_interval(round(lone["coverage_95"] * len(rows)), len(rows))
    assert (lone["coverage_95_lower"], lone["coverage_95_upper"]) == pytest.approx(ends)
    known = {*format_quadkeys(fitted.quadkey)}
    every = pd.concat(
        pd.read_parquet(path, columns=["quadkey"])
        for month in ("2022-10", "2023-01")
        for path in source.folder.rglob(f"{month}-01_performance_mobile_tiles.parquet")
    )
    assert scores["n"]["measured before"] == every["quadkey"].isin(known).sum()
    assert scores["n"]["not measured before"] == (~every["quadkey"].isin(known)).sum() > 0


def test_a_forecast_of_a_simulation_is_right(answers):
    """Quarters of the simulation do not drift: nearly all rows lie in the intervals."""
    scores = answers[0].table.set_index("group")
    assert 0.92 < scores["coverage_95"]["all"] < 0.985
    assert scores["difference_upper"]["all"] < 0
    assert scores["n"]["all"] == scores["n"]["urban"] + scores["n"]["rural"]
    assert scores["n"]["all"] == scores["n"]["2022Q4"] + scores["n"]["2023Q1"]
    shares = answers[1].table
    assert list(shares["threshold"][shares["group"] == "all"]) == [7, 35, 100]
    np.testing.assert_allclose(shares["difference"], shares["observed"] - shares["stated"])
    assert (shares["difference"].abs()[shares["group"] == "all"] < 0.08).all()


def test_shares_of_rows_that_meet_a_threshold_are_counted(answers, tiles):
    shares = answers[1].table.set_index(["threshold", "group"])
    for threshold in (7, 35, 100):
        met = 10 ** tiles["y"] >= threshold * (1 - 1e-12)
        assert shares["observed"][threshold, "all"] == pytest.approx(met.mean())
        urban = met[tiles["stratum"] == "urban"].mean()
        assert shares["observed"][threshold, "urban"] == pytest.approx(urban)


def test_files_and_report(run, answers, source):
    told = json.loads((run / f"{SCORES}.json").read_text())
    record = run_json(type("Made", (), {"path": run}))
    assert told["model_sha256"] == record["file_records"]["model.safetensors"]["sha256"]
    assert told["fitted_quarters"] == ["2022Q1", "2022Q2", "2022Q3"]
    assert told["quarters"] == ["2022Q4", "2023Q1"]
    written = (run / "model.safetensors").stat().st_mtime
    assert pd.Timestamp(told["made"]).timestamp() <= written
    table = pd.read_csv(run / f"{SCORES}.csv")
    np.testing.assert_allclose(table["log_score"], answers[0].table["log_score"])
    bins = pd.read_csv(run / f"{THRESHOLDS}_bins.csv")
    assert bins[bins["group"] == "all"].groupby("threshold")["n"].sum().eq(told["rows"]).all()
    stored = json.loads((run / f"{THRESHOLDS}.json").read_text())
    assert len(stored["bins"]) == len(bins)
    for name in ("report.md", "report.html"):
        text = (run / name).read_text()
        assert "How it did later, 2022Q4, 2023Q1: coverage and scores" in text
        assert f"{THRESHOLDS}_bins.csv" in text
        assert told["model_sha256"] in text
    how = {"quarters": FITTED, "split": "random", "conformal": "marginal"}
    assert run_map(source.request(run, **how)).already_there
    # The first answer changed the report and run.json, and the run is still what it was.
    again = make_answers(VerifyRequest(run, quarters=LATER))
    pd.testing.assert_frame_equal(again[0].table, answers[0].table)
    pd.testing.assert_frame_equal(open_run(run).verify(LATER), answers[0].table)


@pytest.mark.parametrize(
    ("quarters", "why"),
    [
        ("2022Q3..2022Q4", r"2022Q3 is a quarter to which the run was fitted \(2022Q1 to 2022Q3\)"),
        ("2021Q4", r"2021Q4 lies before the quarters of the run"),
        ("2022Q4,2022Q5", r"expected a quarter like 2019Q1, found '2022Q5'"),
    ],
)
def test_quarters_of_the_run_and_earlier_ones_are_refused(made, quarters, why):
    with pytest.raises(RequestError, match=why):
        open_run(made).verify(quarters)


def test_a_quarter_that_the_source_does_not_have_is_its_error(made):
    with pytest.raises(DataError, match="2023Q4"):
        open_run(made).verify("2023Q4")


def test_a_run_that_changed_is_no_forecast(made, tmp_path):
    def changed(name, change):
        path = Path(shutil.copytree(made, tmp_path / name))
        change(path)
        return VerifyRequest(path, quarters=LATER)

    def touch(path):
        model = path / "model.safetensors"
        before, content = model.stat(), bytearray(model.read_bytes())
        content[-1] ^= 1
        model.write_bytes(content)
        os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(DataError, match=r"model\.safetensors of .* changed or disappeared"):
        make_answers(changed("touched", touch))
    with pytest.raises(DataError, match=r"grid\.nc of .* changed or disappeared"):
        make_answers(changed("lost", lambda path: (path / "grid.nc").unlink()))
    with pytest.raises(DataError, match=r"grid\.nc of .* changed or disappeared"):
        open_run(tmp_path / "lost").verify(LATER)

    def unrecorded(told):
        del told["file_records"]

    old = edited_copy(made, tmp_path / "old", unrecorded)
    with pytest.raises(DataError, match=r"has no hash of model\.safetensors"):
        open_run(old).verify(LATER)
    other = edited_copy(made, tmp_path / "other", lambda told: told.update(target="upload"))
    with pytest.raises(DataError, match="says target upload"):
        open_run(other).verify(LATER)


def test_other_models_and_single_quarters_forecast_nothing(plain, made, tmp_path):
    with pytest.raises(RequestError, match="only the model field states the uncertainty of later"):
        open_run(plain.path).verify("2024Q1")
    one = edited_copy(made, tmp_path / "one", lambda told: told.update(quarters=["2022Q3"]))
    with pytest.raises(RequestError, match="the model has only the place as an input"):
        open_run(one).verify("2022Q4")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """A run of own tests of two quarters, and a file of tests of three."""
    folder, random, n = tmp_path_factory.mktemp("points"), np.random.default_rng(0), 1200
    longitude, latitude = random.uniform((-66.5, 18.0), (-66.3, 18.15), (n, 2)).T
    times = pd.Timestamp("2023-04-01") + pd.to_timedelta(random.uniform(0, 274, n), unit="D")
    level = 1.2 + 4 * (longitude + 66.5)
    speed = (10 ** (level + 0.15 * random.standard_normal(n))).round(2)
    table = pd.DataFrame({"time": times, "lat": latitude, "lon": longitude, "download_mbps": speed})
    table.to_csv(folder / "all.csv", index=False)
    table[times < "2023-10-01"].to_csv(folder / "early.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)
        shorten_field_fits(patch)
        patch.setattr(few_rows, "FOLDS", 3)
        own = {"points": str(folder / "early.csv"), "out": folder / "run"}
        run_map(MapSettings(preset="quick", epochs=2, zoom=13, split="random", **own))
    return folder


def test_own_tests_are_checked_on_a_later_file(points):
    run = open_run(points / "run")
    scores = run.verify("2023Q4", points=str(points / "all.csv")).set_index("group")
    table = pd.read_csv(points / "all.csv", parse_dates=["time"])
    later = table[table["time"] >= "2023-10-01"]
    column, row = tiles_at(later["lon"].to_numpy(), later["lat"].to_numpy())
    inside = open_run(points / "run").reopen().inputs.region.contains(*tile_centres(column, row))
    assert scores["n"]["all"] == len({*zip(column[inside], row[inside], strict=True)})
    assert scores["difference"]["all"] < -0.1


def test_files_of_own_tests_belong_to_runs_of_own_tests(points, made):
    with pytest.raises(RequestError, match=r"is of own tests\. Give a file of later tests"):
        open_run(points / "run").verify("2023Q4")
    with pytest.raises(RequestError, match=r"is of tiles.*Leave --points out"):
        open_run(made).verify(LATER, points=str(points / "all.csv"))
    with pytest.raises(DataError, match=r"has no tests in .* for 2024Q1; its quarters are"):
        open_run(points / "run").verify("2024Q1", points=str(points / "all.csv"))


class TestCommand:
    def test_it_prints_hash_date_and_scores(self, geogp, run, answers):
        code, out, _ = geogp("verify", run, "--quarters", LATER)
        words = " ".join(out.split())
        assert code == 0
        assert answers[0].content["model_sha256"] in words
        assert "from 2022Q1 to 2022Q3" in words
        assert "How it did later, 2022Q4, 2023Q1: coverage and scores" in words
        assert f"{SCORES}.csv" in out

    def test_json_is_all_there_is(self, geogp, run, answers):
        code, out, _ = geogp("verify", run, "--quarters", LATER, "--json")
        told = json.loads(out)
        assert code == 0
        assert told["scores"] == answers[0].described["scores"]
        assert told["thresholds"] == answers[1].described["thresholds"]
        assert {Path(name).name for name in told["files"]} >= {f"{SCORES}.json", f"{SCORES}.csv"}

    def test_a_refusal_is_one_message(self, geogp, run):
        code, _, err = geogp("verify", run, "--quarters", "2022Q1")
        assert code == 2
        assert "2022Q1 is a quarter to which the run was fitted" in err

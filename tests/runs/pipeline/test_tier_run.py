"""The main job for tiers of speed, from files to files."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import Heard, run_json

import geogp
from geogp.answers.pages import remake_report
from geogp.answers.run import open_run
from geogp.commands.gallery import make_gallery
from geogp.errors import RequestError
from geogp.evaluation.class_scores import class_scores
from geogp.geodata.tiles.targets import SPEED_TIERS, speed_tiers
from geogp.records.map_settings import MapSettings
from geogp.records.record_reading import run_schema
from geogp.runs.pipeline.run_map import run_map

TAGS = ["below_5_1", "5_1", "7_1", "35_3"]
P = [f"p_tier_{tag}" for tag in TAGS]
TIERS = list(SPEED_TIERS["mobile"])


def _table(run) -> pd.DataFrame:
    return pd.read_parquet(run.path / "test_predictions.parquet")


def _tiles(small) -> pd.DataFrame:
    """Return the tier of each measured tile and quarter, by another route."""
    region = geogp.read_region("DEMO", boundaries=small.folder / "boundaries")
    down, up = (
        geogp.read_tiles(region, target=target, source=small.folder)
        for target in ("download", "upload")
    )
    tiers = speed_tiers(10 ** down["y"], 10 ** up["y"])
    return down.assign(tier=tiers, label=down["quarter"].astype(str))


def test_the_run_is_whole_and_of_the_schema(tiered):
    run = run_json(tiered)
    assert (run["target"], run["model"], run["map"]["for"]) == ("tier", "class-dbk", "class")
    names = {"tier", "p_at_least_5_1", "p_at_least_7_1", "p_at_least_35_3", "p_most_probable"}
    expected = {f"{name}.{end}" for name in names | {"entropy"} for end in ("tif", "png")}
    expected |= {f"{name}.tif" for name in P} | {"map.html", "report.html", "tiles.parquet"}
    assert expected <= set(run["files"])
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(run_schema()))
    assert list(validator.iter_errors(run)) == []
    del run["metrics"]["random"]["all"]["ece"]
    assert not validator.is_valid(run)


def test_its_rows_have_the_tiers_of_both_speeds(tiered, small):
    table, tiles = _table(tiered), _tiles(small)
    both = table.merge(tiles, left_on=["quadkey", "quarter"], right_on=["quadkey", "label"])
    assert len(both) == len(table)
    assert (np.array(TIERS)[both["y_x"].astype(int)] == both["tier"]).all()


def test_the_scores_follow_from_the_table(tiered):
    run = run_json(tiered)
    for split, rows in _table(tiered).groupby("split"):
        starts = {"metrics": "", "baseline": "baseline_", "baseline_by_stratum": "stratum_"}
        for key, start in starts.items():
            for group, held in run[key][split].items():
                part = rows if group == "all" else rows[rows["stratum"] == group]
                p = part[[start + name for name in P]].to_numpy()
                found = class_scores(p, part["y"].astype(int).to_numpy())
                assert held == pytest.approx(vars(found))
    # The two splits test different rows, and both have every stratum.
    assert run["metrics"]["random"]["all"]["n"] == run["n"]["random"]["test"]


def test_the_baselines_are_shares_of_the_training_rows(tiered, small):
    tiles, table = _tiles(small), _table(tiered)
    rows = table[table["split"] == "random"]
    tested = pd.MultiIndex.from_frame(rows[["quadkey", "quarter"]])
    outside = tiles[~pd.MultiIndex.from_frame(tiles[["quadkey", "label"]]).isin(tested)]
    # Nine tenths of the rows include the training rows, so shares are nearly equal.
    for quarter, part in rows.groupby("quarter"):
        shares = outside[outside["label"] == quarter]["tier"].value_counts(normalize=True)
        found = part[[f"baseline_{name}" for name in P]]
        assert found.nunique().eq(1).all()
        expected = shares.reindex(TIERS).fillna(0).to_numpy()
        np.testing.assert_allclose(found.iloc[0], expected, atol=0.03)


def test_its_model_predicts_what_a_program_reads(tiered, small):
    model = geogp.load_model(tiered.path / "model.safetensors")
    tiles, table = _tiles(small), _table(tiered)
    rows = table[table["split"] == "random"]
    both = rows.merge(
        tiles[["quadkey", "label", "quarter"]],
        left_on=["quadkey", "quarter"],
        right_on=["quadkey", "label"],
        suffixes=("_text", ""),
    )
    both = both.assign(rural=(both["stratum"] == "rural").astype(float))
    law = model.predict_distribution(both)
    np.testing.assert_allclose(law.probabilities, both[P], atol=1e-6)
    assert (model.predict(both) == both[P].to_numpy().argmax(1)).all()
    with pytest.raises(RequestError, match="expected a model of numbers for a grid"):
        model.grid((-91, 31, -89, 33))
    with pytest.raises(RequestError, match="class-dbk is a model of classes"):
        model.joint(both[:3])


def test_the_map_has_probabilities_that_agree(tiered):
    with xr.open_dataset(tiered.path / "grid.nc", engine="h5netcdf") as grid:
        inside = np.isfinite(grid["entropy"].to_numpy())
        p = np.stack([grid[name].to_numpy()[inside] for name in P], 1)
        assert p.sum(1) == pytest.approx(1, abs=1e-5)
        tier = grid["tier"].to_numpy()
        assert np.isnan(tier[~inside]).all()
        assert (tier[inside] == p.argmax(1)).all()
        assert grid["tier"].attrs["flag_meanings"] == " ".join(TAGS)
        for code, tag in list(enumerate(TAGS))[1:]:
            least = grid[f"p_at_least_{tag}"].to_numpy()[inside]
            assert least == pytest.approx(p[:, code:].sum(1), abs=1e-5)
        assert grid["p_most_probable"].to_numpy()[inside] == pytest.approx(p.max(1))
    table = gpd.read_parquet(tiered.path / "tiles.parquet")
    assert (np.array(TIERS)[table[P].to_numpy().argmax(1)] == table["tier"]).all()
    assert table[P].sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)


def test_the_report_has_the_reliability_of_each_tier_and_is_rebuilt(tiered):
    names = ("report.json", "report.md", "report.html")
    before = {name: (tiered.path / name).read_bytes() for name in names}
    for name in names:
        (tiered.path / name).unlink()
    remake_report(tiered.path)
    assert before == {name: (tiered.path / name).read_bytes() for name in names}
    report, rows = json.loads(before["report.json"]), _table(tiered)
    assert list(report["splits"]) == ["blocks", "random"]
    split = report["splits"]["blocks"]
    all_rows = {one["meets"]: one for one in split["reliability"] if one["group"] == "all"}
    assert list(all_rows) == [*TIERS, "at least 7/1"]
    own = rows[rows["split"] == "blocks"]
    for code, name in enumerate(TIERS):
        assert all_rows[name]["stated"] == pytest.approx(own[P[code]].mean())
        assert all_rows[name]["observed"] == pytest.approx((own["y"] == code).mean())
    group, run = split["groups"]["all"], run_json(tiered)
    gain = run["baseline"]["blocks"]["all"]["nll"] - run["metrics"]["blocks"]["all"]["nll"]
    assert group["gain"] == pytest.approx(gain)
    assert list(group["class_errors"]) == TIERS
    text = (tiered.path / "report.md").read_text()
    assert "the probability of the most probable tier differs from the observed share" in text
    assert "interval of the speed" not in text
    with pytest.raises(RequestError, match=r"report\.tex is a table of intervals"):
        remake_report(tiered.path, latex=True)


def test_a_stopped_run_of_folds_continues_to_the_same_numbers(small, tmp_path):
    heard = Heard(lambda *_: len(heard.parts) == 2)

    def request(name, **changes):
        return small.request(
            tmp_path / name, target="tier", model="class-rbf", folds=2, split="random", **changes
        )

    with pytest.raises(KeyboardInterrupt):
        run_map(request("run"), heard)
    done = run_map(request("run"), heard)
    whole = run_map(request("whole"))
    assert run_json(done)["metrics"] == run_json(whole)["metrics"]
    # The scores of two folds are those of all their rows, the calibration error too.
    rows = _table(done)
    found = class_scores(rows[P].to_numpy(), rows["y"].astype(int).to_numpy())
    assert run_json(done)["metrics"]["random"]["all"] == pytest.approx(vars(found))
    # Another quarter is drawn from the stored model.
    again = run_map(request("run", at="2023Q3"))
    assert run_json(again)["map"]["at"] == "2023Q3"
    assert run_json(again)["metrics"] == run_json(done)["metrics"]
    assert run_map(request("run", at="2023Q3")).already_there


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "vbll"}, "--target download,upload maps Ookla's tiles by the model field"),
        ({"target": "upload", "model": "class-rbf"}, "use field, or map --target tier"),
        ({"target": "tests"}, "Leave --model out to use cox-nb"),
        ({"question": "level"}, "predicts the tier of a measured tile; --for, --tests"),
        ({"tests": 5}, "--for, --tests and --devices describe averages"),
        ({"threshold": (7.0,)}, "its map shows the probability of each class"),
        ({"conformal": "marginal"}, "not probabilities of tiers. Leave --conformal out"),
        ({"noise": "student-t"}, "class-dbk has no student-t noise, because a class has no noise"),
        ({"budget": 60.0}, "--budget chooses the rank, but only of models with anchors"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes, message):
    defaults = {"target": "tier", "model": "class-dbk"}
    with pytest.raises(RequestError, match=message):
        MapSettings("PR", source="tiles", boundaries="borders", **defaults | changes)


def test_a_quarter_after_the_data_is_refused(small, tmp_path):
    with pytest.raises(RequestError, match="tiers can be mapped only for quarters within the data"):
        run_map(small.request(tmp_path / "run", target="tier", model="class-dbk", at="2024Q4"))


def test_the_gallery_shows_accuracy_and_gain(tiered, finished, tmp_path):
    html = make_gallery([tiered.path, finished.path], out=tmp_path).page.read_text("utf-8")
    assert "most probable tier" in html
    run = run_json(tiered)
    for split, scores in run["metrics"].items():
        gain = run["baseline"][split]["all"]["nll"] - scores["all"]["nll"]
        for name in ("urban", "rural"):
            assert f"<td>{100 * scores[name]['accuracy']:.1f} %</td>" in html
        assert f'data-value="{gain}"' in html


def test_the_stratum_is_a_covariate(small, tmp_path):
    made = run_map(small.request(tmp_path, target="tier", model="class-rbf"))
    (held,) = run_json(made)["covariates"]
    assert (held["name"], held["interpolation"], held["share_with_data"]) == ("rural", "none", 1)
    assert held["coefficient"] is None
    model = geogp.load_model(made.path / "model.safetensors")
    assert model.coefficients_.empty
    tiles = gpd.read_parquet(made.path / "tiles.parquet")
    places = pd.DataFrame({"longitude": tiles["longitude"], "latitude": tiles["latitude"]})
    places = places.assign(quarter=pd.Period(run_json(made)["map"]["at"], "Q"))
    rural = (tiles["stratum"] == "rural").astype(float)
    p = [model.predict_distribution(places.assign(rural=s)).probabilities for s in (rural, 0.0)]
    np.testing.assert_allclose(p[0], tiles[P], atol=1e-5)
    assert np.abs(p[0] - p[1])[rural == 1].mean() > 1e-3
    assert (p[0] == p[1])[rural == 0].all()


def test_commands_for_numbers_refuse_the_run(tiered, finished, geogp):
    run = open_run(tiered.path)
    for ask in (run.areas, run.exceedance, run.next):
        with pytest.raises(RequestError, match=r"is a class \(tier\), which has no level"):
            ask()
    for arguments, message in (
        (("figures", tiered.path), "which has no level"),
        (("compare", tiered.path, finished.path), "expected runs of one target, found tier"),
        (("report", tiered.path, "--latex"), "report.tex is a table of intervals"),
    ):
        code, _, told = geogp(*arguments)
        assert (code, message in " ".join(told.split())) == (2, True), told


def test_the_command_prints_the_scores_of_classes(tiered, small, geogp):
    model = ("--target", "tier", "--model", "class-dbk")
    arguments = [*small.arguments, *model, "--split", "both", "--out", tiered.path]
    arguments[arguments.index("--epochs") + 1] = "4"
    code, told, _ = geogp(*arguments, "--json")
    assert code == 0
    found = json.loads(told)["metrics"]["blocks"]["all"]
    assert list(found) == ["n", "accuracy", "nll", "brier", "ece"]
    code, told, _ = geogp(*arguments)
    assert code == 0
    assert "Brier score" in told
    assert "coverage" not in told

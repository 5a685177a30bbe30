"""Maps under Student-t noise, from files to files."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from run_worlds import run_json

from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import DataError, RequestError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.metrics import score
from geogp.models.catalogue.storage import load_model
from geogp.runs.pipeline.make_map import make_map, remake_report
from geogp.runs.settings import MapRequest

pytestmark = pytest.mark.trial


@pytest.fixture(scope="module")
def robust(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("robust") / "run"
    return make_map(small.request(out, model="vbll", noise="student-t", split="both"))


def test_the_run_names_its_noise_and_what_its_map_lacks(robust):
    assert run_json(robust)["settings"]["noise"] == "student-t"
    assert any(
        "mean of the predicted download speed does not exist" in text
        and "The map shows the median" in text
        for text in run_json(robust)["warnings"]
    )
    for page in ("report.html", "map.html"):
        assert "The map shows the median" in (robust.path / page).read_text()


def test_the_map_has_a_median_and_no_mean(robust):
    with xr.open_dataset(robust.path / "grid.nc", engine="h5netcdf") as grid:
        assert np.isfinite(grid["median_mbps"]).any()
        assert np.isnan(grid["mean_mbps"]).all()
        assert grid.attrs["noise"] == "student-t"
    with rasterio.open(robust.path / "mean_mbps.tif") as found:
        assert np.isnan(found.read(1)).all()
    assert (robust.path / "median.png").exists()
    assert not (robust.path / "mean.png").exists()


def test_figures_follow_from_the_table(robust):
    table = pd.read_parquet(robust.path / "test_predictions.parquet")
    assert {"skewness", "tailweight", "noise_df"} <= set(table.columns)
    model, _ = load_model(robust.path / "model.safetensors")
    df = table.loc[table["split"] == "random", "noise_df"].unique()
    np.testing.assert_array_equal(df, [float(model.noise.df.detach())])
    for split, rows in table.groupby("split"):
        prediction = prediction_of(rows)
        assert isinstance(prediction.shape, NormalPlusStudent)
        lower, upper = prediction.interval(0.95)
        np.testing.assert_allclose(lower, rows["lower_95"], rtol=1e-12)
        np.testing.assert_allclose(upper, rows["upper_95"], rtol=1e-12)
        found = score(prediction, rows["y"])
        for name in ("nll", "crps", "coverage_50"):
            told = run_json(robust)["metrics"][split]["all"][name]
            assert getattr(found, name) == pytest.approx(told, abs=1e-12)


def test_the_report_is_made_again_and_an_edited_df_is_refused(robust, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(robust.path, copy)
    before = (copy / "report.json").read_text()
    (copy / "report.json").unlink()
    remake_report(copy)
    assert (copy / "report.json").read_text() == before
    path = copy / "test_predictions.parquet"
    table = pd.read_parquet(path)
    table["noise_df"] += 1
    table.to_parquet(path, index=False)
    with pytest.raises(DataError, match="found others in"):
        remake_report(copy)


def test_the_level_has_a_mean(small, tmp_path):
    found = make_map(
        small.request(tmp_path / "run", model="vbll", noise="student-t", question="level")
    )
    with xr.open_dataset(found.path / "grid.nc", engine="h5netcdf") as grid:
        assert np.isfinite(grid["mean_mbps"]).any()
    assert not any("does not exist" in text for text in run_json(found)["warnings"])


def test_another_noise_is_another_run(robust, small):
    with pytest.raises(RequestError, match="contains a run that differs in settings"):
        make_map(small.request(robust.path, model="vbll", split="both"))


def test_refused_before_anything_is_read():
    places = {"region": "PR", "source": "nowhere", "boundaries": "nowhere"}
    with pytest.raises(RequestError, match=r"field has no student-t noise.*vbll"):
        MapRequest(**places, noise="student-t")
    with pytest.raises(RequestError, match=r"unknown noise 'student'.*Did you mean student-t"):
        MapRequest(**places, model="vbll", noise="student")


def test_the_command_takes_the_noise(small, tmp_path, capsys, monkeypatch):
    from geogp_cli.main import run

    out = tmp_path / "run"
    arguments = [*small.arguments, "--model", "sv-rbf", "--noise", "student-t", "--json"]
    monkeypatch.setattr("sys.argv", ["geogp", *arguments, "--epochs", "1", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code in {None, 0}
    assert json.loads(capsys.readouterr().out)["run"] == str(out)
    assert json.loads((out / "run.json").read_text())["settings"]["noise"] == "student-t"

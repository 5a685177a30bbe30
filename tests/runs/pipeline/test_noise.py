"""Maps under Student-t noise, and of a process with a Burr XII scale, from files to files."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from run_worlds import run_json

from geogp.answers.pages import remake_report
from geogp.distributions.burr import BurrMixture
from geogp.distributions.shapes import BURR_COLUMNS
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import RequestError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.metrics import score
from geogp.models.catalogue.storage import load_model
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.trial


@pytest.fixture(scope="module")
def robust(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("robust") / "run"
    return run_map(small.request(out, model="vbll", noise="student-t", split="both"))


def test_the_run_names_its_noise_and_what_its_map_lacks(robust):
    assert run_json(robust)["settings"]["model"]["noise"] == "student-t"
    assert any(
        "mean of the predicted download speed does not exist" in text
        and "The map shows the median" in text
        for text in run_json(robust)["warnings"]
    )
    for page in ("report.html", "map.html"):
        assert "The map shows the median" in (robust.path / page).read_text()


@pytest.fixture(scope="module")
def burr(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("burr") / "run"
    return run_map(small.request(out, model="burr-process", split="random"))


@pytest.fixture(params=["robust", "burr"])
def heavy(request):
    """A map of Student-t noise, and a map of a process with a Burr XII scale."""
    return request.getfixturevalue(request.param)


def test_the_map_has_a_median_and_no_mean(heavy):
    with xr.open_dataset(heavy.path / "grid.nc", engine="h5netcdf") as grid:
        assert np.isfinite(grid["median_mbps"]).any()
        assert np.isnan(grid["mean_mbps"]).all()
        assert grid.attrs["noise"] == heavy.record.settings.model.noise
    with rasterio.open(heavy.path / "mean_mbps.tif") as found:
        assert np.isnan(found.read(1)).all()
    assert (heavy.path / "median.png").exists()
    assert not (heavy.path / "mean.png").exists()
    assert any("does not exist" in text for text in run_json(heavy)["warnings"])


def test_the_table_has_the_shape_of_the_model(robust, burr):
    tables = [pd.read_parquet(run.path / "test_predictions.parquet") for run in (robust, burr)]
    noise, scale = (load_model(run.path / "model.safetensors")[0] for run in (robust, burr))
    assert {"skewness", "tailweight", "noise_df"} <= set(tables[0].columns)
    df = tables[0].loc[tables[0]["split"] == "random", "noise_df"].unique()
    np.testing.assert_array_equal(df, [float(noise.noise.df.detach())])
    random = tables[1].loc[tables[1]["split"] == "random", list(BURR_COLUMNS)].drop_duplicates()
    np.testing.assert_array_equal(random.to_numpy(), [scale.scale_terms.numpy()])


def test_figures_follow_from_the_table(heavy):
    table = pd.read_parquet(heavy.path / "test_predictions.parquet")
    for split, rows in table.groupby("split"):
        prediction = prediction_of(rows)
        assert isinstance(prediction.shape, NormalPlusStudent | BurrMixture)
        lower, upper = prediction.interval(0.95)
        np.testing.assert_allclose(lower, rows["lower_95"], rtol=1e-12)
        np.testing.assert_allclose(upper, rows["upper_95"], rtol=1e-12)
        found = score(prediction, rows["y"])
        for name in ("nll", "crps", "coverage_50"):
            told = run_json(heavy)["metrics"][split]["all"][name]
            assert getattr(found, name) == pytest.approx(told, abs=1e-12)


def test_the_report_is_made_again(heavy, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(heavy.path, copy)
    before = (copy / "report.json").read_text()
    (copy / "report.json").unlink()
    remake_report(copy)
    assert (copy / "report.json").read_text() == before


def test_the_level_has_a_mean(small, tmp_path):
    found = run_map(
        small.request(tmp_path / "run", model="vbll", noise="student-t", question="level")
    )
    with xr.open_dataset(found.path / "grid.nc", engine="h5netcdf") as grid:
        assert np.isfinite(grid["mean_mbps"]).any()
    assert not any("does not exist" in text for text in run_json(found)["warnings"])


def test_another_noise_is_another_run(robust, small):
    with pytest.raises(RequestError, match="contains a run that differs in settings"):
        run_map(small.request(robust.path, model="vbll", split="both"))


def test_refused_before_anything_is_read():
    places = {"region": "PR", "source": "nowhere", "boundaries": "nowhere"}
    with pytest.raises(RequestError, match=r"field has no student-t noise.*vbll"):
        MapSettings(**places, noise="student-t")
    with pytest.raises(RequestError, match=r"unknown noise 'student'.*Did you mean student-t"):
        MapSettings(**places, model="vbll", noise="student")


def test_the_command_takes_the_noise(small, tmp_path, capsys, monkeypatch):
    from geogp_cli.entry import run

    out = tmp_path / "run"
    arguments = [*small.arguments, "--model", "sv-rbf", "--noise", "student-t", "--json"]
    monkeypatch.setattr("sys.argv", ["geogp", *arguments, "--epochs", "1", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code in {None, 0}
    assert json.loads(capsys.readouterr().out)["run"] == str(out)
    assert json.loads((out / "run.json").read_text())["settings"]["model"]["noise"] == "student-t"

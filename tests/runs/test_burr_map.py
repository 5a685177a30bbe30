"""A map of a process with a Burr XII scale, from files to files."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import run_json

from geogp.distributions.burr import BurrMixture
from geogp.distributions.shapes import BURR_COLUMNS
from geogp.errors import DataError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.metrics import score
from geogp.models.catalogue.storage import load_model
from geogp.runs.pipeline.make_map import make_map, remake_report

pytestmark = pytest.mark.trial


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("burr") / "run"
    return make_map(small.request(out, model="burr-process", split="random"))


def test_the_map_has_a_median_and_no_mean(made):
    with xr.open_dataset(made.path / "grid.nc", engine="h5netcdf") as grid:
        assert np.isfinite(grid["median_mbps"]).any()
        assert np.isnan(grid["mean_mbps"]).all()
    assert any("does not exist" in text for text in run_json(made)["warnings"])


def test_figures_follow_from_the_table(made):
    table = pd.read_parquet(made.path / "test_predictions.parquet")
    assert set(BURR_COLUMNS) < set(table.columns)
    model, _ = load_model(made.path / "model.safetensors")
    random = table.loc[table["split"] == "random", list(BURR_COLUMNS)].drop_duplicates()
    np.testing.assert_array_equal(random.to_numpy(), [model.scale_terms.numpy()])
    for split, rows in table.groupby("split"):
        prediction = prediction_of(rows)
        assert isinstance(prediction.shape, BurrMixture)
        lower, upper = prediction.interval(0.95)
        np.testing.assert_allclose(lower, rows["lower_95"], rtol=1e-12)
        np.testing.assert_allclose(upper, rows["upper_95"], rtol=1e-12)
        found = score(prediction, rows["y"])
        for name in ("nll", "crps", "coverage_50"):
            told = run_json(made)["metrics"][split]["all"][name]
            assert getattr(found, name) == pytest.approx(told, abs=1e-12)


def test_the_report_is_made_again_and_an_edited_scale_is_refused(made):
    before = (made.path / "report.json").read_text()
    (made.path / "report.json").unlink()
    remake_report(made.path)
    assert (made.path / "report.json").read_text() == before
    path = made.path / "test_predictions.parquet"
    table = pd.read_parquet(path)
    table["burr_rows"] = 9.0
    table.to_parquet(path, index=False)
    with pytest.raises(DataError, match="found others in"):
        remake_report(made.path)

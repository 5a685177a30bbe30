"""Thresholds of a map: defaults, redrawing, refusals, the command."""

import numpy as np
import pytest
import rasterio
import xarray as xr
from run_worlds import Heard, run_json
from typer.testing import CliRunner

from geogp.errors import RequestError
from geogp.runs.pipeline.run_map import run_map
from geogp_cli.main import app


def variables(path):
    with xr.open_dataset(path / "grid.nc", engine="h5netcdf") as grid:
        return {str(name) for name in grid.data_vars if str(name).startswith("p_at_")}


def test_the_usual_map_has_the_tiers(finished):
    usual = {f"p_at_least_{value}_mbps" for value in (7, 35, 100)}
    assert variables(finished.path) == usual
    assert {f"{name}.tif" for name in usual} <= set(run_json(finished)["files"])
    assert run_json(finished)["drawing"]["thresholds"] == [7, 35, 100]
    with rasterio.open(finished.path / "p_at_least_7_mbps.tif") as found:
        p = found.read(1)
        assert found.tags()["map_thresholds"] == "[7.0, 35.0, 100.0]"
    with rasterio.open(finished.path / "median_mbps.tif") as found:
        median = found.read(1)
    inside = np.isfinite(p)
    assert ((p >= 0.5) == (median >= 7))[inside].mean() > 0.999
    assert 0 <= p[inside].min() < p[inside].max() <= 1


@pytest.mark.trial
def test_another_threshold_redraws_the_map_without_a_fit(small, tmp_path):
    heard, folder = Heard(), tmp_path / "run"
    first = run_map(small.request(folder, target="upload", model="dbk-silu", epochs=1))
    assert variables(folder) == {f"p_at_least_{value}_mbps" for value in (1, 3, 20)}
    request = small.request(folder, target="upload", model="dbk-silu", epochs=1, threshold=(2.5, 1))
    again = run_map(request, heard)
    assert "drawing the map of the fitted model again" in heard.texts
    assert variables(folder) == {"p_at_least_1_mbps", "p_at_least_2_5_mbps"}
    assert not (folder / "p_at_least_3_mbps.tif").exists()
    assert again.record.metrics == first.record.metrics
    assert run_map(request).already_there


def test_refusals(small, tmp_path):
    with pytest.raises(RequestError, match="--target tests has no thresholds"):
        small.request(tmp_path, target="tests", threshold=(5,))
    with pytest.raises(RequestError, match="expected a threshold from"):
        small.request(tmp_path, threshold=(0,))
    arguments = [*small.arguments, "--out", str(tmp_path / "run"), "--threshold", "-1"]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code != 0
    assert "found -1" in str(found.exception)

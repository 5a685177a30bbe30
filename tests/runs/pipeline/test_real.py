"""The main job on real tiles."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import run_json

from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.real


def request_of(folder, region, out, **more):
    return MapSettings(
        region=region,
        source=str(folder / "ookla-open-data"),
        boundaries=str(folder / "census"),
        quarters="2019Q1..2023Q4",
        preset="quick",
        out=out,
        **more,
    )


@pytest.mark.trial
def test_puerto_rico_beats_the_baseline_and_its_intervals_hold(real_data, tmp_path):
    found = run_map(request_of(real_data, "PR", tmp_path / "run"))
    run = run_json(found)
    assert sum(run["n"]["random"].values()) == 133_436
    assert run["quarters_missing"] == ["2019Q4", "2020Q2"]
    assert len(run["quarters"]) == 18
    scores, baseline = run["metrics"]["random"], run["baseline"]["random"]
    assert scores["all"]["nll"] <= baseline["all"]["nll"] - 0.047
    for stratum in ("urban", "rural"):
        assert 0.93 <= scores[stratum]["coverage_95"] <= 0.97
    table = pd.read_parquet(found.path / "test_predictions.parquet")
    width = (table["upper_95"] - table["lower_95"]).groupby(table["stratum"]).median()
    assert width["rural"] / width["urban"] > 1.03
    assert (found.path / "map.html").stat().st_size < 8e6
    with xr.open_dataset(found.path / "grid.nc", engine="h5netcdf") as grid:
        assert int(np.isfinite(grid["median_mbps"]).sum()) == 26_915
        # Mona island lies some 70 km from any measured tile.
        assert float(grid["distance_km"].max()) == pytest.approx(77.5, abs=0.5)
        assert int((grid["far"] == 1).sum()) > 100


@pytest.mark.trial
@pytest.mark.parametrize(("region", "rows", "strata"), [("MO", 17_082, True), ("VI", 3_733, False)])
def test_other_regions_need_no_change(region, rows, strata, real_data, tmp_path):
    found = run_map(request_of(real_data, region, tmp_path / "run", epochs=10, zoom=13))
    run = run_json(found)
    assert sum(run["n"]["random"].values()) == rows
    scores = run["metrics"]["random"]
    assert bool(scores["urban"]["n"]) == bool(scores["rural"]["n"]) == strata
    assert any("no urban areas" in text for text in run["warnings"]) != strata
    # A few hundred test rows with far outliers: the log score would hang on two or three.
    assert scores["all"]["crps"] < 1.05 * run["baseline"]["random"]["all"]["crps"]
    assert 0.9 < scores["all"]["coverage_95"] < 0.99
    assert run["settings"]["model"]["inputs"] == ("place" if region == "MO" else "place-quarter")

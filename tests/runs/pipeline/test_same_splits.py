"""The splits random and tiles: two questions, but one if each tile has one row."""

import json

import pandas as pd
import pytest
import torch
from run_worlds import Heard, run_json

from geogp.runs.pipeline.plan import plan_map
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.pipeline.splits import same_splits
from geogp.runs.progress import RunListener


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"split": "random,tiles"}, ("random", "tiles")),
        ({"split": "random,tiles,blocks", "quarters": "2023Q4"}, ("random", "blocks")),
        ({"split": "tiles", "quarters": "2023Q4"}, ("tiles",)),
        ({"preset": "standard", "quarters": "2023Q4"}, ("random", "blocks")),
        ({"preset": "standard"}, ("random", "tiles", "blocks")),
    ],
)
def test_the_splits_are_fitted_once_if_they_ask_the_same(small, tmp_path, changes, made):
    request = small.request(tmp_path / "run", **changes)
    inputs, heard = read_inputs(request, RunListener()), Heard()
    plan = plan_map(request, inputs, torch.device("cpu"), RunListener(heard))
    assert plan.model.settings.splits == made
    same = same_splits(request, inputs)
    assert same == ({"tiles": "random"} if "tiles" not in made else {})


def test_a_run_says_which_split_stands_for_which_tiles_and_how_many_these_are(small, tmp_path):
    changes = {"split": "random,tiles", "quarters": "2023Q4", "zoom": 16}
    made = run_map(small.request(tmp_path / "run", **changes))
    run, tiles = run_json(made), pd.read_parquet(made.path / "tiles.parquet")
    measured = tiles["tests"] > 0
    near = ~measured & (tiles["distance_km"] <= 1)
    assert run["map"]["measured_tiles"] == measured.sum() == sum(run["n"]["random"].values())
    assert 0 < run["map"]["near_tiles"] == near.sum() < (~measured).sum()
    assert run["same_splits"] == {"tiles": "random"}
    assert run["settings"]["checks"]["splits"] == list(run["metrics"]) == ["random"]
    told = json.loads((made.path / "report.json").read_text())["reliance"]
    assert "Measured tiles" not in told
    found = told["Unmeasured tiles among measured ones"]
    assert "each tile has one row, so this split holds out whole tiles" in found
    assert f"{100 * near.mean():.1f} % of the map's tiles have no measurement" in found
    rows = pd.read_parquet(made.path / "test_predictions.parquet")
    tested = (rows["split"] == "random") & (rows["distance_km"] <= 1)
    assert 0 < tested.sum() < run["n"]["random"]["test"]
    assert f"Of {tested.sum()} measurements of tiles without any other" in found

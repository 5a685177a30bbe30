"""Speeds at tiny sizes: the figures are there, and the arithmetic is that of the paper's sizes."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, started

RATIOS = (
    "svgp_step_vs_gpytorch",
    "svgp_step_vs_torch",
    "predict_vs_gpytorch",
    "predict_drawn_vs_gpytorch",
)
SHARES = ("svgp", "dbk_rbf", "dbk_silu")


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    """Figures of the script, on rows from a file and without geopandas."""
    folder = tmp_path_factory.mktemp("speed")
    random = np.random.default_rng(0)
    np.savez(folder / "rows.npz", x=random.uniform(-5, 9, (500, 3)), y=random.standard_normal(500))
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['geopandas'] = None\n")
    options = ["--json", folder / "out" / "cpu.json", "--npz", folder / "rows.npz"]
    told = started("speed.speed", "--quick", *options, path=str(folder))
    assert "| svgp_step_vs_gpytorch |" in told
    return json.loads((folder / "out" / "cpu.json").read_text())


def test_all_figures_are_there(found):
    assert all(found[key] > 0 for key in RATIOS)
    assert all(found[f"svgp_step_vs_gpytorch_b{b}"] > 0 for b in (65, 128))
    assert all(found[f"{key}_share_of_peak"] > 0 for key in SHARES)
    assert found["predict_share_of_peak"] > 0
    assert found["predict_error"] < 1e-4
    assert found["predict_tiles_share_of_peak"] > 0
    assert found["predict_tiles_seconds"] > 0
    assert found["lengthscale_003_vs_1"] > 0
    assert {f"{name} step by r" for name in ("svgp", "dbk-rbf", "dbk-silu")} <= set(found["slopes"])
    assert found["machine"]["date"]
    assert {"torch", "gpytorch", "threads", "processor"} <= set(found["machine"])


def test_arithmetic_at_the_sizes_of_the_paper():
    speed = load("speed.speed")
    counts = [speed.operations(name, speed.Sizes()) for name in ("svgp", "dbk-rbf", "dbk-silu")]
    counts.append(speed.prediction_operations(speed.Sizes()))
    assert [count / 1e9 for count in counts] == pytest.approx([13.2, 18.0, 9.7, 315], rel=5e-3)

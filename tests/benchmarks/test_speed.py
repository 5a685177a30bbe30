"""Speeds at tiny sizes: the figures are there, and the arithmetic is that of the paper's sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

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
    done = subprocess.run(
        [
            *(sys.executable, str(FOLDER / "speed.py"), "--quick"),
            *("--json", str(folder / "out" / "cpu.json"), "--npz", str(folder / "rows.npz")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        },
    )
    assert done.returncode == 0, done.stderr
    assert "| svgp_step_vs_gpytorch |" in done.stdout
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
    assert "ingest_rows_per_second" not in found


def test_arithmetic_at_the_sizes_of_the_paper():
    program = (
        "from speed import Sizes, operations, prediction_operations as p; "
        "print(*(operations(k, Sizes()) for k in ('svgp', 'dbk-rbf', 'dbk-silu')), p(Sizes()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{FOLDER.parent}"},
    )
    counted = [float(part) / 1e9 for part in done.stdout.split()]
    assert counted == pytest.approx([13.2, 18.0, 9.7, 315], rel=5e-3)

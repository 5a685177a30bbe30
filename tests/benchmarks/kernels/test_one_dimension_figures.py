"""The pictures in one dimension: the choice of the seeds, and one tiny run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from benchmark_scripts import told

BENCH = "kernels.one_dimension_figures"


def test_the_best_seed_of_each_rank_is_that_of_the_long_fits(bench, tmp_path):
    def fit(rank, seed, nll, **other):
        case = bench.Case.of("dbk-silu", 20_000, rank, seed=seed, **other)
        return {"case": vars(case), "nll": nll}

    held = [fit(rank, seed, abs(seed - rank % 3)) for rank in bench.RANKS for seed in range(3)]
    held += [fit(8, 5, -9, steps=6000), {**fit(8, 6, -9), "case": {"r": 8, "seed": 6}}]
    (tmp_path / "results.json").write_text(json.dumps(held))
    assert bench.best_seeds(tmp_path) == {1: (1, 3), 2: (2, 3), 8: (2, 3), 64: (1, 3)}


def test_a_tiny_run_draws_both_pictures(bench, tmp_path, monkeypatch):
    def case(*names, **other):
        return original(*names, **{**other, "steps": 3, "h": 8})

    original = bench.Case.of
    monkeypatch.setattr(bench, "Case", SimpleNamespace(of=case))
    monkeypatch.setattr(bench, "best_seeds", lambda _: {1: (0, 3), 8: (4, 10)})
    monkeypatch.setattr(bench, "RANKS", (1, 8))
    monkeypatch.setattr(bench, "EXACT_ROWS", 60)
    monkeypatch.setattr(bench, "EXACT_STEPS", 3)
    told(BENCH, "--out", tmp_path, "--table", tmp_path / "made")
    for name in ("fits", "ranks"):
        assert (tmp_path / "made" / f"{name}.webp").stat().st_size > 10_000
    found = json.loads((tmp_path / "made" / "figures.json").read_text())
    text = (tmp_path / "made" / "figures.md").read_text()
    assert f"| exact RBF | {found['fits']['rbf']['mae']:.4f} |" in text
    assert f"| 8 | 10 | {found['ranks']['8']['nll']:.4f} | -0.215 |" in text
    (path,) = tmp_path.glob("curves-dbk-silu-n20000-r8-*.json")
    curves = json.loads(path.read_text())
    points = len(bench.COARSE)
    kernel = np.reshape(curves["kernel"], (points, points))
    basis = np.reshape(curves["basis"], (8, -1))
    assert kernel == pytest.approx(kernel.T, rel=1e-3, abs=1e-6)
    # The ends and the middle are points of both grids.
    ends = basis[:, [0, 200, -1]]
    assert ends.T @ ends == pytest.approx(kernel[::80, ::80], rel=1e-3)

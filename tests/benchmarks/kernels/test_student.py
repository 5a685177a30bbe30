"""The benchmark of Student-t processes: its data, its scores, and one tiny study."""

import json

import numpy as np
import pytest
from benchmark_scripts import told
from scipy import stats

BENCH = "kernels.student"


def test_data_have_the_scale_they_are_said_to_have(bench):
    """e'A^(-1)e / n finds the square of the factor: n / 2 gamma variables, to 2.6 % here."""
    for wrong in (10.0, 0.1):
        train, new = bench.draw(3000, wrong, 0)
        model = bench.settled("t-process", train)
        assert float(model.scale_terms[3]) / 3000 == pytest.approx(wrong**2, rel=0.08)
        assert len(new.y) == bench.FRESH_ROWS


def test_one_seed_is_one_function_and_another_is_another(bench):
    first, again, other = (bench.draw(50, 1.0, seed)[0] for seed in (0, 0, 1))
    larger = bench.draw(50, 10.0, 0)[0]
    np.testing.assert_array_equal(first.y, again.y)
    np.testing.assert_allclose(larger.y, 10 * first.y)
    assert abs(first.y - other.y).max() > 0.1


def test_what_a_random_scale_is_for(bench):
    """Sure of a wrong scale, the Gaussian process fails; where it is right, both are alike."""
    found = {wrong: bench.scale_figures(200, wrong, 0) for wrong in (10.0, 1.0)}
    assert found[10.0]["nngp"]["nll"] > found[10.0]["t-process"]["nll"] + 5
    assert found[10.0]["nngp"]["coverage_95%"] < 0.4
    assert 0.9 < found[10.0]["t-process"]["coverage_95%"] < 0.99
    for wrong in (10.0, 1.0):
        beside = found[wrong]["t-process"]["nll"]
        assert found[wrong]["burr-process"]["nll"] == pytest.approx(beside, abs=0.02)
        assert found[wrong]["burr_effective_size"] > 10
    assert found[1.0]["nngp"]["nll"] == pytest.approx(found[1.0]["t-process"]["nll"], abs=0.02)
    # In units of the factor nothing but the belief differs.
    assert found[10.0]["nngp"]["rmse"] == pytest.approx(found[1.0]["nngp"]["rmse"])


def test_scores_are_in_the_unit_given(bench):
    y = np.random.default_rng(0).standard_normal(5000) * 3
    zero = np.zeros(5000)
    found = bench.score(bench.Prediction(zero, zero, zero + 9.0), y, 3.0)
    assert found["nll"] == pytest.approx(-stats.norm(0, 3).logpdf(y).mean() - np.log(3))
    assert found["rmse"] == pytest.approx(y.std() / 3, rel=1e-3)
    for level in (0.5, 0.8, 0.95):
        assert found[f"coverage_{level:.0%}"] == pytest.approx(level, abs=0.02)


def test_a_tiny_study_makes_the_table(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WRONG", (10.0,))
    options = ["--out", str(tmp_path / "out"), "--sizes", "20", "400"]
    options += ["--table", str(tmp_path / "made"), "--seeds", "2", "--large-seeds", "1"]
    told(BENCH, *options)
    text = (tmp_path / "made" / "table.md").read_text()
    figures = json.loads((tmp_path / "made" / "results.json").read_text())
    values = [f["t-process"]["nll"] for f in figures["fixed"] if f["n"] == 20]
    shown = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert f"| 10 | 20 | 2 | `t-process` | {shown} |" in text
    assert "| `t-process`, vague |" in text

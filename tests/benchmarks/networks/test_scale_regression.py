"""Regression with a random scale: the baselines, the priors, and a tiny study."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load, told
from scipy import stats

BENCH = "networks.scale_regression"


@pytest.fixture(scope="module")
def baselines():
    return load("networks.network_baselines")


def _rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1.5, 1.5, (n, 2))
    return x, np.sin(2 * x[:, 0]) + 0.3 * random.standard_normal(n)


def test_mixtures_against_scipy(baselines):
    means, variances = np.array([[0.0], [2.0]]), np.array([[1.0], [0.25]])
    law, y = baselines.NormalMixture(means, variances), np.array([0.7])
    density = (stats.norm(0, 1).pdf(0.7) + stats.norm(2, 0.5).pdf(0.7)) / 2
    assert law.log_score(y)[0] == pytest.approx(-math.log(density))
    matched = law.matched()
    assert matched.means[0, 0] == pytest.approx(1)
    assert matched.variances[0, 0] == pytest.approx(0.625 + 1)
    low, high = law.interval(0.9, draws=20_000)
    cdf = [np.mean(stats.norm.cdf(end, means, np.sqrt(variances))) for end in (low, high)]
    np.testing.assert_allclose(cdf, (0.05, 0.95), atol=0.01)


def test_the_baselines_learn_function_and_noise(baselines):
    train, held_out, (x, y) = _rows(600), _rows(100, 1), _rows(300, 2)
    best = stats.norm(0, 0.3).entropy()
    for method in baselines.METHODS.values():
        law = method(train, held_out, x, baselines.Recipe(60), 0)
        assert best - 0.1 < law.log_score(y).mean() < best + 0.35
        assert abs(law.mean() - np.sin(2 * x[:, 0])).mean() < 0.2


@pytest.mark.parametrize("seed", [0, 1])
def test_the_evidence_grows_with_a_up_to_the_known_scale(bench, seed):
    """Student's density with the best b for each a tends to the normal one with the best s²."""
    random = np.random.default_rng(seed)
    e = random.standard_normal(30)
    distance = float(e @ e)
    gains = []
    for a in (2.0, 20.0, 2000.0, 1e6):
        law = stats.multivariate_t(np.zeros(30), distance / 30 * np.eye(30), df=2 * a)
        gains.append(float(law.logpdf(e)))
    normal = stats.norm(0, math.sqrt(distance / 30)).logpdf(e).sum()
    assert gains == sorted(gains)
    assert gains[-1] == pytest.approx(normal, abs=1e-3)


def test_a_tiny_study_is_kept_and_makes_the_table(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "GRID", (1.0, 4.0))
    monkeypatch.setattr(bench, "EPOCHS", {"ensemble": 2, "dropout": 2, "pbp": 1})
    x, y = _rows(80)
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": 5 * y})
    (tmp_path / "data").mkdir()
    frame.to_parquet(tmp_path / "data" / "yacht.parquet")
    options = ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    options += ["--data", str(tmp_path / "data"), "--tables", "yacht", "--seeds", "2"]
    options += ["--iterations", "10", "--r", "30"]
    told(BENCH, *options)
    held = json.loads((tmp_path / "made" / "results.json").read_text())["fits"]
    assert [one["model"] for one in held[::2]] == list(bench.MODELS)
    # Scores are in the unit of the target.
    process = next(one for one in held if one["model"] == "t-process")
    assert 1 < process["rmse"] < 4
    assert process["evidence_gain"] > 0
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json")}
    told(BENCH, *options)
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json")}

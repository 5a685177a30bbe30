"""Probabilistic backpropagation: its moments, its updates, and a function that it learns."""

import numpy as np
import pytest
import torch
from benchmark_scripts import load
from scipy import stats


@pytest.fixture(scope="module")
def bench():
    return load("networks.moment_propagation")


def _double(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_moments_of_rectified_units_and_of_products(bench):
    random = np.random.default_rng(0)
    mean, var = _double(-1.0, 0.3, 2.0), _double(0.5, 1.0, 0.2)
    a = mean.numpy() + np.sqrt(var.numpy()) * random.standard_normal((400_000, 3))
    first, second = bench.rectified(mean, var)
    np.testing.assert_allclose(first[0], np.maximum(a, 0).mean(0), atol=0.005)
    np.testing.assert_allclose(second[0], np.maximum(a, 0).var(0), atol=0.01)
    m, v = torch.randn(4, 1, dtype=torch.float64), torch.rand(4, 1, dtype=torch.float64)
    w = m.numpy()[:, 0] + np.sqrt(v.numpy()[:, 0]) * random.standard_normal((400_000, 4))
    output = (np.hstack([a, np.ones((len(a), 1))]) * w).sum(1) / 2
    first, second = bench.linear(mean, var, m, v)
    assert float(first) == pytest.approx(output.mean(), abs=0.01)
    assert float(second) == pytest.approx(output.var(), rel=0.02)


def test_one_row_updates_a_linear_model_exactly(bench, monkeypatch):
    """Without the rectifier, and with a known first layer, the posterior of a row is normal."""
    torch.manual_seed(0)
    weights = bench.Weights(2, units=3)
    weights.v[0].zero_()
    monkeypatch.setattr(bench, "rectified", lambda mean, var: (mean, var))
    x, y = _double(0.4, -1.0), 0.7
    hidden = torch.cat([bench.linear(x, 0 * x, weights.m[0], weights.v[0])[0], _double(1.0)], 1)
    phi, m, v = hidden[0] / 2, weights.m[1][:, 0].clone(), weights.v[1][:, 0].clone()
    total = (phi.square() * v).sum() + weights.noise
    expected = m + v * phi * (y - phi @ m) / total, v - (v * phi).square() / total
    weights.learn(x, y)
    torch.testing.assert_close(weights.m[1][:, 0], expected[0])
    torch.testing.assert_close(weights.v[1][:, 0], expected[1])


def test_the_noise_law_has_the_moments_of_its_posterior(bench):
    """With known output, and a prior for which t densities are nearly normal."""
    weights = bench.Weights(1)
    weights.shape = weights.rate = 60.0
    nothing = torch.zeros(1, dtype=torch.float64)
    weights._learn_noise(2.0, nothing, nothing + 1e-9)
    exact = stats.gamma(60.5, scale=1 / 62.0)
    assert weights.shape / weights.rate == pytest.approx(exact.mean(), rel=1e-3)


def test_it_learns_function_and_noise(bench):
    random = np.random.default_rng(0)
    x = random.uniform(-1.5, 1.5, (700, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * random.standard_normal(700)
    recipe = load("networks.network_baselines").Recipe(10)
    law = bench.pbp((x[:400], y[:400]), (x[:1], y[:1]), x[400:], recipe, 0)
    best = stats.norm(0, 0.3).entropy()
    assert best - 0.1 < law.log_score(y[400:]).mean() < best + 0.4

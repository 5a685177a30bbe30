"""The peers of the field model: known laws are found, and exact scores come out."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmark_scripts import load
from scipy import stats

from geogp.models.process.data import Data

peers = load("peers.field_peers")
STRONG = ("lightgbm-neighbours", "lightgbm-devices", "lightgbm-kriging")
LEVELS, QuantileLaw = peers.LEVELS, peers.QuantileLaw


def _case(n: int, field: float = 0.0, seed: int = 0) -> "peers.Case":
    """Rows of a smooth field and noise whose variance is 0.2 + 0.8 / tests."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (n, 2)), random.integers(-2, 3, n) / 2])
    tests = np.ceil(random.exponential(4, n))
    noise = np.sqrt(0.2 + 0.8 / tests) * random.standard_normal(n)
    y = field * np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1]) + noise
    devices = np.ceil(tests * random.uniform(0.3, 1, n))
    parts = [Data(x[k::3], y[k::3], tests[k::3], devices[k::3]) for k in range(3)]
    return peers.Case(*parts, np.array([20.0, 20.0, 4.0]), seed)


class TestQuantileLaw:
    Y = np.array([-2.5, -0.3, 0.0, 0.8, 3.0])

    @pytest.fixture
    def normal(self) -> QuantileLaw:
        return QuantileLaw(np.tile(1 + 2 * stats.norm.ppf(LEVELS), (5, 1)))

    def test_exact_quantiles_of_a_normal_give_it_back(self, normal):
        y = 1 + 2 * self.Y
        np.testing.assert_allclose(normal.cdf(y), stats.norm.cdf(self.Y), atol=1e-7)
        for p in (0.001, 0.3, 0.5, 0.99):
            np.testing.assert_allclose(normal.quantile(p), 1 + 2 * stats.norm.ppf(p), atol=1e-6)

    def test_its_crps_is_the_closed_form(self, normal):
        z = self.Y
        closed = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
        np.testing.assert_allclose(normal.crps(1 + 2 * z), 2 * closed, rtol=5e-3)

    def test_crossing_quantiles_are_sorted(self):
        law = QuantileLaw(np.array([[0.0, 2.0, 1.0, 3.0, 3.0, 5.0, 4.0]]))
        p = [law.quantile(level)[0] for level in LEVELS]
        assert p == sorted(p)
        assert 0 < law.cdf(np.array([2.5]))[0] < 1


def test_kriging_finds_a_pure_nugget():
    case = _case(3_000)
    answer = peers.kriging(case).prediction
    total = case.train.y.var()
    assert answer.noise_variance[0] == pytest.approx(total, rel=0.15)
    assert answer.log_score(case.test.y).mean() < 0.5 * np.log(2 * np.pi * total) + 0.55


def test_kriging_finds_a_field():
    case = _case(3_000, field=1.5)
    answer = peers.kriging(case).prediction
    alone = 0.5 * np.log(2 * np.pi * case.train.y.var()) + 0.5
    assert answer.log_score(case.test.y).mean() < alone - 0.1


@pytest.mark.parametrize(
    ("name", "grouped"), [("lightgbm", False), ("gpboost", False), *product(STRONG, (False, True))]
)
def test_boosting_finds_field_and_noise(name, grouped):
    if name == "gpboost":
        pytest.importorskip("gpboost")
    case = _case(9_000, field=1.0)
    if grouped:
        blocks = np.floor(2 * case.train.x[:, :2]).astype(int) @ [1, 10]
        case = replace(case, train=replace(case.train, groups=blocks))
    answer = peers.PEERS[name](case).prediction
    variance = 0.2 + 0.8 / case.test.tests
    oracle = (0.5 * np.log(2 * np.pi * variance) + 0.5).mean()
    assert answer.log_score(case.test.y).mean() < oracle + 0.25
    inside = np.abs(answer.cdf(case.test.y) - 0.5) < 0.4
    assert inside.mean() == pytest.approx(0.8, abs=0.03)
    one, many = (
        answer.variance[chosen].mean() for chosen in (case.test.tests == 1, case.test.tests > 8)
    )
    assert one > 1.7 * many


def test_boosted_quantiles_cover():
    case = _case(9_000, field=1.0)
    law = peers.lightgbm_quantile(case).quantiles
    assert np.mean(np.abs(law.cdf(case.test.y) - 0.5) < 0.4) == pytest.approx(0.8, abs=0.1)
    assert law.crps(case.test.y).mean() < 0.6

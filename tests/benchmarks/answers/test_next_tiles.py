"""The trial of chosen tiles: the posterior mean it works out, and what it says of worlds."""

import numpy as np
import pytest
from benchmark_scripts import load

from geogp.models.joint.design import LevelCovariance


@pytest.fixture(scope="module")
def bench():
    return load("answers.next_tiles")


def test_the_mean_is_that_of_conditioning_at_once(bench):
    random = np.random.default_rng(0)
    low, before = random.standard_normal((30, 6)), random.standard_normal(30)
    C, noise = low @ low.T, random.uniform(0.5, 1, 30)
    tiles, y = np.array([3, 17, 4]), random.standard_normal(3)
    covariance = LevelCovariance(low, np.diag(C).copy())
    one = bench.Measured.of(covariance, np.ones(30), noise, tiles)
    inner = C[np.ix_(tiles, tiles)] + np.diag(noise[tiles])
    expected = before + C[:, tiles] @ np.linalg.solve(inner, y - before[tiles])
    np.testing.assert_allclose(one.mean(before, y), expected, atol=1e-10)
    removed = np.diag(C[:, tiles] @ np.linalg.solve(inner, C[tiles]))
    np.testing.assert_allclose(np.square(one.h).sum(0), removed, atol=1e-10)


def test_rules_choose_as_many(bench):
    low = np.random.default_rng(1).standard_normal((40, 3))
    covariance = LevelCovariance(low, np.square(low).sum(1))
    found = bench.policies(covariance, np.ones(40), 5, 4, seed=0)
    assert {name: len(sets) for name, sets in found.items()} == {
        bench.GREEDY: 1,
        bench.WIDEST: 1,
        bench.TOP: 1,
        bench.RANDOM: 4,
    }
    assert all(len(set(one.tiles)) == 5 for sets in found.values() for one in sets)
    most = found[bench.GREEDY][0].gains.sum()
    assert all(one.gains.sum() <= most for one in found[bench.RANDOM])


def test_the_summary_compares_world_by_world(bench):
    before, other, greedy = ({"mse": value, "nll": value} for value in (1.0, 0.9, 0.8))
    worlds = [
        {"before": before, bench.GREEDY: greedy, bench.RANDOM: other},
        {"before": before, bench.GREEDY: other, bench.RANDOM: other},
    ]
    found = bench.summary(worlds, bench.RANDOM)["mse"]
    assert found == pytest.approx({"less": 0.1, "se": 0.0, "behind": 0.05, "behind_se": 0.05})
    policies = {
        name: {"variance": 0.01, **bench.summary(worlds, name)}
        for name in (bench.GREEDY, bench.RANDOM)
    }
    told = {"count": 5, "tiles": 40, "tests": 3, "worlds": 2, "random_sets": 4}
    text = bench.page({**told, "before": {**before, "variance": 1.0}, "policies": policies})
    assert "| random | 1.00% | 10.00 % ± 0.00 (+5.00 ± 5.00)" in text

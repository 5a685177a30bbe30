"""The simulation of area means, small: intervals hold what they say."""

import numpy as np
import pytest
from benchmark_scripts import load

from geogp.errors import NumericalError

REPLICATES = 2000


@pytest.fixture(scope="module")
def bench():
    return load("answers.areas")


@pytest.fixture(scope="module")
def errors(bench):
    return bench.standard_errors(bench.make_world(12, 300, 4, seed=1), REPLICATES, seed=1)


def test_areas_cover_the_square(bench):
    world = bench.make_world(12, 300, 4, seed=1)
    np.testing.assert_allclose(world.weights.sum(0), 1)
    assert ((world.weights > 0).sum(1) == 1).all()


def test_intervals_hold_the_truth_as_often_as_they_say(bench, errors):
    found = bench.coverage(errors["joint"])
    # Of 2,000 a share of 95 % has a standard error of half a per cent.
    assert all(abs(share - 0.95) < 0.02 for share in found["by_area"])
    assert abs(found["mean"] - 0.95) < 0.01
    assert np.abs(errors["joint"].mean(0)).max() < 4 / np.sqrt(REPLICATES)


def test_a_wrong_posterior_is_noticed(bench, monkeypatch):
    true = bench.gain
    monkeypatch.setattr(bench, "gain", lambda *given: 1.01 * true(*given))
    with pytest.raises(NumericalError, match="means differ from those of the model"):
        bench.standard_errors(bench.make_world(6, 40, 2, seed=1), 3, seed=1)


def test_independent_tiles_promise_too_much(bench, errors):
    found = bench.coverage(errors["independent"])
    assert max(found["by_area"]) < 0.9


def test_the_table_names_every_area(bench):
    result = bench.run(side=6, rows=40, quarters=2, replicates=3, refits=1, epochs=1, seed=0)
    text = bench.page(result)
    assert text.count("\n| ") == 9 + 3
    assert "Refitted, including basis and parameters (seed 0)" in text

"""The log score of copied rows: which rows are copies, the exact process, and the section."""

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load
from scipy import stats

BENCH = "networks.copied_rows"


@pytest.fixture
def table(tmp_path):
    """100 rows with a noise of standard deviation 0.3 of a target, and a copy of each."""
    random = np.random.default_rng(0)
    x = np.tile(random.uniform(-1, 1, (100, 2)), (2, 1))
    y = np.sin(2 * x[:, 0]) + np.tile(0.3 * random.standard_normal(100), 2)
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": 10 * y})
    frame.to_parquet(tmp_path / "made.parquet")
    return load("number_tables").Table(tmp_path / "made.parquet")


def test_a_copy_has_the_inputs_and_the_target(bench):
    train = bench.Data(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0]))
    new = bench.Data(np.array([[3.0, 4.0], [1.0, 2.0], [1.0, 4.0]]), np.array([6.0, 7.0, 5.0]))
    np.testing.assert_array_equal(bench.copied(train, new), [True, False, False])


def test_the_exact_process_interpolates_without_noise_and_smooths_with_it(bench):
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (60, 1))
    y = np.sin(3 * x[:, 0]) + 0.3 * random.standard_normal(60)
    train, new = bench.Data(x, y), np.linspace(-0.9, 0.9, 40)[:, None]
    smooth = bench.exact(train, new, 0.09)
    assert abs(smooth.mean() - np.sin(3 * new[:, 0])).mean() < 0.15
    assert smooth.variances.min() > 0.09
    at_rows = bench.exact(train, x[:5], 1e-4)
    np.testing.assert_allclose(at_rows.mean(), y[:5], atol=0.03)
    assert at_rows.variances.max() < 2.1e-4


def test_less_noise_improves_the_score_of_copies_alone(bench, table):
    found = bench.measure(table, 0)
    parts = table.split(0)
    share = bench.copied(parts["train"], parts["test"]).mean()
    assert 0.5 < share < 1
    assert found["share"] == pytest.approx(share)
    by = {one["noise"]: one for one in found["by_noise"]}
    assert by[1e-6]["copies"] < by[1e-4]["copies"] < by[0.5]["copies"]
    assert by[1e-6]["others"] > by[1e-2]["others"]
    # The density at a copy is that of the noise, in the target's unit.
    expected = stats.norm(0, 1e-3 * table.y.std()).entropy()
    assert by[1e-6]["copies"] == pytest.approx(expected, abs=1.5)
    for one in found["by_noise"]:
        mean = share * one["copies"] + (1 - share) * one["others"]
        assert one["nll"] == pytest.approx(mean)
    text = bench.section([found])
    assert f"| 1e-06 | {by[1e-6]['nll']:.3f} | {by[1e-6]['copies']:.3f} |" in text

"""Differences of blocks between two quarters: which rows count; the coverage of known errors."""

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load


@pytest.fixture(scope="module")
def bench():
    return load("answers.change_blocks")


def rows_of(*rows):
    """Return rows of (longitude, quarter, y), all on one latitude."""
    table = pd.DataFrame(rows, columns=["longitude", "quarter", "y"])
    return table.assign(latitude=18.05, quarter=pd.PeriodIndex(table["quarter"], freq="Q"))


def test_only_blocks_with_both_quarters_count(bench):
    held = bench.both_quarters(
        rows_of(
            (-66.05, "2022Q4", 1.0), (-66.04, "2022Q4", 2.0), (-66.05, "2023Q4", 4.0),
            (-66.05, "2023Q1", 9.0), (-66.25, "2022Q4", 9.0), (-66.35, "2023Q4", 0.5),
            (-66.35, "2022Q4", 0.0),
        )
    )  # fmt: skip
    assert sorted(held["y"]) == [0.0, 0.5, 1.0, 2.0, 4.0]
    weights = bench.weights_of(held)
    np.testing.assert_allclose(sorted(weights.T @ held["y"].to_numpy()), [0.5, 2.5])
    np.testing.assert_allclose(weights.sum(0), 0, atol=1e-12)


def test_coverage_is_that_of_the_errors(bench):
    random = np.random.default_rng(0)
    sd = random.uniform(0.1, 0.3, 20_000)
    trial = {
        "observed": 0.2 + sd * random.standard_normal(len(sd)),
        "predicted": np.full(len(sd), 0.2),
        "variance": sd**2,
        "level_variance": sd**2 / 4,
        "tiles": random.integers(1, 40, len(sd)),
    }
    found = bench.summary([trial])
    everything = found["all blocks"]
    assert everything["blocks"] == sum(one["blocks"] for one in found.values()) / 2 == 20_000
    assert everything["coverage_95"][0] == pytest.approx(0.95, abs=0.005)
    assert everything["coverage_80"][0] == pytest.approx(0.8, abs=0.01)
    assert everything["score_sd"] == pytest.approx(1, abs=0.02)
    assert everything["rmse_no_change"] > everything["rmse"]
    text = bench.page({"download": found}, {"region": "PR", "quarters": "a..b", "seeds": 3})
    assert text.count("\n| download |") == 4

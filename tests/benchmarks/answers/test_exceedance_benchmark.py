"""The comparison of probabilities with the oracle's, where both are known."""

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load
from scipy.stats import norm

from geogp.errors import DataError
from geogp.geodata.tiles.thresholds import thresholds_of

THRESHOLDS = thresholds_of("download", (7,))


@pytest.fixture(scope="module")
def bench():
    return load("answers.exceedance")


def rows(n=600, shift=0.0):
    """Test rows whose prediction is the oracle's, moved by `shift`."""
    random = np.random.default_rng(0)
    mean, sd = random.normal(1, 0.4, n), random.uniform(0.2, 0.5, n)
    keys = pd.DataFrame(
        {"split": "random", "quadkey": [f"{k:016d}" for k in range(n)], "quarter": "2023Q1"}
    )
    oracle = keys.assign(
        y=0.0, known_mean=mean, known_sd=sd, predictive_mean=mean, predictive_sd=sd
    )
    predictions = keys.assign(
        y=mean + sd * random.standard_normal(n),
        mean=mean + shift,
        function_variance=0.5 * sd**2,
        noise_variance=0.5 * sd**2,
        longitude=random.uniform(-67, -65, n),
        latitude=random.uniform(18, 19, n),
        stratum="urban",
    )
    return predictions, oracle.sample(frac=1, random_state=1), norm.sf(np.log10(7), mean, sd)


def test_the_oracle_is_told_from_itself_by_nothing(bench):
    predictions, oracle, p = rows()
    (found,) = bench.compare(predictions, oracle, THRESHOLDS)
    assert found["mean_absolute_difference"] == pytest.approx(0, abs=1e-12)
    assert found["correlation"] == pytest.approx(1)
    met = predictions["y"] >= np.log10(7)
    assert found["brier"] == found["brier_oracle"] == pytest.approx(((p - met) ** 2).mean())
    assert found["stated"] == pytest.approx(p.mean())
    assert "| random | 7 | 600 |" in bench.page([found], "Here")


def test_a_shift_is_seen(bench):
    predictions, oracle, _ = rows(shift=0.2)
    (found,) = bench.compare(predictions, oracle, THRESHOLDS)
    assert found["mean_absolute_difference"] > 0.1
    assert found["stated"] > found["oracle_stated"] + 0.1
    assert found["brier"] > found["brier_oracle"]


def test_other_rows_are_refused(bench):
    predictions, oracle, _ = rows()
    with pytest.raises(DataError, match="expected the oracle's test rows"):
        bench.compare(predictions, oracle[1:], THRESHOLDS)

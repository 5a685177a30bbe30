import json
from dataclasses import asdict

import numpy as np
import pytest
import scoringrules
from scipy import stats

from geogp.calibration.metrics import (
    Scores,
    binomial_interval,
    coverage_hits,
    difference_from_baseline,
    pit_histogram,
    pooled,
    score,
    score_by_stratum,
)
from geogp.errors import DataError, RequestError
from geogp.models.prediction import Prediction


def made_up(n=400, seed=0):
    random = np.random.default_rng(seed)
    prediction = Prediction(
        random.normal(1, 1, n), random.gamma(2, 0.1, n), random.gamma(2, 0.3, n) + 0.01
    )
    return prediction, random.normal(prediction.mean, prediction.sd)


def test_scores_against_independent_implementations():
    prediction, y = made_up()
    sd = np.sqrt(prediction.function_variance + prediction.noise_variance)
    law = stats.norm(prediction.mean, sd)
    scores = score(prediction, y)
    error = y - prediction.mean
    assert scores.n == 400
    assert scores.mae == pytest.approx(np.abs(error).sum() / 400, rel=1e-12)
    assert scores.rmse == pytest.approx(np.linalg.norm(error) / 20, rel=1e-12)
    assert scores.nll == pytest.approx(-law.logpdf(y).mean(), rel=1e-12)
    assert scores.nll == pytest.approx(
        scoringrules.logs_normal(y, prediction.mean, sd).mean(), rel=1e-9
    )
    assert scores.crps == pytest.approx(
        scoringrules.crps_normal(y, prediction.mean, sd).mean(), rel=1e-9
    )
    for level in (0.5, 0.8, 0.95):
        lower, upper = law.interval(level)
        share = getattr(scores, f"coverage_{round(100 * level)}")
        assert share == np.mean((lower <= y) & (y <= upper))
    assert scores.width_95 == pytest.approx(2 * 1.959963984540054 * sd.mean(), rel=1e-12)


def test_coverage_of_a_true_prediction_is_the_level():
    prediction, y = made_up(40_000, seed=4)
    scores = score(prediction, y)
    for name, level in (("coverage_50", 0.5), ("coverage_80", 0.8), ("coverage_95", 0.95)):
        sd = np.sqrt(level * (1 - level) / 40_000)
        assert abs(getattr(scores, name) - level) < 4 * sd


def test_halved_spread_covers_what_theory_says():
    """With half the standard deviation the 95 % interval reaches 0.98 sd: 67.3 %."""
    prediction, y = made_up(40_000, seed=5)
    narrow = Prediction(
        prediction.mean, prediction.function_variance / 4, prediction.noise_variance / 4
    )
    expected = 2 * stats.norm.cdf(1.959963984540054 / 2) - 1
    assert abs(score(narrow, y).coverage_95 - expected) < 0.01


def test_bounds_count_as_inside():
    prediction = Prediction(np.zeros(2), np.zeros(2), np.ones(2))
    assert coverage_hits(prediction, np.array(prediction.interval(0.95))[:, 0], 0.95) == 2


def test_strata_are_scored_apart():
    prediction, y = made_up(300)
    stratum = np.array(["urban", "rural", "unknown"] * 100)
    found = score_by_stratum(prediction, y, stratum)
    assert list(found) == ["all", "urban", "rural"]
    assert [scores.n for scores in found.values()] == [300, 100, 100]
    assert found["all"] == score(prediction, y)
    rows = slice(1, None, 3)
    assert found["rural"] == score(prediction[rows], y[rows])
    assert found["urban"] != found["rural"]


def test_strata_without_rows_have_null_figures():
    prediction, y = made_up(10)
    found = score_by_stratum(prediction, y, np.full(10, "unknown"))
    assert found["urban"] == found["rural"] == Scores(0)
    empty = json.loads(json.dumps(asdict(found["urban"])))
    assert empty.pop("n") == 0
    assert set(empty) == {
        *("mae", "rmse", "nll", "crps", "coverage_50", "coverage_80", "coverage_95", "width_95")
    }
    assert set(empty.values()) == {None}


def test_wrong_input_is_refused():
    prediction, y = made_up(10)
    with pytest.raises(DataError, match="expected 10 measurements"):
        score(prediction, y[:9])
    with pytest.raises(DataError, match="found 1 that are not"):
        score(prediction, np.where(np.arange(10) == 3, np.nan, y))
    with pytest.raises(DataError, match=r"found suburban\."):
        score_by_stratum(prediction, y, ["suburban"] * 10)
    with pytest.raises(DataError, match="a stratum for each of 10 rows"):
        score_by_stratum(prediction, y, ["urban"])


@pytest.mark.parametrize(
    ("hits", "n", "lower", "upper"),
    [  # Printed tables of exact 95 % limits; 0 of n is 1 - 0.025^(1/n).
        (0, 10, 0.0, 1 - 0.025**0.1),
        (10, 10, 0.025**0.1, 1.0),
        (5, 10, 0.1871, 0.8129),
        (4, 20, 0.0573, 0.4366),
    ],
)
def test_binomial_interval_from_tables(hits, n, lower, upper):
    assert binomial_interval(hits, n) == pytest.approx((lower, upper), abs=5e-5)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_binomial_interval_against_scipy(level):
    for hits, n in [(0, 1), (1, 1), (1, 7), (95, 100), (1900, 2000), (99_001, 100_000)]:
        expected = stats.binomtest(hits, n).proportion_ci(level, method="exact")
        assert binomial_interval(hits, n, level) == pytest.approx(
            (expected.low, expected.high), rel=1e-9
        )


@pytest.mark.parametrize(
    ("hits", "n", "level"), [(0, 0, 0.95), (3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1)]
)
def test_binomial_interval_refuses(hits, n, level):
    with pytest.raises(RequestError, match="0 <= hits <= n"):
        binomial_interval(hits, n, level)


def test_pit_histogram_by_hand():
    prediction = Prediction(np.zeros(5), np.zeros(5), np.ones(5))
    y = stats.norm.ppf([0.05, 0.15, 0.151, 0.55, 0.95])
    np.testing.assert_array_equal(pit_histogram(prediction, y), [1, 2, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(pit_histogram(prediction, [-99, 99, 0.1, 0, 1], 2), [1, 4])


def test_pit_histogram_of_a_true_prediction_is_level():
    counts = pit_histogram(*made_up(20_000, seed=8))
    assert counts.sum() == 20_000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_difference_is_model_minus_baseline():
    prediction, y = made_up()
    flat = Prediction(np.full(400, 1.0), np.zeros(400), np.full(400, 2.0))
    model, baseline = score(prediction, y), score(flat, y)
    found = difference_from_baseline(model, baseline)
    assert set(found) == set(asdict(model)) - {"n"}
    assert found["nll"] == model.nll - baseline.nll
    assert found["nll"] < 0
    assert set(difference_from_baseline(Scores(0), Scores(0)).values()) == {None}
    assert set(difference_from_baseline(model, Scores(400)).values()) == {None}
    with pytest.raises(DataError, match="found 400 and 399"):
        difference_from_baseline(model, Scores(399))


def test_scores_of_parts_make_up_those_of_the_whole():
    prediction, y = made_up()
    parts = [slice(0, 30), slice(30, 250), slice(250, 250), slice(250, 400)]
    found = asdict(pooled([score(prediction[part], y[part]) for part in parts]))
    assert found == pytest.approx(asdict(score(prediction, y)), rel=1e-12)
    assert pooled([Scores(0), Scores(0)]) == Scores(0)
    alone = score(prediction, y)
    assert pooled([alone]) is alone

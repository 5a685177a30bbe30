import json
from dataclasses import asdict

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from geogp.distributions.prediction import Prediction
from geogp.distributions.sinh_arcsinh import SinhArcsinh
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import DataError
from geogp.evaluation.metrics import (
    binomial_interval,
    difference_from_baseline,
    mean_scores,
    pit_counts,
    row_scores,
    score,
    score_by_stratum,
)
from geogp.evaluation.scores import no_scores, pooled


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
    bounds = np.array(prediction.interval(0.95))[:, 0]
    assert row_scores(prediction, bounds)["coverage_95"].all()


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
    assert found["urban"] == found["rural"] == no_scores()
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


def test_pit_histogram_by_hand():
    prediction = Prediction(np.zeros(5), np.zeros(5), np.ones(5))
    y = stats.norm.ppf([0.05, 0.15, 0.151, 0.55, 0.95])
    counts = pit_counts(prediction.pit(y))
    np.testing.assert_array_equal(counts, [1, 2, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(pit_counts(prediction.pit([-99, 99, 0.1, 0, 1]), 2), [1, 4])


def test_pit_histogram_of_a_true_prediction_is_level():
    prediction, y = made_up(20_000, seed=8)
    counts = pit_counts(prediction.pit(y))
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
    assert set(difference_from_baseline(no_scores(), no_scores()).values()) == {None}
    assert set(difference_from_baseline(model, no_scores(400)).values()) == {None}
    with pytest.raises(DataError, match="found 400 and 399"):
        difference_from_baseline(model, no_scores(399))


def test_scores_of_parts_make_up_those_of_the_whole():
    prediction, y = made_up()
    parts = [slice(0, 30), slice(30, 250), slice(250, 250), slice(250, 400)]
    found = asdict(pooled([score(prediction[part], y[part]) for part in parts]))
    assert found == pytest.approx(asdict(score(prediction, y)), rel=1e-12)
    assert pooled([no_scores(), no_scores()]) == no_scores()
    alone = score(prediction, y)
    assert pooled([alone]) is alone


def test_row_scores_are_means_of_groups():
    prediction, y = made_up(300)
    rows = row_scores(prediction, y, (50, 80, 90, 95))
    chosen = np.arange(300) % 3 == 0
    found, expected = mean_scores(rows[chosen]), score(prediction[chosen], y[chosen])
    assert asdict(found) == pytest.approx(asdict(expected), rel=1e-12)
    lower, upper = prediction[chosen].interval(0.9)
    inside = (lower <= y[chosen]) & (y[chosen] <= upper)
    assert rows[chosen]["coverage_90"].mean() == np.mean(inside)
    assert mean_scores(rows[np.zeros(300, bool)]) == no_scores()


def test_scores_of_a_leaning_shape_by_quadrature():
    """The density of Jones and Pewsey (2009), brought to mean 0 and variance 1 by quadrature."""
    skewness, tailweight = 0.6, 0.9
    mean, sd = 0.3, 1.7
    prediction = Prediction(
        np.array([mean]),
        np.array([0.0]),
        np.array([sd**2]),
        shape=SinhArcsinh(skewness, tailweight),
    )
    w = np.linspace(-60, 60, 600_001)
    z = np.sinh(tailweight * np.arcsinh(w) - skewness)
    raw = stats.norm.pdf(z) * tailweight * np.sqrt((1 + z * z) / (1 + w * w))
    first, second = (integrate.trapezoid(w**k * raw, w) for k in (1, 2))
    scale = np.sqrt(second - first**2)
    x = mean + sd * (w - first) / scale
    density = raw * scale / sd
    below = integrate.cumulative_trapezoid(density, x, initial=0)
    assert below[-1] == pytest.approx(1, abs=1e-7)
    for y in (-2.5, 0.3, 1.0, 4.0):
        assert prediction.pit([y])[0] == pytest.approx(np.interp(y, x, below), abs=1e-6)
        assert score(prediction, [y]).nll == pytest.approx(-np.log(np.interp(y, x, density)), 1e-5)
        # The integrand of the CRPS jumps at y, where one step of the grid is off by half of it.
        crps = integrate.trapezoid((below - (x >= y)) ** 2, x)
        assert score(prediction, [y]).crps == pytest.approx(crps, abs=4e-4)
    for level in (0.5, 0.8, 0.9, 0.95):
        lower, upper = (np.interp(bound[0], x, below) for bound in prediction.interval(level))
        assert [lower, upper] == pytest.approx([(1 - level) / 2, (1 + level) / 2], abs=1e-6)


def test_crps_of_a_leaning_shape_against_its_sample():
    prediction = Prediction(np.zeros(1), np.zeros(1), np.ones(1), shape=SinhArcsinh(0.6, 0.9))
    levels = (np.arange(4000) + 0.5) / 4000
    sample = np.array([prediction.quantile(level)[0] for level in levels])
    expected = scoringrules.crps_ensemble(np.array([0.7]), sample[None, :])[0]
    assert prediction.crps(np.array([0.7]))[0] == pytest.approx(expected, abs=1e-4)


def test_scores_of_a_mixture_of_normals_against_scoringrules():
    random = np.random.default_rng(3)
    mean, sd = random.normal(1, 1, 50), random.uniform(0.2, 2, 50)
    y = mean + sd * random.standard_normal(50)
    shape = NormalPlusStudent(np.full(50, 0.3), np.full(50, 0.7), 4.0)
    weights, scales = shape.weights, shape.scales(slice(None))
    prediction = Prediction(mean, np.zeros(50), sd**2, shape=shape)
    parts = np.tile(mean[:, None], len(weights)), sd[:, None] * scales, np.tile(weights, (50, 1))
    rows = row_scores(prediction, y, (90,))
    np.testing.assert_allclose(rows.crps, scoringrules.crps_mixnorm(y, *parts), rtol=1e-7)
    density = stats.norm.pdf(y[:, None], parts[0], parts[1]) @ weights
    np.testing.assert_allclose(rows.nll, -np.log(density), rtol=1e-9)
    share = stats.norm.cdf(y[:, None], parts[0], parts[1]) @ weights
    np.testing.assert_allclose(prediction.pit(y), share, rtol=1e-9)
    np.testing.assert_array_equal(rows["coverage_90"], np.abs(share - 0.5) <= 0.45)

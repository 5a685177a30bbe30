"""Percentages of tests that succeed: beta-binomial laws, against SciPy and draws."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, betabinom

from geogp.distributions.prediction import Prediction
from geogp.distributions.shares import MANY, SharePrediction, error_variance
from geogp.errors import DataError, NumericalError, RequestError
from geogp.evaluation.assessment import prediction_of

MEAN = np.array([20.0, 45.0, 97.0, 70.0])
VARIANCE = np.array([9.0, 100.0, 4.0, 30.0])
TESTS = np.array([1.0, 7.0, 30.0, 250.0])


def made(tests=TESTS):
    return SharePrediction.of(Prediction(MEAN, VARIANCE, np.zeros(4)), tests)


def parameters():
    return parameters_of(MEAN / 100, VARIANCE / 100**2)


def parameters_of(m, v):
    both = m * (1 - m) / v - 1
    return m * both, (1 - m) * both


def test_few_tests_have_the_beta_binomial_law():
    law, known = made(), betabinom(TESTS.astype(int), *parameters())
    np.testing.assert_allclose(law.mean, known.mean() / TESTS * 100)
    np.testing.assert_allclose(law.variance, known.var() / TESTS**2 * 100**2)
    for share in (0.025, 0.5, 0.9):
        np.testing.assert_allclose(law.quantile(share), known.ppf(share) / TESTS * 100)
    successes = np.array([1, 3, 29, 170])
    y = successes / TESTS * 100
    np.testing.assert_allclose(law.cdf(y), known.cdf(successes))
    np.testing.assert_allclose(law.exceedance(y), known.sf(successes - 1), atol=1e-12)
    np.testing.assert_allclose(law.log_score(y), -known.logpmf(successes))
    lower, upper = (np.round(end * TESTS / 100) for end in law.interval(0.8))
    mass = known.cdf(upper) - known.cdf(lower - 1)
    np.testing.assert_allclose(law.interval_mass(0.8), mass, atol=1e-12)
    assert (mass >= 0.8).all()


def test_scores_agree_with_draws():
    for law in (made(), made(np.inf), made(4000.0)):
        drawn = law.sample(40_000, random_state=1)
        y = drawn[0]
        pairs = np.abs(drawn[:20_000] - drawn[20_000:]).mean(0)
        np.testing.assert_allclose(law.crps(y), np.abs(drawn - y).mean(0) - pairs / 2, atol=0.3)
        np.testing.assert_allclose(law.cdf(60.0), (drawn <= 60).mean(0), atol=0.012)
        np.testing.assert_allclose(law.sd, drawn.std(0), rtol=0.02)
        chosen = np.tile(np.arange(4), 500)
        ranks = law[chosen].pit(drawn[1:501].ravel())
        assert np.abs(np.histogram(ranks, 4, (0, 1))[0] / len(ranks) - 0.25).max() < 0.04


def test_the_probability_of_success_is_a_beta_variable():
    law, known = made(np.inf), beta(*parameters())
    np.testing.assert_allclose(law.quantile(0.3), 100 * known.ppf(0.3))
    np.testing.assert_allclose(law.exceedance(90.0), known.sf(0.9), atol=1e-12)
    np.testing.assert_allclose(
        law.log_score(MEAN - 1), -known.logpdf(MEAN / 100 - 0.01) + np.log(100)
    )
    assert law.noise_variance.max() == 0


def test_more_tests_than_are_summed_have_nearly_the_same_law():
    few, many = made(float(MANY[-1])), made(float(MANY[-1] + 1))
    for share in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(few.quantile(share), many.quantile(share), atol=0.8)
    y = few.quantile(0.4)
    np.testing.assert_allclose(few.crps(y), many.crps(y), atol=0.05)


def test_that_all_of_many_tests_succeed_has_its_probability():
    level = Prediction(np.full(2, 99.7), np.full(2, 0.01), np.zeros(2))
    law = SharePrediction.of(level, np.array([257.0, 5000.0]))
    known = betabinom([257, 5000], *(np.full(2, part) for part in parameters_of(0.997, 1e-6)))
    np.testing.assert_allclose(law.exceedance(100.0), known.pmf([257, 5000]), rtol=1e-6)
    assert law.interval(0.95)[1][0] == 100


def test_a_wider_law_has_more_variance_of_all_parts():
    level = Prediction(MEAN, VARIANCE, np.zeros(4), 0.75 * VARIANCE)
    narrow = SharePrediction.of(level, TESTS).widened(0.5)
    np.testing.assert_allclose(narrow.function_variance, VARIANCE / 4)
    np.testing.assert_allclose(narrow.tile_variance, 0.75 * VARIANCE / 4)
    with pytest.raises(RequestError, match="a factor"):
        narrow.widened(0)


def test_linear_predictions_beyond_the_range_become_possible_ones():
    level = Prediction(np.array([-8.0, 104.0, 50.0]), np.array([9.0, 9.0, 9e4]), np.zeros(3))
    law = SharePrediction.of(level)
    for end in law.interval(0.95):
        assert ((end >= 0) & (end <= 100)).all()
    assert (law.mean[:2] == [0.1, 99.9]).all()
    assert law.function_variance[2] == pytest.approx(100**2 / 12)  # uniform
    certain = SharePrediction.of(Prediction(np.array([99.97]), np.array([1e-4]), np.zeros(1)))
    assert 0.01 < certain.exceedance(99.95)[0] < 0.99


def test_the_columns_of_a_table_have_the_law():
    law = made()
    rows = law.columns()
    read = prediction_of(pd.DataFrame(rows))
    np.testing.assert_array_equal(read.quantile(0.9), law.quantile(0.9))
    np.testing.assert_array_equal(law[1:3].quantile(0.9), law.quantile(0.9)[1:3])


def test_errors_of_rows_are_those_of_all_tests_together():
    errors = error_variance(np.array([100.0, 50.0, 0.0]), np.array([6.0, 2.0, 2.0]))
    np.testing.assert_allclose(errors, 70 * 30 / np.array([6, 2, 2]))


def test_what_no_percentage_is_is_refused():
    with pytest.raises(DataError, match=r"from 0 to 100, found 101 in row 2"):
        made().crps([0, 100, 101, 3])
    with pytest.raises(DataError, match="all 5 tests succeeded; there is nothing to learn"):
        error_variance(np.full(2, 100.0), np.array([2.0, 3.0]))
    with pytest.raises(DataError, match="Multiply fractions by 100"):
        error_variance(np.array([0.5, 1.0]), np.array([2.0, 3.0]))
    with pytest.raises(DataError, match="all 5 tests failed"):
        error_variance(np.zeros(2), np.array([2.0, 3.0]))
    with pytest.raises(NumericalError, match="of 1 test or more"):
        made(0.5)
    with pytest.raises(NumericalError, match="below those of a single test"):
        SharePrediction(MEAN, np.full(4, 2600.0), VARIANCE, tests=TESTS)
    with pytest.raises(NumericalError, match=r"predictions of logarithms.*percentages"):
        made().power_mean(10)

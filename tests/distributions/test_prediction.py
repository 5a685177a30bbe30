"""Predictive distributions against SciPy and scoringrules."""

import numpy as np
import pytest
import scoringrules
from scipy import stats

from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.prediction import Prediction
from geogp.errors import NumericalError, RequestError


@pytest.fixture
def prediction() -> Prediction:
    random = np.random.default_rng(0)
    return Prediction(
        random.normal(2, 3, 50), random.uniform(0, 2, 50), random.uniform(0.01, 1.5, 50)
    )


@pytest.fixture
def law(prediction: Prediction) -> stats.rv_continuous:
    """SciPy's normal distribution with the same means and the sum of the variances."""
    variance = prediction.function_variance + prediction.noise_variance
    return stats.norm(prediction.mean, np.sqrt(variance))


@pytest.fixture
def y(law: stats.rv_continuous) -> np.ndarray:
    """Observations, some of them far out in the tails."""
    drawn = law.rvs(random_state=1)
    drawn[::10] += 8
    return drawn


def test_moments_of_a_new_measurement(prediction, law):
    np.testing.assert_allclose(prediction.variance, law.var(), rtol=1e-12)
    np.testing.assert_allclose(prediction.sd, law.std(), rtol=1e-12)


def test_an_average_of_several_pieces_is_that_of_one(prediction):
    np.testing.assert_array_equal(prediction.pooled(4).quantile(0.9), prediction.quantile(0.9))


def test_log_score(prediction, law, y):
    np.testing.assert_allclose(prediction.log_score(y), -law.logpdf(y), rtol=1e-12)
    reference = scoringrules.logs_normal(y, prediction.mean, law.std())
    np.testing.assert_allclose(prediction.log_score(y), reference, rtol=1e-12)


def test_crps(prediction, law, y):
    reference = scoringrules.crps_normal(y, prediction.mean, law.std())
    np.testing.assert_allclose(prediction.crps(y), reference, rtol=1e-10)


def test_crps_is_the_integral_of_the_brier_score():
    one = Prediction(np.array([0.3]), np.array([0.5]), np.array([0.7]))
    grid = np.linspace(-15, 15, 200_001)
    brier = (stats.norm(0.3, np.sqrt(1.2)).cdf(grid) - (grid >= 1.1)) ** 2
    assert one.crps(1.1)[0] == pytest.approx(np.trapezoid(brier, grid), abs=1e-4)


def test_cdf_and_exceedance_keep_their_digits_in_the_tails(prediction, law, y):
    np.testing.assert_allclose(prediction.cdf(y), law.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(prediction.exceedance(y), law.sf(y), rtol=1e-10)
    far = Prediction(np.zeros(1), np.zeros(1), np.ones(1))
    assert far.exceedance(20.0)[0] == pytest.approx(stats.norm.sf(20.0), rel=1e-10)


def test_one_threshold_or_one_for_each_point(prediction, law):
    np.testing.assert_allclose(prediction.exceedance(2.0), law.sf(2.0), rtol=1e-12)
    np.testing.assert_allclose(prediction.cdf(2.0), law.cdf(2.0), rtol=1e-12)


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.975])
def test_quantile(prediction, law, probability):
    np.testing.assert_allclose(prediction.quantile(probability), law.ppf(probability), rtol=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_interval_is_central(prediction, law, level):
    lower, upper = prediction.interval(level)
    expected_lower, expected_upper = law.interval(level)
    np.testing.assert_allclose(lower, expected_lower, rtol=1e-9)
    np.testing.assert_allclose(upper, expected_upper, rtol=1e-9)


def test_interval_is_of_95_percent_unless_told(prediction):
    np.testing.assert_array_equal(prediction.interval(), prediction.interval(0.95))


@pytest.mark.parametrize(
    "rows", [slice(3, 9), np.arange(50) % 3 == 0, np.array([7, 0, 7])], ids=["slice", "mask", "at"]
)
def test_rows_of_a_prediction(prediction, rows):
    part = prediction[rows]
    np.testing.assert_array_equal(part.mean, prediction.mean[rows])
    np.testing.assert_array_equal(part.function_variance, prediction.function_variance[rows])
    np.testing.assert_array_equal(part.noise_variance, prediction.noise_variance[rows])
    assert len(part) == len(prediction.mean[rows])


def test_a_prediction_of_no_points():
    empty = Prediction(*(np.empty(0) for _ in range(3)))
    assert len(empty) == 0
    assert empty.crps(np.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("mean", "function", "noise", "message"),
    [
        ([0, 0], [1, -1e-9], [1, 1], "function variances of 0 or more"),
        ([0, 0], [1, 0], [1, 0], "positive predictive variances"),
        ([0, 0], [1, 1], [1, -2], "positive predictive variances"),
        ([0, np.nan], [1, 1], [1, 1], "not finite"),
        ([0, 0], [1, np.nan], [1, 1], "not finite"),
        ([0, 0], [1, 1], [1, np.inf], "not finite"),
        ([0, 0, 0], [1, 1], [1, 1], r"arrays of one shape, found \[\(2,\), \(3,\)\]"),
        ([0, 0], [1, 1], [1], "arrays of one shape"),
    ],
)
def test_refusals(mean, function, noise, message):
    parts = (np.asarray(values, np.float64) for values in (mean, function, noise))
    with pytest.raises(NumericalError, match=message):
        Prediction(*parts)


@pytest.mark.parametrize("wrong", [1.5, 95, 0, 1, -0.5, float("nan"), float("inf"), "0.95", None])
@pytest.mark.parametrize("law", ["normal", "counts"])
def test_levels_and_probabilities_lie_between_0_and_1(prediction, law, wrong):
    if law == "counts":
        prediction = predict_counts(np.zeros(3), np.ones(3), np.ones(3))
    for ask in (prediction.interval, prediction.interval_mass, prediction.quantile):
        with pytest.raises(RequestError, match=rf"between 0 and 1, found '?{wrong}'?\. Give 95 %"):
            ask(wrong)

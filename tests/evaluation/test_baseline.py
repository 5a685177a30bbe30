import numpy as np
import pytest
from scipy import stats

from geogp.distributions.count_prediction import CountPrediction
from geogp.errors import DataError
from geogp.evaluation.baseline import quarter_baseline


def test_by_hand():
    """Quarter 10: values 1, 2, 6, mean 3, variance (4 + 1 + 9) / 2 = 7. Quarter 11: 0, 4: 2, 8."""
    baseline = quarter_baseline([11, 10, 10, 11, 10], [0, 1, 2, 4, 6], [10, 11, 10])
    np.testing.assert_allclose(baseline.prediction.mean, [3, 2, 3])
    np.testing.assert_allclose(baseline.prediction.noise_variance, [7, 8, 7])
    np.testing.assert_array_equal(baseline.prediction.function_variance, [0, 0, 0])
    assert baseline.rows_pooled == 0


def test_quarters_without_a_variance_take_the_pooled_one():
    """Quarter 9 has one row, 12 none, 13 equal rows; pooled: 1, 3, 5, 2, 2, 5: 3, 14 / 5."""
    baseline = quarter_baseline([9, 10, 10, 13, 13, 10], [5, 1, 3, 2, 2, 5], [12, 10, 9, 13, 9, 8])
    np.testing.assert_allclose(baseline.prediction.mean, [3, 3, 3, 3, 3, 3])
    np.testing.assert_allclose(baseline.prediction.noise_variance, [2.8, 4, 2.8, 2.8, 2.8, 2.8])
    assert baseline.rows_pooled == 5


def test_against_pandas():
    import pandas as pd

    random = np.random.default_rng(0)
    quarter = random.integers(8076, 8096, 500)
    y = random.normal(1 + 0.1 * quarter, 0.3)
    expected = pd.Series(y).groupby(quarter).agg(["mean", "var"])
    asked = random.choice(expected.index.to_numpy(), 50)
    prediction = quarter_baseline(quarter, y, asked).prediction
    np.testing.assert_allclose(prediction.mean, expected["mean"].loc[asked], rtol=1e-12)
    np.testing.assert_allclose(prediction.variance, expected["var"].loc[asked], rtol=1e-9)


def test_nothing_to_predict():
    assert len(quarter_baseline([1, 1], [0.0, 1.0], []).prediction) == 0


@pytest.mark.parametrize("y", [[2.0, 2.0, 2.0], [0.1 + 0.2, 0.3, 0.3]])
def test_equal_training_values_are_refused(y):
    with pytest.raises(DataError, match="two different training values"):
        quarter_baseline([1, 1, 2], y, [1])


def test_wrong_input_is_refused():
    with pytest.raises(DataError, match="found 0 among 0 rows"):
        quarter_baseline([], [], [1])


class TestCounts:
    def test_mean_and_variance_are_those_of_the_quarter(self):
        random = np.random.default_rng(0)
        quarter = np.repeat([1, 2], 500)
        y = np.concatenate([random.negative_binomial(0.5, 0.1, 500), random.poisson(3.0, 500)])
        found = quarter_baseline(quarter, y, [2, 1, 1], CountPrediction).prediction
        for row, name in enumerate([2, 1, 1]):
            assert found.mean[row] == pytest.approx(y[quarter == name].mean())
        assert found.variance[1] == pytest.approx(y[:500].var(ddof=1))
        assert found.function_variance.max() == 0

    def test_counts_that_scatter_less_than_poisson_are_poisson(self):
        found = quarter_baseline([1, 1, 1, 1], [3, 4, 3, 4], [1], CountPrediction).prediction
        assert found.dispersion[0] == 0
        assert found.cdf(np.array([2.0]))[0] == pytest.approx(stats.poisson(3.5).cdf(2))

    def test_quarters_without_rows_take_all(self):
        found = quarter_baseline([1, 1, 1], [0, 2, 4], [1, 7], CountPrediction)
        assert found.rows_pooled == 1
        assert found.prediction.mean[1] == pytest.approx(2)

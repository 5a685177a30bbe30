"""Shapes against SciPy's quadrature, closed forms and draws."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN
from geogp.distributions.sinh_arcsinh import SinhArcsinh, shape_of
from geogp.errors import NumericalError, RequestError

PAIRS = [(-0.3, 0.8), (0.5, 1.3), (0.0, 0.6), (-1.0, 1.0)]
AT = np.array([-4.0, -1.0, -0.2, 0.0, 0.7, 2.5])


@pytest.fixture(params=PAIRS, ids=str)
def shape(request: pytest.FixtureRequest) -> SinhArcsinh:
    return SinhArcsinh(*request.param)


def _integral(function, low: float, high: float) -> float:
    edges = np.linspace(low, high, 41)
    pairs = itertools.pairwise(edges)
    return sum(
        integrate.quad(lambda t: float(function(np.array([t]))[0]), a, b)[0] for a, b in pairs
    )


def test_mean_and_variance_are_0_and_1(shape):
    def density(t):
        return np.exp(shape.log_density(t))

    assert _integral(density, -60, 60) == pytest.approx(1, abs=1e-8)
    assert _integral(lambda t: t * density(t), -60, 60) == pytest.approx(0, abs=1e-6)
    assert _integral(lambda t: t**2 * density(t), -60, 60) == pytest.approx(1, abs=1e-5)


def test_cdf_is_the_integral_of_the_density(shape):
    for value in AT:
        area = _integral(lambda t: np.exp(shape.log_density(t)), -60, value)
        assert shape.cdf(np.array([value]))[0] == pytest.approx(area, abs=1e-8)
    np.testing.assert_allclose(shape.survival(AT), 1 - shape.cdf(AT), atol=1e-12)


def test_quantiles_undo_the_cdf(shape):
    p = np.array([1e-6, 0.025, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(shape.cdf(shape.quantile(p)), p, rtol=1e-9)


def test_crps_is_the_integral_of_the_squared_error_of_the_cdf(shape):
    for value in AT:
        below = _integral(lambda t: shape.cdf(t) ** 2, -80, value)
        above = _integral(lambda t: shape.survival(t) ** 2, value, 80)
        assert shape.crps(np.array([value]))[0] == pytest.approx(below + above, abs=1e-7)


def test_exponential_mean_against_the_integral(shape):
    for t in (0.1, 0.9):
        expected = _integral(lambda v, t=t: np.exp(t * v + shape.log_density(v)), -40, 40)
        assert shape.exponential_mean(np.array([t]))[0] == pytest.approx(expected, rel=1e-5)


def test_exponential_mean_of_a_whole_map():
    shape = SinhArcsinh(-0.3, 0.8)
    t = np.linspace(0.2, 1.5, 5_000)
    found = shape.exponential_mean(t)
    np.testing.assert_allclose(found[::700], shape.exponential_mean(t[::700]), rtol=1e-5)


def test_without_skewness_and_with_weight_1_it_is_the_normal():
    near = SinhArcsinh(0.0, 1.0)
    np.testing.assert_allclose(near.log_density(AT), GAUSSIAN.log_density(AT), atol=1e-9)
    np.testing.assert_allclose(near.crps(AT), GAUSSIAN.crps(AT), atol=1e-9)
    np.testing.assert_allclose(near.quantile(np.array([0.1])), stats.norm.ppf([0.1]), rtol=1e-9)
    np.testing.assert_allclose(
        near.exponential_mean(np.array([0.7])),
        GAUSSIAN.exponential_mean(np.array([0.7])),
        rtol=1e-9,
    )
    assert shape_of(0.0, 1.0) is GAUSSIAN


def test_skewness_leans_to_its_sign():
    assert SinhArcsinh(-0.4, 1.0).quantile(np.array([0.5]))[0] > 0
    assert SinhArcsinh(0.4, 1.0).quantile(np.array([0.5]))[0] < 0


def test_rows_keep_their_own_shapes():
    skewness, tailweight = np.array([0.0, -0.3, 0.0, 0.5]), np.array([1.0, 0.8, 1.0, 1.3])
    rows = shape_of(skewness, tailweight)
    one = [shape_of(*pair) for pair in zip(skewness.tolist(), tailweight.tolist(), strict=True)]
    for name in ("quantile", "cdf", "survival", "log_density", "crps", "exponential_mean"):
        at = np.array([0.1, 0.4, 0.5, 0.9])
        expected = [getattr(s, name)(at[[i]])[0] for i, s in enumerate(one)]
        np.testing.assert_array_equal(getattr(rows, name)(at), expected)
        last = getattr(rows[np.array([False, True, False, True])], name)(at[[1, 3]])
        np.testing.assert_array_equal(last, np.array(expected)[[1, 3]])
    np.testing.assert_array_equal(list(rows.columns.values()), [skewness, tailweight])
    assert shape_of(np.zeros(3), np.ones(3)) is GAUSSIAN


def test_the_mean_of_a_power_that_does_not_exist_is_infinite():
    """Beside those that exist, and over so many values that they are interpolated."""
    wide = SinhArcsinh(1.5, 0.6)
    found = wide.exponential_mean(np.array([0.1, 30.0]))
    assert np.isinf(found).tolist() == [False, True]
    many = wide.exponential_mean(np.linspace(0.01, 30, 5000))
    first = np.argmax(np.isinf(many))
    assert np.isfinite(many[:first]).all()
    assert np.isinf(many[first:]).all()
    assert found[0] == pytest.approx(wide.exponential_mean(np.array([0.1]))[0])


@pytest.mark.parametrize("pair", [(0.0, 0.1), (3.0, 1.0), (np.nan, 1.0), (0.0, 5.0)])
def test_parameters_out_of_range_are_refused(pair):
    with pytest.raises(RequestError, match="expected a skewness from -2 to 2"):
        SinhArcsinh(*pair)


def test_a_prediction_takes_its_shape():
    shape = SinhArcsinh(-0.3, 0.8)
    mean, variance = np.array([1.0, 2.0]), np.array([0.25, 1.0])
    p = Prediction(mean, 0.6 * variance, 0.4 * variance, 0.5 * variance, shape)
    np.testing.assert_allclose(
        p.quantile(0.9), mean + np.sqrt(variance) * shape.quantile(np.array([0.9]))
    )
    np.testing.assert_allclose(p.field_variance, 0.1 * variance)
    y = np.array([0.3, 2.2])
    density = [_integral(lambda t, i=i: np.exp(-p[[i]].log_score(t)), -60, y[i]) for i in range(2)]
    np.testing.assert_allclose(p.cdf(y), density, atol=1e-7)
    assert p[[1]].shape == shape
    np.testing.assert_allclose(p.exceedance(y), 1 - p.cdf(y), atol=1e-12)


def test_the_mean_of_a_power_is_the_log_normal_one_for_the_normal():
    p = Prediction(np.array([1.5]), np.array([0.04]), np.array([0.05]))
    expected = 10**1.5 * np.exp(np.log(10) ** 2 * 0.09 / 2)
    assert p.power_mean(10.0)[0] == pytest.approx(expected, rel=1e-12)


def test_a_tile_variance_beyond_the_function_variance_is_refused():
    one = np.array([1.0])
    with pytest.raises(NumericalError, match="expected tile variances from 0 to the function"):
        Prediction(one, one, one, 2 * one)

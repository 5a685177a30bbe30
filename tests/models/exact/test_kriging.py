"""Kriging and its evidence, against dense formulas and rows left out one by one."""

import numpy as np
import pytest
import torch
from exact_worlds import correlation, make_rows
from scipy import stats

from geogp.errors import NumericalError
from geogp.models.exact.covariance import Covariance, nugget
from geogp.models.exact.kriging import ExactRows, evidence, kriging

THETA = np.array([0.6, 0.3, -0.2, -1.0, -0.7, -1.2])
LAW = Covariance(1.5, 10.0, nested=True)


def dense(rows, theta=THETA):
    """R, X and y of rows."""
    places = rows.points.numpy()
    share = nugget(theta)
    R = (1 - share) * correlation(places, places, theta, 1.5) + share * np.eye(len(rows))
    return R, rows.trend.numpy(), rows.y.numpy()


@pytest.mark.parametrize("trend", [1, 3])
def test_predictions_are_those_of_universal_kriging(trend):
    rows, new = make_rows(trend=trend), make_rows(8, seed=1, trend=trend)
    R, X, y = dense(rows)
    n, p = X.shape
    inverse = np.linalg.inv(R)
    G = np.linalg.inv(X.T @ inverse @ X)
    beta = G @ X.T @ inverse @ y
    residual = y - X @ beta
    sill = residual @ inverse @ residual / (n - p)
    solved = kriging(LAW, THETA, rows)
    np.testing.assert_allclose(solved.beta, beta, rtol=1e-6)
    assert solved.sill == pytest.approx(sill, rel=1e-6)
    k = (1 - nugget(THETA)) * correlation(rows.points.numpy(), new.points.numpy(), THETA, 1.5)
    prior = (1 - nugget(THETA)) * correlation(new.points.numpy(), new.points.numpy(), THETA, 1.5)
    mean = new.trend.numpy() @ beta + k.T @ inverse @ residual
    rest = new.trend.numpy().T - X.T @ inverse @ k
    covariance = prior - k.T @ inverse @ k + rest.T @ G @ rest
    covariance *= sill * (n - p) / (n - p - 2)
    found_mean, variance = solved.field(new.points, new.trend)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(variance, covariance.diagonal(), rtol=1e-6)
    joint_mean, joint = solved.joint(new.points, new.trend)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(joint, covariance, rtol=1e-5, atol=1e-8)


def test_chunks_do_not_change_predictions(monkeypatch):
    rows, new = make_rows(), make_rows(50, seed=1)
    solved = kriging(LAW, THETA, rows)
    whole = solved.field(new.points, new.trend)
    monkeypatch.setattr("geogp.models.exact.kriging.AT_ONCE", 3 * len(rows))
    for found, expected in zip(solved.field(new.points, new.trend), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("trend", [1, 2])
def test_a_row_left_out_is_predicted_as_by_a_fit_without_it(trend):
    rows = make_rows(25, trend=trend)
    mean, variance = kriging(LAW, THETA, rows).left_out()
    scale = kriging(LAW, THETA, rows).variance
    for k in (0, 7, 24):
        others = kriging(LAW, THETA, rows.at(np.delete(np.arange(25), k)))
        own_mean, field = others.field(rows.points[[k]], rows.trend[[k]])
        assert float(mean[k]) == pytest.approx(float(own_mean[0]), rel=1e-6)
        expected = (float(field[0]) + others.noise) / others.variance
        assert float(variance[k]) / scale == pytest.approx(expected, rel=1e-6)


def test_the_evidence_is_an_integral_over_trend_and_variance():
    """Differences between two θ, against numerical integrals of the density of the rows."""

    def integral(rows, theta):
        R, X, y = dense(rows, theta)
        log_s, b = np.linspace(-3, 3, 301), np.linspace(-6, 6, 301)
        log_det, inverse = np.linalg.slogdet(R)[1], np.linalg.inv(R)
        residual = y[:, None] - X @ b[None]
        squares = np.einsum("ib,ij,jb->b", residual, inverse, residual)
        density = -0.5 * squares[None] * np.exp(-2 * log_s)[:, None] - len(y) * log_s[:, None]
        return np.log(np.exp(density).sum()) - 0.5 * log_det + LAW.log_prior(theta)[0]

    rows, other = make_rows(12), THETA + np.array([0.5, -0.2, 0.1, 0.4, -0.3, 0.2])
    expected = integral(rows, THETA) - integral(rows, other)
    found = kriging(LAW, THETA, rows).log_evidence - kriging(LAW, other, rows).log_evidence
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("time", "trend"), [(False, 1), (False, 3), (True, 2)])
def test_the_evidence_has_its_gradient(time, trend):
    rows = make_rows(40, time=time, trend=trend)
    law = Covariance(1.5, *rows.extent, nested=True)
    theta = np.array([*THETA, *([0.5, 0.1, -0.4] if time else [])])
    value, gradient = evidence(law, theta, rows)
    assert value == kriging(law, theta, rows).log_evidence
    for k, step in enumerate(1e-5 * np.eye(len(theta))):
        change = evidence(law, theta + step, rows)[0] - evidence(law, theta - step, rows)[0]
        assert change / 2e-5 == pytest.approx(gradient[k], rel=1e-4, abs=1e-4)


def test_the_variance_covers_errors_of_few_rows():
    """With the true correlation, 95 % of new values are inside, though s² and β are unknown."""
    random = np.random.default_rng(3)
    inside = []
    for seed in range(300):
        rows = make_rows(13, seed=seed)
        R = dense(rows)[0]
        y = 5 + 2 * np.linalg.cholesky(R) @ random.standard_normal(13)
        known = ExactRows(rows.points[:12], rows.trend[:12], torch.as_tensor(y[:12]))
        solved = kriging(LAW, THETA, known)
        mean, field = solved.field(rows.points[12:], rows.trend[12:])
        sd = np.sqrt(float(field[0]) + solved.noise)
        half = stats.t(solved.freedom).ppf(0.975) * np.sqrt((solved.freedom - 2) / solved.freedom)
        inside.append(abs(y[12] - float(mean[0])) < half * sd)
    assert 0.92 < np.mean(inside) < 0.98


def test_a_covariance_that_does_not_factorise_has_no_evidence():
    rows = make_rows(10)
    broken = np.array([np.nan, 0.0, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(NumericalError, match="covariances of the rows do not factorise"):
        kriging(LAW, broken, rows)
    value, gradient = evidence(LAW, broken, rows)
    assert value == -np.inf
    assert not gradient.any()

"""Kriging and its evidence, against dense formulas and rows left out one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_worlds import correlation, make_rows
from scipy import stats

from geogp.errors import NumericalError
from geogp.models.exact.covariance import Covariance, Lags, nugget
from geogp.models.exact.kriging import ExactRows, Kriging

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
    solved = Kriging(LAW, THETA, rows)
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
    solved = Kriging(LAW, THETA, rows)
    whole = solved.field(new.points, new.trend)
    monkeypatch.setattr("geogp.models.exact.kriging.AT_ONCE", 3 * len(rows))
    for found, expected in zip(solved.field(new.points, new.trend), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("trend", [1, 2])
def test_a_row_left_out_is_predicted_as_by_a_fit_without_it(trend):
    rows = make_rows(25, trend=trend)
    mean, variance = Kriging(LAW, THETA, rows).left_out()
    scale = Kriging(LAW, THETA, rows).variance
    for k in (0, 7, 24):
        others = Kriging(LAW, THETA, rows.at(np.delete(np.arange(25), k)))
        own_mean, field = others.field(rows.points[[k]], rows.trend[[k]])
        assert float(mean[k]) == pytest.approx(float(own_mean[0]), rel=1e-6)
        expected = (float(field[0]) + others.noise) / others.variance
        assert float(variance[k]) / scale == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("time", [False, True])
def test_a_session_left_out_is_predicted_as_by_a_fit_without_it(time):
    rows = make_rows(30, time=time, sessions=5)
    law = rows.law(1.5, nested=True)
    theta = np.array([*THETA, *[0.5, 0.1, -0.4] * time, 0.4, -0.3, 0.9])
    solved = Kriging(law, theta, rows)
    mean, variance = solved.left_out()
    for own in (0, 3):
        numbers = np.flatnonzero(rows.session == own)
        others = Kriging(law, theta, rows.at(np.flatnonzero(rows.session != own)))
        own_mean, field = others.field(rows.points[numbers], rows.trend[numbers])
        np.testing.assert_allclose(mean[numbers], own_mean, rtol=1e-6)
        expected = (field + others.noise) / others.variance
        np.testing.assert_allclose(variance[numbers] / solved.variance, expected, rtol=1e-6)


def test_a_row_of_many_tests_has_less_noise():
    rows = make_rows(25, tested=True)
    law, theta = rows.law(1.5, nested=True), np.array([*THETA, -0.6])
    mean, variance = Kriging(law, theta, rows).left_out()
    scale = Kriging(law, theta, rows).variance
    for k in (0, 7, 24):
        others = Kriging(law, theta, rows.at(np.delete(np.arange(25), k)))
        own_mean, field = others.field(rows.points[[k]], rows.trend[[k]])
        assert float(mean[k]) == pytest.approx(float(own_mean[0]), rel=1e-6)
        noise = others.noise + others.noise_of_test / float(rows.tests[k])
        expected = (float(field[0]) + noise) / others.variance
        assert float(variance[k]) / scale == pytest.approx(expected, rel=1e-6)
    assert others.noise_of_test / others.variance == pytest.approx(np.exp(-0.6))


def test_sessions_of_one_row_each_share_nothing():
    rows = make_rows(20)
    alone = replace(rows, session=torch.arange(20))
    assert alone.law(1.5, nested=True) == rows.law(1.5, nested=True)
    values = [Kriging(LAW, THETA, each).log_evidence for each in (rows, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_rows_of_a_session_at_one_time_share_noise_that_does_not_decay():
    rows = make_rows(20, time=True, sessions=4)
    points = rows.points.clone()
    points[:, 2] = rows.session.double()
    rows = replace(rows, points=points)
    law = rows.law(1.5, nested=True)
    theta = np.array([*THETA, 0.5, 0.1, -0.4, 0.4, -0.3, 0.9])
    with_noise = law(theta, rows.lags(slice(None), slice(None)))
    without = law(theta, Lags.between(rows.points[:, None], rows.points[None]))
    together = (rows.session[:, None] == rows.session[None]).double()
    shared = nugget(theta) / (1 + np.exp(-0.4)) * together
    np.testing.assert_allclose(with_noise - without, shared, atol=1e-12)


def test_the_evidence_is_an_integral_over_trend_and_variance():
    """Differences between two θ, against numerical integrals of the density of the rows."""

    def integral(rows, theta):
        R, X, y = dense(rows, theta)
        log_s, b = np.linspace(-3, 3, 301), np.linspace(-6, 6, 301)
        log_det, inverse = np.linalg.slogdet(R)[1], np.linalg.inv(R)
        residual = y[:, None] - X @ b[None]
        squares = np.einsum("ib,ij,jb->b", residual, inverse, residual)
        density = -0.5 * squares[None] * np.exp(-2 * log_s)[:, None] - len(y) * log_s[:, None]
        return np.log(np.exp(density).sum()) - 0.5 * log_det + LAW.log_prior(theta)

    rows, other = make_rows(12), THETA + np.array([0.5, -0.2, 0.1, 0.4, -0.3, 0.2])
    expected = integral(rows, THETA) - integral(rows, other)
    found = Kriging(LAW, THETA, rows).log_evidence - Kriging(LAW, other, rows).log_evidence
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.fixture(
    params=[
        (False, 1, False, 0, False),
        (False, 3, False, 0, False),
        (True, 2, False, 0, False),
        (False, 2, True, 0, False),
        (False, 1, True, 6, False),
        (True, 2, False, 6, False),
        (True, 1, False, 6, True),
        (False, 2, True, 0, True),
    ],
    ids=str,
)
def solved(request):
    """Kriging of rows with or without time, known errors, sessions and tests, and with a trend."""
    time, trend, known, sessions, tested = request.param
    rows = make_rows(40, time=time, trend=trend, known=known, sessions=sessions, tested=tested)
    if trend == 3:  # covariates that depend on each other
        rows = replace(rows, trend=torch.cat([rows.trend, 2 * rows.trend[:, 1:2]], 1))
    more = [0.5, 0.1, -0.4] * time + [0.4, -0.3, 0.9] * (sessions > 0)
    more += [-0.6] * tested + [0.3] * known
    return Kriging(rows.law(1.5, nested=True), np.array([*THETA, *more]), rows)


def test_the_evidence_has_its_gradient(solved):
    gradient, _ = solved.slopes()
    for k, step in enumerate(1e-3 * np.eye(len(solved.theta))):
        above, below = (
            Kriging(solved.covariance, theta, solved.rows).log_evidence
            for theta in (solved.theta + step, solved.theta - step)
        )
        assert (above - below) / 2e-3 == pytest.approx(gradient[k], rel=1e-3, abs=1e-3)


def test_the_information_is_that_of_dense_matrices(solved):
    """With R, or V if errors are known, its derivatives by differences, and P by an inverse."""
    law, rows = solved.covariance, solved.rows
    lags = rows.lags(slice(None), slice(None))

    def dense_of(theta):
        R = law(theta, lags).numpy()
        np.fill_diagonal(R, 1.0)
        if law.has_tests:
            R += np.diag(np.exp(theta[len(theta) - 1 - law.has_sill]) / rows.tests)
        return np.exp(theta[-1]) * R + np.diag(rows.error_variance) if law.has_sill else R

    steps = 1e-5 * np.eye(len(solved.theta))
    slopes = [(dense_of(solved.theta + h) - dense_of(solved.theta - h)) / 2e-5 for h in steps]
    inverse, X = np.linalg.inv(dense_of(solved.theta)), rows.trend.numpy()
    P = inverse - inverse @ X @ np.linalg.pinv(X.T @ inverse @ X) @ X.T @ inverse
    c, freedom = P @ rows.y.numpy(), len(rows) - X.shape[1]
    variance = 1.0 if law.has_sill else rows.y.numpy() @ c / freedom
    moved = np.array([slope @ c for slope in slopes])
    expected = moved @ P @ moved.T / (2 * variance)
    if not law.has_sill:
        expected -= np.outer(moved @ c, moved @ c) / (2 * freedom * variance**2)
    expected += np.diag(1 / law.spread**2)
    np.testing.assert_allclose(solved.slopes()[1], expected, rtol=1e-4, atol=1e-5)


def test_the_information_is_that_of_many_draws():
    """Its mean over draws of the process is the expected information, a trace."""
    rows, random = make_rows(60), np.random.default_rng(5)
    root = np.linalg.cholesky(dense(rows)[0])
    draws = [
        Kriging(LAW, THETA, replace(rows, y=torch.as_tensor(root @ z))).slopes()
        for z in random.standard_normal((600, 60))
    ]
    gradients, information = (np.array(each) for each in zip(*draws, strict=True))
    gradient, precision = LAW.prior_slopes(THETA)
    # The gradient of the likelihood has mean 0, and the information as its covariance.
    error = gradients.std(0) / np.sqrt(len(draws))
    assert (abs(gradients.mean(0) - gradient) < 4 * error).all()
    np.testing.assert_allclose(
        np.diag(information.mean(0) - precision), gradients.var(0), rtol=0.25, atol=0.02
    )


def test_known_errors_have_the_density_and_predictions_of_dense_matrices():
    rows, new = make_rows(30, trend=2, known=True), make_rows(5, seed=1, trend=2)
    law = Covariance(1.5, 10.0, has_sill=True)
    theta = np.array([*THETA[:4], 0.4])
    solved, s2 = Kriging(law, theta, rows), np.exp(0.4)
    places, X, y = rows.points.numpy(), rows.trend.numpy(), rows.y.numpy()
    share = 1 - nugget(theta)
    V = s2 * (share * correlation(places, places, theta[:4], 1.5) + (1 - share) * np.eye(30))
    inverse = np.linalg.inv(V + np.diag(rows.error_variance))
    beta = np.linalg.solve(X.T @ inverse @ X, X.T @ inverse @ y)
    residual = y - X @ beta
    log_density = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(X.T @ inverse @ X)[1]
    log_density = (log_density - residual @ inverse @ residual) / 2 + law.log_prior(theta)
    assert solved.log_evidence == pytest.approx(log_density, abs=1e-5)
    k = s2 * share * correlation(places, new.points.numpy(), theta[:4], 1.5)
    rest = new.trend.numpy().T - X.T @ inverse @ k
    mean, variance = solved.field(new.points, new.trend)
    np.testing.assert_allclose(mean, new.trend.numpy() @ beta + k.T @ inverse @ residual, rtol=1e-6)
    expected = s2 * share - np.einsum("ij,ij->j", k, inverse @ k)
    expected += np.einsum("ij,ij->j", rest, np.linalg.solve(X.T @ inverse @ X, rest))
    np.testing.assert_allclose(variance, expected, rtol=1e-6)
    own_mean, own = solved.left_out()
    others = Kriging(law, theta, rows.at(np.arange(1, 30)))
    mean, field = others.field(rows.points[:1], rows.trend[:1])
    assert float(own_mean[0]) == pytest.approx(float(mean[0]), rel=1e-6)
    known = float(field[0]) + others.noise + float(rows.error_variance[0])
    assert float(own[0]) == pytest.approx(known, rel=1e-6)


def test_chunks_do_not_change_the_evidence_and_its_slopes(monkeypatch, solved):
    whole = solved.slopes()
    monkeypatch.setattr("geogp.models.exact.kriging.CHUNK", 3 * len(solved.rows))
    chunked = Kriging(solved.covariance, solved.theta, solved.rows)
    assert chunked.log_evidence == pytest.approx(solved.log_evidence, rel=1e-12)
    for found, expected in zip(chunked.slopes(), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_the_variance_covers_errors_of_few_rows():
    """With the true correlation, 95 % of new values are inside, though s² and β are unknown."""
    random = np.random.default_rng(3)
    inside = []
    for seed in range(300):
        rows = make_rows(13, seed=seed)
        R = dense(rows)[0]
        y = 5 + 2 * np.linalg.cholesky(R) @ random.standard_normal(13)
        known = ExactRows(rows.points[:12], rows.trend[:12], torch.as_tensor(y[:12]))
        solved = Kriging(LAW, THETA, known)
        mean, field = solved.field(rows.points[12:], rows.trend[12:])
        sd = np.sqrt(float(field[0]) + solved.noise)
        half = stats.t(solved.freedom).ppf(0.975) * np.sqrt((solved.freedom - 2) / solved.freedom)
        inside.append(abs(y[12] - float(mean[0])) < half * sd)
    assert 0.92 < np.mean(inside) < 0.98


def test_a_covariance_that_does_not_factorise_is_refused():
    rows = make_rows(10)
    with pytest.raises(NumericalError, match="covariances of the rows do not factorise"):
        Kriging(LAW, THETA, replace(rows, points=rows.points * np.nan))

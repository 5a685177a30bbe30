"""Covariances against scikit-learn, and their parts."""

import numpy as np
import pytest
import torch
from exact_worlds import correlation
from scipy import stats

from geogp.models.exact.covariance import FORMS, Covariance, Lags, nugget

POINTS = np.random.default_rng(0).uniform(0, 10, (12, 3))
THETA = np.array([0.7, 0.4, -0.3, -0.5, -0.8, -1.5, 1.1, 0.2, -0.7])


def covariances(law, theta, points):
    first, second = torch.as_tensor(points)[:, None], torch.as_tensor(points)[None]
    return law(theta, Lags.between(first, second)).numpy()


@pytest.mark.parametrize(("smoothness", "nested"), FORMS)
def test_in_space_it_is_scikit_learns_matern_in_stretched_coordinates(smoothness, nested):
    theta = THETA[: 6 if nested else 4]
    law = Covariance(smoothness, 10.0, nested=nested)
    found = covariances(law, theta, POINTS[:, :2])
    matern = correlation(POINTS[:, :2], POINTS[:, :2], theta, smoothness)
    np.testing.assert_allclose(found, (1 - nugget(theta)) * matern, rtol=1e-7)
    assert law.form == (smoothness, nested)
    assert law.centre.shape == law.spread.shape == theta.shape


def test_with_time_it_is_a_product_sum():
    found = covariances(Covariance(1.5, 10.0, 10.0, nested=True), THETA, POINTS)
    matern = correlation(POINTS[:, :2], POINTS[:, :2], THETA, 1.5)
    tau, u, v = np.exp(THETA[6:])
    in_time = np.exp(-abs(POINTS[:, None, 2] - POINTS[None, :, 2]) / tau)
    expected = (matern * in_time + u * matern + v * in_time) / (1 + u + v)
    np.testing.assert_allclose(found, (1 - nugget(THETA)) * expected, rtol=1e-7)
    assert np.linalg.eigvalsh(found).min() > 0


def test_ranges_differ_by_twice_a_between_east_and_north():
    theta = np.array([1.0, 0.8, 0.0, -20.0])
    east = covariances(Covariance(0.5, 10.0), theta, np.array([[0.0, 0.0], [2.0, 0.0]]))[0, 1]
    north = covariances(Covariance(0.5, 10.0), theta, np.array([[0.0, 0.0], [0.0, 2.0]]))[0, 1]
    ratio = np.log(north) / np.log(east)
    assert ratio == pytest.approx(np.exp(1.6), rel=1e-6)


@pytest.mark.parametrize(("smoothness", "nested"), FORMS)
@pytest.mark.parametrize("time", [False, True])
def test_slopes_are_differences_of_covariances(smoothness, nested, time):
    law = Covariance(smoothness, 10.0, 10.0 * time, nested)
    theta = np.concatenate([THETA[: 6 if nested else 4], THETA[6:] if time else []])
    points = torch.as_tensor(POINTS[:, : 3 if time else 2])
    lags = Lags.between(points[:, None], points[None])
    slopes = law.slopes(theta, lags)
    assert len(slopes) == len(theta)
    for slope, step in zip(slopes, 1e-6 * np.eye(len(theta)), strict=True):
        change = (law(theta + step, lags) - law(theta - step, lags)) / 2e-6
        np.testing.assert_allclose(slope, change, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("time", [False, True])
def test_rows_of_a_session_share_noise_that_decays(time):
    points = torch.as_tensor(POINTS[:, : 3 if time else 2])
    session = torch.arange(12) // 4
    together = (session[:, None] == session[None]).double()
    theta = np.array([*THETA[:4], *(THETA[6:] if time else []), 0.8, -0.4, 0.6])
    law = Covariance(1.5, 10.0, 10.0 * time, session=5.0)
    plain = Lags.between(points[:, None], points[None])
    lags = Lags.between(points[:, None], points[None], together)
    axes = POINTS[:, 2:] if time else POINTS[:, :2]
    apart = np.linalg.norm(axes[:, None] - axes[None], axis=-1)
    kappa, w = 1 / (1 + np.exp([-0.8, 0.4]))
    shared = nugget(theta) * kappa * (w + (1 - w) * np.exp(-apart / np.exp(0.6)))
    found = law(theta, lags) - law(theta, plain)
    np.testing.assert_allclose(found, shared * together.numpy(), atol=1e-12)
    slopes = law.slopes(theta, lags)
    assert len(slopes) == len(theta) == len(law.centre) == len(law.spread)
    for slope, step in zip(slopes, 1e-6 * np.eye(len(theta)), strict=True):
        change = (law(theta + step, lags) - law(theta - step, lags)) / 2e-6
        np.testing.assert_allclose(slope, change, rtol=1e-6, atol=1e-8)


def test_slopes_exist_where_rows_coincide_and_ranges_are_equal():
    points = torch.zeros(2, 2, dtype=torch.float64)
    theta = np.array([1.0, 0.0, 0.0, 0.0])
    *in_space, nugget_slope = Covariance(0.5, 10.0).slopes(theta, Lags.between(*points))
    assert in_space == [0, 0, 0]
    assert float(nugget_slope) == pytest.approx(-0.25)


@pytest.mark.parametrize("duration", [0.0, 3.0])
def test_the_prior_is_normal_and_has_its_slopes(duration):
    law = Covariance(1.5, 7.0, duration, nested=True)
    theta = THETA[: len(law.centre)]
    value = law.log_prior(theta)
    gradient, precision = law.prior_slopes(theta)
    assert value == pytest.approx(stats.norm(law.centre, law.spread).logpdf(theta).sum())
    np.testing.assert_allclose(precision, np.diag(1 / law.spread**2))
    for k, step in enumerate(1e-6 * np.eye(len(theta))):
        change = law.log_prior(theta + step) - value
        assert change / 1e-6 == pytest.approx(gradient[k], abs=1e-5)

"""Limits of exact processes: moments, and predictions beside those of a Gibbs sampler."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import truncnorm

from geogp.models.exact.exact_process import fit_exact
from geogp.models.exact.limits import LimitSites, moments_beyond
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

CPU = torch.device("cpu")
PLANE = Architecture(2, 8, 8, columns=("x", "y"), units=(1.0, 1.0))


def test_moments_are_those_of_truncated_normal_variables():
    mean, variance = np.array([0.0, -1.0, 3.0, 0.5]), np.array([1.0, 0.5, 2.0, 0.3])
    limit, side = np.array([0.0, 1.0, -2.0, 0.4]), np.array([-1.0, 1.0, -1.0, 1.0])
    sd = np.sqrt(variance)
    ends = np.where(side < 0, -np.inf, limit), np.where(side < 0, limit, np.inf)
    law = truncnorm(*((end - mean) / sd for end in ends), mean, sd)
    found = moments_beyond(mean, variance, limit, side)
    np.testing.assert_allclose(found, [law.mean(), law.var()], rtol=1e-6)


def test_moments_far_beyond_a_limit_are_those_of_an_exponential_law():
    mean, variance = moments_beyond(np.array([1e5]), np.ones(1), np.zeros(1), -np.ones(1))
    assert mean[0] == pytest.approx(-1e-5, rel=1e-3)
    assert 1e-12 < variance[0] < 1e-9


def test_a_site_and_the_prediction_without_it_have_the_moments():
    mean, variance = np.array([0.3, -0.8]), np.array([0.5, 1.5])
    moments = moments_beyond(mean, variance, np.zeros(2), np.array([-1.0, 1.0]))
    sites = LimitSites(np.ones(2), np.zeros(2))
    for _ in range(30):
        sites = sites.updated(mean, variance, moments)
    precision = 1 / variance + sites.precision
    np.testing.assert_allclose(1 / precision, moments[1], rtol=1e-9)
    np.testing.assert_allclose((mean / variance + sites.pull) / precision, moments[0], rtol=1e-9)


def limited_world(n, seed=0):
    """Return places, normal variables at them, and which are known to be below -0.2."""
    random = np.random.default_rng(seed)
    places = random.uniform(-1, 1, (n, 2))
    covariance = 0.8 * np.exp(-cdist(places, places) / 0.5) + 0.2 * np.eye(n)
    z = np.linalg.cholesky(covariance) @ random.standard_normal(n)
    return places, z, z < -0.2


def fitted(places, z, below):
    data = Data(places, np.where(below, -0.2, z), side=-1 * below)
    return fit_exact("field", PLANE, data, 0, CPU)[0]


def gibbs(best, places, z, below, new):
    """Return mean and variance of the field at new places by a Gibbs sampler.

    The parameters are those of kriging, and the mean has a large variance.
    """
    points = torch.as_tensor(np.concatenate([places, new]))
    n, wide = len(places), 1e4
    prior = best.prior(points, points).numpy() + wide
    rows = prior[:n, :n] + best.noise * np.eye(n)
    precision = np.linalg.inv(rows)
    own = np.diag(precision)
    y, limited, random = np.where(below, -0.6, z), np.flatnonzero(below), np.random.default_rng(1)
    weights = prior[n:, :n] @ precision
    draws = []
    for _ in range(1_500):
        for i in limited:
            mean, sd = y[i] - precision[i] @ y / own[i], own[i] ** -0.5
            y[i] = truncnorm.rvs(-np.inf, (-0.2 - mean) / sd, mean, sd, random_state=random)
        draws.append(weights @ y)
    rest = np.diag(prior[n:, n:]) - np.einsum("ij,ij->i", weights, prior[n:, :n])
    return np.mean(draws, 0), np.var(draws, 0) + rest


@pytest.mark.trial
def test_predictions_are_those_of_a_gibbs_sampler():
    places, z, below = limited_world(40)
    process = fitted(places, z, below)
    new = np.random.default_rng(5).uniform(-1, 1, (12, 2))
    best = max(process.mixture.points, key=lambda point: point.weight).kriging
    mean, variance = best.field(torch.as_tensor(new), torch.ones(12, 1, dtype=torch.float64))
    true_mean, true_variance = gibbs(best, places, z, below, new)
    np.testing.assert_allclose(mean.numpy(), true_mean, atol=0.07)
    np.testing.assert_allclose(np.sqrt(variance.numpy()), np.sqrt(true_variance), rtol=0.08)


def test_limits_tell_nearly_as_much_as_measurements():
    """Treating a limit as a measurement would put these rows at the limit, far above the truth."""
    places, z, below = limited_world(360, seed=2)
    train, test = np.arange(360) < 240, np.arange(360) >= 240
    process = fitted(places[train], z[train], below[train])
    naive, _ = fit_exact("field", PLANE, Data(places[train], z[train].clip(-0.2)), 0, CPU)
    whole, _ = fit_exact("field", PLANE, Data(places[train], z[train]), 0, CPU)
    brier = [
        np.square(law.cdf(-0.2) - below[test]).mean()
        for law in (model.predict(places[test]) for model in (whole, process, naive))
    ]
    assert brier[1] < brier[0] + 0.015
    assert brier[1] < brier[2]


def test_all_sides_are_mirrored():
    places, z, below = limited_world(60, seed=3)
    first = fitted(places, z, below).predict(places[:5])
    data = Data(places, -np.where(below, -0.2, z), side=1 * below)
    second = fit_exact("field", PLANE, data, 0, CPU)[0].predict(places[:5])
    np.testing.assert_allclose(first.mean, -second.mean, atol=1e-6)
    np.testing.assert_allclose(first.variance, second.variance, rtol=1e-6)

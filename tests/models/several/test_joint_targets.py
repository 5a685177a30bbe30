"""Joint levels of several targets: dense cokriging, draws, and the level of a single process."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import grid, make_field

import geogp
from geogp.errors import RequestError
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.exact.mixture import KrigingMixture
from geogp.models.exact.search import WeightedKriging
from geogp.models.joint.design import covariance_of
from geogp.models.joint.level import joint_level
from geogp.models.several.factors import Factors
from geogp.models.several.joint_targets import joint_targets
from geogp.models.several.one_target import OneTarget
from geogp.models.several.several_targets import SeveralTargets
from geogp.models.several.target_laws import TargetLaws

assert CATALOGUE  # registers the levels
MIXING = np.array([[1.0, 0.4], [0.9, -0.6]])


def several_of(models, mixing=MIXING):
    """Return targets of given factors, with normal errors."""
    factors = Factors(np.array([2.0, -1.0])[: len(mixing)], mixing)
    names = ("d", "u")[: len(mixing)]
    return SeveralTargets(names, factors, tuple(models), TargetLaws.of_factors(factors))


@pytest.fixture(scope="module")
def exact():
    """Return exact factors of 60 rows, each with its likeliest parameters alone, and inputs."""
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 1, (90, 2))
    waves = np.column_stack([np.sin(6 * places[:, 0]), np.cos(9 * places[:, 1])])
    y = waves @ MIXING.T + 0.3 * rng.standard_normal((90, 2))
    model = geogp.FieldGP(crs=None).fit(places[:60], y[:60])
    factors = []
    for factor in model.several_.models:
        best = max(factor.mixture.points, key=lambda point: point.weight).kriging
        mixture = KrigingMixture(factor.mixture.rows, [WeightedKriging(1.0, best)])
        factors.append(replace(factor, mixture=mixture))
    return replace(model.several_, models=tuple(factors)), model.inputs(places[60:])


@pytest.fixture(scope="module")
def fields():
    """Return two fields as factors, and the inputs of tiles, some far from all rows."""
    x = grid(9)[::2]
    return several_of([make_field(9, 60, seed=1), make_field(9, 60, seed=2)]), x


@pytest.fixture(params=["exact", "fields"])
def world(request):
    return request.getfixturevalue(request.param)


def cokriging(several, x):
    """Return mean (t m,) and covariance of the levels of all targets, by dense cokriging."""
    mean, total, cross, prior = 0.0, 0.0, 0.0, 0.0
    for k, factor in enumerate(several.models):
        sd, rows = float(factor.y_sd), factor.mixture.rows
        places, trend = factor.placed(x)
        own = sd**2 * np.outer(*[several.factors.mixing[:, k]] * 2)
        law = factor.mixture.points[0].kriging
        among, to, between = (
            law.prior(*pair).numpy()
            for pair in ((rows.points, rows.points), (rows.points, places), (places, places))
        )
        z = float(factor.y_mean) + sd * rows.y.numpy()
        mean = mean + np.outer(several.factors.mixing[:, k], z)
        total = total + np.kron(own, among + law.noise * np.eye(len(rows)))
        cross, prior = cross + np.kron(own, to), prior + np.kron(own, between)
    y = (several.factors.centre[:, None] + mean).ravel()
    X, at = (np.kron(np.eye(2), part.numpy()) for part in (rows.trend, trend))
    inner = np.linalg.inv(X.T @ np.linalg.solve(total, X))
    beta = inner @ X.T @ np.linalg.solve(total, y)
    level = at @ beta + cross.T @ np.linalg.solve(total, y - X @ beta)
    left = at - cross.T @ np.linalg.solve(total, X)
    return level, prior - cross.T @ np.linalg.solve(total, cross) + left @ inner @ left.T


def test_exact_levels_are_those_of_dense_cokriging(exact):
    several, x = exact
    mean, covariance = cokriging(several, x)
    together, m = joint_targets(several, x, calibrated=False), len(x)
    np.testing.assert_allclose(together.mean.T.ravel(), mean, atol=1e-5)
    weights = np.random.default_rng(0).standard_normal((m, 3))
    for k in (0, 1):
        sums = together.of_target(k).weighted_sums(weights)
        at = slice(k * m, k * m + m)
        np.testing.assert_allclose(sums.mean, weights.T @ mean[at], atol=1e-5)
        expected = weights.T @ covariance[at, at] @ weights
        np.testing.assert_allclose(sums.covariance, expected, rtol=1e-4, atol=1e-6)
    drawn = np.moveaxis(together.sample(20_000), 2, 1).reshape(20_000, -1)
    sd = np.sqrt(np.diag(covariance))
    error = (np.cov(drawn.T) - covariance) / np.outer(sd, sd)
    assert np.abs(error).max() < 6 * np.sqrt(2 / 20_000)
    assert np.abs(covariance[:m, m:] / np.outer(sd[:m], sd[m:])).max() > 0.3
    at_places = np.diag(covariance[:m, m:]) / (sd[:m] * sd[m:])
    np.testing.assert_allclose(together.correlation[:, 0, 1], at_places, atol=1e-4)


@pytest.mark.parametrize("calibrated", [False, True])
def test_closed_forms_are_those_of_the_draws(world, calibrated):
    several, x = world
    together = joint_targets(several, x, calibrated=calibrated)
    draws = together.sample(6000, random_state=4)
    weights = np.random.default_rng(1).uniform(0, 1, (len(x), 3))
    for k in (0, 1):
        level = together.of_target(k)
        same = level.sample(6000, random_state=4)
        np.testing.assert_allclose(same, draws[:, :, k], atol=1e-6)
        sums, covariance = draws[:, :, k] @ weights, level.sum_covariance(weights)
        sd = np.sqrt(np.diag(covariance))
        assert np.abs((sums.mean(0) - level.sum_means(weights)) / sd).max() < 4 / np.sqrt(6000)
        assert np.abs(np.cov(sums.T) / np.outer(sd, sd) - covariance / np.outer(sd, sd)).max() < 0.1
        np.testing.assert_allclose(level.sum_variances(weights), sd**2, rtol=1e-6)


@pytest.mark.parametrize("measured", [False, True])
def test_parts_of_the_covariance_add_up(world, measured):
    several, x = world
    unit = np.eye(len(x))
    level = joint_targets(several, x).of_target(1)
    level = level.measured(3.0) if measured else level
    expected = level.sum_covariance(unit)
    products = covariance_of(level)
    np.testing.assert_allclose(products.columns(np.arange(len(x))), expected, atol=1e-8)
    np.testing.assert_allclose(products.times(unit), expected, atol=1e-8)
    np.testing.assert_allclose(np.diag(expected), level.single_variances(), rtol=0.05)
    plain = joint_targets(several, x, calibrated=False).of_target(1).single_variances()
    stated = level.closed_form_variances()
    np.testing.assert_allclose(stated, plain, rtol=1e-6)


def test_what_was_known_before_the_rows(fields):
    several, x = fields
    level = joint_targets(several, x).of_target(1)
    some = np.arange(6)
    expected = sum(
        a**2 * joint_level(model, None, x).prior_covariance(some)
        for a, model in zip(MIXING[1], several.models, strict=True)
    )
    np.testing.assert_allclose(level.prior_covariance(some), expected)
    assert (np.diag(expected) > level.single_variances()[some]).all()


@pytest.mark.parametrize("calibrated", [False, True])
def test_one_factor_of_weight_one_is_the_plain_model(calibrated):
    field, x = make_field(9, 60), grid(9)[::2]
    factors = Factors(np.zeros(1), np.ones((1, 1)))
    several = SeveralTargets(("d",), factors, (field,), TargetLaws.of_factors(factors))
    one = OneTarget(several, 0)
    for level in (False, True):
        own, plain = one.predict(x, 3.0, level=level), field.predict(x, 3.0, level=level)
        for name in ("mean", "function_variance", "noise_variance", "tile_variance"):
            np.testing.assert_allclose(getattr(own, name), getattr(plain, name), rtol=1e-9)
    assert one.intercept == pytest.approx(field.intercept)
    np.testing.assert_allclose(one.kernel(x[:5], x), field.kernel(x[:5], x))
    np.testing.assert_allclose(one.features(x), field.features(x))
    for own, plain in zip(one.conditioned(None), field.conditioned(None), strict=True):
        torch.testing.assert_close(own, plain)
    own, plain = (joint_level(model, None, x, calibrated=calibrated) for model in (one, field))
    weights = np.random.default_rng(1).uniform(0, 1, (len(x), 3))
    for first, second in ((own, plain), (own.measured(3.0), plain.measured(3.0))):
        np.testing.assert_allclose(first.sum_means(weights), second.sum_means(weights))
        np.testing.assert_allclose(first.process_mean, second.process_mean)
        np.testing.assert_allclose(first.low_rank(), second.low_rank(), rtol=1e-9)
        covariances = [level.sum_covariance(weights) for level in (first, second)]
        np.testing.assert_allclose(*covariances, rtol=1e-9)
        for noise in (False, True):
            variances = [level.sum_variances(weights, noise=noise) for level in (first, second)]
            np.testing.assert_allclose(*variances, rtol=1e-9)
        np.testing.assert_allclose(first.closed_form_variances(), second.closed_form_variances())


def test_wrong_draws_and_repeated_places_are_refused(fields):
    several, x = fields
    together = joint_targets(several, x)
    for level in (together, together.of_target(0)):
        with pytest.raises(RequestError, match="sample paths"):
            level.sample(0)
        with pytest.raises(RequestError, match="seed"):
            level.paths(1, seed=-1)
    with pytest.raises(geogp.DataError, match="expected each tile once at each time, found 1"):
        joint_targets(several, np.concatenate([x, x[:1]]))

"""A mixture of kriging with different parameters, by its moments."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_worlds import make_rows

from geogp.models.exact.covariance import Covariance
from geogp.models.exact.kriging import Kriging
from geogp.models.exact.mixture import NEAR_SHARE, KrigingMixture
from geogp.models.exact.search import WeightedKriging

WEIGHTS = (0.3, 0.7)


@pytest.fixture(scope="module")
def mixture():
    rows, law = make_rows(30), Covariance(1.5, 10.0)
    parameters = (np.array([0.3, 0.0, 0.0, -3.0]), np.array([2.0, 0.0, 0.0, 1.0]))
    laws = [Kriging(law, theta, rows) for theta in parameters]
    return KrigingMixture(
        rows, [WeightedKriging(*pair) for pair in zip(WEIGHTS, laws, strict=True)]
    )


def moments(each):
    """Mean and variance of a mixture whose parts have these means and variances."""
    means, variances = (
        np.array([part.numpy() for part in parts]) for parts in zip(*each, strict=True)
    )
    mean = np.average(means, axis=0, weights=WEIGHTS)
    spread = np.average(np.square(means), axis=0, weights=WEIGHTS) - mean**2
    return mean, np.average(variances, axis=0, weights=WEIGHTS) + spread


def test_predictions_have_the_moments_of_the_mixture(mixture):
    new = make_rows(8, seed=1)
    laws = [point.kriging for point in mixture.points]
    mean, variance = moments([law.field(new.points, new.trend) for law in laws])
    found_mean, found, noise = mixture.predict(new.points, new.trend)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found, variance, rtol=1e-9)
    np.testing.assert_allclose(noise, np.average([law.noise for law in laws], weights=WEIGHTS))
    joint_mean, covariance = mixture.joint(new.points, new.trend)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-7)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_patches_have_blocks_of_the_joint_covariance(mixture):
    new = make_rows(8, seed=1)
    mean, covariance = mixture.joint(new.points, new.trend)
    at = torch.tensor([[0, 1, 2], [5, 2, 7]])
    of_patches, blocks, shared = mixture.patches(new.points, new.trend, at, torch.tensor([0, 3, 6]))
    np.testing.assert_allclose(of_patches, mean, rtol=1e-9)
    total = blocks + shared[at] @ shared[at].mT
    np.testing.assert_allclose(total, torch.stack([covariance[own][:, own] for own in at]))


def test_rows_left_out_have_the_moments_of_the_mixture(mixture):
    mean, variance = moments([point.kriging.left_out() for point in mixture.points])
    np.testing.assert_allclose(mixture.left_out[0], mean, rtol=1e-9)
    np.testing.assert_allclose(mixture.left_out[1], variance, rtol=1e-9)


@pytest.mark.parametrize(("share", "counts"), [(8, (3, 3)), (2, (8, 15))])
def test_near_rows_are_the_nearest_others(mixture, monkeypatch, share, counts):
    """The shares of the 30 rows are 3 and 15 of at most 8 and 40."""
    monkeypatch.setattr("geogp.models.exact.mixture.NEAR_SHARE", share)
    rows = mixture.rows.points[:, :2].numpy()
    mean, variance = mixture.left_out
    squares = (mixture.rows.y.numpy() - mean) ** 2 / variance
    apart = np.linalg.norm(rows[:, None] - rows, axis=-1)
    np.fill_diagonal(apart, np.inf)
    order = apart.argsort(1)
    distance, found = mixture.near(None)
    np.testing.assert_allclose(distance, apart.min(1))
    for k, count in enumerate(counts):
        expected = (squares[order[:, :count]].sum(1) + 2) / (count + 2)
        np.testing.assert_allclose(found[:, k], expected)
    at_rows = mixture.near(rows)
    np.testing.assert_array_equal(at_rows[0], 0)
    own = (squares + squares[order[:, : counts[0] - 1]].sum(1) + 2) / (counts[0] + 2)
    np.testing.assert_allclose(at_rows[1][:, 0], own)


@pytest.mark.parametrize("sessions", [2, 12])
def test_near_rows_of_a_session_are_of_other_sessions(sessions):
    rows = make_rows(40, sessions=sessions)
    law = rows.law(1.5, nested=False)
    mixture = KrigingMixture(rows, [WeightedKriging(1.0, Kriging(law, law.centre, rows))])
    mean, variance = mixture.left_out
    squares = (rows.y.numpy() - mean) ** 2 / variance
    apart = torch.cdist(rows.points, rows.points).numpy()
    apart[(rows.session[:, None] == rows.session[None]).numpy()] = np.inf
    count = 40 // NEAR_SHARE
    order = apart.argsort(1)[:, :count]
    distance, found = mixture.near(None)
    np.testing.assert_allclose(distance, apart.min(1))
    np.testing.assert_allclose(found[:, 0], (squares[order].sum(1) + 2) / (count + 2))


def test_a_row_that_is_the_only_one_of_other_sessions_is_repeated():
    rows = replace(make_rows(32), session=torch.tensor([1] + [0] * 31))
    law = rows.law(1.5, nested=False)
    mixture = KrigingMixture(rows, [WeightedKriging(1.0, Kriging(law, law.centre, rows))])
    mean, variance = mixture.left_out
    square = float((rows.y[0] - mean[0]) ** 2 / variance[0])
    distance, found = mixture.near(None)
    np.testing.assert_allclose(found[1:, 0], (4 * square + 2) / 6)
    np.testing.assert_allclose(distance[1:], torch.cdist(rows.points[1:], rows.points[:1])[:, 0])


def test_rows_with_large_known_errors_are_foretold():
    rows = make_rows(40, known=True)
    rows = replace(rows, error_variance=1e4 * rows.error_variance)
    law = rows.law(1.5, nested=False)
    mixture = KrigingMixture(rows, [WeightedKriging(1.0, Kriging(law, law.centre, rows))])
    assert np.median(mixture.left_out[1]) > 1_000
    assert mixture.foretold.all()

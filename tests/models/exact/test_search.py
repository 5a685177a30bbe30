"""The points of the posterior: their moments, their weights, and what they recover."""

import numpy as np
import pytest
import torch
from scipy import optimize

from geogp.errors import NumericalError
from geogp.models.exact import search
from geogp.models.exact.covariance import Covariance, Lags, nugget
from geogp.models.exact.kriging import ExactRows, Kriging


def drawn(theta, n=400, *, smoothness=1.5, seed=0, size=10.0):
    """Rows of a Gaussian field with known parameters."""
    random = np.random.default_rng(seed)
    points = torch.as_tensor(random.uniform(0, size, (n, 2 if len(theta) < 7 else 3)))
    law = Covariance(smoothness, size, size * (len(theta) > 6), nested=len(theta) == 6)
    R = law(np.asarray(theta), Lags.between(points[:, None], points[None])).numpy()
    R += nugget(theta) * np.eye(n)
    y = np.linalg.cholesky(R) @ random.standard_normal(n)
    return ExactRows(points, torch.ones(n, 1, dtype=torch.float64), torch.as_tensor(y))


def mean_of(points, form):
    """Mean of θ over the points of one form."""
    own = [point for point in points if point.kriging.covariance.form == form]
    weights = np.array([point.weight for point in own])
    return weights @ np.array([point.kriging.theta for point in own]) / weights.sum()


@pytest.mark.parametrize("size", [1, 6, 9])
def test_the_simplex_has_mean_0_and_covariance_1(size):
    corners = search.simplex(size)
    assert corners.shape == (size + 1, size)
    np.testing.assert_allclose(corners.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(corners.T @ corners / (size + 1), np.eye(size), atol=1e-12)


def test_points_have_weights_and_surround_the_maximum():
    rows = drawn(np.array([0.3, 0.5, 0.0, -1.5]))
    points = search.posterior(rows, 0)
    assert sum(point.weight for point in points) == pytest.approx(1)
    assert all(point.weight > 0 for point in points)
    for law in {point.kriging.covariance for point in points}:
        thetas = np.array([p.kriging.theta for p in points if p.kriging.covariance == law])
        assert len(np.unique(thetas, axis=0)) == len(thetas) <= 7
    same = search.posterior(rows, 0)
    assert [point.weight for point in same] == [point.weight for point in points]


@pytest.mark.parametrize("smoothness", [0.5, 2.5])
def test_parameters_and_smoothness_are_recovered(smoothness):
    """Within three posterior standard deviations; the ranges differ by a factor of e."""
    theta = np.array([0.0, 0.5, 0.0, -4.0])
    points = search.posterior(drawn(theta, 900, smoothness=smoothness), 0)
    right = [p for p in points if p.kriging.covariance.form == (smoothness, False)]
    weights = np.array([point.weight for point in right])
    assert weights.sum() > 0.7
    weights = weights / weights.sum()
    found = np.array([point.kriging.theta for point in right])
    mean = weights @ found
    sd = np.sqrt(weights @ np.square(found - mean))
    assert (abs(mean - theta) < 3 * sd + 0.05).all()
    assert (sd < 0.6).all()


def test_a_range_in_time_is_recovered():
    theta = np.array([0.7, 0.0, 0.0, -1.5, 0.0, 0.0, -3.0])
    found = mean_of(search.posterior(drawn(theta, 500, smoothness=0.5), 0), (0.5, False))
    assert abs(found[4]) < 1.2
    assert abs(found[3] + 1.5) < 0.8


def test_a_search_on_some_rows_ends_where_a_search_on_all_ends(monkeypatch):
    rows = drawn(np.array([0.3, 0.5, 0.0, -1.5]), 500)

    def best():
        points = search.posterior(rows, 0)
        return max(point.kriging.log_evidence for point in points)

    some = best()
    monkeypatch.setattr(search, "SUBSETS", ())
    assert some == pytest.approx(best(), abs=0.2)


def test_rows_without_any_evidence_are_refused(monkeypatch):
    def failing(*_):
        raise NumericalError("the covariances of the rows do not factorise.")

    monkeypatch.setattr(search, "Kriging", failing)
    with pytest.raises(NumericalError, match="no covariance of the rows factorises"):
        search.posterior(drawn(np.array([0.3, 0.5, 0.0, -1.5]), 50), 0)


def test_a_form_that_does_not_factorise_is_left_out(monkeypatch):
    def failing(law, theta, rows):
        if law.nested:
            raise NumericalError("the covariances of the rows do not factorise.")
        return Kriging(law, theta, rows)

    monkeypatch.setattr(search, "Kriging", failing)
    points = search.posterior(drawn(np.array([0.3, 0.5, 0.0, -1.5]), 50), 0)
    assert not any(point.kriging.covariance.nested for point in points)


@pytest.mark.parametrize("theta", [[0.3, 0.5, 0.0, -1.5], [2.5, 0.0, -0.6, -5.0]])
def test_the_search_ends_where_another_optimiser_ends(theta):
    """L-BFGS-B, from the truth, on the same density."""
    rows = drawn(np.array(theta), 200)
    law = rows.law(1.5, nested=False)

    def loss(theta):
        solved = Kriging(law, theta, rows)
        return -solved.log_evidence, -solved.slopes()[0]

    reached = optimize.minimize(loss, theta, jac=True, method="L-BFGS-B", bounds=law.bounds)
    found = search._maximum(law, law.starts(), rows, 0.01)
    assert found.height == pytest.approx(-reached.fun, abs=0.1)


def test_nested_ranges_are_as_likely_as_the_true_ones():
    theta = np.array([2.0, 0.0, 0.0, -4.0, 0.0, -2.3])
    rows = drawn(theta, 600, smoothness=1.5)
    own = [p.kriging for p in search.posterior(rows, 0) if p.kriging.covariance.nested]
    truth = Kriging(own[0].covariance, theta, rows).log_evidence
    assert max(each.log_evidence for each in own) > truth - 3
    assert -3.5 < np.mean([each.theta[5] for each in own]) < -1


def test_of_many_rows_only_likely_forms_are_used(monkeypatch):
    theta = np.array([0.3, 0.0, 0.0, -4.0])
    rows = drawn(theta, 600, smoothness=2.5)
    monkeypatch.setattr(search, "SUBSETS", (300,))
    monkeypatch.setattr(search, "MOST_COMPARED", 400)
    points = search.posterior(rows, 0)
    assert {point.kriging.covariance.form for point in points} <= {(1.5, False), (2.5, False)}
    assert len(points) > 2
    # Of still more rows, each form has one value of the parameters.
    monkeypatch.setattr(search, "MOST_AVERAGED", 400)
    maxima = search.posterior(rows, 0)
    assert len({point.kriging.covariance for point in maxima}) == len(maxima) <= 2
    best = max(point.kriging.log_evidence for point in points)
    assert max(point.kriging.log_evidence for point in maxima) > best - search.ENOUGH[0]

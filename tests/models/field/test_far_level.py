"""The error of the level far from all rows: its closed form, and its part in joint results."""

from dataclasses import replace

import numpy as np
import pytest
from field_worlds import grid, make_field
from scipy import sparse
from scipy.spatial.distance import cdist

from geogp.models.field import far_level
from geogp.models.field.far_level import NEAR_KM, RANGE_KM, SHARE, far_factor
from geogp.models.joint.level import joint_level

SIDE = 6


def level_of(*times: float, calibrated: bool = True):
    model = make_field(SIDE, 40)
    x = np.concatenate([grid(SIDE, time) for time in times])
    x[:, 0] += 4.0  # units of 6 km: the tiles lie up to 24 km east of the rows
    return model, x, joint_level(model, None, x, calibrated=calibrated)


def test_variances_are_those_of_an_exponential_process_given_its_value_nearby():
    distance = np.array([0.0, NEAR_KM, 7.0, 60.0, 1e6])
    places = np.column_stack([distance, np.zeros(5)])
    variance = far_factor(places, distance).power(2).sum(1)
    np.testing.assert_array_equal(variance[:2], 0)
    apart = np.exp(-(distance[2:] - NEAR_KM) / RANGE_KM)
    np.testing.assert_allclose(variance[2:], SHARE * (1 - apart**2), rtol=1e-12)


def test_correlations_are_exact_with_a_knot_at_each_place_and_near_with_fewer(monkeypatch):
    places = np.random.default_rng(0).uniform(0, 300, (60, 2))
    distance = np.full(60, 80.0)
    expected = np.exp(-cdist(places, places) / RANGE_KM)
    for knots, atol in ((64, 1e-10), (30, 0.25)):
        monkeypatch.setattr(far_level, "KNOTS", knots)
        R = far_factor(places, distance).toarray()
        assert R.shape == (60, min(knots, 60))
        sd = np.sqrt(np.square(R).sum(1))
        np.testing.assert_allclose(np.square(sd), far_level.far_share(distance))
        np.testing.assert_allclose(R @ R.T / np.outer(sd, sd), expected, atol=atol)


def test_places_near_rows_have_no_column():
    assert far_factor(np.zeros((4, 2)), np.full(4, NEAR_KM)).shape == (4, 0)


def test_a_place_near_rows_is_certain_at_any_distance_from_other_places():
    found = far_factor(
        np.array([[0.0, 0.0], [1e5, 0.0], [1e5, 10.0]]), np.array([0.0, 50, 50])
    ).toarray()
    assert np.isfinite(found).all()
    assert (found[0] == 0).all()


def test_precise_data_have_none(monkeypatch):
    model, x, _ = level_of(1.0)
    with_error = model.predict(x, level=True).function_variance
    parameters = model.parameters
    monkeypatch.setattr(parameters, "is_precise", lambda: True)
    found = far_level.far_level(parameters, model.rows, parameters.scaled(x))
    assert found.shape == (len(x), 0)
    assert (model.predict(x, level=True).function_variance < with_error).any()


def test_single_tiles_are_those_of_the_map():
    model, x, level = level_of(1.0)
    stated = model.predict(x, level=True).function_variance
    np.testing.assert_allclose(level.single_variances(), stated, rtol=1e-9)
    process = replace(level, unseen=sparse.csr_array((len(x), 0))).single_variances()
    assert (stated > process).sum() > len(x) / 2
    measured = level.measured(5.0)
    added = level.unseen.power(2).sum(1)
    one = model.predict(x, 5.0).function_variance
    np.testing.assert_allclose(measured.single_variances(), one + added, rtol=1e-9)


def test_sums_and_draws_contain_it():
    _, x, level = level_of(1.0)
    weights = sparse.csc_array(np.full((len(x), 1), 1 / len(x)))
    process = replace(level, unseen=sparse.csr_array((len(x), 0)))
    added = float(np.square(level.unseen.mean(0)).sum())
    total = level.sum_variances(weights)[0]
    assert total == pytest.approx(process.sum_variances(weights)[0] + added, rel=1e-9)
    assert level.sum_covariance(weights)[0, 0] == pytest.approx(total, rel=1e-9)
    low, local = level.low_rank().mean(0), level.local.times(weights.toarray())[:, 0].mean()
    assert float(low @ low + local) == pytest.approx(total, rel=1e-9)
    means = np.concatenate([paths.mean(1) for paths in level.paths(4000)])
    assert means.var() == pytest.approx(total, rel=0.1)


def test_changes_do_not_contain_it():
    _, x, level = level_of(-0.5, 1.0)
    n = len(x) // 2
    change = sparse.csc_array(np.repeat([-1 / n, 1 / n], n)[:, None])
    process = replace(level, unseen=sparse.csr_array((2 * n, 0)))
    assert level.unseen.nnz
    np.testing.assert_allclose(level.sum_variances(change), process.sum_variances(change))


def test_the_process_alone_has_none():
    assert level_of(1.0, calibrated=False)[2].unseen.shape[1] == 0

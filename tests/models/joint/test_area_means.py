"""Means of held-out rows in areas, against a dense Gaussian distribution."""

from dataclasses import dataclass

import numpy as np
import pytest

from geogp.models.joint.area_means import LEAST_ROWS, AreaMeans, blocks_in_quarters


@dataclass
class Dense:
    """The joint distribution of n values with a dense covariance, as `JointLevel` states it."""

    mean: np.ndarray
    covariance: np.ndarray
    noise_variance: np.ndarray

    def single_variances(self):
        return np.diag(self.covariance)

    def sum_means(self, weights):
        return weights.T @ self.mean

    def sum_variances(self, weights, *, noise):
        assert noise
        whole = self.covariance + np.diag(self.noise_variance)
        dense = weights.toarray()
        return np.einsum("nk,nm,mk->k", dense, whole, dense)


@pytest.fixture
def world():
    """Rows in forty areas, in no order, whose values vary together within an area."""
    random = np.random.default_rng(0)
    area = random.permutation(np.repeat(np.arange(40), 12))
    shared = 0.5 * (area[:, None] == area)
    noise = random.uniform(0.1, 0.4, len(area))
    return area, Dense(np.full(len(area), 2.0), shared + 0.2 * np.eye(len(area)), noise)


def test_means_and_standard_deviations(world):
    area, law = world
    y = np.random.default_rng(1).standard_normal(len(area))
    found = AreaMeans.of(law, y, area)
    one = area == 7
    assert found.rows.tolist() == [12] * 40
    assert found.error[7] == pytest.approx(y[one].mean() - 2.0)
    own = (0.2 + law.noise_variance[one]).sum() / 144
    assert found.joint[7] ** 2 == pytest.approx(0.5 + own)
    assert found.independent[7] ** 2 == pytest.approx(0.5 / 12 + own)


def test_joint_intervals_hold_what_they_state_and_independent_ones_do_not(world):
    area, law = world
    random = np.random.default_rng(2)
    whole = law.covariance + np.diag(law.noise_variance)
    draws = law.mean + random.standard_normal((50, len(area))) @ np.linalg.cholesky(whole).T
    found = AreaMeans.together([AreaMeans.of(law, y, area) for y in draws])
    assert len(found.rows) == 2000
    assert abs(found.covered(found.joint) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)
    assert abs(found.covered(found.joint, 0.5) - 0.5) < 4 * np.sqrt(0.25 / 2000)
    assert found.covered(found.independent) < 0.75


def test_areas_with_few_rows_are_left_out(world):
    area, law = world
    area = area.copy()
    few = np.flatnonzero(area == 3)[LEAST_ROWS - 1 :]
    area[few] = 100
    found = AreaMeans.of(law, law.mean, area)
    assert sorted(found.rows.tolist()) == [8, *[12] * 39]
    assert found.error == pytest.approx(0)


def test_a_block_in_two_quarters_is_two_areas():
    cells, quarter = np.array([3, 3, 1, 3]), np.array([5, 6, 5, 5])
    found = blocks_in_quarters(cells, quarter)
    assert found.tolist() == [0, 1, 2, 0]

"""Search trees of points with coordinates of 0, where denormal numbers are flushed or kept."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from geogp.models.numerics.trees import denormals_are_flushed, tree_of


@pytest.fixture(params=[False, True])
def flushed(request):
    """Whether denormal numbers are flushed in this test."""
    before = denormals_are_flushed()
    torch.set_flush_denormal(request.param)
    yield request.param
    torch.set_flush_denormal(before)


@pytest.mark.parametrize("balanced", [False, True])
def test_a_tree_of_a_grid_around_0_finds_the_nearest_points(flushed, balanced):
    """With flushed numbers, SciPy's own balanced tree of these points ends the process."""
    across = np.arange(-20.0, 21.0)
    grid = np.stack(np.meshgrid(across, across), -1).reshape(-1, 2)
    for points in (grid, np.abs(grid), np.maximum(grid, 0)):
        distinct = np.unique(points, axis=0)
        asked = np.random.default_rng(0).uniform(-25, 25, (60, 2))
        found, _ = tree_of(distinct, balanced=balanced).query(asked, k=5)
        np.testing.assert_allclose(found, np.sort(cdist(asked, distinct), 1)[:, :5])
        assert denormals_are_flushed() == flushed

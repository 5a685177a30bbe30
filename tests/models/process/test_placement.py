"""Inducing points start over space, never by row order."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from geogp.models.process.placement import place_anchors

PLACEMENTS = ["kmeans", "farthest", "uniform"]


def _seed(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def clusters() -> tuple[torch.Tensor, torch.Tensor]:
    """Eight far clusters of 120 rows, one after the other, and their centres."""
    angle = torch.arange(8, dtype=torch.float64) * torch.pi / 4
    centres = torch.stack([angle.cos(), angle.sin()], 1)
    spread = 0.03 * torch.randn(8, 120, 2, generator=_seed(9), dtype=torch.float64)
    return (centres[:, None] + spread).reshape(-1, 2), centres


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("placement", "r"), [("kmeans", 64), ("farthest", 8)])
def test_every_cluster_gets_points(clusters, placement, r, seed):
    x, centres = clusters
    anchors = place_anchors(x, r, placement, _seed(seed))
    nearest = torch.cdist(anchors, centres).min(1)
    assert nearest.values.max() < 0.2
    assert set(nearest.indices.tolist()) == set(range(8))


def test_farthest_reaches_a_cluster_of_one_row(clusters):
    x = torch.cat([clusters[0], torch.tensor([[5.0, 5.0]], dtype=torch.float64)])
    anchors = place_anchors(x, 4, "farthest", _seed(0))
    assert (anchors == 5.0).all(1).any()


@pytest.mark.parametrize("seed", range(3))
def test_farthest_chooses_inputs_and_spreads_them(seed):
    # Gonzalez (1985): no input is farther from the chosen ones than they are apart.
    x = torch.rand(300, 2, generator=_seed(seed), dtype=torch.float64)
    anchors = place_anchors(x, 20, "farthest", _seed(seed))
    assert (anchors[:, None] == x).all(2).any(1).all()
    assert torch.cdist(x, anchors).min(1).values.max() <= torch.pdist(anchors).min()


def test_kmeans_is_nearly_as_good_as_that_of_scikit_learn():
    x = torch.randn(800, 2, generator=_seed(0), dtype=torch.float64)
    anchors = place_anchors(x, 16, "kmeans", _seed(1))
    inertia = torch.cdist(x, anchors).min(1).values.square().sum().item()
    reference = KMeans(16, n_init=3, random_state=0).fit(x.numpy()).inertia_
    assert inertia < 1.25 * reference


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_seed_fixes_the_points(placement, dtype):
    x = torch.rand(200, 3, generator=_seed(0), dtype=dtype)
    first, again, other = (place_anchors(x, 11, placement, _seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (11, 3)
    assert first.dtype == dtype


@pytest.mark.parametrize("placement", ["kmeans", "farthest"])
def test_repeated_rows_do_not_repeat_a_point(placement):
    distinct = torch.rand(30, 2, generator=_seed(0), dtype=torch.float64)
    x = torch.cat([distinct[:1].repeat(500, 1), distinct, distinct])
    anchors = place_anchors(x, 25, placement, _seed(1))
    assert torch.isfinite(anchors).all()
    assert len(torch.unique(anchors, dim=0)) == 25


@pytest.mark.parametrize("placement", ["kmeans", "farthest"])
def test_fewer_places_than_points_are_filled_up_by_chance(placement):
    distinct = 10 + torch.rand(5, 2, generator=_seed(0), dtype=torch.float64)
    anchors = place_anchors(distinct.repeat(3, 1), 9, placement, _seed(1))
    assert anchors.shape == (9, 2)
    assert torch.equal(torch.unique(anchors[:5], dim=0), torch.unique(distinct, dim=0))
    assert anchors[5:].abs().max() <= 1
    assert len(torch.unique(anchors, dim=0)) == 9


def test_uniform_fills_the_papers_cube_wherever_the_rows_are():
    anchors = place_anchors(torch.full((3, 2), 40.0), 2000, "uniform", _seed(0))
    assert anchors.abs().max() <= 1
    np.testing.assert_allclose(anchors.mean(0), 0, atol=0.06)
    np.testing.assert_allclose(anchors.std(0), 3**-0.5, atol=0.03)

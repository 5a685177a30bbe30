"""Bases against dense kernels, and the placement of inducing points over space."""

import logging

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch.func import functional_call

from geogp.errors import NumericalError
from geogp.models.bases import Backbone, InducingBasis
from geogp.models.placement import place_anchors

HYPER = {"lengthscale": np.array([0.4, 1.3]), "variance": 1.7, "jitter": 1e-5}
PLACEMENTS = ["kmeans", "farthest", "uniform"]


def _seed(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def Z() -> np.ndarray:  # noqa: N802
    return np.random.default_rng(0).uniform(-1, 1, (9, 2))


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.2, 1.2, (40, 2))


class TestInducingBasis:
    def test_features_give_the_dense_nystroem_kernel(self, Z, x, make_basis, nystroem):
        with torch.no_grad():
            phi = make_basis(Z, **HYPER)(torch.from_numpy(x)).phi.numpy()
        assert phi.shape == (40, 9)
        np.testing.assert_allclose(phi @ phi.T, nystroem(x, x, Z, **HYPER), rtol=1e-8, atol=1e-10)

    def test_residual_is_what_the_basis_misses(self, Z, x, make_basis, nystroem):
        with torch.no_grad():
            residual = make_basis(Z, **HYPER)(torch.from_numpy(x)).residual.numpy()
        expected = HYPER["variance"] - np.diag(nystroem(x, x, Z, **HYPER))
        np.testing.assert_allclose(residual, expected, rtol=1e-8, atol=1e-10)
        assert residual.min() >= 0
        assert residual.max() > 0.05

    def test_residual_vanishes_at_the_inducing_points_only(self, Z, make_basis):
        far = np.array([[50.0, -50.0]])
        with torch.no_grad():
            residual = make_basis(Z, **HYPER)(torch.from_numpy(np.vstack([Z, far]))).residual
        # k - k (k + e I)^(-1) k <= e I.
        assert residual[:9].max() <= HYPER["jitter"] * HYPER["variance"] * (1 + 1e-6)
        assert residual[9].item() == pytest.approx(HYPER["variance"], rel=1e-12)

    def test_inducing_points_at_the_data_give_the_kernel_itself(self, x, make_basis, dense_rbf):
        with torch.no_grad():
            phi = make_basis(x, **{**HYPER, "jitter": 1e-8})(torch.from_numpy(x)).phi.numpy()
        exact = dense_rbf(x, x, HYPER["lengthscale"], HYPER["variance"])
        np.testing.assert_allclose(phi @ phi.T, exact, atol=1e-7)

    def test_kernel_minus_its_approximation_is_positive_semidefinite(
        self, Z, x, make_basis, dense_rbf
    ):
        with torch.no_grad():
            phi = make_basis(Z, **HYPER)(torch.from_numpy(x)).phi.numpy()
        missing = dense_rbf(x, x, HYPER["lengthscale"], HYPER["variance"]) - phi @ phi.T
        assert np.linalg.eigvalsh(missing).min() > -1e-10
        assert np.linalg.eigvalsh(phi @ phi.T).min() > -1e-10

    def test_kernel_on_a_network_is_the_kernel_of_its_outputs(self, x, nystroem):
        torch.manual_seed(0)
        network = Backbone(2, 5).double()
        anchors = torch.randn(7, 5, generator=_seed(3), dtype=torch.float64)
        with torch.no_grad():
            phi = InducingBasis(anchors, network)(torch.from_numpy(x)).phi.numpy()
            mapped = network(torch.from_numpy(x)).numpy()
        hyper = {"lengthscale": np.full(5, np.sqrt(5)), "variance": 1.0, "jitter": 1e-6}
        expected = nystroem(mapped, mapped, anchors.numpy(), **hyper)
        np.testing.assert_allclose(phi @ phi.T, expected, atol=1e-9)

    @pytest.mark.parametrize("dimension", [1, 2, 64])
    def test_lengthscales_start_at_the_root_of_the_dimension(self, dimension):
        basis = InducingBasis(torch.zeros(3, dimension))
        np.testing.assert_allclose(basis.log_lengthscale.detach().exp(), dimension**0.5, rtol=1e-6)
        assert basis.log_lengthscale.shape == (dimension,)
        assert basis.log_variance.exp().item() == 1
        assert basis.rank == 3

    def test_gradients_against_finite_differences_with_coincident_points(self):
        anchors = torch.tensor([[0.1, -0.4], [0.8, 0.3], [0.8, 0.3]], dtype=torch.float64)
        x = torch.tensor([[0.1, -0.4], [-0.5, 0.6], [-0.5, 0.6]], dtype=torch.float64)
        basis = InducingBasis(anchors, jitter=1e-2)
        names = [name for name, _ in basis.named_parameters()]

        def outputs(x, *values):
            found = functional_call(basis, dict(zip(names, values, strict=True)), (x,))
            return found.phi, found.residual

        inputs = [value.detach().clone().requires_grad_() for value in (x, *basis.parameters())]
        assert len(inputs) == 4
        assert torch.autograd.gradcheck(outputs, inputs, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_gradients_are_finite_where_all_points_coincide(self, dtype):
        basis = InducingBasis(torch.full((4, 2), 0.3, dtype=dtype))
        found = basis(torch.full((5, 2), 0.3, dtype=dtype))
        (found.phi.sum() + found.residual.sum()).backward()
        assert found.phi.dtype == found.residual.dtype == dtype
        for value in basis.parameters():
            assert torch.isfinite(value.grad).all()

    def test_a_basis_above_its_kernel_is_refused(self, Z, make_basis, caplog):
        basis = make_basis(Z, **HYPER)
        variance = torch.tensor(2.0, dtype=torch.float64)
        with caplog.at_level(logging.INFO, "geogp.models.bases"):
            kept = basis._checked(torch.tensor([0.5, -1.9e-5, 0.0]).double(), variance)
        np.testing.assert_array_equal(kept, [0.5, 0, 0])
        assert "1 residual variances below zero" in caplog.text
        with pytest.raises(NumericalError, match=r"exceeds its kernel by 1\.1e-05 .* jitter"):
            basis._checked(torch.tensor([0.5, -2.2e-5]).double(), variance)


class TestBackbone:
    @pytest.mark.parametrize("blocks", [1, 2, 3])
    def test_layers_as_described(self, blocks):
        torch.manual_seed(blocks)
        network = Backbone(3, 4, blocks).double()
        with torch.no_grad():
            for value in network.parameters():
                value.add_(0.2 * torch.randn_like(value))
        weights = {name: value.detach().numpy() for name, value in network.named_parameters()}
        x = np.random.default_rng(0).standard_normal((6, 3))

        def linear(v, name):
            return v @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

        def norm(v, name):
            centred = v - v.mean(1, keepdims=True)
            scaled = centred / np.sqrt(v.var(1, keepdims=True) + 1e-5)
            return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

        def silu(v):
            return v / (1 + np.exp(-v))

        hidden = linear(x, "project")
        for i in range(blocks):
            inner = linear(norm(hidden, f"blocks.{i}.0"), f"blocks.{i}.1")
            hidden = hidden + linear(silu(inner), f"blocks.{i}.3")
        expected = silu(norm(hidden, "finish.0"))
        with torch.no_grad():
            np.testing.assert_allclose(network(torch.from_numpy(x)), expected, rtol=1e-10)
        assert len(weights) == 2 + 6 * blocks + 2


class TestPlacement:
    @pytest.fixture
    def clusters(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Eight far clusters of 120 rows, one after the other, and their centres."""
        angle = torch.arange(8, dtype=torch.float64) * torch.pi / 4
        centres = torch.stack([angle.cos(), angle.sin()], 1)
        spread = 0.03 * torch.randn(8, 120, 2, generator=_seed(9), dtype=torch.float64)
        return (centres[:, None] + spread).reshape(-1, 2), centres

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("placement", "r"), [("kmeans", 64), ("farthest", 8)])
    def test_every_cluster_gets_points(self, clusters, placement, r, seed):
        x, centres = clusters
        anchors = place_anchors(x, r, placement, _seed(seed))
        nearest = torch.cdist(anchors, centres).min(1)
        assert nearest.values.max() < 0.2
        assert set(nearest.indices.tolist()) == set(range(8))

    def test_farthest_reaches_a_cluster_of_one_row(self, clusters):
        x = torch.cat([clusters[0], torch.tensor([[5.0, 5.0]], dtype=torch.float64)])
        anchors = place_anchors(x, 4, "farthest", _seed(0))
        assert (anchors == 5.0).all(1).any()

    @pytest.mark.parametrize("seed", range(3))
    def test_farthest_chooses_inputs_and_spreads_them(self, seed):
        # Gonzalez (1985): no input is farther from the chosen ones than they are apart.
        x = torch.rand(300, 2, generator=_seed(seed), dtype=torch.float64)
        anchors = place_anchors(x, 20, "farthest", _seed(seed))
        assert (anchors[:, None] == x).all(2).any(1).all()
        assert torch.cdist(x, anchors).min(1).values.max() <= torch.pdist(anchors).min()

    def test_kmeans_is_nearly_as_good_as_that_of_scikit_learn(self):
        x = torch.randn(800, 2, generator=_seed(0), dtype=torch.float64)
        anchors = place_anchors(x, 16, "kmeans", _seed(1))
        inertia = torch.cdist(x, anchors).min(1).values.square().sum().item()
        reference = KMeans(16, n_init=3, random_state=0).fit(x.numpy()).inertia_
        assert inertia < 1.25 * reference

    @pytest.mark.parametrize("placement", ["kmeans", "farthest"])
    def test_row_order_does_not_matter(self, clusters, placement):
        x, _ = clusters
        mixed = x[torch.randperm(len(x), generator=_seed(4))]
        found = [place_anchors(rows, 12, placement, _seed(7)) for rows in (x, mixed)]
        ordered = [torch.unique(anchors, dim=0) for anchors in found]
        torch.testing.assert_close(ordered[0], ordered[1], rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("placement", PLACEMENTS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_seed_fixes_the_points(self, placement, dtype):
        x = torch.rand(200, 3, generator=_seed(0), dtype=dtype)
        first, again, other = (place_anchors(x, 11, placement, _seed(s)) for s in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert first.shape == (11, 3)
        assert first.dtype == dtype

    @pytest.mark.parametrize("placement", ["kmeans", "farthest"])
    def test_repeated_rows_do_not_repeat_a_point(self, placement):
        distinct = torch.rand(30, 2, generator=_seed(0), dtype=torch.float64)
        x = torch.cat([distinct[:1].repeat(500, 1), distinct, distinct])
        anchors = place_anchors(x, 25, placement, _seed(1))
        assert torch.isfinite(anchors).all()
        assert len(torch.unique(anchors, dim=0)) == 25

    @pytest.mark.parametrize("placement", ["kmeans", "farthest"])
    def test_fewer_places_than_points_are_filled_up_by_chance(self, placement):
        distinct = 10 + torch.rand(5, 2, generator=_seed(0), dtype=torch.float64)
        anchors = place_anchors(distinct.repeat(3, 1), 9, placement, _seed(1))
        assert anchors.shape == (9, 2)
        assert torch.equal(torch.unique(anchors[:5], dim=0), torch.unique(distinct, dim=0))
        assert anchors[5:].abs().max() <= 1
        assert len(torch.unique(anchors, dim=0)) == 9

    def test_uniform_fills_the_papers_cube_wherever_the_rows_are(self):
        anchors = place_anchors(torch.full((3, 2), 40.0), 2000, "uniform", _seed(0))
        assert anchors.abs().max() <= 1
        np.testing.assert_allclose(anchors.mean(0), 0, atol=0.06)
        np.testing.assert_allclose(anchors.std(0), 3**-0.5, atol=0.03)

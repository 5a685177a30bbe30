"""Bases against dense kernels and NumPy."""

import logging

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline
from sklearn.gaussian_process.kernels import RBF
from torch.func import functional_call

from geogp.errors import NumericalError
from geogp.models.numerics.products import squared_norms
from geogp.models.process.basis_functions import (
    Backbone,
    DenseBasis,
    DriftBasis,
    FourierBasis,
    InducingBasis,
    NetworkBasis,
    SplineBasis,
    checked_residual,
)
from geogp.models.process.rbf import rbf

HYPER = {"lengthscale": np.array([0.4, 1.3]), "variance": 1.7, "jitter": 1e-5}


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

    def test_a_basis_above_its_kernel_is_refused(self, caplog):
        variance = torch.tensor(2.0, dtype=torch.float64)
        with caplog.at_level(logging.INFO, "geogp.models.process.basis_functions"):
            kept = checked_residual(torch.tensor([0.5, -1.9e-5, 0.0]).double(), variance)
        np.testing.assert_array_equal(kept, [0.5, 0, 0])
        assert "1 residual variances are set to 0" in caplog.text
        with pytest.raises(NumericalError, match=r"by a share of 1\.1e-05; .* jitter"):
            checked_residual(torch.tensor([0.5, -2.2e-5]).double(), variance)


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


class TestDenseBasis:
    def test_features_by_hand(self, x):
        torch.manual_seed(0)
        network = Backbone(2, 5).double()
        basis = DenseBasis(network, 5, 7).double()
        with torch.no_grad():
            for value in basis.parameters():
                value.add_(0.3 * torch.randn_like(value))
            found = basis(torch.from_numpy(x))
            hidden = network(torch.from_numpy(x)).numpy()
        W, b, s = (
            value.detach().numpy()
            for value in (basis.expand.weight, basis.expand.bias, basis.scale)
        )
        inner = hidden @ W.T + b
        expected = s * inner / (1 + np.exp(-inner))
        np.testing.assert_allclose(found.phi, expected, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found.norm, (expected**2).sum(1), rtol=1e-10)
        np.testing.assert_array_equal(found.residual, np.zeros(40))
        assert found.phi.shape == (40, 7)
        assert basis.rank == 7

    def test_scales_start_at_one_size_with_both_signs(self):
        scales = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            scales.append(DenseBasis(Backbone(2, 5), 5, 400).scale.detach())
        np.testing.assert_allclose(scales[0].abs(), 0.05, rtol=1e-6)
        # The mean of 400 fair signs has standard error 0.05.
        assert scales[0].sign().mean().abs() < 0.25
        assert torch.equal(scales[0], scales[1])
        assert not torch.equal(scales[0], scales[2])

    @pytest.mark.parametrize("kind", [DenseBasis, FourierBasis, SplineBasis])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype_and_gradients(self, x, dtype, kind):
        torch.manual_seed(1)
        basis = kind(Backbone(2, 5), 5, 7).to(dtype)
        found = basis(torch.from_numpy(x).to(dtype))
        assert found.phi.dtype == found.norm.dtype == found.residual.dtype == dtype
        found.norm.sum().backward()
        for name, value in basis.named_parameters():
            assert torch.isfinite(value.grad).all(), name
            assert value.grad.any(), name


class TestFourierBasis:
    def test_kernel_tends_to_the_rbf_kernel_of_the_features(self, x):
        torch.manual_seed(0)
        network = Backbone(2, 5).double()
        with torch.no_grad():
            mapped = network(torch.from_numpy(x)).numpy()
        exact = RBF(length_scale=np.sqrt(5))(mapped)
        assert exact.min() < 0.8
        errors = []
        for rank in (400, 40_000):
            torch.manual_seed(1)
            basis = FourierBasis(network, 5, rank).double()
            with torch.no_grad():
                found = basis(torch.from_numpy(x))
            phi = found.phi.numpy()
            errors.append(np.sqrt(np.mean((phi @ phi.T - exact) ** 2)))
            np.testing.assert_allclose(found.norm, (phi**2).sum(1), rtol=1e-10)
            assert not found.residual.any()
        # The mean of r products, each with a standard deviation of at most 1.
        assert errors[0] < 0.05
        assert errors[1] < 0.005

    def test_features_by_hand(self, x):
        torch.manual_seed(0)
        network = Backbone(2, 5).double()
        basis = FourierBasis(network, 5, 7).double()
        with torch.no_grad():
            basis.scale.add_(0.3 * torch.randn(7))
            found = basis(torch.from_numpy(x)).phi
            hidden = network(torch.from_numpy(x)).numpy()
        W, b, s = (
            value.detach().numpy()
            for value in (basis.expand.weight, basis.expand.bias, basis.scale)
        )
        np.testing.assert_allclose(found, s * np.cos(hidden @ W.T + b), rtol=1e-10, atol=1e-13)


class TestSplineBasis:
    @staticmethod
    def _at(basis: SplineBasis, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi over s at inputs, and the coordinates u."""
        with torch.no_grad():
            phi = basis.values(torch.from_numpy(x)) / basis.log_scale.exp()
            u = torch.tanh(basis.expand(basis.backbone(torch.from_numpy(x))))
        return phi.numpy(), u.numpy()

    @pytest.mark.parametrize(
        ("r", "coordinates", "splines"), [(1, 1, 4), (31, 1, 31), (50, 3, 17), (128, 8, 16)]
    )
    def test_features_are_the_splines_of_scipy(self, x, r, coordinates, splines):
        torch.manual_seed(0)
        basis = SplineBasis(Backbone(2, 5), 5, r).double()
        with torch.no_grad():
            basis.expand.weight.mul_(5)
            basis.expand.bias.sub_(basis.expand(basis.backbone(torch.from_numpy(x))).mean(0))
            basis.log_scale.copy_(torch.randn(basis.rank))
        found, u = self._at(basis, x)
        assert u.shape == (40, coordinates)
        assert (np.ptp(u, axis=0) > 0.3).all()
        knots = -1 + np.arange(-3, splines + 1) * 2 / (splines - 3)
        expected = [BSpline.design_matrix(column, knots, 3).toarray() for column in u.T]
        np.testing.assert_allclose(found, np.hstack(expected), atol=1e-12)
        assert basis.rank == found.shape[1] == coordinates * splines

    def test_splines_of_a_coordinate_add_up_to_one_and_few_differ_from_zero(self):
        basis = SplineBasis(torch.nn.Identity(), 1, 20).double()
        with torch.no_grad():
            basis.expand.weight.fill_(1)
            basis.expand.bias.zero_()
        found, u = self._at(basis, np.linspace(-9, 9, 501)[:, None])
        assert np.abs(u).max() > 1 - 1e-6
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
        assert ((found > 0).sum(1) <= 4).all()
        assert (found > 0).any(0).all()

    def test_the_prior_variance_starts_near_one(self, x):
        torch.manual_seed(0)
        norm = SplineBasis(Backbone(2, 5), 5, 128)(torch.from_numpy(x).float()).norm
        assert norm.shape == (40,)
        assert 0.9 < norm.min() <= norm.max() < 1.1


def test_a_network_is_its_own_basis(x):
    torch.manual_seed(0)
    network = Backbone(2, 5).double()
    basis = NetworkBasis(network, 5)
    with torch.no_grad():
        found, expected = basis(torch.from_numpy(x)), network(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(found.phi, expected)
    np.testing.assert_allclose(found.norm, (expected**2).sum(1), rtol=1e-12)
    np.testing.assert_array_equal(found.residual, np.zeros(40))
    assert basis.rank == found.phi.shape[1] == 5


class TestSquaredNorms:
    @pytest.fixture
    def rows(self) -> torch.Tensor:
        """Rows with one at the origin, where a norm that takes a root has no gradient."""
        made = torch.randn(6, 4, generator=_seed(0), dtype=torch.float64)
        made[2] = 0
        return made

    @pytest.mark.parametrize("turned", [False, True])
    def test_value_and_gradient(self, rows, turned):
        rows = (rows.T if turned else rows).requires_grad_()
        weights = torch.arange(1.0, len(rows) + 1, dtype=torch.float64)
        norms = squared_norms(rows)
        (weights * norms).sum().backward()
        values = rows.detach().numpy()
        np.testing.assert_allclose(norms.detach(), (values**2).sum(1), rtol=1e-13)
        np.testing.assert_allclose(rows.grad, 2 * weights.numpy()[:, None] * values, rtol=1e-13)

    def test_no_rows(self):
        assert squared_norms(torch.zeros(0, 3)).shape == (0,)


class TestKernelOfRows:
    """The RBF kernel of rows that are divided by their lengthscales already."""

    @pytest.mark.parametrize("variance", [0.02, 1.0, 40.0])
    def test_against_scikit_learn(self, Z, x, variance):
        lengthscale = HYPER["lengthscale"]
        rows = (torch.from_numpy(part / lengthscale) for part in (Z, x))
        found = rbf(*rows, torch.tensor(variance, dtype=torch.float64))
        expected = variance * RBF(length_scale=lengthscale)(Z, x)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14 * variance)

    def test_at_distance_zero_it_is_the_variance_and_flat(self, x):
        variance = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
        rows = torch.from_numpy(5 * x).requires_grad_()
        # Each row with itself, one pair at a time: other pairs have a slope.
        found = torch.stack([rbf(row[None], row[None].detach(), variance)[0, 0] for row in rows])
        found.sum().backward()
        np.testing.assert_allclose(found.detach(), 1.7, rtol=1e-13)
        np.testing.assert_allclose(rows.grad, 0, atol=1e-13)
        assert variance.grad.item() == pytest.approx(len(x), rel=1e-12)

    def test_gradients_against_finite_differences(self, Z, x):
        variance = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
        rows = [
            torch.from_numpy(part).requires_grad_() for part in (Z[:3], np.vstack([Z[:2], x[:2]]))
        ]
        assert torch.autograd.gradcheck(rbf, (*rows, variance))


def test_covariates_are_added_to_the_features_of_the_other_inputs(x):
    torch.manual_seed(0)
    inner = DenseBasis(Backbone(2, 8), 8, 5).double()
    basis = DriftBasis(inner, 2).double()
    with torch.no_grad():
        basis.log_scale.copy_(torch.tensor([2.0, 0.5]).log())
        inputs = torch.from_numpy(np.column_stack([x, x + 3]))
        found = basis(inputs)
        first = inner(inputs[:, :2]).phi.numpy()
    assert basis.rank == 7
    np.testing.assert_allclose(found.phi[:, :5], first)
    np.testing.assert_allclose(found.phi[:, 5:], (x + 3) * [2.0, 0.5])
    np.testing.assert_allclose(found.norm, found.phi.square().sum(1))
    assert not found.residual.any()

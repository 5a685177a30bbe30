"""Kernels of one wide hidden layer, and what every kernel must do.

References are wide random networks, quadrature, SciPy's densities and figures of the paper.
"""

import math

import numpy as np
import pytest
import torch
from scale_worlds import with_values
from scipy import integrate, stats
from torch.func import functional_call

from geogp.errors import RequestError
from geogp.models.papers.mixed_nystrom.expectations import (
    ERF_GAIN,
    TANH_GAIN,
    arcsine,
    relu,
    sigmoid,
)
from geogp.models.papers.mixed_nystrom.kernels import (
    PROPORTION_PRIOR,
    VARIANCE_PRIOR,
    MixedKernel,
    NetworkKernel,
    log_beta,
    log_dirichlet,
    log_inverse_gamma,
)

VARIANCES = {
    "output_bias": 0.3,
    "output_weight": 1.7,
    "hidden_bias": 0.6,
    "hidden_weight": 2.5,
}


def _four() -> MixedKernel:
    """Return a kernel of all components, with the shares 0.1, 0.4, 0.3 and 0.2."""
    kernel = with_values(
        MixedKernel(("tanh", "sigmoid", "relu", "leaky-relu")), alpha=0.2, **VARIANCES
    )
    with torch.no_grad():
        kernel.logit_w.copy_(torch.tensor([0.5, 2.0, 1.5]).log())
    return kernel


KERNELS = {
    "mixed": lambda: with_values(MixedKernel(), alpha=0.2, w=0.3, **VARIANCES),
    "four": _four,
    "erf-1": lambda: with_values(NetworkKernel(1, "erf"), readout=1.3),
    "erf-3": lambda: with_values(NetworkKernel(3, "erf"), weight=8.0, bias=0.05),
    "relu-3": lambda: NetworkKernel(3, "relu"),
}


def _tensor(values: object) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def _rows(m: int, d: int, seed: int) -> torch.Tensor:
    return _tensor(np.random.default_rng(seed).uniform(-0.5, 0.5, (m, d)))


def _smooth_tanh(z: torch.Tensor) -> torch.Tensor:
    return torch.erf(math.sqrt(math.pi) * z / 2)


def _leaky(z: torch.Tensor) -> torch.Tensor:
    return torch.where(z > 0, z, 0.2 * z)


def _smooth_sigmoid(z: torch.Tensor) -> torch.Tensor:
    return 0.5 + 0.5 * torch.erf(math.sqrt(math.pi) * z / 4)


# The units of the mixed networks, each with its share of the readout's variance (Mixed (12)).
UNITS = {
    "mixed": [(0.3, _smooth_tanh), (0.7, _leaky)],
    "four": [(0.1, _smooth_tanh), (0.4, _smooth_sigmoid), (0.3, torch.relu), (0.2, _leaky)],
}


@pytest.mark.parametrize("name", UNITS)
def test_a_layer_of_a_million_random_units_has_the_kernel(name, device):
    x = _tensor([[0.1, -0.4], [0.5, 0.5], [-0.5, 0.3], [0.1, -0.39], [0.0, 0.0]])
    random = torch.Generator().manual_seed(4)
    units, chunk = 1_000_000, 100_000
    sums, squares = torch.zeros(5, 5).double(), torch.zeros(5, 5).double()
    for _ in range(units // chunk):
        drawn = torch.randn(chunk, 3, generator=random, dtype=torch.float64)
        bias = math.sqrt(VARIANCES["hidden_bias"]) * drawn[:, :1]
        z = bias + math.sqrt(VARIANCES["hidden_weight"]) * drawn[:, 1:] @ x.T
        hidden = [(share, activation(z)) for share, activation in UNITS[name]]
        products = sum(share * h[:, :, None] * h[:, None] for share, h in hidden)
        products = VARIANCES["output_bias"] + VARIANCES["output_weight"] * products
        sums += products.sum(0)
        squares += products.square().sum(0)
    mean = sums / units
    standard_error = (squares / units - mean.square()).div(units).sqrt()
    with torch.no_grad():
        found = KERNELS[name]().to(device)(x.to(device), x.to(device)).cpu()
    assert ((found - mean).abs() <= 4 * standard_error).all()
    # The origin and the two near points included, the errors are small enough to tell.
    assert (standard_error / mean).max() < 3e-3


GRID = [(0.3, 0.3), (0.3, 2.0), (5.0, 2.0)]
CORRELATIONS = [-0.99, -0.5, 0.0, 0.3, 0.9, 0.999]


class TestExpectations:
    @pytest.mark.parametrize("rho", CORRELATIONS)
    @pytest.mark.parametrize(("k11", "k22"), GRID)
    @pytest.mark.parametrize("gain", [TANH_GAIN, ERF_GAIN])
    def test_arcsine_is_an_integral_over_erf(self, k11, k22, rho, gain):
        scale = math.sqrt(gain / 2)
        expected = _quadrature(lambda z: torch.erf(scale * z), k11, k22, rho)
        k = _tensor(k11), _tensor(rho * math.sqrt(k11 * k22)), _tensor(k22)
        assert float(arcsine(*k, gain)) == pytest.approx(expected, rel=1e-6, abs=1e-8)

    @pytest.mark.parametrize("rho", CORRELATIONS)
    @pytest.mark.parametrize(("k11", "k22"), GRID)
    def test_sigmoid_is_an_integral_over_erf_and_nearly_one_over_the_sigmoid(self, k11, k22, rho):
        k = _tensor(k11), _tensor(rho * math.sqrt(k11 * k22)), _tensor(k22)
        found = float(sigmoid(*k))
        expected = _quadrature(_smooth_sigmoid, k11, k22, rho)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)
        assert found == pytest.approx(_quadrature(torch.sigmoid, k11, k22, rho), abs=0.01)

    @pytest.mark.parametrize("rho", CORRELATIONS)
    @pytest.mark.parametrize(("k11", "k22"), GRID)
    def test_relu_is_an_integral_over_the_positive_half(self, k11, k22, rho):
        # Given Z, Z' is normal with mean m and standard deviation s.
        s = math.sqrt(k22 * (1 - rho**2))

        def given(u: float) -> float:
            m = rho * math.sqrt(k22) * u
            mean = m * stats.norm.cdf(m / s) + s * stats.norm.pdf(m / s)
            return stats.norm.pdf(u) * math.sqrt(k11) * u * mean

        expected = integrate.quad(given, 0, 12, epsabs=1e-11)[0]
        k = _tensor(k11), _tensor(rho * math.sqrt(k11 * k22)), _tensor(k22)
        assert float(relu(*k)) == pytest.approx(expected, rel=1e-8, abs=1e-10)

    def test_finite_with_finite_gradients_at_the_ends(self):
        variances = _tensor([0.0, 1e-200, 1e-3, 1.0, 1e8, 1e20])
        for k11 in variances:
            for rho in (-1.0, 0.0, 1.0):
                k = [k11.clone(), rho * k11, k11.clone()]
                for function in (lambda *k: arcsine(*k, ERF_GAIN), sigmoid, relu):
                    inputs = [value.clone().requires_grad_() for value in k]
                    value = function(*inputs)
                    gradients = torch.autograd.grad(value, inputs)
                    assert torch.stack([value, *gradients]).isfinite().all()

    @pytest.mark.parametrize("name", ["mixed", "erf-3", "relu-3"])
    def test_second_derivatives_are_refused(self, name, device):
        x = _rows(3, 2, seed=1).to(device)
        kernel = KERNELS[name]().to(device)
        total = kernel(x, x).sum()
        with pytest.raises(RequestError, match="has first derivatives only"):
            torch.autograd.grad(total, list(kernel.parameters()), create_graph=True)


class TestThePaper:
    def test_correlations_between_the_shapes(self):
        """Mixed table 1: curves over the correlation at variances 1."""
        rho = torch.linspace(-1, 1, 2001, dtype=torch.float64)
        one = torch.ones_like(rho)
        curves = [
            arcsine(one, rho, one, TANH_GAIN),
            sigmoid(one, rho, one),
            relu(one, rho, one),
            *(a * rho + (1 - a) ** 2 * relu(one, rho, one) for a in (0.1, 0.3)),
        ]
        found = torch.corrcoef(torch.stack(curves))
        np.testing.assert_allclose(
            [found[0, 1], found[2, 3], found[2, 4]], [0.9999, 0.9983, 0.9919], atol=2e-4
        )

    @pytest.mark.parametrize(("d", "printed"), [(20, 2.132745), (80, 3.769967)])
    def test_mean_diagonal_of_the_simulation(self, d, printed, device):
        """Mixed table 2, C1 and C2: 10,000 uniform inputs, all variances 1, alpha = w = ½."""
        with torch.no_grad():
            diagonal = MixedKernel().to(device).diagonal(_rows(10_000, d, seed=0).to(device))
        error = float(diagonal.std()) / 100
        assert float(diagonal.mean()) == pytest.approx(printed, abs=4 * error)
        assert error < 1e-3 * printed


@pytest.mark.parametrize("name", KERNELS)
class TestEveryKernel:
    def test_symmetric_with_its_diagonal_in_float64(self, name, device):
        kernel = KERNELS[name]().to(device)
        a, b = _rows(6, 2, seed=1).to(device), _rows(4, 2, seed=2).to(device)
        with torch.no_grad():
            torch.testing.assert_close(kernel(a, b), kernel(b, a).T, rtol=1e-13, atol=0)
            torch.testing.assert_close(
                kernel.diagonal(a), kernel(a, a).diagonal(), rtol=1e-12, atol=0
            )
            single = kernel(a.float(), b.float())
            assert single.dtype == kernel.diagonal(a.float()).dtype == torch.float64
            torch.testing.assert_close(single, kernel(a, b), rtol=1e-5, atol=1e-6)
            exact = kernel(a.float().double(), b.float().double())
            torch.testing.assert_close(single, exact, rtol=1e-14, atol=0)

    @pytest.mark.parametrize("d", [2, 20])
    def test_positive_definite_with_repeated_points(self, name, d, device):
        x = _rows(60, d, seed=3)
        x = torch.cat([x, x[:20], -x[:5], x[:5] + 1e-9, torch.zeros(2, d)]).to(device)
        with torch.no_grad():
            K = KERNELS[name]().to(device)(x, x)
        values = torch.linalg.eigvalsh((K + K.T) / 2)
        assert values[0] >= -1e-10 * values[-1]
        # Beyond rounding it has as many dimensions as there are distinct points, or nearly so.
        assert (values > 1e-13 * values[-1]).sum() > 30

    def test_one_row_of_the_matrix_is_the_matrix_of_one_row(self, name, device):
        kernel = KERNELS[name]().to(device)
        a, b = _rows(6, 3, seed=1).to(device), _rows(4, 3, seed=2).to(device)
        with torch.no_grad():
            torch.testing.assert_close(kernel(a, b)[2:3], kernel(a[2:3], b), rtol=1e-12, atol=0)

    def test_gradients_of_parameters_and_inputs(self, name, device):
        kernel = KERNELS[name]().to(device)
        a, b = _rows(3, 2, seed=1).to(device), _rows(4, 2, seed=2).to(device)
        assert _gradcheck(kernel, a.requires_grad_(), b.requires_grad_())

    def test_gradients_of_parameters_where_rows_coincide(self, name, device):
        a = torch.cat([_rows(3, 2, seed=1), torch.zeros(1, 2)]).to(device)
        assert _gradcheck(KERNELS[name]().to(device), a, a)

    def test_gradients_of_the_diagonal(self, name, device):
        kernel = KERNELS[name]().to(device)
        names, values = zip(*kernel.named_parameters(), strict=True)
        x = torch.cat([_rows(3, 2, seed=1), torch.zeros(1, 2)]).to(device).requires_grad_()

        def diagonal(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
            return functional_call(_Diagonal(kernel), _prefixed(names, values), (x,))

        assert torch.autograd.gradcheck(diagonal, (x, *_leaves(values)))

    def test_gradients_pass_smoothly_through_a_meeting_of_two_rows(self, name, device):
        kernel = KERNELS[name]().to(device)
        x = _tensor([[0.3, -0.2]]).to(device)
        step = _tensor([[0.6, 0.8]]).to(device)

        def gradient(size: float) -> torch.Tensor:
            value = kernel(x, x + size * step)
            found = torch.autograd.grad(value.sum(), list(kernel.parameters()))
            return torch.cat([part.reshape(-1) for part in found])

        met = gradient(0.0)
        assert met.isfinite().all()
        assert met.abs().min() > 0
        for size in (1e-4, -1e-4):
            torch.testing.assert_close(gradient(size), met, rtol=2e-3, atol=2e-4)
        for size in (1e-7, -1e-7, 1e-8, -1e-8):
            torch.testing.assert_close(gradient(size), met, rtol=2e-6, atol=2e-6)

    def test_in_half_precision_parameters_and_their_gradients_keep_their_dtype(self, name, device):
        kernel = KERNELS[name]().to(device).float()
        x = _rows(3, 2, seed=1).to(device)
        value = kernel(x, x)
        value.sum().backward()
        assert value.dtype == torch.float64
        assert all(p.grad.dtype == torch.float32 for p in kernel.parameters())


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_inputs_where_rows_coincide(name, device):
    a = torch.cat([_rows(3, 2, seed=1), torch.zeros(1, 2)]).to(device)
    kernel = KERNELS[name]().to(device)
    assert _gradcheck(kernel, a.clone().requires_grad_(), a.clone().requires_grad_())


class TestComponents:
    def test_a_single_component_has_the_whole_share(self):
        kernel = MixedKernel(["sigmoid"])
        x = _rows(3, 2, seed=1)
        one = x @ x.T + 1
        expected = 1 + sigmoid(one.diagonal()[:, None], one, one.diagonal()[None])
        np.testing.assert_allclose(kernel(x, x).detach(), expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("components", "message"),
        [
            (["tanh", "rleu"], "unknown component 'rleu'; choose one of tanh, sigmoid, relu"),
            (["relu", "relu"], r"each once, found \('relu', 'relu'\)"),
            ([], r"each once, found \(\)"),
        ],
    )
    def test_other_components_are_refused(self, components, message):
        with pytest.raises(RequestError, match=message):
            MixedKernel(components)


class TestPriors:
    def test_log_densities_are_those_of_scipy(self):
        values = [0.02, 0.3, 1.0, 7.0]
        found = log_inverse_gamma(_tensor(values), 2.5, 0.7)
        np.testing.assert_allclose(found, stats.invgamma.logpdf(values, 2.5, scale=0.7), rtol=1e-12)
        values = [0.001, 0.3, 0.5, 0.97]
        found = log_beta(_tensor(values), 2.0, 3.5)
        np.testing.assert_allclose(found, stats.beta.logpdf(values, 2.0, 3.5), rtol=1e-12)
        values = [0.1, 0.4, 0.3, 0.2]
        found = log_dirichlet(_tensor(values), 2.5)
        assert float(found) == pytest.approx(stats.dirichlet.logpdf(values, [2.5] * 4), rel=1e-12)

    def test_a_kernel_sums_those_of_its_parameters_on_their_natural_scale(self, device):
        a, scale = VARIANCE_PRIOR
        expected = stats.invgamma.logpdf(list(VARIANCES.values()), a, scale=scale).sum()
        expected += stats.beta.logpdf([0.2, 0.3], *PROPORTION_PRIOR).sum()
        found = KERNELS["mixed"]().to(device).log_prior()
        several = _four()
        np.testing.assert_allclose(several.shares().detach(), [0.1, 0.4, 0.3, 0.2], rtol=1e-6)
        expected_shares = stats.dirichlet.logpdf(several.shares().detach(), np.full(4, 2.0))
        others = expected - stats.beta.logpdf(0.3, *PROPORTION_PRIOR)
        assert several.log_prior().item() == pytest.approx(others + expected_shares, rel=1e-6)
        assert found.dtype == torch.float64
        assert found.device.type == device
        assert found.item() == pytest.approx(expected, rel=1e-12)

    def test_the_modes_are_where_the_docstrings_say(self):
        kernel = MixedKernel()
        kernel.log_prior().backward()
        assert all(abs(float(p.grad)) < 1e-12 for p in kernel.parameters())
        assert math.isclose(VARIANCE_PRIOR[1] / (VARIANCE_PRIOR[0] - 1), 3)

    def test_network_kernels_have_none(self, device):
        found = NetworkKernel(2, "erf").to(device).log_prior()
        assert found.item() == 0
        assert (found.dtype, found.shape, found.device.type) == (torch.float64, (), device)


def _quadrature(activation, k11: float, k22: float, rho: float, points: int = 200) -> float:
    """E[ψ(Z) ψ(Z')] by Gauss-Hermite quadrature over two independent normal variables."""
    nodes, weights = (_tensor(part) for part in np.polynomial.hermite.hermgauss(points))
    u, weights = math.sqrt(2) * nodes, weights / math.sqrt(math.pi)
    first = weights * activation(math.sqrt(k11) * u)
    mixed = rho * u[:, None] + math.sqrt(1 - rho**2) * u
    return float(first @ activation(math.sqrt(k22) * mixed) @ weights)


class _Diagonal(torch.nn.Module):
    def __init__(self, kernel: torch.nn.Module) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel.diagonal(x)


def _prefixed(names, values) -> dict[str, torch.Tensor]:
    return {f"kernel.{name}": value for name, value in zip(names, values, strict=True)}


def _leaves(values) -> list[torch.Tensor]:
    return [value.detach().clone().requires_grad_() for value in values]


def _gradcheck(kernel, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare gradients by parameters, and by inputs that require them, with differences."""
    names, values = zip(*kernel.named_parameters(), strict=True)

    def value(a: torch.Tensor, b: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return functional_call(kernel, dict(zip(names, values, strict=True)), (a, b))

    return torch.autograd.gradcheck(value, (a, b, *_leaves(values)))

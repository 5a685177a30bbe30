"""Trained infinitely wide networks against trained networks of finite width, and dense formulas."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scale_worlds import with_values
from scipy import stats

from geogp.distributions.burr import Burr, BurrScale
from geogp.errors import DataError, RequestError
from geogp.models.papers.mixed_nystrom.kernels import NetworkKernel
from geogp.models.papers.scale_mixtures.processes import InverseGamma
from geogp.models.papers.scale_mixtures.trained_networks import TrainedNetwork

PRIOR = InverseGamma(3.0, 2.0)
ACTIVATIONS = {"erf": torch.erf, "relu": torch.relu}
VALUES = {"weight": 3.0, "bias": 0.3}
WIDTH = 512


def _kernel(depth: int = 1, activation: str = "erf", **changed: float) -> NetworkKernel:
    kernel = NetworkKernel(depth, activation)
    return with_values(kernel, **(VALUES | {"readout": 1.0} | changed))


def _points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 4))


def _limit(layers: str, depth: int = 1) -> TrainedNetwork:
    x = _points(8)
    return TrainedNetwork(_kernel(depth), x, np.sin(2 * x[:, 0]), PRIOR, layers)


def _empirical_tangent(depth: int, activation: str, x: torch.Tensor, seed: int) -> torch.Tensor:
    """<∇f(x), ∇f(x')> of one network, by autograd; its parameters are standard normal."""
    random = torch.Generator().manual_seed(seed)
    sizes = [x.shape[1], *[800] * depth]
    weights, biases = (
        [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]
        for shapes in (list(zip(sizes[1:], sizes, strict=False)), [(n,) for n in sizes[1:]])
    )
    readout = torch.randn(sizes[-1], generator=random, dtype=torch.float64)
    parameters = [*weights, *biases, readout]
    for value in parameters:
        value.requires_grad_()
    rows = []
    for row in x:
        hidden = row
        for w, b in zip(weights, biases, strict=True):
            z = math.sqrt(VALUES["weight"] / len(hidden)) * (w @ hidden)
            hidden = ACTIVATIONS[activation](z + math.sqrt(VALUES["bias"]) * b)
        output = hidden @ readout * math.sqrt(1.4 / len(hidden))
        found = torch.autograd.grad(output, parameters)
        rows.append(torch.cat([part.flatten() for part in found]))
    return torch.stack(rows) @ torch.stack(rows).T


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_tangent_kernel_is_that_of_wide_networks(depth, activation):
    x = torch.from_numpy(_points(3))
    expected = _kernel(depth, activation, readout=1.4).tangent(x, x)
    found = torch.stack([_empirical_tangent(depth, activation, x, seed) for seed in range(8)])
    error = 3.5 * found.std(0) / math.sqrt(8) + 0.005 * expected.abs().max()
    assert ((found.mean(0) - expected).abs() < error).all()
    assert error.max() < 0.15 * expected.max()


def test_the_tangent_kernel_of_one_relu_layer_in_closed_form():
    """Θ = k θ-part plus (π - θ)/(2π) x·x', for the arc-cosine kernels of orders 1 and 0."""
    a, b = (torch.from_numpy(_points(n, n)) for n in (5, 3))
    kernel = _kernel(1, "relu", bias=1e-300, weight=4.0)
    norms = a.norm(dim=1)[:, None] * b.norm(dim=1)
    angle = (a @ b.T / norms).acos()
    order_one = norms * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    order_zero = (math.pi - angle) / (2 * math.pi)
    torch.testing.assert_close(kernel.tangent(a, b), order_one + order_zero * (a @ b.T))


def _trained(
    limit: TrainedNetwork, new: np.ndarray, s: np.ndarray, *, as_printed: bool = False
) -> np.ndarray:
    """Train a network of one hidden layer for each s by gradient descent; return their values.

    The readout is s w / √n with w standard normal. Steps are divided by s², which changes the time
    of the flow but not its end. `as_printed`: the flow of s w instead of w, for a single value of s
    (the step of w is then 1 / s² times that of the other parameters).
    """
    random = np.random.default_rng(1)
    draws = [(len(s), WIDTH, limit.x.shape[1]), (len(s), 1, WIDTH), (len(s), WIDTH, 1)]
    W, c, w = (torch.from_numpy(random.standard_normal(part)).float() for part in draws)
    trained = [w] if limit.layers == "readout" else [W, c, w]
    squares = torch.from_numpy(s).float()[:, None, None].square()
    scale = squares.sqrt() / math.sqrt(WIDTH)
    train, points, y = (torch.from_numpy(part).float() for part in (limit.x, new, limit.y))
    factor, offset = math.sqrt(VALUES["weight"] / train.shape[1]), math.sqrt(VALUES["bias"])

    def hidden(x: torch.Tensor) -> torch.Tensor:
        return torch.erf(factor * x @ W.mT + offset * c)

    fixed = hidden(train)
    tensor = torch.from_numpy(limit.x)
    kernel = limit.kernel if limit.layers == "readout" else limit.kernel.tangent
    with torch.no_grad():
        C = _printed_kernel(limit, tensor, tensor, s[0]) if as_printed else kernel(tensor, tensor)
        values = torch.linalg.eigvalsh(C)
    step = 1 / values[-1].float() / (1 if as_printed else squares)
    steps = [step, step, step / squares][-len(trained) :] if as_printed else [step] * 3
    for _ in range(int(9 * values[-1] / values[0])):
        for value in trained:
            value.requires_grad_()
        seen = fixed if limit.layers == "readout" else hidden(train)
        left = (seen @ (scale * w))[..., 0] - y
        gradients = torch.autograd.grad(left.square().sum() / 2, trained)
        with torch.no_grad():
            for value, gradient, size in zip(trained, gradients, steps, strict=False):
                value.sub_(size * gradient)
    assert left.abs().max() < 0.02
    with torch.no_grad():
        found: np.ndarray = (hidden(points) @ (scale * w))[..., 0].double().numpy()
    return found


def _printed_kernel(limit, a: torch.Tensor, b: torch.Tensor, s: float) -> torch.Tensor:
    """The tangent kernel if s w is trained: the part of the readout has no factor s²."""
    K = limit.kernel(a, b).detach()
    return K + s**2 * (limit.kernel.tangent(a, b) - K)


@pytest.mark.parametrize("layers", ["readout", "all"])
def test_wide_networks_trained_by_gradient_descent_have_the_law(layers):
    limit, new = _limit(layers), _points(3, 5)
    law = limit.law(new)
    s = np.sqrt(1 / np.random.default_rng(2).gamma(PRIOR.a, 1 / PRIOR.b, 300))
    values = _trained(limit, new, s)
    standard = (values - law.mean) / s[:, None]
    # Standard errors of 300 networks, and an error of a finite width of order 1 / √512.
    spread = np.sqrt(law.covariance.diagonal())
    assert (abs(standard.mean(0)) < 0.22 * spread).all()
    covariance = standard.T @ standard / len(s)
    assert (abs(covariance - law.covariance) < 0.25 * np.outer(spread, spread)).all()
    for point in range(3):
        t = stats.t(2 * PRIOR.a, law.mean[point], math.sqrt(PRIOR.b / PRIOR.a) * spread[point])
        assert stats.kstest(values[:, point], t.cdf).pvalue > 0.01


def test_the_flow_that_theorem_3_3_prints_has_another_mean():
    """If s w is trained, instead of w, the mean depends on s."""
    limit, new, s = _limit("all"), _points(3, 5), 0.3
    found = _trained(limit, new, np.full(200, s), as_printed=True).mean(0)
    x, points = torch.from_numpy(limit.x), torch.from_numpy(new)
    C, across = (_printed_kernel(limit, rows, x, s).numpy() for rows in (x, points))
    expected = across @ np.linalg.solve(C, limit.y)
    theorem = limit.law(new).mean
    assert abs(found - expected).max() < 0.3 * abs(theorem - expected).max()


def test_the_two_laws_differ():
    new = _points(3, 5)
    readout, every = (_limit(layers).law(new) for layers in ("readout", "all"))
    assert abs(readout.mean - every.mean).max() > 0.05
    assert (every.covariance.diagonal() > readout.covariance.diagonal()).all()


def test_a_trained_readout_is_the_exact_process_without_noise():
    """Theorem 3.2, as printed: K_te,tr K_tr,tr⁻¹ y and K_te,te - K_te,tr K_tr,tr⁻¹ K_tr,te."""
    limit, new = _limit("readout", depth=2), _points(6, 2)
    x = torch.from_numpy(np.concatenate([limit.x, new]))
    K = limit.kernel(x, x).detach().numpy()
    weights = np.linalg.solve(K[:8, :8], K[:8, 8:])
    law = limit.law(new)
    np.testing.assert_allclose(law.mean, limit.y @ weights, atol=1e-7)
    np.testing.assert_allclose(law.covariance, K[8:, 8:] - K[8:, :8] @ weights, atol=1e-7)


def test_trained_layers_have_the_covariance_that_the_paper_prints():
    limit, new = _limit("all", depth=2), _points(6, 2)
    x = torch.from_numpy(np.concatenate([limit.x, new]))
    K, Theta = limit.kernel(x, x).detach().numpy(), limit.kernel.tangent(x, x).numpy()
    R = Theta[8:, :8] @ np.linalg.inv(Theta[:8, :8])
    cross = R @ K[:8, 8:]
    covariance = K[8:, 8:] + R @ K[:8, :8] @ R.T - (cross + cross.T)
    law = limit.law(new)
    np.testing.assert_allclose(law.mean, R @ limit.y, atol=1e-8)
    np.testing.assert_allclose(law.covariance, covariance, atol=1e-8)


@pytest.mark.parametrize("layers", ["readout", "all"])
def test_the_network_passes_through_its_training_rows(layers):
    limit = _limit(layers)
    law = limit.law(limit.x)
    np.testing.assert_allclose(law.mean, limit.y, atol=1e-7)
    assert law.covariance.max() < 1e-7


def test_predictions_mix_over_the_prior_of_the_scale():
    new = _points(4, 3)
    law = _limit("all").law(new)
    found = law.prediction()
    t = stats.t(6, law.mean, np.sqrt(2 / 3 * law.covariance.diagonal()))
    np.testing.assert_allclose(found.interval(0.9), t.interval(0.9), rtol=1e-6)
    np.testing.assert_allclose(found.function_variance, t.var(), rtol=1e-9)
    burr = replace(_limit("all"), scale=BurrScale(Burr(3.0, 2.0), 0, 0)).law(new).prediction()
    drawn = np.sqrt(stats.burr12(3, 2).rvs(200_000, random_state=0))
    values = drawn * np.random.default_rng(1).standard_normal(200_000)
    low, high = burr.interval(0.9)
    half = np.quantile(abs(values), 0.9) * np.sqrt(law.covariance.diagonal())
    np.testing.assert_allclose((high - low) / 2, half, rtol=0.02)


def test_refusals():
    limit = _limit("all")
    with pytest.raises(RequestError, match="readout variance of 1, because `scale` is its"):
        replace(limit, kernel=_kernel(readout=2.0))
    with pytest.raises(RequestError, match="unknown layers 'some'"):
        replace(limit, layers="some")
    with pytest.raises(DataError, match=r"found \(8, 4\) and \(7,\)"):
        replace(limit, y=limit.y[1:])
    with pytest.raises(DataError, match=r"shape \(m, 4\), found \(3, 2\)"):
        limit.law(np.zeros((3, 2)))
    with pytest.raises(RequestError, match="expected a above 1"):
        replace(limit, scale=InverseGamma(1.0, 1.0)).law(_points(2, 9)).prediction()

"""Kernels of deep networks against networks of finite width, and against formulas.

That they are covariances with right gradients is in `test_kernels.py`.
"""

import math

import numpy as np
import pytest
import torch
from scale_worlds import with_values

from geogp.errors import RequestError
from geogp.models.papers.mixed_nystrom.kernels import NetworkKernel

X = torch.tensor([[0.1, -0.4], [0.5, 0.5], [-0.5, 0.3], [0.2, -0.4]], dtype=torch.float64)
ACTIVATIONS = {"erf": torch.erf, "relu": torch.relu}
START = {"weight": 3.0, "bias": 0.2, "readout": 1.4}


def _kernel(depth: int, activation: str, device: str, **changed: float) -> torch.Tensor:
    kernel = with_values(NetworkKernel(depth, activation), **(START | changed)).to(device)
    with torch.no_grad():
        return kernel(X.to(device), X.to(device)).cpu()


def _sampled(depth: int, activation: str, width: int, random: torch.Generator) -> torch.Tensor:
    """Draw a network of finite width; the covariance of its output given its hidden layers.

    Given one layer, the units of the next are independent draws of a normal vector over the
    inputs: no matrix of weights (width, width) is needed.
    """
    K = START["bias"] + START["weight"] * X @ X.T / X.shape[1]
    for _ in range(depth):
        drawn = torch.randn(width, len(X), generator=random, dtype=torch.float64)
        hidden = ACTIVATIONS[activation](drawn @ _root(K))
        second_moment = hidden.T @ hidden / width
        K = START["bias"] + START["weight"] * second_moment
    return START["readout"] * second_moment


def _root(K: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(K)
    return (vectors * values.clamp(min=0).sqrt()).T


class TestPrior:
    def test_one_erf_layer_is_the_formula_of_williams(self, device):
        """Williams (1997): (2/π) asin(2 x~'Sx~' / sqrt((1 + 2 x~'Sx~)(1 + 2 x~''Sx~')))."""
        rows = np.hstack([np.ones((4, 1)), X.numpy()])
        S = rows @ np.diag([0.2, 1.5, 1.5]) @ rows.T
        scale = np.sqrt(1 + 2 * np.diag(S))
        expected = 1.4 * 2 / np.pi * np.arcsin(2 * S / np.outer(scale, scale))
        np.testing.assert_allclose(_kernel(1, "erf", device), expected, rtol=1e-12)

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    @pytest.mark.parametrize("depth", [1, 2, 4])
    def test_networks_approach_it_as_the_root_of_their_width(self, depth, activation, device):
        kernel = _kernel(depth, activation, device)
        random = torch.Generator().manual_seed(depth)
        errors = {}
        for width in (1_000, 10_000, 100_000):
            networks = min(40, 2_000_000 // width)
            drawn = torch.stack(
                [_sampled(depth, activation, width, random) for _ in range(networks)]
            )
            errors[width] = float((drawn - kernel).square().mean().sqrt())
        widest = (drawn.mean(0) - kernel).abs() / (drawn.std(0) / math.sqrt(len(drawn)))
        assert widest.max() < 4
        assert 2.2 < errors[1_000] / errors[10_000] < 4.5
        assert 2.2 < errors[10_000] / errors[100_000] < 4.5
        assert errors[100_000] < 0.01 * float(kernel.max())

    def test_a_relu_network_without_bias_keeps_the_scale_of_its_input(self, device):
        """With weight 2 the variance of a layer is that of the first (He et al. 2015)."""
        deep = _kernel(9, "relu", device, weight=2.0, bias=1e-12, readout=2.0)
        expected = 2 * X.square().sum(1) / 2
        torch.testing.assert_close(deep.diagonal(), expected, rtol=1e-9, atol=0)


class TestRefusals:
    def test_an_unknown_activation(self):
        with pytest.raises(
            RequestError, match=r"unknown activation 'gelu'; choose one of erf, relu"
        ):
            NetworkKernel(2, "gelu")

    @pytest.mark.parametrize("depth", [0, -1])
    def test_no_hidden_layer(self, depth):
        with pytest.raises(RequestError, match=f"depth of at least 1, found {depth}"):
            NetworkKernel(depth, "erf")

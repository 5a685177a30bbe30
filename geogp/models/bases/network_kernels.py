"""Prior covariances and tangent kernels of infinitely wide networks of any depth.

"The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian processes".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.models.bases.expectations import ERF_GAIN, arcsine, arcsine_slope, relu, weighted_sum
from geogp.models.bases.kernels import Kernel, covariances, log_parameter, variances


@dataclass(frozen=True)
class _Activation:
    """E[φ(Z) φ(Z')] for an activation φ; `both` also returns E[φ'(Z) φ'(Z')]."""

    expectation: Callable[[Tensor, Tensor, Tensor], Tensor]
    both: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _erf(k11: Tensor, k12: Tensor, k22: Tensor) -> tuple[Tensor, Tensor]:
    return arcsine(k11, k12, k22, ERF_GAIN), arcsine_slope(k11, k12, k22, ERF_GAIN)


def _relu(k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
    return relu(k11, k12, k22)[0]


_ACTIVATIONS = {
    "erf": _Activation(partial(arcsine, gain=ERF_GAIN), _erf),
    "relu": _Activation(_relu, relu),
}


class NetworkKernel(Kernel):
    """The kernel of an infinitely wide network of several hidden layers.

    With F(K) = E[φ(Z) φ(Z')] for Z and Z' centred Gaussian with covariance K,

        K¹ = bias + weight · x·x' / d,    K^(l+1) = bias + weight · F(K^l),
        k = readout · F(K^depth)

    (Lee et al. 2018; equations 2 and 3 of the Scale paper). For erf, F is from Williams (1997). For
    ReLU, F is half the kernel of Cho and Saul (2009). The weights out of a layer of n units have
    the variance weight / n; for the inputs, n = d. The readout has no bias. The tangent kernel of
    this network (Jacot et al. 2018) is

        T¹ = K¹,    T^(l+1) = K^(l+1) + weight · F'(K^l) T^l,
        t = readout · [F(K^depth) + F'(K^depth) T^depth]

    with F'(K) = E[φ'(Z) φ'(Z')]. Each parameter, including those of the readout, is a standard
    deviation times a standard normal variable. The tangent kernel uses the gradients with respect
    to the normal variables. So the tangent kernel is proportional to the readout's variance
    (theorem 3.3 of the Scale paper).

    The variances have no prior. A scale mixture (theorem 3.1 of the Scale paper) mixes over the
    readout's variance. Its kernel keeps this variance at 1: `log_readout.requires_grad_(False)`.

    Parameters
    ----------
    depth
        Number of hidden layers, at least 1.
    activation
        `erf` or `relu`.
    tangent
        Whether this is the tangent kernel.
    weight, bias, readout
        Start values of the variances.
    dtype
        Dtype of the parameters, which are the logarithms of the variances.

    Raises
    ------
    RequestError
        If the depth is below 1, the activation is unknown, or a variance is not positive and
        finite.
    """

    def __init__(
        self,
        depth: int,
        activation: str,
        *,
        tangent: bool = False,
        weight: float = 2.0,
        bias: float = 0.1,
        readout: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise RequestError(f"expected a depth of at least 1, found {depth}.")
        one_of("activation", activation, _ACTIVATIONS)
        self.depth, self.activation, self.tangent = depth, activation, tangent
        self.log_weight = log_parameter("weight", weight, dtype)
        self.log_bias = log_parameter("bias", bias, dtype)
        self.log_readout = log_parameter("readout", readout, dtype)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (m, d), (n, d) -> (m, n), float64."""
        return self._through(*covariances(a, b, self._input_weight(a), self.log_bias.double()))

    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64."""
        k = variances(a, self._input_weight(a), self.log_bias.double())
        return self._through(k, k, k)

    def _input_weight(self, a: Tensor) -> Tensor:
        return self.log_weight.double() - math.log(a.shape[1])

    def _through(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
        """Return the kernel of the output from the covariances of the first layer; shape as k12."""
        activation = _ACTIVATIONS[self.activation]
        weight, bias = self.log_weight.double().exp(), self.log_bias.double().exp()
        theta = k12
        for _ in range(self.depth - 1):
            following, theta = self._layer((k11, k12, k22), theta, weight, bias)
            k11, k22 = (
                weighted_sum(bias, [weight], [activation.expectation(k, k, k)]) for k in (k11, k22)
            )
            k12 = following
        readout = self.log_readout.double().exp()
        covariance, tangent = self._layer((k11, k12, k22), theta, readout, torch.zeros_like(bias))
        return tangent if self.tangent else covariance

    def _layer(
        self, k: tuple[Tensor, Tensor, Tensor], theta: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the next layer's covariance and, on request, its tangent kernel."""
        activation = _ACTIVATIONS[self.activation]
        if not self.tangent:
            return weighted_sum(bias, [weight], [activation.expectation(*k)]), theta
        expectation, slope = activation.both(*k)
        covariance = weighted_sum(bias, [weight], [expectation])
        return covariance, torch.addcmul(covariance, slope * weight, theta)

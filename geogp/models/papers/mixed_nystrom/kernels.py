"""Kernels of infinitely wide networks.

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes"; the inputs of that paper lie in [-½, ½]. "The Scale paper" is Lee et al.,
"Scale mixtures of neural network Gaussian processes".
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.models.papers.mixed_nystrom.expectations import (
    ERF_GAIN,
    TANH_GAIN,
    arcsine,
    expected_slopes,
    relu,
    sigmoid,
    weighted_sum,
)

VARIANCE_PRIOR = (2.0, 3.0)
"""Shape and scale of a variance's inverse-gamma prior: mode 1, mean 3, infinite variance."""

PROPORTION_PRIOR = (2.0, 2.0)
"""Parameters of the beta prior of alpha; its mode is ½, and its density is 0 at 0 and 1.

The shares of the components have the symmetric Dirichlet prior with the first parameter, which is
this beta prior if there are two components.
"""

LEAKY = "leaky-relu"

COMPONENTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "tanh": partial(arcsine, gain=TANH_GAIN),
    "sigmoid": sigmoid,
    "relu": relu,
}
"""E[h(Z) h(Z')] of the components of a `MixedKernel`, besides `LEAKY`."""

REDUCED = ("tanh", LEAKY)
"""Components of the reduced mixed kernel (Mixed equation 15)."""

ACTIVATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "erf": partial(arcsine, gain=ERF_GAIN),
    "relu": relu,
}
"""E[φ(Z) φ(Z')] for each activation φ of a `NetworkKernel`."""


class Kernel(nn.Module, ABC):
    """Interface of a kernel; it computes in float64 for inputs of any dtype."""

    @abstractmethod
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k between the rows of a (m, d) and of b (n, d), as an array (m, n) of float64."""

    @abstractmethod
    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64, without an (m, m) matrix."""

    def log_prior(self) -> Tensor:
        """Return the log prior density of the parameters, a float64 scalar; 0 without priors."""
        return torch.zeros((), dtype=torch.float64, device=next(self.parameters()).device)


class MixedKernel(Kernel):
    """The mixed kernel of a network with one hidden layer (Mixed equations 5, 13 and 15).

    k(x, x') = output_bias + output_weight · Σ_m w_m E[h_m(Z) h_m(Z')], with Z and Z' centred
    Gaussian with covariance hidden_bias + hidden_weight · x·x', and shares w_m whose sum is 1. The
    components h_m are among ``tanh`` (8), ``sigmoid`` (9), ``relu`` (10) and ``leaky-relu``,
    max(z, alpha z), whose expectation is alpha k12 + (1 - alpha)² E_relu (11). By default there are
    two (15), with the shares w and 1 - w:

    w E_tanh + (1 - w) (alpha k12 + (1 - alpha)² E_relu).

    The four variances (the squares of sigma_b, sigma_v, sigma_a and sigma_u in Mixed) have
    inverse-gamma priors; alpha and w have beta priors (20), several shares a Dirichlet prior. Mixed
    does not state the parameters of these priors; here they are `VARIANCE_PRIOR` and
    `PROPORTION_PRIOR`. The paper's noise variance belongs to the noise model; its prior is
    `log_inverse_gamma`. The variances start at 1, alpha at ½, and all shares are equal.

    Raises RequestError if a component is unknown, missing or there twice.
    """

    def __init__(
        self, components: Sequence[str] = REDUCED, *, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        for component in components:
            one_of("component", component, (*COMPONENTS, LEAKY))
        if not 0 < len(set(components)) == len(components):
            raise RequestError(f"expected components, each once, found {tuple(components)}.")
        self.components = tuple(components)
        self.log_output_bias = _logarithm(1.0, dtype)
        self.log_output_weight = _logarithm(1.0, dtype)
        self.log_hidden_bias = _logarithm(1.0, dtype)
        self.log_hidden_weight = _logarithm(1.0, dtype)
        self.logit_alpha = nn.Parameter(torch.zeros((), dtype=dtype))
        logits = len(components) - 1  # that of the last share is 0
        self.logit_w = nn.Parameter(torch.zeros(() if logits == 1 else logits, dtype=dtype))

    def shares(self) -> Tensor:
        """Return the shares w_m of the components, (M,), float64."""
        logits = self.logit_w.double().reshape(-1)
        return torch.cat([logits, logits.new_zeros(1)]).softmax(0)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (m, d), (n, d) -> (m, n), float64."""
        weight, bias = self.log_hidden_weight.double(), self.log_hidden_bias.double()
        return self.through(*covariances(a, b, weight, bias))

    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64."""
        k = variances(a, self.log_hidden_weight.double(), self.log_hidden_bias.double())
        return self.through(k, k, k)

    def log_prior(self) -> Tensor:
        """Return the log prior density of the parameters, not of their logarithms or logits.

        The Jacobians are not included, so the maximum is the same as in equation (20).
        """
        logs = (
            self.log_output_bias,
            self.log_output_weight,
            self.log_hidden_bias,
            self.log_hidden_weight,
        )
        density = log_inverse_gamma(torch.stack(logs).double().exp(), *VARIANCE_PRIOR).sum()
        density = density + log_beta(self.logit_alpha.double().sigmoid(), *PROPORTION_PRIOR)
        return density + log_dirichlet(self.shares(), PROPORTION_PRIOR[0])

    def through(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
        """Return the kernel, in the shape of k12, from the covariances of the hidden units."""
        alpha, scale = self.logit_alpha.double().sigmoid(), self.log_output_weight.double().exp()
        weights, terms = [], []
        for component, weight in zip(self.components, scale * self.shares(), strict=True):
            if component == LEAKY:
                weights += [weight * alpha, weight * (1 - alpha).square()]
                terms += [k12, relu(k11, k12, k22)]
            else:
                weights.append(weight)
                terms.append(COMPONENTS[component](k11, k12, k22))
        return weighted_sum(self.log_output_bias.double().exp(), weights, terms)


class NetworkKernel(Kernel):
    """The kernel of an infinitely wide network of several hidden layers.

    With F(K) = E[φ(Z) φ(Z')] for Z and Z' centred Gaussian with covariance K,

        K¹ = bias + weight · x·x' / d,    K^(l+1) = bias + weight · F(K^l),
        k = readout · F(K^depth)

    (Lee et al. 2018; equations 2 and 3 of the Scale paper). For erf, F is from Williams (1997). For
    ReLU, F is half the kernel of Cho and Saul (2009). Weights from a layer of n units have the
    prior variance weight / n; for the inputs, n = d. The readout has no bias.

    The variances have no prior, and start at weight 2, bias 0.1 and readout 1. A scale mixture
    (theorem 3.1 of the Scale paper) mixes over the readout's variance, so its kernel keeps this
    variance at 1: `log_readout.requires_grad_(False)`. Raises RequestError if there is no hidden
    layer, or the activation is not ``erf`` or ``relu``.
    """

    def __init__(self, depth: int, activation: str, *, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        if depth < 1:
            raise RequestError(f"expected a depth of at least 1, found {depth}.")
        one_of("activation", activation, ACTIVATIONS)
        self.depth, self.activation = depth, activation
        self.log_weight = _logarithm(2.0, dtype)
        self.log_bias = _logarithm(0.1, dtype)
        self.log_readout = _logarithm(1.0, dtype)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (m, d), (n, d) -> (m, n), float64."""
        return self._through(*covariances(a, b, self._input_weight(a), self.log_bias.double()))

    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64."""
        k = variances(a, self._input_weight(a), self.log_bias.double())
        return self._through(k, k, k)

    def tangent(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the tangent kernel between rows, (m, d), (n, d) -> (m, n), float64.

        This is the limit of <∇f(x), ∇f(x')>, with the gradients by standard normal parameters: each
        layer multiplies them by the prior standard deviations (Jacot et al. 2018; equation 4 of the
        Scale paper). With F'(K) = E[φ'(Z) φ'(Z')],

        Θ¹ = K¹,    Θ^(l+1) = K^(l+1) + weight · F'(K^l) Θ^l,
        Θ = readout · (F(K^depth) + F'(K^depth) Θ^depth).

        It is proportional to the variance of the readout, and has no gradient.
        """
        with torch.no_grad():
            layer = covariances(a, b, self._input_weight(a), self.log_bias.double())
            weight, tangent = self.log_weight.double().exp(), layer[1]
            expectation = ACTIVATIONS[self.activation]
            for _ in range(self.depth - 1):
                slopes = expected_slopes(expectation, *layer)
                layer = self._next_layer(*layer)
                tangent = layer[1] + weight * slopes * tangent
            slopes = expected_slopes(expectation, *layer)
            readout = self.log_readout.double().exp()
            return readout * (expectation(*layer) + slopes * tangent)

    def _input_weight(self, a: Tensor) -> Tensor:
        return self.log_weight.double() - math.log(a.shape[1])

    def _through(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
        """Return the output's kernel, shaped as k12, from the covariances of the first layer."""
        for _ in range(self.depth - 1):
            k11, k12, k22 = self._next_layer(k11, k12, k22)
        readout = self.log_readout.double().exp()
        expectation = ACTIVATIONS[self.activation](k11, k12, k22)
        return weighted_sum(torch.zeros_like(readout), [readout], [expectation])

    def _next_layer(self, k11: Tensor, k12: Tensor, k22: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the covariances of the next layer from those of a layer."""
        expectation = ACTIVATIONS[self.activation]
        weight, bias = self.log_weight.double().exp(), self.log_bias.double().exp()
        across, first, second = (
            weighted_sum(bias, [weight], [expectation(*layer)])
            for layer in ((k11, k12, k22), (k11, k11, k11), (k22, k22, k22))
        )
        return first, across, second


def covariances(
    a: Tensor, b: Tensor, log_weight: Tensor, log_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the covariances bias + weight · x·x' of linear units at rows (m, d) and (n, d).

    The results are k11 (m, 1), k12 (m, n) and k22 (1, n), float64.
    """
    A, B = _with_bias(a, log_weight, log_bias), _with_bias(b, log_weight, log_bias)
    return A.square().sum(1)[:, None], A @ B.T, B.square().sum(1)[None]


def variances(a: Tensor, log_weight: Tensor, log_bias: Tensor) -> Tensor:
    """Return the variances bias + weight · ||x||² of linear units at rows (m, d), (m,) float64."""
    return _with_bias(a, log_weight, log_bias).square().sum(1)


def _with_bias(a: Tensor, log_weight: Tensor, log_bias: Tensor) -> Tensor:
    """Return rows (m, d + 1) whose inner products are bias + weight · x·x'."""
    bias = (0.5 * log_bias).exp().expand(len(a), 1)
    return torch.cat([a.double() * (0.5 * log_weight).exp(), bias], 1)


def log_inverse_gamma(value: Tensor, shape: float, scale: float) -> Tensor:
    """Return the log density of an inverse-gamma distribution, elementwise.

    The result is shape log scale - log Γ(shape) - (shape + 1) log value - scale / value.
    """
    constant = shape * math.log(scale) - math.lgamma(shape)
    return constant - (shape + 1) * value.log() - scale / value


def log_beta(value: Tensor, a: float, b: float) -> Tensor:
    """Return the log density of a beta distribution, elementwise.

    The result is (a - 1) log value + (b - 1) log(1 - value) - log B(a, b).
    """
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return constant + (a - 1) * value.log() + (b - 1) * torch.log1p(-value)


def log_dirichlet(shares: Tensor, concentration: float) -> Tensor:
    """Return the log density of a symmetric Dirichlet distribution at shares (M,), a scalar.

    The result is log Γ(c M) - M log Γ(c) + (c - 1) Σ log w_m for the concentration c.
    """
    m = len(shares)
    constant = math.lgamma(m * concentration) - m * math.lgamma(concentration)
    return constant + (concentration - 1) * shares.log().sum()


def _logarithm(start: float, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.tensor(math.log(start), dtype=dtype))

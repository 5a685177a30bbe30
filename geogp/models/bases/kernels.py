"""The interface of kernels, and kernels of networks with one infinitely wide hidden layer.

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes". The inputs of that paper lie in [-½, ½]. Kernels of deeper networks are in
`network_kernels`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geogp.errors import RequestError
from geogp.models.bases.expectations import SIGMOID_GAIN, TANH_GAIN, arcsine, relu, weighted_sum

VARIANCE_PRIOR = (2.0, 3.0)
"""Shape and scale of a variance's inverse-gamma prior: mode 1, mean 3, infinite variance."""

PROPORTION_PRIOR = (2.0, 2.0)
"""Both parameters of the beta prior of alpha and w, with mode ½ and density 0 at both ends."""


class Kernel(nn.Module, ABC):
    """Interface of a kernel; it computes in float64 for inputs of any dtype."""

    @abstractmethod
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k between the rows of a (m, d) and of b (n, d), as an array (m, n) of float64."""

    @abstractmethod
    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64, without an (m, m) matrix."""

    def log_prior(self) -> Tensor:
        """Return the log prior density of the parameters, a float64 scalar; 0 if none."""
        return torch.zeros((), dtype=torch.float64, device=next(self.parameters()).device)


@dataclass(frozen=True)
class Combination:
    """A sum of expectations with scalar weights; all terms have the same shape."""

    weights: list[Tensor]
    terms: list[Tensor]
    constant: float = 0.0


class OneLayerKernel(Kernel, ABC):
    """The kernel of one infinitely wide hidden layer (Mixed equation (5)).

    k(x, x') = output_bias + output_weight · E[ψ(Z) ψ(Z')], with Z and Z' centred Gaussian with
    covariance hidden_bias + hidden_weight · x·x'. These four variances (the squares of sigma_b,
    sigma_v, sigma_a and sigma_u in Mixed) have inverse-gamma priors (equation (20)). Mixed does not
    state the parameters of these priors; here they are `VARIANCE_PRIOR`.

    Parameters
    ----------
    output_bias, output_weight, hidden_bias, hidden_weight
        Start values of the variances.
    dtype
        Dtype of the parameters, which are the logarithms of the variances.

    Raises
    ------
    RequestError
        If a variance is not positive and finite.
    """

    def __init__(
        self,
        *,
        output_bias: float = 1.0,
        output_weight: float = 1.0,
        hidden_bias: float = 1.0,
        hidden_weight: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.log_output_bias = log_parameter("output_bias", output_bias, dtype)
        self.log_output_weight = log_parameter("output_weight", output_weight, dtype)
        self.log_hidden_bias = log_parameter("hidden_bias", hidden_bias, dtype)
        self.log_hidden_weight = log_parameter("hidden_weight", hidden_weight, dtype)

    @abstractmethod
    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return E[ψ(Z) ψ(Z')]; the variances must broadcast to the shape of k12."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (m, d), (n, d) -> (m, n), float64."""
        weight, bias = self.log_hidden_weight.double(), self.log_hidden_bias.double()
        return self._combine(*covariances(a, b, weight, bias))

    def diagonal(self, a: Tensor) -> Tensor:
        """Return k(x, x) for each row, (m, d) -> (m,), float64."""
        weight, bias = self.log_hidden_weight.double(), self.log_hidden_bias.double()
        k = variances(a, weight, bias)
        return self._combine(k, k, k)

    def log_prior(self) -> Tensor:
        """Return the log prior density of the four variances, as variances and not as logarithms.

        The Jacobian of the logarithm is not included, so the maximum is the same as in equation
        (20).
        """
        logs = (
            self.log_output_bias,
            self.log_output_weight,
            self.log_hidden_bias,
            self.log_hidden_weight,
        )
        return log_inverse_gamma(torch.stack(logs).double().exp(), *VARIANCE_PRIOR).sum()

    def _combine(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
        inner = self.expectation(k11, k12, k22)
        scale = self.log_output_weight.double().exp()
        constant = self.log_output_bias.double().exp() + inner.constant * scale
        return weighted_sum(constant, [scale * weight for weight in inner.weights], inner.terms)


class TanhKernel(OneLayerKernel):
    """The arcsine kernel that approximates tanh (Mixed (8)); exact for erf(sqrt(π) z / 2).

    E = (2/π) asin((π/2) k12 / sqrt((1 + (π/2) k11)(1 + (π/2) k22))).
    """

    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return E[ψ(Z) ψ(Z')] with ψ(z) = erf(sqrt(π) z / 2)."""
        return Combination([k12.new_ones(())], [arcsine(k11, k12, k22, TANH_GAIN)])


class SigmoidKernel(OneLayerKernel):
    """The arcsine kernel that approximates the sigmoid (Mixed (9)).

    E = ¼ + (1/2π) asin((π/8) k12 / sqrt((1 + (π/8) k11)(1 + (π/8) k22))), exact for the
    activation ½ + ½ erf(sqrt(π) z / 4).
    """

    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return E[ψ(Z) ψ(Z')] with ψ(z) = ½ + ½ erf(sqrt(π) z / 4)."""
        quarter = k12.new_full((), 0.25)
        return Combination([quarter], [arcsine(k11, k12, k22, SIGMOID_GAIN)], 0.25)


class ReluKernel(OneLayerKernel):
    """The arc-cosine kernel of max(0, z) (Mixed (10)).

    E = sqrt(k11 k22) [sin θ + (π - θ) cos θ] / 2π with cos θ = k12 / sqrt(k11 k22).
    """

    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return E[ψ(Z) ψ(Z')] with ψ(z) = max(0, z)."""
        return Combination([k12.new_ones(())], [relu(k11, k12, k22)[0]])


class LeakyReluKernel(OneLayerKernel):
    """The kernel of max(z, alpha z) with 0 < alpha < 1 (Mixed (11)).

    E = alpha k12 + (1 - alpha)² E_relu with E_relu from `ReluKernel`. The leak alpha has a beta
    prior (equation (20)). Mixed does not state the parameters of this prior; here both are
    `PROPORTION_PRIOR`.

    Parameters
    ----------
    alpha
        Start value of the leak.
    **start
        As for `OneLayerKernel`.

    Raises
    ------
    RequestError
        If the leak is not between 0 and 1, or a variance is not positive and finite.
    """

    def __init__(
        self, *, alpha: float = 0.5, dtype: torch.dtype = torch.float64, **start: float
    ) -> None:
        super().__init__(dtype=dtype, **start)
        self.logit_alpha = logit_parameter("alpha", alpha, dtype)

    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return E[ψ(Z) ψ(Z')] with ψ(z) = max(z, alpha z)."""
        alpha = self.logit_alpha.double().sigmoid()
        return Combination([alpha, (1 - alpha).square()], [k12, relu(k11, k12, k22)[0]])

    def log_prior(self) -> Tensor:
        """Return the log prior density of the variances and alpha, not of their transforms."""
        alpha = self.logit_alpha.double().sigmoid()
        return super().log_prior() + log_beta(alpha, *PROPORTION_PRIOR)


class MixedKernel(LeakyReluKernel):
    """The reduced mixed kernel (Mixed (15)): the tanh part has weight w, the leaky part 1 - w.

    E = w E_tanh + (1 - w) E_leaky, from `TanhKernel` and `LeakyReluKernel`. This class has six of
    the paper's seven parameters. The seventh, the noise variance, belongs to the noise model; its
    prior is `log_inverse_gamma`. The prior of w is the same beta distribution as the prior of
    alpha.

    Parameters
    ----------
    w
        Start value of the weight of the tanh part.
    **start
        As for `LeakyReluKernel`.

    Raises
    ------
    RequestError
        If alpha or w is not between 0 and 1, or a variance is not positive and finite.
    """

    def __init__(
        self, *, w: float = 0.5, dtype: torch.dtype = torch.float64, **start: float
    ) -> None:
        super().__init__(dtype=dtype, **start)
        self.logit_w = logit_parameter("w", w, dtype)

    def expectation(self, k11: Tensor, k12: Tensor, k22: Tensor) -> Combination:
        """Return w E_tanh + (1 - w) E_leaky."""
        w = self.logit_w.double().sigmoid()
        leaky = super().expectation(k11, k12, k22)
        smooth = arcsine(k11, k12, k22, TANH_GAIN)
        return Combination(
            [w, *((1 - w) * weight for weight in leaky.weights)], [smooth, *leaky.terms]
        )

    def log_prior(self) -> Tensor:
        """Return the log prior density of the variances, alpha and w, not of their transforms."""
        return super().log_prior() + log_beta(self.logit_w.double().sigmoid(), *PROPORTION_PRIOR)


def covariances(
    a: Tensor, b: Tensor, log_weight: Tensor, log_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the covariances bias + weight · x·x' of linear units at rows (m, d) and (n, d).

    The results are k11 (m, 1), k12 (m, n) and k22 (1, n), float64. `log_weight` and `log_bias` are
    the logarithms of the variances weight and bias.
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

    It is shape log scale - log Γ(shape) - (shape + 1) log value - scale / value.
    """
    constant = shape * math.log(scale) - math.lgamma(shape)
    return constant - (shape + 1) * value.log() - scale / value


def log_beta(value: Tensor, a: float, b: float) -> Tensor:
    """Return the log density of a beta distribution, elementwise.

    It is (a - 1) log value + (b - 1) log(1 - value) - log B(a, b).
    """
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return constant + (a - 1) * value.log() + (b - 1) * torch.log1p(-value)


def log_parameter(name: str, start: float, dtype: torch.dtype) -> nn.Parameter:
    """Return the logarithm of a variance as a parameter.

    Raises RequestError if the start is not positive and finite.
    """
    if not 0 < start < math.inf:
        raise RequestError(f"expected a positive, finite variance {name}, found {start}.")
    return nn.Parameter(torch.tensor(math.log(start), dtype=dtype))


def logit_parameter(name: str, start: float, dtype: torch.dtype) -> nn.Parameter:
    """Return the logit of a proportion as a parameter.

    Raises RequestError if the start is not strictly between 0 and 1.
    """
    if not 0 < start < 1:
        raise RequestError(f"expected {name} strictly between 0 and 1, found {start}.")
    return nn.Parameter(torch.tensor(math.log(start / (1 - start)), dtype=dtype))

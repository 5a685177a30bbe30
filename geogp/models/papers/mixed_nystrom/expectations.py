"""Closed forms of E[ψ(Z) ψ(Z')] for an activation ψ and centred Gaussian variables Z and Z'.

The expectations are covariances of the outputs of infinitely wide layers. Let k11 = Var Z, k22 =
Var Z' and k12 = Cov(Z, Z'). All arguments are float64 and broadcast to the shape of k12. With k11
(m, 1), k12 (m, n) and k22 (1, n), the result is a matrix; with three arrays (m,), the result is the
diagonal of the matrix. "Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian
Neural Networks to Gaussian Processes".

The derivatives are written by hand, to allocate few matrices. By Price's theorem (1958), the
derivative by k12 is the slope E[ψ'(Z) ψ'(Z')]. The derivatives by k11 and k22 follow from the
derivative by k12. A request for second derivatives raises an error.

Mixed equation (8) is exact for erf(sqrt(π) z / 2), which approximates tanh, and (9) for
½ + ½ erf(sqrt(π) z / 4), which approximates the sigmoid.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geogp.errors import RequestError

TANH_GAIN = math.pi / 2
"""Gain of the arcsine expectation that approximates tanh (Mixed equation 8)."""

SIGMOID_GAIN = math.pi / 8
"""Gain of the arcsine expectation in that of the sigmoid (Mixed equation 9)."""

ERF_GAIN = 2.0
"""Gain of the arcsine expectation of erf itself (Williams 1997)."""

ROUNDING = 1e-14
"""Relative change of correlations against rounding errors near ±1."""

_MIN_VARIANCE = 1e-300
"""Smallest variance of a ReLU's input, so that the quotient by its root is finite."""


def arcsine(k11: Tensor, k12: Tensor, k22: Tensor, gain: float) -> Tensor:
    """Return E[erf(cZ) erf(cZ')] with c² = gain / 2, in the shape of k12.

    For a gain g, the expectation is (2/π) asin(g k12 / sqrt((1 + g k11)(1 + g k22))). A gain of 2
    gives the result of Williams (1997), and a gain of π/2 gives Mixed equation (8).
    """
    return _Arcsine.apply(k11, k12, k22, gain)  # type: ignore[no-untyped-call, no-any-return]


def sigmoid(k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
    """Return E[h(Z) h(Z')] for h(z) = ½ + ½ erf(sqrt(π) z / 4), in the shape of k12 (Mixed 9).

    The result is ¼ + asin(g k12 / sqrt((1 + g k11)(1 + g k22))) / 2π with g = π/8.
    """
    return 0.25 + 0.25 * arcsine(k11, k12, k22, SIGMOID_GAIN)


def relu(k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
    """Return E[relu(Z) relu(Z')], in the shape of k12 (Mixed equation 10).

    With θ = acos(k12 / sqrt(k11 k22)), the result is sqrt(k11 k22) (sin θ + (π - θ) cos θ) / 2π.
    The kernel of order 1 of Cho and Saul (2009) is twice as large. The slope is (π - θ) / 2π.
    """
    return _Relu.apply(k11, k12, k22)  # type: ignore[no-untyped-call, no-any-return]


def expected_slopes(
    expectation: Callable[[Tensor, Tensor, Tensor], Tensor], k11: Tensor, k12: Tensor, k22: Tensor
) -> Tensor:
    """Return E[ψ'(Z) ψ'(Z')], in the shape of k12, from E[ψ(Z) ψ(Z')]; it has no gradient."""
    with torch.enable_grad():
        at = k12.detach().clone().requires_grad_()
        total = expectation(k11.detach(), at, k22.detach()).sum()
    return torch.autograd.grad(total, at)[0]


def weighted_sum(constant: Tensor, coefficients: list[Tensor], terms: list[Tensor]) -> Tensor:
    """Return constant + Σ coefficient · term, with one pass per term and no temporary arrays.

    The constant and the coefficients are scalars; all terms have the same shape. All are float64.
    """
    weights = torch.stack([constant, *coefficients])
    return _WeightedSum.apply(weights, *terms)  # type: ignore[no-untyped-call, no-any-return]


def _refuse_a_graph() -> None:
    # Without this check, autograd would silently treat hand-written derivatives as constants.
    if torch.is_grad_enabled():
        raise RequestError(
            "a network's kernel has first derivatives only, but create_graph=True asks for "
            "more. For second derivatives, use finite differences of the first derivatives."
        )


class _Arcsine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k11: Tensor, k12: Tensor, k22: Tensor, gain: float) -> Tensor:
        # The factor 1 - ROUNDING keeps the sine below 1 even for variances near 1 / ROUNDING.
        root1 = (gain * (1 - ROUNDING) / (1 + gain * k11)).sqrt()
        root2 = (gain * (1 - ROUNDING) / (1 + gain * k22)).sqrt()
        expectation = (k12 * root1).mul_(root2).asin_().mul_(2 / math.pi)
        ctx.save_for_backward(k12, root1, root2, expectation)
        return expectation

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_a_graph()
        k12, root1, root2, expectation = ctx.saved_tensors
        slope = (expectation * (math.pi / 2)).cos_().reciprocal_()
        by12 = slope.mul_(root1 * (2 / math.pi)).mul_(root2).mul_(gradient)
        rest = by12 * k12
        by11 = rest.sum_to_size(root1.shape) * root1.square() * -0.5
        by22 = rest.sum_to_size(root2.shape) * root2.square() * -0.5
        return by11, by12, by22, None


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k11: Tensor, k12: Tensor, k22: Tensor) -> Tensor:
        root1 = k11.clamp(min=_MIN_VARIANCE).sqrt()
        root2 = k22.clamp(min=_MIN_VARIANCE).sqrt()
        # acos(-cos θ) = π - θ. With the factor 1 + ROUNDING, θ of equal points is 0, not 1e-8.
        angle = (k12 * (-(1 + ROUNDING) / root1)).div_(root2).clamp_(-1, 1).acos_()
        expectation = angle.sin().mul_(root1 / (2 * math.pi)).mul_(root2)
        slope = angle.mul_(1 / (2 * math.pi))
        expectation.addcmul_(k12, slope)
        ctx.save_for_backward(k12, root1, root2, expectation, slope)
        return expectation

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        _refuse_a_graph()
        k12, root1, root2, expectation, slope = ctx.saved_tensors
        by12 = gradient * slope
        # Euler's theorem: under (k11, k12) -> (c² k11, c k12), the expectation is homogeneous of
        # degree 1.
        rest = (by12 * k12).neg_().addcmul_(gradient, expectation)
        by11 = rest.sum_to_size(root1.shape) / (2 * root1.square())
        by22 = rest.sum_to_size(root2.shape) / (2 * root2.square())
        return by11, by12, by22


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, *terms: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *terms)
        total = terms[0] * weights[1]
        for weight, term in zip(weights[2:], terms[1:], strict=True):
            total.addcmul_(term, weight)
        return total.add_(weights[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        _refuse_a_graph()
        weights, *terms = ctx.saved_tensors
        flat = gradient.reshape(-1)
        by_weight = torch.stack([flat.sum(), *(flat @ term.reshape(-1) for term in terms)])
        return by_weight, *(gradient * weight for weight in weights[1:])

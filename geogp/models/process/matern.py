"""Matérn correlations of any smoothness, interpolated between values of Bessel functions."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.numerics.precision import current_precision

LEAST_SMOOTHNESS = 0.1
"""Smallest smoothness of a correlation."""

MOST_SMOOTHNESS = 3.0
"""Largest smoothness of a correlation."""

LOW = -27.0
"""Logarithm of the distance below which the correlation is 1."""

HIGH = math.log(200.0)
"""Logarithm of the distance above which the correlation is less than 1e-30."""

KNOTS = 2**13
"""Number of knots; cubic polynomials between them have errors below 1e-10."""

STEP = (HIGH - LOW) / (KNOTS - 1)
"""Difference of the logarithms of distances from one knot to the next."""

CHANGE = 1e-4
"""Half of the difference between two smoothnesses; their correlations give the derivative."""


def matern(log_r: Tensor, smoothness: Tensor) -> Tensor:
    """Return the Matérn correlation for logarithms of distances in ranges, float64.

    With the smoothness s and x = sqrt(2 s) r, M(r) = 2^(1-s) / Γ(s) x^s K_s(x) (Rasmussen and
    Williams 2006, equation 4.14); for s = 1/2, M(r) = exp(-r). Both inputs may need gradients.
    """
    return _Matern.apply(log_r, smoothness)  # type: ignore[no-untyped-call, no-any-return]


class _Matern(torch.autograd.Function):
    """Values and derivatives from the polynomials of `_polynomials`."""

    @staticmethod
    def forward(ctx: Any, log_r: Tensor, smoothness: Tensor) -> Tensor:
        nu, device = float(smoothness.detach()), log_r.device
        at = log_r.sub(LOW).div_(STEP).clamp_(0, KNOTS - 1)
        interval = at.long().clamp_(max=KNOTS - 2)
        at.sub_(interval)
        kind = device, current_precision()
        coefficients = _polynomials(nu, *kind)
        by_r, by_nu = ctx.needs_input_grad
        slope = change = None
        if by_r:
            slope = _polynomial([k * coefficients[k] / STEP for k in (1, 2, 3)], interval, at)
        if by_nu:
            above, below = (_polynomials(nu + sign * CHANGE, *kind) for sign in (1, -1))
            change = _polynomial(list((above - below) / (2 * CHANGE)), interval, at)
        ctx.save_for_backward(slope, change)
        return _polynomial(list(coefficients), interval, at)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        slope, change = ctx.saved_tensors
        return (
            None if slope is None else gradient * slope,
            None if change is None else (gradient * change).sum(),
        )


def _polynomial(coefficients: list[Tensor], interval: Tensor, at: Tensor) -> Tensor:
    """Return polynomials, whose coefficients by power depend on the interval, at `at`."""
    value = coefficients[-1][interval]
    for coefficient in coefficients[-2::-1]:
        value = value.mul_(at).add_(coefficient[interval])
    return value


@lru_cache(maxsize=16)
def _polynomials(nu: float, device: torch.device, _precision: str) -> Tensor:
    """Return the coefficients of Hermite's cubic polynomials by power and interval, (4, k).

    The cache has other tensors for another precision.
    """
    value, slope = _bessel(nu)
    slope = slope * STEP
    rise = np.diff(value)
    coefficients = np.stack(
        [
            value[:-1],
            slope[:-1],
            3 * rise - 2 * slope[:-1] - slope[1:],
            slope[:-1] + slope[1:] - 2 * rise,
        ]
    )
    return torch.as_tensor(coefficients).to(device)


def _bessel(nu: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the correlation and its derivative by log r at the knots, (`KNOTS`,) each."""
    from scipy.special import gamma, kv  # noqa: PLC0415 - slow import, only needed here

    x = math.sqrt(2 * nu) * np.exp(LOW + STEP * np.arange(KNOTS))
    factor = 2 ** (1 - nu) / gamma(nu) * x**nu
    value, slope = factor * kv(nu, x), -factor * x * kv(nu - 1, x)
    value[0], slope[0] = 1.0, 0.0
    return value, slope

"""Matérn correlations of any smoothness, interpolated between values of Bessel functions."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.threads import chunks

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

IN_CACHE = 2**14
"""On a CPU, number of distances at once, so that they stay in its cache."""

CHANGE = 1e-4
"""Half of the difference between two smoothnesses; their correlations give the derivative."""


def matern(log_r: Tensor, smoothness: Tensor) -> Tensor:
    """Return the Matérn correlation for logarithms of distances in ranges, float64.

    With the smoothness s and x = sqrt(2 s) r, M(r) = 2^(1-s) / Γ(s) x^s K_s(x) (Rasmussen and
    Williams 2006, equation 4.14); for s = 1/2, M(r) = exp(-r). Both inputs may need gradients.
    """
    return _Matern.apply(log_r, smoothness)  # type: ignore[no-untyped-call, no-any-return]


class _Matern(torch.autograd.Function):
    """Values and derivatives from `matern_terms`."""

    @staticmethod
    def forward(ctx: Any, log_r: Tensor, smoothness: Tensor) -> Tensor:
        flat, (by_r, by_nu) = log_r.reshape(-1), ctx.needs_input_grad
        nu, number = float(smoothness.detach()), 1 + by_r + by_nu
        terms = flat.new_empty(number, len(flat))
        for part in chunks(len(flat), in_cache(flat)):
            matern_terms(flat[part], nu, terms[:, part], slope=by_r, change=by_nu)
        value: Tensor
        value, *derivatives = terms.view(number, *log_r.shape)
        slope = derivatives.pop(0) if by_r else None
        ctx.save_for_backward(slope, derivatives[0] if by_nu else None)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        slope, change = ctx.saved_tensors
        return (
            None if slope is None else gradient * slope,
            None if change is None else (gradient * change).sum(),
        )


def in_cache(pairs: Tensor) -> int:
    """Return how many of the pairs to compute at once, which depends on their device."""
    return IN_CACHE if pairs.device.type == "cpu" else max(1, len(pairs))


def matern_terms(log_r: Tensor, nu: float, terms: Tensor, *, slope: bool, change: bool) -> None:
    """Fill the rows of `terms` (k, n) with correlations at log r (n,) and their derivatives.

    The first row has the correlations. If asked for, `slope` by log r and `change` by the
    smoothness `nu` follow, from polynomials between knots.
    """
    tables = _tables(nu, slope, change, log_r.device, current_precision())
    at = log_r.mul(1 / STEP).sub_(LOW / STEP).clamp_(0, KNOTS - 1)
    interval = at.long().clamp_(max=KNOTS - 2)
    at.sub_(interval)
    for row, table in zip(terms, tables, strict=True):
        _polynomial(table, interval, at, row)


def _polynomial(
    coefficients: Sequence[Tensor], interval: Tensor, at: Tensor, result: Tensor
) -> None:
    """Fill `result` with polynomials at `at`, whose coefficients depend on the interval."""
    torch.index_select(coefficients[-1], 0, interval, out=result)
    for coefficient in coefficients[-2::-1]:
        # Much faster than an index in brackets.
        torch.addcmul(coefficient.index_select(0, interval), result, at, out=result)


@lru_cache(maxsize=8)
def _tables(
    nu: float, slope: bool, change: bool, device: torch.device, _precision: str
) -> list[tuple[Tensor, ...]]:
    """Return the coefficients of Hermite's cubic polynomials by power, then their derivatives.

    A coefficient has a value for each interval, (k,). The cache has other tensors for another
    precision.
    """
    value = _polynomials(nu)
    tables = [value]
    if slope:
        tables.append(value[1:] * np.array([[1], [2], [3]]) / STEP)
    if change:
        above, below = (_polynomials(nu + sign * CHANGE) for sign in (1, -1))
        tables.append((above - below) / (2 * CHANGE))
    return [torch.as_tensor(table).to(device).unbind() for table in tables]


def _polynomials(nu: float) -> NDArray[np.float64]:
    """Return the coefficients of the correlation by power and interval, (4, k)."""
    value, slope = _bessel(nu)
    slope = slope * STEP
    rise = np.diff(value)
    return np.stack(
        [
            value[:-1],
            slope[:-1],
            3 * rise - 2 * slope[:-1] - slope[1:],
            slope[:-1] + slope[1:] - 2 * rise,
        ]
    )


def _bessel(nu: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the correlation and its derivative by log r at the knots, (`KNOTS`,) each."""
    from scipy.special import gamma, kv  # noqa: PLC0415 - slow import, only needed here

    x = math.sqrt(2 * nu) * np.exp(LOW + STEP * np.arange(KNOTS))
    factor = 2 ** (1 - nu) / gamma(nu) * x**nu
    value, slope = factor * kv(nu, x), -factor * x * kv(nu - 1, x)
    value[0], slope[0] = 1.0, 0.0
    return value, slope

"""Laws of shapes: location, scale and shape of residuals as functions of the tests behind them."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from geogp.errors import NumericalError
from geogp.models.shapes import (
    LEAST_TAILWEIGHT,
    MOST_SKEWNESS,
    MOST_TAILWEIGHT,
    Floats,
    Shape,
    moments,
    shape_of,
)

PRIOR_ROWS = 30.0
"""Weight, in rows, of the standard normal in the fit of a shape: a few rows do not bend it."""


@dataclass(frozen=True)
class ShapeLaw:
    """Location, scale and shape of standardised residuals, as functions of the tests behind them.

    Each of a, log b, ε and log δ is c_0 + c_1 t, with t the logarithm of the tests, held within
    what the law was fitted to; ε and log δ then bend smoothly into their bounds, B tanh(value / B)
    with B the bound on the value's side. The residual is a + b sinh((asinh(Z) + ε) / δ), Z
    standard normal.

    Attributes
    ----------
    coefficients
        c_0 and c_1 of a, log b, ε, log δ: (4, 2).
    low, high
        Bounds of t.
    """

    coefficients: Floats
    low: float = 0.0
    high: float = 0.0

    def at(self, tests: Floats) -> tuple[Floats, Floats, Shape]:
        """Return mean and sd of the residuals, each (n,), and their shape, for tests (n,)."""
        counts, number = np.unique(tests, return_inverse=True)
        t = np.clip(np.log(counts), self.low, self.high)
        a, log_b, skewness, log_tail = self.coefficients @ np.stack([np.ones_like(t), t])
        skewness, log_tail = (
            part.numpy() for part in _bounded(*map(torch.from_numpy, (skewness, log_tail)))
        )
        tailweight = np.exp(log_tail)
        b, number = np.exp(log_b), number.reshape(-1)
        found = np.array(
            [moments(*pair) for pair in zip(skewness, tailweight, strict=True)]
        ).reshape(-1, 2)
        location, scale = a + b * found[:, 0], b * found[:, 1]
        return location[number], scale[number], shape_of(skewness[number], tailweight[number])


NO_LAW = ShapeLaw(np.zeros((4, 2)))
"""The standard normal, whatever the tests."""


def fit_shape(residuals: Floats, tests: Floats, prior_rows: float = PRIOR_ROWS) -> ShapeLaw:
    """Fit location, scale and shape to standardised residuals by maximum a posteriori.

    The mean log density under `ShapeLaw` less ``prior_rows / (2 n)`` times the sum of the
    squared coefficients: with few residuals it stays near the standard normal. t is held
    between its 1 % and 99 % quantiles. By L-BFGS in float64.

    Parameters
    ----------
    residuals
        (measurement - mean) / sd, shape (n,).
    tests
        Tests behind each measurement, (n,).
    prior_rows
        Weight of the prior.

    Raises
    ------
    NumericalError
        A residual is not finite or the fit does not end at finite values.
    """
    r = torch.from_numpy(np.ascontiguousarray(residuals, np.float64))
    if not len(r) or not bool(torch.isfinite(r).all()):
        raise NumericalError("expected finite residuals to fit a shape to.")
    low, high = np.quantile(np.log(tests), [0.01, 0.99]).tolist()
    t = np.clip(np.log(tests), low, high)
    design = torch.from_numpy(np.stack([np.ones_like(t), t]))
    theta = torch.zeros(4, 2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [theta], max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        a, log_b, skewness, log_tail = (theta @ design).unbind()
        skewness, log_tail = _bounded(skewness, log_tail)
        w = (r - a) * torch.exp(-log_b)
        z = torch.sinh(log_tail.exp() * torch.asinh(w) - skewness)
        slope = log_tail - log_b + 0.5 * (torch.log1p(z.square()) - torch.log1p(w.square()))
        density = -0.5 * z.square() + slope
        return -density.mean() + prior_rows / (2 * len(r)) * theta.square().sum()

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        found = loss()
        found.backward()
        return found

    optimiser.step(closure)
    coefficients: Floats = theta.detach().numpy()
    if not np.isfinite(coefficients).all():
        raise NumericalError("the fit of the predictive shape diverged.")
    return ShapeLaw(coefficients, low, high)


def _bounded(skewness: torch.Tensor, log_tail: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ε and log δ within their bounds; near 0 they are what they were."""
    low, high = math.log(LEAST_TAILWEIGHT), math.log(MOST_TAILWEIGHT)
    bent = torch.where(
        log_tail < 0, low * torch.tanh(log_tail / low), high * torch.tanh(log_tail / high)
    )
    return MOST_SKEWNESS * torch.tanh(skewness / MOST_SKEWNESS), bent

"""Location, scale and shape of residuals by tests and distance to other places."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from geogp.distributions.shapes import Floats, Shape
from geogp.distributions.sinh_arcsinh import (
    MAX_SKEWNESS,
    MAX_TAILWEIGHT,
    MIN_TAILWEIGHT,
    moments,
    shape_of,
)
from geogp.errors import NumericalError

PRIOR_ROWS = 30.0
"""Weight of the standard normal in the fit of a shape, in rows: a few rows do not bend it."""

FEW_RESIDUALS = 300
"""Fewer residuals give the width alone: their location and shape would be chance."""

PRIOR_RESIDUALS = 10.0
"""Weight of a prior width of 1, in residuals."""

DISTANCES = 16
"""Distinct distances of a law: rows of one distance and one number of tests share a shape."""

MIN_RANGE = 1e-6
"""Logarithms that differ by less are equal: distances on a lattice differ by rounding only."""


@dataclass(frozen=True)
class ShapeLaw:
    """Location, scale and shape of standardised residuals, by tests and distance to other places.

    Each of a, log b, ε and log δ is c_0 + c_1 t + c_2 s, with t the logarithm of the tests in a
    measurement and s the logarithm of the mean distance to the nearest training places, both
    clamped to their range in the fit. s is rounded to `DISTANCES` evenly spaced values, so that a
    map of one number of tests has few shapes. ε and log δ then bend smoothly into their bounds, B
    tanh(value / B) with B the bound on the value's side. The residual is a + b sinh((asinh(Z) + ε)
    / δ), Z standard normal.

    `coefficients`: c_0, c_1 and c_2 of a, log b, ε, log δ: (4, 3).
    `ranges`: least and largest t, least and largest s: (2, 2).
    """

    coefficients: Floats
    ranges: Floats

    def at(self, tests: Floats, distance: Floats | float) -> tuple[Floats, Floats, Shape]:
        """Return mean and sd of the residuals, each (n,), and their shape.

        `tests` (n,) may be infinite; `distance` is in km, above 0, (n,) or one number for all.
        """
        covariates = _covariates(tests, distance, self.ranges)
        distinct, number = np.unique(covariates, axis=0, return_inverse=True)
        a, log_b, skewness, log_tail = self.coefficients @ _design(distinct)
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


NO_LAW = ShapeLaw(np.zeros((4, 3)), np.zeros((2, 2)))
"""The standard normal for all tests and distances."""


def fit_shape(
    residuals: Floats, tests: Floats, distance: Floats | float, prior_rows: float = PRIOR_ROWS
) -> ShapeLaw:
    """Fit location, scale and shape to standardised residuals (n,) by maximum a posteriori.

    The mean log density under `ShapeLaw` less ``prior_rows / (2 n)`` times the sum of the squared
    coefficients of t and s, standardised to mean 0 and variance 1: few residuals stay near the
    standard normal. t and s are clamped to their 1 % and 99 % quantiles; one that is constant has
    no effect. By L-BFGS in float64. `distance` is in km, (n,) or one number for all. Raises
    NumericalError: a residual is not finite, a distance or number of tests is not finite or not
    above 0, or the fit does not end at finite values.
    """
    r = torch.from_numpy(np.ascontiguousarray(residuals, np.float64))
    if not len(r) or not bool(torch.isfinite(r).all()):
        raise NumericalError("expected finite residuals to fit a shape to.")
    for name, values in (("tests", tests), ("distances", distance)):
        if not (np.isfinite(values) & (np.asarray(values) > 0)).all():
            raise NumericalError(f"expected finite {name} above 0 to fit a shape by.")
    logs = np.log(np.column_stack(np.broadcast_arrays(tests, distance)))
    ranges = np.quantile(logs, [0.01, 0.99], axis=0).T
    same = ranges[:, 1] - ranges[:, 0] < MIN_RANGE
    ranges[same, 1] = ranges[same, 0]
    covariates = _covariates(tests, distance, ranges)
    centre, spread = covariates.mean(0), covariates.std(0)
    spread[same] = np.inf  # a column of zeros, so that by the prior the coefficient is 0
    design = torch.from_numpy(_design((covariates - centre) / spread))
    theta = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
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
    coefficients: Floats = theta.detach().numpy().copy()
    if not np.isfinite(coefficients).all():
        raise NumericalError("the fit of the predictive shape diverged.")
    coefficients[:, 1:] /= spread
    coefficients[:, 0] -= coefficients[:, 1:] @ centre
    return ShapeLaw(coefficients, ranges)


def width_factor(residuals: Floats) -> float:
    """Return the factor that widens a normal law, from m standardised residuals z, (m,).

        s t(0.975, k + m) / Φ^{-1}(0.975),    s² = (k + Σ z²) / (k + m),

    k = `PRIOR_RESIDUALS`. s² is the scale of its posterior, a scaled inverse chi-squared law, under
    a prior of k degrees of freedom around 1 (Gelman et al. 2013, section 2.6). The factor is that
    posterior's Student-t quantile of a new residual at the ends of the 95 % interval.
    """
    known = PRIOR_RESIDUALS + len(residuals)
    s = math.sqrt((PRIOR_RESIDUALS + float(residuals @ residuals)) / known)
    return s * float(stats.t.ppf(0.975, known) / stats.norm.ppf(0.975))


def _covariates(tests: Floats, distance: Floats | float, ranges: Floats) -> Floats:
    """Return clamped and rounded t and s, (n, 2)."""
    low, high = ranges.T
    found = np.log(np.column_stack(np.broadcast_arrays(tests, distance)))
    held: Floats = np.clip(found, low, high)
    step = (high[1] - low[1]) / (DISTANCES - 1)
    if step > 0:
        held[:, 1] = low[1] + step * np.round((held[:, 1] - low[1]) / step)
    return held


def _design(covariates: Floats) -> Floats:
    """Return 1, t and s, (3, n)."""
    return np.vstack([np.ones(len(covariates)), covariates.T])


def _bounded(skewness: torch.Tensor, log_tail: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ε and log δ within their bounds; near 0 they hardly change."""
    low, high = math.log(MIN_TAILWEIGHT), math.log(MAX_TAILWEIGHT)
    bent = torch.where(
        log_tail < 0, low * torch.tanh(log_tail / low), high * torch.tanh(log_tail / high)
    )
    return MAX_SKEWNESS * torch.tanh(skewness / MAX_SKEWNESS), bent

"""Rows of which only a limit is known: expectation propagation for an exact process.

Rasmussen and Williams (2006), section 3.6, for a likelihood that is 1 on one side of the limit and
0 on the other.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erfcx

from geogp.models.exact.kriging import ExactRows, Kriging
from geogp.models.exact.search import posterior

Floats = NDArray[np.float64]

ROUNDS = 2
"""How often parameters are searched for before the last search."""

SWEEPS = 12
"""Largest number of updates of all sites with the same parameters."""

DAMPING = 0.8
"""Share of an update that is used; all sites change at once."""

CLOSE = 0.01
"""Updates end where no mean of a limited row changes by more, in standard deviations."""

LEAST_PRECISION = 1e-4
"""Smallest precision of a site, relative to the variance without the row: it says nothing."""


class LimitSites(NamedTuple):
    """Normal factors that stand for limits: their precisions, and precisions times means, (n,)."""

    precision: Floats
    pull: Floats

    def among(self, rows: ExactRows, limited: NDArray[np.intp]) -> ExactRows:
        """Return rows in which a measurement with a known error stands for each limit."""
        y, errors = rows.y.clone(), torch.zeros_like(rows.y)
        at = torch.as_tensor(limited, device=y.device)
        y[at] = torch.as_tensor(self.pull / self.precision).to(y)
        errors[at] = torch.as_tensor(1 / self.precision).to(y)
        return replace(rows, y=y, error_variance=errors)

    def updated(
        self, mean: Floats, variance: Floats, moments: tuple[Floats, Floats]
    ) -> "LimitSites":
        """Return sites that give the moments where rows are predicted so without their limits."""
        precision = np.maximum(1 / moments[1] - 1 / variance, LEAST_PRECISION / variance)
        pull = moments[0] * (precision + 1 / variance) - mean / variance
        new = (precision, pull)
        return LimitSites(
            *(old + DAMPING * (goal - old) for old, goal in zip(self, new, strict=True))
        )


def moments_beyond(
    mean: Floats, variance: Floats, limit: Floats, side: Floats
) -> tuple[Floats, Floats]:
    """Return mean and variance of normal variables below (-1) or above (1) limits, (n,) each.

    With a = side (mean - limit) / sd and r = φ(a) / Φ(a), they are mean + side sd r and
    variance (1 - a r - r²).
    """
    sd = np.sqrt(variance)
    a = side * (mean - limit) / sd
    ratio = np.sqrt(2 / np.pi) / erfcx(-a / np.sqrt(2))
    # For large -a, the difference is about 1 / a², and rounding may make it 0.
    share = np.clip(1 - a * ratio - ratio**2, 0.1 / (1 + a**2), 1.0)
    return mean + side * sd * ratio, variance * share


def with_limits(rows: ExactRows, side: NDArray[np.int8], seed: int) -> ExactRows:
    """Return rows in which a measurement with a known error stands for each limit.

    `rows.y` are the limits of rows whose `side` (n,) is -1, for values below, or 1, for values
    above. All values together are about N(0, 1). The sites and the parameters of the covariance are
    updated in turn; for fixed sites, the slope of the density of the rows is that of the
    approximate evidence. Raises NumericalError if no covariance of the rows factorises.
    """
    limited = np.flatnonzero(side)
    signs, limits = side[limited].astype(np.float64), rows.y.cpu().numpy()[limited]
    mean, variance = np.zeros(len(limited)), np.ones(len(limited))
    sites = LimitSites(LEAST_PRECISION * variance, mean)
    moments = moments_beyond(mean, variance, limits, signs)
    sites = sites.updated(mean, variance, moments)
    for _ in range(ROUNDS):
        points = posterior(sites.among(rows, limited), seed)
        best = max(points, key=lambda point: point.weight).kriging
        for _ in range(SWEEPS):
            left_out = Kriging(best.covariance, best.theta, sites.among(rows, limited)).left_out()
            mean, variance = (part.cpu().numpy()[limited] for part in left_out)
            variance = variance - 1 / sites.precision
            before, moments = moments, moments_beyond(mean, variance, limits, signs)
            sites = sites.updated(mean, variance, moments)
            if np.abs(moments[0] - before[0]).max() < CLOSE:
                break
    return sites.among(rows, limited)

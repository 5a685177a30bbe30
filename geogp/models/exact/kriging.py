"""Kriging with known parameters, and the evidence of the parameters."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.linalg import solve_triangular

from geogp.errors import NumericalError
from geogp.models.exact.covariance import DOUBLE, Covariance, Lags, nugget
from geogp.models.numerics.linalg import lower_inverse

Floats = NDArray[np.float64]

JITTER = 1e-10
"""Added to the diagonal of correlation matrices."""

RIDGE = 1e-8
"""Relative precision of the prior of the trend, so that covariates may depend on each other."""

LEAST_SQUARES = 1e-12
"""Smallest mean square of the residuals, for targets that are exactly a trend."""

AT_ONCE = 2_000_000
"""Largest number of covariances with the rows that a prediction has in memory at once."""


@dataclass(frozen=True, eq=False)
class ExactRows:
    """Rows of an exact process, float64.

    `points`: east and north in km, and the time in quarters if the rows have times, (n, 2 or 3).
    `trend`: columns of the linear trend, (n, p); the first is 1.
    `y`: standardised targets, (n,).
    """

    points: Tensor
    trend: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def at(self, numbers: NDArray[np.intp]) -> "ExactRows":
        """Return some of the rows."""
        chosen = torch.as_tensor(numbers, device=self.y.device)
        return ExactRows(self.points[chosen], self.trend[chosen], self.y[chosen])

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Numbers of the rows of each pair below the diagonal, (n (n - 1) / 2,) each."""
        first, second = torch.tril_indices(len(self), len(self), -1, device=self.y.device)
        return first, second

    @cached_property
    def lags(self) -> Lags:
        """Lags of the pairs."""
        first, second = self.pairs
        return Lags.between(self.points[first], self.points[second])

    @property
    def extent(self) -> tuple[float, float]:
        """Largest extent in space, and in time; 0 for rows of one time."""
        low, high = self.points.amin(0), self.points.amax(0)
        width, *time = (high - low).split([2, self.points.shape[1] - 2])
        return float(width.max()), float(time[0].max()) if len(time[0]) else 0.0


@dataclass(frozen=True, eq=False)
class Kriging:
    """Universal kriging with known correlation, and unknown trend and variance.

    With R the correlation matrix of the rows, X their trend and p its columns, β has a flat prior
    (up to `RIDGE`), and s² a prior proportional to 1 / s². Then
    β = (X' R^(-1) X)^(-1) X' R^(-1) y, and
    s² = |R^(-1/2) (y - X β)|² / (n - p) (Handcock and Stein 1993).

    `L`: factor of R, (n, n). `basis`: L^(-1) X. `inner`: factor of X' R^(-1) X.
    `residual`: L^(-1) (y - X β). `sill`: s². `log_evidence`: log density of θ given the rows, up to
        a constant that is the same for all θ and smoothnesses.
    """

    covariance: Covariance
    theta: Floats
    rows: ExactRows
    L: Tensor
    basis: Tensor
    inner: Tensor
    beta: Tensor
    residual: Tensor
    sill: float
    log_evidence: float

    @property
    def freedom(self) -> int:
        """Degrees of freedom, n - p."""
        return len(self.rows) - self.rows.trend.shape[1]

    @property
    def variance(self) -> float:
        """Variance of a standardised measurement, which also contains that s² is uncertain."""
        return self.sill * self.freedom / max(self.freedom - 2, 1)

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return self.variance * nugget(self.theta)

    def prior(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariance of the field between points, (n, m), before any row is known."""
        lags = Lags.between(first[:, None], second[None])
        return self.variance * self.covariance(
            torch.as_tensor(self.theta, device=first.device), lags
        )

    def field(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the field at points, (n,) each."""
        size = max(1, AT_ONCE // len(self.rows))
        own = self.variance * (1 - nugget(self.theta))
        means, variances = [], []
        for chunk in zip(points.split(size), trend.split(size), strict=True):
            mean, known, rest = self._whitened(*chunk)
            means.append(mean)
            variances.append(own - self.variance * (known.square().sum(0) - rest.square().sum(0)))
        return torch.cat(means), torch.cat(variances).clamp(min=JITTER * own)

    def joint(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n,) and covariance (n, n) of the field at points."""
        mean, known, rest = self._whitened(points, trend)
        prior = self.prior(points, points)
        return mean, prior - self.variance * (known.T @ known - rest.T @ rest)

    def left_out(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of each row given the other rows, (n,) each (Dubrule 1983)."""
        own = lower_inverse(self.L).diagonal()
        precision = torch.maximum(own - self.trend_error.square().sum(0), JITTER * own)
        alpha = solve_triangular(self.L.T, self.residual[:, None], upper=True)[:, 0]
        return self.rows.y - alpha / precision, self.variance / precision

    @cached_property
    def trend_error(self) -> Tensor:
        """A matrix A, (p, n), with R^(-1) - A'A the precision of the rows without their trend."""
        left: Tensor = solve_triangular(self.L.T, self.basis, upper=True).T
        error: Tensor = solve_triangular(self.inner, left, upper=False)
        return error

    def _whitened(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, L^(-1) k (n, m) and the whitened error of the trend, (p, m)."""
        lags = Lags.between(self.rows.points[:, None], points[None])
        k = self.covariance(torch.as_tensor(self.theta, device=points.device), lags)
        known = solve_triangular(self.L, k, upper=False)
        mean = trend @ self.beta + known.T @ self.residual
        rest = trend.T - self.basis.T @ known
        return mean, known, solve_triangular(self.inner, rest, upper=False)


def kriging(covariance: Covariance, theta: Floats, rows: ExactRows) -> Kriging:
    """Return kriging with parameters θ; raise NumericalError if R does not factorise."""
    with torch.no_grad():
        correlations = covariance(torch.as_tensor(theta, device=rows.y.device), rows.lags)
    return _solved(covariance, theta, rows, correlations)


def evidence(covariance: Covariance, theta: Floats, rows: ExactRows) -> tuple[float, Floats]:
    """Return the log evidence of θ and its gradient; see `Kriging.log_evidence`.

    With β and s² integrated out,

        log p(θ | y) = log p(θ) - log |R|/2 - log |X' R^(-1) X|/2 - (n - p)/2 log((n - p) s²).

    With P = R^(-1) - A'A and c = P y, the gradient for an entry of R is (c c' / s² - P)/2. Only the
    entries of R are differentiated by `torch`. The evidence is -inf if R does not factorise.
    """
    free = torch.tensor(theta, requires_grad=True, device=rows.y.device)
    correlations = covariance(free, rows.lags)
    try:
        solved = _solved(covariance, theta, rows, correlations.detach())
    except NumericalError:
        return -math.inf, np.zeros(len(theta))
    first, second = rows.pairs
    inverse = lower_inverse(solved.L)
    alpha = solve_triangular(solved.L.T, solved.residual[:, None], upper=True)[:, 0]
    # Each pair has two entries in R, so that the halves become a whole.
    slope = alpha[first] * alpha[second] / solved.sill - inverse[first, second]
    for row in solved.trend_error:
        slope += row[first] * row[second]
    correlations.backward(slope)
    assert free.grad is not None
    gradient = free.grad.cpu().numpy() + covariance.log_prior(theta)[1]
    return solved.log_evidence, gradient


def _solved(
    covariance: Covariance, theta: Floats, rows: ExactRows, correlations: Tensor
) -> Kriging:
    n, p = rows.trend.shape
    first, second = rows.pairs
    R = torch.eye(n, dtype=DOUBLE, device=rows.y.device) * (1 + JITTER)
    R[first, second] = correlations
    L, failed = torch.linalg.cholesky_ex(R)
    if failed or not bool(torch.isfinite(L[-1, -1])):
        raise NumericalError("the covariances of the rows do not factorise.")
    white = solve_triangular(L, torch.cat([rows.trend, rows.y[:, None]], 1), upper=False)
    basis, y = white[:, :p], white[:, p]
    gram = basis.T @ basis
    inner, failed = torch.linalg.cholesky_ex(gram + RIDGE * gram.diagonal().diag())
    if failed or not bool(torch.isfinite(inner[-1, -1])):
        raise NumericalError("the trend of the rows does not factorise.")
    beta = torch.cholesky_solve((basis.T @ y)[:, None], inner)[:, 0]
    residual = y - basis @ beta
    squares = max(float(residual @ residual), LEAST_SQUARES * n)
    log_determinants = float(L.diagonal().log().sum() + inner.diagonal().log().sum())
    value = covariance.log_prior(theta)[0] - log_determinants - (n - p) / 2 * math.log(squares)
    sill = squares / (n - p)
    return Kriging(covariance, theta, rows, L, basis, inner, beta, residual, sill, value)

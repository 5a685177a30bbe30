"""Kriging with known parameters, and the evidence of the parameters."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.linalg import solve_triangular

from geogp.errors import NumericalError
from geogp.models.exact.covariance import DOUBLE, Covariance, Lags, nugget
from geogp.models.numerics.linalg import inverse_cholesky
from geogp.models.numerics.threads import chunks

Floats = NDArray[np.float64]

JITTER = 1e-10
"""Added to the diagonal of correlation matrices."""

RIDGE = 1e-8
"""Relative precision of the prior of the trend, so that covariates may depend on each other."""

LEAST_SQUARES = 1e-12
"""Smallest mean square of the residuals, for targets that are exactly a trend."""

AT_ONCE = 2_000_000
"""Largest number of covariances with the rows that a prediction has in memory at once."""

CHUNK = 65_536
"""Number of covariances between rows that are computed at once."""


PointsAndWhite = tuple[Tensor, Tensor]
"""Points, and their array of `Kriging.whitened`."""


@dataclass(frozen=True, eq=False)
class ExactRows:
    """Rows of an exact process, float64.

    `points`: east and north in km, and the time in quarters if the rows have times, (n, 2 or 3).
    `trend`: columns of the linear trend, (n, p); the first is 1.
    `y`: standardised targets, (n,).
    `error_variance`: known variances of the errors of `y`, (n,), or None.
    `session`: number of each row's session, (n,), or None.
    `tests`: number of tests whose mean a row is, (n,), or None if all rows are alike.
    """

    points: Tensor
    trend: Tensor
    y: Tensor
    error_variance: Tensor | None = None
    session: Tensor | None = None
    tests: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def at(self, numbers: NDArray[np.intp]) -> "ExactRows":
        """Return some of the rows."""
        chosen = torch.as_tensor(numbers, device=self.y.device)
        own = self.error_variance, self.session, self.tests
        others = (part if part is None else part[chosen] for part in own)
        return ExactRows(self.points[chosen], self.trend[chosen], self.y[chosen], *others)

    def law(self, smoothness: float, *, nested: bool) -> Covariance:
        """Return the covariance of this form for these rows."""
        low, high = self.points.amin(0), self.points.amax(0)
        width, time = (high - low).split([2, self.points.shape[1] - 2])
        duration = float(time.max()) if len(time) else 0.0
        axes = self.points[:, 2:] if duration else self.points[:, :2]
        extents = (axes[rows].amax(0) - axes[rows].amin(0) for rows in self.sessions)
        session = max((float(extent.norm()) for extent in extents), default=0.0)
        # Sessions at one time say nothing of the decay, only of what rows share.
        session = (session or 1.0) if self.has_shared_noise else 0.0
        return Covariance(
            smoothness,
            float(width.max()),
            duration,
            nested,
            has_sill=self.error_variance is not None,
            session=session,
            has_tests=self.tests is not None,
        )

    @cached_property
    def sessions(self) -> list[Tensor]:
        """The numbers of the rows of each session; none without sessions."""
        if self.session is None:
            return []
        order = torch.argsort(self.session, stable=True)
        counts = torch.unique(self.session, return_counts=True)[1]
        return list(order.split(counts.tolist()))

    @property
    def has_shared_noise(self) -> bool:
        """Whether a session has several rows."""
        return len(self.sessions) < len(self) and self.session is not None

    def lags(self, rows: slice, others: slice) -> Lags:
        """Return the lags between some rows and others."""
        together = None
        if self.session is not None and self.has_shared_noise:
            together = (self.session[rows, None] == self.session[None, others]).to(DOUBLE)
        return Lags.between(self.points[rows, None], self.points[None, others], together)


@dataclass(frozen=True, eq=False)
class UniversalKriging(ABC):
    """Universal kriging with known correlation, and unknown trend and variance.

    With R the correlation matrix of the rows, X their trend and p its columns, β has a flat prior
    (up to `RIDGE`), and s² a prior proportional to 1 / s². Then
    β = (X' R^(-1) X)^(-1) X' R^(-1) y, and
    s² = |R^(-1/2) (y - X β)|² / (n - p) (Handcock and Stein 1993). With known variances of errors,
    s² is an entry of θ, and R contains these variances divided by s².
    """

    covariance: Covariance
    theta: Floats
    rows: ExactRows

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """Logarithm of |R|."""

    @property
    @abstractmethod
    def inner(self) -> Tensor:
        """Lower factor of X' R^(-1) X, (p, p)."""

    @property
    @abstractmethod
    def beta(self) -> Tensor:
        """Coefficients of the trend, (p,)."""

    @property
    @abstractmethod
    def squares(self) -> float:
        """|R^(-1/2) (y - X β)|²."""

    @property
    def of_rows(self) -> "Kriging | None":
        """The kriging itself if it has the covariances of all rows, else None."""
        return None

    @property
    def freedom(self) -> int:
        """Degrees of freedom, n - p."""
        return len(self.rows) - self.rows.trend.shape[1]

    @property
    def sill(self) -> float:
        """s²."""
        if self.covariance.has_sill:
            return math.exp(self.theta[-1])
        return self.squares / self.freedom

    @property
    def variance(self) -> float:
        """Variance of a standardised measurement without known error.

        If s² is integrated out, the variance contains that s² is uncertain.
        """
        if self.covariance.has_sill:
            return self.sill
        return self.sill * self.freedom / max(self.freedom - 2, 1)

    @property
    def noise(self) -> float:
        """Variance of the noise that rows with many tests have, too."""
        return self.variance * nugget(self.theta)

    @property
    def noise_of_test(self) -> float:
        """Variance that a single test has in addition; a mean of k tests has a k-th of it."""
        return self.variance * self.covariance.of_test(self.theta)

    @cached_property
    def log_evidence(self) -> float:
        """Log density of θ given the rows, up to a constant for all θ and smoothnesses.

        With β and s² integrated out, it is

            log p(θ) - log |R|/2 - log |X' R^(-1) X|/2 - (n - p)/2 log((n - p) s²).

        If s² is an entry of θ, the last term is -(n - p)/2 log s² - |R^(-1/2) (y - X β)|²/(2 s²).
        """
        if self.covariance.has_sill:
            density = -self.freedom / 2 * self.theta[-1] - self.squares / (2 * self.sill)
        else:
            density = -self.freedom / 2 * math.log(self.squares)
        trend = float(self.inner.diagonal().log().sum())
        prior = self.covariance.log_prior(self.theta)
        return float(prior - self.log_determinant / 2 - trend + density)

    def prior(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariance of the field between points, (n, m), before any row is known."""
        return self.variance * self._correlations(first, second)

    def _correlations(self, first: Tensor, second: Tensor) -> Tensor:
        return self.covariance(self.theta, Lags.between(first[:, None], second[None]))


@dataclass(frozen=True, eq=False)
class Kriging(UniversalKriging):
    """Universal kriging by the covariances of all rows; NumericalError if R does not factorise."""

    def __post_init__(self) -> None:
        _ = self.inner

    @property
    def of_rows(self) -> "Kriging":
        """The kriging itself."""
        return self

    @cached_property
    def W(self) -> Tensor:  # noqa: N802 - as in the formulas
        """L^(-1), (n, n), with R = L L'."""
        rows, n = self.rows, len(self.rows)
        # Only the lower triangle is used.
        R = torch.empty(n, n, dtype=DOUBLE, device=rows.y.device)
        for some in _chunks(n):
            R[some, : some.stop] = self.covariance(self.theta, rows.lags(some, slice(some.stop)))
        R.diagonal().fill_(1 + JITTER)
        if rows.tests is not None:
            R.diagonal().add_(self.covariance.of_test(self.theta) / rows.tests)
        if rows.error_variance is not None:
            R.diagonal().add_(rows.error_variance / math.exp(self.theta[-1]))
        W, failed = inverse_cholesky(R)
        if failed or not bool(torch.isfinite(W[-1, -1])):
            raise NumericalError("the covariances of the rows do not factorise.")
        return W

    @cached_property
    def basis(self) -> Tensor:
        """W X, (n, p)."""
        return self.W @ self.rows.trend

    @cached_property
    def inner(self) -> Tensor:
        """Lower factor of X' R^(-1) X, (p, p)."""
        ridge = RIDGE * (self.rows.trend.square().sum(0) + 1)
        inner: Tensor
        inner, failed = torch.linalg.cholesky_ex(self.basis.T @ self.basis + ridge.diag())
        if failed or not bool(torch.isfinite(inner[-1, -1])):
            raise NumericalError("the trend of the rows does not factorise.")
        return inner

    @cached_property
    def _white(self) -> Tensor:
        """W y, (n,)."""
        return self.W @ self.rows.y

    @cached_property
    def beta(self) -> Tensor:
        """Coefficients of the trend, (p,)."""
        right = self.basis.T @ self._white
        beta: Tensor = torch.cholesky_solve(right[:, None], self.inner)[:, 0]
        return beta

    @cached_property
    def residual(self) -> Tensor:
        """W (y - X β), (n,)."""
        return self._white - self.basis @ self.beta

    @cached_property
    def squares(self) -> float:
        """|R^(-1/2) (y - X β)|²."""
        return max(float(self.residual @ self.residual), LEAST_SQUARES * len(self.rows))

    @cached_property
    def log_determinant(self) -> float:
        """Logarithm of |R|."""
        return -2 * float(self.W.diagonal().log().sum())

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

    def whitened(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean of the field at points, (n,), and arrays of its covariance.

        They are `white` (n, rows), for `given_rows`, and a factor (n, p) of what the errors of the
        trend add to the covariance.
        """
        mean, errors = torch.empty_like(points[:, 0]), torch.empty_like(trend)
        # One row for each point, because those of a patch are read together.
        white = points.new_empty(len(points), len(self.rows))
        for chunk in chunks(len(points), max(1, AT_ONCE // len(self.rows))):
            mean[chunk], known, rest = self._whitened(points[chunk], trend[chunk])
            white[chunk], errors[chunk] = known.T, rest.T
        return mean, white, math.sqrt(self.variance) * errors

    def given_rows(self, first: PointsAndWhite, second: PointsAndWhite) -> Tensor:
        """Return covariances of the field given the rows, for a known trend, (..., n, m).

        Both have points (..., n, 2 or 3) and their `white` (..., n, rows) of `whitened`.
        """
        lags = Lags.between(first[0][..., :, None, :], second[0][..., None, :, :])
        return self.variance * (self.covariance(self.theta, lags) - first[1] @ second[1].mT)

    def left_out(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of each row given the other rows, (n,) each (Dubrule 1983).

        Rows of a session are left out together: with P as in `slopes`, the errors of some rows g
        are P_gg^(-1) (P y)_g, and s² P_gg^(-1) is their covariance.
        """
        solved = self._solved_residual()
        if self.rows.session is None:
            precision = self._precision()
            return self.rows.y - solved / precision, self.variance / precision
        mean, variance = torch.empty_like(solved), torch.empty_like(solved)
        for rows in self.rows.sessions:
            W, A = self.W[:, rows], self.trend_error[:, rows]
            precision = W.T @ W - A.T @ A
            precision.diagonal().add_(JITTER * precision.diagonal())
            factor = torch.linalg.cholesky(precision)
            mean[rows] = self.rows.y[rows] - torch.cholesky_solve(solved[rows, None], factor)[:, 0]
            variance[rows] = self.variance * torch.cholesky_inverse(factor).diagonal()
        return mean, variance

    def slopes(self) -> tuple[Floats, Floats]:
        """Return the gradient of the log evidence, (m,), and the information about θ, (m, m).

        With P = R^(-1) - A'A, c = P y and R_k the derivative of R by an entry of θ, the gradient is

            g_k = c' R_k c / (2 s²) - tr(P R_k)/2 + d log p(θ)/dθ_k.

        The information is the average information of Gilmour, Thompson and Cullis (1995), here with
        s² integrated out, and that of the prior. At a maximum, it approximates the mean of the
        observed and the expected information:

            I_kl = c' R_k P R_l c / (2 s²) - (c' R_k c) (c' R_l c) / (2 (n - p) s⁴) + Λ_kl.

        If s² is an entry of θ, it is not integrated out, and the second term is 0; its R_k is R
        without the known variances.
        """
        n = len(self.rows)
        c = self._solved_residual()
        gradient, prior_precision = self.covariance.prior_slopes(self.theta)
        moved = torch.zeros(len(gradient), n, dtype=DOUBLE, device=c.device)
        for rows in _chunks(n):
            upto = slice(rows.stop)
            weights = torch.outer(c[rows] / self.sill, c[upto])
            weights -= self.W[rows.start :, rows].T @ self.W[rows.start :, upto]
            weights += self.trend_error[:, rows].T @ self.trend_error[:, upto]
            # Each pair has two entries in R, so that the halves become a whole.
            weights.tril_(rows.start - 1)
            lags = self.rows.lags(rows, upto)
            before = slice(rows.start)
            for k, slope in enumerate(self.covariance.slopes(self.theta, lags)):
                slope.diagonal(rows.start).zero_()
                gradient[k] += float(torch.dot(weights.flatten(), slope.flatten()))
                moved[k, rows] += slope @ c[upto]
                moved[k, before] += slope[:, before].T @ c[rows]
        errors = self.rows.error_variance
        if self.rows.tests is not None:
            by_tests, at = self.covariance.of_test(self.theta) / self.rows.tests, k + 1
            moved[at] = by_tests * c
            gradient[at] += float(c @ moved[at]) / (2 * self.sill)
            gradient[at] -= float(by_tests @ self._precision()) / 2
        if errors is not None:
            known = errors / self.sill
            moved[-1] = self.rows.y - self.rows.trend @ self.beta - known * c
            trace = self.freedom - float(known @ self._precision())
            gradient[-1] += float(c @ moved[-1]) / (2 * self.sill) - trace / 2
        white = self.W @ moved.T
        rest = self.trend_error @ moved.T
        information = white.T @ white - rest.T @ rest
        if errors is None:
            own = moved @ c
            information -= torch.outer(own, own) / (self.freedom * self.sill)
        return gradient, information.cpu().numpy() / (2 * self.sill) + prior_precision

    def _precision(self) -> Tensor:
        """Return the diagonal of P, (n,)."""
        own = self.W.square().sum(0)
        return torch.maximum(own - self.trend_error.square().sum(0), JITTER * own)

    def _solved_residual(self) -> Tensor:
        """Return P y, (n,)."""
        return self.W.T @ self.residual

    @cached_property
    def trend_error(self) -> Tensor:
        """A matrix A, (p, n), with R^(-1) - A'A the precision of the rows without their trend."""
        error: Tensor = solve_triangular(self.inner, self.basis.T @ self.W, upper=False)
        return error

    def _whitened(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, W k (n, m) and the whitened error of the trend, (p, m)."""
        k = self._correlations(self.rows.points, points)
        known = self.W @ k
        mean = trend @ self.beta + known.T @ self.residual
        rest = trend.T - self.basis.T @ known
        return mean, known, solve_triangular(self.inner, rest, upper=False)


def _chunks(n: int) -> Iterator[slice]:
    """Yield slices of n rows whose covariances with the rows before them fit into a cache."""
    size = max(1, CHUNK // n)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))

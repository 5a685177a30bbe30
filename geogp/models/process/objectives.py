"""Objectives to minimise, each a plain function (DBK section 3; DBK-1 sections 3.1 and 3.3).

An objective of a batch is a mean over the rows of the batch, plus the KL term divided by the number
n of training rows. Here mu = m0 + <m, phi> and s² = ||L' phi||². An objective of all rows uses only
the sums in `Statistics`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.products import squared_norms
from geogp.models.numerics.teams import current_team
from geogp.models.options import Weights


def hermite(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return 20 nodes and weights of Gauss-Hermite quadrature for a standard normal, float64."""
    return _hermite(device, current_precision())


@cache
def _hermite(device: torch.device, _precision: str) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    shares = torch.as_tensor(weights / weights.sum())
    return torch.as_tensor(nodes).to(device), shares.to(device)


class Repeats(NamedTuple):
    """Rows with equal inputs: their number `rows` (b,) and their `scatter` (b,).

    Let an input have k rows with targets y_j. Let ybar be the mean of the y_j, and scatter the mean
    of (y_j - ybar)². If all rows at this input have mean mu and variance v, then

    sum_j log N(y_j; mu, v) = -k/2 log 2π v - k (scatter + (ybar - mu)²) / (2 v).
    """

    rows: Tensor
    scatter: Tensor


@dataclass(frozen=True)
class BatchTerms:
    """Terms of the objectives for a batch of b rows, or of b inputs with several rows each.

    `mean`, `function_variance`: m0 + <m, phi> and ||L' phi||², each (b,).
    `residual`: k~(x, x) - ||phi||², (b,); 0 if the basis is exact.
    `feature_norm`: ||phi||², (b,).
    `noise_var`, `kl`: scalars.
    `repeats`: the rows of each input, or None if each input has one row. With `repeats`, a target
        is the mean of all rows with the same input, and each input counts as its number of rows.
    `offset`, `dispersion`: for counts, each (b,): the offset of the log rate, and 1/a of the
        negative binomial distribution.
    `inverse_scale`, `log_scale`: for a random scale s², E[1 / s²] and E[log s²] under q, scalars;
        the variances are in units of s².
    """

    mean: Tensor
    function_variance: Tensor
    residual: Tensor
    feature_norm: Tensor
    noise_var: Tensor
    kl: Tensor
    repeats: Repeats | None = None
    offset: Tensor | None = None
    dispersion: Tensor | None = None
    inverse_scale: Tensor | None = None
    log_scale: Tensor | None = None

    @property
    def rows(self) -> Tensor:
        """The number of rows of the batch, a scalar."""
        if self.repeats is None:
            return self.mean.new_full((), len(self.mean))
        return self.repeats.rows.sum()

    def average(self, values: Tensor) -> Tensor:
        """Return the mean over rows of `values` (b,), which has one value per input."""
        if self.repeats is None:
            return values.mean()
        return (self.repeats.rows * values).sum() / self.rows

    def square(self, y: Tensor) -> Tensor:
        """Return the mean of (y_j - mean)² over the rows of each input, (b,)."""
        square = (y - self.mean).square()
        return square if self.repeats is None else square + self.repeats.scatter


class Statistics(NamedTuple):
    """Sums over all n training rows, float64, where e is the target minus the mean constant.

    `gram` is Phi'Phi (r, r), `moment` is Phi'e (r,) and `square` is ||e||². `norm_sum` and
    `largest_norm` are the sum and maximum of ||phi(x_i)||². `residual_sum` is the sum of k~(x_i,
    x_i) - ||phi(x_i)||². `log_variance` is 0. If each row has its own variance v_i, `log_variance`
    is Σ log v_i, and `gram`, `moment`, `square` have weights 1 / v_i.
    """

    n: int
    gram: Tensor
    moment: Tensor
    square: Tensor
    norm_sum: Tensor
    largest_norm: Tensor
    residual_sum: Tensor
    log_variance: Tensor


BatchObjective = Callable[[BatchTerms, Tensor, int, Weights], Tensor]
WholeObjective = Callable[[Statistics, Tensor], Tensor]


def gaussian_nll(square: Tensor, variance: Tensor) -> Tensor:
    """Return -log N(y; mean, variance), elementwise, for `square` = (y - mean)²."""
    return 0.5 * (math.log(2 * math.pi) + variance.log() + square / variance)


def elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Return the negative evidence lower bound (DBK equation 5), with the residual of equation 4.

    mean_b[-log N(y; mu, noise_var) + (s² + residual) / (2 noise_var)] + KL / n.
    """
    return _expected_nll(terms, y, terms.residual) + terms.kl / n


def whitened_elbo(
    white: Tensor, log_scale: Tensor, kl: Tensor, n: int, rows: Tensor | int
) -> Tensor:
    """Return the negative evidence lower bound of correlated rows, from whitened rows.

    Let W be the inverse of a factor of the covariance of the b rows given w. Then
    E_q[-log N(y; m0 + Phi w, (W'W)^(-1))]
    = ½ ||W(y - mu)||² + ½ ||W Phi L||² - log|W| + b/2 log 2π. The function returns this value
    divided by b, plus KL / n.

    `white`: the numbers in W (y - mu, Phi L), in any order and with any number of zeros, (k,).
    `log_scale`, `kl`: -log|W| and KL(q(w) || N(0, I)), scalars.
    `n`, `rows`: numbers of training rows, and of the rows here, b.
    """
    loss = torch.add(log_scale, squared_norms(white[None]).sum(), alpha=0.5) / rows
    return torch.add(loss, kl, alpha=1 / n) + 0.5 * math.log(2 * math.pi)


def corrected_elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Return `elbo` with the residual max_b ||phi||² - ||phi||² (DBK-1 equation 11)."""
    return _expected_nll(terms, y, batch_correction(terms)) + terms.kl / n


def ppgp(terms: BatchTerms, y: Tensor, n: int, weights: Weights) -> Tensor:
    """Return the parametric predictive objective (DBK equation 6; Jankowiak et al. 2020).

    mean_b[-log N(y; mu, s² + residual + noise_var)] + (beta / n) KL.
    """
    variance = terms.function_variance + terms.residual + terms.noise_var
    return terms.average(gaussian_nll(terms.square(y), variance)) + weights.beta / n * terms.kl


def dppgp(terms: BatchTerms, y: Tensor, n: int, weights: Weights) -> Tensor:
    """Return the decoupled parametric predictive objective (DBK equation 15).

    mean_b[-log N(y; mu, s² + noise_var)]
    + alpha mean_b[(max_b ||phi||² - ||phi||²) / (2 noise_var)] + (beta / n) KL.
    """
    fit = gaussian_nll(terms.square(y), terms.function_variance + terms.noise_var)
    trace = terms.average(batch_correction(terms)) / (2 * terms.noise_var)
    return terms.average(fit) + weights.alpha * trace + weights.beta / n * terms.kl


def squared_error(terms: BatchTerms, y: Tensor, _n: int, _weights: Weights) -> Tensor:
    """Return the mean squared error of the batch: mean_b[(y - mu)²]."""
    return terms.average(terms.square(y))


def poisson_elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Return the negative evidence lower bound for y ~ Poisson(e^(o + f)) (DBK-1 appendix A.5).

    With the offset o = log exposure and E exp(f) = exp(mu + s²/2), the bound has the closed form
    mean_b[exp(o + mu + s²/2) - y (o + mu) + log y!] + KL / n. Float64.
    """
    counts, log_rate, spread = _count_terms(terms, y)
    rate = (log_rate + 0.5 * spread).exp()
    nll = rate - counts * log_rate + torch.lgamma(counts + 1)
    return terms.average(nll) + terms.kl.double() / n


def negative_binomial_elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Return the negative evidence lower bound for y ~ Poisson(g e^(o + f)), g ~ Gamma(a, a).

    Each row has its own g, with mean 1 and variance 1/a = dispersion. With g integrated out, y is
    negative binomial with mean e^(o + f) and shape a. With t = o + f - log a, the bound is
    mean_b[log Γ(a) + log y! - log Γ(y + a) - y E t + (y + a) E log(1 + e^t)] + KL / n. Float64.
    Only E log(1 + e^t) has no closed form; Gauss-Hermite quadrature with 20 nodes computes it.
    """
    counts, log_rate, spread = _count_terms(terms, y)
    assert terms.dispersion is not None, "negative binomial counts need a dispersion"
    a = 1 / terms.dispersion.double()
    middle = log_rate - a.log()
    nodes, shares = hermite(y.device)
    placed = middle[:, None] + spread.sqrt()[:, None] * nodes
    softplus = torch.logaddexp(placed, torch.zeros_like(placed)) @ shares
    gammas = torch.lgamma(a) + torch.lgamma(counts + 1) - torch.lgamma(counts + a)
    nll = gammas - counts * middle + (counts + a) * softplus
    return terms.average(nll) + terms.kl.double() / n


def log_marginal_likelihood(sums: Statistics, noise_var: Tensor) -> Tensor:
    """Return log N(y; m0, Phi Phi' + noise_var I) from sums over the rows (DBK equation 11).

    -n/2 log 2π - (n - r)/2 log noise_var - ½ log|Λ| - ||e||²/(2 noise_var)
    + ||Λ^(-1/2) Phi'e||²/(2 noise_var), with Λ = Phi'Phi + noise_var I. A scalar, float64.

    Raises NumericalError if Λ is not finite or does not factorise.
    """
    distance, log_determinant = quadratic_form(sums, noise_var)
    return -0.5 * (sums.n * math.log(2 * math.pi) + log_determinant + distance)


def quadratic_form(sums: Statistics, noise_var: Tensor) -> tuple[Tensor, Tensor]:
    """Return e'A^(-1)e and log|A| for A = Phi Phi' + noise_var I, scalars, float64.

    Raises NumericalError if Λ = Phi'Phi + noise_var I is not finite or does not factorise.
    """
    r = len(sums.moment)
    noise = noise_var.double()
    Lambda = sums.gram + noise * torch.eye(r, dtype=torch.float64, device=sums.gram.device)
    explained, log_determinant = _solved(Lambda, sums.moment)
    return (sums.square - explained) / noise, (sums.n - r) * noise.log() + log_determinant


def _solved(Lambda: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Return ||Λ^(-1/2) moment||² and log|Λ|; raise NumericalError as `jittered_cholesky` does."""
    C, _ = jittered_cholesky(Lambda, 0.0)
    explained = torch.linalg.solve_triangular(C, moment[:, None], upper=False)
    return explained.square().sum(), 2 * C.diagonal().log().sum()


def corrected_log_marginal_likelihood(sums: Statistics, noise_var: Tensor) -> Tensor:
    """Return the log marginal likelihood minus tr(C) / (2 noise_var) (DBK-1 equation 11).

    C is diagonal with c(x_i, x_i) = max_j ||phi(x_j)||² - ||phi(x_i)||². A scalar, float64.
    """
    trace = sums.n * sums.largest_norm - sums.norm_sum
    return log_marginal_likelihood(sums, noise_var) - trace / (2 * noise_var.double())


def collapsed_bound(sums: Statistics, noise_var: Tensor) -> Tensor:
    """Return the evidence lower bound at its best q(w), in closed form (Titsias 2009, equation 9).

    log N(y; m0, Q + noise_var I) - tr(K - Q) / (2 noise_var) with Q = Phi Phi' and the kernel K
    of the inducing points' prior. It is at most log N(y; m0, K + noise_var I), and equal if the
    inducing points are the rows. A scalar, float64.
    """
    likelihood = log_marginal_likelihood(sums, noise_var)
    return likelihood - sums.residual_sum / (2 * noise_var.double())


def fitc_log_marginal_likelihood(sums: Statistics, _noise_var: Tensor) -> Tensor:
    """Return log N(y; m0, Phi Phi' + D), D = diag(row variances) (Snelson and Ghahramani 2006).

    -½ [n log 2π + Σ log D_i + log|Λ| + ||e||²_D - ||Λ^(-1/2) Phi'D^(-1)e||²], with
    Λ = I + Phi'D^(-1)Phi and ||e||²_D = e'D^(-1)e. A scalar, float64.

    Raises NumericalError if Λ is not finite or does not factorise.
    """
    identity = torch.eye(len(sums.moment), dtype=torch.float64, device=sums.gram.device)
    explained, log_determinant = _solved(identity + sums.gram, sums.moment)
    determinant = sums.log_variance + log_determinant
    return -0.5 * (sums.n * math.log(2 * math.pi) + determinant + sums.square - explained)


def _count_terms(terms: BatchTerms, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return counts, and mean (offset included) and variance of the log rate, float64."""
    assert terms.offset is not None, "counts need an offset"
    log_rate = terms.mean.double() + terms.offset.double()
    return y.double(), log_rate, terms.function_variance.double()


def _expected_nll(terms: BatchTerms, y: Tensor, missed: Tensor) -> Tensor:
    """Return mean_b E_q[-log N(y; f, noise_var)]; the variance `missed` is added to s²."""
    square = terms.square(y) + terms.function_variance + missed
    return terms.average(gaussian_nll(square, terms.noise_var))


def batch_correction(terms: BatchTerms) -> Tensor:
    """Return max_b ||phi||² - ||phi||², (b,): the correction of DBK-1 for this batch."""
    return current_team().largest(terms.feature_norm, terms.rows) - terms.feature_norm

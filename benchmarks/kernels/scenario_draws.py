"""Inputs and functions of the simulation study of Mixed, section 5.1, and exact predictions.

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes". Functions are drawn from the mixed kernel, exactly for few points, and as wide
random networks for many.
"""

import math

import numpy as np
import torch
from torch import Tensor

from benchmarks.script import Floats
from geogp.models.papers.mixed_nystrom.kernels import MixedKernel

NUGGET = 0.04
"""Noise variance divided by the mean of k(x, x) (Mixed equation (25))."""

JITTER = 1e-9
"""Relative jitter of the covariances that are factorised."""

UNITS, ROWS = 4000, 1024
"""Units of each kind in a random network, and number of points that are computed together."""

SQUARE_RANGE = (1 / 12, 7 / 12)
"""Range of 4 E x_j² in the stratified design; the mean, 1/3, is that of the uniform design."""

POLES = 8


def truth() -> MixedKernel:
    """Return the kernel of all scenarios, with variances 1 and alpha = w = ½.

    The paper does not state these values; its mean diagonals, 2.133 and 3.770, follow from them.
    """
    return MixedKernel().requires_grad_(requires_grad=False)


def uniform_design(n: int, inputs: int, rng: np.random.Generator) -> Floats:
    """Return points of [-½, ½]^inputs, independent and uniform, (n, inputs)."""
    return rng.uniform(-0.5, 0.5, (n, inputs))


def stratified_design(n: int, inputs: int, rng: np.random.Generator) -> Floats:
    """Return points of [-½, ½]^inputs whose norms and angles are spread in strata, (n, inputs).

    The paper mentions a stratified design without stating it; this design is ours. Let
    x_j = ±½ |u_j|^p with u uniform and p such that E x_j² = q / 4. Over the points, q takes the
    midpoints of n strata of `SQUARE_RANGE`, so ||x||² varies and has the mean of the uniform
    design. The signs agree with those of one of eight random corners with a probability that takes
    the midpoints of n strata of [½, 1], so angles vary from right to small.
    """
    strata = (np.arange(n) + 0.5) / n
    low, high = SQUARE_RANGE
    square = low + (high - low) * rng.permutation(strata)
    power = (1 / square - 1) / 2
    size = 0.5 * rng.uniform(0, 1, (n, inputs)) ** power[:, None]
    corner = rng.choice([-1.0, 1.0], (POLES, inputs))[rng.integers(0, POLES, n)]
    agrees = rng.uniform(0, 1, (n, inputs)) < 0.5 + 0.5 * rng.permutation(strata)[:, None]
    return size * np.where(agrees, corner, -corner)


def exact_draws(kernel: MixedKernel, x: Floats, rng: np.random.Generator, count: int) -> Floats:
    """Return independent functions at the points (n, d), (count, n); needs memory for n² values."""
    points = torch.from_numpy(x)
    K = covariance_matrix(kernel, points, points)
    K.diagonal().mul_(1 + JITTER)
    found: Floats = torch.linalg.cholesky(K).numpy() @ rng.standard_normal((len(x), count))
    return found.T


def network_draws(x: Floats, rng: np.random.Generator, count: int, units: int = UNITS) -> Floats:
    """Return random networks with the parameters of `truth` at the points (n, d), (count, n).

    f = b + Σ_j v_j psi_j(a_j + <u_j, x>) / sqrt(`units`) with standard normal b, v, a and u, for
    `units` units of each kind. A kind has half of the variance. Each function has its own network,
    so the covariance of the functions is the kernel exactly, whatever `units`; with many units,
    they are close to a Gaussian process. A sequence of conditional distributions given near points
    fails here: with 20 inputs, its errors grow along the sequence.
    """
    points = torch.from_numpy(x)
    found = np.empty((count, len(x)))
    for function in found:
        hidden = torch.from_numpy(rng.standard_normal((1 + x.shape[1], 2, units)))
        out = torch.from_numpy(rng.standard_normal((2, units))) / math.sqrt(2 * units)
        bias = rng.standard_normal()
        for start in range(0, len(x), ROWS):
            part = points[start : start + ROWS]
            smooth, leaky = (hidden[0, kind] + part @ hidden[1:, kind] for kind in (0, 1))
            smooth = torch.erf(smooth.mul_(math.sqrt(math.pi) / 2))
            leaky = torch.maximum(leaky, leaky / 2)
            function[start : start + ROWS] = (bias + smooth @ out[0] + leaky @ out[1]).numpy()
    return found


def covariance_matrix(kernel: MixedKernel, a: Tensor, b: Tensor) -> Tensor:
    """Return k(a, b), (m, d), (n, d) -> (m, n), in blocks of rows with only one full matrix."""
    found = torch.empty(len(a), len(b), dtype=torch.float64)
    for start in range(0, len(a), 256):
        found[start : start + 256] = kernel(a[start : start + 256], b)
    return found


def exact_means(
    kernel: MixedKernel, noise_var: float, x: Floats, y: Floats, new: Floats
) -> tuple[Floats, Floats]:
    """Return mean and variance of measurements at `new` (m, d) under the process that generated y.

    The result is exact and needs memory for n² values, for benchmarks with some thousand rows. For
    targets (replicates, n) of several replicates at x (n, d), the shapes are (replicates, m) and
    (m,).
    """
    points, fresh = torch.from_numpy(x), torch.from_numpy(new)
    K = covariance_matrix(kernel, points, points)
    K.diagonal().add_(noise_var)
    L = torch.linalg.cholesky(K)
    half = torch.linalg.solve_triangular(L, kernel(points, fresh), upper=False)
    white = torch.linalg.solve_triangular(L, torch.from_numpy(y).T, upper=False)
    variance = kernel.diagonal(fresh) - half.square().sum(0) + noise_var
    return (white.T @ half).numpy(), variance.numpy()


def kernel_errors(found: MixedKernel, scale: float, x: Floats) -> tuple[float, float]:
    """Return two relative errors of a kernel as a function, over all pairs of points (n, d).

    The first is sqrt(Σ (scale k^ - k)² / Σ k²) over all pairs, including each point with itself.
    The second is the same for the covariances of f minus its mean over the points, which do not
    depend on a constant in the kernel.
    """
    points = torch.from_numpy(x)
    with torch.no_grad():
        estimate, expected = scale * found(points, points), truth()(points, points)
    plain = (estimate - expected).norm() / expected.norm()
    estimate, expected = _centred(estimate), _centred(expected)
    return float(plain), float((estimate - expected).norm() / expected.norm())


def _centred(K: Tensor) -> Tensor:
    return K - K.mean(0) - K.mean(1, keepdim=True) + K.mean()

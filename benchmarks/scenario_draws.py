"""Inputs and functions of the simulation study of Mixed, section 5.1, and exact predictions.

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes". Everything is exact, with covariances of all points in memory.
"""

import numpy as np
import torch
from torch import Tensor
from trial import Floats

from geogp.models.bases.kernels import MixedKernel, OneLayerKernel

NUGGET = 0.04
"""Noise variance divided by the mean of k(x, x) (Mixed equation (25))."""

JITTER = 1e-9
"""Relative jitter of the covariances that are factorised."""


def truth() -> MixedKernel:
    """Return the kernel of all scenarios, with variances 1 and alpha = w = ½.

    The paper does not state these values; they give the paper's mean diagonals, 2.133 and 3.770.
    """
    return MixedKernel().requires_grad_(requires_grad=False)


def draw(x: Floats, rng: np.random.Generator, count: int) -> Floats:
    """Return independent functions of the true kernel at points (n, d), (count, n)."""
    points = torch.from_numpy(x)
    K = covariance_matrix(truth(), points, points)
    K.diagonal().mul_(1 + JITTER)
    found: Floats = torch.linalg.cholesky(K).numpy() @ rng.standard_normal((len(x), count))
    return found.T


def covariance_matrix(kernel: OneLayerKernel, a: Tensor, b: Tensor) -> Tensor:
    """Return k(a, b), (m, d), (n, d) -> (m, n), in blocks of rows with only one full matrix."""
    found = torch.empty(len(a), len(b), dtype=torch.float64)
    for start in range(0, len(a), 256):
        found[start : start + 256] = kernel(a[start : start + 256], b)
    return found


def exact_means(
    kernel: OneLayerKernel, noise_var: float, x: Floats, y: Floats, new: Floats
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


def kernel_errors(found: OneLayerKernel, scale: float, x: Floats) -> tuple[float, float]:
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

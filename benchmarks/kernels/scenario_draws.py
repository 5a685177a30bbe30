"""Inputs and functions of the simulation study of Mixed, section 5.1, and exact predictions.

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes". Functions are drawn from the mixed kernel by Vecchia's approximation.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.trial import Floats
from geogp.models.bases.kernels import MixedKernel
from geogp.models.field.vecchia import NO_ROW, whiten

Indices = NDArray[np.int64]

NUGGET = 0.04
"""Noise variance divided by the mean of k(x, x) (Mixed equation (25))."""

JITTER = 1e-9
"""Relative jitter of the covariances that are factorised."""

BLOCK_VALUES = 2_000_000
"""Approximate number of covariance values in memory at a time."""

SQUARE_RANGE = (1 / 12, 7 / 12)
"""Range of 4 E x_j² in the stratified design; the mean, 1/3, is that of the uniform design."""

POLES = 8

NEAREST = 30
"""Nearest earlier points that condition each point in addition to the first points."""


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


def near_earlier(x: Floats, m: int) -> Indices:
    """Return the nearest earlier points of each point, at most m, (n, m), filled with `NO_ROW`.

    The distance is Euclidean. The first m + 1 points have all earlier points.
    """
    n = len(x)
    found = np.full((n, m), NO_ROW)
    points = torch.from_numpy(x).float()
    squares = points.square().sum(1)
    for start in range(1, n, 512):
        stop = min(n, start + 512)
        distance = squares[:stop] - 2 * points[start:stop] @ points[:stop].T
        distance[torch.arange(stop) >= torch.arange(start, stop)[:, None]] = torch.inf
        count = min(m, stop - 1)
        nearest = distance.topk(count, largest=False)
        taken = torch.where(nearest.values.isinf(), NO_ROW, nearest.indices)
        found[start:stop, :count] = taken.numpy()
    return found


@dataclass(frozen=True)
class Vecchia:
    """A Gaussian process at n points, given by its conditional distributions (Vecchia 1988).

    Every point is conditioned on the first p points, which are drawn exactly, and on the m nearest
    of the other earlier points. The first points are needed because with many inputs kernels of
    networks vary so slowly that near points alone have little information. With phi = L^(-1) k_Z
    for the first p points Z,

    f_i = <phi_i, w> + r_i,  r_i = <weights_i, r[earlier_i]> + sd_i z_i,

    where w and z are standard normal and the weights are those of k(x, x') - <phi, phi'>.
    """

    phi: Floats  # (n, p)
    earlier: Indices  # neighbours of the points after the first p, counted from p, (n - p, m)
    weights: Floats  # weights of these neighbours, 0 for `NO_ROW`
    sd: Floats  # conditional standard deviations, (n,)

    @classmethod
    def of(cls, kernel: MixedKernel, x: Floats, m: int, shared: int = 0) -> "Vecchia":
        """Condition each point (n, d) on the first `shared` and the m nearest earlier points."""
        points = torch.from_numpy(x)
        L, phi = shared_features(kernel, points, shared)
        earlier = near_earlier(x[shared:], m)
        weights, sd = conditionals(kernel, points[shared:], phi, earlier)
        both = torch.cat([L, phi]).numpy()
        return cls(both, earlier, weights, np.append(L.diagonal().numpy(), sd))

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Return independent functions at the points, (count, n)."""
        n, p = self.phi.shape
        w, z = rng.standard_normal((p, count)), rng.standard_normal((n - p, count))
        r, sd = np.zeros((n - p, count)), self.sd[p:]
        for i in range(n - p):
            r[i] = self.weights[i] @ r[self.earlier[i]] + sd[i] * z[i]
        f = self.phi @ w
        f[p:] += r
        return f.T

    def covariance(self) -> Floats:
        """Return the covariance of the conditional distributions, (n, n); for few points."""
        n, p = self.phi.shape
        unit = np.eye(n - p)
        for i in range(n - p):
            known = self.earlier[i] != NO_ROW
            unit[i, self.earlier[i][known]] = -self.weights[i][known]
        root = np.linalg.solve(unit, np.diag(self.sd[p:]))
        found: Floats = self.phi @ self.phi.T
        found[p:, p:] += root @ root.T
        return found


def shared_features(kernel: MixedKernel, x: Tensor, shared: int) -> tuple[Tensor, Tensor]:
    """Return L, (p, p), of the first p points and L^(-1) k_Z of the others, (n - p, p)."""
    first, rest = x[:shared], x[shared:]
    K = covariance_matrix(kernel, first, first)
    K.diagonal().mul_(1 + JITTER)
    L = torch.linalg.cholesky(K)
    across = covariance_matrix(kernel, first, rest)
    return L, torch.linalg.solve_triangular(L, across, upper=False).T.contiguous()


def covariance_matrix(kernel: MixedKernel, a: Tensor, b: Tensor) -> Tensor:
    """Return k(a, b), (m, d), (n, d) -> (m, n), in blocks of rows with only one full matrix."""
    found = torch.empty(len(a), len(b), dtype=torch.float64)
    for start in range(0, len(a), 256):
        found[start : start + 256] = kernel(a[start : start + 256], b)
    return found


def conditionals(
    kernel: MixedKernel, x: Tensor, phi: Tensor, earlier: Indices
) -> tuple[Floats, Floats]:
    """Return weights (n, m) and standard deviations (n,) of points given `earlier`.

    The weights are those of the process with covariance k - <phi, phi'>, for points (n, d),
    features (n, p) and neighbours (n, m).
    """
    count, m = len(x), earlier.shape[1]
    weights, sd = np.zeros((count, m)), np.zeros(count)
    step = max(1, BLOCK_VALUES // ((m + 1) * max(m + 1, phi.shape[1])))
    for part in range(0, len(x), step):
        near = torch.from_numpy(earlier[part : part + step])
        known, at = near != NO_ROW, near.clamp(min=0)
        own, others = x[part : part + step, None], x[at]
        u, v = phi[part : part + step, None], phi[at]
        K = covariances_of(kernel, others, others)
        jitter = JITTER * K.diagonal(dim1=1, dim2=2)
        cross = covariances_of(kernel, others, own) - v @ u.mT
        L, half = whiten(K - v @ v.mT, jitter, known, cross)
        solved = torch.linalg.solve_triangular(L.mT, half, upper=True)[..., 0]
        variance = covariances_of(kernel, own, own)[:, 0, 0] * (1 + JITTER)
        left = variance - u.square().sum((1, 2)) - half.square().sum((1, 2))
        at_once = slice(part, part + step)
        weights[at_once] = torch.where(known, solved, 0.0).numpy()
        sd[at_once] = left.sqrt().numpy()
    return weights, sd


def covariances_of(kernel: MixedKernel, a: Tensor, b: Tensor) -> Tensor:
    """Return k(a, b) for stacks of points, (s, m, d), (s, k, d) -> (s, m, k), float64."""
    bias, weight = kernel.log_hidden_bias.double().exp(), kernel.log_hidden_weight.double().exp()
    k11 = bias + weight * a.square().sum(2)[:, :, None]
    k22 = bias + weight * b.square().sum(2)[:, None]
    return kernel.through(k11, bias + weight * a @ b.mT, k22)


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

"""Features from inducing points of an RBF kernel, with a backward pass written by hand.

k(a, b) = s² exp(-½ Σ_j (a_j - b_j)² / l_j²) and phi(x) = L^(-1) k_Z(x) with L L' = k_ZZ + jitter.
Let g be the gradient by phi, with one row per data row. Let tri(A) be the lower triangle of A with
half of A's diagonal, and sym(A) the symmetric part of A. The gradients by k_xZ and k_ZZ are

g L^(-1)   and   -sym(L^(-T) tri(g' phi) L^(-1)) = -½ L^(-T) S L^(-1)

(Murray 2016, "Differentiation of the Cholesky decomposition", applied to L^(-1) k_Zx). Here S is
the symmetric matrix with the lower triangle of g' phi. In the first form for k_ZZ, the asymmetric
part is far larger than the rest. The second form has no asymmetric part, so float32 suffices. The
jitter is proportional to s². So phi is proportional to s, and its derivative by log s² is ½ phi.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geogp.models.numerics.elementwise import exponential_
from geogp.models.numerics.linalg import jittered_inverse_cholesky
from geogp.models.numerics.products import (
    congruence,
    lower_of_product,
    mirrored,
    squared_norms,
    times_lower,
    times_lower_transposed,
)

NARROW = 16
"""If a matrix has fewer columns than this, the product of the transposes is faster."""


def rbf(A: Tensor, B: Tensor, variance: Tensor) -> Tensor:
    """Return the RBF kernel, (a, b), of rows (a, d) and (b, d) divided by the lengthscales.

    The exponents a·b - ½||a||² - ½||b||² + log variance are one matrix product of A and B, each
    with two more columns. The rounding error of this product grows with ||b||², so the mean of B is
    subtracted from all rows.
    """
    centre = B.detach().mean(0)
    return exponential_(left_side(A, centre, variance) @ right_side(B, centre).T)


def left_side(A: Tensor, centre: Tensor, variance: Tensor) -> Tensor:
    """Return the left factor of the exponents of `rbf`, (a, d + 2)."""
    A, ones = A - centre, A.new_ones(len(A), 1)
    return torch.cat([A, torch.add(variance.log(), squared_norms(A)[:, None], alpha=-0.5), ones], 1)


def right_side(B: Tensor, centre: Tensor) -> Tensor:
    """Return the right factor of the exponents of `rbf`, (b, d + 2)."""
    B = B - centre
    return torch.cat([B, B.new_ones(len(B), 1), -0.5 * squared_norms(B)[:, None]], 1)


@dataclass(frozen=True)
class Whitening:
    """A kernel, and the inverse Cholesky factor of its matrix at the inducing points, in float64.

    `Z`, `lengthscale`, `variance`: inducing points divided by the lengthscales (r, h); lengthscales
        (h,); s², a scalar.
    `Kzz`: the kernel among inducing points without jitter, (r, r).
    `inverse`: L^(-1), (r, r).
    `jitter`: the jitter used, relative to s².
    """

    Z: Tensor
    lengthscale: Tensor
    variance: Tensor
    Kzz: Tensor
    inverse: Tensor
    jitter: float

    @classmethod
    def of(
        cls, anchors: Tensor, log_lengthscale: Tensor, log_variance: Tensor, jitter: float
    ) -> "Whitening":
        """Factorise the kernel at inducing points (r, h); the first relative jitter is `jitter`.

        Raises NumericalError if the matrix does not factorise; see `jittered_cholesky`.
        """
        return cls.with_rows(anchors[:0], anchors, log_lengthscale, log_variance, jitter)[0]

    @classmethod
    def with_rows(
        cls,
        rows: Tensor,
        anchors: Tensor,
        log_lengthscale: Tensor,
        log_variance: Tensor,
        jitter: float,
    ) -> tuple["Whitening", Tensor, Tensor]:
        """Return also rows (b, h) and inducing points, scaled, and their kernel with the points.

        The other results are (b + r, h) and (b + r, r); all kernels come from one product.
        """
        lengthscale, variance = log_lengthscale.double().exp(), log_variance.double().exp()
        scaled = torch.cat([rows.double(), anchors.double()]) / lengthscale
        Z = scaled[len(rows) :]
        K = rbf(scaled, Z, variance)
        Kzz = K[len(rows) :]
        inverse, used = jittered_inverse_cholesky(Kzz, jitter)
        return cls(Z, lengthscale, variance, Kzz, inverse, used), scaled, K

    def cross(self, X: Tensor) -> Tensor:
        """Return k_xZ, (b, r) float64, for rows (b, h) divided by the lengthscales."""
        return rbf(X, self.Z, self.variance)


class _Features(torch.autograd.Function):
    """phi and its squared norms; see `rbf_features`.

    The forward pass is in float64: if inducing points are close to each other, L^(-1) multiplies
    rounding errors of k_xZ by a thousand. In the backward pass, all matrices have the dtype of the
    rows.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        rows, anchors, log_lengthscale, log_variance, _ = inputs
        white, scaled, K = Whitening.with_rows(*inputs)
        exact = times_lower_transposed(K[: len(rows)], white.inverse)
        phi, norm = exact.to(rows.dtype), squared_norms(exact)
        kept = (array.to(rows.dtype) for array in (scaled - white.Z.mean(0), K))
        ctx.white, ctx.dtypes = white, (anchors.dtype, log_lengthscale.dtype, log_variance.dtype)
        ctx.save_for_backward(phi, *kept)
        ctx.set_materialize_grads(False)
        return phi, norm

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_phi, by_norm = gradients
        phi, A, K = ctx.saved_tensors
        white: Whitening = ctx.white
        b = len(phi)
        g = torch.zeros_like(phi) if by_phi is None else by_phi
        if by_norm is not None:
            g = torch.addcmul(g, phi, 2 * by_norm.to(phi.dtype)[:, None])
        inverse = white.inverse.to(phi.dtype)
        by_exponent = torch.empty_like(K)
        times_lower(g, inverse, by_exponent[:b])
        congruence(mirrored(lower_of_product(g, phi)), inverse, by_exponent[b:]).mul_(-0.5)
        by_A, by_Z = _by_rows(by_exponent.mul_(K), A, A[b:])
        by_A[b:] += by_Z
        by_log_lengthscale = -(by_A * A).sum(0)
        by_rows = by_A / white.lengthscale
        dtypes = ctx.dtypes
        return (
            by_rows[:b].to(phi.dtype) if ctx.needs_input_grad[0] else None,
            by_rows[b:].to(dtypes[0]),
            by_log_lengthscale.to(dtypes[1]),
            0.5 * torch.linalg.vecdot(g, phi).double().sum().to(dtypes[2]),
            None,
        )


def _by_rows(by_exponent: Tensor, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of exponents -½||A_i - B_j||² by A and B, from G (a, b).

    G is the gradient by the exponents, and A (a, h), B (b, h) are rows. The results are G B -
    rowsum(G) A and G'A - colsum(G) B.
    """
    # With few columns, the product of transposes is far faster.
    narrow = A.shape[1] < NARROW
    onto_a, onto_b = by_exponent @ B, (A.T @ by_exponent).T if narrow else by_exponent.T @ A
    onto_a.addcmul_(A, by_exponent.sum(1)[:, None], value=-1)
    onto_b.addcmul_(B, by_exponent.sum(0)[:, None], value=-1)
    return onto_a, onto_b


def rbf_features(
    rows: Tensor, anchors: Tensor, log_lengthscale: Tensor, log_variance: Tensor, jitter: float
) -> tuple[Tensor, Tensor]:
    """Return phi(x) = L^(-1) k_Z(x), (b, r), and ||phi||², (b,) float64.

    `rows` (b, h) are inputs or features of a network; `anchors` (r, h) are inducing points. The
    other arguments are log l (h,), log s² and the relative jitter of k_ZZ. Raises NumericalError if
    k_ZZ does not factorise.
    """
    phi, norm = _Features.apply(rows, anchors, log_lengthscale, log_variance, jitter)  # type: ignore[no-untyped-call]
    return phi, norm

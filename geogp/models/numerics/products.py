"""Products with triangular matrices, in blocks of columns.

Products with triangular matrices take most of the time of a training step. Half of a triangular
matrix is zeros. Blocks of 192 columns (six blocks at r = 1024) need only 3/5 of the operations, and
the library is about as fast as for whole matrices. All matrices are row-major and stay row-major,
because elementwise operations that mix both memory layouts take ten times as long. On a GPU, one
large product is faster than several small ones, so there is only one block.
"""

from typing import Any

import torch
from torch import Tensor

from geogp.models.numerics.threads import chunks

BLOCK = 192
"""Columns per block on a CPU; narrower blocks are slow, and wider blocks include many zeros."""


def slices(r: int, device: torch.device) -> list[slice]:
    """Return slices that divide r columns into the blocks for a device."""
    return chunks(r, BLOCK if device.type == "cpu" else r)


def times_lower(A: Tensor, L: Tensor, out: Tensor | None = None) -> Tensor:
    """Return A L, (b, r), for A (b, k) and L (k, r) with zeros above the diagonal, k >= r."""
    out = A.new_empty(len(A), L.shape[1]) if out is None else out
    for columns in slices(L.shape[1], L.device):
        torch.mm(A[:, columns.start :], L[columns.start :, columns], out=out[:, columns])
    return out


def times_lower_transposed(A: Tensor, L: Tensor, out: Tensor | None = None) -> Tensor:
    """Return A L', (b, r), for A (b, r) and lower triangular L (r, r)."""
    out = A.new_empty(A.shape) if out is None else out
    for rows in slices(len(L), L.device):
        torch.mm(A[:, : rows.stop], L[rows, : rows.stop].T, out=out[:, rows])
    return out


def lower_of_product(A: Tensor, B: Tensor) -> Tensor:
    """Return the lower triangle of A'B, (r, r), for A (b, r) and B (b, r)."""
    r = A.shape[1]
    out = A.new_zeros(r, r)
    # As A is transposed, tall blocks are a quarter faster than wide blocks.
    for columns in slices(r, A.device):
        torch.mm(A[:, columns.start :].T, B[:, columns], out=out[columns.start :, columns])
        out[columns, columns].tril_()
    return out


def mirrored(A: Tensor) -> Tensor:
    """Copy the lower triangle of A (r, r) onto the upper triangle, in place.

    The function copies blocks that fit into the cache.
    """
    blocks = slices(len(A), A.device)
    for i, rows in enumerate(blocks):
        square = A[rows, rows]
        square.tril_().add_(square.tril(-1).T)
        for columns in blocks[:i]:
            A[columns, rows] = A[rows, columns].T
    return A


def congruence(S: Tensor, L: Tensor, out: Tensor | None = None) -> Tensor:
    """Return L'S L for symmetric S and lower triangular L, (r, r)."""
    right = times_lower(S, L)
    out = S.new_empty(S.shape) if out is None else out
    blocks = slices(len(S), S.device)
    if len(blocks) == 1:
        return torch.mm(L.T, right, out=out)
    for columns in blocks:
        rows = slice(columns.start, None)
        torch.mm(L[rows, columns].T, right[rows, : columns.stop], out=out[columns, : columns.stop])
    return mirrored(out)


def squared_norms(rows: Tensor) -> Tensor:
    """Return ||row||², (b,), for each row of a matrix (b, r)."""
    return _SquaredNorms.apply(rows)  # type: ignore[no-untyped-call, no-any-return]


class _SquaredNorms(torch.autograd.Function):
    """Squared norms without a copy of the matrix, in the forward pass."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
        return norms.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        rows: Tensor = ctx.saved_tensors[0]
        return rows * (2 * gradient)[:, None]

"""Factorisations in float64; the jitter is an argument, and is reported."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from geogp.errors import NumericalError
from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.products import slices, times_lower, times_lower_transposed
from geogp.models.options import SINGLE

logger = logging.getLogger(__name__)

LARGEST_JITTER = 1e-2
"""Largest relative jitter that a factorisation tries."""

_DEFERRED = ContextVar("_DEFERRED", default=False)
"""Whether checks are deferred here; each thread has its own value."""


@contextmanager
def deferred_checks(*, defer: bool = True) -> Iterator[None]:
    """Defer the checks of values on a GPU inside the ``with`` block, so that no check waits for it.

    Where a check fails, the result is NaN. The caller must look for NaN, and can compute the result
    again without deferred checks, which raises the error or raises the jitter.
    """
    token = _DEFERRED.set(defer)
    try:
        yield
    finally:
        _DEFERRED.reset(token)


def is_deferred(values: Tensor) -> bool:
    """Return whether checks of `values` are deferred."""
    return _DEFERRED.get() and values.device.type != "cpu"


def jittered_cholesky(K: Tensor, jitter: float) -> tuple[Tensor, float]:
    """Return the lower factor L (r, r) of K + jitter mean(diag K) I, float64, and the jitter.

    Each time the factorisation fails, the jitter is multiplied by 10 and a warning is logged.
    Raises NumericalError if K is not finite, or needs a relative jitter above 1e-2. If checks are
    deferred, there is one attempt; see `deferred_checks`.
    """
    return _with_jitter(K, jitter, torch.linalg.cholesky_ex)


def jittered_inverse_cholesky(K: Tensor, jitter: float) -> tuple[Tensor, float]:
    """Return L^(-1), (r, r) row-major, for the L of `jittered_cholesky`, and the jitter.

    L^(-1) has no gradient; products with it are faster than triangular solves.
    """
    return _with_jitter(K, jitter, inverse_cholesky)


def inverse_cholesky(K: Tensor) -> tuple[Tensor, Tensor]:
    """Return L^(-1), (r, r) row-major, for K = L L', and a code, which is 0 if L exists.

    K is halved recursively: with K = [A B'; B C] and A = M M', L = [M 0; B M^(-T) N] where N N' = C
    - (B M^(-T)) (B M^(-T))', and L^(-1) = [M^(-1) 0; -N^(-1) B M^(-T) M^(-1) N^(-1)]. Most
    operations are matrix products; they are several times faster than PyTorch's own Cholesky. The
    lower triangle of K is overwritten.
    """
    blocks = slices(len(K), K.device)
    if len(blocks) == 1:
        return _inverse_of_block(K)
    out = torch.zeros_like(K)
    return out, _fill_inverse(K, out, blocks)


def _inverse_of_block(K: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of `inverse_cholesky` without recursion."""
    L, info = torch.linalg.cholesky_ex(K)
    identity = torch.eye(len(L), dtype=L.dtype, device=L.device)
    # Solve for the transpose, because PyTorch returns a column-major result.
    return torch.linalg.solve_triangular(L.T, identity, upper=True).T, info


def _fill_inverse(K: Tensor, out: Tensor, blocks: list[slice]) -> Tensor:
    """Write the inverse factor of `blocks`, a part of K, into `out`; return 0 on success."""
    whole = slice(blocks[0].start, blocks[-1].stop)
    if len(blocks) == 1:
        out[whole, whole], info = _inverse_of_block(K[whole, whole])
        return info
    middle = len(blocks) // 2
    start = blocks[middle].start
    first, second = slice(whole.start, start), slice(start, whole.stop)
    info = _fill_inverse(K, out, blocks[:middle])
    inverse = out[first, first]
    below = times_lower_transposed(K[second, first], inverse)
    for rows in blocks[middle:]:
        upto = below[: rows.stop - start]
        K[rows, start : rows.stop].addmm_(upto[rows.start - start :], upto.T, alpha=-1)
    info = torch.maximum(info, _fill_inverse(K, out, blocks[middle:]))
    below = times_lower(below, inverse)
    for rows in blocks[middle:]:
        torch.mm(out[rows, start : rows.stop], below[: rows.stop - start], out=out[rows, first])
    out[second, first].neg_()
    return info


def _with_jitter(
    K: Tensor, jitter: float, factorise: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, float]:
    assert K.dtype == torch.float64 or current_precision() == SINGLE, "double precision is needed"
    scale = K.diagonal().mean()
    used = jitter
    while True:
        factor, info = factorise(K.diagonal_scatter(torch.add(K.diagonal(), scale, alpha=used)))
        if is_deferred(K):
            return torch.where(info == 0, factor, torch.nan), used
        # One transfer from the device has both. If the sum is finite, all values are finite.
        failed, finite = torch.stack([info, torch.isfinite(K.sum()).to(info)]).tolist()
        # A sum of finite values may overflow, so then the values are checked one by one.
        if not finite and not bool(torch.isfinite(K).all()):
            raise NumericalError(
                "a kernel matrix contains values that are not finite; the fit has diverged. "
                "Lower the learning rate or check the inputs."
            )
        if not failed:
            return factor, used
        used = 10 * max(used, 1e-9)
        if used > LARGEST_JITTER * (1 + 1e-9):
            raise NumericalError(
                f"a kernel matrix of {len(K)} inducing points does not factorise with a relative "
                f"jitter of {LARGEST_JITTER:g}; points coincide or the kernel has collapsed. "
                "Use fewer inducing points or another seed."
            )
        logger.warning("kernel matrix not positive definite: relative jitter raised to %g", used)

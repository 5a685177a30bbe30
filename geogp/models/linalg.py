"""Factorisations in float64 with an explicit, reported jitter."""

import logging

import torch
from torch import Tensor

from geogp.errors import NumericalError

logger = logging.getLogger(__name__)

LARGEST_JITTER = 1e-2
"""Relative jitter beyond which a matrix counts as broken."""


def jittered_cholesky(K: Tensor, jitter: float) -> tuple[Tensor, float]:
    """Factorise K + jitter * mean(diag K) * I in float64.

    The jitter is raised by tens, with a logged warning, while the factorisation fails.

    Parameters
    ----------
    K
        Symmetric positive semi-definite matrix, shape (r, r), dtype float64.
    jitter
        Relative to the mean of the diagonal; 0 is allowed.

    Returns
    -------
    L, used
        Lower Cholesky factor (r, r) and the relative jitter it was made with.

    Raises
    ------
    NumericalError
        The matrix is not finite, or needs a relative jitter above 1e-2.
    """
    assert K.dtype == torch.float64, "factorisations run in float64"
    scale = K.diagonal().mean()
    if not bool(torch.isfinite(K).all()):
        raise NumericalError(
            "a kernel matrix holds values that are not finite; the fit has diverged. "
            "Lower the learning rate or check the inputs."
        )
    used = jitter
    while True:
        # `diag_embed` of the added diagonal keeps the graph; in-place edits would break it.
        added = K + used * scale * torch.eye(len(K), dtype=K.dtype, device=K.device)
        L, info = torch.linalg.cholesky_ex(added)
        if int(info) == 0:
            return L, used
        used = 10 * max(used, 1e-9)
        if used > LARGEST_JITTER * (1 + 1e-9):
            raise NumericalError(
                f"a kernel matrix of {len(K)} inducing points does not factorise with a relative "
                f"jitter of {LARGEST_JITTER:g}; points coincide or the kernel has collapsed. "
                "Use fewer inducing points or another seed."
            )
        logger.warning("kernel matrix not positive definite: relative jitter raised to %g", used)

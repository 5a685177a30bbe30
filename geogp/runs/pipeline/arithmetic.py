"""Temporary settings for computations: denormal numbers, and the number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.precision import precision as computing_in
from geogp.models.numerics.trees import denormals_are_flushed


@contextmanager
def arithmetic(threads: int | None = None, *, precision: str | None = None) -> Iterator[None]:
    """Set the precision and PyTorch's number of threads, and flush denormal numbers to zero.

    This holds inside the ``with`` block; see `geogp.precision`. Flushing saves time. If `threads`
    is None, the number of threads stays the same.
    """
    flushed = denormals_are_flushed()
    before = torch.get_num_threads()
    torch.set_flush_denormal(True)
    try:
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        with computing_in(precision or current_precision()):
            yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)

"""Temporary settings for computations: denormal numbers, and the number of threads."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.precision import precision as computing_in


@contextmanager
def arithmetic(threads: int | None = None, *, precision: str | None = None) -> Iterator[None]:
    """Set the precision and PyTorch's number of threads, and flush denormal numbers to zero.

    This holds inside the ``with`` block; see `geogp.precision`. Flushing saves time. If `threads`
    is None, the number of threads stays the same.
    """
    flushed = sys.float_info.min / 2 == 0  # PyTorch has no function that returns this setting
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

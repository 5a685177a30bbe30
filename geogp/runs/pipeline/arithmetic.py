"""Temporary settings for computations: denormal numbers, and the number of threads."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(threads: int | None = None) -> Iterator[None]:
    """Flush denormal numbers to zero, and set PyTorch's number of threads, in a ``with`` block.

    Flushing saves time. If `threads` is None, the number of threads stays the same.
    """
    flushed = sys.float_info.min / 2 == 0  # PyTorch has no function that returns this setting
    before = torch.get_num_threads()
    torch.set_flush_denormal(True)
    try:
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)

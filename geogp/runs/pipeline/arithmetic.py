"""The processor's arithmetic while geogp computes; everything is put back at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(threads: int | None = None) -> Iterator[None]:
    """Flush denormal numbers to zero, which is fast, and set the threads of PyTorch.

    Sums depend on the number of threads; None keeps it.
    """
    flushed = sys.float_info.min / 2 == 0  # PyTorch does not say
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

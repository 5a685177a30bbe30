"""How the processor computes while geogp does; everything is put back at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(threads: int | None = None) -> Iterator[None]:
    """Flush denormal numbers to zero, which is quick, and compute with so many threads.

    Parameters
    ----------
    threads
        Of PyTorch, which sums in parts of them; None leaves their number.
    """
    flushed, before = _flushes(), torch.get_num_threads()
    torch.set_flush_denormal(True)
    try:
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)


def _flushes() -> bool:
    """Tell whether this thread flushes denormal numbers to zero: PyTorch does not say."""
    return sys.float_info.min / 2 == 0

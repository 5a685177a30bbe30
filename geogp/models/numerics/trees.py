"""Search trees of points, also where denormal numbers are flushed to zero."""

import sys

import torch
from scipy.spatial import KDTree

from geogp.arrays import Floats


def denormals_are_flushed() -> bool:
    """Return whether this thread flushes denormal numbers; PyTorch has no function for this."""
    return sys.float_info.min / 2 == 0


def tree_of(points: Floats, *, balanced: bool = True) -> KDTree:
    """Return the search tree of points (n, d); if not `balanced`, it is built faster.

    SciPy divides points whose median is their smallest value by the next larger number. After 0
    this is a denormal number. Where it counts as 0, no point is below it, and the division goes on
    until the stack is full. So denormal numbers are kept here.
    """
    flushed = denormals_are_flushed()
    torch.set_flush_denormal(False)
    try:
        return KDTree(points, balanced_tree=balanced, compact_nodes=balanced)
    finally:
        torch.set_flush_denormal(flushed)

"""Elementwise operations that the library is slow at for some values."""

import torch
from torch import Tensor

FLOORS = {torch.float64: -700.0, torch.float32: -85.0}
"""Exponents whose exponential is still a normal number."""


def exponential_(exponents: Tensor) -> Tensor:
    """Return the exponential of each element, in place.

    Where it would be denormal or 0, the library takes 5 to 45 times as long, flushed or not: below
    -700, or -85 in float32, it is that of the bound, 1e-304 or 1e-37.
    """
    return exponents.clamp_(min=FLOORS[exponents.dtype]).exp_()

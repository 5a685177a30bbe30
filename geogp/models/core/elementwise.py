"""The exponential without slow denormal numbers."""

import torch
from torch import Tensor

FLOORS = {torch.float64: -700.0, torch.float32: -85.0}
"""Exponents whose exponential is still a normal number."""


def exponential_(exponents: Tensor) -> Tensor:
    """Return the exponential of each element, computed in place; autograd works through it.

    PyTorch takes 5 to 45 times as long if the result is denormal or 0. So exponents are clamped to
    at least -700, or -85 in float32, and the smallest results are 1e-304 or 1e-37.
    """
    return exponents.clamp_(min=FLOORS[exponents.dtype]).exp_()

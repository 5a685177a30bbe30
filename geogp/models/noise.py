"""Noise laws: the variance of a measurement around the function."""

import math

import torch
from torch import Tensor, nn

NOISE_FLOOR = 1e-6
"""Smallest noise variance (DBK appendix B), in the unit of the standardised target."""


class ConstantNoise(nn.Module):
    """One noise variance for all measurements, at least 1e-6; starts at 1e-2 (DBK)."""

    def __init__(self, dtype: torch.dtype, start: float = 1e-2) -> None:
        super().__init__()
        self.log_excess = nn.Parameter(torch.tensor(math.log(start - NOISE_FLOOR), dtype=dtype))

    def forward(self) -> Tensor:
        """Return the noise variance, a scalar."""
        return NOISE_FLOOR + self.log_excess.exp()

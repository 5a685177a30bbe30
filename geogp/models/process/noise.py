"""Noise models: the variance of a measurement around the function."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

NOISE_FLOOR = 1e-6
"""Smallest noise variance (DBK appendix B), for a standardised target."""

NOISE_START = 1e-2
"""Start value of the noise variance in the papers (DBK appendix B)."""


class Noise(nn.Module, ABC):
    """Interface of a noise model."""

    @abstractmethod
    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the variance of measurements: a scalar, or (b,) if it differs between rows.

        `phi` (b, r) are features, for noise that varies with the inputs. `counts` (b, 2) are the
        tests and devices of each measurement, for noise that depends on these counts.
        """

    def update_closed_forms(self, squared_errors: Iterable[Tensor]) -> None:
        """Learn from chunks of squared errors of validation rows; by default, do nothing."""


class ConstantNoise(Noise):
    """One noise variance for all measurements, at least 1e-6."""

    def __init__(self, dtype: torch.dtype, start: float = NOISE_START) -> None:
        super().__init__()
        self.log_excess = nn.Parameter(torch.tensor(math.log(start - NOISE_FLOOR), dtype=dtype))

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the noise variance, a scalar."""
        return NOISE_FLOOR + self.log_excess.exp()


class ValidationNoise(Noise):
    """The mean squared error of the validation rows, at least 1e-6; at the beginning `start`.

    This class is for models whose objective does not contain the noise variance.
    """

    variance: Tensor

    def __init__(self, dtype: torch.dtype, start: float = NOISE_START) -> None:
        super().__init__()
        self.register_buffer("variance", torch.tensor(start, dtype=dtype))

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the noise variance, a scalar."""
        return self.variance

    def update_closed_forms(self, squared_errors: Iterable[Tensor]) -> None:
        """Set the variance to the mean of the squared errors."""
        self.variance.copy_(torch.cat(list(squared_errors)).mean().clamp(min=NOISE_FLOOR))

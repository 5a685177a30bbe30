"""Prior variance at single points beyond ||phi(x)||².

Each law returns a variance (b,) of the function at single points, independent between points:
f(x) = m0 + <w, phi(x)> + r(x) with independent r (the reading of FITC in Quiñonero-Candela and
Rasmussen 2005, section 6). So it enters the level of each tile, every sum over tiles, and the
scatter of measured rows around <w, phi>. What a row at x tells about r(x) is not used, in
predictions neither. Inducing points miss variance that nearby tiles share; the variance of sums
that treat it as independent is too small.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn


class Norms(Protocol):
    """What a law may use of the features of points; see `Features`."""

    @property
    def norm(self) -> Tensor:
        """Prior variance of the basis, (b,)."""

    @property
    def residual(self) -> Tensor:
        """Prior variance that the basis misses, (b,)."""


class Diagonal(nn.Module):
    """The contract of a law; this one adds nothing (DBK: no term at prediction).

    `uses_norms` tells whether the added variance depends on the features.
    """

    uses_norms: ClassVar[bool] = False

    def forward(self, features: Norms) -> Tensor:
        """Return the added variance, (b,)."""
        return torch.zeros_like(features.norm)

    def update_closed_forms(self, features: Iterable[Norms]) -> None:
        """Learn from the features of the training rows in chunks; most laws need none."""


class NystromDiagonal(Diagonal):
    """k~(x, x) - ||phi(x)||²: the prior variance that inducing points miss (DBK equation 4)."""

    uses_norms = True

    def forward(self, features: Norms) -> Tensor:
        """Return the residual, (b,)."""
        return features.residual


class VarianceCorrection(Diagonal):
    """c(x, x) = max over training inputs and x of k(x', x') - k(x, x) (DBK-1, section 3.3).

    It makes the prior variance equal everywhere.
    """

    uses_norms = True
    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64))

    def forward(self, features: Norms) -> Tensor:
        """Return c(x, x), (b,), at least 0."""
        norm = features.norm.double()
        return torch.maximum(self.largest, norm) - norm

    def update_closed_forms(self, features: Iterable[Norms]) -> None:
        """Find the largest prior variance among the training inputs."""
        peaks = [part.norm.max().double() for part in features]
        self.largest.copy_(torch.stack(peaks).max())

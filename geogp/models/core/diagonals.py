"""What is added to the prior variance at single points beyond ||phi(x)||².

Each law returns a variance of shape (b,) that belongs to the function at a point and is shared
with no other point: f(x) = m0 + <w, phi(x)> + r(x), r independent between points (the reading of
FITC, Quiñonero-Candela and Rasmussen 2005, section 6). It is therefore part of the level of a
single tile and of every sum over tiles, and of what a measured row varies by around <w, phi>. What
a row at x tells of r(x) itself is not used, as the models' predictions do not use it. Inducing
points miss variance that near tiles share; sums that take it for independent are then too sure.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn


class Norms(Protocol):
    """What a law may use of the features of points; see `Features`."""

    @property
    def norm(self) -> Tensor:
        """The prior variance that the basis has, (b,)."""

    @property
    def residual(self) -> Tensor:
        """The prior variance that it misses, (b,)."""


class Diagonal(nn.Module):
    """What the model asks of a law; this one adds nothing (DBK: no term at prediction).

    `uses_norms` tells whether what it adds depends on the features at all.
    """

    uses_norms: ClassVar[bool] = False

    def forward(self, features: Norms) -> Tensor:
        """Return the added variance, (b,)."""
        return torch.zeros_like(features.norm)

    def settle(self, features: Iterable[Norms]) -> None:
        """Take the features of the training rows in chunks; most laws need none of them."""


class NystromDiagonal(Diagonal):
    """k~(x, x) - ||phi(x)||²: the prior variance that inducing points miss (DBK equation 4)."""

    uses_norms = True

    def forward(self, features: Norms) -> Tensor:
        """Return the residual, (b,)."""
        return features.residual


class VarianceCorrection(Diagonal):
    """c(x, x) = max over training inputs and x of k(x', x') - k(x, x) (DBK-1, section 3.3).

    It makes the prior variance the same everywhere.
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

    def settle(self, features: Iterable[Norms]) -> None:
        """Find the largest prior variance among the training inputs."""
        peaks = [part.norm.max().double() for part in features]
        self.largest.copy_(torch.stack(peaks).max())

"""Models of the prior variance that single points have in addition to ||phi(x)||².

Each model returns the variance (b,) of a term r(x) that is independent between points: f(x) = m0 +
<w, phi(x)> + r(x) (the interpretation of FITC in Quiñonero-Candela and Rasmussen 2005, section 6).
The term r is part of the level of each tile, of every sum over tiles, and of the scatter of
measured rows around <w, phi>. A prediction at x does not learn r(x) from a row at x. In reality,
nearby tiles share part of the variance that inducing points miss. Because r is independent between
tiles, the variance of sums over tiles is too small.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from geogp.models.process.basis_functions import Features
    from geogp.models.process.rbf_readers import Marginals


class Diagonal(nn.Module):
    """Interface of models of added variance; this class adds 0, as DBK does in predictions.

    `uses_norms` is true if the added variance depends on norm and residual of the features.
    """

    uses_norms: ClassVar[bool] = False

    def forward(self, features: "Features | Marginals") -> Tensor:
        """Return the added variance, (b,)."""
        return torch.zeros_like(features.norm)

    def of_rows(self, features: "Features") -> Tensor:
        """Return the added variance of training rows in the closed form, (b,); by default all."""
        return self(features)  # type: ignore[no-any-return]

    def update_closed_forms(self, features: Iterable["Features"]) -> None:
        """Learn from the features of the training rows, chunk by chunk; by default, do nothing."""


class NystromDiagonal(Diagonal):
    """k~(x, x) - ||phi(x)||²: the prior variance that inducing points miss (DBK equation 4)."""

    uses_norms = True

    def forward(self, features: "Features | Marginals") -> Tensor:
        """Return the residual, (b,)."""
        return features.residual


class PredictiveDiagonal(NystromDiagonal):
    """The residual of `NystromDiagonal` in predictions only; training rows have none.

    The variance of f at x is then k~(x, x) - ||phi||² + ||L' phi||², with L L' = (I + Phi' Phi /
    noise_var)^(-1). This is Mixed equation (24) with the whole k(x, x), and with Nyström's
    approximation of the other covariances; Quiñonero-Candela and Rasmussen (2005, section 5) call
    it the deterministic training conditional (DTC). It is also the posterior of the collapsed bound
    (Titsias 2009, equation 10), which penalises the residual of the training rows instead.
    """

    def of_rows(self, features: "Features") -> Tensor:
        """Return 0 for each row, (b,)."""
        return torch.zeros_like(features.norm)


class VarianceCorrection(Diagonal):
    """c(x, x) = max k(x', x') - k(x, x), for x' in x and training inputs (DBK-1, section 3.3).

    This correction makes the prior variance equal everywhere.
    """

    uses_norms = True
    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64))

    def forward(self, features: "Features | Marginals") -> Tensor:
        """Return c(x, x), (b,), at least 0."""
        norm = features.norm.double()
        return torch.maximum(self.largest, norm) - norm

    def update_closed_forms(self, features: Iterable["Features"]) -> None:
        """Find the largest prior variance among the training inputs."""
        self.largest.copy_(torch.stack([chunk.norm.max().double() for chunk in features]).max())

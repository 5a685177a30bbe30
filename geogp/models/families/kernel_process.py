"""Low-rank processes on Nyström features of a kernel with a few parameters."""

from typing import Any

from geogp.models.bases.nystrom import AnchorBasis
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.posteriors import ClosedFormPosterior


class KernelProcess(LowRankGP):
    """A process on an `AnchorBasis`, its posterior in closed form, with the mean of the targets."""

    basis: AnchorBasis
    posterior: ClosedFormPosterior

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        self.mean_constant.requires_grad = False

"""A row of the catalogue: the parts of a model and their makers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geogp.models.bases.basis_functions import Basis
from geogp.models.catalogue.model_names import MODELS, ModelName
from geogp.models.core.architecture import Architecture
from geogp.models.core.diagonals import Diagonal
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.noise import (
    ConstantNoise,
    Noise,
)
from geogp.models.core.options import Placement
from geogp.models.core.posteriors import (
    Posterior,
)
from geogp.models.training.steps import Step

MakeBasis = Callable[[Architecture, Tensor | None, Placement, torch.Generator], Basis]
MakePosterior = Callable[[int, torch.Generator, torch.dtype], Posterior]
MakeNoise = Callable[[torch.dtype, float], Noise]


@dataclass(frozen=True)
class ModelParts:
    """The parts of a model; see `LowRankGP`."""

    name: str
    architecture: Architecture
    basis: Basis
    posterior: Posterior
    noise: Noise
    diagonal: Diagonal


def plain_gp(
    parts: ModelParts,
    span: Tensor,  # noqa: ARG001
    kind: type[LowRankGP] = LowRankGP,
) -> LowRankGP:
    """Return the low-rank process of the papers, or one of a class with the same parts."""
    return kind(
        parts.name,
        parts.architecture,
        basis=parts.basis,
        posterior=parts.posterior,
        noise=parts.noise,
        diagonal=parts.diagonal,
    )


Assemble = Callable[[ModelParts, Tensor], LowRankGP]
"""Makes a model from the parts and half the range of each scaled input."""


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue.

    `name`: as on the command line.
    `basis`: makes the basis from sizes, scaled training inputs (None when a saved model is
        restored) and the placement of inducing points.
    `posterior`: makes the posterior over the weights.
    `step`: the objective of the training, and how its gradient is taken.
    `diagonal`: makes the law of variance at single points.
    `noise`: makes the noise law.
    `assemble`: puts the parts together.
    `student`: the step that trains it under Student-t noise; None where there is none.
    """

    name: str
    basis: MakeBasis
    posterior: MakePosterior
    step: Step[Any]
    diagonal: Callable[[], Diagonal] = Diagonal
    noise: MakeNoise = ConstantNoise
    assemble: "Assemble" = plain_gp
    student: Step[Any] | None = None

    @property
    def about(self) -> ModelName:
        """The user's description of it."""
        return MODELS[self.name]

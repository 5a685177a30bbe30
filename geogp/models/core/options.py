"""Names and weights that a user can choose, known without torch."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from geogp.errors import RequestError

NOISES = ("gaussian", "student-t")
"""Families of measurement noise; the first is the default of every model."""

Placement = Literal["kmeans", "kmeans++", "farthest", "pivoted", "first", "uniform"]
"""How inducing points are chosen; see `place_anchors`."""

PLACEMENTS: tuple[str, ...] = get_args(Placement)

Decay = Literal["cosine", "constant"]
Optimiser = Literal["adamw", "lbfgs"]

OFFSET = "log_exposure"
"""Input that models of counts add to the logarithm of the rate; no basis sees it."""

CANDIDATES = 2000
"""Tiles with an exactly computed gain when measurements are chosen, by default."""

OPTIMISERS: tuple[str, ...] = get_args(Optimiser)


@dataclass(frozen=True)
class Weights:
    """Weights of the regularisers: `alpha` of dPPGP's trace, `beta` of the KL in PPGP and dPPGP.

    Raises RequestError: a weight is negative or not finite.
    """

    alpha: float = 0.1
    beta: float = 0.01

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"expected a weight {name} of 0 or more, found {value}.")

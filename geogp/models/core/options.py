"""What models and fits can be asked for: names and weights, known without torch."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from geogp.errors import RequestError

NOISES = ("gaussian", "student-t")
"""Families of measurement noise; the first is that of every model unless another is asked for."""

Placement = Literal["kmeans", "kmeans++", "farthest", "pivoted", "first", "uniform"]
"""How inducing points are chosen; see `place_anchors`."""

PLACEMENTS: tuple[str, ...] = get_args(Placement)

Decay = Literal["cosine", "constant"]
Optimiser = Literal["adamw", "lbfgs"]

OFFSET = "log_exposure"
"""Name of the input that models of counts add to the logarithm of the rate; no basis sees it."""

CANDIDATES = 2000
"""Tiles whose gain is worked out exactly where measurements are chosen, unless asked otherwise."""

OPTIMISERS: tuple[str, ...] = get_args(Optimiser)


@dataclass(frozen=True)
class Weights:
    """Weights of the regularisers.

    `alpha` is that of the trace in dPPGP, `beta` that of the KL term in PPGP and dPPGP.

    Raises
    ------
    RequestError
        A weight is negative or not finite.
    """

    alpha: float = 0.1
    beta: float = 0.01

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"expected a weight {name} of 0 or more, found {value}.")

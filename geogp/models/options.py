"""Names and weights that a user can choose; this module does not import torch."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from geogp.errors import RequestError

NOISES = ("gaussian", "student-t")
"""Families of measurement noise; the first is the default of every model."""

DOUBLE = "double"
"""The default precision: kernels, factorisations and variances are in double precision."""

SINGLE = "single"
"""The precision for devices with few units for double precision."""

PRECISIONS = (DOUBLE, SINGLE)
"""Precisions of computations; see `geogp.precision`."""

Placement = Literal["kmeans", "kmeans++", "farthest", "pivoted", "first", "uniform"]
"""How inducing points are chosen; see `place_anchors`."""

PLACEMENTS: tuple[str, ...] = get_args(Placement)
"""The names of `Placement`, for checks of a user's choice."""

Decay = Literal["cosine", "constant"]
"""How the learning rate changes over the epochs; see `FitSettings`."""

Optimiser = Literal["adamw", "lbfgs"]
"""The optimisers of a fit; see `FitSettings`."""

OPTIMISERS: tuple[str, ...] = get_args(Optimiser)
"""The names of `Optimiser`, for checks of a user's choice."""

OFFSET = "log_exposure"
"""Input column that models of counts add to the log rate; no basis uses this column."""

CANDIDATES = 1000
"""Default largest number of tiles whose gain is computed exactly, for a choice of measurements."""


@dataclass(frozen=True)
class Weights:
    """Weights of regularisers: `alpha` for the trace of dPPGP, `beta` for the KL of PPGP and dPPGP.

    Raises RequestError if a weight is negative or not finite.
    """

    alpha: float = 0.1
    beta: float = 0.01

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"expected a weight {name} of 0 or more, found {value}.")

"""The settings of training, such as epochs, batches and learning rates."""

import math
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from geogp.errors import RequestError
from geogp.models.options import OPTIMISERS, Decay, Optimiser, Weights


@dataclass(frozen=True)
class FitSettings:
    """Settings of training.

    `epochs`, `batch`: passes over the training rows, and rows per step.
    `optimiser`: ``adamw``, or ``lbfgs`` for objectives over all rows. ``lbfgs`` has a strong Wolfe
        line search and ten iterations per epoch, and ignores rates, decay and clip.
    `learning_rate`: initial learning rate of AdamW.
    `decay`: with ``cosine``, the learning rate falls to zero over the epochs.
    `head_rate`, `noise_rate`: multiples of the network's learning rate. `head_rate` is for the
        posterior and the kernel, `noise_rate` (by default `head_rate`) for the noise model. If the
        noise falls faster than the mean is learned, PPGP and dPPGP become overconfident.
    `clip`: largest norm of the gradient in a step, or None.
    `average`: if above 0, the number of epochs in an exponential average of the parameters, which
        is validated and stored.
    `weight_decay`: weight decay of the network; other parameters have none.
    `weights`: alpha and beta of PPGP and dPPGP.
    `solve_mean`: at the end, replace the mean of the weights by its closed form, if that lowers the
        validation score. `solve_mean` needs a `VariationalPosterior`, trained by batches.
    `patience`: stop after this number of epochs without a better validation score, or None.
    `seed`: fixes the order of the rows in every epoch.

    Raises RequestError if a value is out of range.
    """

    epochs: int
    batch: int = 1024
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-3
    decay: Decay = "cosine"
    head_rate: float = 1.0
    noise_rate: float | None = None
    clip: float | None = None
    average: float = 0.0
    weight_decay: float = 1e-2
    weights: Weights = field(default_factory=Weights)
    solve_mean: bool = False
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {"epochs": self.epochs, "batch": self.batch, "patience": self.patience or 1}
        positive = {"learning_rate": self.learning_rate, "clip": self.clip or math.inf}
        rates = {"head_rate": self.head_rate, "noise_rate": self.noise_rate or 0.0}
        other = {"average": self.average, "weight_decay": self.weight_decay, "seed": self.seed}
        faults = [
            *(f"{k} {v}" for k, v in whole.items() if not isinstance(v, int | np.integer) or v < 1),
            *(f"{k} {v}" for k, v in positive.items() if not v > 0),
            *(f"{k} {v}" for k, v in {**rates, **other}.items() if not 0 <= v < math.inf),
            *([f"clip {self.clip}"] if self.clip == 0 else []),
            *([f"patience {self.patience}"] if self.patience == 0 else []),
            *([f"decay {self.decay!r}"] if self.decay not in get_args(Decay) else []),
            *([f"optimiser {self.optimiser!r}"] if self.optimiser not in OPTIMISERS else []),
        ]
        if faults:
            raise RequestError(
                "expected epochs, batch and patience as whole numbers of 1 or more; learning_rate "
                "and clip above 0; the other rates, average, weight_decay and seed of 0 or more; "
                f"a decay of {' or '.join(get_args(Decay))} and an optimiser of "
                f"{' or '.join(OPTIMISERS)}; found {', '.join(faults)}."
            )

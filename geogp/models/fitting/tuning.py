"""Search for the weights alpha and beta with the best validation log score."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from geogp.errors import NumericalError
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import Progress, fit
from geogp.models.names import find_model
from geogp.models.options import Weights
from geogp.models.process.data import Data
from geogp.models.process.process import Process

GRID = (0.0, 0.01, 0.1, 1.0)
"""The values of each weight that the search tries (DBK appendix B.2)."""

TUNING_EPOCHS = 60
"""Number of epochs of each fit in the search."""


@dataclass(frozen=True)
class Trial:
    """A pair of weights, its best validation log score (inf if the fit diverged), and the time."""

    weights: Weights
    nll: float
    seconds: float = field(default=0.0, compare=False)


def grid(model: str) -> list[Weights]:
    """Return the pairs of weights to try; each weight that the objective uses varies over `GRID`.

    Raises RequestError if the model is unknown.
    """
    names = find_model(model).uses
    if not names:
        return []
    values = product(GRID, repeat=len(names))
    return [Weights(**dict(zip(names, pair, strict=True))) for pair in values]


def choose_weights(
    make: Callable[[], Process],
    train: Data,
    validation: Data,
    settings: FitSettings,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[Trial], None] = lambda _trial: None,
) -> list[Trial]:
    """Fit a model with every pair of weights, and return the trials, best first.

    `make` must always return the same untrained model. `folder` contains the checkpoints of the
    trials, so that an interrupted search can continue. `tell` is called with each trial. Raises
    NumericalError if every fit diverged.
    """
    trials, cause = [], None
    for weights in grid(make().name):
        path = folder and folder / f"{weights.alpha:g}-{weights.beta:g}.safetensors"
        chosen = replace(settings, weights=weights)
        try:
            _, state = fit(make(), train, validation, chosen, checkpoint=path, progress=progress)
            trial = Trial(weights, state.best_nll, state.seconds)
        except NumericalError as error:
            trial, cause = Trial(weights, float("inf")), error
        tell(trial)
        trials.append(trial)
    if trials and min(trial.nll for trial in trials) == float("inf"):
        raise NumericalError(
            f"all {len(trials)} fits of the search failed; the last error is: {cause}"
        ) from cause
    return sorted(trials, key=lambda trial: trial.nll)

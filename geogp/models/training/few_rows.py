"""Intervals of models of few rows: their width follows from folds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.models.core.lowrank import LowRankGP
from geogp.models.field.shape_laws import width_factor
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_loop import Data, fit

Floats = NDArray[np.float64]

FEW_ROWS, FEW_PLACES = 1000, 60
"""Fewer rows, or fewer places, are few: a validation tenth cannot give the width."""

MIN_PLACES = 10
"""Fewer places cannot give the error of a prediction where nothing was measured."""

FOLDS = 10


def count_places(data: Data) -> int:
    """Return the number of distinct places, the first two inputs."""
    return len(np.unique(data.x[:, :2], axis=0))


def are_few(data: Data) -> bool:
    """Tell whether there are so few rows or places that the width must come from folds."""
    return len(data.y) < FEW_ROWS or count_places(data) < FEW_PLACES


def widen(
    model: LowRankGP,
    make: Callable[[Data], LowRankGP],
    data: Data,
    settings: FitSettings,
) -> float:
    """Widen a fitted model's intervals by a factor from folds, and return the factor.

    Each fold holds out a tenth of the places with all their rows. A new model (`make`) is fitted to
    the other places, and the next tenth of them chooses its epoch. The factor of the standard
    deviation is `width_factor` of the residuals of the held-out rows. `data` are the rows that the
    model learned from and those that chose its epoch. Raises DataError: fewer than `MIN_PLACES`
    places. Raises NumericalError: a fit diverges.
    """
    factor = width_factor(fold_residuals(make, data, settings))
    model.widen(factor)
    return factor


def check_places(data: Data) -> None:
    """Refuse rows at fewer than `MIN_PLACES` places.

    Raises DataError: they are.
    """
    places = count_places(data)
    if places < MIN_PLACES:
        raise DataError(
            f"expected measurements at {MIN_PLACES} places or more, found {len(data.y)} rows at "
            f"{places}: too few for prediction intervals. Choose more quarters or a larger region."
        )


def fold_residuals(make: Callable[[Data], LowRankGP], data: Data, settings: FitSettings) -> Floats:
    """Return (y - mean) / sd of each row, (n,), predicted by a fit without any row of its place.

    Errors as for `widen`.
    """
    check_places(data)
    places, place = np.unique(data.x[:, :2], axis=0, return_inverse=True)
    order = np.random.default_rng(settings.seed).permutation(len(places))
    fold = (order % FOLDS)[place.reshape(-1)]
    residuals = np.empty(len(data.y))
    for number in range(FOLDS):
        held, choosing = fold == number, fold == (number + 1) % FOLDS
        train = _part(data, ~(held | choosing))
        model = make(train)
        fit(model, train, _part(data, choosing), settings)
        model.widen(1.0)  # forgets a shape that was learned from the rows that chose the epoch
        found = model.predict(data.x[held], data.tests[held])
        residuals[held] = (data.y[held] - found.mean) / found.sd
    return residuals


def _part(data: Data, rows: NDArray[np.bool_]) -> Data:
    return Data(data.x[rows], data.y[rows], data.tests[rows])

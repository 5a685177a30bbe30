"""Prediction intervals of models fitted to few rows; cross-validation gives the width."""

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
"""Below this number of rows or places, a validation tenth cannot give the width."""

MIN_PLACES = 10
"""Below this number of places, prediction errors at unmeasured places cannot be estimated."""

FOLDS = 10


def count_places(data: Data) -> int:
    """Return the number of distinct places; the first two input columns are a place."""
    return len(np.unique(data.x[:, :2], axis=0))


def are_few(data: Data) -> bool:
    """Return whether there are so few rows or places that the width must come from folds."""
    return len(data.y) < FEW_ROWS or count_places(data) < FEW_PLACES


def widen(
    model: LowRankGP,
    make: Callable[[Data], LowRankGP],
    data: Data,
    settings: FitSettings,
) -> float:
    """Widen a fitted model's intervals by a factor from folds, and return the factor.

    Each fold holds out a tenth of the places with all their rows. A new model (`make`) is fitted to
    the other places except the next tenth, which chooses its epoch. The factor of the standard
    deviation is `width_factor` of the residuals of the held-out rows. `data` has the training and
    validation rows of the model. Raises DataError if there are fewer than `MIN_PLACES` places, and
    NumericalError if a fit diverges.
    """
    factor = width_factor(fold_residuals(make, data, settings))
    model.widen(factor)
    return factor


def check_places(data: Data) -> None:
    """Raise DataError if the rows are at fewer than `MIN_PLACES` places."""
    places = count_places(data)
    if places < MIN_PLACES:
        raise DataError(
            f"expected measurements at {MIN_PLACES} places or more, found {len(data.y)} rows at "
            f"{places}: too few for prediction intervals. Choose more quarters or a larger region."
        )


def fold_residuals(make: Callable[[Data], LowRankGP], data: Data, settings: FitSettings) -> Floats:
    """Return (y - mean) / sd of each row, (n,), predicted by a fit without the rows of its place.

    Raises the errors of `widen`.
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
        model.widen(1.0)  # resets a shape that was learned from the validation rows
        found = model.predict(data.x[held], data.tests[held])
        residuals[held] = (data.y[held] - found.mean) / found.sd
    return residuals


def _part(data: Data, rows: NDArray[np.bool_]) -> Data:
    return Data(data.x[rows], data.y[rows], data.tests[rows])

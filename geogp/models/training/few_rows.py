"""Intervals of models that learned from few rows: their width follows from folds."""

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
"""Fewer rows, or fewer places, are few: a validation part of a tenth tells no width."""

LEAST_PLACES = 10
"""Fewer places tell nothing of how far a prediction is off where nothing was measured."""

FOLDS = 10


def count_places(data: Data) -> int:
    """Return the number of distinct places, the first two inputs."""
    return len(np.unique(data.x[:, :2], axis=0))


def are_few(data: Data) -> bool:
    """Tell whether so few rows or places are at hand that the width must come from folds."""
    return len(data.y) < FEW_ROWS or count_places(data) < FEW_PLACES


def widen(
    model: LowRankGP,
    make: Callable[[Data], LowRankGP],
    data: Data,
    settings: FitSettings,
) -> float:
    """Take from folds how much wider a model's intervals must be, and return the factor.

    Each fold holds out a tenth of the places with all their rows. A new model is fitted to the
    others, of which the next tenth chooses its epoch. The factor of the standard deviation is that
    of `width_factor`, from the residuals of the rows held out.

    Parameters
    ----------
    model
        The fitted model, changed in place.
    make
        Returns an untrained model for rows.
    data
        The rows that `model` learned from and those that chose its epoch.
    settings
        How each model is trained.

    Raises
    ------
    DataError
        There are fewer than `LEAST_PLACES` places.
    NumericalError
        A fit diverges.
    """
    factor = width_factor(fold_residuals(make, data, settings))
    model.widen(factor)
    return factor


def check_places(data: Data) -> None:
    """Refuse rows of too few places.

    Raises
    ------
    DataError
        There are fewer than `LEAST_PLACES`.
    """
    places = count_places(data)
    if places < LEAST_PLACES:
        raise DataError(
            f"expected measurements at {LEAST_PLACES} places or more, found {len(data.y)} rows at "
            f"{places}: intervals cannot be stated from so few. Take more quarters or a larger "
            "region."
        )


def fold_residuals(make: Callable[[Data], LowRankGP], data: Data, settings: FitSettings) -> Floats:
    """Return (y - mean) / sd of each row, predicted by a fit that saw no row of its place, (n,).

    Raises
    ------
    DataError, NumericalError
        As `widen` says.
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

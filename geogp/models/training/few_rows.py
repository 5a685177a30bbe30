"""Prediction intervals of models fitted to few rows; cross-validation gives the width."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from geogp.errors import DataError
from geogp.models.core.lowrank import LowRankGP
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_data import Data
from geogp.models.training.training_loop import fit

Floats = NDArray[np.float64]

FEW_ROWS, FEW_PLACES = 1000, 60
"""Below this number of rows or places, a validation tenth cannot give the width."""

MIN_PLACES = 10
"""Below this number of places, prediction errors at unmeasured places cannot be estimated."""

FOLDS = 10


PRIOR_ERRORS = 10.0
"""Weight of a prior width of 1, in errors."""


def width_factor(errors: Floats) -> float:
    """Return the factor that widens a normal distribution, from m standardised errors z, (m,).

        s t(0.975, k + m) / Φ^{-1}(0.975),    s² = (k + Σ z²) / (k + m),

    k = `PRIOR_ERRORS`. s² is the scale of its posterior, a scaled inverse chi-squared distribution,
    under a prior of k degrees of freedom around 1 (Gelman et al. 2013, section 2.6). The factor is
    that posterior's Student-t quantile of a new error at the ends of the 95 % interval.
    """
    known = PRIOR_ERRORS + len(errors)
    s = math.sqrt((PRIOR_ERRORS + float(errors @ errors)) / known)
    return s * float(stats.t.ppf(0.975, known) / stats.norm.ppf(0.975))


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
            f"{places} places. These are too few for prediction intervals. Choose more quarters or "
            f"a larger region."
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
        train = data.at(~(held | choosing))
        model = make(train)
        fit(model, train, data.at(choosing), settings)
        model.widen(1.0)  # resets a shape that was learned from the validation rows
        found = model.predict(data.x[held], data.tests[held], data.devices[held])
        residuals[held] = (data.y[held] - found.mean) / found.sd
    return residuals

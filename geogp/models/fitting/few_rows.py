"""Prediction intervals of models fitted to few rows; cross-validation gives their width."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from geogp.errors import DataError
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.data import Data
from geogp.models.process.process import Process

Floats = NDArray[np.float64]

FEW_ROWS = 1000
"""With fewer rows, a validation tenth is too small to give the width of intervals."""

FEW_PLACES = 60
"""With fewer places, a validation tenth is too small to give the width of intervals."""

MIN_PLACES = 10
"""Smallest number of places from which errors at unmeasured places can be estimated."""

FOLDS = 10
"""Number of folds; each holds out a tenth of the places."""

PRIOR_ERRORS = 10.0
"""Weight of the prior of the width, as a number of errors; the prior is centred at 1."""


def width_factor(errors: Floats) -> float:
    """Return the factor that widens a normal distribution, for m standardised errors z, (m,).

        s t(0.975, k + m) / Φ^{-1}(0.975),    s² = (k + Σ z²) / (k + m),

    Here k = `PRIOR_ERRORS`. The prior of the variance is a scaled inverse chi-squared distribution
    with k degrees of freedom and scale 1. The posterior has k + m degrees of freedom and scale s²
    (Gelman et al. 2013, section 2.6). Under the posterior, a new error has a Student-t
    distribution. The factor is the ratio of the 97.5 % quantiles, Student-t to normal.
    """
    degrees = PRIOR_ERRORS + len(errors)
    s = math.sqrt((PRIOR_ERRORS + float(errors @ errors)) / degrees)
    return s * float(special.stdtrit(degrees, 0.975) / special.ndtri(0.975))


def count_places(data: Data) -> int:
    """Return the number of distinct places; the first two input columns are a place."""
    return len(np.unique(data.x[:, :2], axis=0))


def are_few(data: Data) -> bool:
    """Return whether there are so few rows or places that the width needs cross-validation."""
    return len(data.y) < FEW_ROWS or count_places(data) < FEW_PLACES


def check_places(data: Data, least: int = MIN_PLACES) -> None:
    """Raise DataError if the rows are at fewer than `least` places."""
    places = count_places(data)
    if places < least:
        raise DataError(
            f"expected measurements at {least} places or more, found {len(data.y)} rows at "
            f"{places} places. These are too few for prediction intervals. Choose more quarters or "
            f"a larger region."
        )


def fold_residuals(make: Callable[[Data], Process], data: Data, settings: FitSettings) -> Floats:
    """Return (y - mean) / sd of each row, (n,), from a fit without the rows at its place.

    Each fold holds out a tenth of the places. A new model (`make`) is fitted to the other places,
    except one more tenth, which chooses the epoch. Raises DataError if there are fewer than
    `MIN_PLACES` places, and NumericalError if a fit diverges.
    """
    check_places(data)
    places, place = np.unique(data.x[:, :2], axis=0, return_inverse=True)
    order = np.random.default_rng(settings.seed).permutation(len(places))
    fold = (order % FOLDS)[place.reshape(-1)]
    residuals = np.empty(len(data.y))
    for number in range(FOLDS):
        left, choosing = fold == number, fold == (number + 1) % FOLDS
        train = data.at(~(left | choosing))
        model, _ = fit(make(train), train, data.at(choosing), settings)
        # A shape that was learned from the validation rows does not count.
        law = model.widened(1.0).predict(data.x[left], data.tests[left], data.devices[left])
        residuals[left] = (data.y[left] - law.mean) / law.sd
    return residuals

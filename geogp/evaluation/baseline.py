"""The baseline, which predicts the mean and variance of each quarter for all places."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geogp.arrays import Mask
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError

_MIN_SD = 1e-9
"""Largest standard deviation of values that count as equal."""


@dataclass(frozen=True)
class Baseline:
    """Predictions of the baseline; all their variance is measurement noise.

    `rows_pooled` is the number of predicted rows with the mean and variance of all training rows.
    """

    prediction: Prediction
    rows_pooled: int


def quarter_baseline(
    train_quarter: ArrayLike,
    train_y: ArrayLike,
    test_quarter: ArrayLike,
    law: type[Prediction] = Prediction,
) -> Baseline:
    """Predict each row with the mean and variance of the training rows in the same quarter.

    The variance is s² = Σ (y - mean)² / (n - 1). If a quarter has fewer than 2 training rows, or
    only equal training values, the mean and variance of all training rows are used. `train_quarter`
    (n,) and `test_quarter` (m,) are integers that identify quarters. `law.of_moments` makes the
    distributions. Raises DataError if there are fewer than two different training values.
    """
    quarter = np.asarray(train_quarter, np.int64)
    y = np.asarray(train_y, np.float64)
    if len(y) < 2 or y.std() <= _MIN_SD:
        raise DataError(
            "expected at least two different training values for a variance, found "
            f"{len(np.unique(y))} among {len(y)} rows. Choose more quarters or a larger region."
        )
    known, member = np.unique(quarter, return_inverse=True)
    count = np.bincount(member, minlength=len(known))
    mean = np.bincount(member, y, minlength=len(known)) / count
    squares = np.bincount(member, (y - mean[member]) ** 2, minlength=len(known))
    variance = squares / np.maximum(count - 1, 1)
    usable = (count >= 2) & (variance > _MIN_SD**2)

    asked = np.asarray(test_quarter, np.int64)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    own: Mask = (known[at] == asked) & usable[at]
    prediction = law.of_moments(
        np.where(own, mean[at], y.mean()), np.where(own, variance[at], y.var(ddof=1))
    )
    return Baseline(prediction, int(np.count_nonzero(~own)))

"""The probabilities of classes in test_predictions.parquet, their baselines, and their scores."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arrays import Floats
from geogp.distributions.quantity import class_tags
from geogp.errors import DataError
from geogp.evaluation.assessment import check_columns
from geogp.evaluation.class_scores import class_scores
from geogp.evaluation.metrics import rows_by_group
from geogp.evaluation.scores import ClassScores

MODEL, BY_QUARTER, BY_STRATUM_SHARES = "p_", "baseline_p_", "stratum_p_"
"""First letters of the columns with the probabilities of the model and of the two baselines.

The baselines are the shares of the classes among the training rows of the same quarter, and of the
same quarter and stratum.
"""


def probability_columns(start: str, suffix: str, classes: tuple[str, ...]) -> list[str]:
    """Return the names of the columns with the probabilities of the classes.

    Examples
    --------
    >>> probability_columns(MODEL, "tier", ("below 5/1", "5/1"))
    ['p_tier_below_5_1', 'p_tier_5_1']
    """
    return [f"{start}{suffix}_{tag}" for tag in class_tags(classes)]


def group_shares(known: ArrayLike, codes: ArrayLike, asked: ArrayLike, classes: int) -> Floats:
    """Return the shares of the classes among the training rows of the same group, (m, classes).

    `known` (n,) and `asked` (m,) are the groups of training rows and of predicted rows; `codes`
    (n,) are the classes of the training rows, from 0. One row with the shares of all training rows
    is added to each group, and one row of each class to all training rows. So no share is 0, and a
    group without training rows has the shares of all training rows.

    Examples
    --------
    >>> group_shares([1, 1, 2, 2], [0, 0, 1, 1], [1, 3], 2).tolist()
    [[0.8333333333333334, 0.16666666666666666], [0.5, 0.5]]
    """
    numbers = np.asarray(codes).astype(np.intp)
    every = np.bincount(numbers, minlength=classes) + 1.0
    names, member = np.unique(np.concatenate([known, asked]), return_inverse=True)
    n = len(numbers)
    counts = np.zeros((len(names), classes))
    np.add.at(counts, (member[:n], numbers), 1.0)
    counts += every / every.sum()
    found: Floats = (counts / counts.sum(1, keepdims=True))[member[n:]]
    return found


def table_scores(rows: pd.DataFrame, columns: list[str]) -> dict[str, ClassScores]:
    """Return the scores of the probabilities in `columns`, of all rows and of each stratum.

    Raises DataError if the column y has other values than numbers of classes, or the probabilities
    of a row do not have the sum 1.
    """
    p, codes = rows[columns].to_numpy(np.float64), codes_of(rows)
    parts = rows_by_group(rows["stratum"], len(rows))
    none = ClassScores(0, accuracy=None, nll=None, brier=None, ece=None)
    return {
        name: class_scores(p[chosen], codes[chosen]) if chosen.any() else none
        for name, chosen in parts.items()
    }


def codes_of(rows: pd.DataFrame) -> NDArray[np.intp]:
    """Return the class of each row, (n,); raise DataError if one is not a whole number."""
    y = rows["y"].to_numpy(np.float64)
    if not (np.isfinite(y) & (y == np.floor(y))).all():
        raise DataError(
            "expected numbers of classes in the column y of test_predictions.parquet, found other "
            "values. Run `geogp map` again with --fresh."
        )
    return y.astype(np.intp)


def check_class_columns(predictions: pd.DataFrame, columns: list[str]) -> None:
    """Raise DataError if the table is empty, or a column is missing or not numeric."""
    needed = ("split", "quadkey", "quarter", "longitude", "latitude", "y", "stratum", *columns)
    check_columns(predictions, needed, ("y", *columns))

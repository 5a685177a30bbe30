"""Scores of predictions as a table, overall and by group."""

from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.evaluation.metrics import mean_scores, row_scores
from geogp.evaluation.scores import Scores
from geogp.geodata.places.stratum_names import ALL


def evaluate(prediction: Prediction, y: ArrayLike, groups: Any = None) -> pd.DataFrame:
    """Compare a prediction with measurements, and return a table of scores.

    Parameters
    ----------
    prediction
        A prediction of n rows, from `predict_distribution`.
    y
        Measurements, (n,).
    groups
        The group of each row, such as a stratum or a county, (n,). By default, only all rows
        together are scored.

    Returns
    -------
    DataFrame
        A row ``all``, then a row for each group, in sorted order. Columns: ``n``; ``mae`` of the
        predictive median; ``rmse`` of the predictive mean; ``nll``, the mean negative log density;
        ``crps``; ``coverage_50``, ``coverage_80`` and ``coverage_95``, the shares of rows inside
        central intervals; ``width_95``, the mean width of the 95 % intervals. For mae, rmse, nll
        and crps, lower is better. mae, rmse, crps and widths have the unit of y. See `Scores`.

    Raises
    ------
    RequestError
        The prediction is not a distribution.
    DataError
        The arguments differ in length, a measurement is not finite, or a group is called ``all``.
    """
    if not isinstance(prediction, Prediction):
        raise RequestError(
            f"expected the result of predict_distribution, found {type(prediction).__name__}; "
            "predict returns only medians, without their uncertainty."
        )
    scores = row_scores(prediction, y)
    rows = {ALL: np.ones(len(scores), np.bool_)}
    if groups is not None:
        try:
            names = pd.Series(groups).reset_index(drop=True)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected one column of groups, found {error}.") from None
        if len(names) != len(scores):
            raise DataError(f"expected a group for each of {len(scores)} rows, found {len(names)}.")
        found = sorted(names.dropna().unique(), key=str)
        if ALL in found:
            raise DataError(
                f"expected group names other than {ALL!r}, which is the name for all rows."
            )
        rows |= {name: (names == name).to_numpy(np.bool_) for name in found}
    table = {name: asdict(mean_scores(scores[chosen])) for name, chosen in rows.items()}
    columns = [one.name for one in fields(Scores)]
    return pd.DataFrame.from_dict(table, orient="index", columns=columns)

"""Checks of the predictions in test_predictions.parquet, and scores of each row."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.distributions.count_prediction import CountPrediction
from geogp.distributions.prediction import Prediction
from geogp.distributions.shape_columns import shape_from
from geogp.distributions.shapes import SHAPE_COLUMNS
from geogp.distributions.warps import REPAIR_COLUMNS
from geogp.errors import DataError, named
from geogp.evaluation.metrics import mean_scores, row_scores, rows_by_group
from geogp.evaluation.scores import TOLERANCE, Scores, agree, check_stored
from geogp.evaluation.splits.split_names import MAX_FOLDS

TABLE_LEVELS = (50, 80, 90, 95)
"""Levels, in percent, at which the tables show the coverage."""

COLUMNS = (
    *("split", "quadkey", "quarter", "longitude", "latitude", "y", "tests", "stratum"),
    *("mean", "function_variance", "noise_variance", "lower_95", "upper_95"),
)
"""Columns of test_predictions.parquet that a report needs."""

OPTIONAL = ("tile_variance", *SHAPE_COLUMNS, *REPAIR_COLUMNS)
"""Columns that may be absent: tile variance, shape of the distribution, and conformal repair."""

DISPERSION = "dispersion"
"""Column that exists only in predictions of counts."""

NUMBERS = ({*COLUMNS} - {"split", "quadkey", "quarter", "stratum"}) | {
    *("devices", "distance_km", DISPERSION),
    *OPTIONAL,
}
"""Columns of numbers."""

FOLD = "fold"
"""Column with the number of each row's fold; absent if there is only one fold."""

Floats = NDArray[np.float64]


def split_rows(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of each row of one split, in the order of the rows.

    The table has the columns of `row_scores`, and ``pit``, ``median`` and ``fold``. For each level,
    a column such as ``mass_95`` contains the predicted probability of the interval. Raises
    DataError if a measurement is not finite, a fold number is not valid, or stored bounds differ
    from computed bounds. Raises NumericalError if a mean or a variance is out of range.
    """
    fold = folds_of(rows)
    parts = []
    for number in np.unique(fold):
        chosen = np.flatnonzero(fold == number)
        part = rows.iloc[chosen]
        prediction, y = prediction_of(part), part["y"].to_numpy(np.float64)
        check_bounds(name, part, prediction)
        found = row_scores(prediction, y, TABLE_LEVELS)
        found["pit"], found["median"] = prediction.pit(y), prediction.quantile(0.5)
        for level in TABLE_LEVELS:
            found[f"mass_{level}"] = prediction.interval_mass(level / 100)
        parts.append(found.assign(fold=number).set_index(chosen))
    return pd.concat(parts).sort_index()


def folds_of(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the fold number of each row, (n,); raise DataError if a number is out of range."""
    if FOLD not in rows:
        return np.zeros(len(rows), np.int64)
    fold = pd.to_numeric(rows[FOLD], errors="coerce").to_numpy(np.float64)
    if not ((fold >= 0) & (fold < MAX_FOLDS) & (fold == np.floor(fold))).all():
        raise DataError(
            f"expected whole numbers from 0 to {MAX_FOLDS - 1} in the column fold, found other "
            "values. Run `geogp map` again with --fresh."
        )
    return fold.astype(np.int64)


def prediction_of(rows: pd.DataFrame) -> Prediction:
    """Return the predictive distribution of each row of test_predictions.parquet.

    Raises NumericalError if a mean or a variance is missing or out of range, and RequestError if a
    shape parameter is out of range.
    """
    names = ("mean", "function_variance", "noise_variance")
    mean, function, noise = (rows[name].to_numpy(np.float64) for name in names)
    if counted(rows):
        dispersion = rows[DISPERSION].to_numpy(np.float64)
        return CountPrediction(mean, function, noise, dispersion=dispersion)
    optional = {name: rows[name].to_numpy(np.float64) for name in OPTIONAL if name in rows}
    tile = optional.pop("tile_variance", np.zeros(len(rows)))
    return Prediction(mean, function, noise, tile, shape_from(optional, function, noise))


def counted(rows: pd.DataFrame) -> bool:
    """Return whether the rows are predictions of counts, that is, of numbers of tests."""
    return DISPERSION in rows.columns


def widths_by_group(rows: pd.DataFrame) -> dict[str, Floats]:
    """Return the widths of the 95 % intervals in one split: of all rows, and by stratum."""
    width = (rows["upper_95"] - rows["lower_95"]).to_numpy(np.float64)
    return {
        name: width[chosen] for name, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }


def check_columns(
    predictions: pd.DataFrame,
    needed: Collection[str] = COLUMNS,
    numbers: Collection[str] = NUMBERS,
) -> None:
    """Raise DataError if the table is empty, or a column is missing or not numeric.

    `numbers` are the columns that contain numbers, if they exist.
    """
    missing = [name for name in needed if name not in predictions.columns]
    if missing:
        raise DataError(
            f"test_predictions.parquet lacks the columns {named(missing)}. Run `geogp map` again."
        )
    if predictions.empty:
        raise DataError("expected test predictions, found an empty table.")
    names = [name for name in numbers if name in predictions.columns]
    odd = [name for name in names if not pd.api.types.is_numeric_dtype(predictions[name])]
    if odd:
        raise DataError(
            f"expected numbers in the columns {named(odd)} of test_predictions.parquet, found "
            f"{predictions[odd[0]].dtype}. Run `geogp map` again with --fresh."
        )


def check_bounds(name: str, rows: pd.DataFrame, prediction: Prediction) -> None:
    """Raise DataError if stored bounds of 95 % intervals differ from computed bounds."""
    lower, upper = prediction.interval(0.95)
    off = np.maximum(
        np.abs(rows["lower_95"].to_numpy(np.float64) - lower),
        np.abs(rows["upper_95"].to_numpy(np.float64) - upper),
    )
    wrong = ~(off <= TOLERANCE)
    if wrong.any():
        raise DataError(
            "expected lower_95 and upper_95 as computed from mean and variances, found others in "
            f"{int(wrong.sum())} rows of the split {name!r}. Was test_predictions.parquet "
            "edited? Run `geogp map` again with --fresh."
        )


def check_scores(
    name: str,
    parts: Mapping[str, pd.DataFrame],
    on_file: Mapping[str, Scores],
    *,
    mae_of_mean: bool = False,
) -> None:
    """Raise DataError if scores in run.json differ from the scores of the predictions.

    `parts` contains the rows of `row_scores` by stratum. If `mae_of_mean` is true, the stored
    ``mae`` may also be the mean absolute error of the predictive mean, as in geogp 0.1.
    """
    found = {group: mean_scores(rows) for group, rows in parts.items()}
    for group, rows in parts.items() if mae_of_mean else ():
        mae = rows["error"].abs().mean()
        if group in on_file and agree(mae, on_file[group].mae):
            found[group] = replace(found[group], mae=mae)
    check_stored(name, found, on_file)

"""The predictions in test_predictions.parquet, and scores of each row."""

from collections.abc import Collection

import numpy as np
import pandas as pd

from geogp.arrays import Floats, Numbers
from geogp.distributions.count_prediction import CountPrediction
from geogp.distributions.prediction import Prediction
from geogp.distributions.shape_columns import shape_from
from geogp.distributions.shapes import SHAPE_COLUMNS
from geogp.distributions.shares import SharePrediction
from geogp.distributions.warps import REPAIR_COLUMNS
from geogp.errors import DataError, named
from geogp.evaluation.metrics import row_scores, rows_by_group
from geogp.evaluation.scores import LARGEST
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

SHARE_TESTS = "share_tests"
"""Column with the number of tests that exists only in predictions of shares of tests."""

NUMBERS = ({*COLUMNS} - {"split", "quadkey", "quarter", "stratum"}) | {
    *("devices", "distance_km", DISPERSION, SHARE_TESTS),
    *OPTIONAL,
}
"""Columns of numbers."""

FOLD = "fold"
"""Column with the number of each row's fold; absent if there is only one fold."""


def split_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of each row of one split, in the order of the rows.

    The table has the columns of `row_scores`, and ``pit``, ``median`` and ``fold``. For each level,
    a column such as ``mass_95`` contains the predicted probability of the interval. Raises
    DataError if a fold number, a measurement, a score or a bound is not valid. Raises
    NumericalError if a mean or a variance is out of range.
    """
    fold = folds_of(rows)
    parts = []
    for number in np.unique(fold):
        chosen = np.flatnonzero(fold == number)
        part = rows.iloc[chosen]
        prediction, y = prediction_of(part), part["y"].to_numpy(np.float64)
        found = row_scores(prediction, y, TABLE_LEVELS)
        found["pit"], found["median"] = prediction.pit(y), prediction.quantile(0.5)
        for level in TABLE_LEVELS:
            found[f"mass_{level}"] = prediction.interval_mass(level / 100)
        parts.append(found.assign(fold=number).set_index(chosen))
    scored = pd.concat(parts).sort_index()
    bounds = rows[["lower_95", "upper_95"]].to_numpy(np.float64)
    if not (np.abs(np.hstack([scored.to_numpy(np.float64), bounds])) <= LARGEST).all():
        raise DataError(
            f"expected scores and bounds of test_predictions.parquet from {-LARGEST:g} to "
            f"{LARGEST:g}, found others. Run `geogp map` again with --fresh."
        )
    return scored


def folds_of(rows: pd.DataFrame) -> Numbers:
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
    if SHARE_TESTS in rows:
        of_tests = rows[SHARE_TESTS].to_numpy(np.float64)
        return SharePrediction(mean, function, noise, tile, tests=of_tests)
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

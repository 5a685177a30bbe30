"""Spread of measurements, of errors and as predicted, by cells of 0.05 degrees."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError

CELL_DEGREES = 0.05
"""Side of a cell, as in figure 10 of Zhu, Yuchi and Xie."""

LEAST_ROWS = 5
"""Cells of fewer test rows are left out: their empirical spread is mostly chance."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SpreadCells:
    """Spread in each of m cells; arrays of shape (m,), on the scale of the modelled target.

    Attributes
    ----------
    west, south
        Lower left corners in degrees.
    n
        Test rows.
    measured
        Standard deviation of the measurements around their mean in the cell (n - 1 in the
        denominator), what is called empirical in the paper. It holds what the predicted mean tells
        apart within the cell, and may be larger than what is predicted.
    error
        Root of the mean squared difference of measurement and predicted mean.
    predicted
        Root of the mean predictive variance of a measurement: right predictions have it as large as
        `error`.
    """

    west: Floats
    south: Floats
    n: NDArray[np.int64]
    measured: Floats
    error: Floats
    predicted: Floats


def spread_by_cell(rows: pd.DataFrame) -> SpreadCells:
    """Work out the spread of test rows in cells floor(longitude / 0.05), floor(latitude / 0.05).

    Parameters
    ----------
    rows
        Rows of test_predictions.parquet of one split.

    Raises
    ------
    DataError
        No cell has enough rows.
    """
    table = pd.DataFrame(
        {
            "column": np.floor(rows["longitude"] / CELL_DEGREES),
            "row": np.floor(rows["latitude"] / CELL_DEGREES),
            "y": rows["y"],
            "squared": (rows["y"] - rows["mean"]) ** 2,
            "variance": rows["function_variance"] + rows["noise_variance"],
        }
    )
    cells = table.groupby(["column", "row"])
    found = pd.DataFrame(
        {
            "n": cells.size(),
            "measured": cells["y"].std(),
            "error": np.sqrt(cells["squared"].mean()),
            "predicted": np.sqrt(cells["variance"].mean()),
        }
    )
    found = found[found["n"] >= LEAST_ROWS].reset_index()
    if found.empty:
        raise DataError(
            f"expected a cell of {CELL_DEGREES} degrees with {LEAST_ROWS} test rows or more, found "
            f"none among {len(rows)} rows. Map a larger region, or more quarters."
        )
    return SpreadCells(
        found["column"].to_numpy(np.float64) * CELL_DEGREES,
        found["row"].to_numpy(np.float64) * CELL_DEGREES,
        found["n"].to_numpy(np.int64),
        *(found[name].to_numpy(np.float64) for name in ("measured", "error", "predicted")),
    )

"""Spread of measurements, of errors and as predicted, by cells of 0.05 degrees."""

import numpy as np
import pandas as pd

from geogp.errors import DataError

CELL_DEGREES = 0.05
"""Side of a cell, as in figure 10 of Zhu, Yuchi and Xie."""

LEAST_ROWS = 5
"""Cells of fewer test rows are left out: their empirical spread is mostly chance."""


def spread_by_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """Work out the spread of test rows in cells floor(longitude / 0.05), floor(latitude / 0.05).

    Parameters
    ----------
    rows
        Rows of test_predictions.parquet of one split.

    Returns
    -------
    DataFrame
        A row for each cell, on the scale of the modelled target: ``west`` and ``south``, its lower
        left corner in degrees; ``n``, its test rows; ``measured``, the standard deviation of the
        measurements around their mean in the cell (n - 1 in the denominator), what is called
        empirical in the paper: it holds what the predicted mean tells apart within the cell, and
        may be larger than what is predicted; ``error``, the root of the mean squared difference of
        measurement and predicted mean; ``predicted``, the root of the mean predictive variance of
        a measurement, which right predictions have as large as the error.

    Raises
    ------
    DataError
        No cell has enough rows.
    """
    table = pd.DataFrame(
        {
            "west": np.floor(rows["longitude"] / CELL_DEGREES) * CELL_DEGREES,
            "south": np.floor(rows["latitude"] / CELL_DEGREES) * CELL_DEGREES,
            "y": rows["y"],
            "squared": (rows["y"] - rows["mean"]) ** 2,
            "variance": rows["function_variance"] + rows["noise_variance"],
        }
    )
    cells = table.groupby(["west", "south"])
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
    return found

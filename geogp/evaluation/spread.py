"""Spread of measurements, errors and predictions in cells of 0.05 degrees."""

import numpy as np
import pandas as pd

from geogp.errors import DataError

CELL_DEGREES = 0.05
"""Side of a cell in degrees, as in figure 10 of Zhu, Yuchi and Xie."""

MIN_ROWS = 5
"""Smallest number of test rows in a cell; with fewer rows, the spread would be mostly chance."""


def spread_by_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the spread of measurements, errors and predictions of test rows in each cell.

    The columns ``west`` and ``south`` are the lower left corner of a cell in degrees; ``n`` is the
    number of test rows. ``measured``, ``error`` and ``predicted`` have the scale of the modelled
    target. ``measured`` is the standard deviation of the measurements (divisor n - 1). ``error`` is
    the root mean squared difference between measurement and predicted mean. ``predicted`` is the
    root of the mean predictive variance; if predictions are right, ``error`` is about as large as
    ``predicted``. Raises DataError if no cell has enough rows.
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
    found = found[found["n"] >= MIN_ROWS].reset_index()
    if found.empty:
        raise DataError(
            f"expected a cell of {CELL_DEGREES} degrees with {MIN_ROWS} test rows or more, found "
            f"none among {len(rows)} rows. Map a larger region or more quarters."
        )
    return found

"""Splits a table of measurements into training and test rows."""

from typing import Any, TypeVar

import numpy as np
import pandas as pd

from geogp.arguments import checked_arguments
from geogp.arrays import Numbers
from geogp.choices import MAX_KM, MAX_SEED, above_zero, one_of, whole_number
from geogp.errors import DataError, RequestError, named, quoted
from geogp.evaluation.splits.point_splits import place_codes, point_cells, time_codes
from geogp.evaluation.splits.row_parts import LEFT_OUT, TENTHS, TEST, Parts
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, BUFFER_KM, LATEST, SPLITS
from geogp.evaluation.splits.split_rows import SplitRows, assign_cells, split_parts
from geogp.geodata.places.layers import ELSEWHERE
from geogp.geodata.tiles.quadkeys import parse_quadkeys

Table = TypeVar("Table", bound=pd.DataFrame)


@checked_arguments
def split(
    table: Table,
    how: str = "blocks",
    *,
    random_state: int = 0,
    fold: int = 0,
    x: str = "longitude",
    y: str = "latitude",
    time: str | None = "quarter",
    county: str = "county",
    session: str = "session",
    buffer_km: float = BUFFER_KM,
    cell: float | None = None,
) -> tuple[Table, Table]:
    """Split a table into training and test rows.

    Whether a row is for training or for tests depends on `random_state` and on the row's location
    and time, never on the order of rows or on a target. A table with quadkeys, such as a table from
    `read_tiles`, is split as by the command ``geogp map``, but the validation rows of the command
    are training rows here. Other tables are split by rounded coordinates and times.

    Parameters
    ----------
    table
        Measurements, one per row.
    how
        Which rows are test rows. ``random``: a tenth of the rows, each chosen independently.
        ``tiles``: a tenth of the tiles, or places, with their rows of all times. ``blocks``: a
        fifth of the rows, in whole cells. ``buffer``: the same as ``blocks``, but without training
        rows near a test row. ``county``: whole counties. ``latest``: the last quarter.
        ``session``: whole drives or other sessions.
    random_state
        Any integer.
    fold
        Number of the fold, counted from 0; each fold has different test rows.
    x, y, time, county, session
        Names of columns. If the table has no column `time`, times are not used. ``buffer`` needs
        coordinates in degrees; ``latest`` needs quarters (``Period[Q]``).
    buffer_km
        Smallest distance in km between training and test rows for ``buffer``.
    cell
        Side of the cells of ``blocks`` in the unit of the coordinates. For tables with quadkeys,
        the default is 0.1 degrees, or less in a small region; see `cell_side`. For other tables,
        the default is found by halving or doubling 0.1; see `point_cells`.

    Returns
    -------
    tuple of two tables
        Training rows and test rows, with the same columns as `table`.

    Raises
    ------
    RequestError
        The split is unknown, the fold does not exist, or a column is missing.
    DataError
        The split leaves a part empty, or a coordinate is not finite.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> places = rng.uniform(0, 9, (500, 2))
    >>> points = pd.DataFrame(places, columns=["longitude", "latitude"])
    >>> train, test = split(points)
    >>> len(train) + len(test)
    500
    """
    if not isinstance(table, pd.DataFrame):
        raise RequestError(f"expected a pandas table, found {type(table).__name__}.")
    one_of("split", how, SPLITS)
    whole_number("random_state", random_state, 0, MAX_SEED)
    whole_number("fold", fold, 0, TENTHS - 1)
    if cell is not None:
        above_zero("cell", cell, float("inf"), "in the unit of the coordinates")
    above_zero("buffer_km", buffer_km, MAX_KM, "km")
    for name in (x, y):
        if name not in table.columns:
            raise RequestError(
                f"expected a column {quoted(name)} of coordinates, found the columns "
                f"{named(table.columns)}. Name the columns with x= and y=."
            )
    place = table[x].to_numpy(np.float64), table[y].to_numpy(np.float64)
    if not all(np.isfinite(part).all() for part in place):
        raise DataError(f"expected finite numbers in {x} and {y}; drop rows with other values.")
    if how == BUFFER.name and (np.abs(place[0]).max() > 360 or np.abs(place[1]).max() > 90):
        raise DataError(
            "expected degrees in x and y, because the split buffer computes distances in km."
        )
    tiles = "quadkey" in table.columns
    parts = (
        _in_cells(place, random_state, fold, cell)
        if how == BLOCKS.name and (cell is not None or not tiles)
        else split_parts(
            how,
            SplitRows(
                parse_quadkeys(table["quadkey"].to_numpy()) if tiles else place_codes(*place),
                _times(table, time, how),
                *place,
                _counties(table, county),
                _sessions(table, session),
            ),
            random_state,
            fold=fold,
            buffer_km=buffer_km,
        )
    )
    test = parts == TEST
    train = ~test & (parts != LEFT_OUT)
    return table[train], table[test]


def _counties(table: pd.DataFrame, county: str) -> Parts | None:
    if county not in table.columns:
        return None
    names = table[county].astype(object)
    return names.where(names.notna(), ELSEWHERE).to_numpy(np.str_)


def _sessions(table: pd.DataFrame, session: str) -> Parts | None:
    if session not in table.columns:
        return None
    if table[session].isna().any():
        raise DataError(
            f"expected a session in each row of {quoted(session)}; drop rows without one."
        )
    return table[session].astype(str).to_numpy(np.str_)


def _in_cells(place: tuple[Any, Any], seed: int, fold: int, side: float | None) -> Parts:
    width = 0.1 if side is None else side
    cells = (
        point_cells(*place, (width, width))
        if side is None
        else np.floor(np.column_stack(place) / width).astype(np.int64)
    )
    return assign_cells(cells, seed, "cells", fold=fold)


def _times(table: pd.DataFrame, time: str | None, how: str) -> Numbers:
    """Return a whole number for each row's time; for a calendar quarter, its number."""
    quarters = time is not None and time in table.columns and table[time].dtype == "period[Q-DEC]"
    if how == LATEST.name and not quarters:
        raise RequestError(
            "the split latest needs 2 or more different quarters (Period[Q]) in the column "
            f"{time!r}; convert the column with table[...].dt.to_period('Q')."
        )
    if time is None or time not in table.columns:
        return np.zeros(len(table), np.int64)
    column = table[time]
    if column.isna().any():
        raise DataError(f"expected a time in every row of {time}; drop rows without a time.")
    if quarters:
        return np.asarray(column.dt.year * 4 + column.dt.quarter - 1, np.int64)
    if column.dtype.kind in "iuf":
        return time_codes(column.to_numpy(np.float64), len(table))
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.start_time
    try:
        dates = pd.DatetimeIndex(pd.to_datetime(column, utc=True))
    except (TypeError, ValueError):
        raise DataError(
            f"expected dates, periods or numbers in {time}, found {column.dtype}."
        ) from None
    return np.asarray(dates.as_unit("ns").asi8, np.int64)

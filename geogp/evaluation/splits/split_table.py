"""A table of measurements split into training and test rows."""

from typing import Any, TypeVar

import numpy as np
import pandas as pd

from geogp.choices import one_of
from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.point_splits import place_codes, point_cells, time_codes
from geogp.evaluation.splits.row_parts import LEFT_OUT, TEST, Numbers, Parts
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, BUFFER_KM, SPLITS
from geogp.evaluation.splits.split_rows import SplitRows, deal_cells, split_parts
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.tiles.quadkeys import parse_quadkeys

Table = TypeVar("Table", bound=pd.DataFrame)


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
    buffer_km: float = BUFFER_KM,
    cell: float | None = None,
) -> tuple[Table, Table]:
    """Split a table into training and test rows.

    The part of a row follows from `random_state`, its place and its time, never from the order of
    rows or from a target. Tables of `read_tiles`, which have quadkeys, are split as `geogp map`
    splits them: its training and validation rows train here. Of other tables the rounded
    coordinates and times are hashed.

    Parameters
    ----------
    table
        Measurements, one row each.
    how
        ``random``: a tenth of the rows tests, each on its own. ``blocks``: a fifth, by whole cells.
        ``buffer``: as blocks, without training rows near a test row. ``county``: by whole
        counties. ``latest``: the last quarter.
    random_state
        Any integer.
    fold
        Which rows test, from 0; other folds test other rows.
    x, y, time, county
        Names of columns. A table without the column `time` has no times. ``buffer`` needs degrees;
        ``latest`` needs quarters (``Period[Q]``).
    buffer_km
        Distance that ``buffer`` keeps.
    cell
        Side of the cells of ``blocks`` in the unit of the coordinates. None takes 0.1 degrees for
        tables with quadkeys; of others it starts there and is halved or doubled until cells hold
        several places; see `point_cells`.

    Returns
    -------
    tuple of two tables
        Training rows and test rows, as in `table`.

    Raises
    ------
    RequestError
        An unknown way of splitting, a fold that it has not, or a column is missing.
    DataError
        A part came out empty, or a coordinate is not finite.

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
    one_of("split", how, SPLITS)
    for name in (x, y):
        if name not in table.columns:
            raise RequestError(
                f"expected a column {name!r} of coordinates, found "
                f"{', '.join(map(str, table.columns))}. Name them with x= and y=."
            )
    place = table[x].to_numpy(np.float64), table[y].to_numpy(np.float64)
    if not all(np.isfinite(part).all() for part in place):
        raise DataError(f"expected finite numbers in {x} and {y}; drop the other rows.")
    tiles = "quadkey" in table.columns
    parts = (
        _in_cells(place, random_state, fold, cell)
        if how == BLOCKS.name and (cell is not None or not tiles)
        else split_parts(
            how,
            SplitRows(
                parse_quadkeys(table["quadkey"].to_numpy()) if tiles else place_codes(*place),
                _times(table, time),
                *place,
                table[county].to_numpy(np.str_) if county in table.columns else None,
            ),
            random_state,
            fold=fold,
            buffer_km=buffer_km,
        )
    )
    test = parts == TEST
    train = ~test & (parts != LEFT_OUT)
    if how == BUFFER.name:  # rows that validate for `geogp map` train here, so they keep it too
        apart = nearest_km(*(part[train] for part in place), *(part[test] for part in place))
        train[train] = apart >= buffer_km
    return table[train], table[test]


def _in_cells(place: tuple[Any, Any], seed: int, fold: int, side: float | None) -> Parts:
    width = side or 0.1
    cells = (
        point_cells(*place, (width, width))
        if side is None
        else np.floor(np.column_stack(place) / width).astype(np.int64)
    )
    return deal_cells(cells, seed, f"{len(cells)} rows", fold=fold)


def _times(table: pd.DataFrame, time: str | None) -> Numbers:
    """Return a whole number for each row's time: its quarter where that is a period."""
    if time is None or time not in table.columns:
        return np.zeros(len(table), np.int64)
    column = table[time]
    if isinstance(column.dtype, pd.PeriodDtype) and str(column.dtype).startswith("period[Q"):
        return np.asarray(column.dt.year * 4 + column.dt.quarter - 1, np.int64)
    if column.dtype.kind in "iuf":
        return time_codes(column.to_numpy(np.float64), len(table))
    return np.asarray(pd.to_datetime(column, utc=True).astype("int64"), np.int64)

"""The public function `read_covariate`, for rasters, files of points, and tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.arguments import checked_arguments
from geogp.errors import DataError, RequestError, named
from geogp.geodata.covariates.point_covariate import PointCovariate, indices_of
from geogp.geodata.covariates.raster_covariate import MOST_VALUE, RasterCovariate
from geogp.geodata.tiles.parquet_files import read_table

MAX_POINTS = 5_000_000  # most points of a covariate

RASTERS, TABLES = (".tif", ".tiff"), (".parquet", ".geoparquet", ".csv")
"""Extensions of the names of files that geogp reads as rasters or as tables of points."""

Covariate = RasterCovariate | PointCovariate
"""A covariate from a raster or from points."""

_NEEDED, _OPTIONAL = ("longitude", "latitude", "value"), ("tests", "quarter")


@checked_arguments
def read_covariate(source: str | Path | pd.DataFrame) -> Covariate:
    """Read a covariate: a quantity from another source, with values at any place.

    Parameters
    ----------
    source
        A GeoTIFF with one band; a file of points (Parquet or CSV); or a table of points. Points
        have the columns ``longitude`` and ``latitude`` in degrees, ``value``, and optionally
        ``tests``, the number of measurements behind each value, and ``quarter``, such as
        ``2023Q4``.

    Returns
    -------
    Covariate
        An object whose method ``at(longitude, latitude, quarter=None)`` returns ``value`` and
        ``sd`` (standard deviation), each (n,). For a raster, ``value`` is interpolated bilinearly,
        or NaN without data, and ``sd`` is NaN. For points, ``value`` is the deviation from the mean
        of the same quarter, by kriging from the 16 nearest places, or 0 far from all points.

    Raises
    ------
    RequestError
        There is no such file, or the extension of its name is unknown.
    DataError
        The file is damaged, a column or the CRS is missing, or a value is not finite.
    """
    if isinstance(source, pd.DataFrame):
        return _of_points(source, "the table")
    path = Path(source)
    ending = path.suffix.lower()
    if not path.is_file() or ending not in RASTERS + TABLES:
        raise RequestError(
            f"expected a file of a covariate that ends in {', '.join(RASTERS + TABLES)}, found "
            f"{path}{'' if path.is_file() else ', which is not a file'}."
        )
    if ending in RASTERS:
        return RasterCovariate(path)
    return _of_points(_table(path), str(path))


def _table(path: Path) -> pd.DataFrame:
    if path.suffix.lower() != ".csv":
        found = read_table(path, MAX_POINTS)
        columns = [name for name in (*_NEEDED, *_OPTIONAL) if name in found.column_names]
        return pd.DataFrame(found.select(columns).to_pandas())
    try:
        return pd.read_csv(path, nrows=MAX_POINTS + 1)
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as CSV ({' '.join(str(error).split())}). Write the file again."
        ) from error


def _of_points(table: pd.DataFrame, what: str) -> PointCovariate:
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise DataError(
            f"expected the columns {', '.join(_NEEDED)} in {what}, separated by commas, found no "
            f"{named(missing)}. The columns are {named(table.columns)}."
        )
    if not 0 < len(table) <= MAX_POINTS:
        raise DataError(
            f"expected from 1 to {MAX_POINTS:,} points in {what}, found {len(table):,}."
        )
    longitude, latitude, value = (_numbers(table, name, what) for name in _NEEDED)
    tests = _numbers(table, "tests", what) if "tests" in table else np.ones(len(table))
    if np.abs(longitude).max() > 360 or np.abs(latitude).max() > 90 or tests.min() <= 0:
        raise DataError(
            f"expected longitudes and latitudes in degrees, and tests above 0, in {what}."
        )
    if "quarter" in table and table["quarter"].dtype.kind in "iuf":
        raise DataError(
            f"expected quarters such as 2023Q4 in the column quarter of {what}, found numbers."
        )
    try:
        quarter = indices_of(table["quarter"]) if "quarter" in table else None
        return PointCovariate(longitude, latitude, value, tests, quarter)
    except DataError as error:
        raise DataError(f"{what} cannot be used as a covariate: {error}") from error


def _numbers(table: pd.DataFrame, name: str, what: str) -> NDArray[np.float64]:
    column: Any = table[name]
    if column.dtype.kind not in "iuf":
        raise DataError(f"expected numbers in the column {name} of {what}, found {column.dtype}.")
    values: NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    wrong = ~(np.abs(values) <= MOST_VALUE)
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"expected finite numbers up to {MOST_VALUE:g} in the column {name} of {what}, found "
            f"{int(wrong.sum()):,} other values, the first {values[first]:g} in row {first + 1}; "
            "remove these rows."
        )
    return values

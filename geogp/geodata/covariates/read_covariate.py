"""The public function `read_covariate`, for rasters, files of points, and tables."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.arguments import checked_arguments
from geogp.errors import DataError, RequestError, named
from geogp.geodata.covariates.points import PointCovariate, indices_of
from geogp.geodata.covariates.rasters import MOST_VALUE, RasterCovariate
from geogp.geodata.points.cell_places import read_places
from geogp.geodata.points.measured_cells import read_cells
from geogp.geodata.points.point_options import PointOptions
from geogp.geodata.points.tables import ENDINGS, RowReview, read_point_table

MAX_POINTS = 5_000_000  # most points of a covariate

RASTERS = (".tif", ".tiff")
"""Extensions of the names of files that geogp reads as rasters."""

Covariate = RasterCovariate | PointCovariate
"""A covariate from a raster or from points."""

_NEEDED = ("longitude", "latitude", "value")


@checked_arguments
def read_covariate(source: str | Path | pd.DataFrame) -> Covariate:
    """Read a covariate: a quantity from another source, with values at any place.

    Parameters
    ----------
    source
        A GeoTIFF with one band; a file of points (CSV, Parquet and others); or a table of points.
        Points have the columns ``longitude`` and ``latitude`` in degrees, ``value``, and optionally
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
        The file is damaged, a column or the CRS is missing, a value of the table is not finite, or
        over 5 % of the rows of a file have no position or value.

    Warns
    -----
    UserWarning
        Rows of a file were left out.
    """
    if isinstance(source, pd.DataFrame):
        return _of_points(source, "the table")
    path = Path(source)
    ending = path.suffix.lower()
    if not path.is_file() or ending not in RASTERS + ENDINGS:
        raise RequestError(
            f"expected a file of a covariate that ends in {', '.join(RASTERS + ENDINGS)}, found "
            f"{path}{'' if path.is_file() else ', which is not a file'}."
        )
    if ending in RASTERS:
        return RasterCovariate(path)
    points, left_out = read_points(path)
    for text in left_out:
        warnings.warn(text, UserWarning, stacklevel=3)
    return points


def read_points(path: Path) -> tuple[PointCovariate, list[str]]:
    """Return the covariate of a file of points, and a warning for each reason of left-out rows.

    Raises the errors of `read_covariate`.
    """
    table, left_out = read_valued_points(path)
    return _of_points(table, str(path)), left_out


def read_valued_points(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return a file's columns ``longitude``, ``latitude`` (degrees) and ``value``, with warnings.

    The columns ``tests`` and ``quarter`` follow if the file has them. The file is read as files of
    measurements are, see `read_point_table`; rows without a position or a value are left out, and
    there is a warning for each reason. Raises DataError if over 5 % of the rows are left out.
    """
    options = PointOptions()
    table = read_point_table(path, options)
    review = RowReview.of(table)
    columns = table.columns(options, _NEEDED)
    longitude, latitude = read_places(review, columns, options)
    numbers = {"longitude": longitude, "latitude": latitude}
    for name in [name for name in ("value", "tests") if name in columns]:
        cells = read_cells(review, columns[name], options)
        if len(set(cells.units) - {""}) > 1:
            raise DataError(
                f"expected one unit in the column {columns[name]} of {path}, found "
                f"{named(dict.fromkeys(cells.units))}. Write all values in one unit."
            )
        numbers[name] = cells.numbers
        review.mark(np.isnan(numbers[name]), f"no {name}")
    frame = pd.DataFrame(numbers)
    if "quarter" in columns:
        quarters = table.frame[columns["quarter"]]
        texts = table.texts(columns["quarter"])
        frame["quarter"] = quarters.to_numpy() if quarters.dtype.kind in "iuf" else texts
    review.check()
    left_out = [f"left out of {path.name}, {reason}." for reason in review.reasons()]
    return frame[review.kept].reset_index(drop=True), left_out


def _of_points(table: pd.DataFrame, what: str) -> PointCovariate:
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise DataError(
            f"expected the columns {', '.join(_NEEDED)} in {what}, found no {named(missing)}. The "
            f"columns are {named(table.columns)}."
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

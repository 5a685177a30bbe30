"""Cells of objects of xarray as rows of a table, and values of these rows as labelled arrays.

The rows are all cells, in the order of the dimensions of the object. xarray is only imported if the
user has imported it.
"""

import sys
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, named
from geogp.estimators.point_columns import PointColumns


def is_labelled(X: Any) -> bool:
    """Return whether X is a Dataset or a DataArray of xarray."""
    if "xarray" not in sys.modules:
        return False
    import xarray as xr  # noqa: PLC0415 - slow

    return isinstance(X, xr.Dataset | xr.DataArray)


def parts_of(X: Any) -> dict[Hashable, Any]:
    """Return the coordinates and the variables of an object of xarray, by name."""
    return {**getattr(X, "data_vars", {getattr(X, "name", None): X}), **X.coords}


def table_of(X: Any, columns: PointColumns) -> Any:
    """Return a table of the named coordinates and variables, with one row for each cell.

    If X is not of xarray, the result is X. Raises RequestError if a name is missing.
    """
    if not is_labelled(X):
        return X
    parts = parts_of(X)
    missing = [name for name in columns.needed if name not in parts]
    if missing:
        raise RequestError(
            f"expected coordinates or variables {named(missing)}, found {named(parts)}. Name them "
            "with x=, y=, time=, tests=, covariates=."
        )
    names = [name for name in (*columns.needed, *columns.optional) if name in parts]
    cells = {
        name: parts[name].variable.set_dims(dict(X.sizes)).to_numpy().ravel() for name in names
    }
    return pd.DataFrame(cells).infer_objects()


def target_of_cells(X: Any, y: Any) -> Any:
    """Return the values of a DataArray y in the order of the rows of X; otherwise y itself.

    Raises DataError if y and X differ in dimensions or coordinates, or y has missing values.
    """
    if not (is_labelled(X) and is_labelled(y)):
        return y
    import xarray as xr  # noqa: PLC0415 - slow

    if not isinstance(y, xr.DataArray) or set(y.dims) != set(X.sizes):
        shown = "a Dataset" if isinstance(y, xr.Dataset) else f"the dimensions {named(y.dims)}"
        raise DataError(
            f"expected y as a DataArray with the dimensions {named(X.sizes)} of X, found {shown}. "
            "Select the variables of X that have the dimensions of y."
        )
    try:
        xr.align(X, y, join="exact", copy=False)
    except ValueError as error:
        raise DataError(f"expected X and y with the same coordinates: {error}") from None
    missing = int(pd.isna(y.to_numpy()).sum())
    if missing:
        raise DataError(
            f"expected measurements in all {y.size} cells, found NaN in {missing} of them. Leave "
            f"these cells out: X.stack(row=[{', '.join(map(repr, y.dims))}]).dropna('row') has one "
            "dimension, of the other cells."
        )
    return y.transpose(*X.sizes).to_numpy().ravel()


def labelled(X: Any, values: NDArray[Any], name: str) -> Any:
    """Return values of the rows, (n,); if X is of xarray, as a DataArray of its cells."""
    if not is_labelled(X):
        return values
    import xarray as xr  # noqa: PLC0415 - slow

    cells = np.reshape(values, tuple(X.sizes.values()))
    return xr.DataArray(cells, coords=X.coords, dims=tuple(X.sizes), name=name)

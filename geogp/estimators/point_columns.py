"""Reads the coordinates, times and other columns of points from a table or an array."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.arguments import check_size, numbers_of, value_shown
from geogp.choices import one_of
from geogp.errors import DataError, RequestError, named, quoted
from geogp.estimators.point_times import QUARTERS_PER, times_of
from geogp.geodata.tiles.quadkeys import NORTHMOST
from geogp.models.numerics.arrays import check_devices

Floats = NDArray[np.float64]

WIDEST = 360.0
"""Largest absolute longitude in degrees; some files count from 0 to 360."""

POLE = 90.0
"""Largest absolute latitude in degrees."""


@dataclass(frozen=True)
class Points:
    """Coordinates, times in quarters, tests, devices and exposures of n points, each (n,).

    `covariates` are (n, c); `time_kind` is as in `Times`; `provider` are names, (n,); `group` are
    numbers of groups of measurements, (n,). None means 1 for `tests` and `exposure`, and 0 for
    `error_variance`.
    """

    x: Floats
    y: Floats
    time: Floats | None = None
    tests: Floats | None = None
    devices: Floats | None = None
    exposure: Floats | None = None
    time_kind: str | None = None
    covariates: Floats | None = None
    provider: NDArray[np.object_] | None = None
    error_variance: Floats | None = None
    group: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def look_like_degrees(self) -> bool:
        """Whether all coordinates could be a longitude and a latitude."""
        return bool(np.abs(self.x).max() <= WIDEST and np.abs(self.y).max() <= POLE)

    def at(self, rows: NDArray[np.bool_]) -> "Points":
        """Return the points that the mask `rows` selects."""
        selected: dict[str, Any] = {
            name: values[rows]
            for name, values in vars(self).items()
            if isinstance(values, np.ndarray)
        }
        return replace(self, **selected)


@dataclass(frozen=True)
class PointColumns:
    """Names of the columns that an estimator reads; None for columns that are not used."""

    x: str
    y: str
    crs: Any = None
    time: str | None = None
    time_unit: str | None = None
    tests: str | None = None
    devices: str | None = None
    exposure: str | None = None
    covariates: Sequence[str] | None = None
    provider: str | None = None
    error_variance: str | None = None
    group: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the columns without which a row cannot be read."""
        single = filter(None, (self.x, self.y, self.time, self.provider, self.exposure))
        return (*single, *covariate_names(self.covariates))

    @property
    def optional(self) -> tuple[str, ...]:
        """Names of the columns that are read if a table has them."""
        return tuple(filter(None, (self.tests, self.devices, self.error_variance, self.group)))

    def read(self, X: Any) -> Points:
        """Return the points of a table or an array.

        A table must contain all named columns, except those of tests, devices, known errors and
        groups. A GeoDataFrame of points does not need the columns x and y. The columns of an array
        are x, y and optionally time, tests and devices, in this order. Raises RequestError if a
        column or the unit of times is missing, and DataError if a value is missing or out of range.
        """
        self.check()
        is_table = isinstance(X, pd.DataFrame)
        return self.checked(self._of_table(X) if is_table else self._of_array(X))

    def check(self) -> None:
        """Raise RequestError if the crs, the unit of times or a covariate is not allowed."""
        if self.time_unit is not None:
            one_of("time_unit", self.time_unit, QUARTERS_PER)
        is_geographic(self.crs)
        covariate_names(self.covariates)

    def _of_table(self, table: pd.DataFrame) -> Points:
        if not len(table):
            raise DataError("expected rows, found an empty table.")
        place = [self.x, self.y]
        if not set(place) <= set(table.columns) and hasattr(table, "geometry"):
            x, y = self._of_geometry(table)
        else:
            x, y = (self._numbers(table, name) for name in place)
        others: dict[str, Any] = {"covariates": self.covariates_of(table)}
        if self.time is not None:
            self._need(table, self.time)
            times = times_of(table[self.time], self.time_unit, f"the column {self.time}")
            others |= {"time": times.quarters, "time_kind": times.kind}
        if self.provider is not None:
            others["provider"] = self._names(table, self.provider, "a provider")
        if self.group is not None and self.group in table.columns:
            others["group"] = pd.factorize(self._names(table, self.group, "a group"))[0]
        for key in ("tests", "devices", "exposure", "error_variance"):
            name = getattr(self, key)
            if name is not None and (key == "exposure" or name in table.columns):
                others[key] = self._numbers(table, name)
        return Points(x, y, **others)

    def _of_geometry(self, table: Any) -> tuple[Floats, Floats]:
        if not (table.geom_type == "Point").all():
            raise DataError("expected points in the geometry, found other shapes.")
        if (table.crs is None) != (self.crs is None):
            raise RequestError(
                f"expected points with the CRS {self.crs or 'None'}, found a table with the CRS "
                f"{table.crs or 'None'}. Set the same crs for the estimator and the table."
            )
        points = table.geometry if self.crs is None else table.geometry.to_crs(self.crs)
        x, y = points.x.to_numpy(np.float64), points.y.to_numpy(np.float64)
        for values in (x, y):
            _check_finite(values, "the geometry")
        return x, y

    def _of_array(self, X: Any) -> Points:
        needed = [*covariate_names(self.covariates), *filter(None, [self.provider])]
        if needed:
            raise RequestError(
                f"expected a table with the columns {named(needed)}, found "
                f"{type(X).__name__}; give a table (pandas.DataFrame) whose columns have names."
            )
        array = number_rows(X)
        if array.shape[1] > 2 and self.time_unit is None:
            raise RequestError(
                f"expected an array of x and y, found {array.shape[1]} columns. The third column "
                f"of an array is the time, never a height or a depth: for times, give time_unit, "
                f"one of {', '.join(QUARTERS_PER)}. For other columns, give a table "
                f"(pandas.DataFrame) whose columns have names."
            )
        names = ("x", "y", "time", "tests", "devices")
        if not 2 <= array.shape[1] <= len(names):
            raise DataError(
                f"expected the columns {named(names)} (the last three are optional), found "
                f"{array.shape[1]} feature(s) (shape={array.shape}) while a minimum of "
                "2 is required."
            )
        table = pd.DataFrame(dict(zip(names, array.T, strict=False)))
        present = {name: name for name in table.columns}
        columns = PointColumns(crs=self.crs, time_unit=self.time_unit, **present)
        return columns._of_table(table)

    def covariates_of(self, table: Any) -> Floats | None:
        """Return the values of the covariates, (n, c); None if the estimator has no covariates."""
        names = covariate_names(self.covariates)
        return np.column_stack([self._numbers(table, name) for name in names]) if names else None

    def _numbers(self, table: pd.DataFrame, name: str) -> Floats:
        self._need(table, name)
        column = table[name]
        if column.dtype.kind not in "iuf":
            raise DataError(f"expected numbers in the column {name}, found {column.dtype}.")
        values = column.to_numpy(np.float64, na_value=np.nan)
        _check_finite(values, f"the column {name}")
        return values

    def _names(self, table: pd.DataFrame, column: str, what: str) -> NDArray[np.object_]:
        """Return the names in a column as text; raise DataError if one is missing."""
        self._need(table, column)
        names = table[column]
        if names.isna().any() or (names == "").any():
            raise DataError(f"expected {what} in each row of the column {column}.")
        return names.astype(str).to_numpy(object)

    def _need(self, table: pd.DataFrame, name: str) -> None:
        if name not in table.columns:
            raise RequestError(
                f"expected a column {quoted(name)}, found the columns "
                f"{named(table.columns)}. Name the columns with x=, y=, time=, "
                "tests=, covariates=."
            )
        if isinstance(table[name], pd.DataFrame):
            raise RequestError(f"expected one column {quoted(name)}, found several with this name.")

    def checked(self, points: Points) -> Points:
        """Return the same points; raise DataError if a coordinate or a number is out of range."""
        names = ("x", "y", "time", "tests", "devices", "exposure", "covariates", "error_variance")
        for name in names:
            values = getattr(points, name)
            if values is not None:
                check_size(values, f"numbers in {name}")
        if is_geographic(self.crs):
            x, y = points.x, points.y
            self.check_degrees((x.min(), y.min(), x.max(), y.max()))
        for name in ("tests", "devices"):
            values = getattr(points, name)
            if values is not None and values.min() < 1:
                raise DataError(f"expected {name} of 1 or more, found {values.min():g}.")
        if points.devices is not None:
            tests = np.ones(len(points)) if points.tests is None else points.tests
            check_devices(points.devices, tests)
        if points.exposure is not None and not points.exposure.min() > 0:
            raise DataError(f"expected exposures above 0, found {points.exposure.min():g}.")
        if points.error_variance is not None and points.error_variance.min() < 0:
            least = points.error_variance.min()
            raise DataError(f"expected error variances of 0 or more, found {least:g}.")
        return points

    def check_degrees(self, bounds: tuple[float, float, float, float]) -> None:
        """Raise DataError if the bounds of points are not in degrees, or are too near a pole."""
        west, south, east, north = bounds
        extent = f"x from {west:g} to {east:g} and y from {south:g} to {north:g}"
        if max(-south, north) > POLE or max(-west, east) > WIDEST:
            raise DataError(
                f"expected longitudes and latitudes in degrees for crs={self.crs!r}, found "
                f"{extent}. Are x and y swapped, or are they in metres? Name the projected CRS of "
                f"metres, such as crs='EPSG:32161', or use crs=None for plane coordinates in any "
                f"unit."
            )
        if max(-south, north) > NORTHMOST:
            raise DataError(
                f"expected latitudes from {-NORTHMOST:.2f} to {NORTHMOST:.2f} degrees, found "
                f"{extent}: near a pole, degrees give wrong distances. Project the points, for "
                f"example to EPSG:3413 (north) or EPSG:3031 (south), and name this crs."
            )


def number_rows(X: Any) -> Floats:
    """Return an array of numbers, (n, d) float64, with n of 1 or more.

    Raises DataError if X is a table of another library, a sparse array or no array of real numbers.
    """
    if hasattr(X, "to_dataframe"):
        raise DataError(
            f"expected a pandas table or an array, found {type(X).__name__}; convert it with "
            "to_dataframe().reset_index()."
        )
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        raise DataError(
            f"expected a pandas table or an array, found {type(X).__name__}; convert it with "
            "to_pandas()."
        )
    if type(X).__module__.startswith("scipy.sparse"):
        raise DataError("expected a dense array: sparse input is not supported.")
    array = numbers_of(X, "an array of numbers")
    if array.ndim != 2:
        raise DataError(
            f"expected an array of n rows and d columns, found shape {array.shape}. "
            f"Reshape your data: one row for each point."
        )
    if not len(array):
        raise DataError(f"expected rows, found 0 sample(s) (shape={array.shape}).")
    return array


def covariate_names(covariates: Any) -> tuple[str, ...]:
    """Return the names of covariates; raise RequestError unless all are different strings."""
    if covariates is None:
        return ()
    names = tuple(covariates) if isinstance(covariates, list | tuple) else (None,)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise RequestError(
            f"expected covariates as a list of different columns, found {quoted(covariates)}."
        )
    return names


def is_geographic(crs: Any) -> bool:
    """Return whether coordinates are longitude and latitude in degrees, counted from Greenwich.

    Raises RequestError if `crs` is unknown, or has angles in another unit or from another meridian.
    """
    if crs is None:
        return False
    system = _system_of(crs)
    if not system.is_geographic:
        return False
    if system.axis_info[0].unit_name != "degree" or system.prime_meridian.longitude != 0:
        raise RequestError(
            f"expected longitude and latitude in degrees, counted from Greenwich, found {crs!r} in "
            f"{system.axis_info[0].unit_name} from {system.prime_meridian.name}. Convert the "
            f"points to EPSG:4326."
        )
    return True


def km_per_unit(crs: Any) -> float:
    """Return the length, in km, of one unit of a projected coordinate reference system."""
    return float(_system_of(crs).axis_info[0].unit_conversion_factor) / 1000


def from_degrees(crs: Any, longitude: Floats, latitude: Floats) -> tuple[Floats, Floats]:
    """Convert longitudes and latitudes to the coordinates x and y in `crs`, each (n,)."""
    if is_geographic(crs):
        return longitude, latitude
    from pyproj import Transformer  # noqa: PLC0415 - only needed here

    to = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    x, y = to.transform(longitude, latitude)
    return np.asarray(x, np.float64), np.asarray(y, np.float64)


def crs_text(crs: Any) -> str | None:
    """Return a coordinate reference system as text; None for plane coordinates in any unit."""
    return crs if crs is None or isinstance(crs, str) else str(_system_of(crs).to_string())


def _system_of(crs: Any) -> Any:
    from pyproj import CRS  # noqa: PLC0415 - only needed if given
    from pyproj.exceptions import CRSError  # noqa: PLC0415

    try:
        return CRS.from_user_input(crs)
    except (CRSError, TypeError, ValueError) as error:
        raise RequestError(
            f"expected a coordinate reference system such as EPSG:4326, or None, found "
            f"{value_shown(crs)}."
        ) from error


def _check_finite(values: Floats, what: str) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise DataError(
            f"expected finite numbers in {what}, found NaN or infinity in {int(wrong.sum())} of "
            f"{len(values)} rows, the first in row {int(wrong.argmax())}; drop those rows."
        )

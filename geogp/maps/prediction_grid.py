"""Rasters of predictions for tiles or for a box, in the unit of the predicted quantity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Floats, Frame

Bounds = tuple[float, float, float, float]

LEVEL = 0.95
"""Level of the prediction intervals in a raster."""

CELLS = 100
"""Number of cells along the longer side of a box, if no resolution is given."""

MAX_CELLS = 20_000_000
"""Largest number of cells of a raster."""

LABELS = {
    "median": "median of the prediction",
    "mean": "mean of the prediction",
    "lower_95": "lower end of the 95 % interval",
    "upper_95": "upper end of the 95 % interval",
    "sd": "standard deviation of the prediction",
    "function_sd": "standard deviation without the noise of measurements",
}
"""Variables of a raster, with their labels."""

ATTRIBUTES = {"Conventions": "CF-1.10", "history": "made by geogp"}
"""Attributes of a raster."""


@dataclass(frozen=True)
class Box:
    """A rectangle of coordinates (west, south, east, north), divided into equal cells."""

    bounds: Bounds
    columns: int
    rows: int

    @classmethod
    def of(cls, bounds: Sequence[float], resolution: float | None = None) -> "Box":
        """Return a box with cells of about `resolution`.

        `resolution` defaults to a hundredth of the longer side. Raises RequestError if `bounds` are
        not a box, or the box would have too many cells.
        """
        try:
            west, south, east, north = (float(edge) for edge in bounds)
        except (TypeError, ValueError):
            raise RequestError(
                f"expected a region, or west, south, east, north, found {bounds!r:.80}."
            ) from None
        if not (np.isfinite(bounds).all() and west < east and south < north):
            raise RequestError(f"expected west < east and south < north, found bounds {bounds}.")
        side = max(east - west, north - south) / CELLS if resolution is None else resolution
        if not 0 < side < np.inf:
            raise RequestError(f"expected a resolution above 0, found {resolution}.")
        columns, rows = (max(1, round(length / side)) for length in (east - west, north - south))
        if columns * rows > MAX_CELLS:
            raise RequestError(
                f"a raster of {columns:,} by {rows:,} cells is too large; choose a coarser "
                "resolution."
            )
        return cls((west, south, east, north), columns, rows)

    @property
    def transform(self) -> Affine:
        """Affine map from pixel corners (column, row) to coordinates."""
        west, south, east, north = self.bounds
        return Affine((east - west) / self.columns, 0, west, 0, -(north - south) / self.rows, north)

    @property
    def x(self) -> Floats:
        """The x coordinates of the centres of the columns, in ascending order."""
        west, _, east, _ = self.bounds
        return west + (np.arange(self.columns) + 0.5) * (east - west) / self.columns

    @property
    def y(self) -> Floats:
        """The y coordinates of the centres of the rows, in descending order."""
        _, south, _, north = self.bounds
        return north - (np.arange(self.rows) + 0.5) * (north - south) / self.rows


def tile_grid(tiles: Tiles, prediction: Prediction) -> xr.Dataset:
    """Return predictions for distinct tiles as a raster in EPSG:3857, where tiles are square.

    The variables, named in `LABELS`, are float32 with dimensions (y, x), and NaN outside the tiles.
    """
    frame = Frame.of_tiles(tiles)
    data = {name: frame.place(tiles, v, np.nan) for name, v in _variables(prediction).items()}
    return _raster(data, frame, "EPSG:3857")


def box_grid(box: Box, prediction: Prediction, crs: Any) -> xr.Dataset:
    """Return predictions for the cells of a box, given row by row, as a raster.

    `crs` is None for coordinates without a CRS. The variables, named in `LABELS`, are float32 with
    dimensions (y, x).
    """
    shape = box.rows, box.columns
    data = {name: values.reshape(shape) for name, values in _variables(prediction).items()}
    return _raster(data, box, crs)


def coordinate_grid(
    x: xr.DataArray, y: xr.DataArray, prediction: Prediction, crs: Any
) -> xr.Dataset:
    """Return predictions at all cells of coordinates x and y, which have the same dimensions.

    The variables, named in `LABELS`, are float32 with the dimensions and coordinates of x and y.
    `crs` is None for coordinates without a CRS.
    """
    data = {
        name: (y.dims, values.reshape(y.shape), {"long_name": LABELS[name]})
        for name, values in _variables(prediction).items()
    }
    grid = xr.Dataset(data, coords={**x.coords, **y.coords}, attrs=ATTRIBUTES)
    if crs is None:
        return grid
    import rioxarray  # noqa: F401, PLC0415 - registers the accessor .rio; slow

    if y.ndim == 2 and {x.name, y.name} == set(y.dims):
        grid = grid.rio.set_spatial_dims(x.name, y.name)
    return grid.rio.write_crs(crs)  # type: ignore[no-any-return]


def _variables(prediction: Prediction) -> dict[str, NDArray[np.float32]]:
    lower, upper = prediction.interval(LEVEL)
    function_sd = np.sqrt(prediction.function_variance)
    values = (prediction.median, prediction.mean, lower, upper, prediction.sd, function_sd)
    return {name: value.astype(np.float32) for name, value in zip(LABELS, values, strict=True)}


def _raster(data: dict[str, NDArray[Any]], place: Box | Frame, crs: Any) -> xr.Dataset:
    grid = xr.Dataset(
        {name: (("y", "x"), values, {"long_name": LABELS[name]}) for name, values in data.items()},
        coords={"y": place.y, "x": place.x},
        attrs=ATTRIBUTES,
    )
    return grid if crs is None else georeferenced(grid, crs, place.transform)


def georeferenced(grid: xr.Dataset, crs: Any, transform: Affine) -> xr.Dataset:
    """Return a grid with a CRS, and with the affine map from pixel corners to coordinates."""
    import rioxarray  # noqa: F401, PLC0415 - registers the accessor .rio; slow

    placed: xr.Dataset = grid.rio.set_spatial_dims("x", "y").rio.write_crs(crs)
    return placed.rio.write_transform(transform).rio.write_coordinate_system()  # type: ignore[no-any-return]

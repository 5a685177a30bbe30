"""Predictions on the raster of a region, of a box, or of an object of xarray."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import numbers_of
from geogp.choices import whole_number
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError, named
from geogp.estimators.labelled_cells import is_labelled, parts_of
from geogp.estimators.point_columns import PointColumns, covariate_names, from_degrees
from geogp.estimators.point_scale import Bounds, PointScale
from geogp.estimators.point_times import Times, time_at
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.maps.prediction_grid import MAX_CELLS, Box, box_grid, coordinate_grid, tile_grid

Floats = NDArray[np.float64]


def predicted_grid(
    predict: Callable[[Floats, Floats], Prediction],
    region: Region | Bounds | xr.Dataset | xr.DataArray,
    columns: PointColumns,
    *,
    zoom: int,
    resolution: float | None,
) -> xr.Dataset:
    """Return predictions at the tiles of a region, or at the cells of a box or an xarray object.

    `predict` receives the coordinates x and y in the crs of `columns`, each (n,).
    """
    whole_number("zoom", zoom, 1, ZOOM)
    crs = columns.crs
    if isinstance(region, xr.Dataset | xr.DataArray):
        if resolution is not None:
            raise RequestError(
                f"expected no resolution, because the coordinates {columns.x} and {columns.y} "
                f"define the raster; found {resolution}."
            )
        cells = _cells(region, columns)
        places = (numbers_of(part, f"the coordinate {part.name}").ravel() for part in cells)
        return coordinate_grid(*cells, predict(*places), crs)
    if not isinstance(region, Region):
        box = Box.of(region, resolution)
        x, y = (values.ravel() for values in np.meshgrid(box.x, box.y))
        return box_grid(box, predict(x, y), crs)
    if crs is None:
        raise RequestError(
            "expected a box of west, south, east, north, because crs is None; found a region."
        )
    tile_count = region.about_tiles(zoom, MAX_CELLS)
    if tile_count > MAX_CELLS:
        raise RequestError(
            f"{region.name} has {tile_count:,} tiles of zoom {zoom}, more than {MAX_CELLS:,}; "
            f"choose a smaller zoom."
        )
    tiles = region.tiles(zoom)
    return tile_grid(tiles, predict(*from_degrees(crs, *tiles.centres)))


def own_covariates(
    region: Any, columns: PointColumns
) -> dict[str, Callable[[Floats, Floats], ArrayLike]]:
    """Return functions for the covariates among the variables of an object of xarray.

    Raises RequestError if such a variable has other dimensions than the raster.
    """
    names = covariate_names(columns.covariates)
    if not (names and is_labelled(region)):
        return {}
    parts, cells = parts_of(region), _cells(region, columns)[0]
    functions: dict[str, Callable[[Floats, Floats], ArrayLike]] = {}
    for name in filter(parts.__contains__, names):
        dims = parts[name].dims
        if not set(dims) <= set(cells.dims):
            raise RequestError(
                f"expected the covariate {name} over the dimensions {named(cells.dims)} of the "
                f"raster, found {named(dims)}. Select one of its layers."
            )
        values = parts[name].variable.set_dims(dict(cells.sizes)).to_numpy().ravel()
        functions[name] = partial(_given, values)
    return functions


def _given(values: Floats, _x: Floats, _y: Floats) -> Floats:
    return values


def _cells(region: Any, columns: PointColumns) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the coordinates x and y of all cells, each with the dimensions of y and then of x."""
    parts = parts_of(region)
    missing = [name for name in (columns.x, columns.y) if name not in parts]
    if missing:
        raise RequestError(
            f"expected a raster with the coordinates {named((columns.x, columns.y))}, found "
            f"{named(parts)}. Rename them, or name the columns of the estimator with x=, y=."
        )
    y, x = xr.broadcast(parts[columns.y], parts[columns.x])
    if y.size > MAX_CELLS:
        raise RequestError(
            f"a raster of {y.size:,} cells is too large; at most {MAX_CELLS:,} are possible."
        )
    return x, y


def check_grid(columns: PointColumns, covariates: Iterable[str], provider: str | None) -> None:
    """Raise RequestError if a covariate is missing, or there is a provider for other models."""
    missing = [name for name in covariate_names(columns.covariates) if name not in covariates]
    if missing:
        raise RequestError(
            f"expected covariates= with a function for {', '.join(missing)}, because the model was "
            f"fitted to them."
        )
    if provider is not None and columns.provider is None:
        raise RequestError(
            f"expected no provider, because the model has no providers, found {provider!r}."
        )


def grid_time(scale: PointScale, time: Any, unit: str | None) -> Times | None:
    """Return the time of a map; None for models of place alone."""
    if scale.times is None:
        return None
    if time is None:
        raise RequestError("expected time=, because the model was fitted to rows at several times.")
    return time if isinstance(time, Times) else time_at(time, unit)

"""Predictions on the raster of a region or of a box."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.choices import whole_number
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.estimators.point_columns import PointColumns, covariate_names, from_degrees
from geogp.estimators.point_scale import Bounds, PointScale
from geogp.estimators.point_times import Times, time_at
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.maps.prediction_grid import MAX_CELLS, Box, box_grid, tile_grid

Floats = NDArray[np.float64]


def predicted_grid(
    predict: Callable[[Floats, Floats], Prediction],
    region: Region | Bounds,
    crs: Any,
    *,
    zoom: int,
    resolution: float | None,
) -> xr.Dataset:
    """Return predictions at the centres of a region's tiles, or of a box's cells.

    `predict` receives the coordinates x and y in `crs`, each (n,).
    """
    whole_number("zoom", zoom, 1, ZOOM)
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
    return time_at(time, unit)

"""Predictions at the cells of a map."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.choices import whole_number
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.estimators.point_columns import from_degrees
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.maps.prediction_grid import MOST_CELLS, Box, box_grid, tile_grid

Floats = NDArray[np.float64]
Predict = Callable[[Floats, Floats], Prediction]
"""Predicts at coordinates x and y, each (n,)."""


def region_grid(region: Region, zoom: int, crs: Any, predict: Predict) -> xr.Dataset:
    """Return predictions for the tiles of a region.

    RequestError where the zoom is out of range or has too many tiles, or `crs` is None.
    """
    if crs is None:
        raise RequestError("expected a box of plain units, as crs is None; found a region.")
    whole_number("zoom", zoom, 1, ZOOM)
    found = region.about_tiles(zoom, MOST_CELLS)
    if found > MOST_CELLS:
        raise RequestError(
            f"{region.name} has {found:,} tiles of zoom {zoom}, more than {MOST_CELLS:,}; ask for "
            "a smaller zoom."
        )
    tiles = region.tiles(zoom)
    return tile_grid(tiles, predict(*from_degrees(crs, *tiles.centres)))


def plane_grid(
    bounds: Sequence[float], resolution: float | None, crs: Any, predict: Predict
) -> xr.Dataset:
    """Return predictions for the cells of a box; RequestError for a bad box or too many cells."""
    box = Box.of(bounds, resolution)
    x, y = (part.ravel() for part in np.meshgrid(box.x, box.y))
    return box_grid(box, predict(x, y), crs)

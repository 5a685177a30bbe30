"""Coordinates of points from the columns of a table, and the area that the points span."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from geogp.geodata.points.point_table import PointTable
from geogp.geodata.tiles.quadkeys import NORTHMOST

Floats = NDArray[np.float64]


def coordinates(
    table: PointTable, columns: Mapping[str, str], faults: list[str]
) -> tuple[Floats, Floats]:
    """Return longitude and latitude of n points in degrees; add faults of missing or wrong ones.

    `columns` has the names of the columns ``longitude`` and ``latitude``. Points with the
    coordinates 0, 0 have no coordinates: devices without a position write them.
    """
    before = len(faults)
    longitude, latitude = (
        table.numbers(columns[role], faults) for role in ("longitude", "latitude")
    )
    if len(faults) > before:
        return longitude, latitude
    absent = np.isnan(longitude) | np.isnan(latitude) | ((longitude == 0) & (latitude == 0))
    if absent.any():
        faults.append(
            f"expected coordinates, found none (an empty cell, or 0, 0) in {table.where(absent)}."
        )
    beyond = ~absent & ((np.abs(latitude) > NORTHMOST) | (np.abs(longitude) > 180))
    if beyond.any():
        swapped = np.abs(longitude[beyond]).max() <= NORTHMOST
        hint = " Are latitude and longitude swapped?" if swapped else ""
        faults.append(
            f"expected latitudes from -{NORTHMOST:.2f} to {NORTHMOST:.2f} and longitudes from -180 "
            f"to 180 degrees, found {latitude[beyond][0]:g} and {longitude[beyond][0]:g} and the "
            f"like in {table.where(beyond)}.{hint}"
        )
    return longitude, latitude

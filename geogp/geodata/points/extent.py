"""The places near a user's own tests: the region of a map without another region."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import MultiPoint
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError
from geogp.geodata.places.distances import spacing_km
from geogp.geodata.tiles import quadkeys

Floats = NDArray[np.float64]

MARGIN_DEGREES = 0.02
"""Largest distance from the convex hull of the tests to the border of their extent: some tiles."""

SPACING_SHARE, SPACINGS, LEAST_REACH_KM = 0.95, 1.5, 2.0
"""The extent reaches 1.5 times as far from measured tiles as 95 % of them lie from the next.

Tiles that are scattered at random then leave gaps in 0.1 % of the area: 0.05^(1.5^2).
"""

_CORNERS = 24
"""Number of corners of the circles around measured tiles."""


@dataclass(frozen=True)
class PointExtent:
    """The places within `reach_km` of the centre of a tile with tests, in degrees.

    The `shape` lies inside the convex hull of the tests with a margin of about 2 km. `measured` are
    the tiles with tests as boxes, (m,).
    """

    shape: BaseGeometry
    reach_km: float
    measured: NDArray[np.object_]

    @classmethod
    def of(cls, path: Path, longitude: Floats, latitude: Floats) -> "PointExtent":
        """Return the extent of tests; raise DataError if they lie all around the world."""
        tiles = np.unique(np.column_stack(quadkeys.tiles_at(longitude, latitude)), axis=0)
        edges = quadkeys.tile_bounds(tiles[:, 0], tiles[:, 1])
        x, y = quadkeys.tile_centres(tiles[:, 0], tiles[:, 1])
        spacing = spacing_km(x, y)
        usual = float(np.quantile(spacing, SPACING_SHARE)) if len(spacing) > 1 else 0.0
        reach_km = max(LEAST_REACH_KM, SPACINGS * usual)
        if np.ptp(longitude) > 180:
            longitude, x = longitude % 360, x % 360
        if np.ptp(longitude) > 180:
            raise DataError(
                f"the points of {path} lie all around the world. Choose a region, such as PR, or "
                "--region-file."
            )
        turns = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
        high = np.rad2deg(reach_km / quadkeys.EARTH_RADIUS_KM)
        wide = high / np.cos(np.deg2rad(y))
        corners = x[:, None] + wide[:, None] * np.cos(turns), y[:, None] + high * np.sin(turns)
        near = shapely.union_all(shapely.polygons(np.stack(corners, -1)))
        hull = MultiPoint(np.column_stack([longitude, latitude])).convex_hull
        boxes = shapely.box(edges.west, edges.south, edges.east, edges.north)
        return cls(hull.buffer(MARGIN_DEGREES).intersection(near), reach_km, np.asarray(boxes))

"""Polygons with longitudes from -180 to 180, cut at the antimeridian."""

import geopandas as gpd
import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import MultiPolygon, Polygon

from geogp.errors import DataError
from geogp.geodata.places.region import cut_at_antimeridian, polygonal_parts

_PIECES = 100
"""An edge is cut into pieces as long as the larger side of its polygon divided by this number."""


def within_one_turn(source: gpd.GeoSeries, degrees: gpd.GeoSeries) -> gpd.GeoSeries:
    """Return polygons in degrees with longitudes from -180 to 180, cut at the antimeridian.

    `degrees` is `source` reprojected vertex by vertex. Reprojection wraps longitudes, so the ring
    of a polygon across the antimeridian jumps from one side to the other. A polygon that became
    wider than 180 degrees is reprojected again with its edges in small pieces, and the longitudes
    along the edges are unwrapped. If a polygon is already wider than 180 degrees in a file in
    degrees, it is not unwrapped. Raises DataError if a polygon lies beyond 360 degrees east or west
    or beyond a pole, or encloses a pole.
    """
    before, row = shapely.get_parts(source.to_numpy(), return_index=True)
    after = shapely.get_parts(degrees.to_numpy())
    bounds = shapely.bounds(after)
    _require_degrees(degrees, row, bounds)
    torn = _width(bounds) > 180
    if degrees.crs is not None and source.crs.is_geographic:
        torn &= _width(shapely.bounds(before)) <= 180
    beyond = (bounds[:, 0] < -180) | (bounds[:, 2] > 180)
    moved = np.unique(row[torn | beyond])
    if not len(moved):
        return degrees
    shapes = degrees.to_numpy().copy()
    for k in moved:
        held: list[Polygon] = []
        for part in np.flatnonzero(row == k):
            whole = after[part]
            if torn[part]:
                whole = _unwrapped(before[part], source, degrees.index[k])
            held += cut_at_antimeridian(whole)
        shapes[k] = held[0] if len(held) == 1 else MultiPolygon(held)
    return gpd.GeoSeries(shapes, index=degrees.index, crs=degrees.crs)


def _require_degrees(
    degrees: gpd.GeoSeries, row: NDArray[np.int64], bounds: NDArray[np.float64]
) -> None:
    good = (np.abs(bounds[:, [0, 2]]) <= 360) & (np.abs(bounds[:, [1, 3]]) <= 90)
    wrong = np.flatnonzero(~good.all(1))
    if len(wrong):
        raise DataError(
            f"expected polygons in degrees, found {bounds[wrong[0]].tolist()} in row "
            f"{degrees.index[row[wrong[0]]]}. Are the coordinates in metres, or in another CRS?"
        )


def _width(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    width: NDArray[np.float64] = bounds[:, 2] - bounds[:, 0]
    return width


def _unwrapped(part: Polygon, source: gpd.GeoSeries, row: object) -> Polygon:
    """Return a polygon in degrees whose longitudes are continuous along its rings."""
    west, south, east, north = part.bounds
    fine = shapely.segmentize(part, max(east - west, north - south) / _PIECES)
    fine = gpd.GeoSeries([fine], crs=source.crs).to_crs(4326).iloc[0]
    shell = _running(fine.exterior, row)
    holes = [_running(ring, row) for ring in fine.interiors]
    middle = _middle(shell)
    for hole in holes:
        hole[:, 0] += 360 * round((middle - _middle(hole)) / 360)
    whole = Polygon(shell, holes)
    # Wrongly unwrapped rings cross themselves, and lose area when they are made valid.
    area = sum(piece.area for piece in polygonal_parts(whole))
    if not area or abs(area - whole.area) > 1e-6 * whole.area:
        raise _refusal(row, "cannot be split into valid polygons at the antimeridian")
    return whole


def _running(ring: shapely.LinearRing, row: object) -> NDArray[np.float64]:
    """Return the vertices of a ring with multiples of 360 degrees added to avoid jumps."""
    points: NDArray[np.float64] = shapely.get_coordinates(ring)
    points[:, 0] = np.unwrap(points[:, 0], period=360)
    if abs(points[-1, 0] - points[0, 0]) > 180:
        raise _refusal(row, "encloses a pole")
    return points


def _middle(points: NDArray[np.float64]) -> float:
    return float(points[:, 0].min() + points[:, 0].max()) / 2


def _refusal(row: object, what: str) -> DataError:
    return DataError(
        f"the polygon in row {row} {what}. Reproject the polygons to EPSG:4326, cut them at 180 "
        "degrees, and give the new file."
    )

"""Places on a page: the county of each tile; bounds of counties and urban areas; towns."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray
from scipy import ndimage
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError
from geogp.geodata.places.distances import distance_km
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.quadkeys import tiles_at
from geogp.maps.frame import Frame
from geogp.maps.page.page_assets import asset_bytes

MAX_TOWNS = 2_000
"""Largest number of towns on a page."""

NEAR_KM = 30.0
"""Largest distance of the town after which an area is named."""

TOWN = "town"
"""First word of the kind of a town."""

_TOWNS = "vendored/geonames/towns.parquet"

_MAIN_SHARE = 0.99


def unwrapped(region: Region, layer: PolygonLayer) -> list[BaseGeometry]:
    """Return the polygons of a layer, with longitudes in the same range as in the region.

    The parts of a polygon that a file cuts at 180 degrees are joined.
    """

    def shift(points: NDArray[np.float64]) -> NDArray[np.float64]:
        longitude = points[:, 0]
        # Add exact multiples of 360 degrees; otherwise a gap would remain at 180 degrees.
        turns = np.round((region.unwrap(longitude) - longitude) / 360)
        return np.column_stack([longitude + 360 * turns, points[:, 1]])

    shapes = [shapely.transform(shape, shift) for shape in layer.shapes]
    west, _, east, _ = region.bounds
    # A region with longitudes beyond 180 degrees crosses the antimeridian.
    return (
        shapes if west >= -180 and east <= 180 else [shapely.union_all([shape]) for shape in shapes]
    )


def named_places(region: Region, layers: Sequence[PolygonLayer | None]) -> list[dict[str, Any]]:
    """Return name, kind, bounds and place of the polygons in a region.

    If a polygon extends beyond the region, such as an urban area across a border, the bounds
    [south, west, north, east] are for the part within the region's bounds. The place ``at``
    [latitude, longitude] is inside the largest part of the polygon on the region's land.
    """
    shapely.prepare(region.boundary)
    places = []
    for layer in layers:
        if layer is None:
            continue
        for name, shape in zip(layer.labels, unwrapped(region, layer), strict=True):
            inside = shapely.clip_by_rect(shape, *region.bounds)
            if inside.is_empty or not shapely.intersects(region.boundary, shape):
                continue
            west, south, east, north = (round(float(edge), 4) for edge in inside.bounds)
            place = {"name": name, "kind": layer.name, "bounds": [south, west, north, east]}
            places.append(place | {"at": _place_in(shapely.intersection(region.boundary, shape))})
    return places


def _place_in(shape: BaseGeometry) -> list[float]:
    """Return latitude and longitude of a point in the largest part of a shape."""
    parts = shapely.get_parts(shape)
    point = parts[np.argmax(shapely.area(parts))].representative_point()
    return [round(point.y, 4), round(point.x, 4)]


def _read_towns() -> pd.DataFrame:
    """Return the towns of the world, the largest first: name, longitude and latitude."""
    towns = pd.read_parquet(BytesIO(asset_bytes(_TOWNS)))
    return towns.assign(longitude=towns["longitude"] / 1000, latitude=towns["latitude"] / 1000)


def town_places() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitudes and latitudes in degrees of the towns of the world, (n,) each."""
    towns = _read_towns()
    return towns["longitude"].to_numpy(), towns["latitude"].to_numpy()


def town_near(region: Region) -> str | None:
    """Return the name of the largest town in a region, or of the nearest within `NEAR_KM`.

    The distance is that from a place inside the region. Returns None without such a town, and in an
    invented region.
    """
    if region.invented:
        return None
    towns = _read_towns()
    inside = np.flatnonzero(region.contains(towns["longitude"], towns["latitude"]))
    if len(inside):
        return str(towns["name"].iloc[inside[0]])
    middle = region.boundary.representative_point()
    km = distance_km(towns["longitude"], towns["latitude"], [middle.x], [middle.y])
    nearest = int(np.argmin(km))
    return str(towns["name"].iloc[nearest]) if km[nearest] <= NEAR_KM else None


def towns_on(
    tiles: Tiles, region: Region, county: NDArray[np.object_] | None
) -> tuple[list[dict[str, Any]], str]:
    """Return the largest towns on tiles, in the form of `named_places`.

    The names are those of GeoNames; the largest town comes first. The bounds of a town are a point.
    `county` has the name of each tile's county; the kind of a town whose name is not unique then
    includes the county. The second value is empty, or, if there are more than `MAX_TOWNS`, a space
    and a sentence that says so. No town lies in an invented region.
    """
    if region.invented:
        return [], ""
    towns = _read_towns()
    x, y = region.unwrap(towns["longitude"]), towns["latitude"]
    column, row = tiles_at(x, y, tiles.zoom)
    cells = pd.DataFrame({"column": tiles.column, "row": tiles.row, "county": county})
    shown = towns.assign(longitude=x, latitude=y, column=column, row=row).merge(cells)
    ambiguous = shown["name"].duplicated(keep=False) & shown["county"].notna()
    shown["kind"] = np.where(ambiguous, f"{TOWN} in " + shown["county"].astype(str), TOWN)
    columns = shown[["name", "kind", "latitude", "longitude"]].head(MAX_TOWNS).round(3)
    places = [
        {"name": name, "kind": kind, "bounds": [*place, *place]}
        for name, kind, *place in columns.itertuples(index=False)
    ]
    left_out = f" It names the largest {len(places):,} of {len(shown):,} towns."
    return places, left_out if len(shown) > len(places) else ""


def main_bounds(tests: NDArray[np.float64], frame: Frame) -> list[float]:
    """Return the bounds [south, west, north, east] of the main parts of a region.

    A part consists of tiles that touch each other, also at corners. The size of a part is the mean
    of its share of all tiles and its share of measured tiles. The main parts are the largest parts,
    whose sizes sum to 99 %. A small, distant island without tests is thus outside the first view.
    `tests` (height, width) is the number of tests on each tile, or NaN outside the region. Raises
    DataError if no tile is in the region.
    """
    inside = ~np.isnan(tests)
    if not inside.any():
        raise DataError("expected at least one tile in the region, found none.")
    parts, count = ndimage.label(inside, np.ones((3, 3)))
    weights = inside / inside.sum()
    measured = tests > 0
    if measured.any():
        weights = (weights + measured / measured.sum()) / 2
    share = np.bincount(parts.ravel(), weights.ravel(), minlength=count + 1)[1:]
    order = np.argsort(-share, kind="stable")
    enough = int(np.searchsorted(np.cumsum(share[order]), _MAIN_SHARE)) + 1
    down, across = np.nonzero(np.isin(parts, order[:enough] + 1))
    shown = Frame(
        frame.zoom,
        frame.column + int(across.min()),
        frame.row + int(down.min()),
        int(np.ptp(across)) + 1,
        int(np.ptp(down)) + 1,
    )
    west, south, east, north = shown.bounds
    return [south, west, north, east]


def labelled_tiles(
    layer: PolygonLayer, region: Region, tiles: Tiles
) -> tuple[NDArray[np.float64], list[str]]:
    """Return the index of each tile's polygon (NaN if none), and the names of these polygons.

    Polygons without tiles have no index and no name.
    """
    longitude, latitude = tiles.centres
    index = layer.index(region.unwrap(longitude), latitude)
    present = np.unique(index[index >= 0])
    number = np.full(len(layer) + 1, np.nan)
    number[present] = np.arange(len(present))
    return number[index], [layer.labels[polygon] for polygon in present]

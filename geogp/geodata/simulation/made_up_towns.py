"""Made-up towns for regions without urban areas."""

import numpy as np
import scipy.optimize
import shapely
from numpy.typing import NDArray
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from geogp.geodata.places.region import Region, polygonal_parts
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM

Floats = NDArray[np.float64]

URBAN_SHARE = 0.03  # share of the land that all towns together cover

_LAND_OF_A_TOWN = 2500.0  # km² of land, urban or rural, for each urban area
_FEWEST = 5  # as many towns as in the demo region
_STREAM = 2010  # makes random numbers of towns and tiles independent
_DEGREE_KM = np.pi / 180 * EARTH_RADIUS_KM


def made_up_towns(region: Region, seed: int) -> MultiPolygon:
    """Return made-up urban areas inside a region, in degrees.

    The area of the k-th town is proportional to 1 / k (Zipf's law). In 2010, the United States had
    3,573 urban areas on 9.1 million km² of land, and 3.0 % of the land was urban (Census Bureau,
    2010 Census Urban and Rural Classification). So there is one town for each 2,500 km² of land,
    but at least five towns. The centres of towns are uniform in the region, and outlines are wavy.
    Parts outside the region are cut off, and all towns are scaled by one factor, until they cover
    the share `URBAN_SHARE` of the land.
    """
    rng = np.random.default_rng((seed, _STREAM))
    land = ground_km2(region.boundary)
    count = max(_FEWEST, round(land / _LAND_OF_A_TOWN))
    size = 1 / np.arange(1, count + 1)
    radius = np.sqrt(URBAN_SHARE * land * size / size.sum() / np.pi)
    centres = _centres(region.boundary, count, rng)
    stretch = np.exp(rng.uniform(-0.35, 0.35, count))
    few = rng.uniform(0.06, 0.15, count), rng.integers(3, 7, count)
    many = rng.uniform(0.03, 0.09, count), rng.integers(7, 12, count)
    waves = list(zip(*few, *many, strict=True))

    def drawn(scale: float) -> MultiPolygon:
        longitude, latitude = centres.T
        up = scale * radius / _DEGREE_KM
        across = up / np.cos(np.deg2rad(latitude))
        wide, high = across * stretch, up / stretch
        towns = [
            wavy_ellipse(longitude[k], latitude[k], wide[k], high[k], waves=waves[k])
            for k in range(count)
        ]
        inside = shapely.intersection(shapely.union_all(towns), region.boundary)
        return MultiPolygon(polygonal_parts(inside))

    def excess(log_scale: float) -> float:
        return ground_km2(drawn(float(np.exp(log_scale)))) / land - URBAN_SHARE

    # The share grows with the scale. At scale 1 it is mostly too small, because towns overlap or
    # are cut off.
    scale = 2.0
    while excess(float(np.log(scale))) < 0:
        scale *= 2
    low, high = np.log(scale / 2), np.log(scale)
    if excess(low) >= 0:  # no towns overlap, and waves add some area
        low -= np.log(2)
    return drawn(float(np.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-3))))


def wavy_ellipse(
    longitude: float,
    latitude: float,
    half_width: float,
    half_height: float,
    *,
    waves: tuple[float, int, float, int],
) -> Polygon:
    """Return an ellipse in degrees with a wavy radius.

    `waves` has the amplitude and the number of periods of a first wave, then of a second wave.
    """
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    radius = 1 + waves[0] * np.sin(waves[1] * angle) + waves[2] * np.cos(waves[3] * angle)
    points = np.column_stack(
        [
            longitude + half_width * radius * np.cos(angle),
            latitude + half_height * radius * np.sin(angle),
        ]
    )
    return Polygon(np.round(points, 6))


def ground_km2(shape: BaseGeometry) -> float:
    """Return the area on the sphere, in km², of a shape in degrees."""

    def flat(points: Floats) -> Floats:
        turned = np.deg2rad(points)
        return np.column_stack([turned[:, 0], np.sin(turned[:, 1])])

    return float(shapely.transform(shape, flat).area) * EARTH_RADIUS_KM**2


def _centres(boundary: MultiPolygon, count: int, rng: np.random.Generator) -> Floats:
    """Return random points in a region, uniform on the ground, in degrees, (count, 2)."""
    parts = list(boundary.geoms)
    areas = np.array([ground_km2(polygon) for polygon in parts])
    centres = np.empty((count, 2))
    for k, chosen in enumerate(rng.choice(len(parts), count, p=areas / areas.sum())):
        centres[k] = _point_in(parts[chosen], rng)
    return centres


def _point_in(polygon: Polygon, rng: np.random.Generator) -> tuple[float, float]:
    west, south, east, north = polygon.bounds
    low, high = np.sin(np.deg2rad([south, north]))
    while True:
        longitude = rng.uniform(west, east, 64)
        latitude = np.rad2deg(np.arcsin(rng.uniform(low, high, 64)))
        inside = np.flatnonzero(shapely.contains_xy(polygon, longitude, latitude))
        if len(inside):
            return float(longitude[inside[0]]), float(latitude[inside[0]])

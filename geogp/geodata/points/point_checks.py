"""Checks of points before a map: rows far from the others, and values unlike those near."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.geodata.places.distances import distance_km, unit_vectors
from geogp.geodata.points.row_review import RowReview

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR_SPREADS, FAR_LEAST_KM = 20.0, 100.0
"""A row is far if it lies over 20 times the median distance, and over 100 km, from the middle."""

MAX_EXTENT_KM = 2000.0
"""Largest extent of points whose region is their own extent."""

TIMES_NEIGHBOURS, NEIGHBOURS, MOST_ASKED = 1000.0, 8, 20_000
"""A value is named if it is 1,000 times the median of its 8 neighbours; of the largest 20,000."""


@dataclass(frozen=True)
class PointSpread:
    """The middle of points in degrees, and the median distance of the points from it in km."""

    longitude: float
    latitude: float
    km: float

    @classmethod
    def of(cls, longitude: Floats, latitude: Floats) -> "PointSpread":
        """Return the spread of points; the middle is the median, also across the antimeridian."""
        east = _continuous(longitude)
        middle = float(np.median(east)), float(np.median(latitude))
        distance = distance_km(longitude, latitude, [middle[0]], [middle[1]])
        return cls(*middle, float(np.median(distance)))

    def is_far(self, longitude: Floats, latitude: Floats) -> Mask:
        """Return a mask of the places far from the points, (n,)."""
        distance = distance_km(longitude, latitude, [self.longitude], [self.latitude])
        return np.asarray(distance > max(FAR_LEAST_KM, FAR_SPREADS * self.km), np.bool_)


def _continuous(longitude: Floats) -> Floats:
    """Return longitudes without a jump at the antimeridian, if that makes them narrower."""
    turned = longitude % 360
    return turned if np.ptp(turned) < np.ptp(longitude) else longitude


def extent_km(longitude: Floats, latitude: Floats) -> tuple[float, float]:
    """Return the width and the height of points in km, also across the antimeridian.

    The width is measured along the parallel nearest to the equator.
    """
    degree = 111.195  # km of a degree of a great circle
    east = np.sort(longitude % 360)
    gap = np.diff(np.append(east, east[0] + 360)).max()  # the widest gap lies outside the points
    height = float(np.ptp(latitude)) * degree
    nearest = 0.0 if latitude.min() <= 0 <= latitude.max() else float(np.abs(latitude).min())
    return float(360 - gap) * degree * float(np.cos(np.deg2rad(nearest))), height


def mistakes(longitude: Floats, latitude: Floats) -> list[tuple[str, Floats, Floats]]:
    """Return the usual mistakes in coordinates, each in words and with the coordinates mended."""
    return [
        ("latitude and longitude swapped", latitude, longitude),
        ("the other sign of the longitude", -longitude, latitude),
        ("the other sign of the latitude", longitude, -latitude),
    ]


def mark_far_rows(review: RowReview, longitude: Floats, latitude: Floats) -> list[str]:
    """Mark rows far from the others that a swap or a sign explains; return warnings about others.

    Coordinates are in degrees, (n,), NaN in rows without a position.
    """
    known = np.isfinite(longitude) & review.kept
    if known.sum() < 3:
        return []
    spread = PointSpread.of(longitude[known], latitude[known])
    far = np.zeros(len(known), np.bool_)
    far[known] = spread.is_far(longitude[known], latitude[known])
    if not far.any():
        return []
    for hint, east, north in mistakes(longitude, latitude):
        able = far & (np.abs(north) <= 90)
        mended = np.zeros(len(known), np.bool_)
        mended[able] = ~spread.is_far(east[able], north[able])
        review.mark(mended, f"far from the other rows, but not with {hint}")
        far &= ~mended
    if not far.any():
        return []
    km = distance_km(longitude[far], latitude[far], [spread.longitude], [spread.latitude])
    where = f"{review.table.where(far)} of {review.table.path.name}"
    text = (
        f"{where} lie {km.min():,.0f} km and more from the middle of the other rows, whose median "
        f"distance from it is {spread.km:,.1f} km. Are their coordinates right?"
    )
    return [text]


def unlike_neighbours(longitude: Floats, latitude: Floats, value: Floats) -> Mask:
    """Return a mask of values that are over 1,000 times the median of their neighbours, (n,)."""
    unlike = np.zeros(len(value), np.bool_)
    positive = value[value > 0]
    if len(positive) <= NEIGHBOURS:
        return unlike
    asked = np.flatnonzero(value > TIMES_NEIGHBOURS * positive.min())
    asked = asked[np.argsort(-value[asked], kind="stable")][:MOST_ASKED]
    if len(asked):
        places = unit_vectors(longitude, latitude)
        _, near = cKDTree(places).query(places[asked], k=NEIGHBOURS + 1)
        others = np.where((near == asked[:, None]) | (value[near] <= 0), np.inf, value[near])
        others.sort(axis=1)  # the lower median of the others above 0; infinite without any
        middle = others[np.arange(len(asked)), (np.isfinite(others).sum(1) - 1).clip(0) // 2]
        unlike[asked] = value[asked] > TIMES_NEIGHBOURS * middle
    return unlike

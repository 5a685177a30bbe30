"""Checks of points before a map: rows far from the others, and values unlike those near."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.errors import DataError
from geogp.geodata.places.distances import distance_km, unit_vectors
from geogp.geodata.points.tables import PointTable, RowReview

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR_SPREADS, FAR_LEAST_KM = 20.0, 100.0
"""A row is far if it lies over 20 times the median distance, and over 100 km, from the middle."""

MOST_FAR = 0.05
"""Largest share of far rows in a map without a region."""

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


def mark_far_rows(review: RowReview, longitude: Floats, latitude: Floats) -> Mask:
    """Mark rows far from the others that a usual mistake explains; return a mask of other far rows.

    Coordinates are in degrees, (n,), NaN in rows without a position.
    """
    known = np.isfinite(longitude) & review.kept
    far = np.zeros(len(known), np.bool_)
    if known.sum() < 3:
        return far
    spread = PointSpread.of(longitude[known], latitude[known])
    far[known] = spread.is_far(longitude[known], latitude[known])
    for hint, east, north in mistakes(longitude, latitude) if far.any() else []:
        able = far & (np.abs(north) <= 90)
        mended = np.zeros(len(known), np.bool_)
        mended[able] = ~spread.is_far(east[able], north[able])
        review.mark(mended, f"far from the other rows, but not with {hint}")
        far &= ~mended
    return far


def far_warnings(table: PointTable, far: Mask, *, refuse: bool) -> list[str]:
    """Return a warning about far rows; with `refuse`, raise DataError if they are over 5 %."""
    if not far.any():
        return []
    text = (
        f"{table.where(far)} of {table.path.name} lie over {FAR_SPREADS:g} times as far from the "
        f"middle of the tests as the others do, and over {FAR_LEAST_KM:g} km"
    )
    if refuse and far.sum() > MOST_FAR * len(far):
        raise DataError(
            f"{text}. If their coordinates are right, choose the region to map, such as PR, or "
            "--region-file."
        )
    return [f"{text}. Are their coordinates right?"]


def unlike_neighbours(longitude: Floats, latitude: Floats, value: Floats) -> Mask:
    """Return a mask of values that are over 1,000 times the median of their neighbours, (n,)."""
    unlike = np.zeros(len(value), np.bool_)
    positive = value[value > 0]
    if len(positive) <= NEIGHBOURS:
        return unlike
    suspects = np.flatnonzero(value > TIMES_NEIGHBOURS * positive.min())
    suspects = suspects[np.argsort(-value[suspects], kind="stable")][:MOST_ASKED]
    if len(suspects):
        places = unit_vectors(longitude, latitude)
        _, near = cKDTree(places, balanced_tree=False).query(places[suspects], k=NEIGHBOURS + 1)
        others = np.where((near == suspects[:, None]) | (value[near] <= 0), np.inf, value[near])
        others.sort(axis=1)  # the lower median of the others above 0; infinite without any
        middle = others[np.arange(len(suspects)), (np.isfinite(others).sum(1) - 1).clip(0) // 2]
        unlike[suspects] = value[suspects] > TIMES_NEIGHBOURS * middle
    return unlike

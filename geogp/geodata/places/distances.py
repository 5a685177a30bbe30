"""Distances between places on the Earth."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM

Floats = NDArray[np.float64]

_FEW = 1_000_000
"""Most pairs whose distances are all computed: this is faster than to import a search tree."""


def nearest_km(
    longitude: ArrayLike, latitude: ArrayLike, to_longitude: ArrayLike, to_latitude: ArrayLike
) -> Floats:
    """Return the great-circle distance in km from each of n places to the nearest of m points.

    The distance is d = 2 R arcsin(c / 2), where c is the chord between unit vectors and R =
    6371.0088 km. Coordinates are in degrees; the longitudes 190 and -170 mean the same. Raises
    DataError if there is no point, or a coordinate is not finite.
    """
    known = _distinct(to_longitude, to_latitude)[0]
    points = unit_vectors(known.real, known.imag)
    if len(points) == 0 or not np.isfinite(points).all():
        raise DataError(
            f"expected measured points, all with finite coordinates, found {len(points)} "
            f"points, {int((~np.isfinite(points)).any(axis=1).sum())} of them not finite."
        )
    places, number = _distinct(longitude, latitude)
    vectors = unit_vectors(places.real, places.imag)
    if not np.isfinite(vectors).all():
        raise DataError("expected finite coordinates of the places to measure distances from.")
    if len(points) * len(vectors) <= _FEW:
        chord = np.array([_chords(points, vector).min() for vector in vectors], np.float64)
    else:
        from scipy.spatial import cKDTree  # noqa: PLC0415 - slow

        chord = np.asarray(cKDTree(points, balanced_tree=False).query(vectors)[0], np.float64)
    half_angle = np.arcsin(np.clip(chord / 2, 0, 1))
    return (2 * EARTH_RADIUS_KM * half_angle)[number]


def distance_km(
    longitude: ArrayLike, latitude: ArrayLike, to_longitude: ArrayLike, to_latitude: ArrayLike
) -> Floats:
    """Return the great-circle distance in km between n pairs of places; see `nearest_km`."""
    apart = unit_vectors(longitude, latitude) - unit_vectors(to_longitude, to_latitude)
    half_angle = np.arcsin(np.clip(np.linalg.norm(apart, axis=1) / 2, 0, 1))
    return np.asarray(2 * EARTH_RADIUS_KM * half_angle, np.float64)


def spacing_km(longitude: ArrayLike, latitude: ArrayLike) -> Floats:
    """Return the distance in km from each distinct place to the next, (m,); see `nearest_km`.

    A place alone has half the circumference of the Earth.
    """
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow

    places = _distinct(longitude, latitude)[0]
    vectors = unit_vectors(places.real, places.imag)
    chord, _ = cKDTree(vectors, balanced_tree=False).query(vectors, k=[2])
    half_angle = np.arcsin(np.clip(np.asarray(chord, np.float64)[:, 0] / 2, 0, 1))
    return np.asarray(2 * EARTH_RADIUS_KM * half_angle)


def sums_within_km(
    longitude: ArrayLike,
    latitude: ArrayLike,
    of_longitude: ArrayLike,
    of_latitude: ArrayLike,
    values: ArrayLike,
    *,
    km: float,
) -> Floats:
    """Return, for each of n places, the sum of the values of all points within a distance in km.

    The distance is the great-circle distance of `nearest_km`. Coordinates are in degrees.
    """
    chord = 2 * np.sin(min(km / EARTH_RADIUS_KM, np.pi) / 2)
    points, places = unit_vectors(of_longitude, of_latitude), unit_vectors(longitude, latitude)
    known = np.asarray(values, np.float64)
    if len(points) * len(places) <= _FEW:
        return np.array([known[_chords(points, place) <= chord].sum() for place in places])
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow

    neighbours = cKDTree(points, balanced_tree=False).query_ball_point(places, chord)
    return np.array([known[inside].sum() for inside in neighbours], np.float64)


def _distinct(
    longitude: ArrayLike, latitude: ArrayLike
) -> tuple[NDArray[np.complex128], NDArray[np.intp]]:
    """Return the distinct places as complex numbers, and the index of each row's place.

    A tile can have a row in each quarter, and repeated places would slow down the search tree.
    """
    place = (
        np.asarray(longitude, np.float64).ravel() + 1j * np.asarray(latitude, np.float64).ravel()
    )
    distinct, number = np.unique(place, return_inverse=True)
    return distinct, number.reshape(-1)


def _chords(points: Floats, place: Floats) -> Floats:
    """Return the lengths of the chords from a place to m points, (m,)."""
    return np.asarray(np.linalg.norm(points - place, axis=1), np.float64)


def unit_vectors(longitude: ArrayLike, latitude: ArrayLike) -> Floats:
    """Return places in degrees as unit vectors from the Earth's centre, (n, 3)."""
    lon, lat = np.deg2rad(longitude), np.deg2rad(latitude)
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])

"""Conversion of arrays between quadkeys, columns and rows of tiles, and degrees.

In Bing's tile system, the world in spherical Mercator (EPSG:3857) at zoom level z is a grid of 2^z
by 2^z square tiles. `column` counts tiles from the west (-180 degrees), and `row` from the north.
Each digit of a quadkey has one bit of the row and one of the column. A `code` is a quadkey as an
unsigned integer with two bits per digit. Codes have the order of quadkey strings, so all quadkeys
with a common prefix form one range of codes. Columns may be negative, or 2^z and more, if
longitudes are unwrapped across the antimeridian.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError, quoted

ZOOM = 16  # zoom of Ookla's tiles, which are about 611 m wide at the equator

EARTH_RADIUS_M = 6378137.0  # radius of the sphere of EPSG:3857 in metres
EARTH_RADIUS_KM = 6371.0088  # mean radius of the Earth, for distances on the ground

HALF_WORLD_M = np.pi * EARTH_RADIUS_M  # half the width of the EPSG:3857 world in metres

NORTHMOST = float(np.rad2deg(np.arctan(np.sinh(np.pi))))
"""Latitude in degrees of the northern limit of all tiles, about 85.05."""

Codes = NDArray[np.uint64]
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


class TileBounds(NamedTuple):
    """Edges of tiles in degrees, each of shape (n,), dtype float64."""

    west: Floats
    south: Floats
    east: Floats
    north: Floats


def parse_quadkeys(quadkeys: ArrayLike, zoom: int = ZOOM) -> Codes:
    """Return the codes, uint64 (n,), of quadkeys, strings (n,) of `zoom` digits from 0 to 3.

    Raises DataError if a quadkey has another length (another zoom level) or other characters.
    """
    texts = np.asarray(quadkeys, dtype=np.str_)
    if texts.size == 0:
        return np.zeros(0, np.uint64)
    lengths = np.strings.str_len(texts)
    if np.any(lengths != zoom):
        wrong = lengths != zoom
        raise DataError(
            f"expected quadkeys of {zoom} digits (zoom {zoom}), found {int(wrong.sum())} of "
            f"another length, the first {quoted(str(texts[wrong][0]))}. Use only tiles of zoom "
            f"{zoom}."
        )
    digits = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)[:, :zoom]
    digits = digits - np.uint32(ord("0"))
    if np.any(digits > 3):
        wrong = (digits > 3).any(axis=1)
        raise DataError(
            f"expected quadkeys of digits 0 to 3, found {int(wrong.sum())} with other "
            f"characters, the first {quoted(str(texts[wrong][0]))}."
        )
    codes = np.zeros(len(texts), np.uint64)
    for place in range(zoom):
        codes = (codes << np.uint64(2)) | digits[:, place].astype(np.uint64)
    return codes


def format_quadkeys(codes: Codes, zoom: int = ZOOM) -> NDArray[np.str_]:
    """Return the quadkeys of codes, as strings (n,) of `zoom` digits."""
    shifts = np.arange(2 * (zoom - 1), -1, -2, dtype=np.uint64)
    digits = (np.asarray(codes, np.uint64)[:, None] >> shifts) & np.uint64(3)
    letters = (digits + np.uint64(ord("0"))).astype(np.uint32)
    return np.ascontiguousarray(letters).view(f"<U{zoom}").reshape(-1)


def codes_to_tiles(codes: Codes) -> tuple[Indices, Indices]:
    """Return the tile columns and rows of quadkey codes, each int64 of shape (n,)."""
    codes = np.asarray(codes, np.uint64)
    return _every_other_bit(codes), _every_other_bit(codes >> np.uint64(1))


def tiles_to_codes(column: Indices, row: Indices, zoom: int = ZOOM) -> Codes:
    """Return the quadkey codes of tiles; columns beyond the antimeridian are allowed."""
    wrapped = np.asarray(column, np.int64) % (1 << zoom)
    spread_row = _spread_bits(np.asarray(row, np.int64).astype(np.uint64))
    return _spread_bits(wrapped.astype(np.uint64)) | (spread_row << np.uint64(1))


def tile_bounds(column: Indices, row: Indices, zoom: int = ZOOM) -> TileBounds:
    """Return the edges of tiles in degrees."""
    column, row = np.asarray(column), np.asarray(row)
    return TileBounds(
        west=_longitude_of(column, zoom),
        south=_latitude_of(row + 1, zoom),
        east=_longitude_of(column + 1, zoom),
        north=_latitude_of(row, zoom),
    )


def tile_centres(column: Indices, row: Indices, zoom: int = ZOOM) -> tuple[Floats, Floats]:
    """Return longitude and latitude, in degrees, of the centroids of tiles.

    A centroid is the middle of the tile's rectangle in degrees, as in Ookla's geometry column.
    """
    bounds = tile_bounds(column, row, zoom)
    return (bounds.west + bounds.east) / 2, (bounds.south + bounds.north) / 2


def tiles_at(
    longitude: ArrayLike, latitude: ArrayLike, zoom: int = ZOOM
) -> tuple[Indices, Indices]:
    """Return the columns and rows of the tiles that contain points in degrees."""
    longitude = np.asarray(longitude, np.float64)
    sine = np.sin(np.deg2rad(np.asarray(latitude, np.float64)))
    column = (longitude + 180) / 360 * (1 << zoom)
    row = (0.5 - np.arctanh(sine) / (2 * np.pi)) * (1 << zoom)
    return np.floor(column).astype(np.int64), np.floor(row).astype(np.int64)


def tile_size_m(zoom: int = ZOOM) -> float:
    """Return a tile's width in metres of EPSG:3857, its width on the ground at the equator."""
    return float(2 * HALF_WORLD_M / (1 << zoom))


def tile_areas_km2(latitude: ArrayLike, zoom: int = ZOOM) -> Floats:
    """Return the areas on the ground, in km², of tiles with given centre latitudes in degrees.

    Web Mercator stretches lengths by 1 / cos(latitude), so the area on the sphere is the area in
    EPSG:3857 times cos²(latitude of the tile's centre).
    """
    side_km = tile_size_m(zoom) / 1000
    cosine = np.cos(np.deg2rad(np.asarray(latitude, np.float64)))
    return np.asarray((side_km * cosine) ** 2, np.float64)


def code_ranges(
    west: float, south: float, east: float, north: float, *, zoom: int = ZOOM, most: int = 64
) -> Indices:
    """Return ranges of quadkey codes (first, last) that cover a box in degrees, (n, 2).

    Each tile that touches the box is in one of the ranges. The ranges are disjoint and sorted, and
    include both ends. Longitudes may lie beyond 180 degrees. The ranges come from at most `most`
    squares of equal size, as small as possible, that cover the box.
    """
    (first, last), (top, bottom) = tiles_at([west, east], [north, south], zoom)
    for level in range(zoom, -1, -1):
        depth, side = zoom - level, 1 << level
        columns = np.unique(np.arange(first >> depth, (last >> depth) + 1) % side)
        rows = np.arange(max(top >> depth, 0), min(bottom >> depth, side - 1) + 1)
        if len(columns) * len(rows) <= most:
            break
    span = 1 << (2 * depth)
    across, down = np.meshgrid(columns, rows)
    starts = np.sort(tiles_to_codes(across.ravel(), down.ravel(), level).astype(np.int64)) * span
    cuts = np.flatnonzero(np.diff(starts) != span) + 1  # between ranges
    return np.column_stack([starts[np.append(0, cuts)], starts[np.append(cuts - 1, -1)] + span - 1])


def _longitude_of(column: NDArray[np.int64], zoom: int) -> Floats:
    return np.asarray(column, np.float64) / (1 << zoom) * 360 - 180


def _latitude_of(row: NDArray[np.int64], zoom: int) -> Floats:
    northing = np.pi * (1 - 2 * np.asarray(row, np.float64) / (1 << zoom))
    return np.rad2deg(np.arctan(np.sinh(northing)))


_MASKS = (
    0x5555555555555555,
    0x3333333333333333,
    0x0F0F0F0F0F0F0F0F,
    0x00FF00FF00FF00FF,
    0x0000FFFF0000FFFF,
    0x00000000FFFFFFFF,
)
"""Mask k selects the lower half of each group of 2^(k + 1) bits, for k from 0 to 5."""


def _spread_bits(values: Codes) -> Codes:
    """Return the lower 32 bits of each value, with a zero bit inserted before each bit."""
    for k in reversed(range(5)):
        values = (values | (values << np.uint64(1 << k))) & np.uint64(_MASKS[k])
    return values


def _every_other_bit(values: Codes) -> Indices:
    """Return the even bits of each value, joined together; the inverse of `_spread_bits`."""
    values = values & np.uint64(_MASKS[0])
    for k in range(5):
        values = (values | (values >> np.uint64(1 << k))) & np.uint64(_MASKS[k + 1])
    return values.astype(np.int64)

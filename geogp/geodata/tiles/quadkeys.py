"""Conversions between quadkeys, tile columns and rows, and degrees, on whole arrays.

In Bing's tile system the world in spherical Mercator (EPSG:3857) at zoom z is a grid of 2^z by 2^z
square tiles; `column` counts from the west (-180 degrees), `row` from the north. A quadkey's digits
interleave the bits of row and column. A `code` is a quadkey as an unsigned integer with two bits
per digit. Codes sort like quadkey strings, so tiles whose quadkeys share a prefix are one range of
codes. Columns may be negative or beyond 2^z if longitudes are unwrapped across the antimeridian.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError

ZOOM = 16
"""Zoom of Ookla's tiles, which are about 611 m wide at the equator."""

EARTH_RADIUS_M = 6378137.0
"""Radius of the sphere of EPSG:3857 in metres."""

HALF_WORLD_M = np.pi * EARTH_RADIUS_M
"""Half the width of the EPSG:3857 world in metres."""

NORTHMOST = float(np.rad2deg(np.arctan(np.sinh(np.pi))))
"""Latitude in degrees at which the square world of tiles ends, about 85.05."""

Codes = NDArray[np.uint64]
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TileBounds:
    """Edges of tiles in degrees, each of shape (n,), dtype float64."""

    west: Floats
    south: Floats
    east: Floats
    north: Floats


def parse_quadkeys(quadkeys: ArrayLike, zoom: int = ZOOM) -> Codes:
    """Return the codes, uint64 (n,), of quadkey strings (n,) of `zoom` digits 0 to 3.

    Raises DataError if a quadkey has another length (another zoom) or other characters; the message
    gives the first such quadkey and the number of such quadkeys.
    """
    texts = np.asarray(quadkeys, dtype=np.str_)
    if texts.size == 0:
        return np.zeros(0, np.uint64)
    lengths = np.strings.str_len(texts)
    if np.any(lengths != zoom):
        wrong = lengths != zoom
        raise DataError(
            f"expected quadkeys of {zoom} digits (zoom {zoom}), found {int(wrong.sum())} of "
            f"another length, the first {str(texts[wrong][0])!r}. Use only tiles of zoom {zoom}."
        )
    digits = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)[:, :zoom]
    digits = digits - np.uint32(ord("0"))
    if np.any(digits > 3):
        wrong = (digits > 3).any(axis=1)
        raise DataError(
            f"expected quadkeys of digits 0 to 3, found {int(wrong.sum())} with other "
            f"characters, the first {str(texts[wrong][0])!r}."
        )
    codes = np.zeros(len(texts), np.uint64)
    for place in range(zoom):
        codes = (codes << np.uint64(2)) | digits[:, place].astype(np.uint64)
    return codes


def format_quadkeys(codes: Codes, zoom: int = ZOOM) -> NDArray[np.str_]:
    """Return the quadkeys of the codes, strings of `zoom` digits, shape (n,)."""
    shifts = np.arange(2 * (zoom - 1), -1, -2, dtype=np.uint64)
    digits = (np.asarray(codes, np.uint64)[:, None] >> shifts) & np.uint64(3)
    letters = (digits + np.uint64(ord("0"))).astype(np.uint32)
    return np.ascontiguousarray(letters).view(f"<U{zoom}").reshape(-1)


def codes_to_tiles(codes: Codes) -> tuple[Indices, Indices]:
    """Return the tile columns and rows of quadkey codes, each int64 of shape (n,)."""
    codes = np.asarray(codes, np.uint64)
    return _every_other_bit(codes), _every_other_bit(codes >> np.uint64(1))


def tiles_to_codes(column: Indices, row: Indices, zoom: int = ZOOM) -> Codes:
    """Return the quadkey codes of tiles; columns beyond the antimeridian are wrapped."""
    wrapped = np.asarray(column, np.int64) % (1 << zoom)
    spread_row = _spread_bits(np.asarray(row, np.int64).astype(np.uint64))
    return _spread_bits(wrapped.astype(np.uint64)) | (spread_row << np.uint64(1))


def tile_bounds(column: Indices, row: Indices, zoom: int = ZOOM) -> TileBounds:
    """Return the edges of tiles in degrees (inverse spherical Mercator)."""
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
    """Return the columns and rows of the tiles that contain the given points (degrees)."""
    longitude = np.asarray(longitude, np.float64)
    sine = np.sin(np.deg2rad(np.asarray(latitude, np.float64)))
    column = (longitude + 180) / 360 * (1 << zoom)
    row = (0.5 - np.arctanh(sine) / (2 * np.pi)) * (1 << zoom)
    return np.floor(column).astype(np.int64), np.floor(row).astype(np.int64)


def tile_size_m(zoom: int = ZOOM) -> float:
    """Return a tile's width in EPSG:3857 metres (on the ground: this times cos(latitude))."""
    return float(2 * HALF_WORLD_M / (1 << zoom))


def tile_areas_km2(latitude: ArrayLike, zoom: int = ZOOM) -> Floats:
    """Return the areas on the ground, in km², of tiles with given centre latitudes in degrees.

    Web Mercator stretches lengths by 1 / cos(latitude), so the area on the sphere is the area in
    EPSG:3857 times cos²(latitude), with the latitude of the tile's centre.
    """
    side_km = tile_size_m(zoom) / 1000
    cosine = np.cos(np.deg2rad(np.asarray(latitude, np.float64)))
    return np.asarray((side_km * cosine) ** 2, np.float64)


def code_ranges(
    west: float, south: float, east: float, north: float, *, zoom: int = ZOOM, most: int = 64
) -> list[tuple[int, int]]:
    """Return ranges of codes (first, last) that cover a box in degrees.

    Every tile that touches the box is in one of the ranges. The ranges are disjoint and sorted, and
    include both ends. Longitudes may lie beyond 180 degrees. The ranges come from squares, which
    are divided into four as long as there are at most `most` squares.
    """
    columns, rows = tiles_at([west, east], [north, south], zoom)
    box = (int(columns[0]), int(rows[0]), int(columns[1]), int(rows[1]))
    pieces = [(0, 0)]
    level = 0
    while level < zoom:
        finer = [
            (2 * c + i, 2 * r + j)
            for c, r in pieces
            for i in (0, 1)
            for j in (0, 1)
            if _touches((2 * c + i, 2 * r + j), zoom - level - 1, box, zoom)
        ]
        if len(finer) > most:
            break
        pieces, level = finer, level + 1
    span = 1 << (2 * (zoom - level))
    column, row = np.asarray(pieces, np.int64).reshape(-1, 2).T
    starts = np.sort(tiles_to_codes(column, row, level).astype(np.int64)) * span
    ranges: list[tuple[int, int]] = []
    for start in starts.tolist():
        if ranges and ranges[-1][1] + 1 == start:
            ranges[-1] = (ranges[-1][0], start + span - 1)
        else:
            ranges.append((start, start + span - 1))
    return ranges


def _touches(piece: tuple[int, int], depth: int, box: tuple[int, int, int, int], zoom: int) -> bool:
    left, top = piece[0] << depth, piece[1] << depth
    right, bottom = left + (1 << depth) - 1, top + (1 << depth) - 1
    if bottom < box[1] or top > box[3]:
        return False
    world = 1 << zoom
    return any(right + s >= box[0] and left + s <= box[2] for s in (-world, 0, world))


def _longitude_of(column: NDArray[np.int64], zoom: int) -> Floats:
    return np.asarray(column, np.float64) / (1 << zoom) * 360 - 180


def _latitude_of(row: NDArray[np.int64], zoom: int) -> Floats:
    northing = np.pi * (1 - 2 * np.asarray(row, np.float64) / (1 << zoom))
    return np.rad2deg(np.arctan(np.sinh(northing)))


_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def _spread_bits(values: Codes) -> Codes:
    """Return the lower 32 bits, with a zero bit inserted before each bit."""
    for shift, mask in _SPREAD:
        values = (values | (values << np.uint64(shift))) & np.uint64(mask)
    return values


def _every_other_bit(values: Codes) -> Indices:
    """Return the even bits joined together, the inverse of `_spread_bits`."""
    values = values & np.uint64(0x5555555555555555)
    for (shift, _), mask in zip(
        reversed(_SPREAD),
        (
            0x3333333333333333,
            0x0F0F0F0F0F0F0F0F,
            0x00FF00FF00FF00FF,
            0x0000FFFF0000FFFF,
            0xFFFFFFFF,
        ),
        strict=True,
    ):
        values = (values | (values >> np.uint64(shift))) & np.uint64(mask)
    return values.astype(np.int64)

"""The hexagons of H3, an open grid of the Earth, in which points lie."""

import re
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import ArrayLike, NDArray
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from geogp.errors import RequestError, quoted
from geogp.geodata.places.region import cut_at_antimeridian

FINEST = 15
"""The finest resolution of H3."""


@dataclass(frozen=True)
class Hexagons:
    """Hexagons: their indices as text, in order, and their shapes in degrees.

    `number` is the number of the hexagon of each point, (n,).
    """

    names: tuple[str, ...]
    shapes: tuple[BaseGeometry, ...]
    number: NDArray[np.int64]


def resolution_of(text: str) -> int | None:
    """Return 7 for ``h3:7``, None without ``h3:``; raise RequestError for another resolution."""
    if not text.startswith("h3:"):
        return None
    match = re.fullmatch(r"h3:(\d{1,2})", text)
    if match is None or int(match[1]) > FINEST:
        raise RequestError(
            f"expected h3: and a resolution from 0 to {FINEST}, found {quoted(text)}."
        )
    return int(match[1])


def hexagons_of(longitude: ArrayLike, latitude: ArrayLike, resolution: int) -> Hexagons:
    """Return the hexagons around points, (n,); raise RequestError if h3 is not installed."""
    if find_spec("h3") is None:
        raise RequestError(
            f"--by h3:{resolution} needs the package h3, which is not installed. Install "
            "'geogp[h3]'."
        )
    import h3  # noqa: PLC0415 - an extra

    wrapped = (np.asarray(longitude, np.float64) + 180) % 360 - 180
    points = zip(np.asarray(latitude, np.float64).tolist(), wrapped.tolist(), strict=True)
    cells = [h3.latlng_to_cell(*point, resolution) for point in points]
    names, number = np.unique(cells, return_inverse=True)
    shapes = tuple(_shape(h3.cell_to_boundary(name)) for name in names.tolist())
    return Hexagons(tuple(names.tolist()), shapes, number.astype(np.int64))


def _shape(vertices: tuple[tuple[float, float], ...]) -> BaseGeometry:
    """Return the polygon of vertices (latitude, longitude), cut at the antimeridian."""
    latitude, longitude = np.array(vertices).T
    around = Polygon(np.column_stack([np.unwrap(longitude, period=360), latitude]))
    pieces = cut_at_antimeridian(around)
    return pieces[0] if len(pieces) == 1 else MultiPolygon(pieces)

"""Outlines of polygons for a page: few bytes, and no gaps between neighbours."""

import json
from collections.abc import Iterable

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

Line = list[list[float]]

_DECIMALS = 4
_FINEST = 1e-4  # degrees, as the rounding


def outlines(polygons: Iterable[BaseGeometry], tolerance: float) -> list[Line]:
    """Return the lines around polygons, simplified to `tolerance` degrees.

    Shared borders are cut where three polygons meet, simplified once and returned once, so that
    neighbours still share them. Each line holds [latitude, longitude] to 4 decimals (11 m).
    """
    # A region across the antimeridian is one: there is no border between its halves.
    whole = [shapely.unary_union(polygon) for polygon in polygons]
    edges = [edge for edge in shapely.boundary(whole) if not edge.is_empty]
    if not edges:
        return []
    merged = shapely.line_merge(shapely.union_all(edges))
    found = []
    for line in shapely.simplify(shapely.get_parts(merged), tolerance):
        points = np.round(shapely.get_coordinates(line)[:, ::-1], _DECIMALS)
        changed = np.any(points[1:] != points[:-1], axis=1)
        points = points[np.concatenate([[True], changed])]
        if len(points) > 1:
            found.append(points.tolist())
    return found


def outlines_within(polygons: Iterable[BaseGeometry], most: int) -> tuple[list[Line], float]:
    """Return outlines of at most `most` bytes as JSON, and their tolerance in degrees.

    The tolerance is doubled from 0.0001 until they fit.
    """
    polygons, tolerance = list(polygons), _FINEST
    while True:
        found = outlines(polygons, tolerance)
        if len(json.dumps(found)) <= most or tolerance > 1:
            return found, tolerance
        tolerance *= 2

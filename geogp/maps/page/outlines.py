"""Outlines of polygons for a page, with few bytes and no gaps between neighbours."""

import json
from collections.abc import Iterable

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

Line = list[list[float]]

_DECIMALS = 4
_FINEST = 1e-4  # degrees, the same as the rounding


def outlines(polygons: Iterable[BaseGeometry], tolerance: float) -> list[Line]:
    """Return the lines around polygons, simplified to `tolerance` degrees.

    Lines are cut at points where three polygons meet. A border that two polygons share is
    simplified once and returned once, so no gap appears. Each line is a list of [latitude,
    longitude] with 4 decimals (11 m).
    """
    # Join the two halves of a region that crosses the antimeridian.
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
    """Return outlines whose JSON has at most `most` bytes, and their tolerance in degrees.

    The tolerance starts at 0.0001 and is doubled until the outlines fit.
    """
    polygons, tolerance = list(polygons), _FINEST
    while True:
        found = outlines(polygons, tolerance)
        if len(json.dumps(found)) <= most or tolerance > 1:
            return found, tolerance
        tolerance *= 2

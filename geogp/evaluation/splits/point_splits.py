"""Splits of points at any locations: by hashes of rounded coordinates, or by cells.

Rows with the same location and time belong to the same part.
"""

import math
from typing import NamedTuple

import numpy as np

from geogp.arrays import Floats, Mask, Numbers
from geogp.errors import DataError
from geogp.evaluation.splits.row_parts import TENTHS, Codes, assign_parts, hashed, tenths

CELL_KM = 11.0
"""Side of cells to try first, in km; about a tenth of a degree of latitude."""

MIN_CELLS, MIN_PLACES = 20, 4
"""Smallest number of cells with rows, and smallest mean number of places in a cell."""

_DIGITS = 7
"""Number of decimals of rounded coordinates; in degrees, this is about a centimetre."""

_SHARE_DIGITS, _MOST_DIGITS = 4, 300
"""Number of digits of coordinates relative to a small extent; largest number of decimals."""


def place_codes(x: Floats, y: Floats) -> Codes:
    """Return a code for each location, (n,): a hash of the rounded coordinates."""
    extent = max(float(np.ptp(x)), float(np.ptp(y))) if len(x) else 0.0
    digits = _DIGITS
    if 0 < extent < 10.0 ** (_SHARE_DIGITS - _DIGITS):
        digits = min(_MOST_DIGITS, math.ceil(_SHARE_DIGITS - math.log10(extent)))
    return hashed(0, _bits(x, digits), _bits(y, digits))


def time_codes(time: Floats | None, n: int) -> Numbers:
    """Return a code for each time, (n,), or zeros if there are no times."""
    return np.zeros(n, np.int64) if time is None else _bits(time).view(np.int64)


def point_cells(x: Floats, y: Floats, side: tuple[float, float]) -> Numbers:
    """Return column and row of each point's cell, (n, 2).

    `side` is the width and height of cells to try first, in the unit of the coordinates. Both are
    halved until `MIN_CELLS` cells have rows, or doubled until cells contain `MIN_PLACES` places on
    average. Raises DataError if all points are at the same place.
    """
    places = np.unique(np.column_stack([x, y]), axis=0)
    if len(places) < 2:
        raise DataError(
            "expected points at several places, found all points at one place; use a random split."
        )
    scale = 1.0
    wanted = min(MIN_CELLS, len(places))
    while _occupied(places, side, scale) < wanted and scale > 2.0**-40:
        scale /= 2
    while (
        len(places) < MIN_PLACES * _occupied(places, side, scale)
        and _occupied(places, side, 2 * scale) >= MIN_CELLS
    ):
        scale *= 2
    return _cells(np.column_stack([x, y]), side, scale)


class ValidationPart(NamedTuple):
    """Mask of the validation rows, (n,), and the cell of each row, (n,), or None without cells."""

    rows: Mask
    cells: Numbers | None


def validation_part(
    x: Floats, y: Floats, time: Floats | None, *, how: str, seed: int, side: tuple[float, float]
) -> ValidationPart:
    """Choose about a tenth of the rows as validation rows.

    `how` is ``random``, or ``blocks`` for whole cells. For `side`, see `point_cells`. Raises
    DataError if there are too few places.
    """
    cell = None
    if how == "blocks":
        cells, cell = np.unique(point_cells(x, y, side), axis=0, return_inverse=True)
        cell = cell.reshape(-1)
        parts = assign_parts(hashed(seed, *cells.T), cell, min(TENTHS, len(cells)))
        found: Mask = parts == 0
    else:
        codes, times = place_codes(x, y), time_codes(time, len(x))
        found = tenths(seed, codes, times) == 0
        if not found.any():  # with few rows, take the smallest hash
            words = hashed(seed, codes, times)
            found = words == words.min()
    if not 0 < found.sum() < len(found):
        raise DataError(
            f"expected validation rows and training rows, found {int(found.sum())} "
            f"validation rows among {len(found)} rows. Give more rows, or a validation mask."
        )
    return ValidationPart(found, cell)


def _bits(values: Floats, digits: int = _DIGITS) -> Codes:
    # Adding 0 turns -0.0 into 0.0; these are equal, but have different bits.
    return np.ascontiguousarray(np.round(values, digits) + 0.0).view(np.uint64)


def _cells(places: Floats, side: tuple[float, float], scale: float) -> Numbers:
    # Beyond these bounds, cells of one row each do not fit into whole numbers.
    cells = np.floor(places / (scale * np.asarray(side))).clip(-(2.0**62), 2.0**62)
    return cells.astype(np.int64)


def _occupied(places: Floats, side: tuple[float, float], scale: float) -> int:
    return len(np.unique(_cells(places, side, scale), axis=0))

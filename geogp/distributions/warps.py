"""Increasing functions of normal scores, which widen or narrow central intervals (warps).

`warped_shapes.py` defines the resulting distributions.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from geogp.distributions.shapes import Floats
from geogp.errors import RequestError

Rows = NDArray[np.intp]

LADDER = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Levels of the central intervals that a warp widens or narrows."""

REPAIR_COLUMNS = tuple(f"repair_{round(100 * level)}" for level in LADDER)
"""Names of the columns with the knots in a table, one for each level."""

MIN_SLOPE = 0.01
"""Smallest slope of a warp between two knots; see `covering_knots`."""

MARGIN = 1e-9
"""Relative difference between a knot and the score that determines it; see `covering_knots`."""

KNOTS: Floats = special.ndtri((1 + np.array(LADDER)) / 2)
"""Normal scores at the upper ends of the intervals of `LADDER`: knots that change nothing."""
KNOTS.flags.writeable = False

_STARTS = np.concatenate([[0.0], KNOTS[:-1]])


def covering_knots(scores: Floats) -> Floats:
    """Return knots (c, K), one per level, whose intervals contain the rows with the given scores.

    Each knot is raised by `MARGIN`. Without this margin, a row with the given score would lie
    exactly at the end of its interval. The rounding of this end differs between processors, so the
    row could be outside the interval by chance. Scores that are computed from such ends have errors
    up to 1e-11.

    Where necessary, knots are raised further, so that the slope of the warp is at least
    `MIN_SLOPE`. Equal knots (from tied scores) would make the density infinite. No knot is lowered,
    so no interval becomes narrower. Scores that are NaN give knots that are NaN.
    """
    found, before = np.array(scores, np.float64) * (1 + MARGIN), np.zeros(len(scores))
    for k, step in enumerate(KNOTS - _STARTS):
        found[:, k] = np.maximum(found[:, k], before + MIN_SLOPE * float(step))
        before = found[:, k]
    return found


class Warp:
    """The increasing functions g of several cells (groups of rows), given by knots.

    `knots` (c, K) are the values of g at `KNOTS`. In each cell, values are NaN at all levels above
    the last knot. If all knots of a cell are NaN, g(u) = u. Raises RequestError if the knots do
    not have this shape, are infinite, do not increase, or follow a NaN.
    """

    def __init__(self, knots: Floats) -> None:
        knots = np.asarray(knots, np.float64)
        if knots.ndim != 2 or knots.shape[1] != len(LADDER):
            raise RequestError(
                f"expected knots of shape (cells, {len(LADDER)}), one for each cell and level, "
                f"found shape {knots.shape}."
            )
        absent = np.isnan(knots)
        held = np.where(np.logical_and.reduce(absent, axis=1)[:, None], KNOTS, knots)
        rises = np.diff(held, axis=1, prepend=0.0)
        gap = np.diff(np.isnan(held).astype(np.int8), axis=1) < 0
        if gap.any() or (rises <= 0).any() or np.isinf(knots).any():
            raise RequestError(
                "expected knots that are finite, above 0 and increasing with the level, and NaN "
                "at all levels above the last knot; found other values."
            )
        self.knots = knots
        last = (~np.isnan(held)).sum(1)
        self.last_t, self.last_q = KNOTS[last - 1], held[np.arange(len(held)), last - 1]
        self._ends = np.where(np.isnan(held), np.inf, held)
        self._begins = np.column_stack([np.zeros(len(held)), held[:, :-1]])
        self._slopes = rises / (KNOTS - _STARTS)

    def forward(self, u: Floats, number: Rows) -> tuple[Floats, NDArray[np.bool_]]:
        """Return g(u) for cells (n,), and whether u lies beyond the last knot (where g is NaN)."""
        size = np.abs(u)
        part = np.minimum(np.searchsorted(KNOTS, size), len(KNOTS) - 1)
        g = self._begins[number, part] + self._slopes[number, part] * (size - _STARTS[part])
        beyond = size > self.last_t[number]
        return np.where(beyond, np.nan, np.copysign(g, u)), beyond

    def backward(self, z: Floats, number: Rows) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return g^(-1)(z), the slope of g there, and whether z lies beyond the last knot."""
        size = np.abs(z)
        part = np.zeros(size.shape, np.intp)
        for k in range(len(KNOTS) - 1):
            part += size > self._ends[number, k]
        slope = self._slopes[number, part]
        u = _STARTS[part] + (size - self._begins[number, part]) / slope
        beyond = size > self.last_q[number]
        return np.where(beyond, np.nan, np.copysign(u, z)), slope, beyond

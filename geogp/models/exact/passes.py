"""Passes: the rows of a session in one cell, which an exact process sees as one row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_ROWS = 3_000
"""Largest number of rows that are a pass each."""

MOST_PASSES = 1_500
"""Largest number of passes of more rows."""

FINEST, WIDEST = 12, 5
"""The narrowest and the widest cells are 2 to the power of minus this of the width of the data."""


class Passes(NamedTuple):
    """The passes of some of n rows, and the variance of rows around the mean of their pass.

    `kept`: mask of the m rows that belong to a pass, (n,). `number`: numbers of their passes, (m,).
    `rows`: number of rows of each pass, (k,). `within`: the variance.
    """

    kept: NDArray[np.bool_]
    number: NDArray[np.intp]
    rows: NDArray[np.intp]
    within: float

    def mean(self, values: Floats) -> Floats:
        """Return the mean of values (m,) or (m, d) over the rows of each pass."""
        sums = np.zeros((len(self.rows), *values.shape[1:]))
        np.add.at(sums, self.number, values)
        return sums / self.rows.reshape(-1, *[1] * (values.ndim - 1))


def passes_of(
    points: Floats, y: Floats, session: NDArray[np.int64] | None, *, pool: bool, seed: int = 0
) -> Passes:
    """Return the passes of rows at points, whose columns are places and perhaps a time.

    Without sessions, or if there are at most `MOST_ROWS` rows, each row is a pass. Otherwise, if
    `pool`, a pass has the rows of a session in one of the narrowest cells of space and time with at
    most `MOST_PASSES` passes. Cells are at most `WIDEST`; if there are more passes, or rows are not
    pooled, as many are drawn.
    """
    n = len(y)
    number, rows, kept = np.arange(n), np.ones(n, np.intp), np.ones(n, np.bool_)
    if session is None or n <= MOST_ROWS:
        return Passes(kept, number, rows, 0.0)
    if pool:
        number, rows = _pooled(points, session)
    if len(rows) > MOST_PASSES:
        chosen = np.sort(np.random.default_rng([seed, 7]).permutation(len(rows))[:MOST_PASSES])
        place = np.full(len(rows), -1)
        place[chosen] = np.arange(MOST_PASSES)
        kept = place[number] >= 0
        number, rows = place[number[kept]], rows[chosen]
    passes = Passes(kept, number, rows, 0.0)
    squares = np.square(y[kept] - passes.mean(y[kept])[number]).sum()
    spare = len(number) - len(rows)
    return passes._replace(within=float(squares / spare) if spare else 0.0)


def _pooled(
    points: Floats, session: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the pass of each row, (n,), and the rows of each pass, (k,)."""
    low, extent = points.min(0), np.ptp(points, 0)
    extent[:2] = extent[:2].max()
    share = (points - low) / np.where(extent > 0, extent, 1.0)
    finest = (share * 2**FINEST).astype(np.int64).clip(max=2**FINEST - 1)
    own = np.unique(session, return_inverse=True)[1]
    for power in range(FINEST, WIDEST - 1, -1):
        key = own
        for cells in (finest >> (FINEST - power)).T:
            key = (key << power) + cells
        _, number, rows = np.unique(key, return_inverse=True, return_counts=True)
        if len(rows) <= MOST_PASSES:
            break
    return number, rows

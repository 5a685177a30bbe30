"""Passes: the rows of a session in one cell, which an exact process sees as one row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_PASSES = 1_500
"""Largest number of passes; of more, the cells are twice as wide."""

FINEST = 12
"""The narrowest cells are 2 to this power in the width of the data."""


class Passes(NamedTuple):
    """The pass of each row, and the variance of rows around the mean of their pass.

    `number`: numbers of the passes, (n,). `rows`: rows of each pass, (k,). `within`: the variance.
    """

    number: NDArray[np.intp]
    rows: NDArray[np.intp]
    within: float

    def mean(self, values: Floats) -> Floats:
        """Return the mean of values (n,) or (n, d) over the rows of each pass."""
        sums = np.zeros((len(self.rows), *values.shape[1:]))
        np.add.at(sums, self.number, values)
        return sums / self.rows.reshape(-1, *[1] * (values.ndim - 1))


def passes_of(places: Floats, y: Floats, session: NDArray[np.int64] | None) -> Passes:
    """Return the passes of rows at places (n, 2), in the narrowest cells with few enough passes.

    Without sessions, or if there are at most `MOST_PASSES` rows, each row is a pass. There are
    never fewer passes than sessions.
    """
    n = len(y)
    if session is None or n <= MOST_PASSES:
        return Passes(np.arange(n), np.ones(n, np.intp), 0.0)
    low, width = places.min(0), np.ptp(places, 0).max() or 1.0
    for power in range(FINEST, -1, -1):
        cells = np.floor((places - low) * (2**power / width)).clip(max=2**power - 1)
        keys = np.column_stack([session, cells])
        _, number, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        if len(count) <= MOST_PASSES:
            break
    passes = Passes(number, count, 0.0)
    squares = np.square(y - passes.mean(y)[number]).sum()
    return passes._replace(within=float(squares / max(n - len(count), 1)))

"""Which rows train, which validate, which test, and what each way of splitting asks.

Both splits are functions of the seed, the quadkey (or its place) and the quarter. Neither the
order of rows nor the target enters, so every model and every peer is judged on the same rows.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError

TRAIN, VALIDATION, TEST = "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)

CELL_DEGREES = 0.1
"""Side of the cells of the split by blocks, in degrees of longitude and of latitude."""

_PARTS_DEALT = 10
_TEST_PARTS = (0, 1)
_VALIDATION_PARTS = (2,)

Codes = NDArray[np.uint64]


@dataclass(frozen=True)
class Split:
    """A way of splitting, in words for a reader.

    Attributes
    ----------
    name
        Name on the command line and in files.
    title
        Name in a heading.
    question
        The question that a figure of this split answers.
    flatters
        Whether test rows have training rows close by, so that figures look better than they
        are for places without measurements.
    """

    name: str
    title: str
    question: str
    flatters: bool


RANDOM = Split(
    "random",
    "Random split",
    "How well are unmeasured tiles and quarters predicted among measured neighbours?",
    flatters=True,
)
BLOCKS = Split(
    "blocks",
    "Split by blocks",
    "How well is a place predicted when nothing was measured in its own block of 0.1 by 0.1 "
    "degrees, about 10 km across?",
    flatters=False,
)
SPLITS = {split.name: split for split in (RANDOM, BLOCKS)}


def random_split(quadkey: Codes, quarter: NDArray[np.int64], seed: int) -> NDArray[np.str_]:
    """Split rows 8:1:1 at random, each row on its own.

    Each row is hashed with the seed to u in [0, 1): below 0.8 it trains, below 0.9 it
    validates, else it tests. The hash is the finaliser of SplitMix64 (Steele, Lea and Flood
    2014, figure 13), applied to seed, quadkey and quarter in turn. A row's part does not
    depend on which other rows are there, so the counts are binomial around 8:1:1, not exact.

    Parameters
    ----------
    quadkey
        Quadkey codes, shape (n,).
    quarter
        Indices of quarters, shape (n,).
    seed
        Any integer.

    Returns
    -------
    ndarray of str, shape (n,)
        ``train``, ``validation`` or ``test``.

    Raises
    ------
    DataError
        Shapes differ, or a part came out empty.
    """
    quadkey, quarter = np.asarray(quadkey), np.asarray(quarter)
    if quadkey.ndim != 1 or quadkey.shape != quarter.shape:
        raise DataError(
            "expected one quadkey and one quarter per row, found shapes "
            f"{quadkey.shape} and {quarter.shape}."
        )
    uniform = (_hash(seed, quadkey, quarter) >> np.uint64(11)) * 2.0**-53
    part = np.where(uniform < 0.8, TRAIN, np.where(uniform < 0.9, VALIDATION, TEST))
    return _without_empty(part, f"{len(part)} rows split at random 8:1:1")


def block_split(longitude: ArrayLike, latitude: ArrayLike, seed: int) -> NDArray[np.str_]:
    """Split rows by whole cells of 0.1 by 0.1 degrees.

    Cells, floor(longitude / 0.1) and floor(latitude / 0.1), are put in an order given by a
    hash with the seed, then dealt into ten parts, each cell to the part with the fewest rows
    so far. Parts 0 and 1 test, part 2 validates, the others train. Two parts thus differ by
    no more rows than the largest cell holds. Longitudes one turn apart share a cell.

    A test cell may touch a training cell: what is kept apart is the cell, not a distance.

    Parameters
    ----------
    longitude, latitude
        Centroids of tiles in degrees, shape (n,). Edges of tiles of zoom 16 lie at multiples
        of 360 / 2^16 degrees, so no centroid sits on an edge of a cell of longitude.
    seed
        Any integer.

    Returns
    -------
    ndarray of str, shape (n,)
        ``train``, ``validation`` or ``test``.

    Raises
    ------
    DataError
        Shapes differ, a coordinate is not finite, or a part came out empty.
    """
    cells, cell_of_row, rows = np.unique(
        cell_indices(longitude, latitude), axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(_hash(seed, cells[:, 0], cells[:, 1]), kind="stable")
    dealt = np.empty(len(cells), np.int64)
    heap = [(0, part) for part in range(_PARTS_DEALT)]
    for cell in order.tolist():
        count, part = heap[0]
        dealt[cell] = part
        heapq.heapreplace(heap, (count + int(rows[cell]), part))
    names = np.full(_PARTS_DEALT, TRAIN, dtype="<U10")
    names[list(_TEST_PARTS)] = TEST
    names[list(_VALIDATION_PARTS)] = VALIDATION
    part_of_row = names[dealt[cell_of_row.reshape(-1)]]
    return _without_empty(
        part_of_row, f"{len(part_of_row)} rows in {len(cells)} cells of 0.1 by 0.1 degrees"
    )


def cell_indices(longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.int64]:
    """Return column (from 0 to 3599) and row of each point's cell, int64 of shape (n, 2).

    Raises
    ------
    DataError
        Shapes differ, or a coordinate is not finite.
    """
    longitude = np.asarray(longitude, np.float64)
    latitude = np.asarray(latitude, np.float64)
    if longitude.ndim != 1 or longitude.shape != latitude.shape:
        raise DataError(
            "expected one longitude and one latitude per row, found shapes "
            f"{longitude.shape} and {latitude.shape}."
        )
    wrong = ~(np.isfinite(longitude) & np.isfinite(latitude))
    if wrong.any():
        raise DataError(
            f"expected finite coordinates, found {int(wrong.sum())} rows without; drop them first."
        )
    column = np.floor(longitude / CELL_DEGREES).astype(np.int64) % round(360 / CELL_DEGREES)
    row = np.floor(latitude / CELL_DEGREES).astype(np.int64)
    return np.column_stack([column, row])


def _hash(seed: int, *keys: NDArray[np.uint64] | NDArray[np.int64]) -> Codes:
    """Mix a seed and integer keys, each of shape (n,), to uniform 64-bit words."""
    # One element rather than a scalar: NumPy lets arrays wrap around without a warning.
    state = _mix(np.array([seed % 2**64], np.uint64))
    for key in keys:
        state = _mix(state ^ _mix(np.asarray(key).astype(np.uint64)))
    return state


def _mix(word: Codes) -> Codes:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def _without_empty(part: NDArray[np.str_], what: str) -> NDArray[np.str_]:
    counts = {name: int(np.count_nonzero(part == name)) for name in PARTS}
    if min(counts.values()) == 0:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(
            f"expected rows in each part of the split, found {found} from {what}. "
            "Ask for more quarters or a larger region, or try another seed."
        )
    return part

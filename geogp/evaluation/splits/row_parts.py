"""Assignment of single rows, or of groups of rows, to the parts of a split."""

import hashlib
import heapq

import numpy as np
from numpy.typing import NDArray

from geogp.arrays import Numbers
from geogp.errors import DataError, RequestError

TRAIN, VALIDATION, TEST = "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
"""The parts that every split has."""

CALIBRATION = "calibration"
"""Name of the part whose rows are used only for conformal repair."""

LEFT_OUT = "left out"
"""Name of the part whose rows a split does not use."""

TENTHS = 10
"""Number of parts into which a split divides rows or groups, if there are enough."""

Codes = NDArray[np.uint64]
Parts = NDArray[np.str_]


def tenths(seed: int, *keys: NDArray[np.uint64] | Numbers) -> Numbers:
    """Return a number from 0 to 9 for each row, (n,), from a hash of the seed and the keys (n,)."""
    bounds = np.arange(1, TENTHS) / TENTHS
    uniform = (hashed(seed, *keys) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(bounds, uniform, side="right").astype(np.int64)


def assign_parts(codes: Codes, group_of_row: NDArray[np.intp], parts: int) -> Numbers:
    """Return the number of each row's part, (n,); all rows of a group are in the same part.

    In the order of `codes` (g,), each group joins the part that has the fewest rows so far.
    So the sizes of two parts differ by at most the number of rows in the largest group.
    """
    rows = np.bincount(group_of_row)
    dealt = np.empty(len(rows), np.int64)
    heap = [(0, part) for part in range(parts)]
    for group in np.argsort(codes, kind="stable").tolist():
        count, part = heap[0]
        dealt[group] = part
        heapq.heapreplace(heap, (count + int(rows[group]), part))
    return dealt[group_of_row]


def part_names(name: str, parts: int, fold: int, *, calibrated: bool) -> Parts:
    """Return the name of each part in a fold, such as ``train``.

    A fifth of the parts, at least one, are test parts. The next part is for validation. If
    `calibrated`, one more part is for calibration.
    """
    tested = max(1, round(parts / 5))
    check_fold(name, fold, parts // tested)
    names = np.full(parts, TRAIN, dtype="<U11")
    first = tested * fold
    names[first : first + tested] = TEST
    names[(first + tested) % parts] = VALIDATION
    if calibrated:
        names[(first + tested + 1) % parts] = CALIBRATION
    return names


def check_fold(name: str, fold: int, most: int) -> None:
    """Raise RequestError if the number of a fold is not from 0 to `most` - 1."""
    if not 0 <= fold < most:
        raise RequestError(
            f"the split {name} has at most {most} folds for these data, found fold number "
            f"{fold + 1}. Choose fewer --folds, or leave the split out."
        )


MORE_ROWS = "Choose more quarters or a larger region, or try another seed."
"""What helps if a split of rows has an empty part."""


def without_empty(
    part: Parts, what: str, *, calibrated: bool = False, cure: str = MORE_ROWS
) -> Parts:
    """Return the parts unchanged; raise DataError, with a `cure`, if a needed part is empty."""
    needed = (*PARTS, CALIBRATION) if calibrated else PARTS
    counts = {name: int(np.count_nonzero(part == name)) for name in needed}
    if min(counts.values()) == 0:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(
            f"expected rows in each part of the split, found {found} from {what}. {cure}"
        )
    return part


def text_codes(texts: NDArray[np.str_]) -> Codes:
    """Return 64 bits of the BLAKE2b digest of each text, (n,)."""
    digests = (hashlib.blake2b(str(text).encode(), digest_size=8).digest() for text in texts)
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)


def hashed(seed: int, *keys: NDArray[np.uint64] | Numbers) -> Codes:
    """Return a 64-bit hash for each row, (n,), from a seed and integer keys, each (n,).

    The hash applies the finaliser of SplitMix64 (Steele, Lea and Flood 2014, figure 13) to the seed
    and to each key in turn.
    """
    # An array with one element, not a scalar: NumPy warns if a scalar overflows.
    state = _mix(np.array([int(seed) % 2**64], np.uint64))
    for key in keys:
        state = _mix(state ^ _mix(np.asarray(key).astype(np.uint64)))
    return state


def _mix(word: Codes) -> Codes:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))

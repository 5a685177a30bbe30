"""The difference between a reduced kernel and the model's kernel, at random places of a map.

The error e(x, x) of the kernel between a place and itself is cheap to compute. If e(x, x) is large,
e(x, y) with other places may be large, too: if the reduction is a projection, |e(x, y)| is at most
the larger of |e(x, x)| and |e(y, y)| by Cauchy and Schwarz. So e(x, x) is computed at many places,
and e(x, y) between places with large e(x, x) and randomly drawn places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Floats, Frame

Rows = NDArray[np.intp]

_PLACES = 30_000
_KEPT = 4096
_REFERENCES = 768
_ROWS = 4096
_DEEP = 6
"""A random place is the centre of one of 4**6 parts of a tile."""


@dataclass(frozen=True)
class KernelFeatures:
    """A model's kernel at tiles.

    `features` returns Phi, (n, r), in the unit of the target; `kernel` returns k between n tiles
    and n2 tiles, (n, n2), with which the reduced kernel is compared.
    """

    features: Callable[[Tiles], Floats]
    kernel: Callable[[Tiles, Tiles], Floats]


def interpolated(components: Floats, frame: Frame, places: Tiles) -> Floats:
    """Return components at places, (n, m), by bilinear interpolation between centres of cells.

    `components` (m, height, width) are at the centres of the cells of `frame`. `places` are the
    centres of tiles of the frame's zoom or a finer zoom. Beyond the outermost centres the
    components are constant.
    """
    size = 2.0 ** (frame.zoom - places.zoom)
    found = np.zeros((len(places), len(components)))
    across = _beside((places.column + 0.5) * size - frame.column, frame.width)
    down = _beside((places.row + 0.5) * size - frame.row, frame.height)
    for row, row_weight in down:
        for column, column_weight in across:
            found += components[:, row, column].T * (row_weight * column_weight)[:, None]
    return found


def _beside(at: NDArray[Any], count: int) -> list[tuple[Rows, NDArray[Any]]]:
    """Return the two cells with the nearest centres, and weights, for places along a line of cells.

    A place is between the two centres, or beyond the outermost centre.
    """
    at = np.clip(np.asarray(at, np.float64) - 0.5, 0, count - 1)
    first = np.minimum(at.astype(np.intp), max(count - 2, 0))
    return [(first, 1 - (at - first)), (np.minimum(first + 1, count - 1), at - first)]


def random_places(tiles: Tiles, random: np.random.Generator, count: int = _PLACES) -> Tiles:
    """Return `count` random places in tiles, as the centres of much smaller tiles."""
    chosen = random.integers(len(tiles), size=count)
    across, down = random.integers(1 << _DEEP, size=(2, count))
    return Tiles(
        (tiles.column[chosen] << _DEEP) + across,
        (tiles.row[chosen] << _DEEP) + down,
        tiles.zoom + _DEEP,
    )


def random_rows(n: int, most: int, random: np.random.Generator) -> Rows:
    """Return at most `most` of n row numbers, drawn at random, in ascending order."""
    return np.sort(random.choice(n, min(most, n), replace=False))


def differences(
    found: Floats, places: Tiles, model: KernelFeatures, random: np.random.Generator
) -> tuple[float, float]:
    """Compare components at n places, (n, m), with the model's kernel between the places.

    Returns the largest difference found, and the largest value of the model's kernel between the
    compared places.

    First each place is compared with itself, then 4,096 places are compared with 768 of these. Half
    of the 4,096 places, and half of the 768, have the largest errors; the other halves are random.
    """
    slices = [slice(start, start + _ROWS) for start in range(0, len(places), _ROWS)]
    parts = [(model.features(places[rows]) ** 2).sum(axis=1) for rows in slices]
    variance = np.concatenate(parts)
    off = np.abs((found**2).sum(axis=1) - variance)
    kept = _worst_and_others(off, _KEPT, random)
    references = kept[_worst_and_others(off[kept], _REFERENCES, random)]
    exact = model.kernel(places[kept], places[references])
    between = np.abs(found[kept] @ found[references].T - exact)
    return (
        max(float(off.max()), float(between.max())),
        max(float(variance.max()), float(np.abs(exact).max())),
    )


def _worst_and_others(off: Floats, count: int, random: np.random.Generator) -> Rows:
    """Return `count` rows, half with the largest values, half random; all rows if there are few."""
    if len(off) <= count:
        return np.arange(len(off))
    order = np.argsort(-off, kind="stable")
    half = count // 2
    return np.concatenate([order[:half], random.choice(order[half:], count - half, replace=False)])

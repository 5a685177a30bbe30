"""The difference between a reduced kernel and the model's kernel, at random places of a map.

Let e(x, y) be the error of the reduced kernel between two places. e(x, x) is cheap to compute, and
shows where e(x, y) may be large: if the reduction is a projection, |e(x, y)| is at most the larger
of |e(x, x)| and |e(y, y)| (Cauchy-Schwarz). So e(x, x) is computed at many places, and e(x, y) only
between places with large e(x, x) and random places.
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
"""A random place is the centre of one of 4^6 equal parts of a tile."""


@dataclass(frozen=True)
class KernelFeatures:
    """The features and the kernel of a model, as functions of tiles.

    `features` returns Phi, (n, r), in the unit of the target. `kernel` returns the kernel between n
    tiles and n2 tiles, (n, n2), for comparison with the reduced kernel.
    """

    features: Callable[[Tiles], Floats]
    kernel: Callable[[Tiles, Tiles], Floats]


def interpolated(components: Floats, frame: Frame, places: Tiles) -> Floats:
    """Return components at places, (n, m), by bilinear interpolation between centres of cells.

    `components` (m, height, width) are at the centres of the cells of `frame`. `places` are the
    centres of tiles of the frame's zoom or a finer zoom. Beyond the outermost centres, the
    components are constant.
    """
    size = 2.0 ** (frame.zoom - places.zoom)
    values = np.zeros((len(places), len(components)))
    across = _beside((places.column + 0.5) * size - frame.column, frame.width)
    down = _beside((places.row + 0.5) * size - frame.row, frame.height)
    for row, row_weight in down:
        for column, column_weight in across:
            values += components[:, row, column].T * (row_weight * column_weight)[:, None]
    return values


def _beside(at: NDArray[Any], count: int) -> list[tuple[Rows, NDArray[Any]]]:
    """Return the two nearest cells and their weights, for places along a line of cells.

    A place lies between the centres of both cells, or beyond the outermost centre.
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
    """Return the largest difference of the kernels, and the largest value of the model's kernel.

    `found` (n, m) are the components of the reduced kernel at n places.

    First the kernels between each place and itself are compared, then the kernels between 4,096
    places and 768 of these places. In both sets, half of the places have the largest errors, and
    half are random.
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
    """Return at most `count` rows: half have the largest values, the others are random."""
    if len(off) <= count:
        return np.arange(len(off))
    order = np.argsort(-off, kind="stable")
    half = count // 2
    return np.concatenate([order[:half], random.choice(order[half:], count - half, replace=False)])

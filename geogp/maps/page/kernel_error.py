"""How far a reduced kernel lies from the model's, between places anywhere on a map.

The error of a kernel between a place and itself is cheap to know at many places; where it is large,
so may that with other places be (for a reduction that is a projection, |e(x, y)| is at most the
larger of |e(x, x)| and |e(y, y)|, by Cauchy and Schwarz). So pairs are looked at between the
worst of many places, others drawn without choice, and all of a larger sample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Frame

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_PLACES = 30_000
_KEPT = 4096
_REFERENCES = 768
_ROWS = 4096
_DEEP = 6
"""A random place is the middle of one of 4**6 parts of a tile."""


@dataclass(frozen=True)
class KernelFeatures:
    """How a model is asked for its kernel at tiles.

    Attributes
    ----------
    features
        Phi at tiles, (n, r), in the unit of the target.
    kernel
        k between tiles, (n, n2): what the reduced kernel is held against.
    """

    features: Callable[[Tiles], Floats]
    kernel: Callable[[Tiles, Tiles], Floats]


def interpolated(components: Floats, frame: Frame, places: Tiles) -> Floats:
    """Return components at places, (n, m): bilinear between the middles of cells.

    Parameters
    ----------
    components
        Of the middles of the cells of a frame, (m, height, width).
    frame
        The frame.
    places
        Tiles of the frame's zoom or a finer one, each standing for its middle. Beyond the outermost
        middles the components stay what they are there.
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
    """Return the two cells whose middles lie beside places on a line of cells, and weights."""
    at = np.clip(np.asarray(at, np.float64) - 0.5, 0, count - 1)
    first = np.minimum(at.astype(np.intp), max(count - 2, 0))
    return [(first, 1 - (at - first)), (np.minimum(first + 1, count - 1), at - first)]


@dataclass(frozen=True)
class Differences:
    """Differences of a reduced kernel from the model's.

    Attributes
    ----------
    most
        The largest found.
    largest
        Largest value of the model's kernel that was met.
    pairs
        How many pairs of places were compared.
    """

    most: float
    largest: float
    pairs: int


def random_places(tiles: Tiles, random: np.random.Generator, count: int = _PLACES) -> Tiles:
    """Return so many random places in tiles, as the middles of much smaller tiles."""
    chosen = random.integers(len(tiles), size=count)
    across, down = random.integers(1 << _DEEP, size=(2, count))
    return Tiles(
        (tiles.column[chosen] << _DEEP) + across,
        (tiles.row[chosen] << _DEEP) + down,
        tiles.zoom + _DEEP,
    )


def random_rows(n: int, most: int, random: np.random.Generator) -> Rows:
    """Return at most so many of n rows, drawn without choice, in order."""
    return np.sort(random.choice(n, min(most, n), replace=False))


def differences(
    found: Floats, places: Tiles, model: KernelFeatures, random: np.random.Generator
) -> Differences:
    """Compare components at places, (n, m), with the model's kernel between them.

    All places with themselves; the worst and others, 768 in all, with those and 4,096 in all.
    """
    variance = _variances(places, model)
    off = np.abs((found**2).sum(axis=1) - variance)
    kept = _worst_and_others(off, _KEPT, random)
    references = kept[_worst_and_others(off[kept], _REFERENCES, random)]
    exact = model.kernel(places[kept], places[references])
    between = np.abs(found[kept] @ found[references].T - exact)
    return Differences(
        max(float(off.max()), float(between.max())),
        max(float(variance.max()), float(np.abs(exact).max())),
        len(places) + exact.size,
    )


def _variances(places: Tiles, model: KernelFeatures) -> Floats:
    """Return k(x, x), (n,)."""
    slices = [slice(start, start + _ROWS) for start in range(0, len(places), _ROWS)]
    parts = [(model.features(places[rows]) ** 2).sum(axis=1) for rows in slices]
    return np.concatenate(parts)


def _worst_and_others(off: Floats, count: int, random: np.random.Generator) -> Rows:
    """Return the rows of the largest values, and as many of the others; all where they are few."""
    if len(off) <= count:
        return np.arange(len(off))
    order = np.argsort(-off, kind="stable")
    half = count // 2
    return np.concatenate([order[:half], random.choice(order[half:], count - half, replace=False)])

"""A low-rank kernel as a few pictures, from which any of its slices is drawn at once.

On a grid of G cells with features Phi (G, r), Phi Phi' = U S² U'. The leading columns c_j of U S
are the best sum of so many products (Eckart and Young 1936), so that k(x, x*) is about
sum_j c_j(x) c_j(x*). They follow from the eigenvectors V of the r x r Gram matrix Phi' Phi in
float64 as Phi V; nothing G x G is made. All are rounded in one step: what errors of rounding add
to the kernel is then the same for each, and small ones take few bytes.

Between the middles of cells the components are bilinear, and so is the kernel in either place. The
grid holds all cells around those of the map: each place of the map lies between four middles where
Phi is known, so that neither edges nor holes need a rule of their own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError, NumericalError
from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.page.kernel_error import (
    KernelFeatures,
    differences,
    interpolated,
    random_places,
    random_rows,
)
from geogp.maps.page.packing import Packed, filled, pack, text_bytes, unpack

Floats = NDArray[np.float64]

MOST_COMPONENTS = 48
MOST_CELLS = 160 * 160
"""Of the grid."""

MOST_TEXT = 1_500_000
"""Bytes of base64."""

_FRACTIONS = (1 / 8000, 1 / 4000, 1 / 2000, 1 / 1000, 1 / 500, 1 / 250, 1 / 125)
_COUNTS = (48, 40, 32, 24, 16, 12, 8, 6, 4, 2, 1)
_TRIED = 2048
_EACH = 8
_SHOWN = 64
_ROWS = 4096
_FINE_ENOUGH = 0.001
_NEARLY = 1.1

_ROOM = 1.1
"""Times the largest difference found is what is stated: other places may differ somewhat more."""


@dataclass(frozen=True)
class KernelBasis:
    """A reduced kernel.

    Attributes
    ----------
    frame
        The grid; the components are those of the middles of its cells.
    components
        c_j, packed with shape (m, height, width); away from the map anything.
    error
        A tenth more than the largest difference found between random places of the map, wherever
        in their cells, from the model's kernel, over its largest value, rounded up to two digits;
        of the components as decoded and interpolated.
    error_in_middles
        The largest difference found between middles of cells of the map, over the same value: what
        leaving out and rounding components cost before anything is interpolated.
    pairs
        How many pairs of random places were compared; see `kernel_error.py`.
    sample
        Kernel values between middles of cells, for a colour scale.
    """

    frame: Frame
    components: Packed
    error: float
    error_in_middles: float
    pairs: int
    sample: Floats


def kernel_cells(tiles: Tiles, most: int = MOST_CELLS) -> Tiles:
    """Return the cells over tiles and those around them, at most `most` in a frame.

    They are tiles of the finest zoom that has so few, at most one finer than the map's.
    """
    finest = finer(tiles)
    whole, zoom = Frame.of_tiles(finest), finest.zoom
    while zoom > 0:
        frame = _around(whole, finest.zoom - zoom)
        if frame.width * frame.height <= most:
            break
        zoom -= 1
    return with_neighbours(coarser(finest, zoom))


def _around(frame: Frame, shift: int) -> Frame:
    """Return a frame of coarser tiles over a frame, one more on each side."""
    column, row = (frame.column >> shift) - 1, (frame.row >> shift) - 1
    east, south = frame.column + frame.width - 1, frame.row + frame.height - 1
    width, height = (east >> shift) + 2 - column, (south >> shift) + 2 - row
    return Frame(frame.zoom - shift, column, row, width, height)


def finer(tiles: Tiles) -> Tiles:
    """Return the four tiles of the next zoom in each of some tiles."""
    column = np.concatenate([2 * tiles.column, 2 * tiles.column + 1] * 2)
    row = np.repeat(np.stack([2 * tiles.row, 2 * tiles.row + 1]), 2, axis=0).ravel()
    return Tiles(column, row, tiles.zoom + 1)


def coarser(tiles: Tiles, zoom: int) -> Tiles:
    """Return the tiles of a coarser zoom that hold any of some tiles, row by row."""
    shift = tiles.zoom - zoom
    return _once(tiles.column >> shift, tiles.row >> shift, zoom)


def with_neighbours(cells: Tiles) -> Tiles:
    """Return tiles and the eight around each, row by row; none north or south of the world."""
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    row = np.concatenate([cells.row + a for a, _ in around])
    column = np.concatenate([cells.column + b for _, b in around])
    inside = (row >= 0) & (row < 1 << cells.zoom)
    return _once(column[inside], row[inside], cells.zoom)


def _once(column: NDArray[np.int64], row: NDArray[np.int64], zoom: int) -> Tiles:
    """Return each tile once, row by row."""
    # Columns may lie beyond the world's edge, by less than its width.
    around = 1 << zoom
    key = np.unique(row * (4 * around) + column + around)
    return Tiles(key % (4 * around) - around, key // (4 * around), zoom)


def leading_components(features: Callable[[slice], Floats], n: int, most: int) -> Floats:
    """Return the leading columns of U S of Phi, (n, m), each with its largest value positive.

    Parameters
    ----------
    features
        Rows of Phi; each is asked for twice.
    n
        The number of rows.
    most
        The most columns; fewer where Phi has a lower rank, none where it is 0.

    Raises
    ------
    NumericalError
        Phi is not finite.
    """
    slices = [slice(start, start + _ROWS) for start in range(0, n, _ROWS)]
    gram = sum((phi.T @ phi for phi in map(features, slices)), np.zeros(()))
    if not np.isfinite(gram).all():
        raise NumericalError("expected finite features of the kernel, found others.")
    values, vectors = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > max(values[-1] * 1e-12, 0.0))[::-1][:most]
    if not len(kept):
        return np.zeros((n, 0))
    found = np.concatenate([features(rows) @ vectors[:, kept] for rows in slices])
    largest = np.abs(found).argmax(axis=0)
    return np.asarray(found * np.sign(found[largest, np.arange(len(kept))]))


def kernel_basis(
    tiles: Tiles, model: KernelFeatures, *, most_text: int = MOST_TEXT
) -> KernelBasis | None:
    """Reduce a kernel to at most 48 components on as many cells as 160 x 160.

    Of several steps and numbers of components that fit the bytes, the smallest with nearly the
    least error is taken.

    Parameters
    ----------
    tiles
        The tiles of the map.
    model
        The kernel.
    most_text
        Bytes of base64.

    Returns
    -------
    KernelBasis or None
        None for a kernel that is 0 everywhere.

    Raises
    ------
    NumericalError
        Features are not finite.
    DataError
        No kernel fits so few bytes.
    """
    cells = kernel_cells(tiles)
    frame = Frame.of_tiles(cells)

    def part(rows: slice) -> Floats:
        return model.features(cells[rows])

    components = leading_components(part, len(cells), MOST_COMPONENTS)
    if not components.shape[1]:
        return None
    random = np.random.default_rng(0)
    places = random_places(tiles, random)
    tried = places[random_rows(len(places), _TRIED, random)]
    exact = model.kernel(tried, tried[::_EACH])
    pixels = frame.pixels(cells)

    def at_places(values: Floats) -> Floats:
        raster = np.zeros((values.shape[1], frame.height, frame.width))
        raster[(slice(None), *pixels)] = values.T
        return interpolated(raster, frame, tried)

    for step, count in _in_order(components, at_places, exact, most_text):
        packed = _packed(frame, cells, components[:, :count], step)
        if text_bytes(packed) <= most_text:
            break
    else:
        raise DataError(f"no kernel of {len(cells)} cells fits {most_text} bytes.")
    decoded = unpack(packed)
    found = differences(interpolated(decoded, frame, places), places, model, random)
    within = finer(tiles) if cells.zoom > tiles.zoom else coarser(tiles, cells.zoom)
    in_middles = differences(decoded[(slice(None), *frame.pixels(within))].T, within, model, random)
    shown = cells[random_rows(len(cells), _SHOWN, random)]
    return KernelBasis(
        frame,
        packed,
        rounded_up(_ROOM * found.most / found.largest),
        in_middles.most / found.largest,
        found.pairs,
        model.kernel(cells, shown),
    )


def rounded_up(value: float) -> float:
    """Return the next larger number of two digits; 0 stays."""
    if value == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(value))
    return round(math.ceil(value * 10.0**digits) / 10.0**digits, digits)


def _in_order(
    components: Floats, at_places: Callable[[Floats], Floats], exact: Floats, most_text: int
) -> list[tuple[float, int]]:
    """Return steps and numbers of components, those to be preferred first.

    Those with nearly the least error among those thought to fit, by size; then all others. The
    error is that between places, where `at_places` interpolates components, and some of them.
    """
    tried = []
    for fraction in _FRACTIONS:
        step = float(np.abs(components).max()) * fraction
        rounded = np.round(components / step) * step
        text = np.cumsum([_text_guess(column / step) for column in rounded.T])
        at = at_places(rounded)
        counts = sorted({min(count, components.shape[1]) for count in _COUNTS})
        found, done = np.zeros_like(exact), 0
        for count in counts:
            found += at[:, done:count] @ at[::_EACH, done:count].T
            done = count
            error = float(np.abs(found - exact).max() / np.abs(exact).max())
            tried.append((float(text[count - 1]), error, step, count))
    fitting = [one for one in tried if one[0] <= most_text] or [min(tried)]
    enough = max(_NEARLY * min(one[1] for one in fitting), _FINE_ENOUGH)
    tried.sort(key=lambda one: (one[0] > most_text or one[1] > enough, one[0]))
    return [(step, count) for _, _, step, count in tried]


def _text_guess(numbers: Floats) -> float:
    """Return about the bytes of base64 of whole numbers: the entropy of their differences."""
    _, counts = np.unique(np.diff(numbers, prepend=0.0), return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum() * len(numbers) / 8 * 4 / 3)


def _stacked(frame: Frame, cells: Tiles, components: Floats) -> Floats:
    raster = np.full((components.shape[1], frame.height, frame.width), np.nan)
    raster[(slice(None), *frame.pixels(cells))] = components.T
    return np.stack([filled(one) for one in raster])


def _packed(frame: Frame, cells: Tiles, components: Floats, step: float) -> Packed:
    stacked = _stacked(frame, cells, components)
    bits = 8 if np.ptp(stacked) < 254 * step else 16
    return pack(stacked, step, bits, none=False)

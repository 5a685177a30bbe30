"""A reduced kernel: a few rasters (components) from which the page draws any kernel slice.

Let Phi (G, r) be the features at G cells, and Phi Phi' = U S² U'. The m leading columns c_j of U S
give the best approximation k(x, x*) ~ sum_j c_j(x) c_j(x*) with m terms (Eckart and Young 1936).
These components are computed as Phi V, where V are the eigenvectors of the r x r Gram matrix Phi'
Phi in float64; no G x G matrix is computed. All components are rounded with the same step, so small
components need few bytes.

Between the centres of cells, the page interpolates the components bilinearly. The cells include all
neighbours of the map's cells. So each place of the map lies between four centres at which Phi is
known, also near edges and holes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError, NumericalError
from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Floats, Frame
from geogp.maps.page.kernel_error import (
    KernelFeatures,
    differences,
    interpolated,
    random_places,
    random_rows,
)
from geogp.maps.page.packing import Packed, filled, pack, text_bytes, unpack

MAX_COMPONENTS = 48
MAX_CELLS = 160 * 160
"""Largest number of cells in the frame of a reduced kernel."""

MAX_TEXT = 1_500_000
"""Largest number of base64 bytes of the components."""

_FRACTIONS = (1 / 8000, 1 / 4000, 1 / 2000, 1 / 1000, 1 / 500, 1 / 250, 1 / 125)
_COUNTS = (48, 40, 32, 24, 16, 12, 8, 6, 4, 2, 1)
_TRIED = 2048
_EACH = 8
_ROWS = 4096
_FINE_ENOUGH = 0.001
_NEARLY = 1.1

_ROOM = 1.1
"""The stated error is the largest error found times this, because other errors may be larger."""


@dataclass(frozen=True)
class KernelBasis:
    """A reduced kernel: its components, and its errors relative to the kernel's largest value.

    `components` are c_j at the centres of the cells of `frame`, packed with shape (m, height,
    width). Outside the map, their values are arbitrary.

    `error` is 1.1 times the largest error found between random places of the map, rounded up to two
    digits. `error_in_middles` is the largest error found for pairs of cells' centres, where nothing
    is interpolated.
    """

    frame: Frame
    components: Packed
    error: float
    error_in_middles: float


def kernel_cells(tiles: Tiles, most: int = MAX_CELLS) -> Tiles:
    """Return cells that cover the tiles, and the neighbours of these cells.

    All cells are tiles of one zoom: the finest zoom for which the smallest frame around the cells
    has at most `most` tiles. The cells are at most one zoom level finer than the map.
    """
    finest = finer(tiles)
    zoom = finest.zoom
    while zoom > 0:
        shift = finest.zoom - zoom
        width, height = (
            int(np.ptp(numbers >> shift)) + 3 for numbers in (finest.column, finest.row)
        )
        if width * height <= most:
            break
        zoom -= 1
    return with_neighbours(coarser(finest, zoom))


def finer(tiles: Tiles) -> Tiles:
    """Return the four tiles of the next finer zoom in each tile."""
    column = np.concatenate([2 * tiles.column, 2 * tiles.column + 1] * 2)
    row = np.repeat(np.stack([2 * tiles.row, 2 * tiles.row + 1]), 2, axis=0).ravel()
    return Tiles(column, row, tiles.zoom + 1)


def coarser(tiles: Tiles, zoom: int) -> Tiles:
    """Return the tiles of a coarser zoom that contain any of the given tiles, sorted by row."""
    shift = tiles.zoom - zoom
    return _once(tiles.column >> shift, tiles.row >> shift, zoom)


def with_neighbours(cells: Tiles) -> Tiles:
    """Return tiles and the eight neighbours of each tile, if they exist, sorted by row."""
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    row = np.concatenate([cells.row + a for a, _ in around])
    column = np.concatenate([cells.column + b for _, b in around])
    inside = (row >= 0) & (row < 1 << cells.zoom)
    return _once(column[inside], row[inside], cells.zoom)


def _once(column: NDArray[np.int64], row: NDArray[np.int64], zoom: int) -> Tiles:
    """Return each tile once, sorted by row."""
    # Columns may lie beyond the world's edge by less than the world's width.
    around = 1 << zoom
    key = np.unique(row * (4 * around) + column + around)
    return Tiles(key % (4 * around) - around, key // (4 * around), zoom)


def leading_components(features: Callable[[slice], Floats], n: int, most: int) -> Floats:
    """Return the leading columns of U S, where Phi Phi' = U S² U', shape (n, m).

    In each column, the value with the largest absolute value is positive. `features` returns rows
    of Phi and is called twice for each of the n rows. m is the smaller of `most` and the rank of
    Phi, and 0 if Phi is 0. Raises NumericalError if Phi is not finite.
    """
    slices = [slice(start, start + _ROWS) for start in range(0, n, _ROWS)]
    gram = sum((phi.T @ phi for phi in map(features, slices)), np.zeros(()))
    if not np.isfinite(gram).all():
        raise NumericalError("expected finite features of the kernel, found NaN or infinity.")
    values, vectors = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > max(values[-1] * 1e-12, 0.0))[::-1][:most]
    if not len(kept):
        return np.zeros((n, 0))
    components = np.concatenate([features(rows) @ vectors[:, kept] for rows in slices])
    largest = np.abs(components).argmax(axis=0)
    return np.asarray(components * np.sign(components[largest, np.arange(len(kept))]))


def kernel_basis(
    tiles: Tiles, model: KernelFeatures, *, most_text: int = MAX_TEXT
) -> KernelBasis | None:
    """Return a kernel reduced to at most 48 components on 25,600 cells; None for a kernel of 0.

    Several rounding steps and numbers of components are tried. The result has at most
    `most_text` bytes of base64. Of all such results with nearly the least error, it is the
    smallest. Raises NumericalError if features are not finite, and DataError if no result fits.
    """
    cells = kernel_cells(tiles)
    frame = Frame.of_tiles(cells)
    components = leading_components(
        lambda rows: model.features(cells[rows]), len(cells), MAX_COMPONENTS
    )
    if not components.shape[1]:
        return None
    random = np.random.default_rng(0)
    places = random_places(tiles, random)
    tried = places[random_rows(len(places), _TRIED, random)]
    exact = model.kernel(tried, tried[::_EACH])
    pixels = frame.pixels(cells)

    def raster(values: Floats, fill: float) -> Floats:
        rasters = np.full((values.shape[1], frame.height, frame.width), fill)
        rasters[(slice(None), *pixels)] = values.T
        return rasters

    def at_places(values: Floats) -> Floats:
        return interpolated(raster(values, 0.0), frame, tried)

    for step, count in _in_order(components, at_places, exact, most_text):
        stacked = np.stack(
            [filled(component) for component in raster(components[:, :count], np.nan)]
        )
        bits = 8 if np.ptp(stacked) < 254 * step else 16
        packed = pack(stacked, step, bits, none=False)
        if text_bytes(packed) <= most_text:
            break
    else:
        raise DataError(f"the kernel on {len(cells)} cells does not fit into {most_text} bytes.")
    decoded = unpack(packed)
    most, largest = differences(interpolated(decoded, frame, places), places, model, random)
    within = finer(tiles) if cells.zoom > tiles.zoom else coarser(tiles, cells.zoom)
    middles = decoded[(slice(None), *frame.pixels(within))].T
    in_middles, _ = differences(middles, within, model, random)
    return KernelBasis(
        frame,
        packed,
        rounded_up(_ROOM * most / largest),
        in_middles / largest,
    )


def rounded_up(value: float) -> float:
    """Return a number rounded up to two digits; 0 for 0."""
    if value == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(value))
    return round(math.ceil(value * 10.0**digits) / 10.0**digits, digits)


def _in_order(
    components: Floats, at_places: Callable[[Floats], Floats], exact: Floats, most_text: int
) -> list[tuple[float, int]]:
    """Return pairs of a rounding step and a number of components, in the order of preference.

    First come pairs that probably fit and have nearly the least error, ordered by size; then all
    other pairs. The error is the largest difference from `exact`. `at_places` interpolates
    components at some places; `exact` is the kernel between these places and every eighth of them.
    """
    tried = []
    for fraction in _FRACTIONS:
        step = float(np.abs(components).max()) * fraction
        rounded = np.round(components / step) * step
        text = np.cumsum([_text_guess(column / step) for column in rounded.T])
        at = at_places(rounded)
        counts = sorted({min(count, components.shape[1]) for count in _COUNTS})
        kernel, done = np.zeros_like(exact), 0
        for count in counts:
            kernel += at[:, done:count] @ at[::_EACH, done:count].T
            done = count
            error = float(np.abs(kernel - exact).max() / np.abs(exact).max())
            tried.append((float(text[count - 1]), error, step, count))
    fitting = [pair for pair in tried if pair[0] <= most_text] or [min(tried)]
    enough = max(_NEARLY * min(pair[1] for pair in fitting), _FINE_ENOUGH)
    tried.sort(key=lambda pair: (pair[0] > most_text or pair[1] > enough, pair[0]))
    return [(step, count) for _, _, step, count in tried]


def _text_guess(numbers: Floats) -> float:
    """Return about how many base64 bytes numbers need, from the entropy of their differences."""
    _, counts = np.unique(np.diff(numbers, prepend=0.0), return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum() * len(numbers) / 8 * 4 / 3)

"""A low-rank kernel as a few pictures, from which any of its slices is drawn at once.

On a grid of G cells with features Phi (G, r), Phi Phi' = U S² U'. The leading columns c_j of U S
are the best sum of so many products (Eckart and Young 1936), so that k(x, x*) is about
sum_j c_j(x) c_j(x*). They follow from the eigenvectors V of the r x r Gram matrix Phi' Phi in
float64 as Phi V; nothing G x G is made. All are rounded in one step: what errors of rounding add
to the kernel is then the same for each, and small ones take few bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError, NumericalError
from geogp.geodata.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.packing import Packed, filled, pack, text_bytes, unpack

Floats = NDArray[np.float64]

MOST_COMPONENTS = 48
MOST_CELLS = 160
"""Of a side of the grid."""

MOST_TEXT = 1_500_000
"""Bytes of base64."""

_FRACTIONS = (1 / 2000, 1 / 1000, 1 / 500, 1 / 250, 1 / 125)
_COUNTS = (48, 40, 32, 24, 16, 12, 8, 6, 4, 2, 1)
_REFERENCES = 64
_ROWS = 4096
_PAIRS = 150_000_000
_FINE_ENOUGH = 0.003
_NEARLY = 1.1


@dataclass(frozen=True)
class Features:
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


@dataclass(frozen=True)
class KernelBasis:
    """A reduced kernel.

    Attributes
    ----------
    frame
        The grid.
    components
        c_j, packed with shape (m, height, width); outside the cells anything.
    error
        Largest difference from the model's kernel over its largest value, of the components as
        decoded, between `references` cells and all cells; of all pairs of up to 12,000 cells.
    error_at_tiles
        The same between some tiles of the map, each standing for the middle of its cell; no less
        than `error`.
    references
        How many: where not all, those where the decoded kernel is largest, whose errors can be,
        and as many drawn without choice.
    sample
        Kernel values of them, for a colour scale.
    """

    frame: Frame
    components: Packed
    error: float
    error_at_tiles: float
    references: int
    sample: Floats


def kernel_cells(tiles: Tiles, most: int = MOST_CELLS) -> Tiles:
    """Return the cells over tiles: tiles of the finest zoom that has at most `most` a side."""
    zoom = tiles.zoom
    while zoom > 0:
        frame = Frame.of_tiles(coarser(tiles, zoom))
        if max(frame.width, frame.height) <= most:
            break
        zoom -= 1
    return coarser(tiles, zoom)


def coarser(tiles: Tiles, zoom: int) -> Tiles:
    """Return the tiles of a coarser zoom that hold any of some tiles, row by row."""
    shift = tiles.zoom - zoom
    pairs = np.unique(np.column_stack([tiles.row >> shift, tiles.column >> shift]), axis=0)
    return Tiles(pairs[:, 1].copy(), pairs[:, 0].copy(), zoom)


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
    tiles: Tiles, model: Features, *, most_text: int = MOST_TEXT
) -> KernelBasis | None:
    """Reduce a kernel to at most 48 components on at most 160 x 160 cells.

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
        return model.features(Tiles(cells.column[rows], cells.row[rows], cells.zoom))

    components = leading_components(part, len(cells), MOST_COMPONENTS)
    if not components.shape[1]:
        return None
    random = np.random.default_rng(0)
    chosen = np.sort(random.choice(len(cells), min(_REFERENCES, len(cells)), replace=False))
    exact = model.kernel(cells, _some(cells, chosen))
    for step, count in _in_order(components, exact, chosen, most_text):
        packed = _packed(frame, cells, components[:, :count], step)
        if text_bytes(packed) <= most_text:
            break
    else:
        raise DataError(f"no kernel of {len(cells)} cells fits {most_text} bytes.")
    decoded = unpack(packed)[(slice(None), *frame.pixels(cells))].T
    references = _references(decoded, random)
    error = _error(decoded, references, lambda rows: model.kernel(cells, _some(cells, rows)))
    return KernelBasis(
        frame,
        packed,
        error,
        max(error, _error_at_tiles(tiles, cells, decoded, model, random)),
        len(references),
        exact,
    )


def _references(decoded: Floats, random: np.random.Generator) -> NDArray[np.intp]:
    """Return the cells whose errors with all cells are looked at: all, where not too many."""
    n = len(decoded)
    count = min(n, max(_REFERENCES, _PAIRS // n))
    if count == n:
        return np.arange(n)
    order = np.argsort(-(decoded**2).sum(axis=1), kind="stable")
    others = random.choice(order[count // 2 :], count - count // 2, replace=False)
    return np.sort(np.concatenate([order[: count // 2], others]))


def _error(
    decoded: Floats, references: NDArray[np.intp], kernel: Callable[[NDArray[np.intp]], Floats]
) -> float:
    """Return the largest error between references and all cells over the largest value."""
    error = largest = 0.0
    for start in range(0, len(references), _ROWS // 2):
        rows = references[start : start + _ROWS // 2]
        exact = kernel(rows)
        error = max(error, float(np.abs(decoded @ decoded[rows].T - exact).max()))
        largest = max(largest, float(np.abs(exact).max()))
    return error / largest


def _in_order(
    components: Floats, exact: Floats, chosen: NDArray[np.intp], most_text: int
) -> list[tuple[float, int]]:
    """Return steps and numbers of components, those to be preferred first.

    Those with nearly the least error among those thought to fit, by size; then all others.
    """
    tried = []
    for fraction in _FRACTIONS:
        step = float(np.abs(components).max()) * fraction
        rounded = np.round(components / step) * step
        text = np.cumsum([_text_guess(column / step) for column in rounded.T])
        counts = sorted({min(count, components.shape[1]) for count in _COUNTS})
        found, done = np.zeros_like(exact), 0
        for count in counts:
            found += rounded[:, done:count] @ rounded[chosen, done:count].T
            done = count
            tried.append((float(text[count - 1]), _relative(found, exact), step, count))
    fitting = [one for one in tried if one[0] <= most_text] or [min(tried)]
    enough = max(_NEARLY * min(one[1] for one in fitting), _FINE_ENOUGH)
    tried.sort(key=lambda one: (one[0] > most_text or one[1] > enough, one[0]))
    return [(step, count) for _, _, step, count in tried]


def _text_guess(numbers: Floats) -> float:
    """Return about the bytes of base64 of whole numbers: the entropy of their differences."""
    _, counts = np.unique(np.diff(numbers, prepend=0.0), return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum() * len(numbers) / 8 * 4 / 3)


def _packed(frame: Frame, cells: Tiles, components: Floats, step: float) -> Packed:
    stacked = np.stack([filled(frame.place(cells, one, np.nan)) for one in components.T])
    bits = 8 if np.ptp(stacked) < 254 * step else 16
    return pack(stacked, step, bits, none=False)


def _error_at_tiles(
    tiles: Tiles, cells: Tiles, decoded: Floats, model: Features, random: np.random.Generator
) -> float:
    """Compare the cells' kernel with the model's between tiles anywhere in the cells."""
    frame = Frame.of_tiles(cells)
    number = frame.place(cells, np.arange(len(cells)), -1)
    some = _some(tiles, random.choice(len(tiles), min(2048, len(tiles)), replace=False))
    shift = tiles.zoom - cells.zoom
    at = decoded[number[(some.row >> shift) - frame.row, (some.column >> shift) - frame.column]]
    references = _some(some, np.arange(min(_REFERENCES, len(some))))
    return _relative(at @ at[: len(references)].T, model.kernel(some, references))


def _relative(found: Floats, exact: Floats) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def _some(tiles: Tiles, rows: NDArray[np.intp]) -> Tiles:
    return Tiles(tiles.column[rows], tiles.row[rows], tiles.zoom)

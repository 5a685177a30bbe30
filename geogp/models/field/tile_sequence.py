"""The tile process at many tiles given the rows, as a sequence of conditional distributions.

This is a "response first" Vecchia approximation (Katzfuss, Guinness, Gong and Zilber 2020, section
4) in blocks (Guinness 2018). A patch has a few neighbouring tiles. The effect u_t of a tile is
conditioned on the training rows near its patch, on the effects of near patches that come earlier in
a random order, and on the tiles before it in its patch. So one factorisation serves a whole patch.
A tile at two times counts as two tiles. With w the weights of the field and b the mean of the rows
at w = 0,

u = A (y - b - Phi_rows w) + B u + s eps,    eps ~ N(0, I).

A and B are sparse, and B is strictly lower triangular in the order of the sequence. If every tile
were conditioned on all rows and all earlier tiles, the distribution of u would be exact.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.errors import DataError
from geogp.models.core.devices import on_device
from geogp.models.core.threads import chunks, in_threads
from geogp.models.field.field_rows import NearRows
from geogp.models.field.near_rows import NearTerms, WeightPosterior, near_rows
from geogp.models.field.vecchia import GROWTH, NO_ROW, Sites, earlier_places, spacing, whiten
from geogp.models.joint.joint_level import AT_ONCE, EARLIER_TILES
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Sparse = Any
"""Type of a sparse array of SciPy; SciPy itself provides none."""

PATCH_TILES = 8
"""Largest number of tiles in a patch."""

PATCH_WIDTH = 2.0
"""Width of a patch, as a multiple of the median distance between neighbouring tiles."""

SAMPLED = 2000
"""Number of tiles from which the distance between neighbouring tiles is estimated."""

ROUNDING = 1e-12
"""Share of the prior variance of a tile below which its conditional variance counts as 0."""


@dataclass(frozen=True)
class TileSequence:
    """The tile process u at n tiles given w and the rows, for a standardised target.

    A tile needs memory for the tiles that condition it, and for its row of `low`. No array is a
    dense n by n matrix. Tiles that do not depend on each other form a group; the groups are solved
    one after the other, each by one product of a sparse with a dense matrix.

    `order`: numbers of the tiles, in the order of the sequence, (n,).
    `ends`: the end of each group in the sequence.
    `B`: sparse matrix (n, n), with rows and columns in the order of the sequence.
    `s`: conditional standard deviations, in the order of the sequence, (n,).
    `low`: H L, (n, r), by tile number, in the model's dtype. With f = Phi w + u the level without
        its mean, H w is the mean of f given w and rows of value 0: H = Phi - (I - B)^(-1) A
        Phi_rows.
    `told`: the mean of u for the residuals of the rows, by tile number, (n, k).
    """

    order: Indices
    ends: Indices
    B: Sparse
    s: Floats
    low: NDArray[Any]
    told: Floats

    def back(self, weights: Floats) -> Floats:
        """Return (I - B)^(-T) a in the sequence's order, for weights a (n, k) by tile number."""
        found = np.ascontiguousarray(weights[self.order])
        for start, end, part in reversed(self._later):
            found[start:end] += part @ found
        return found

    def forward(self, parts: NDArray[Any]) -> NDArray[Any]:
        """Return u = (I - B)^(-1) v by tile number, for v (n, k) in the order of the sequence.

        The result has the type of v, float64 or float32.
        """
        solved = np.array(parts, order="C")
        for start, end, part in self._single if parts.dtype == np.float32 else self._earlier:
            solved[start:end] += part @ solved
        found = np.empty_like(solved)
        found[self.order] = solved
        return found

    @cached_property
    def _earlier(self) -> "list[_Group]":
        return _groups(self.B, self.ends)

    @cached_property
    def _single(self) -> "list[_Group]":
        return _groups(self.B.astype(np.float32, copy=False), self.ends)

    @cached_property
    def _later(self) -> "list[_Group]":
        return _groups(sparse.csr_array(self.B.T), self.ends)


_Group = tuple[int, int, Sparse]
"""First and last + 1 of the tiles of a group, and their rows of a matrix."""


def _groups(matrix: Sparse, ends: Indices) -> list[_Group]:
    """Return the rows of a sparse matrix by group; they share the memory of the matrix."""
    found, start = [], 0
    for end in ends.tolist():
        first, last = matrix.indptr[[start, end]]
        held = matrix.data[first:last], matrix.indices[first:last]
        rows = (*held, matrix.indptr[start : end + 1] - first)
        if first < last:
            part = sparse.csr_array(rows, shape=(end - start, matrix.shape[1]), copy=False)
            found.append((start, end, part))
        start = end
    return found


def tile_sequence(
    model: "FieldNetwork",
    x: Tensor,
    weights: WeightPosterior,
    residuals: Tensor | None = None,
    *,
    earlier: int = EARLIER_TILES,
    seed: int = 0,
) -> TileSequence:
    """Compute the sequence for tiles at one or more times, in chunks.

    `x` (n, d) are inputs from `FieldNetwork.scaled`. `weights` is the posterior of the weights.
    `residuals` (rows, k) are those of the stored rows, for `told`; by default the targets minus
    their means. `earlier` is the largest number of tiles of earlier patches that condition a tile,
    or half of it if there are several times or providers. If it is 0, each tile is a patch of its
    own. `seed` fixes the order of the patches.

    Raises DataError if two tiles are at one place and time. Raises NumericalError if a block does
    not factorise.
    """
    points = model.points(x).cpu().numpy()
    patches = _patches(points, PATCH_TILES if earlier else 1)
    earlier *= 1 if _like_first(points).all() else 2
    random = np.random.default_rng([seed, 2]).permutation(len(patches))
    before = earlier_places(patches.centre, random, earlier)
    count = np.where(before == NO_ROW, 0, patches.count[before])
    before[np.cumsum(count, 1) - count >= earlier] = NO_ROW
    group = np.repeat(_groups_of(before, random), patches.count) * PATCH_TILES
    group += np.arange(len(x)) - np.repeat(patches.first, patches.count)
    order, size = np.argsort(group, kind="stable"), np.bincount(group)
    given = patches, before, order, earlier
    B, s, low, told = _blocks(model, x, weights, given, residuals)
    ends = np.cumsum(size[size > 0])
    sequence = TileSequence(patches.order[order], ends, B, s, low, told)
    told[:] = sequence.forward(told)
    for columns in chunks(low.shape[1], AT_ONCE):
        low[:, columns] = sequence.forward(low[:, columns])

    def subtract(part: slice) -> None:
        phi = model.basis.values(model.seen(x[part]))
        np.subtract((phi @ weights.L.to(phi.dtype)).cpu().numpy(), low[part], out=low[part])

    with torch.no_grad():
        list(in_threads(subtract, chunks(len(x), CHUNK), model.device))
    return sequence


def _like_first(points: Floats) -> NDArray[np.bool_]:
    """Mask of the tiles with the time, and the provider if there are several, of the first."""
    found: NDArray[np.bool_] = (points[:, 2:] == points[0, 2:]).all(1)
    return found


def _patches(points: Floats, most: int) -> Sites:
    """Return patches of at most `most` neighbouring tiles, from points (n, 3) or more.

    Near patches follow each other. In a patch, the times and providers of one place do.
    """
    at_once = points[_like_first(points), :2]
    asked = np.arange(0, len(at_once), -(-len(at_once) // SAMPLED))
    width = PATCH_WIDTH * spacing(at_once, asked) or 1.0
    cells = Sites.of(np.floor((points[:, :2] - points[:, :2].min(0)) / width))
    cell = np.empty(len(points), np.int64)
    cell[cells.order] = np.repeat(np.arange(len(cells)), cells.count)
    order = np.lexsort((*points.T[::-1], cell))
    repeated = int((np.diff(points[order], axis=0) == 0).all(1).sum())
    if repeated:
        raise DataError(
            f"expected each tile once at each time, found {repeated} repeated; drop repeats."
        )
    first = np.flatnonzero((np.arange(len(order)) - cells.first[cell[order]]) % most == 0)
    count = np.diff(np.append(first, len(order)))
    return Sites(order, first, count, np.add.reduceat(points[order, :2], first) / count[:, None])


def _groups_of(before: Indices, random: Indices) -> Indices:
    """Return the group of each patch: 1 + the largest group of its earlier patches, (k,).

    `before` (k, m) are the earlier patches. `random` is the order in which patches are earlier.
    """
    group = np.zeros(len(random), np.int64)
    start = 0
    while start < len(random):
        end = min(len(random), int(GROWTH * start) + 1)
        some = random[start:end]
        held = before[some]
        while held.size:
            found = np.where(held == NO_ROW, -1, group[held]).max(1) + 1
            if (found == group[some]).all():
                break
            group[some] = found
        start = end
    return group


def _blocks(
    model: "FieldNetwork",
    x: Tensor,
    weights: WeightPosterior,
    given: tuple[Sites, Indices, Indices, int],
    residuals: Tensor | None,
) -> tuple[Sparse, Floats, NDArray[Any], Floats]:
    """Return B, s, A Phi_rows L and A residuals, in the order of the sequence.

    `given` are the patches, the earlier patches of each, the positions of the sequence's tiles
    among those of the patches, (n,), and the largest number of earlier tiles.
    """
    patches, before, order, most = given
    points, n, r = model.points(x), len(x), weights.L.shape[1]
    amplitude = torch.cat([model.amplitude(part) for part in x.split(CHUNK)]).detach()
    dtype = np.float32 if model.architecture.dtype == "float32" else np.float64
    s, low = np.zeros(n), np.zeros((n, r), dtype)
    k = 1 if residuals is None else residuals.shape[1]
    told = np.zeros((n, k))
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    rows = _EarlierTiles.of(patches, before, order, most, dtype)

    def compute(part: slice) -> None:
        number = patches.rows(np.arange(part.start, part.stop)[:, None], PATCH_TILES)
        number = number[:, : patches.count[part].max()]
        tiles = on_device(patches.order[number], model.device)
        known = on_device(number != NO_ROW, model.device)
        near = near_rows(model, points[tiles].cpu().numpy(), patch=known)
        asked = x[tiles.flatten()], model.endless(tiles.numel()), near
        terms = NearTerms.of(model, *asked, weights)
        values = terms.told
        if residuals is not None:
            values = torch.cat([residuals[near.distinct], values[:, 1:]], 1)
        for few in chunks(len(number), model.blocks_at_once // 2):
            held = patches.rows(before[part][few], most)
            found = NearRows.of(np.where(held == NO_ROW, NO_ROW, patches.order[held]), model.device)
            earlier = _Earlier(points[found.distinct], amplitude[found.distinct], found)
            arrays = _conditioned(model, terms, values, few, (known[few], earlier))
            on_tiles, deviation, heard = (array.cpu().numpy() for array in arrays)
            here, inside = number[few], number[few] != NO_ROW
            at = position[here[inside]]
            s[at], told[at], low[at] = deviation[inside], heard[inside, :k], heard[inside, k:]
            rows.take(on_tiles, held, here, position)

    # Near patches are in the same chunk, because they share conditioning rows.
    with torch.no_grad():
        parts = chunks(len(patches), model.places_at_once // PATCH_TILES)
        list(in_threads(compute, parts, model.device))
    return rows.matrix(), s, low, told


@dataclass(frozen=True)
class _EarlierTiles:
    """The rows of B while they are computed: the arrays of a sparse array."""

    values: NDArray[Any]
    columns: NDArray[Any]
    starts: NDArray[Any]

    @classmethod
    def of(
        cls, patches: Sites, before: Indices, order: Indices, most: int, dtype: Any
    ) -> "_EarlierTiles":
        """Return rows for the sequence `order` (n,), each with at most `most` earlier tiles.

        A row also has the tiles that come before it in its patch.
        """
        earlier = np.where(before == NO_ROW, 0, patches.count[before]).sum(1).clip(max=most)
        count = np.repeat(earlier - patches.first, patches.count) + np.arange(len(order))
        starts = np.append(0, np.cumsum(count[order]))
        number = np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64
        return cls(np.zeros(starts[-1], dtype), np.zeros(starts[-1], number), starts.astype(number))

    def take(self, values: Floats, earlier: Indices, own: Indices, position: Indices) -> None:
        """Take the values (c, g, m + g) of c patches, for tiles `earlier` (c, m) and `own` (c, g).

        `NO_ROW` is padding. `position` (n,) is the position of each tile in the sequence.
        """
        g = own.shape[1]
        tiles = np.concatenate([earlier, own], 1)
        comes_before = np.tri(g, tiles.shape[1], earlier.shape[1] - 1, dtype=np.bool_)
        known = (tiles != NO_ROW)[:, None] & comes_before & (own != NO_ROW)[:, :, None]
        at = self.starts[position[own]][..., None] + np.cumsum(known, 2) - 1
        column = np.broadcast_to(position[tiles][:, None], known.shape)
        self.values[at[known]], self.columns[at[known]] = values[known], column[known]

    def matrix(self) -> Sparse:
        """Return B."""
        n = len(self.starts) - 1
        return sparse.csr_array((self.values, self.columns, self.starts), shape=(n, n), copy=False)


class _Earlier(NamedTuple):
    """The earlier tiles `near` of c patches; distinct ones have points (k, 3), amplitudes (k,)."""

    points: Tensor
    amplitude: Tensor
    near: NearRows


def _conditioned(
    model: "FieldNetwork",
    terms: NearTerms,
    told: Tensor,
    part: slice,
    tiles: tuple[Tensor, _Earlier],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return arrays of c patches of at most g tiles, from their near rows and earlier tiles.

    The arrays are the weights of the m earlier tiles and of the tiles of the patch, (c, g, m + g),
    s (c, g), and A `told`, with `told` = [residuals, Phi_rows L].
    """
    known, earlier = tiles
    near, (c, g), u = terms.near, known.shape, len(terms.told)
    back, width = near.at[part], near.at.shape[1]
    own = u + torch.arange(part.start * g, part.start * g + c * g, device=back.device).view(c, g)
    amplitude, noise = terms.terms.amplitude, terms.terms.noise
    points = torch.cat([terms.points, earlier.points])
    at = torch.cat([back, len(terms.points) + earlier.near.at], 1)
    size = torch.cat([amplitude, earlier.amplitude])[at]
    noise = torch.cat([noise, torch.zeros_like(earlier.amplitude)])[at]
    there = torch.cat([near.known[part], earlier.near.known], 1)
    # Dividing the covariances by the amplitude at the rows saves the product D K D.
    mine = amplitude[own] * known
    cross = model.tiles(points[at], terms.points[own]) * mine[:, None]
    between = model.tiles.lower_at(points, at)
    factor, white = whiten(between, noise / size.square(), there, cross)
    prior = model.tiles(terms.points[own], terms.points[own]) * mine[:, :, None] * mine[:, None]
    within, variance = _eliminated(prior - white.mT @ white, prior)
    shares = torch.linalg.solve_triangular(factor.mT, white, upper=True) / size[..., None]
    shares = within @ shares.mT
    eye = torch.eye(g, dtype=shares.dtype, device=shares.device)
    on_tiles = torch.cat([shares[..., width:], eye - within], -1)
    return on_tiles, variance.sqrt(), shares[..., :width] @ told[back]


def _eliminated(covariance: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit lower triangular M (c, g, g) and d (c, g), with M S M' = diag(d).

    S is `covariance` (c, g, g). A variance that is tiny compared with that of `prior` is a rounding
    error, and counts as 0.
    """
    g = covariance.shape[-1]
    left = covariance.clone()
    made = torch.eye(g, dtype=left.dtype, device=left.device).expand_as(left).clone()
    for k in range(g - 1):
        pivot, column = left[:, k, k, None], left[:, k + 1 :, k]
        some = pivot > ROUNDING * prior[:, k, k, None]
        ratio = torch.where(some, column / torch.where(some, pivot, 1.0), 0.0)[..., None]
        left[:, k + 1 :] -= ratio * left[:, k, None]
        made[:, k + 1 :] -= ratio * made[:, k, None]
    return made, left.diagonal(dim1=1, dim2=2).clamp(min=0)

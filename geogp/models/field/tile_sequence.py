"""The tile process at many tiles given the rows, as a sequence of conditional distributions.

This is a "response first" Vecchia approximation (Katzfuss, Guinness, Gong and Zilber 2020, section
4) in blocks (Guinness 2018). A patch has a few neighbouring tiles. Their effects are conditioned on
the training rows near the patch, and on the effects of tiles in near patches that come earlier in a
random order. So one factorisation serves a whole patch. A tile at two times counts as two tiles.
With w the weights of the field and b the mean of the rows at w = 0,

u = A (y - b - Phi_rows w) + C u + F eps,    eps ~ N(0, I).

C has a block for the earlier tiles of each patch, and F is lower triangular for each patch. If
every patch were conditioned on all rows and all earlier tiles, the distribution of u would be
exact.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import DataError
from geogp.models.field.blocks import NearRows
from geogp.models.field.conditioning import blocks_at_once, places_at_once
from geogp.models.field.near_rows import NearTerms, near_rows
from geogp.models.field.parameters import FieldParameters, WeightPosterior
from geogp.models.field.rows import FieldRows
from geogp.models.field.vecchia import GROWTH, NO_ROW, Sites, earlier_places, spacing, whiten
from geogp.models.joint.level import AT_ONCE, EARLIER_TILES
from geogp.models.numerics.devices import CHUNK, on_device
from geogp.models.numerics.threads import chunks, in_threads

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

PATCH_TILES = 9, 8
"""Largest number of tiles in a patch: at one time, and at several times or by several providers."""

MOST_OVER_MEAN = 2
"""Largest number of tiles in a patch as a multiple of the mean, because patches are padded."""

PATCH_WIDTH = 3.0, 2.0
"""Width of such patches, as a multiple of the median distance between neighbouring tiles."""

SAMPLED = 2000
"""Number of tiles from which the distance between neighbouring tiles is estimated."""

ROUNDING = 1e-12
"""Share of the prior variance of a tile below which its conditional variance counts as 0."""


@dataclass(frozen=True)
class PatchOrder:
    """Patches of neighbouring tiles, and the earlier patches on which each depends.

    `patches`: the patches; a patch is a place with several tiles.
    `before`: the earlier patches of each patch, (p, k), padded with `NO_ROW`.
    `order`: the patches as they follow each other in the sequence, (p,).
    `groups`: slices of `order`; patches of one group do not depend on each other.
    `most`: largest number of earlier tiles that condition a patch.
    """

    patches: Sites
    before: Indices
    order: Indices
    groups: list[slice]
    most: int

    @classmethod
    def of(cls, points: Floats, earlier: int, seed: int) -> "PatchOrder":
        """Return the patches of points (n, 3) or more, in an order fixed by `seed`.

        `earlier` is the largest number of earlier tiles; if it is 0, each tile is a patch. Raises
        DataError if two tiles are at one place and time.
        """
        patches = _patches(points, PATCH_TILES if earlier else (1, 1))
        random = np.random.default_rng([seed, 2]).permutation(len(patches))
        before = earlier_places(patches.centre, random, earlier)
        count = np.where(before == NO_ROW, 0, patches.count[before])
        before[np.cumsum(count, 1) - count >= earlier] = NO_ROW
        group = _groups_of(before, random)
        ends = np.cumsum(np.bincount(group)).tolist()
        groups = [slice(*pair) for pair in pairwise([0, *ends])]
        return cls(patches, before, np.argsort(group, kind="stable"), groups, earlier)

    @property
    def width(self) -> int:
        """Largest number of tiles in a patch."""
        return int(self.patches.count.max())

    def tiles(self, some: Indices) -> Indices:
        """Return the tiles of some patches, (b, `width`), padded with `NO_ROW`."""
        return self._numbers(some[:, None], self.width)

    def earlier(self, some: Indices) -> Indices:
        """Return the earlier tiles of some patches, (b, `most`), padded with `NO_ROW`."""
        return self._numbers(self.before[some], self.most)

    def _numbers(self, patches: Indices, most: int) -> Indices:
        position = self.patches.rows(patches, most)
        return np.where(position == NO_ROW, NO_ROW, self.patches.order[position])


@dataclass(frozen=True)
class TileSequence:
    """The tile process u at n tiles given w and the rows, for a standardised target.

    No array is a dense n by n matrix. Patches that do not depend on each other form a group; the
    groups are solved one after the other, each by one product of blocks. Arrays of values (n, k)
    are in the order of the tile numbers.

    `tiles`: the tiles of each patch, in the order of the sequence, (p, g); n is padding.
    `earlier`: the tiles that condition each patch, (p, m); n is padding.
    `groups`: the patches of each group.
    `C`, `F`: blocks (p, g, m) and (p, g, g), 0 in the padding, in the model's dtype.
    `low`: H L, (n, r), in the model's dtype. With f = Phi w + u the level without its mean, H w is
        the mean of f given w and rows of value 0: H = Phi - (I - C)^(-1) A Phi_rows.
    `means`: the means of u for k vectors of residuals of the rows, (n, k).
    """

    tiles: Tensor
    earlier: Tensor
    groups: list[slice]
    C: Tensor
    F: Tensor
    low: NDArray[Any]
    means: Floats

    def forward(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return (I - C)^(-1) v for v (n, k), in the type of v, float64 or float32."""
        return self._solved(_padded(values), None)

    def drawn(self, normal: NDArray[Any]) -> NDArray[Any]:
        """Return (I - C)^(-1) F e for e (n, k), in the type of e."""
        padded = _padded(normal)
        return self._solved(torch.zeros_like(padded), padded)

    def _solved(self, values: Tensor, normal: Tensor | None) -> NDArray[Any]:
        """Return (I - C)^(-1) v, or (I - C)^(-1) F e if e is given; both are padded, v is lost."""
        for group in self.groups:
            tiles, earlier, C, F = self._of(group, values.dtype)
            of_tiles = _rows(values, tiles) if normal is None else F @ _rows(normal, tiles)
            of_tiles = torch.baddbmm(of_tiles, C, _rows(values, earlier))
            values.index_copy_(0, tiles.flatten(), of_tiles.flatten(0, 1))
        return values[:-1].numpy()

    def roots(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return F' (I - C)^(-T) a for a (n, k), in the type of a."""
        left = _padded(values)
        roots = torch.zeros_like(left)
        for group in reversed(self.groups):
            tiles, earlier, C, F = self._of(group, left.dtype)
            of_tiles = _rows(left, tiles)
            roots.index_copy_(0, tiles.flatten(), (F.mT @ of_tiles).flatten(0, 1))
            left.index_add_(0, earlier.flatten(), (C.mT @ of_tiles).flatten(0, 1))
        return roots[:-1].numpy()

    def _of(self, group: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        blocks = self.C[group].to(dtype), self.F[group].to(dtype)
        return self.tiles[group], self.earlier[group], *blocks


def _rows(values: Tensor, numbers: Tensor) -> Tensor:
    """Return values[numbers], (b, m, k), for numbers (b, m), in half of the time."""
    return values.index_select(0, numbers.flatten()).view(*numbers.shape, values.shape[1])


def _padded(values: NDArray[Any]) -> Tensor:
    """Return a copy of values (n, k) with a last row of zeros."""
    nothing = np.zeros((1, values.shape[1]), values.dtype)
    return torch.as_tensor(np.concatenate([values, nothing]))


def tile_sequence(
    parameters: FieldParameters,
    rows: FieldRows,
    x: Tensor,
    weights: WeightPosterior,
    residuals: Tensor | None = None,
    *,
    earlier: int = EARLIER_TILES,
    seed: int = 0,
) -> TileSequence:
    """Compute the sequence for tiles at one or more times, in chunks.

    `x` (n, d) are scaled inputs. `weights` is the posterior of the weights.
    `residuals` (rows, k) are those of the stored rows, for `means`; by default the targets minus
    their means. `earlier` is the largest number of tiles of earlier patches that condition a tile.
    If it is 0, each tile is a patch of its own. `seed` fixes the order of the patches.

    Raises DataError if two tiles are at one place and time. Raises NumericalError if a block does
    not factorise.
    """
    order = PatchOrder.of(parameters.points(x).cpu().numpy(), earlier, seed)
    sequence = _blocks(parameters, rows, x, weights, order, residuals=residuals)
    low, means = sequence.low, sequence.means
    means[:] = sequence.forward(means)
    for columns in chunks(low.shape[1], AT_ONCE):
        low[:, columns] = sequence.forward(low[:, columns])

    def subtract(chunk: slice) -> None:
        phi = rows.features(parameters, x[chunk])
        np.subtract((phi @ weights.L.to(phi.dtype)).cpu().numpy(), low[chunk], out=low[chunk])

    with torch.no_grad():
        list(in_threads(subtract, chunks(len(x), CHUNK), parameters.device))
    return sequence


def _patches(points: Floats, limits: tuple[int, int]) -> Sites:
    """Return patches of neighbouring tiles from points (n, 3) or more; `limits` as `PATCH_TILES`.

    `MOST_OVER_MEAN` also bounds the number of tiles. Near patches follow each other. In a patch,
    the times and providers of one place do.
    """
    # Tiles at the time of the first tile, and of its provider if there are several.
    at_once = points[(points[:, 2:] == points[0, 2:]).all(1), :2]
    several = len(at_once) < len(points)
    most, widest = limits[several], PATCH_WIDTH[several]
    sampled = np.arange(0, len(at_once), -(-len(at_once) // SAMPLED))
    width = widest * spacing(at_once, sampled) or 1.0
    # The centres of a grid are far from the edges of the patches, which rounding could move.
    inset = 0.5 / widest
    cells = Sites.of(np.floor((points[:, :2] - points[:, :2].min(0)) / width + inset))
    cell = np.empty(len(points), np.int64)
    cell[cells.order] = np.repeat(np.arange(len(cells)), cells.count)
    most = min(most, math.ceil(MOST_OVER_MEAN * len(points) / len(cells)))
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
        earlier = before[some]
        while earlier.size:
            groups = np.where(earlier == NO_ROW, -1, group[earlier]).max(1) + 1
            if (groups == group[some]).all():
                break
            group[some] = groups
        start = end
    return group


def _blocks(
    parameters: FieldParameters,
    rows: FieldRows,
    x: Tensor,
    weights: WeightPosterior,
    order: PatchOrder,
    *,
    residuals: Tensor | None,
) -> TileSequence:
    """Return a sequence whose `low` is still A Phi_rows L, and its `means` A residuals."""
    points, n, r = parameters.points(x), len(x), weights.L.shape[1]
    device = parameters.device
    features = (rows.features(parameters, chunk) for chunk in x.split(CHUNK))
    amplitude = torch.cat([parameters.amplitude(phi) for phi in features]).detach()
    k, g = 1 if residuals is None else residuals.shape[1], order.width
    kind = torch.float32 if parameters.architecture.dtype == "float32" else torch.float64
    place, count = np.argsort(order.order), len(order.patches)
    tiles, earlier = (torch.full((count, width), n) for width in (g, order.most))
    C, F = (torch.zeros(count, g, width, dtype=kind) for width in (order.most, g))
    low, means = torch.zeros(n, r, dtype=kind), torch.zeros(n, k, dtype=torch.float64)

    def compute(chunk: slice) -> None:
        number = order.tiles(np.arange(chunk.start, chunk.stop))
        known = on_device(number != NO_ROW, device)
        tile = on_device(number, device)
        of_tiles = points[tile].cpu().numpy()
        near = near_rows(parameters, rows, of_tiles, patch=known)
        tiles_of = x[tile.flatten()], parameters.well_measured(tile.numel())
        places = rows.locations(of_tiles.reshape(-1, of_tiles.shape[-1]))
        terms = NearTerms.of(parameters, rows, *tiles_of, near, weights=weights, at=places)
        values = terms.deviations
        if residuals is not None:
            values = torch.cat([residuals[near.distinct], values[:, 1:]], 1)
        for few in chunks(len(number), blocks_at_once(device) // 2):
            before = order.earlier(np.arange(chunk.start, chunk.stop)[few])
            near_tiles = NearRows.of(before, device)
            distinct = near_tiles.distinct
            others = _Earlier(points[distinct], amplitude[distinct], near_tiles)
            arrays = _conditioned(parameters, terms, values, few, (known[few], others))
            on_earlier, factor, from_rows = (array.cpu() for array in arrays)
            inside, at = known[few].cpu(), torch.as_tensor(place[chunk][few])
            here = tile[few].cpu()
            tiles[at] = torch.where(inside, here, n)
            earlier[at] = torch.where(near_tiles.known, distinct[near_tiles.at], n).cpu()
            C[at], F[at] = on_earlier.to(kind), factor.to(kind)
            means[here[inside]] = from_rows[inside][:, :k]
            low[here[inside]] = from_rows[inside][:, k:].to(kind)

    # Near patches are in the same chunk, because they share conditioning rows.
    with torch.no_grad():
        patch_chunks = chunks(count, places_at_once(device) // g)
        list(in_threads(compute, patch_chunks, device))
    return TileSequence(tiles, earlier, order.groups, C, F, low.numpy(), means.numpy())


class _Earlier(NamedTuple):
    """The earlier tiles `near` of c patches; distinct ones have points (k, 3), amplitudes (k,)."""

    points: Tensor
    amplitude: Tensor
    near: NearRows


def _conditioned(
    parameters: FieldParameters,
    terms: NearTerms,
    values: Tensor,
    patches: slice,
    tiles: tuple[Tensor, _Earlier],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return arrays of c patches of at most g tiles, from their near rows and earlier tiles.

    The arrays are the blocks of C, (c, g, m), the blocks of F, (c, g, g), and A `values`, with
    `values` = [residuals, Phi_rows L].
    """
    known, earlier = tiles
    near, (c, g), u = terms.near, known.shape, len(terms.deviations)
    process = parameters.tiles
    back, width = near.at[patches], near.at.shape[1]
    first = u + patches.start * g
    tile = torch.arange(first, first + c * g, device=back.device).view(c, g)
    amplitude, noise = terms.terms.amplitude, terms.terms.noise
    points = torch.cat([terms.points, earlier.points])
    at = torch.cat([back, len(terms.points) + earlier.near.at], 1)
    size = torch.cat([amplitude, earlier.amplitude])[at]
    noise = torch.cat([noise, torch.zeros_like(earlier.amplitude)])[at]
    actual = torch.cat([near.known[patches], earlier.near.known], 1)
    # Dividing the covariances by the amplitude at the rows saves the product D K D.
    scale, at = amplitude[tile] * known, points[at]
    cross = process(at, terms.points[tile]) * scale[:, None]
    between = points.new_zeros(c, at.shape[1], at.shape[1])
    between[:, :width, :width] = process.lower_at(terms.points, back)
    between[:, width:] = process(at[:, width:], at)
    factor, white = whiten(between, noise / size.square(), actual, cross)
    prior = process(terms.points[tile], terms.points[tile]) * scale[:, :, None] * scale[:, None]
    F = factored(prior - white.mT @ white, prior)
    shares = torch.linalg.solve_triangular(factor.mT, white, upper=True) / size[..., None]
    shares = shares.mT
    return shares[..., width:], F, shares[..., :width] @ values[back]


def factored(covariance: Tensor, prior: Tensor) -> Tensor:
    """Return the Cholesky factor of covariances (c, g, g).

    A conditional variance that is tiny compared with that of `prior` is a rounding error, and
    counts as 0.
    """
    left, factor = covariance.clone(), torch.zeros_like(covariance)
    for k in range(covariance.shape[-1]):
        pivot = left[:, k, k, None]
        some = pivot > ROUNDING * prior[:, k, k, None]
        column = torch.where(some, left[:, k:, k] / torch.where(some, pivot, 1.0).sqrt(), 0.0)
        factor[:, k:, k] = column
        left[:, k:, k:] -= column[:, :, None] * column[:, None]
    return factor

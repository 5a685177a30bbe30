"""The tile process at many tiles given the rows, as a sequence of conditional distributions.

This is a "response first" Vecchia approximation (Katzfuss, Guinness, Gong and Zilber 2020, section
4). The effect u_t of a tile is conditioned on the training rows that `FieldNetwork.predict` uses
for this tile, and on the effects of near tiles that come earlier in a random order. A tile at two
times counts as two tiles. With w the weights of the field and b the mean of the rows at w = 0,

u = A (y - b - Phi_rows w) + B u + s eps,    eps ~ N(0, I).

A and B are sparse, and B is strictly lower triangular in the random order. If every tile were
conditioned on all rows and all earlier tiles, the distribution of u would be exact.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from geogp.errors import DataError
from geogp.models.core.devices import on_device
from geogp.models.core.threads import chunks, in_threads
from geogp.models.field.near_rows import (
    Conditional,
    NearTerms,
    WeightPosterior,
    WhiteRows,
    conditional,
    near_rows,
)
from geogp.models.field.vecchia import GROWTH, NO_ROW, Sites, earlier_places, whiten
from geogp.models.joint.joint_level import AT_ONCE, EARLIER_TILES
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Sparse = Any
"""Type of a sparse array of SciPy; SciPy itself provides none."""


@dataclass(frozen=True)
class TileSequence:
    """The tile process u at n tiles given w and the rows, for a standardised target.

    A tile needs memory for the 24 tiles that condition it, and for its row of `low`. No array is a
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
    `single`: the predictions of single tiles given only the rows, by tile number.
    """

    order: Indices
    ends: Indices
    B: Sparse
    s: Floats
    low: Floats
    told: Floats
    single: Conditional

    @property
    def alone(self) -> Floats:
        """The variance of the level (field plus tile process) of single tiles, (n,)."""
        return (self.single.field + self.single.tile).cpu().numpy()

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
        return _groups(self.B.astype(np.float32), self.ends)

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
    history: bool = True,
) -> TileSequence:
    """Compute the sequence for tiles at one or more times, in chunks.

    `x` (n, d) are inputs from `FieldNetwork.scaled`. `weights` is the posterior of the weights.
    `residuals` (rows, k) are those of the stored rows, for `told`; by default the targets minus
    their means. `earlier` is the largest number of earlier tiles that condition a tile. `seed`
    fixes the order of the tiles. `history`: whether `single` has the covariates of errors.

    Raises DataError if two tiles are at one place and time. Raises NumericalError if a block does
    not factorise.
    """
    points = model.points(x)
    _check(points)
    place = points[:, :2].cpu().numpy()
    near_together = Sites.of(place).order
    random = _order(place, np.random.default_rng([seed, 2]))
    before = earlier_places(place, random, earlier)
    order, ends = _by_group(before, random, near_together)
    orders = before, order.argsort(), near_together
    found = _blocks(model, x, weights, orders, residuals, history=history)
    sequence, heard = TileSequence(order, ends, *found[:-1]), found[-1]
    for columns in chunks(heard.shape[1], AT_ONCE):
        heard[:, columns] = sequence.forward(heard[:, columns])
    k = sequence.told.shape[1]
    sequence.low[:] -= heard[:, k:]
    sequence.told[:] = heard[:, :k]
    return sequence


def _blocks(
    model: "FieldNetwork",
    x: Tensor,
    weights: WeightPosterior,
    orders: tuple[Indices, Indices, Indices],
    residuals: Tensor | None,
    *,
    history: bool,
) -> tuple[Sparse, Floats, NDArray[Any], Floats, Conditional, NDArray[Any]]:
    """Return B, s, Phi L, an array for `told`, `single` and A [residuals, Phi_rows L].

    `orders` are the earlier tiles of each tile (n, m), the position of each tile in the sequence,
    (n,), and an order in which near tiles follow each other, (n,).
    """
    before, position, near_together = orders
    points, n, r = model.points(x), len(x), weights.L.shape[1]
    at_points = points.cpu().numpy()
    amplitude = torch.cat([model.amplitude(part) for part in x.split(CHUNK)])
    s, on_earlier = np.zeros(n), np.zeros(before.shape)
    dtype = np.float32 if model.architecture.dtype == "float32" else np.float64
    k = 1 if residuals is None else residuals.shape[1]
    heard, low = np.zeros((n, k + r), dtype), np.zeros((n, r), dtype)

    def compute(part: slice) -> Conditional:
        number = near_together[part]
        tiles = on_device(number, model.device)
        asked = x[tiles], model.endless(len(tiles)), near_rows(model, at_points[number])
        terms, found = NearTerms.of(model, *asked, weights), []
        u, told = len(terms.told), terms.told
        low[number] = terms.spread[u:].cpu().numpy()
        if residuals is not None:
            told = torch.cat([residuals[terms.near.distinct], terms.spread[:u]], 1)
        for few in chunks(len(number), model.blocks_at_once):
            here = number[few]
            neighbours = _Neighbours.of(on_device(before[here], model.device), points, amplitude)
            arrays, white = _conditioned(model, terms, told, few, neighbours)
            on_earlier[here], s[position[here]], heard[position[here]] = (
                part.cpu().numpy() for part in arrays
            )
            found.append(conditional(model, x[tiles[few]], terms, few, white, history=history))
        return Conditional(*map(torch.cat, zip(*found, strict=True)))

    # Near tiles are in the same chunk, because they share conditioning rows.
    with torch.no_grad():
        parts = list(in_threads(compute, chunks(n, model.places_at_once), model.device))
    back = on_device(near_together.argsort(), model.device)
    single = Conditional(*(torch.cat(part)[back] for part in zip(*parts, strict=True)))
    to, column = np.nonzero(before != NO_ROW)
    earlier_tiles = position[before[to, column]]
    B = sparse.csr_array((on_earlier[to, column], (position[to], earlier_tiles)), shape=(n, n))
    return B, s, low, np.zeros((n, k)), single, heard


def _by_group(before: Indices, random: Indices, near_together: Indices) -> tuple[Indices, Indices]:
    """Return tiles in groups that depend only on earlier groups, and the end of each group.

    The group of a tile is 1 + the largest group among its earlier tiles `before` (n, m). Within a
    group, near tiles follow each other. `random` is the order in which tiles are earlier.
    """
    n = len(random)
    group = np.zeros(n, np.int64)
    start = 0
    while start < n:
        end = min(n, int(GROWTH * start) + 1)
        tiles = random[start:end]
        held = before[tiles]
        while held.size:
            found = np.where(held == NO_ROW, -1, group[held]).max(1) + 1
            if (found == group[tiles]).all():
                break
            group[tiles] = found
        start = end
    near = np.empty(n, np.int64)
    near[near_together] = np.arange(n)
    return np.lexsort((near, group)), np.cumsum(np.bincount(group))


class _Neighbours(NamedTuple):
    """The earlier tiles of b tiles: points (b, m, 3), amplitudes (b, m), and which are known."""

    points: Tensor
    amplitude: Tensor
    known: Tensor

    @classmethod
    def of(cls, tiles: Tensor, points: Tensor, amplitude: Tensor) -> "_Neighbours":
        """Return the tiles with the numbers `tiles` (b, m); `NO_ROW` is padding."""
        at = tiles.clamp(min=0)
        return cls(points[at], amplitude[at], tiles != NO_ROW)


def _conditioned(
    model: "FieldNetwork", terms: NearTerms, told: Tensor, part: slice, earlier: _Neighbours
) -> tuple[tuple[Tensor, Tensor, Tensor], WhiteRows]:
    """Return arrays of b tiles, and the covariances of their near rows.

    The arrays are weights of earlier tiles, s, and A `told`, with `told` = [residuals, Phi_rows L].
    """
    back, known, here = terms.at(part)
    width, own = back.shape[1], terms.terms.amplitude[here]
    points = torch.cat([terms.points[back], earlier.points], 1)
    amplitude = torch.cat([terms.terms.amplitude[back], earlier.amplitude], 1)
    noise = torch.cat([terms.terms.noise[back], torch.zeros_like(earlier.amplitude)], 1)
    # Dividing the covariances by the amplitude at the rows saves the product D K D.
    correlation = model.tiles(points, terms.points[here][:, None])
    cross = correlation * own[:, None, None]
    there = torch.cat([known, earlier.known], 1)
    factor, white = whiten(model.tiles.lower(points), noise / amplitude.square(), there, cross)
    prior = own.square() * model.tiles.variance()
    left = (prior - white[..., 0].square().sum(1)).clamp(min=0)
    weights = torch.linalg.solve_triangular(factor.mT, white, upper=True)[..., 0] / amplitude
    on_rows = weights[:, :width].contiguous()
    heard = embedding_bag(back, told, mode="sum", per_sample_weights=on_rows)
    # Rows come first in a block, so their factor is its upper left corner.
    of_rows = WhiteRows(factor[:, :width, :width], white[:, :width], correlation[:, :width])
    return (weights[:, width:], left.sqrt(), heard), of_rows


def _order(place: Floats, rng: np.random.Generator) -> Indices:
    """Return a random order of tiles (n, 2), in which the times of one place follow each other.

    Then a tile is conditioned on the same place at another time, with which it correlates most.
    """
    rank = rng.permutation(len(place)).argsort()
    _, number = np.unique(place, axis=0, return_inverse=True)
    first = np.full(len(place), len(place))
    np.minimum.at(first, number, rank)
    return np.lexsort((rank, first[number]))


def _check(points: Tensor) -> None:
    distinct = len(torch.unique(points, dim=0))
    if distinct < len(points):
        raise DataError(
            f"expected each tile once at each time, found {len(points) - distinct} repeated; drop "
            "repeats."
        )

"""The tile process at many tiles given the rows, as a sequence of conditional distributions.

This is a "response first" Vecchia approximation (Katzfuss, Guinness, Gong and Zilber 2020, section
4). The effect u_t of a tile is conditioned on the training rows that `FieldNetwork.predict` uses
for this tile, and on the effects of near tiles that come earlier in a random order. A tile at two
times counts as two tiles. With w the weights of the field and b the mean of the rows at w = 0,

u = A (y - b - Phi_rows w) + B u + s eps,    eps ~ N(0, I).

A and B are sparse, and B is strictly lower triangular in the random order. If every tile were
conditioned on all rows and all earlier tiles, the distribution of u would be exact.
"""

from collections.abc import Iterator
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
from geogp.models.field.field_rows import NearRows
from geogp.models.field.near_rows import Conditional, WhiteRows, given_rows, near_rows
from geogp.models.field.vecchia import GROWTH, NO_ROW, Sites, earlier_places, whiten
from geogp.models.joint.joint_level import AT_ONCE, EARLIER_TILES
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Sparse = Any
"""Type of a sparse array of SciPy; SciPy itself provides none."""

TILES_AT_ONCE = 256
"""Number of tiles whose blocks are in memory at once."""


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
    `low`: H L, (n, r), by tile number. With f = Phi w + u the level without its mean, H w is the
        mean of f given w and rows of value 0: H = Phi - (I - B)^(-1) A Phi_rows.
    `told`: the mean of u for the residuals of the rows, by tile number, (n, k).
    `alone`: the variance of the level (field plus tile process) of each tile given only the rows,
        as in `FieldNetwork.predict`, by tile number, (n,).
    `single`: the predictions of single tiles with the model's own posterior, if they are needed.
    """

    order: Indices
    ends: Indices
    B: Sparse
    s: Floats
    low: Floats
    told: Floats
    alone: Floats
    single: Conditional | None = None

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
    L: Tensor,
    residuals: Tensor,
    *,
    earlier: int = EARLIER_TILES,
    seed: int = 0,
    predicts: bool = False,
) -> TileSequence:
    """Compute the sequence for tiles at one or more times, in chunks, in float64.

    `x` (n, d) are inputs from `FieldNetwork.scaled`. L (r, r) is a factor of the weights' posterior
    covariance. `residuals` (rows, k) are those of the stored rows, for `told`. `earlier` is the
    largest number of earlier tiles that condition a tile. `seed` fixes the order of the tiles.
    `predicts`: whether the result has `single`.

    Raises DataError if two tiles are at one place and time. Raises NumericalError if a block does
    not factorise.
    """
    points = model.points(x)
    _check(points)
    at_points = points.cpu().numpy()
    place = at_points[:, :2]
    near_together = Sites.of(place).order
    random = _order(place, np.random.default_rng([seed, 2]))
    before = earlier_places(place, random, earlier)
    order, ends = _by_group(before, random, near_together)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    known = _Known.of(model, x, points, before)
    n, k = len(place), residuals.shape[1]
    s, alone = np.zeros(n), np.zeros(n)
    heard = np.zeros((n, k + L.shape[1]))
    weights = np.zeros(before.shape)
    single = []
    # Near tiles are in the same chunk, because they share conditioning rows.
    for tiles in torch.as_tensor(near_together).to(model.device).split(TILES_AT_ONCE):
        number = tiles.cpu().numpy()
        with torch.no_grad():
            near = near_rows(model, at_points[number])
            parts, white = _conditionals(model, known, tiles, near, L=L, residuals=residuals)
            if predicts:
                asked = x[tiles], model.endless(len(tiles)), near
                single.append(given_rows(model, *asked, model.weights, whitened=white))
        found = (part.cpu().numpy() for part in parts)
        at = position[number]
        weights[number], s[at], alone[number], heard[at] = found
    to, column = np.nonzero(before != NO_ROW)
    earlier_tiles = position[before[to, column]]
    B = sparse.csr_array((weights[to, column], (position[to], earlier_tiles)), shape=(n, n))
    del before, weights, known
    back = torch.as_tensor(np.argsort(near_together)).to(model.device)
    predicted = [torch.cat(part)[back] for part in zip(*single, strict=True)]
    sequence = TileSequence(
        order,
        ends,
        B,
        s,
        low=heard[:, k:],
        told=heard[:, :k],
        alone=alone,
        single=Conditional(*predicted) if predicts else None,
    )
    for start in range(0, heard.shape[1], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        heard[:, part] = sequence.forward(heard[:, part])
    sequence.low[:] *= -1.0
    start = 0
    for chunk in x.split(CHUNK):
        phi = model.row_terms(chunk, model.endless(len(chunk))).phi.double()
        sequence.low[start : start + len(chunk)] += (phi @ L).detach().cpu().numpy()
        start += len(chunk)
    return sequence


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


class _Known(NamedTuple):
    """Points, amplitudes and noise of rows and tiles; blocks are built from these."""

    points: Tensor
    amplitude: Tensor
    noise: Tensor
    rows: int
    x: Tensor
    earlier: Tensor

    @classmethod
    def of(cls, model: "FieldNetwork", x: Tensor, points: Tensor, earlier: Indices) -> "_Known":
        """Compute amplitude and noise of all stored rows and of the tiles."""
        laws = [
            (found.amplitude, found.noise)
            for found in _terms(model, model.rows.x, model.rows.counts)
        ]
        laws += [
            (found.amplitude, torch.zeros_like(found.noise))
            for found in _terms(model, x, model.endless(len(x)))
        ]
        amplitude, noise = (torch.cat(parts) for parts in zip(*laws, strict=True))
        both = torch.cat([model.points(model.rows.x), points])
        neighbours = torch.as_tensor(earlier).to(model.device)
        return cls(both, amplitude, noise, len(model.rows.y), x, neighbours)


def _terms(model: "FieldNetwork", x: Tensor, counts: Tensor) -> Iterator[Any]:
    for part, behind in zip(x.split(CHUNK), counts.split(CHUNK), strict=True):
        with torch.no_grad():
            yield model.row_terms(part, behind)


def _conditionals(
    model: "FieldNetwork",
    known: _Known,
    tiles: Tensor,
    near: NearRows,
    *,
    L: Tensor,
    residuals: Tensor,
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], WhiteRows]:
    """Return arrays of b tiles, and the covariances of their near rows.

    The arrays are weights of earlier tiles, s, `alone`, and A [residuals, Phi_rows L].
    """
    own = tiles + known.rows
    before, width = known.earlier[tiles], near.at.shape[1]
    index = torch.cat([near.numbers, torch.where(before == NO_ROW, NO_ROW, before + known.rows)], 1)
    there = index != NO_ROW
    index = index.clamp(min=0)
    points, amplitude = known.points[index], known.amplitude[index]
    here = known.amplitude[own]
    # Dividing the covariances by the amplitude at the rows saves the product D K D.
    correlation = model.tiles(points, known.points[own][:, None])
    cross = correlation * here[:, None, None]
    noise = known.noise[index] / amplitude.square()
    factor, white = whiten(model.tiles(points, points), noise, there, cross)
    prior = here.square() * model.tiles.variance()
    left = (prior - white[..., 0].square().sum(1)).clamp(min=0)
    weights = torch.linalg.solve_triangular(factor.mT, white, upper=True)[..., 0] / amplitude
    # Rows come first in a block, so their factor is its upper left corner.
    first, corner = white[:, :width], factor[:, :width, :width]
    alone = torch.linalg.solve_triangular(corner.mT, first, upper=True)[..., 0]
    alone = alone / amplitude[:, :width]
    tile = (prior - first[..., 0].square().sum(1)).clamp(min=0)
    rows, back, x = near.distinct, near.at, known.x[tiles]
    inputs = torch.cat([model.rows.x[rows], x])
    spread = model.row_terms(inputs, model.endless(len(inputs))).phi.double() @ L
    told = torch.cat([residuals[rows], spread[: len(rows)]], 1)
    shared = embedding_bag(back, spread[: len(rows)], mode="sum", per_sample_weights=alone)
    field = (spread[len(rows) :] - shared).square().sum(1) + model.beyond(x)
    heard = embedding_bag(back, told, mode="sum", per_sample_weights=weights[:, :width])
    found = weights[:, width:], left.sqrt(), field + tile, heard
    return found, WhiteRows(corner, first, correlation[:, :width])


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

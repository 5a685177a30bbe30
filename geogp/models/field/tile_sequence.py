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
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.nn.functional import embedding_bag

from geogp.errors import DataError
from geogp.models.field.vecchia import NO_ROW, Sites, earlier_places, whiten
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Sparse = Any
"""Type of a sparse array of SciPy; SciPy itself provides none."""

EARLIER_TILES = 24
"""Largest number of earlier tiles that condition a tile."""

TILES_AT_ONCE = 512
"""Number of tiles whose blocks are in memory at once."""


@dataclass(frozen=True)
class TileSequence:
    """The tile process u at n tiles given w and the rows, for a standardised target.

    A tile needs about a kilobyte of memory, for the 64 rows and 24 tiles that condition it. No
    array is a dense n by n matrix.

    `order`: numbers of the tiles, in the order of the sequence, (n,).
    `A`, `B`: sparse matrices (n, rows) and (n, n). The rows of A and B, and the columns of B, are
        in the order of the sequence.
    `s`: conditional standard deviations, in the order of the sequence, (n,).
    `alone`: the variance of the level (field plus tile process) of each tile given only the rows,
        as in `FieldNetwork.predict`, in the order of the tile numbers, (n,).
    """

    order: Indices
    A: Sparse
    B: Sparse
    s: Floats
    alone: Floats

    @cached_property
    def _triangle(self) -> Any:
        """The LU factors of the lower triangular matrix I - B, which are I - B and I."""
        whole = sparse.csc_array(sparse.eye_array(len(self.s)) - self.B)
        return splu(whole, permc_spec="NATURAL", diag_pivot_thresh=0.0)

    def back(self, weights: Floats) -> Floats:
        """Return (I - B)^(-T) a in the sequence's order, for weights a (n, k) by tile number."""
        found: Floats = self._triangle.solve(weights[self.order], "T")
        return found

    def forward(self, parts: Floats) -> Floats:
        """Return u = (I - B)^(-1) v by tile number, for v (n, k) in the order of the sequence."""
        found = np.empty_like(parts)
        found[self.order] = self._triangle.solve(parts)
        return found


def tile_sequence(
    model: "FieldNetwork", x: Tensor, L: Tensor, *, earlier: int = EARLIER_TILES, seed: int = 0
) -> TileSequence:
    """Compute the sequence for tiles at one or more times, in chunks, in float64.

    `x` (n, d) are inputs from `FieldNetwork.scaled`. L (r, r) is a factor of the weights' posterior
    covariance, for `alone`. `earlier` is the largest number of earlier tiles that condition a tile.
    `seed` fixes the order of the tiles. Raises DataError if two tiles are at one place and time.
    Raises NumericalError if a block does not factorise.
    """
    points = model.points(x)
    _check(points)
    place = points[:, :2].cpu().numpy()
    order = _order(place, np.random.default_rng([seed, 2]))
    known = _Known.of(model, x, points, earlier_places(place, order, earlier))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    s, alone = np.zeros(len(place)), np.zeros(len(place))
    ends: list[list[Indices]] = [[], []]
    starts: list[list[Indices]] = [[], []]
    values: list[list[Floats]] = [[], []]
    # Near tiles are in the same chunk, because they share conditioning rows.
    near_together = torch.from_numpy(Sites.of(place).order).to(model.device)
    for tiles in near_together.split(TILES_AT_ONCE):
        with torch.no_grad():
            found = _conditionals(model, known, tiles, L)
        number = tiles.cpu().numpy()
        s[rank[number]], alone[number] = (part.cpu().numpy() for part in found[2:4])
        for part, (index, weight) in enumerate(found[:2]):
            on = (index != NO_ROW).cpu().numpy()
            at = index.cpu().numpy()[on]
            ends[part].append(rank[np.repeat(number, on.sum(1))])
            starts[part].append(rank[at] if part else at)
            values[part].append(weight.cpu().numpy()[on])
    n = len(place)
    A, B = (
        sparse.csr_array(
            (np.concatenate(v), (np.concatenate(e), np.concatenate(f))), shape=(n, width)
        )
        for v, e, f, width in zip(values, ends, starts, (len(model.rows.y), n), strict=True)
    )
    return TileSequence(order, A, B, s, alone)


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
        neighbours = torch.from_numpy(earlier).to(model.device)
        return cls(both, amplitude, noise, len(model.rows.y), x, neighbours)


def _terms(model: "FieldNetwork", x: Tensor, counts: Tensor) -> Iterator[Any]:
    for part, behind in zip(x.split(CHUNK), counts.split(CHUNK), strict=True):
        with torch.no_grad():
            yield model.row_terms(part, behind)


def _conditionals(
    model: "FieldNetwork", known: _Known, tiles: Tensor, L: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return (numbers, weights) of rows, (numbers, weights) of earlier tiles, s and `alone`."""
    own = tiles + known.rows
    near, before = model.near_rows(known.points[own]), known.earlier[tiles]
    width = near.shape[1]
    index = torch.cat([near, torch.where(before == NO_ROW, NO_ROW, before + known.rows)], 1)
    there = index != NO_ROW
    index = index.clamp(min=0)
    points, amplitude = known.points[index], known.amplitude[index]
    here = known.amplitude[own]
    # Dividing the covariances by the amplitude at the rows saves the product D K D.
    cross = model.tiles(points, known.points[own][:, None]) * here[:, None, None]
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
    field = _field_variance(model, known.x[tiles], near, alone, L)
    return (
        (near, weights[:, :width]),
        (before, weights[:, width:]),
        left.sqrt(),
        field + tile,
    )


def _field_variance(
    model: "FieldNetwork", x: Tensor, near: Tensor, weights: Tensor, L: Tensor
) -> Tensor:
    """Return ||L'(phi_t - Phi_near' weights)||² and the drift's variance, (b,)."""
    rows, back = torch.unique(near.clamp(min=0), return_inverse=True)
    inputs = torch.cat([model.rows.x[rows], x])
    spread = model.row_terms(inputs, model.endless(len(inputs))).phi.double() @ L
    told = spread[: len(rows)]
    shared = embedding_bag(back, told, mode="sum", per_sample_weights=weights)
    return (spread[len(rows) :] - shared).square().sum(1) + model.beyond(x)


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

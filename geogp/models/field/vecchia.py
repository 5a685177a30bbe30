"""Blocks of a Vecchia approximation, and the rows that condition each place.

The sum over places of log p(y_t | y_N(t)) approximates log p(y). Here y_t contains all rows at one
place, and N(t) contains rows of near places that come earlier in a random order (Vecchia 1988;
Katzfuss and Guinness 2021). Every choice of N gives a proper distribution.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import NumericalError
from geogp.models.field.tile_process import SAME_TILE_KM
from geogp.models.numerics.trees import tree_of

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

TRAINING_ROWS = 40
"""Largest number of rows that condition a place in training."""

PREDICTION_ROWS = 64
"""Largest number of rows that condition a prediction."""

TRAINING_PLACES = (6, 16)
"""Smallest and largest number of places to take `TRAINING_ROWS` from."""

PREDICTION_PLACES = (16, 64)
"""Smallest and largest number of places to take `PREDICTION_ROWS` from."""

DISTANCE_PLACES = 16
"""The mean distance to this number of nearest places measures the density of places."""

PLACE_ROWS = 64
"""Largest number of rows in a block; a place with more rows is divided into several blocks."""

SERIES_SHARE = 0.5
"""If places with more than `PLACE_ROWS` rows, at several times, have more than this share of all
rows, blocks are series of times; see `SERIES_ROWS`.
"""

SERIES_ROWS = 8
"""Largest number of rows in a block that is a series; these rows follow each other in time."""

SEARCHED_AT_ONCE = 2**15
"""Number of places whose near places are searched at once."""

GROWTH = 1.25
"""Ratio of the numbers of places in successive searches for earlier places."""

NO_ROW = -1
"""The padding of an array of rows or places, which is no index."""


@dataclass(frozen=True)
class Sites:
    """The distinct places of rows, ordered so that near places follow each other.

    If a place has more than `PLACE_ROWS` rows, it counts as several places with equal coordinates.

    `order`: the numbers of the rows, grouped by place, (n,).
    `first`, `count`: for each place, the position in `order` of the first row, and the number of
        rows, (s,).
    `centre`: coordinates of each place, (s, 2). If most rows are at crowded places and at different
        times (`SERIES_SHARE`), blocks also have a third coordinate, the mean time multiplied by
        `time_unit`, (s, 3). The median time between successive rows of a crowded place is then as
        long as the median distance to the nearest other place.
    """

    order: Indices
    first: Indices
    count: Indices
    centre: Floats
    time_unit: float = 0.0

    @classmethod
    def of(cls, points: Floats) -> "Sites":
        """Return the places of rows, from two coordinates and optionally a time, (n, 2 or 3)."""
        centre, inverse = np.unique(points[:, :2], axis=0, return_inverse=True)
        rank = np.argsort(np.argsort(_morton(centre), kind="stable"), kind="stable")
        inverse = rank[inverse.reshape(-1)]
        count = np.bincount(inverse, minlength=len(centre))
        time = points[:, 2] if points.shape[1] > 2 else np.zeros(len(points))
        crowded = count[inverse] > PLACE_ROWS
        step = time_step(inverse[crowded], time[crowded])
        series = step is not None and crowded.mean() > SERIES_SHARE
        order = np.lexsort((time, inverse)) if series else np.argsort(inverse, kind="stable")
        sorted_centre = np.empty_like(centre)
        sorted_centre[rank] = centre
        most = SERIES_ROWS if series else PLACE_ROWS
        within = np.arange(len(points)) - np.repeat(np.cumsum(count) - count, count)
        first = np.flatnonzero(within % most == 0)
        pieces = -(-count // most)
        counts = np.diff(np.append(first, len(points)))
        centre = np.repeat(sorted_centre, pieces, axis=0)
        unit = 0.0
        if series and step is not None:
            unit = spacing(sorted_centre) / step
            mean = np.add.reduceat(time[order], first) / counts
            centre = np.column_stack([centre, unit * mean])
        return cls(order, first, counts, centre, unit)

    def located(self, points: Floats) -> Floats:
        """Return points (m, 3) as coordinates of `centre`, (m, 2 or 3)."""
        if not self.time_unit:
            return points[:, :2]
        return np.asarray(points[:, :3] * np.array([1.0, 1.0, self.time_unit]), np.float64)

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, sites: Indices, most: int) -> Indices:
        """Return the rows at places `sites` (m, k), as positions in `order`, (m, most).

        The result is in the order of `sites`, and padded with `NO_ROW`. An entry `NO_ROW` of
        `sites` adds no rows.
        """
        count = np.where(sites == NO_ROW, 0, self.count[sites])
        total, flat = count.sum(1), count.reshape(-1)
        start = self.first[sites].reshape(-1) - np.cumsum(flat) + flat
        width = max(most, int(total.max(initial=0)))
        rows = np.full((len(sites), width), NO_ROW)
        rows[np.arange(width) < total[:, None]] = np.repeat(start, flat) + np.arange(flat.sum())
        return rows[:, :most]


def near_places(sites: Sites) -> tuple[int, int]:
    """Return how many near places condition a place in training, and how many a prediction.

    Unless a bound applies, they have about `TRAINING_ROWS` or `PREDICTION_ROWS` rows in total. If
    blocks are series of times, a prediction searches the largest number of places, because the rows
    of highest correlation may be at any of several times.
    """
    rows = float(sites.count.mean())

    def places(most: int, bounds: tuple[int, int]) -> int:
        return min(max(math.ceil(most / rows), bounds[0]), bounds[1])

    search = PREDICTION_PLACES[1] if sites.time_unit else places(PREDICTION_ROWS, PREDICTION_PLACES)
    return places(TRAINING_ROWS, TRAINING_PLACES), search


def earlier_rows(sites: Sites, places: int, rng: np.random.Generator) -> Indices:
    """Return the rows that condition each place.

    These are rows of the at most `places` nearest places that come earlier in a random order. The
    first places of the order so have far places, which tell about long ranges. The result contains
    positions in `sites.order`, (s, TRAINING_ROWS), padded with `NO_ROW`.
    """
    chosen = earlier_places(sites.centre, rng.permutation(len(sites)), places)
    return sites.rows(chosen, TRAINING_ROWS)


def earlier_places(centre: Floats, order: Indices, most: int) -> Indices:
    """Return the nearest places earlier in an order, for each place, (s, most).

    The result is padded with `NO_ROW`. The rank of a place is its position in the order. A search
    among all ranks below `end` serves the ranks from about `end` / `GROWTH` on, so most of the
    places that it finds are earlier. If too few are earlier, it searches for twice as many.
    """
    s = len(order)
    earlier = np.full((s, most), NO_ROW)
    start = 1
    while most and start < s:
        end = min(max(start + 1, int(GROWTH * start)), s)
        tree = tree_of(centre[order[:end]], balanced=False)
        for first in range(start, end, SEARCHED_AT_ONCE):
            rank = np.arange(first, min(first + SEARCHED_AT_ONCE, end))
            searched = math.ceil(1.1 * GROWTH * most) + 2
            while len(rank):
                near = tree.query(centre[order[rank]], k=min(end, searched))[1]
                near = near.reshape(len(rank), -1)
                before = near < rank[:, None]
                enough = before.sum(1) >= np.minimum(most, rank)
                # Earlier places come first, ordered by distance.
                kept = np.argsort(~before[enough], 1, kind="stable")[:, :most]
                chosen = np.take_along_axis(np.where(before, near, NO_ROW)[enough], kept, 1)
                named = np.where(chosen == NO_ROW, NO_ROW, order[chosen])
                earlier[order[rank[enough]], : named.shape[1]] = named
                rank, searched = rank[~enough], 2 * searched
        start = end
    return earlier


@dataclass(frozen=True)
class NearSites:
    """All `sites`, the numbers of the sites to search, and a tree of the sites to search."""

    sites: Sites
    numbers: Indices
    tree: KDTree

    @classmethod
    def of(cls, sites: Sites, searched: NDArray[np.bool_] | None = None) -> "NearSites":
        """Return the places to search, marked by `searched` (s,); by default all places."""
        chosen = np.ones(len(sites), np.bool_) if searched is None else searched
        numbers = np.flatnonzero(chosen)
        return cls(sites, numbers, tree_of(sites.centre[numbers]))

    def rows(self, points: Floats, places: int) -> Indices:
        """Return, for each point of `points` (m, 3), all rows of its `places` nearest places.

        The result contains positions in `sites.order`, (m, most), padded with `NO_ROW`.
        """
        at = self.sites.located(points)
        _, near = self.tree.query(at, k=min(len(self.numbers), places))
        sites = self.numbers[near.reshape(len(at), -1)]
        return self.sites.rows(sites, int(self.sites.count[sites].sum(1).max()))

    @cached_property
    def places(self) -> KDTree:
        """A tree of the distinct places to search."""
        return tree_of(np.unique(self.tree.data[:, :2], axis=0))


def distance_to_others(places: KDTree, at: Floats) -> Floats:
    """Return the mean distance from each point (m, 2) to the nearest places, (m,).

    The mean is over the `DISTANCE_PLACES` nearest places other than that of the point, or over all
    places if there are fewer. If there are fewer than two places, the distance is 1.
    """
    if places.n < 2:
        return np.ones(len(at))
    distance = np.asarray(places.query(at, k=min(places.n, DISTANCE_PLACES + 1))[0], np.float64)
    itself = (distance[:, :1] < SAME_TILE_KM).astype(np.int64)
    slot = np.arange(distance.shape[1])
    counted = (slot >= itself) & (slot < itself + DISTANCE_PLACES)
    return np.asarray(np.where(counted, distance, 0.0).sum(1) / counted.sum(1), np.float64)


def whiten(
    covariance: Tensor, noise: Tensor, known: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Return L and L^(-1) values for padded covariances, L L' = covariance + diag(noise).

    `covariance` (b, m, m), `noise` (b, m) and `values` (b, m, c) are float64. `known` (b, m) marks
    the rows that are not padding; padding may have any values. The results have shapes (b, m, m)
    and (b, m, c). In rows of padding, L equals the identity matrix, and the other result is 0.
    Raises the error of `factor_of`.
    """
    L = factor_of(covariance, torch.where(known, noise, 1.0), known)
    V = torch.where(known[..., None], values, 0.0)
    return L, torch.linalg.solve_triangular(L, V, upper=False)


def factor_of(covariance: Tensor, noise: Tensor, known: Tensor) -> Tensor:
    """Return the factor L of `whiten`, (b, m, m); only the lower triangle of K counts.

    `noise` must also be positive in the padding, where its root is the diagonal of L. If a
    covariance does not factorise, raises NumericalError on the CPU, and returns NaN for this
    block on other devices.
    """
    if covariance.device.type == "cpu" and bool(known.all()):
        K = covariance.clone()
    else:
        K = torch.where(known[:, :, None] & known[:, None, :], covariance, 0.0)
    K.diagonal(dim1=1, dim2=2).add_(noise)
    L: Tensor
    L, failed = torch.linalg.cholesky_ex(K)
    if K.device.type != "cpu":
        # A host that reads the codes waits for the device. NaN reaches the loss or the prediction,
        # which are checked.
        L = torch.where(failed[:, None, None] == 0, L, torch.nan)
    elif bool(failed.any()):
        raise NumericalError(
            "the covariance of a block of tiles does not factorise; the fit has diverged. "
            "Lower the learning rate."
        )
    return L


def time_step(place: Indices, time: Floats) -> float | None:
    """Return the median time between successive times of a place; None without two such times.

    `place` (n,) are the numbers of the places of rows, and `time` (n,) their times.
    """
    order = np.lexsort((time, place))
    step, same = np.diff(time[order]), np.diff(place[order]) == 0
    positive = step[same & (step > 0)]
    return float(np.median(positive)) if len(positive) else None


def spacing(places: Floats, counted: Indices | None = None) -> float:
    """Return the median distance from places (s, 2) to the nearest other place; 1 if alone.

    `counted` are the numbers of the places whose distances count, by default all.
    """
    if len(places) < 2:
        return 1.0
    at = places if counted is None else places[counted]
    return float(np.median(np.asarray(tree_of(places).query(at, k=2)[0])[:, 1]))


def _morton(centre: Floats) -> Indices:
    """Return Morton codes (s,), which interleave the bits of the two coordinates (s, 2)."""
    low, high = centre.min(0), centre.max(0)
    span = np.maximum(high - low, np.finfo(np.float64).tiny)
    cells = ((centre - low) / span * (2**16 - 1)).astype(np.int64)
    code = np.zeros(len(centre), np.int64)
    for bit in range(16):
        for axis in range(2):
            code |= ((cells[:, axis] >> bit) & 1) << (2 * bit + axis)
    return code

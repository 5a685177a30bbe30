"""Summaries of the measurements near a place: on its own tile, and on the nearest other tiles.

All values come from source rows. A training row is a source row itself. Its summaries leave out the
row, or the whole group of rows that the split leaves out together, so that they are as far from
their own value as the summaries of a new row.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from geogp.models.field.tile_process import SAME_TILE_KM
from geogp.models.numerics.threads import chunks, in_threads
from geogp.models.numerics.trees import tree_of

NEAREST = (4, 16, 64)
"""Numbers of nearest other tiles."""

DECAYS = (np.inf, 4.0, 1.0)
"""Weights of a mean fall by exp(-|difference in quarters| / decay)."""

FOLDS = 20
"""Largest number of folds; the groups of a fold are left out together.

A split by blocks leaves out three tenths of the blocks. With small folds, a training row has nearly
as many training blocks next to it as a test row.
"""

MOST_TIMES = 32
"""With more distinct times, sums are over this number of equal intervals of time."""

SUMMARIES = 5 + 6 + 6 * len(NEAREST)
"""Number of summaries of a row."""

OWN = 0
"""Index of a summary that is missing if the own tile has no row."""

BEFORE = 5
"""Index of a summary that is missing if the own tile has no earlier row."""

AFTER = 8
"""Index of a summary that is missing if the own tile has no later row."""

ROWS_AT_ONCE = 2**13
"""Number of rows whose sums a thread has in memory at once."""

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Measurements:
    """Places in km, (n, 2), times in quarters, values and weights, each (n,)."""

    place: Floats
    time: Floats
    y: Floats
    weight: Floats

    def at(self, chosen: Indices | slice) -> "Measurements":
        """Return some of the rows."""
        return Measurements(
            self.place[chosen], self.time[chosen], self.y[chosen], self.weight[chosen]
        )

    def __len__(self) -> int:
        return len(self.y)


Summaries = Callable[[Measurements, Measurements, Indices | None], Floats]
"""Returns summaries (n, c) of rows, from source rows, the rows, and their numbers among the source
rows, which are left out; None if the rows are not source rows."""


def left_out_summaries(
    summaries: Summaries, rows: Measurements, groups: Indices, alone: NDArray[np.bool_], seed: int
) -> Floats:
    """Return summaries of source rows, each without its own group, or without its own row alone.

    `alone` (n,) marks the rows of the second kind.
    """
    numbers = np.flatnonzero(alone)
    of_rows = [(numbers, summaries(rows, rows.at(numbers), numbers))] if len(numbers) else []
    for others, fold in folds(groups, seed):
        with_group = fold[~alone[fold]]
        if len(with_group):
            of_rows.append((with_group, summaries(rows.at(others), rows.at(with_group), None)))
    order = np.argsort(np.concatenate([numbers for numbers, _ in of_rows]))
    return np.concatenate([values for _, values in of_rows])[order]


def folds(groups: Indices, seed: int, most: int = FOLDS) -> Iterator[tuple[Indices, Indices]]:
    """Return the other rows and the rows of each fold of the groups."""
    names, number = np.unique(groups, return_inverse=True)
    count = min(most, len(names))
    fold = np.random.default_rng(seed).permutation(len(names))[number] % count
    for k in range(count):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def near_summaries(source: Measurements, rows: Measurements, numbers: Indices | None) -> Floats:
    """Return summaries of rows; see `TileSums.summaries`."""
    sums = TileSums.of(source)

    def of_chunk(at: slice) -> Floats:
        return sums.summaries(rows.at(at), None if numbers is None else numbers[at])

    of_chunks = in_threads(of_chunk, chunks(len(rows), ROWS_AT_ONCE), torch.device("cpu"))
    return np.concatenate(list(of_chunks))


@dataclass(frozen=True)
class _Near:
    """Numbers of the own tile of rows (n,) and, for u places, of other tiles (u, 64).

    `number` (n,) is the place of a row. An absent tile has the number of the last, empty tile and
    an infinite distance.
    """

    own_tile: Indices
    others: Indices
    distance: Floats
    number: Indices


@dataclass(frozen=True)
class TileSums:
    """Number of rows and sums of w, wy and wy² by tile and time, (tiles + 1, 4, times).

    The last tile is empty. `places` (tiles, 2) are in `tree`; `times` are distinct times, or the
    centres of `MOST_TIMES` intervals.
    """

    tree: KDTree
    times: Floats
    sums: Floats

    @classmethod
    def of(cls, rows: Measurements) -> "TileSums":
        """Return the sums of source rows."""
        places, place = np.unique(rows.place, axis=0, return_inverse=True)
        times = np.unique(rows.time)
        if len(times) > MOST_TIMES:
            step = (times[-1] - times[0]) / MOST_TIMES
            times = times[0] + step * (np.arange(MOST_TIMES) + 0.5)
        shape = len(places) + 1, len(times)
        cell = place.reshape(-1) * shape[1] + _nearest_time(times, rows.time)
        terms = _terms(rows)
        sums = [np.bincount(cell, term, math.prod(shape)).reshape(shape) for term in terms]
        return cls(tree_of(places), times, np.stack(sums, 1))

    def summaries(self, rows: Measurements, numbers: Indices | None = None) -> Floats:
        """Return summaries (n, 29) of rows; NaN without a source row for the summary.

        For the own tile, then for each number of nearest other tiles: the weighted mean for each
        decay, the spread (weighted standard deviation) and the logarithm of the sum of weights; for
        other tiles also their mean distance in km. After those of the own tile come the value of
        the own tile before and after the row in time, each with its difference in quarters and its
        weight. `numbers` (n,) are the numbers of the rows among the source rows, whose values are
        left out, or None. The sums of all rows are in memory at once; see `ROWS_AT_ONCE`.
        """
        near = self._nearest(rows.place)
        times, time_number = np.unique(rows.time, return_inverse=True)
        lag = np.abs(times[:, None] - self.times)
        decays = [np.exp(-lag / decay)[time_number] for decay in DECAYS]
        sums = np.moveaxis(self.sums[near.own_tile], 1, 0)
        if numbers is not None:
            at = np.arange(len(rows)), _nearest_time(self.times, rows.time)
            terms = _terms(rows)
            for k in range(len(sums)):
                sums[k][at] -= terms[k]
            sums[:, sums[0] < 0.5] = 0.0
        summaries = [_summary(sums, decays), *_before_and_after(sums, rows.time, self.times)]
        total = np.zeros(1)
        for before, k in pairwise((0, *NEAREST)):
            total = total + self._summed(near.others[:, before:k])
            sums = np.moveaxis(total[near.number], 1, 0)
            distance = near.distance[:, :k]
            far = np.where(np.isfinite(distance), distance, 0.0).sum(1)
            some = np.isfinite(distance).sum(1)
            far = np.where(some > 0, far / np.maximum(some, 1), np.nan)[near.number]
            summaries += [_summary(sums, decays), far]
        return np.column_stack(summaries)

    def _nearest(self, place: Floats) -> _Near:
        places, number = np.unique(place, axis=0, return_inverse=True)
        distance, tile = map(np.asarray, self.tree.query(places, NEAREST[-1] + 1))
        measured = distance[:, 0] < SAME_TILE_KM
        own_tile = np.where(measured, tile[:, 0], self.tree.n)
        others = np.where(measured[:, None], tile[:, 1:], tile[:, :-1])
        distance = np.where(measured[:, None], distance[:, 1:], distance[:, :-1])
        number = number.reshape(-1)
        return _Near(own_tile[number], others, distance, number)

    def _summed(self, tiles: Indices) -> Floats:
        """Return the sums over the tiles (u, k) of each place, (u, 4, times)."""
        starts = np.arange(0, tiles.size + 1, tiles.shape[1])
        shape = len(tiles), len(self.sums)
        chosen = sparse.csr_array((np.ones(tiles.size), tiles.ravel(), starts), shape=shape)
        sums = np.asarray(chosen @ self.sums.reshape(len(self.sums), -1), np.float64)
        return sums.reshape(-1, *self.sums.shape[1:])


def _nearest_time(times: Floats, time: Floats) -> Indices:
    """Return the index of the nearest of the sorted `times` for each `time`, (n,)."""
    return np.searchsorted((times[1:] + times[:-1]) / 2, time)


def _terms(rows: Measurements) -> tuple[Floats, ...]:
    w = rows.weight
    return np.ones(len(rows)), w, w * rows.y, w * rows.y**2


def _summary(sums: Floats, decays: list[Floats]) -> Floats:
    """Return means by decay, spread and log weight, (n, 5), from sums (4, n, times)."""
    _, w, wy, wyy = sums
    means = [_ratio((wy * decay).sum(1), (w * decay).sum(1)) for decay in decays]
    total = w.sum(1)
    square = _ratio(wyy.sum(1), total) - np.square(means[0])
    spread = np.where(sums[0].sum(1) > 1.5, np.sqrt(np.clip(square, 0, None)), np.nan)
    weight = np.log(np.where(total > 0, total, np.nan))
    return np.column_stack([*means, spread, weight])


def _before_and_after(sums: Floats, time: Floats, times: Floats) -> list[Floats]:
    """Return value, lag and weight of the nearest row before and after, each (n, 3)."""
    count, w, wy, _ = sums
    row, summaries = np.arange(len(time)), []
    for earlier in (True, False):
        beside = (times < time[:, None]) if earlier else (times > time[:, None])
        measured = (count > 0.5) & beside
        at = len(times) - 1 - measured[:, ::-1].argmax(1) if earlier else measured.argmax(1)
        some = measured.any(1)
        columns = _ratio(wy[row, at], w[row, at]), np.abs(time - times[at]), w[row, at]
        summaries.append(np.where(some[:, None], np.column_stack(columns), np.nan))
    return summaries


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)

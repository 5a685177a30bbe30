"""Features of a row from measurements near it: its own tile, and the 4, 16 and 64 nearest others.

All values come from source rows. A training row is a source row itself; its features leave out the
row, or the whole group of rows that the split leaves out together, so that they are as far from
their own value as the features of a test row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from trial import Floats

NEAREST = (4, 16, 64)
"""Numbers of nearest other tiles."""

DECAYS = (np.inf, 4.0, 1.0)
"""Weights of a mean fall by exp(-|difference in quarters| / decay)."""

FOLDS = 20
"""Most parts of the groups; a part is left out together.

A split by blocks leaves out three tenths of the blocks. With small parts, a training row has nearly
as many training blocks next to it as a test row.
"""

CHUNK = 4096

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Places in km, (n, 2), times in quarters, values and weights, each (n,)."""

    place: Floats
    time: Floats
    y: Floats
    weight: Floats

    def at(self, chosen: Indices) -> "Rows":
        """Return some of the rows."""
        return Rows(self.place[chosen], self.time[chosen], self.y[chosen], self.weight[chosen])

    def __len__(self) -> int:
        return len(self.y)


Features = Callable[[Rows, Rows, Indices | None], Floats]
"""Returns features (n, c) from source rows, asked rows and the asked rows' numbers among the source
rows, which are left out; None if the asked rows are not source rows."""


def own_features(features: Features, rows: Rows, groups: Indices, seed: int) -> Floats:
    """Return features of source rows, each row's without its own row or its own group."""
    if is_single(groups):
        return features(rows, rows, np.arange(len(rows)))
    found = [
        (own, features(rows.at(others), rows.at(own), None)) for others, own in folds(groups, seed)
    ]
    order = np.argsort(np.concatenate([own for own, _ in found]))
    return np.concatenate([part for _, part in found])[order]


def is_single(groups: Indices) -> bool:
    """Return whether each row is a group of its own."""
    return len(np.unique(groups)) == len(groups)


def folds(groups: Indices, seed: int, most: int = FOLDS) -> Iterator[tuple[Indices, Indices]]:
    """Return the other rows and the rows of each part of the groups."""
    names, number = np.unique(groups, return_inverse=True)
    parts = min(most, len(names))
    part = np.random.default_rng(seed).permutation(len(names))[number] % parts
    for k in range(parts):
        yield np.flatnonzero(part != k), np.flatnonzero(part == k)


def neighbour_features(source: Rows, asked: Rows, own: Indices | None) -> Floats:
    """Return features (n, 30) of asked rows; NaN without a source row for the feature.

    For the own tile, then for each number of nearest other tiles: the weighted mean for each decay,
    the spread (weighted standard deviation) and the logarithm of the sum of weights; for other
    tiles also their mean distance in km. Last, the value of the own tile before and after the row
    in time, each with its difference in quarters and its weight.
    """
    panel = _Panel.of(source)
    near = panel.nearest(asked.place)
    times, time_number = np.unique(asked.time, return_inverse=True)
    lag = np.abs(times[:, None] - panel.times)
    decays = [np.exp(-lag / decay)[time_number] for decay in DECAYS]
    sums = panel.sums[:, near.own]
    if own is not None:
        sums = sums.copy()
        at = np.arange(len(asked)), np.searchsorted(panel.times, asked.time)
        terms = _terms(asked)
        for k in range(len(sums)):
            sums[k][at] -= terms[k]
        sums[:, sums[0] < 0.5] = 0.0
    found = [_summary(sums, decays), *_before_and_after(sums, asked.time, panel.times)]
    for k in NEAREST:
        sums = panel.summed(near.others[:, :k])[:, near.number]
        distance = near.distance[:, :k]
        far = np.where(np.isfinite(distance), distance, 0.0).sum(1)
        some = np.isfinite(distance).sum(1)
        far = np.where(some > 0, far / np.maximum(some, 1), np.nan)[near.number]
        found += [_summary(sums, decays), far]
    return np.column_stack(found)


@dataclass(frozen=True)
class _Near:
    """Numbers of the own tile of asked rows (n,) and, for u places, of other tiles (u, 64).

    `number` (n,) is the place of a row. An absent tile has the number of the last, empty tile and
    an infinite distance.
    """

    own: Indices
    others: Indices
    distance: Floats
    number: Indices


@dataclass(frozen=True)
class _Panel:
    """Number of rows and sums of w, wy and wy² by tile and time, (4, tiles + 1, times).

    The last tile is empty.
    """

    places: Floats
    times: Floats
    sums: Floats

    @classmethod
    def of(cls, rows: Rows) -> "_Panel":
        places, place = np.unique(rows.place, axis=0, return_inverse=True)
        times, time = np.unique(rows.time, return_inverse=True)
        shape = len(places) + 1, len(times)
        cell = place.reshape(-1) * shape[1] + time
        sums = [np.bincount(cell, term, shape[0] * shape[1]) for term in _terms(rows)]
        return cls(places, times, np.reshape(sums, (4, *shape)))

    def nearest(self, place: Floats) -> _Near:
        asked, number = np.unique(place, axis=0, return_inverse=True)
        distance, tile = cKDTree(self.places).query(asked, NEAREST[-1] + 1)
        known = distance[:, 0] == 0
        own = np.where(known, tile[:, 0], len(self.places))
        others = np.where(known[:, None], tile[:, 1:], tile[:, :-1])
        distance = np.where(known[:, None], distance[:, 1:], distance[:, :-1])
        number = number.reshape(-1)
        return _Near(own[number], others, distance, number)

    def summed(self, tiles: Indices) -> Floats:
        """Return the sums over the tiles (u, k) of each place, (4, u, times)."""
        found = np.empty((len(self.sums), len(tiles), len(self.times)))
        for start in range(0, len(tiles), CHUNK):
            chunk = slice(start, start + CHUNK)
            for k in range(len(found)):
                found[k, chunk] = self.sums[k][tiles[chunk]].sum(1)
        return found


def _terms(rows: Rows) -> tuple[Floats, ...]:
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
    row, found = np.arange(len(time)), []
    for earlier in (True, False):
        known = (count > 0.5) & ((times < time[:, None]) if earlier else (times > time[:, None]))
        at = len(times) - 1 - known[:, ::-1].argmax(1) if earlier else known.argmax(1)
        some = known.any(1)
        columns = _ratio(wy[row, at], w[row, at]), np.abs(time - times[at]), w[row, at]
        found.append(np.where(some[:, None], np.column_stack(columns), np.nan))
    return found


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)

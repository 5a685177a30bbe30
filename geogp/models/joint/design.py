"""Where to measure next: tiles whose measurement reduces the variance of the level most.

Let C be the covariance of the level at n tiles given the measurements so far (`JointLevel`), a_j
the weight of tile j, and v_i the noise variance of a new measurement in tile i. A measurement in
tile i reduces Σ_j a_j C_jj by

gain_i = Σ_j a_j C_ji² / (C_ii + v_i).

The new covariance is C - h h' with h = C e_i / sqrt(C_ii + v_i). This criterion is the A-criterion
of Bayesian design (Chaloner and Verdinelli 1995, section 2.2). Each step chooses the best tile
given the tiles chosen before. This choice is a heuristic, because the removed variance need not be
submodular. So the best set may be much better, and the gains of all tiles are needed again at
each step.

C is never computed as a whole. With q_i = Σ_j a_j C_ji², a step changes

q_i -> q_i - 2 h_i z_i + h_i² Σ_j a_j h_j²,    z_i = Σ_j C_ij a_j h_j with C before the step.

So a step needs two products of C with a vector, and q is computed only once, at the start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.models.joint.level import JointLevel, LocalCovariance
from geogp.models.numerics.devices import CHUNK, WORD
from geogp.models.numerics.threads import chunks, in_threads
from geogp.models.options import CANDIDATES
from geogp.models.process.memory import refuse_above

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

AT_ONCE = 16
"""Number of columns of C that a thread has in memory at once."""

EVALUATED_AT_ONCE = 64
"""Number of tiles whose gains are computed exactly, before the estimates are compared again."""

PROBE_SIDE = 16
"""Number of rows or columns of tiles from a tile to the next tile of the same probe."""

_SIGNS = np.array([-1, 1], np.int8)
"""The values of a probe; one byte each, because there is one for every tile."""


@dataclass(frozen=True)
class LevelCovariance:
    """The covariance C = P P' + diag(own) + K of the level at n tiles, as products with vectors.

    `low`: P, (n, r).
    `variance`: the diagonal of C, for tiles whose column of C is not computed yet, (n,).
    `local`: K; None if K = 0.
    `own`: the part of each tile's variance that is independent of other tiles, (n,), or 0; always 0
        if K is not 0.
    """

    low: Floats
    variance: Floats
    local: LocalCovariance | None = None
    own: Floats | float = 0.0

    def __len__(self) -> int:
        return len(self.low)

    def times(self, x: Floats) -> Floats:
        """Return C x for x (n, k), with the precision of P."""
        x = x.astype(self.low.dtype, copy=False)
        product: Floats = self.low @ (self.low.T @ x)
        if self.local is None:
            return product + np.reshape(self.own, (-1, 1)) * x
        product += self.local.times(x)
        return product

    def columns(self, tiles: Indices) -> Floats:
        """Return the columns of C for k tiles, (n, k)."""
        columns: Floats = self.low @ self.low[tiles].T
        columns[tiles, np.arange(len(tiles))] += np.broadcast_to(self.own, len(self))[tiles]
        if self.local is None:
            return columns
        unit = np.zeros((len(self), len(tiles)), self.low.dtype)
        unit[tiles, np.arange(len(tiles))] = 1.0
        columns += self.local.times(unit)
        return columns

    def about_squares(self, weights: Floats, *, seed: int) -> Floats:
        """Return Σ_j a_j C_ij² for all i, (n,), exact except for the term Σ_j a_j K_ij².

        If K is not 0, this term is estimated by the sum of (K diag(a)^(1/2) e)_i² over probes e.
        A probe has random signs at the tiles of one set, and 0 elsewhere. The tiles of a set are
        `PROBE_SIDE` rows or columns apart, so the random part of the sum, products of covariances
        with two tiles of a set, is small (Stathopoulos, Laeuchli and Orginos 2013). For places that
        are no grid of tiles, the sets are as good as random.
        """
        low, local, a = self.low, self.local, weights.astype(self.low.dtype)[:, None]
        rows = chunks(len(self), CHUNK)
        middle = sum(low[at].T @ (a[at] * low[at]) for at in rows)
        squares = np.concatenate([_dots(low[at] @ middle, low[at]) for at in rows])
        if local is None:
            return squares + weights * self.own * (2 * _dots(low, low) + self.own)
        signs = np.random.default_rng([seed, 3]).choice(_SIGNS, a.shape)
        values, counted = signs * np.sqrt(a), weights > 0
        number = np.full(len(self), -1)
        number[counted] = _probes(local.places[counted])
        probes = np.unique(number[counted])

        def crossed(columns: slice) -> Floats:
            return 2 * _dots(low[:, columns], local.times(a * low[:, columns]))

        def probed(some: slice) -> Floats:
            spread = local.times(values * (number[:, None] == probes[some]))
            return _dots(spread, spread)

        cpu = torch.device("cpu")
        for term in in_threads(crossed, chunks(low.shape[1], AT_ONCE), cpu):
            squares += term
        for term in in_threads(probed, chunks(len(probes), AT_ONCE), cpu):
            squares += term
        return squares


def _probes(places: Floats) -> Indices:
    """Return the number of the probe of each tile, (n,), from 0 to `PROBE_SIDE`² - 1.

    Tiles of one row or column have exactly the same coordinate.
    """
    column, row = (np.unique(values, return_inverse=True)[1] % PROBE_SIDE for values in places.T)
    return np.asarray(column * PROBE_SIDE + row, np.int64)


def _dots(a: NDArray[Any], b: NDArray[Any]) -> Floats:
    """Return the scalar products of the rows of a and b (n, k), (n,)."""
    return np.asarray(np.einsum("ik,ik->i", a, b, dtype=np.float64))


def covariance_of(level: JointLevel, chosen: int = 0) -> LevelCovariance:
    """Return the covariance of a level; the whole of P is in memory.

    `chosen` is the number of tiles to measure; each needs one column of C in memory. Raises
    RequestError if there is not enough memory.
    """
    rank = level.L.shape[1]
    # P; and two more arrays of the same size while P is computed, or later the columns. The
    # columns of the chosen and of the widest tiles are copied to get more space.
    needed = WORD * (len(level) * (3 * rank + 6 * AT_ONCE + 4 * chosen))
    what = f"choosing among {len(level):,} tiles at rank {rank}"
    refuse_above(needed, what, "Map the region with a lower --zoom.")
    return LevelCovariance(level.low_rank(), level.single_variances(), level.local, level.own)


@dataclass(frozen=True)
class Chosen:
    """Tiles measured one after the other, and the effect of the measurements on the variance.

    `tiles`: numbers of the measured tiles, in order, (k,).
    `gains`: exact reduction of Σ_j a_j C_jj by each measured tile, given the tiles before it, (k,).
    `before`, `after`: variance of the level at each measured tile, before the first measurement and
        after the last, (k,).
    `removed`: reduction of the variance at every tile by all measurements, (n,).
    `evaluated`: number of tiles whose gain was computed exactly.
    """

    tiles: Indices
    gains: Floats
    before: Floats
    after: Floats
    removed: Floats
    evaluated: int


class SequentialDesign:
    """The variance of the level while tiles are measured one after the other.

    `covariance`: covariance C of the level given the measurements so far.
    `weights`: weight of the variance of each tile, 0 or more, at least one above 0, (n,).
    `noise`: variance of a new measurement around the level, above 0, (n,).
    """

    def __init__(self, covariance: LevelCovariance, weights: Floats, noise: Floats) -> None:
        n = len(covariance)
        self.covariance, self.weights, self.noise = covariance, weights, noise
        self._tiles: list[int] = []
        self._gains: list[float] = []
        self._before: list[float] = []
        # The columns h of the tiles measured so far, and space for more.
        self._h = np.empty((n, AT_ONCE), order="F")
        self.removed = np.zeros(n)

    @property
    def variance(self) -> Floats:
        """Current variance of the level of each tile, (n,)."""
        return self.covariance.variance - self.removed

    def measure(self, tile: int) -> tuple[Floats, float]:
        """Measure a tile; return h (n,) and the gain."""
        column = self.covariance.columns(np.array([tile]))[:, 0].astype(np.float64)
        before, count = float(column[tile]), len(self._tiles)
        column -= self._h[:, :count] @ self._h[tile, :count]
        h = column / np.sqrt(column[tile] + self.noise[tile])
        gain = float(self.weights @ np.square(h))
        if count == self._h.shape[1]:
            self._h = np.concatenate([self._h, np.empty_like(self._h)], 1)
        self._h[:, count] = h
        self._tiles.append(tile)
        self._gains.append(gain)
        self._before.append(before)
        self.removed += np.square(h)
        return h, gain

    def spread(self, h: Floats) -> Floats:
        """Return z_i = Σ_j C_ij a_j h_j, (n,), with C before the last measurement came in."""
        weighted = self.weights * h
        z = self.covariance.times(weighted[:, None])[:, 0].astype(np.float64)
        earlier = self._h[:, : len(self._tiles) - 1]
        z -= earlier @ (earlier.T @ weighted)
        return z

    def chosen(self, evaluated: int = 0) -> Chosen:
        """Return the measured tiles, and the effect of the measurements on the variance."""
        tiles, before = np.array(self._tiles, np.int64), np.array(self._before)
        after = before - self.removed[tiles]
        return Chosen(tiles, np.array(self._gains), before, after, self.removed, evaluated)


class _Gains:
    """Gains of all tiles, from q and the diagonal of C; the gains of evaluated tiles are exact."""

    def __init__(self, measuring: SequentialDesign, among: Mask, *, seed: int) -> None:
        covariance = measuring.covariance
        self._measuring = measuring
        self.exact = np.full(len(covariance), covariance.local is None)
        self._square = covariance.about_squares(measuring.weights, seed=seed)
        self._variance = covariance.variance.copy()
        self._changed = np.zeros(len(covariance))
        self._open = among.copy()

    def now(self) -> Floats:
        """Return the gains, exact or estimated, (n,); those of closed tiles are -inf."""
        square, variance = self._square + self._changed, self._variance - self._measuring.removed
        gains = square.clip(min=0) / (variance.clip(min=0) + self._measuring.noise)
        return np.where(self._open, gains, -np.inf)

    def evaluate_all(self) -> None:
        """Compute exact gains of all tiles that may be chosen."""
        self._evaluate(np.flatnonzero(~self.exact & self._open))

    def evaluate(self, most: int) -> None:
        """Compute exact gains, of at most `most` tiles in total.

        This stops if no estimate is above the largest exact gain.
        """
        while True:
            now = self.now()
            left = np.flatnonzero(~self.exact & (now > now[self.exact].max(initial=-np.inf)))
            count = min(EVALUATED_AT_ONCE, most - int(self.exact.sum()))
            best = left[np.argsort(-now[left], kind="stable")][: max(count, 0)]
            if not len(best):
                return
            self._evaluate(best)

    def _evaluate(self, tiles: Indices) -> None:
        covariance = self._measuring.covariance
        weights = self._measuring.weights.astype(covariance.low.dtype)

        def evaluated(block: Indices) -> tuple[Indices, Floats, Floats]:
            columns = covariance.columns(block)
            return block, weights @ np.square(columns), columns[block, np.arange(len(block))]

        blocks = [tiles[some] for some in chunks(len(tiles), AT_ONCE)]
        for block, square, variance in in_threads(evaluated, blocks, torch.device("cpu")):
            self._square[block], self._variance[block] = square, variance
            self.exact[block] = True

    def take_best(self) -> None:
        """Measure the tile with the largest exact gain, exclude it, and update all gains."""
        tile = int(np.argmax(np.where(self.exact, self.now(), -np.inf)))
        h, gain = self._measuring.measure(tile)
        self._open[tile] = False
        self._changed += h * (h * gain - 2 * self._measuring.spread(h))


def choose(
    covariance: LevelCovariance,
    weights: Floats,
    noise: Floats,
    count: int,
    *,
    among: Mask | None = None,
    candidates: int = CANDIDATES,
    seed: int = 0,
    heard: Callable[[int], None] | None = None,
) -> Chosen:
    """Choose tiles to measure, one after the other, each at most once.

    The gains of all tiles are estimated (`LevelCovariance.about_squares`) and updated at each step.
    Before each step, the gains of the tiles with the largest estimates are computed exactly, until
    no estimate is above the largest exact gain, or the gains of `candidates` tiles are known. If
    there are no more tiles than `candidates`, all gains are exact from the start. Each step chooses
    the tile with the largest exact gain.

    `covariance`, `weights`, `noise`: see `SequentialDesign`.
    `count`, `candidates`: number of tiles to choose, largest number of tiles with an exact gain.
    `among`: mask of the tiles that may be chosen, (n,); None means all tiles.
    `seed`: seed of the random estimates of the gains.
    `heard`: called after each step with the number of chosen tiles.

    Raises the errors of `check_choice`.
    """
    allowed = np.ones(len(covariance), bool) if among is None else among
    n = check_choice(allowed, count, candidates)
    measuring = SequentialDesign(covariance, weights, noise)
    gains = _Gains(measuring, allowed, seed=seed)
    if candidates >= n:
        gains.evaluate_all()
    for step in range(count):
        gains.evaluate(candidates)
        gains.take_best()
        if heard is not None:
            heard(step + 1)
    return measuring.chosen(int((gains.exact & allowed).sum()))


def check_choice(among: Mask, count: int, candidates: int) -> int:
    """Return the number of tiles that may be chosen, `among`.

    Raises RequestError if `count` is below 1 or above this number, or if there are fewer candidates
    than twice `count`.
    """
    n = int(among.sum())
    if not 1 <= count <= n:
        raise RequestError(f"expected from 1 to {n:,} tiles to choose, found {count}.")
    if candidates < min(2 * count, n):
        raise RequestError(
            f"expected {min(2 * count, n):,} candidates or more for {count} tiles, found "
            f"{candidates}."
        )
    return n


def widest(
    covariance: LevelCovariance,
    weights: Floats,
    noise: Floats,
    count: int,
    *,
    among: Mask | None = None,
) -> Chosen:
    """Measure `count` tiles one after the other, each time the one with the largest variance.

    Tiles with weight 0 are chosen only if no other tile remains; `among` is as in `choose`.
    """
    measuring = SequentialDesign(covariance, weights, noise)
    left = np.ones(len(covariance), bool) if among is None else among.copy()
    for _ in range(min(count, int(left.sum()))):
        counted = left & (weights > 0)
        open_now = counted if counted.any() else left
        tile = int(np.argmax(np.where(open_now, measuring.variance, -np.inf)))
        left[tile] = False
        measuring.measure(tile)
    return measuring.chosen()

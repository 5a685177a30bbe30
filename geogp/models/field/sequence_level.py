"""The joint level of many tiles whose covariances are those of a sequence of patches."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from geogp.models.field.tile_sequence import TileSequence
from geogp.models.joint.level import (
    AT_ONCE,
    JointLevel,
    LocalCovariance,
    Weights,
    gathered,
    rows_times,
)
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.threads import chunks, in_threads

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SequenceLevel(JointLevel):
    """The joint distribution of the level at n tiles, as a low-rank part and a sequence.

    Let a_j be the weight of tile j in a sum, times `factor`. With the matrices H L, C and F of the
    `TileSequence`,

    Var = ||L' H' a||² + ||F' (I - C)^(-T) a||² + ||shared' a||².

    `tiles`: the sequence, in units of the standardised target.
    `shared`: factor (n, q) of the covariance of what tiles share besides, in the target's unit.
    """

    tiles: TileSequence
    shared: Floats

    @property
    @abstractmethod
    def places(self) -> Floats:
        """Coordinates of the tiles in km, (n, 2)."""

    def low_rank(self) -> Floats:
        """Return P, (n, r + q): the last columns are `shared`."""
        low, sd = self.tiles.low, self._sd
        columns = np.empty((len(low), low.shape[1] + self.shared.shape[1]), low.dtype)
        for at in chunks(len(low), CHUNK):
            factor = self.factor[at, None]
            columns[at] = np.hstack([sd * factor * low[at], factor * self.shared[at]])
        return columns

    @property
    def local(self) -> LocalCovariance | None:
        """K as in `low_rank`; it does not keep the rest of the level in memory."""
        factor, scale = self.factor, self._sd**2
        tiles = replace(self.tiles, low=np.empty((len(self), 0)))

        def times(x: Floats) -> Floats:
            of_tiles = factor.astype(x.dtype)[:, None]
            product: Floats = tiles.drawn(tiles.roots(of_tiles * x))
            product *= of_tiles * scale
            return product

        return LocalCovariance(times, self.places)

    @property
    def _sd(self) -> float:
        return float(self.model.y_sd)

    def _variances(self, weights: Weights) -> Floats:
        total = self._independent(weights, self.own)
        columns = chunks(weights.shape[1], AT_ONCE)

        def variances(some: slice) -> Floats:
            roots = self._roots(weights[:, some], self.tiles.low.dtype)
            variance: Floats = sum(np.square(root).sum(0, np.float64) for root in roots)
            return variance

        computed = in_threads(variances, columns, self.model.device)
        for some, variance in zip(columns, computed, strict=True):
            total[some] += variance
        return total

    def _roots(self, weights: Weights, dtype: Any = np.float64) -> list[Floats]:
        a = sparse.csr_array(rows_times(self.factor, weights))
        low, sd = torch.as_tensor(self.tiles.low).split(CHUNK), self._sd
        return [
            sd * gathered(iter(low), a),
            sd * self.tiles.roots(a.toarray().astype(dtype, copy=False)),
            np.asarray(a.T @ self.shared).T,
        ]

    def _drawn(self, paths: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield paths, `AT_ONCE` at a time; deviations from the mean are computed in float32."""
        single = np.float32
        low = self.tiles.low.astype(single, copy=False)
        shared = self.shared.astype(single)
        factor = (self._sd * self.factor).astype(single)[:, None]
        common = self.factor.astype(single)[:, None]

        def path(normal: list[NDArray[np.float32]]) -> Floats:
            weights, of_tiles, beyond = normal
            deviations = self.tiles.drawn(of_tiles)
            deviations += low @ weights
            deviations *= factor
            deviations += common * (shared @ beyond)
            levels: Floats = self.mean + deviations.T
            return levels

        sizes = low.shape[1], len(low), shared.shape[1]
        normals = (
            [rng.standard_normal((size, batch.stop - batch.start), single) for size in sizes]
            for batch in chunks(paths, AT_ONCE)
        )
        yield from in_threads(path, normals, self.model.device)

"""The joint level of many tiles, for a model with a process of single tiles."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from geogp.errors import RequestError
from geogp.models.field.far_level import far_level
from geogp.models.field.level_drift import drift_factor
from geogp.models.field.near_rows import (
    PATCH,
    Conditionals,
    WeightPosterior,
    with_counts,
)
from geogp.models.field.tile_sequence import TileSequence, tile_sequence
from geogp.models.field.vecchia import PREDICTION_ROWS
from geogp.models.joint.level import (
    JointLevel,
    LevelOptions,
    LocalCovariance,
    Weights,
    batches,
    gathered,
    rows_times,
)
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.threads import chunks, in_threads, threads_of
from geogp.models.process.memory import check_level

if TYPE_CHECKING:
    from geogp.models.field.network import FieldNetwork

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TileLevel(JointLevel):
    """The joint distribution of the level at n tiles, at one or more times, given the rows.

    Let a_j be the weight of tile j in a sum, times `factor`. With the matrices H L, C and F of the
    `TileSequence`,

    Var = ||L' H' a||² + ||F' (I - C)^(-T) a||² + ||shared' a||² + ||unseen' w||²,

    with w the weights without `factor`.

    `tiles`: the distribution of the tile process.
    `shared`: factor (n, q) of the covariance of the drift outside the times of the rows. The drift
        is common to all tiles of one time.
    `unseen`: sparse factor (n, q) of the covariance of the error far from all rows
        (`far_level.py`), which is common to all times; q = 0 for the Gaussian process alone.
    `near`: the predictions of single tiles in the map, if means and variances equal these.
    """

    model: "FieldNetwork"
    tiles: TileSequence
    shared: Floats
    unseen: Any
    near: Conditionals | None = None

    def low_rank(self) -> Floats:
        """Return P, (n, r) or more: the last columns are the drift, and the error far from rows."""
        low, sd, shared = self.tiles.low, float(self.model.y_sd), self.shared
        if not shared.any():
            shared = shared[:, :0]
        rank = low.shape[1] + shared.shape[1] + self.unseen.shape[1]
        found = np.empty((len(low), rank), low.dtype)
        for at in chunks(len(low), CHUNK):
            factor, unseen = self.factor[at, None], self.unseen[at].toarray()
            found[at] = np.hstack([sd * factor * low[at], factor * shared[at], unseen])
        return found

    @property
    def local(self) -> LocalCovariance:
        """K as in `low_rank`; it does not keep the rest of the level in memory."""
        points = self.model.points(self.model.scaled(self.x))
        factor, scale = self.factor, float(self.model.y_sd) ** 2
        tiles = replace(self.tiles, low=np.empty((len(self), 0)))

        def times(x: Floats) -> Floats:
            own = factor.astype(x.dtype)[:, None]
            found: Floats = tiles.drawn(tiles.roots(own * x))
            found *= own * scale
            return found

        return LocalCovariance(times, points[:, :2].cpu().numpy())

    def measured(self, tests: Floats | float, devices: Floats | float | None = None) -> Self:
        """Return the distribution of measurements; see `JointLevel.measured`."""
        model, x = self.model, self.model.scaled(self.x)
        if self.near is not None:
            counts = model.counts_of(tests, devices, len(x))
            near = with_counts(model, self.near, x, counts)
            asked = model.predict_scaled(x, counts, near=near)
            factor = np.sqrt(asked.function_variance / self._alone)
            noise = asked.noise_variance
            return replace(self, mean=asked.mean, factor=factor, noise_variance=noise)
        counts = model.counts_of(tests, devices, len(x))
        shift = (model.law.shift(counts) - model.law.shift(model.endless(1))).detach()
        parts = zip(x.split(CHUNK), counts.split(CHUNK), strict=True)
        raw = [model.row_terms(*part).noise.detach() for part in parts]
        variance = (torch.cat(raw) * model.y_sd.square()).cpu().numpy()
        mean = self.mean + float(model.y_sd) * shift.cpu().numpy()
        return replace(self, mean=mean, noise_variance=variance)

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single tile, given only the rows, (n,)."""
        found: Floats = self._alone * self.factor**2 + self.unseen.power(2).sum(1)
        return found

    def prior_covariance(self, tiles: NDArray[np.int64]) -> Floats:
        """Return the covariance of the level at m tiles before any row is known, (m, m)."""
        x, shared = self.x[tiles], self.shared[tiles]
        found: Floats = super().prior_covariance(tiles) + self.model.tile_kernel(x, x)
        return found + shared @ shared.T

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each tile in the model's own prediction, (n,)."""
        return super().stated_variances() if self.near is None else self.single_variances()

    @cached_property
    def _alone(self) -> Floats:
        """The variance of the Gaussian process at single tiles, given only the rows, (n,)."""
        model = self.model
        if self.near is not None and model.is_conditioned:
            found = self.near.found
        else:
            x = model.scaled(self.x)
            given = WeightPosterior(self.m, self.L)
            found = model.conditional(x, model.endless(len(x)), given)
        alone: Floats = (found.field + found.tile).cpu().numpy() * float(model.y_sd) ** 2
        return alone

    def _variances(self, weights: Weights) -> Floats:
        found, parts = self._independent(weights, self.own), batches(weights.shape[1])

        def variances(part: slice) -> Floats:
            roots = self._roots(weights[:, part], self.tiles.low.dtype)
            found: Floats = sum(np.square(root).sum(0, np.float64) for root in roots)
            return found

        for part, more in zip(parts, in_threads(variances, parts, self.model.device), strict=True):
            found[part] += more
        return found

    def _roots(self, weights: Weights, dtype: Any = np.float64) -> list[Floats]:
        a = sparse.csr_array(rows_times(self.factor, weights))
        low, sd = torch.as_tensor(self.tiles.low).split(CHUNK), float(self.model.y_sd)
        return [
            sd * gathered(iter(low), a),
            sd * self.tiles.roots(a.toarray().astype(dtype, copy=False)),
            np.asarray(a.T @ self.shared).T,
            (self.unseen.T @ weights).toarray(),
        ]

    def _drawn(self, paths: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield paths, `AT_ONCE` at a time; deviations from the mean are computed in float32."""
        single = np.float32
        low = self.tiles.low.astype(single, copy=False)
        shared, unseen = self.shared.astype(single), self.unseen.astype(single)
        factor = (float(self.model.y_sd) * self.factor).astype(single)[:, None]
        common = self.factor.astype(single)[:, None]

        def path(normal: list[NDArray[np.float32]]) -> Floats:
            weights, own, drift, far = normal
            found = self.tiles.drawn(own)
            found += low @ weights
            found *= factor
            if shared.any():
                found += common * (shared @ drift)
            if unseen.nnz:
                found += unseen @ far
            deviations: Floats = found.T
            return self.mean + deviations

        sizes = low.shape[1], len(low), shared.shape[1], unseen.shape[1]
        normals = (
            [rng.standard_normal((size, part.stop - part.start), single) for size in sizes]
            for part in batches(paths)
        )
        yield from in_threads(path, normals, self.model.device)


def tile_level(model: "FieldNetwork", x: Floats, options: LevelOptions) -> TileLevel:
    """Return the joint distribution of the level at tiles; raise the errors of `joint_level`."""
    n, rows, scaled = len(x), model.rows.as_rows(), model.scaled(x)
    block = min(threads_of(model.device) * model.blocks_at_once // 2, n)
    block *= (int(PATCH * PREDICTION_ROWS) + options.earlier) ** 2
    check_level(model.architecture, n, rows.n, options.columns, block)
    if not rows.n:
        raise RequestError("the model is not fitted: it has no training rows.")
    with torch.no_grad():
        weights = WeightPosterior(*model.conditioned(rows))
        tiles = tile_sequence(
            model,
            scaled,
            weights,
            earlier=options.earlier,
            seed=options.seed,
        )
        shared = drift_factor(model.away(scaled), model.drift).cpu().numpy() * float(model.y_sd)
    raw = TileLevel(
        model=model,
        x=x,
        m=weights.m,
        L=weights.L,
        mean=np.zeros(n),
        factor=np.ones(n),
        noise_variance=np.zeros(n),
        own_variance=np.zeros(n),
        tiles=tiles,
        shared=shared,
        unseen=sparse.csr_array((n, 0)),
    )
    if not options.calibrated:
        means = model.row_means(scaled, weights.m) + tiles.told[:, 0]
        return replace(raw, mean=float(model.y_mean) + float(model.y_sd) * means)
    endless = model.endless(n)
    known = Conditionals.of(options.single, model.device)
    near = known or model.conditionals(scaled, endless)
    raw = replace(raw, near=near)
    stated = model.predict_scaled(scaled, endless, level=True, near=near)
    factor = np.sqrt(stated.function_variance / raw.single_variances())
    return replace(raw, mean=stated.mean, factor=factor, unseen=far_level(model, scaled))

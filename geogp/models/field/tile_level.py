"""The joint level of many tiles, for a model with a process of single tiles."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from geogp.models.field.conditioning import blocks_at_once
from geogp.models.field.fitted import FittedField
from geogp.models.field.level_drift import drift_factor
from geogp.models.field.near_cache import Conditionals
from geogp.models.field.near_rows import PATCH
from geogp.models.field.parameters import WeightPosterior, numpy_of
from geogp.models.field.tile_sequence import TileSequence, tile_sequence
from geogp.models.field.vecchia import PREDICTION_ROWS
from geogp.models.joint.level import (
    AT_ONCE,
    JointLevel,
    LevelOptions,
    LocalCovariance,
    Weights,
    gathered,
    rows_times,
)
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.threads import chunks, in_threads, one_core_each, threads_of
from geogp.models.process.memory import check_level
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TileLevel(JointLevel):
    """The joint distribution of the level at n tiles, at one or more times, given the rows.

    Let a_j be the weight of tile j in a sum, times `factor`. With the matrices H L, C and F of the
    `TileSequence`,

    Var = ||L' H' a||² + ||F' (I - C)^(-T) a||² + ||shared' a||².

    `tiles`: the distribution of the tile process.
    `shared`: factor (n, q) of the covariance of what tiles share beyond the rows: the error of the
        field far from all rows (`home.py`), which is common to all times, and the drift outside the
        times of the rows, which is common to all tiles of one time.
    `alone`: the mean of the Gaussian process alone, (n,).
    `near`: the predictions of single tiles in the map, if means and variances equal these.
    """

    model: FittedField
    tiles: TileSequence
    shared: Floats
    alone: Floats
    near: Conditionals | None = None

    def low_rank(self) -> Floats:
        """Return P, (n, r + q): the last columns are `shared`."""
        low, sd = self.tiles.low, float(self.model.y_sd)
        columns = np.empty((len(low), low.shape[1] + self.shared.shape[1]), low.dtype)
        for at in chunks(len(low), CHUNK):
            factor = self.factor[at, None]
            columns[at] = np.hstack([sd * factor * low[at], factor * self.shared[at]])
        return columns

    @property
    def process_mean(self) -> Floats:
        """The mean of the level by the Gaussian process alone, without networks, (n,)."""
        return self.alone

    @property
    def local(self) -> LocalCovariance:
        """K as in `low_rank`; it does not keep the rest of the level in memory."""
        parameters = self.model.parameters
        points = parameters.points(parameters.scaled(self.x))
        factor, scale = self.factor, float(self.model.y_sd) ** 2
        tiles = replace(self.tiles, low=np.empty((len(self), 0)))

        def times(x: Floats) -> Floats:
            of_tiles = factor.astype(x.dtype)[:, None]
            product: Floats = tiles.drawn(tiles.roots(of_tiles * x))
            product *= of_tiles * scale
            return product

        return LocalCovariance(times, points[:, :2].cpu().numpy())

    def measured(self, tests: Floats | float, devices: Floats | float | None = None) -> Self:
        """Return the distribution of measurements; see `JointLevel.measured`."""
        model, parameters = self.model, self.model.parameters
        x = parameters.scaled(self.x)
        counts = parameters.counts_of(tests, devices, len(x))
        if self.near is not None:
            near = self.near.with_counts(parameters, model.rows, x, counts)
            predicted = model.predict_scaled(x, counts, near=near)
            factor = np.sqrt(predicted.function_variance / self._alone)
            noise = predicted.noise_variance
            return replace(self, mean=predicted.mean, factor=factor, noise_variance=noise)
        law = parameters.law
        shift = (law.shift(counts) - law.shift(parameters.well_measured(1))).detach()
        pairs = zip(x.split(CHUNK), counts.split(CHUNK), strict=True)
        raw = [model.rows.terms(parameters, *pair).noise.detach() for pair in pairs]
        variance = (torch.cat(raw) * model.y_sd.square()).cpu().numpy()
        mean = self.mean + float(model.y_sd) * shift.cpu().numpy()
        return replace(self, mean=mean, noise_variance=variance)

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single tile, given only the rows, (n,)."""
        variance: Floats = self._alone * self.factor**2
        return variance

    def prior_covariance(self, tiles: NDArray[np.int64]) -> Floats:
        """Return the covariance of the level at m tiles before any row is known, (m, m)."""
        x, shared = self.x[tiles], self.shared[tiles]
        covariance: Floats = super().prior_covariance(tiles) + self.model.tile_kernel(x, x)
        return covariance + shared @ shared.T

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each tile in the model's own prediction, (n,)."""
        if self.near is not None:
            return self.single_variances()
        return self.model.predict(self.x, level=True).function_variance

    @cached_property
    def _alone(self) -> Floats:
        """The variance of the Gaussian process at single tiles, given only the rows, (n,)."""
        model = self.model
        if self.near is not None:
            at = self.near.at
        else:
            x = model.parameters.scaled(self.x)
            weights = WeightPosterior(self.m, self.L)
            at = model.conditional(x, model.parameters.well_measured(len(x)), weights)
        alone: Floats = (at.field + at.tile).cpu().numpy() * float(model.y_sd) ** 2
        return alone

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
        low, sd = torch.as_tensor(self.tiles.low).split(CHUNK), float(self.model.y_sd)
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
        factor = (float(self.model.y_sd) * self.factor).astype(single)[:, None]
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


def tile_level(
    model: FittedField, x: Floats, _rows: Rows | None, options: LevelOptions
) -> TileLevel:
    """Return the joint level of field and tile process; raise the errors of `joint_level`."""
    parameters, rows = model.parameters, model.rows
    n, scaled, device = len(x), parameters.scaled(x), model.device
    block = min(threads_of(device) * blocks_at_once(device) // 2, n)
    block *= (int(PATCH * PREDICTION_ROWS) + options.earlier) ** 2
    check_level(model.architecture, n, len(rows), options.columns, block)
    with one_core_each(), torch.no_grad():
        m, L = parameters.weights
        weights = WeightPosterior(m.double(), L.double())
        tiles = tile_sequence(
            parameters, rows, scaled, weights, earlier=options.earlier, seed=options.seed
        )
        sd = float(model.y_sd)
        drift = drift_factor(model.away(scaled), model.drift).cpu().numpy()
        points = numpy_of(parameters.points(scaled))
        far = rows.home.factor(rows.locations(points))
        shared = np.hstack([far, drift[:, drift.any(0)]]) * sd
        counts = parameters.well_measured(n)
        pairs = zip(scaled.split(CHUNK), counts.split(CHUNK), strict=True)
        of_field = [rows.terms(parameters, *pair, weights.m).mean for pair in pairs]
        mean = float(model.y_mean) + sd * (numpy_of(torch.cat(of_field)) + tiles.means[:, 0])
        raw = TileLevel(
            model=model,
            x=x,
            m=weights.m,
            L=weights.L,
            mean=mean,
            factor=np.ones(n),
            noise_variance=np.zeros(n),
            own_variance=np.zeros(n),
            tiles=tiles,
            shared=shared,
            alone=mean,
        )
        if not options.calibrated:
            return raw
        near = model.cache.at(x) or model.conditionals(scaled, counts)
        raw = replace(raw, near=near)
        stated = model.predict_scaled(scaled, counts, level=True, near=near)
        factor = np.sqrt(stated.function_variance / raw.single_variances())
        return replace(raw, mean=stated.mean, factor=factor)

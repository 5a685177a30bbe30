"""The joint level of many tiles, for a model with a process of single tiles."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.models.field.conditioning import blocks_at_once
from geogp.models.field.fitted import FittedField
from geogp.models.field.level_drift import drift_factor
from geogp.models.field.near_cache import Conditionals
from geogp.models.field.near_rows import PATCH
from geogp.models.field.parameters import WeightPosterior, numpy_of
from geogp.models.field.sequence_level import SequenceLevel
from geogp.models.field.tile_sequence import tile_sequence
from geogp.models.field.vecchia import PREDICTION_ROWS
from geogp.models.joint.level import (
    LevelOptions,
)
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.threads import one_core_each, threads_of
from geogp.models.process.memory import check_level
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TileLevel(SequenceLevel):
    """The joint distribution of the level at n tiles, at one or more times, given the rows.

    The sequence is the tile process. What tiles share beyond the rows is the error of the field far
    from all rows (`home.py`), which is common to all times, and the drift outside the times of the
    rows, which is common to all tiles of one time.

    `alone`: the mean of the Gaussian process alone, (n,).
    `near`: the predictions of single tiles in the map, if means and variances equal these.
    """

    model: FittedField
    alone: Floats
    near: Conditionals | None = None

    @property
    def process_mean(self) -> Floats:
        """The mean of the level by the Gaussian process alone, without networks, (n,)."""
        return self.alone

    @property
    def places(self) -> Floats:
        """Coordinates of the tiles in km, (n, 2)."""
        parameters = self.model.parameters
        return numpy_of(parameters.points(parameters.scaled(self.x))[:, :2])

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

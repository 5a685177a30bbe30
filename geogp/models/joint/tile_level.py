"""The joint level of many tiles, for a model with a process of single tiles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import RequestError
from geogp.models.core.memory import check_level
from geogp.models.field.level_drift import drift_factor
from geogp.models.field.tile_sequence import TILES_AT_ONCE, TileSequence, tile_sequence
from geogp.models.field.vecchia import PREDICTION_ROWS
from geogp.models.joint.joint_level import (
    JointLevel,
    LevelOptions,
    Weights,
    WhiteNoise,
    batches,
    gathered,
    rows_times,
    spread,
)
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TileLevel(JointLevel):
    """The joint distribution of the level at n tiles, at one or more times, given the rows.

    Let a_j be the weight of tile j in a sum, times `factor`. Let A, B and s_j be the matrices and
    the standard deviations of the `TileSequence`, and g = (I - B)^(-T) a. Then

    Var = ||L'(Phi_tiles' a - Phi_rows' A' g)||² + Σ_j s_j² g_j² + ||shared' a||².

    `tiles`: the distribution of the tile process.
    `shared`: factor (n, q) of the covariance of the drift outside the times of the rows. The drift
        is common to all tiles of one time.
    `calibrated`: whether means and variances of single tiles equal those of the map.
    """

    model: "FieldNetwork"
    tiles: TileSequence
    shared: Floats
    calibrated: bool = False

    @property
    def row_count(self) -> int:
        """Number of rows that sums over tiles depend on."""
        return int(self.tiles.A.shape[1])

    @property
    def common_count(self) -> int:
        """Number of random variables that all tiles share."""
        return int(self.shared.shape[1])

    def low_rank(self) -> Floats:
        """Return P, (n, r) or (n, r + q); the last q columns are the drift."""
        found = spread(self._tile_features(), self.L)
        found -= self.tiles.forward(self.tiles.A @ spread(self._row_features(), self.L))
        if self.shared.any():
            found = np.column_stack([found, self.shared])
        return self.factor[:, None] * found

    def local_times(self, x: Floats) -> Floats:
        """Return K x for x (n, k), with K as in `low_rank`."""
        own = float(self.model.y_sd) ** 2 * np.square(self.tiles.s)[:, None]
        inner = own * self.tiles.back(self.factor[:, None] * x)
        return self.factor[:, None] * self.tiles.forward(inner)

    def measured(self, tests: float, devices: float | None = None) -> "TileLevel":
        """Return the distribution of measurements: each is a mean of `tests` tests in a tile."""
        model = self.model
        if self.calibrated:
            asked = model.predict(self.x, tests, devices)
            factor = np.sqrt(asked.function_variance / self._alone)
            return replace(
                self, mean=asked.mean, factor=factor, noise_variance=asked.noise_variance
            )
        counts = torch.cat([model.counts_of(tests, devices, 1), model.endless(1)])
        shift = model.law.shift(counts).detach() * model.y_sd
        raw = [
            model.row_terms(part, counts[:1].expand(len(part), 2)).noise.detach()
            for part in model.scaled(self.x).split(CHUNK)
        ]
        variance = (torch.cat(raw) * model.y_sd.square()).cpu().numpy()
        mean = self.mean + float(shift[0] - shift[1])
        return replace(self, mean=mean, noise_variance=variance)

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single tile, given only the rows, (n,)."""
        return self._alone * self.factor**2

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each tile in the model's own prediction, (n,)."""
        return self.single_variances() if self.calibrated else super().stated_variances()

    @property
    def _alone(self) -> Floats:
        return self.tiles.alone * float(self.model.y_sd) ** 2

    def _variances(self, weights: Weights) -> Floats:
        found = self._independent(weights, self.own)
        seen = np.empty((self.row_count, weights.shape[1]))
        for part in batches(weights.shape[1]):
            a = rows_times(self.factor, weights[:, part]).toarray()
            g = self.tiles.back(a)
            seen[:, part] = self._seen(g)
            found[part] += np.square(self._fresh(g)).sum(0) + np.square(self.shared.T @ a).sum(0)
        found += np.square(self._field_given(weights, seen)).sum(0)
        return found

    def _roots(self, weights: Weights) -> list[Floats]:
        a = rows_times(self.factor, weights).toarray()
        g = self.tiles.back(a)
        return [
            self._field_given(weights, self._seen(g)),
            self._fresh(g),
            self.shared.T @ a,
        ]

    def _seen(self, g: Floats) -> Floats:
        """Return A' g, (rows, k): the weights of the rows in the sums."""
        found: Floats = self.tiles.A.T @ g
        return found

    def _fresh(self, g: Floats) -> Floats:
        """Return the part of the tile process that is random given rows and weights, (n, k)."""
        return float(self.model.y_sd) * self.tiles.s[:, None] * g

    def _field_given(self, weights: Weights, seen: Floats) -> Floats:
        """Return L'(Phi_tiles' a - Phi_rows' seen), (r, k), for sparse weights (n, k)."""
        return self._whitened(self._gathered(weights) - gathered(self._row_features(), seen))

    def _deviations(self, change: Tensor, drawn: Sequence[WhiteNoise]) -> Iterator[Floats]:
        field = spread(self._tile_features(), change)
        seen = spread(self._row_features(), change)
        for part, white in zip(batches(field.shape[1]), drawn, strict=True):
            residuals = self._fresh(white.own) - self.tiles.A @ seen[:, part]
            found = field[:, part] + self.tiles.forward(residuals)
            yield found + self.shared @ white.common

    def _row_features(self) -> Iterator[Tensor]:
        return row_features(self.model)


def tile_level(model: "FieldNetwork", x: Floats, options: LevelOptions) -> TileLevel:
    """Return the joint distribution of the level at tiles; raise the errors of `joint_level`."""
    n, rows, scaled = len(x), model.rows.as_rows(), model.scaled(x)
    block = min(TILES_AT_ONCE, n) * (PREDICTION_ROWS + options.earlier) ** 2
    check_level(model.architecture, n, rows.n, options.columns, block)
    if not rows.n:
        raise RequestError("the model is not fitted: it has no training rows.")
    with torch.no_grad():
        m, L = model.conditioned(rows)
        tiles = tile_sequence(model, scaled, L, earlier=options.earlier, seed=options.seed)
        shared = drift_factor(model.away(scaled), model.drift).cpu().numpy() * float(model.y_sd)
    raw = TileLevel(
        model=model,
        x=x,
        m=m,
        L=L,
        mean=np.zeros(n),
        factor=np.ones(n),
        noise_variance=np.zeros(n),
        own_variance=np.zeros(n),
        tiles=tiles,
        shared=shared,
    )
    if not options.calibrated:
        return replace(raw, mean=closed_form_mean(model, x, m, tiles))
    stated = model.predict(x, level=True)
    factor = np.sqrt(stated.function_variance / raw.single_variances())
    return replace(raw, mean=stated.mean, factor=factor, calibrated=True)


def closed_form_mean(model: "FieldNetwork", x: Floats, m: Tensor, tiles: TileSequence) -> Floats:
    """Return the mean of the level at tiles (n, d), (n,), given the mean m of the weights."""
    weights = m.detach()[:, None]
    sd = float(model.y_sd)
    with torch.no_grad():
        base = model.mean_constant.double()
        rows = model.rows.y - base - model.law.shift(model.rows.counts)
        centre = float(model.y_mean + model.y_sd * (base + model.law.shift(model.endless(1))))
    residual = sd * rows.cpu().numpy()[:, None] - spread(row_features(model), weights)
    found = spread(model.feature_chunks(x), weights)
    found += tiles.forward(tiles.A @ residual)
    return centre + found[:, 0]


def row_features(model: "FieldNetwork") -> Iterator[Tensor]:
    """Yield the features of the model's stored rows, in the target's unit."""
    held = model.rows
    for x, counts in zip(held.x.split(CHUNK), held.counts.split(CHUNK), strict=True):
        with torch.no_grad():
            yield model.row_terms(x, counts).phi.double() * model.y_sd

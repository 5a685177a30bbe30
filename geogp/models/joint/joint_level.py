"""The level of many tiles together: means, variances of sums, sample paths.

A sum over tiles, such as the mean of a county, varies by the covariances of the tiles and not by
their variances alone. What is joint here follows from p(w | y) in closed form under the fitted
basis and noise law (`joint_law.py`), never from the L L' of an objective, and, for models
with a process of single tiles, from its law at all tiles (`tile_sequence.py`). What a
model's diagonal adds to the function in single tiles (`diagonals.py`) is independent
between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build_model import spec_of
from geogp.models.core.feature_sums import Weights, gathered, rows_times, spread
from geogp.models.core.lowrank import LowRankGP, Rows
from geogp.models.core.memory import HELD_BYTES, WORD, check_level
from geogp.models.field.field_model import FieldNetwork
from geogp.models.field.tile_sequence import (
    EARLIER_TILES,
    TILES_AT_ONCE,
    TileSequence,
    tile_sequence,
)
from geogp.models.field.vecchia import PREDICTION_ROWS
from geogp.models.joint.closed_form import closed_form_mean, row_features
from geogp.models.joint.joint_law import joint_posterior
from geogp.models.joint.weighted_sums import WeightedSums
from geogp.models.training.steps import CHUNK
from geogp.models.training.training_loop import Data

Floats = NDArray[np.float64]
AT_ONCE = 32
"""Sums that are solved for, or paths that are returned, at once."""


@dataclass(frozen=True)
class JointLevel:
    """The joint Gaussian law of the level at n tiles at one time, in the unit of the target.

    With a the weights of a sum, scaled by `factor`, g = (I - B)^(-T) a, and A, B, s of the
    `TileSequence`,

    Var = ||L'(Phi_tiles' a - Phi_rows' A' g)||² + Σ s² g² + (Σ a)² shared,

    for models without a tile process, with o of `own_variance`, ||L' Phi' a||² + Σ o a².

    Attributes
    ----------
    model, x
        The fitted model and the inputs of the tiles, (n, d).
    m, L
        p(w | y) = N(m, L L'), for the standardised target.
    tiles
        The law of the tile process; None where the model has none.
    mean
        Mean of the level, (n,).
    factor
        What deviations of each tile are multiplied by, (n,).
    noise_variance
        Variance of a measurement around the level of each tile, independent between tiles, (n,);
        0 unless `measured` has set it.
    own_variance
        Variance of the level of each tile that no other tile shares and the tile process does not
        hold, (n,): what the model's diagonal adds.
    shared
        Variance, common to all tiles, of the drift beyond the times of the rows.
    calibrated
        Whether means and single variances are those of the map.
    """

    model: LowRankGP
    x: Floats
    m: Tensor
    L: Tensor
    tiles: TileSequence | None
    mean: Floats
    factor: Floats
    noise_variance: Floats
    own_variance: Floats
    shared: float = 0.0
    calibrated: bool = False

    def __len__(self) -> int:
        return len(self.x)

    def sum_means(self, weights: Weights) -> Floats:
        """Return the means of sums over tiles with weights (n, k), (k,)."""
        found: Floats = np.asarray(self._checked(weights).T @ self.mean, np.float64)
        return found

    def sum_variances(self, weights: Weights, *, noise: bool = False) -> Floats:
        """Return the variances of sums over tiles with weights (n, k), (k,).

        Parameters
        ----------
        weights
            Weights of the tiles in each sum.
        noise
            Add what measurements vary by, one for each tile; see `measured`.

        Raises
        ------
        DataError
            Weights of another number of tiles.
        """
        given = self._checked(weights)
        group = _group(0 if self.tiles is None else self.tiles.A.shape[1])
        parts = [
            self._variances(given[:, at : at + group]) for at in range(0, given.shape[1], group)
        ]
        found = np.concatenate(parts)
        return found + self._independent(given, self.noise_variance) if noise else found

    def sum_covariance(self, weights: Weights) -> Floats:
        """Return the covariance (k, k) of sums over tiles with weights (n, k), without noise.

        Holds n times k values.
        """
        given = self._checked(weights)
        a = rows_times(self.factor, given).toarray()
        total: Floats = (given.T @ rows_times(self.own, given)).toarray()
        g = None if self.tiles is None else self.tiles.back(a)
        parts = [self._field(given, None if g is None else self._seen(g))]
        if g is not None:
            parts += [self._fresh(g), np.sqrt(self.shared) * a.sum(0, keepdims=True)]
        return total + sum(part.T @ part for part in parts)

    def weighted_sums(self, weights: Weights) -> WeightedSums:
        """Return the joint law of sums over points with weights (n, k) or (n,).

        Covariances condition points on near ones that come earlier, which is approximate: the
        variance of a point by itself may differ from `single_variances` by some 0.1 %.

        Raises
        ------
        DataError
            Weights of another number of points.
        """
        dense = not sparse.issparse(weights)
        given = np.asarray(weights, np.float64) if dense else weights
        if len(given.shape) == 1:
            given = given[:, None]
        return WeightedSums(self.sum_means(given), self.sum_covariance(given))

    def low_rank(self) -> Floats:
        """Return P, (n, r) or (n, r + 1): the covariance of the level is P P' + diag(own) + K.

        P is what the weights of the field add, and the drift that is common to all tiles; K, of
        the tile process given the weights, is applied by `local_times`.
        """
        found = spread(self._tile_features(), self.L)
        if self.tiles is not None:
            found -= self.tiles.forward(self.tiles.A @ spread(self._row_features(), self.L))
            if self.shared:
                found = np.column_stack([found, np.full(len(self), np.sqrt(self.shared))])
        return self.factor[:, None] * found

    def local_times(self, x: Floats) -> Floats:
        """Return K x for x (n, k), with K the covariance of `low_rank`; 0 without tile process."""
        if self.tiles is None:
            return np.zeros_like(x)
        own = float(self.model.y_sd) ** 2 * np.square(self.tiles.s)[:, None]
        inner = own * self.tiles.back(self.factor[:, None] * x)
        return self.factor[:, None] * self.tiles.forward(inner)

    def paths(self, paths: int, *, seed: int = 0) -> Iterator[Floats]:
        """Draw levels of all tiles together: yields (b, n) until there are so many.

        Raises
        ------
        RequestError
            Fewer than one path.
        """
        if paths < 1:
            raise RequestError(f"expected 1 sample path or more, found {paths}.")
        rng = np.random.default_rng(seed)
        rows = 0 if self.tiles is None else self.tiles.A.shape[1]
        group = _group(2 * len(self) + rows)
        for start in range(0, paths, group):
            yield from self._drawn(min(group, paths - start), rng)

    def measured(self, tests: float) -> "JointLevel":
        """Return the law of the tiles' means of so many tests each: shift and noise are theirs.

        The noise of models without a law of tests is that of a measurement as the data hold it;
        where the objective made the function variance carry noise (the PPGP family), that too.
        """
        model = self.model
        asked = model.predict(self.x, tests)
        noise = asked.noise_variance
        if not isinstance(model, FieldNetwork) or self.tiles is None:
            if spec_of(model).step.spread_is_noise:
                noise = noise + (asked.function_variance - self.own_variance).clip(min=0)
            return replace(self, noise_variance=noise)
        if self.calibrated:
            factor = np.sqrt(asked.function_variance / self._alone)
            return replace(self, mean=asked.mean, factor=factor, noise_variance=noise)
        counts = torch.tensor([tests, torch.inf], dtype=torch.float64, device=model.device)
        shift = model.law.shift(counts).detach() * model.y_sd
        raw = [
            model.row_terms(part, counts[:1].expand(len(part))).noise.detach()
            for part in model.scaled(self.x).split(CHUNK)
        ]
        variance = (torch.cat(raw) * model.y_sd.square()).cpu().numpy()
        mean = self.mean + float(shift[0] - shift[1])
        return replace(self, mean=mean, noise_variance=variance)

    def noise_of(self, tests: float) -> Floats:
        """Return the noise variance of `measured`, (n,), without what else that works out."""
        model = self.model
        if not isinstance(model, FieldNetwork) or not self.calibrated:
            return self.measured(tests).noise_variance
        # Noise does not depend on what near rows tell of a tile.
        counts = torch.full((len(self),), tests, dtype=torch.float64, device=model.device)
        return model.predict_scaled(model.scaled(self.x), counts, alone=True).noise_variance

    def single_variances(self) -> Floats:
        """Return the variance of each tile's level by itself, as prediction has it, (n,).

        For models with a tile process it is that given the rows alone. Independent tiles would
        have these variances in a sum: what a sum of them is worth is seen beside `sum_variances`.
        """
        if self.tiles is not None:
            return self._alone * self.factor**2
        parts = [(phi @ self.L).square().sum(1).cpu() for phi in self._tile_features()]
        return torch.cat(parts).numpy() * self.factor**2 + self.own

    @property
    def own(self) -> Floats:
        """Variance of the level of each tile that no other tile shares, (n,); see `low_rank`."""
        return self.own_variance * self.factor**2

    @property
    def _alone(self) -> Floats:
        assert self.tiles is not None
        return self.tiles.alone * float(self.model.y_sd) ** 2

    def _checked(self, weights: Weights) -> Weights:
        if len(weights.shape) != 2 or weights.shape[0] != len(self):
            raise DataError(
                f"expected weights of {len(self)} tiles, (n, k), found shape {weights.shape}."
            )
        return sparse.csc_array(weights)

    def _independent(self, weights: Weights, variance: Floats) -> Floats:
        """Return the variances of sums of independent parts of tiles, (k,)."""
        return np.asarray(weights.multiply(weights).T @ variance, np.float64)

    def _variances(self, weights: Weights) -> Floats:
        """Return variances of sums with sparse weights (n, k), in one pass over the features."""
        found = self._independent(weights, self.own)
        if self.tiles is None:
            found += np.square(self._field(weights, None)).sum(0)
            return found
        seen = np.empty((self.tiles.A.shape[1], weights.shape[1]))
        for start in range(0, weights.shape[1], AT_ONCE):
            part = slice(start, start + AT_ONCE)
            a = rows_times(self.factor, weights[:, part]).toarray()
            g = self.tiles.back(a)
            seen[:, part] = self._seen(g)
            found[part] += np.square(self._fresh(g)).sum(0) + self.shared * np.square(a.sum(0))
        found += np.square(self._field(weights, seen)).sum(0)
        return found

    def _seen(self, g: Floats) -> Floats:
        """Return A' g, the weights of the rows in sums, (rows, k)."""
        assert self.tiles is not None
        found: Floats = self.tiles.A.T @ g
        return found

    def _fresh(self, g: Floats) -> Floats:
        """Return what the tile process adds given rows and weights, (n, k)."""
        assert self.tiles is not None
        return float(self.model.y_sd) * self.tiles.s[:, None] * g

    def _field(self, weights: Weights, seen: Floats | None) -> Floats:
        """Return L'(Phi_tiles' a - Phi_rows' seen), (r, k), for sparse weights (n, k)."""
        a = sparse.csr_array(rows_times(self.factor, weights))
        left = gathered(self._tile_features(), a)
        if seen is not None:
            left = left - gathered(self._row_features(), seen)
        found: Floats = (self.L.T @ torch.from_numpy(left).to(self.L.device)).cpu().numpy()
        return found

    def _drawn(self, paths: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield paths, `AT_ONCE` at a time, in one pass over the features."""
        sizes = [min(AT_ONCE, paths - start) for start in range(0, paths, AT_ONCE)]
        drawn = [self._white(size, rng) for size in sizes]
        change = self.L @ torch.from_numpy(np.hstack([each[0] for each in drawn])).to(self.L.device)
        field = spread(self._tile_features(), change)
        seen = None if self.tiles is None else spread(self._row_features(), change)
        start = 0
        for size, (_, own, common) in zip(sizes, drawn, strict=True):
            part = slice(start, start + size)
            start += size
            found = field[:, part]
            if self.tiles is None or seen is None:
                found = found + np.sqrt(self.own_variance)[:, None] * own
            else:
                fresh = float(self.model.y_sd) * self.tiles.s[:, None] * own
                found = found + self.tiles.forward(fresh - self.tiles.A @ seen[:, part])
            yield self.mean + (self.factor[:, None] * (found + np.sqrt(self.shared) * common)).T

    def _white(self, paths: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw standard normals: for the weights (r, b), each tile (n, b), and all tiles (b,)."""
        sizes = (self.L.shape[1], paths), (len(self), paths), (paths,)
        weights, own, common = (rng.standard_normal(size) for size in sizes)
        return weights, own, common

    def _tile_features(self) -> Iterator[Tensor]:
        return self.model.feature_chunks(self.x)

    def _row_features(self) -> Iterator[Tensor]:
        assert isinstance(self.model, FieldNetwork)
        return row_features(self.model)


def joint_level(
    model: LowRankGP,
    train: Data | None,
    x: Floats,
    *,
    calibrated: bool = True,
    earlier: int = EARLIER_TILES,
    seed: int = 0,
    columns: int = 0,
) -> JointLevel:
    """Return the joint law of the level at tiles at one time.

    The basis counts as known: what was uncertain in learning it is not included.

    Parameters
    ----------
    model
        A fitted model.
    train
        The rows it was fitted to; None for models that hold them (``field``).
    x
        Inputs of the tiles, (n, d), each tile once.
    calibrated
        Give single tiles the mean and variance of the map, `model.predict(x, level=True)`:
        deviations are multiplied by the ratio of its standard deviation to that of the raw law
        given the rows alone. Conditioning on other tiles, which is approximate, leaves a few per
        cent of difference. Models without a tile process have nothing to calibrate: theirs is
        the closed form.
    earlier
        Earlier tiles that a tile is conditioned on, at most.
    seed
        Of the order of the tiles.
    columns
        Sums or draws that will be asked for, which take memory.

    Raises
    ------
    RequestError
        The model counts, so that its level is no Gaussian in closed form, or has not been
        fitted; its rows are needed and not given; or there is not enough memory.
    DataError
        The tiles are at several times, or two at one place.
    NumericalError
        A block of tiles does not factorise.
    """
    if spec_of(model).about.counts:
        raise RequestError(
            f"{model.name} counts tests: its level has no closed form; choose a model of averages."
        )
    sizes = model.architecture
    if isinstance(model, FieldNetwork):
        width = PREDICTION_ROWS + earlier
        block = min(TILES_AT_ONCE, len(x)) * width**2
        check_level(sizes, len(x), len(model.rows.y), columns, block)
        return _with_tiles(model, x, calibrated=calibrated, earlier=earlier, seed=seed)
    if train is None:
        raise RequestError(f"{model.name} holds no rows: give those it was fitted to.")
    check_level(sizes, len(x), len(train.y), columns)
    posterior = joint_posterior(model, train)
    wide = float(model.widening)
    factor, zeros = np.full(len(x), wide), np.zeros(len(x))
    mean, own = posterior.mean(x), model.added_variance(x)
    return JointLevel(model, x, posterior.m, posterior.L, None, mean, factor, zeros, own)


def _with_tiles(
    model: FieldNetwork, x: Floats, *, calibrated: bool, earlier: int, seed: int
) -> JointLevel:
    scaled = model.scaled(x)
    if not len(model.rows.y):
        raise RequestError("the model has not been fitted: it holds no rows.")
    held = Rows(model.rows.x, model.rows.y, model.rows.tests)
    with torch.no_grad():
        m, L = model.conditioned(held, spread_is_noise=spec_of(model).step.spread_is_noise)
        tiles = tile_sequence(model, scaled, L, earlier=earlier, seed=seed)
        shared = float(model.beyond(scaled[:1]) * model.y_sd.square())
    n = len(x)
    zeros = np.zeros(n)
    raw = JointLevel(model, x, m, L, tiles, zeros, np.ones(n), zeros, zeros, shared)
    if not calibrated:
        return replace(raw, mean=closed_form_mean(model, x, m, tiles))
    stated = model.predict(x, level=True)
    factor = np.sqrt(stated.function_variance / raw.single_variances())
    return replace(raw, mean=stated.mean, factor=factor, calibrated=True)


def _group(held: int) -> int:
    """Return how many sums or paths, of so many numbers each, share a pass: whole batches."""
    return AT_ONCE * max(1, HELD_BYTES // (WORD * AT_ONCE * max(held, 1)))

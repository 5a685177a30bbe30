"""The level of many tiles jointly: means, variances of sums, sample paths.

Covariances come from the closed form of p(w | y) under the fitted basis and noise (`law.py`),
never from the L L' that an objective learned. A process of single tiles adds its covariances
(`tile_sequence.py`). The diagonal of a model (`diagonals.py`) is independent between tiles.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.arguments import numbers_of
from geogp.choices import MAX_DRAWS, MAX_SEED, whole_number
from geogp.errors import DataError, RequestError
from geogp.models.joint.law import posterior_given
from geogp.models.joint.weighted_sums import WeightedSums
from geogp.models.numerics.devices import WORD
from geogp.models.numerics.threads import chunks
from geogp.models.process.data import Data
from geogp.models.process.memory import HELD_BYTES, check_level
from geogp.models.process.model import Model
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]
Weights = Any
"""Weights of tiles in several sums, (n, k), as a NumPy array or a sparse SciPy array."""

EARLIER_TILES = 48
"""Largest number of earlier tiles that condition a tile (`tile_sequence.py`)."""

AT_ONCE = 16
"""Number of sums or paths in one batch."""


class LevelOptions(NamedTuple):
    """Options of the joint distribution of a level; see `joint_level`."""

    calibrated: bool = True
    earlier: int = EARLIER_TILES
    seed: int = 0
    columns: int = 0


class LocalCovariance(NamedTuple):
    """The covariance K of the tile process at n tiles, given the weights of the field.

    `times`: returns K x for x (n, k).
    `places`: coordinates of the tiles in km, (n, 2), each tile once.
    """

    times: Callable[[Floats], Floats]
    places: Floats


@dataclass(frozen=True, kw_only=True)
class JointLevel:
    """The joint Gaussian distribution of the level at n tiles, in the target's unit.

    A tile at two times counts as two tiles.

    Let a_j be the weight of tile j in a sum, times `factor`, and o_j its `own_variance`. Then

    Var = ||L' Phi' a||² + Σ_j o_j a_j².

    Attributes
    ----------
    model, x
        The fitted model and the inputs of the tiles, (n, d).
    m, L
        Mean and factor of p(w | y) = N(m, L L'), for the standardised target.
    mean
        Mean of the level, (n,).
    factor
        Factor of the deviations of each tile, (n,).
    noise_variance
        Variance of a measurement around the level of each tile, (n,), independent between tiles; 0
        unless `measured` sets it.
    own_variance
        Variance of the level of each tile from the diagonal of the model, (n,). The diagonal is
        independent between tiles and does not belong to a tile process.
    """

    model: Model
    x: Floats
    m: Tensor
    L: Tensor
    mean: Floats
    factor: Floats
    noise_variance: Floats
    own_variance: Floats

    def __len__(self) -> int:
        return len(self.x)

    def sum_means(self, weights: Weights) -> Floats:
        """Return the means of sums over tiles with weights (n, k), (k,)."""
        return np.asarray(self._checked(weights).T @ self.mean, np.float64)

    def sum_variances(self, weights: Weights, *, noise: bool = False) -> Floats:
        """Return the variances of sums over tiles with weights (n, k), (k,).

        Parameters
        ----------
        weights
            Weights of the tiles in each sum.
        noise
            Whether to add the noise of one measurement in each tile; see `measured`.

        Raises
        ------
        DataError
            If the weights do not have one row for each tile.
        """
        checked = self._checked(weights)
        variances = self._variances(checked)
        return variances + self._independent(checked, self.noise_variance) if noise else variances

    def sum_covariance(self, weights: Weights) -> Floats:
        """Return the covariance (k, k) of sums over tiles with weights (n, k), without noise.

        The computation needs memory for n times k values.
        """
        checked = self._checked(weights)
        total: Floats = (checked.T @ rows_times(self.own, checked)).toarray()
        return total + sum(root.T @ root for root in self._roots(checked))

    def weighted_sums(self, weights: Weights) -> WeightedSums:
        """Return the joint distribution of sums over points with weights (n, k) or (n,).

        With a process of single tiles, the covariances are approximate, because each point is
        conditioned only on near points that come earlier. The variance of a single point may then
        differ from `single_variances` by some per cent.

        Raises
        ------
        DataError
            If the weights do not have one row for each point.
        """
        columns: Any = weights if sparse.issparse(weights) else numbers_of(weights, "weights")
        if len(columns.shape) == 1:
            columns = columns[:, None]
        return WeightedSums(self.sum_means(columns), self.sum_covariance(columns))

    def low_rank(self) -> Floats:
        """Return P, (n, r); the covariance of the level is P P' + diag(own) + K.

        K is the covariance of a tile process given the weights of the field; see `local`.
        """
        return self.factor[:, None] * spread(self._tile_features(), self.L)

    @property
    def process_mean(self) -> Floats:
        """The mean of the level by the Gaussian process alone, without networks, (n,)."""
        return self.mean

    @property
    def local(self) -> LocalCovariance | None:
        """K as in `low_rank`, or None if there is no tile process."""
        return None

    def paths(self, paths: int, *, seed: int = 0) -> Iterator[Floats]:
        """Return joint draws of the levels of all tiles, in batches (b, n), in total `paths` draws.

        Raises
        ------
        RequestError
            If `paths` is below 1 or above 100,000.
        """
        whole_number("sample paths", paths, 1, MAX_DRAWS)
        whole_number("seed", seed, 0, MAX_SEED)
        rng, group = np.random.default_rng(seed), _group(2 * len(self))
        starts = range(0, paths, group)
        return chain.from_iterable(self._drawn(min(group, paths - at), rng) for at in starts)

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw functions, and return the level of each at all points, (size, n).

        The levels of one draw belong together: their mean and covariance are those of
        `weighted_sums`. `paths` returns the same draws in batches.

        Raises
        ------
        RequestError
            If the size is below 1 or above 100,000.
        """
        return np.concatenate(list(self.paths(size, seed=random_state)))

    def measured(self, tests: Floats | float, devices: Floats | float | None = None) -> Self:
        """Return the distribution of measurements: each is a mean of `tests` tests in a tile.

        `tests` and `devices` are one number for all tiles, or one for each tile, (n,).

        If the noise of a model does not depend on tests, the noise variance is that of measurements
        in the data. In the PPGP family, the function variance contains noise, so the noise variance
        includes the function variance.
        """
        predicted = self.model.predict(self.x, tests, devices)
        noise = predicted.noise_variance
        if self.model.spread_is_noise:
            noise = noise + (predicted.function_variance - self.own_variance).clip(min=0)
        return replace(self, noise_variance=noise)

    def noise_of(self, tests: float, devices: float | None = None) -> Floats:
        """Return the noise variance that `measured` adds, (n,)."""
        return self.measured(tests, devices).noise_variance

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single tile, as in predictions, (n,).

        `sum_variances` also includes the covariances between tiles.
        """
        variances = [(phi @ self.L).square().sum(1).cpu() for phi in self._tile_features()]
        return torch.cat(variances).numpy() * self.factor**2 + self.own

    def closed_form_variances(self) -> Floats:
        """Return the variances of single tiles before the calibration, (n,)."""
        return np.asarray(self.single_variances() / self.factor**2, np.float64)

    def prior_covariance(self, tiles: NDArray[np.int64]) -> Floats:
        """Return the covariance of the level at m tiles before any row is known, (m, m)."""
        x = self.x[tiles]
        return self.model.kernel(x, x) + np.diag(self.own_variance[tiles])

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each tile in the model's own prediction, (n,)."""
        # An average of infinitely many tests is the level, whose variance may be 0.
        return self.model.predict(self.x, np.inf).function_variance

    @property
    def own(self) -> Floats:
        """The part of each tile's variance that is independent of other tiles; see `low_rank`."""
        return self.own_variance * self.factor**2

    def _checked(self, weights: Weights) -> Weights:
        numbers: Any = weights if sparse.issparse(weights) else numbers_of(weights, "weights")
        if len(numbers.shape) != 2 or numbers.shape[0] != len(self):
            raise DataError(
                f"expected weights of shape (n, k) for n = {len(self)} tiles, found shape "
                f"{numbers.shape}."
            )
        checked = sparse.csc_array(numbers)
        if not np.isfinite(checked.data).all():
            raise DataError("expected finite weights of tiles, found NaN or infinite weights.")
        return checked

    def _independent(self, weights: Weights, variance: Floats) -> Floats:
        """Return variances (k,) of weighted sums over tiles whose terms are independent."""
        return np.asarray(weights.multiply(weights).T @ variance, np.float64)

    def _variances(self, weights: Weights) -> Floats:
        """Return variances of sums with sparse weights (n, k), in one pass over the features."""
        variances = self._independent(weights, self.own)
        variances += np.square(self._field(weights)).sum(0)
        return variances

    def _roots(self, weights: Weights) -> list[Floats]:
        """Return matrices R (., k) with Σ R'R the covariance of k sums, without the `own` part."""
        return [self._field(weights)]

    def _field(self, weights: Weights) -> Floats:
        """Return L' Phi' a, (r, k), for sparse weights (n, k)."""
        a = sparse.csr_array(rows_times(self.factor, weights))
        left = torch.as_tensor(gathered(self._tile_features(), a)).to(self.L.device)
        return (self.L.T @ left).cpu().numpy()

    def _drawn(self, paths: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield paths, `AT_ONCE` at a time, in one pass over the features."""
        white = rng.standard_normal((self.L.shape[1], paths))
        change = self.L @ torch.as_tensor(white).to(self.L.device)
        field = spread(self._tile_features(), change)
        own_sd = np.sqrt(self.own_variance)[:, None]
        for batch in chunks(paths, AT_ONCE):
            normal = rng.standard_normal((len(self), batch.stop - batch.start))
            yield self.mean + (self.factor[:, None] * (field[:, batch] + own_sd * normal)).T

    def _tile_features(self) -> Iterator[Tensor]:
        return self.model.feature_chunks(self.x)


def joint_level(
    model: Model,
    train: Data | None,
    x: Floats,
    *,
    calibrated: bool = True,
    earlier: int = EARLIER_TILES,
    seed: int = 0,
    columns: int = 0,
) -> JointLevel:
    """Return the joint distribution of the level at tiles, for a known basis.

    `train`: the training rows; None for models that contain their training rows (``field``).
    `x`: inputs of the tiles, (n, d), each tile once at each time.
    `calibrated`: whether single tiles get the mean and variance of the map, `model.predict(x,
        level=True)`. If so, deviations are multiplied by the ratio of the standard deviations in
        the map and in the uncalibrated distribution. The result differs from the map by a few per
        cent. Models without a tile process need no calibration, because nothing is approximated.
    `earlier`: see `tile_sequence`.
    `seed`: seed of the order of the tiles.
    `columns`: number of requested sums or draws; the check of memory uses it.

    Raises RequestError if the model is a model of counts or not fitted, if rows are needed but not
    given, or if there is not enough memory. Raises DataError if two tiles are at one place and
    time. Raises NumericalError if a covariance cannot be factorised.
    """
    model.check_has_level()
    whole_number("seed", seed, 0, MAX_SEED)
    whole_number("columns", columns, 0, MAX_SEED)
    rows = None if train is None else model.as_rows(train)
    return level_of(model, x, rows, LevelOptions(calibrated, earlier, seed, columns))


@singledispatch
def level_of(model: Any, x: Floats, rows: Rows | None, options: LevelOptions) -> JointLevel:
    """Return the joint level of a model at tiles, given the training rows; see `joint_level`.

    This is the level of a model without a tile process; the catalogue registers other levels.
    """
    if rows is None:
        raise RequestError(
            f"{model.name} does not contain its training rows: give the rows that it was fitted to."
        )
    check_level(model.architecture, len(x), rows.n, options.columns)
    posterior = posterior_given(model, rows)
    return JointLevel(
        model=model,
        x=x,
        m=posterior.m,
        L=posterior.L,
        mean=posterior.mean(x),
        factor=np.full(len(x), float(model.widening)),
        noise_variance=np.zeros(len(x)),
        own_variance=model.added_variance(x),
    )


def _group(size: int) -> int:
    """Return how many sums or paths fit into one pass, in full batches; each has `size` numbers."""
    return AT_ONCE * max(1, HELD_BYTES // (WORD * AT_ONCE * max(size, 1)))


ROUNDING = 1e-6
"""Largest relative difference of a model's mean and sd of y, which may be in single precision."""


def check_rows(model: Model, y: Floats) -> None:
    """Raise DataError if targets (m,) differ from those of the training rows in mean or sd.

    Raises RequestError if the model contains its training rows.
    """
    if model.holds_rows:
        raise RequestError(f"{model.name} already contains its training rows; leave out rows=.")
    mean, sd = float(model.y_mean), float(model.y_sd)
    if not np.allclose((y.mean(), y.std()), (mean, sd), rtol=ROUNDING):
        raise DataError(
            f"expected the training rows of {model.name}, with mean {mean:g} and sd {sd:g}, found "
            f"{len(y)} rows with mean {y.mean():g} and sd {y.std():g}."
        )


def rows_times(factor: Floats, weights: Weights) -> Weights:
    """Return sparse weights (n, k), each row multiplied by its entry of `factor` (n,)."""
    return sparse.csc_array(weights.multiply(factor[:, None]))


def gathered(features: Iterator[Tensor], weights: sparse.csr_array) -> Floats:
    """Return Phi' a, (r, k), for sparse weights (n, k)."""
    total: Any = 0.0
    start = 0
    for phi in features:
        total = total + (weights[start : start + len(phi)].T @ phi.cpu().numpy()).T
        start += len(phi)
    products: Floats = total
    return products


def spread(features: Iterator[Tensor], weights: Tensor) -> Floats:
    """Return Phi w, (n, k), for weights (r, k)."""
    return torch.cat([(phi @ weights).cpu() for phi in features]).numpy()

"""The joint level of one of several targets, from the levels of their factors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from geogp.choices import MAX_SEED, whole_number
from geogp.distributions.prediction import Prediction
from geogp.models.joint.level import JointLevel, LocalCovariance, Weights, rows_times
from geogp.models.several.one_target import OneTarget
from geogp.models.several.target_laws import TargetLaws

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MixedLevel(JointLevel):
    """The joint distribution of the level of a target, c + Σ_f a_f z_f, at n tiles.

    `levels`: the joint levels of the factors z_f, which are independent.
    `calibrated`: whether they are calibrated; see `joint_level`.
    """

    model: OneTarget
    levels: tuple[JointLevel, ...]
    calibrated: bool

    @property
    def process_mean(self) -> Floats:
        """The mean of the level by the Gaussian processes alone, without networks, (n,)."""
        means = np.column_stack([level.process_mean for level in self.levels])
        return self.model.several.factors.mean(means)[:, self.model.target]

    def sum_covariance(self, weights: Weights) -> Floats:
        """Return the covariance (k, k) of sums over tiles with weights (n, k), without noise."""
        scaled = rows_times(self.factor, self._checked(weights))
        return self._squares(lambda level: level.sum_covariance(scaled))

    def low_rank(self) -> Floats:
        """Return P, (n, r): the columns of all factors side by side."""
        parts = [level.low_rank() for level in self.levels]
        for (a, _), low in zip(self.model.weighted, parts, strict=True):
            np.multiply(low, (a * self.factor).astype(low.dtype)[:, None], out=low)
        return np.hstack(parts)

    @property
    def local(self) -> LocalCovariance | None:
        """K as in `low_rank`, the sum of those of the factors; None if no factor has one."""
        pairs = zip(self.model.weighted, self.levels, strict=True)
        parts = [(a**2, own) for (a, _), level in pairs if (own := level.local) is not None]
        if not parts:
            return None
        factor = self.factor

        def times(x: Floats) -> Floats:
            scale = factor.astype(x.dtype)[:, None]
            scaled = scale * x
            product = parts[0][0] * parts[0][1].times(scaled)
            for square, own in parts[1:]:
                product += square * own.times(scaled)
            product *= scale
            return product

        return LocalCovariance(times, parts[0][1].places)

    def paths(self, paths: int, *, seed: int = 0) -> Iterator[Floats]:
        """Return joint draws of the levels of all tiles; see `JointLevel.paths`.

        `JointTargets.paths` mixes the same draws of the factors.
        """
        means = np.column_stack([level.mean for level in self.levels])
        a = self.model.several.factors.mixing[self.model.target]
        drawn = factor_paths(self.levels, paths, seed)
        return (self.mean + self.factor * ((z - means) @ a) for z in drawn)

    def measured(self, tests: Floats | float, devices: Floats | float | None = None) -> Self:
        """Return the distribution of measurements; see `JointLevel.measured`."""
        levels = tuple(level.measured(tests, devices) for level in self.levels)
        predicted = [
            Prediction(level.mean, level.single_variances(), level.noise_variance)
            for level in levels
        ]
        several, k = self.model.several, self.model.target
        laws = several.laws if self.calibrated else TargetLaws.of_factors(several.factors)
        own = laws.marginal(k, several.factors, predicted, tests, level=False)
        mixed = replace(self, levels=levels, factor=np.ones(len(self)))
        factor = np.sqrt(own.function_variance / mixed.single_variances())
        return replace(mixed, mean=own.mean, factor=factor, noise_variance=own.noise_variance)

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single tile, as in predictions, (n,)."""
        variances = self._squares(lambda level: level.single_variances())
        return np.asarray(variances * self.factor**2, np.float64)

    def closed_form_variances(self) -> Floats:
        """Return the variances of single tiles before the calibration, (n,)."""
        return self._squares(lambda level: level.closed_form_variances())

    def prior_covariance(self, tiles: NDArray[np.int64]) -> Floats:
        """Return the covariance of the level at m tiles before any row is known, (m, m)."""
        return self._squares(lambda level: level.prior_covariance(tiles))

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each tile in the model's own prediction, (n,)."""
        return self._squares(lambda level: level.stated_variances())

    def _variances(self, weights: Weights) -> Floats:
        scaled = rows_times(self.factor, weights)
        return self._squares(lambda level: level.sum_variances(scaled))

    def _squares(self, of: Callable[[JointLevel], Floats]) -> Floats:
        """Return Σ_f a_f² v_f of arrays v_f of the factors' levels."""
        return self.model.squares(map(of, self.levels))


def factor_paths(levels: Sequence[JointLevel], paths: int, seed: int) -> Iterator[Floats]:
    """Return independent draws of the levels of t factors, in batches (b, n, t)."""
    whole_number("seed", seed, 0, MAX_SEED)
    seeds = np.random.SeedSequence([seed, len(levels)]).generate_state(len(levels)).tolist()
    drawn = [level.paths(paths, seed=own) for level, own in zip(levels, seeds, strict=True)]
    return (np.stack(batches, 2) for batches in zip(*drawn, strict=True))

"""The joint level of several targets at many places."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.distributions.joint_prediction import target_number
from geogp.models.joint.level import JointLevel, LevelOptions, joint_level, level_of
from geogp.models.process.rows import Rows
from geogp.models.several.mixed_level import MixedLevel, factor_paths
from geogp.models.several.one_target import OneTarget
from geogp.models.several.several_targets import SeveralTargets
from geogp.models.several.target_laws import correlations

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JointTargets:
    """The joint Gaussian distribution of the levels of t targets at n points.

    Levels are correlated between points and between targets. They are linear in independent
    factors, so that each target's level has the closed forms of one target. The correlation between
    targets is that of the factors; `predict_distribution` corrects it for what left-out rows say
    of measurements.

    Attributes
    ----------
    several, x
        The fitted model and the inputs of the points, (n, d).
    levels
        The joint level of each factor.
    calibrated
        Whether single points get the mean and the variance of predictions.
    """

    several: SeveralTargets
    x: Floats
    levels: tuple[JointLevel, ...]
    calibrated: bool

    def __len__(self) -> int:
        return len(self.x)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the targets."""
        return self.several.names

    @property
    def mean(self) -> Floats:
        """Means of the levels, (n, t)."""
        return self.several.factors.mean(np.column_stack([level.mean for level in self.levels]))

    @property
    def correlation(self) -> Floats:
        """Correlation matrix of the levels of the targets at each point, (n, t, t)."""
        A = self.several.factors.mixing
        variances = np.column_stack([level.single_variances() for level in self.levels])
        return correlations(np.einsum("jf,nf,kf->njk", A, variances, A))

    def of_target(self, target: int | str) -> JointLevel:
        """Return the joint level of one target, given by its name or number.

        Its draws are those of all targets with the same seed and number of draws.

        Raises
        ------
        RequestError
            There is no such target.
        """
        k, n = target_number(self.names, target), len(self)
        model = OneTarget(self.several, k)
        return MixedLevel(
            model=model,
            x=self.x,
            m=torch.cat([level.m for level in self.levels]),
            L=torch.block_diag(*[level.L for level in self.levels]),
            mean=self.mean[:, k],
            factor=np.ones(n),
            noise_variance=np.zeros(n),
            own_variance=model.squares(level.own for level in self.levels),
            levels=self.levels,
            calibrated=self.calibrated,
        )

    def paths(self, paths: int, *, seed: int = 0) -> Iterator[Floats]:
        """Return joint draws of all levels, in batches (b, n, t), in total `paths` draws.

        Raises
        ------
        RequestError
            `paths` is below 1 or above 100,000.
        """
        return map(self.several.factors.mean, factor_paths(self.levels, paths, seed))

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw functions of all targets together, and return their levels, (size, n, t).

        The unit of a level is that of its target. `paths` returns the same draws in batches.

        Raises
        ------
        RequestError
            The size is below 1 or above 100,000.
        """
        return np.concatenate(list(self.paths(size, seed=random_state)))


def joint_targets(
    several: SeveralTargets,
    x: Floats,
    *,
    calibrated: bool = True,
    seed: int = 0,
    columns: int = 0,
) -> JointTargets:
    """Return the joint level of all targets at inputs; arguments and errors of `joint_level`."""
    levels = tuple(
        joint_level(model, None, x, calibrated=calibrated, seed=seed, columns=columns)
        for model in several.models
    )
    return JointTargets(several, x, levels, calibrated)


def mixed_level(
    model: OneTarget, x: Floats, rows: Rows | None, options: LevelOptions
) -> JointLevel:
    """Return the joint level of one target; raise the errors of `joint_level`."""
    levels = tuple(level_of(factor, x, rows, options) for factor in model.several.models)
    return JointTargets(model.several, x, levels, options.calibrated).of_target(model.target)

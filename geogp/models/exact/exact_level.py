"""The joint level of many places, for an exact process."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.exact.exact_process import ExactProcess
from geogp.models.joint.level import JointLevel, LevelOptions
from geogp.models.numerics.devices import CHUNK, WORD
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.process.memory import refuse_above
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

SQUARES = 6
"""Number of arrays (n, n) that are in memory at once."""


@dataclass(frozen=True, kw_only=True)
class ExactLevel(JointLevel):
    """The joint distribution of the level at n places; `root` is a factor of its covariance."""

    root: Tensor

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each place in the model's own prediction, (n,)."""
        return self.model.predict(self.x, level=True).function_variance

    def _tile_features(self) -> Iterator[Tensor]:
        yield from self.root.split(CHUNK)


def exact_level(
    model: ExactProcess, x: Floats, _rows: Rows | None, options: LevelOptions
) -> ExactLevel:
    """Return the joint level of an exact process; raise the errors of `joint_level`."""
    n = len(x)
    needed = WORD * (SQUARES * n**2 + 2 * n * options.columns)
    refuse_above(needed, f"the joint level of {n:,} places", "Give fewer places.")
    mean, covariance = model.joint(x)
    root, _ = jittered_cholesky(torch.as_tensor(covariance), 1e-9)
    factor = np.ones(n)
    if options.calibrated:
        stated = model.predict(x, level=True)
        mean, factor = stated.mean, np.sqrt(stated.function_variance / np.diag(covariance))
    return ExactLevel(
        model=model,
        x=x,
        m=torch.zeros(n, dtype=torch.float64),
        L=torch.eye(n, dtype=torch.float64),
        mean=mean,
        factor=factor,
        noise_variance=np.zeros(n),
        own_variance=np.zeros(n),
        root=root,
    )

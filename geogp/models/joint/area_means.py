"""A check of joint intervals: means of held-out rows in areas, against the joint distribution.

An area is a block of the region in one quarter. Its mean over the test rows has a joint interval,
which includes the covariances between the rows, and the noise of each row. An interval for
independent rows is too narrow, because rows of one area err together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from geogp.models.joint.level import JointLevel

Floats = NDArray[np.float64]

LEAST_ROWS = 5
"""Areas with fewer test rows are left out."""

LEVEL = 0.95
"""Default level of the intervals whose coverage is counted; reports state intervals of 95 %."""


@dataclass(frozen=True)
class AreaMeans:
    """Means of held-out rows in k areas, each array (k,).

    `rows` is the number of rows. `error` is the mean of the rows minus the expected mean. `joint`
    and `independent` are standard deviations of this error, with and without the covariances
    between the rows.
    """

    rows: NDArray[np.int64]
    error: Floats
    joint: Floats
    independent: Floats

    @classmethod
    def of(cls, measured: JointLevel, y: Floats, area: NDArray[np.int64]) -> "AreaMeans":
        """Return the means of rows y (n,) in areas with the numbers `area` (n,).

        `measured` is the joint distribution of the rows, with the noise of each.
        """
        number, count = np.unique(area, return_inverse=True, return_counts=True)[1:]
        kept = np.flatnonzero(count >= LEAST_ROWS)
        weights = sparse.csc_array((1 / count[number], (np.arange(len(y)), number)))[:, kept]
        single = measured.single_variances() + measured.noise_variance
        independent: Floats = np.asarray(weights.multiply(weights).T @ single, np.float64)
        return cls(
            count[kept],
            weights.T @ y - measured.sum_means(weights),
            np.sqrt(measured.sum_variances(weights, noise=True)),
            np.sqrt(independent),
        )

    @classmethod
    def together(cls, folds: "list[AreaMeans]") -> "AreaMeans":
        """Return the areas of several folds."""
        names = ("rows", "error", "joint", "independent")
        return cls(*(np.concatenate([getattr(fold, name) for fold in folds]) for name in names))

    def covered(self, sd: Floats, level: float = LEVEL) -> float:
        """Return the share of areas whose error lies in the normal interval with the given sd."""
        return float(np.mean(np.abs(self.error) <= special.ndtri((1 + level) / 2) * sd))


def blocks_in_quarters(cells: NDArray[np.int64], quarter: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each block and quarter, (n,), in the order of their first rows."""
    pairs = np.column_stack([cells, quarter])
    _, first, number = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.reshape(-1)]

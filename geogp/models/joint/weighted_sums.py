"""Weighted sums of the level over points, and their covariances."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from geogp.choices import MAX_DRAWS, MAX_SEED, whole_number
from geogp.distributions.prediction import check_inside

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedSums:
    """The joint Gaussian distribution of k sums.

    Attributes
    ----------
    mean
        Means, (k,), in the unit of the target.
    covariance
        Covariances, (k, k).
    """

    mean: Floats
    covariance: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviations, (k,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the central interval of each single sum, (k,) each.

        Raises
        ------
        RequestError
            If the level does not lie between 0 and 1.
        """
        check_inside("a level", level)
        half = float(special.ndtri((1 + level) / 2)) * self.sd
        return self.mean - half, self.mean + half

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw all sums jointly, (size, k).

        Raises
        ------
        RequestError
            If the size is not a whole number of 1 or more.
        """
        whole_number("a size", size, 1, MAX_DRAWS)
        whole_number("random_state", random_state, 0, MAX_SEED)
        random = np.random.default_rng(random_state)
        return random.multivariate_normal(self.mean, self.covariance, size, method="eigh")

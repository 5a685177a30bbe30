"""What a peer of the field model gets and returns."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.script import Floats
from geogp.distributions.prediction import Prediction
from geogp.models.process.data import Data

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantiles of a `QuantileLaw`."""


@dataclass(frozen=True)
class Case:
    """Rows of one split, the kilometres or quarters in a unit of each input, and a seed."""

    train: Data
    validation: Data
    test: Data
    units: Floats
    seed: int


class QuantileLaw:
    """The distributions whose quantiles at `LEVELS` are given, (n, 7).

    Between two levels, and beyond the last, the quantile is linear in the standard normal quantile.
    So the exact quantiles of a normal distribution reproduce this distribution.
    """

    def __init__(self, quantiles: Floats) -> None:
        # Quantiles fitted one by one may cross, and between equal quantiles the slope would be 0.
        spaced = np.sort(quantiles, 1) + 1e-9 * np.arange(len(LEVELS))
        self.z, self.q = stats.norm.ppf(LEVELS), spaced

    def quantile(self, p: float) -> Floats:
        """Return the quantiles at one probability, (n,)."""
        at = stats.norm.ppf(p)
        k = int(np.clip(np.searchsorted(self.z, at), 1, len(self.z) - 1))
        share = (at - self.z[k - 1]) / (self.z[k] - self.z[k - 1])
        return np.asarray(self.q[:, k - 1] + share * (self.q[:, k] - self.q[:, k - 1]))

    def cdf(self, y: Floats) -> Floats:
        """Return P(Y <= y), (n,)."""
        k = np.clip((self.q < y[:, None]).sum(1), 1, len(self.z) - 1)
        row = np.arange(len(y))
        low, high = self.q[row, k - 1], self.q[row, k]
        z = self.z[k - 1] + (y - low) / (high - low) * (self.z[k] - self.z[k - 1])
        return np.asarray(stats.norm.cdf(z))

    def crps(self, y: Floats) -> Floats:
        """Return twice the mean quantile loss over 1,000 levels, (n,)."""
        total = np.zeros(len(y))
        levels = (np.arange(1000) + 0.5) / 1000
        for level in levels:
            error = y - self.quantile(level)
            total += np.where(error >= 0, level * error, (level - 1) * error)
        return 2 * total / len(levels)


@dataclass(frozen=True)
class Answer:
    """A peer's predictions of the test rows, and the time of its fit."""

    seconds: float
    prediction: Prediction | None = None
    quantiles: QuantileLaw | None = None

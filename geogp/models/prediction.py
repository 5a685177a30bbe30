"""What every model returns for a set of points: one predictive distribution per point."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from geogp.errors import NumericalError

Floats = NDArray[np.float64]

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Prediction:
    """Gaussian predictive distributions N(mean, function_variance + noise_variance).

    Attributes
    ----------
    mean, function_variance, noise_variance
        float64 arrays of shape (n,), in the unit of the target and its square.

    Raises
    ------
    NumericalError
        Shapes differ, a value is not finite, a function variance is negative, or a
        predictive variance is not positive.
    """

    mean: Floats
    function_variance: Floats
    noise_variance: Floats

    def __post_init__(self) -> None:
        shapes = {self.mean.shape, self.function_variance.shape, self.noise_variance.shape}
        if len(shapes) != 1:
            raise NumericalError(f"expected parts of one shape, found {sorted(shapes)}.")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.variance).all()):
            raise NumericalError("a prediction holds values that are not finite.")
        if self.mean.size and (self.function_variance.min() < 0 or self.variance.min() <= 0):
            raise NumericalError(
                "expected function variances of 0 or more and positive predictive variances, "
                f"found {self.function_variance.min():.3g} and {self.variance.min():.3g}."
            )

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice") -> "Prediction":
        """Return the prediction at some of the points."""
        return Prediction(self.mean[rows], self.function_variance[rows], self.noise_variance[rows])

    @property
    def variance(self) -> Floats:
        """Predictive variance of a new measurement, shape (n,)."""
        return self.function_variance + self.noise_variance

    @property
    def sd(self) -> Floats:
        """Predictive standard deviation, shape (n,)."""
        return np.sqrt(self.variance)

    def quantile(self, probability: float) -> Floats:
        """Return the quantiles at one probability strictly between 0 and 1, shape (n,)."""
        standard = torch.special.ndtri(torch.tensor(probability, dtype=torch.float64))
        return self.mean + float(standard) * self.sd

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of the central interval of a level, each (n,)."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point; at the observed y this is the PIT. Shape (n,)."""
        return _normal_cdf((np.asarray(value, np.float64) - self.mean) / self.sd)

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y > threshold) at each point, shape (n,)."""
        return _normal_cdf((self.mean - np.asarray(threshold, np.float64)) / self.sd)

    def log_score(self, y: ArrayLike) -> Floats:
        """Return the negative log density at the observations `y`, shape (n,); lower is better."""
        residual = np.asarray(y, np.float64) - self.mean
        return 0.5 * (_LOG_2PI + np.log(self.variance) + residual**2 / self.variance)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score at `y`, shape (n,); lower is better.

        For a Gaussian with z = (y - mean) / sd (Gneiting and Raftery 2007, equation 21):
        sd * (z (2 Φ(z) - 1) + 2 φ(z) - 1 / sqrt(π)).
        """
        z = (np.asarray(y, np.float64) - self.mean) / self.sd
        density = np.exp(-0.5 * (z**2 + _LOG_2PI))
        score: Floats = self.sd * (z * (2 * _normal_cdf(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
        return score


def _normal_cdf(z: Floats) -> Floats:
    # erfc keeps the digits of the lower tail, where torch's ndtr loses them.
    tail = torch.special.erfc(torch.from_numpy(np.ascontiguousarray(z)) * -(0.5**0.5))
    found: Floats = 0.5 * tail.numpy()
    return found

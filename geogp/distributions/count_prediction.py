"""Predictive distributions of counts: Poisson or negative binomial with an uncertain rate.

log rate ~ N(m, s²); given the rate, Var(y) = rate + dispersion · rate², and y is Poisson if the
dispersion is 0. Expectations over the rate use the trapezoidal rule: they are sums over evenly
spaced nodes z = (log rate - m)/s from -9 to 9, weighted by the normal density. For such integrands,
the rule converges exponentially (Trefethen and Weideman 2014). There are 37 nodes or more; the
distance between nodes is at most the width of the distribution given the rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.distributions.count_mixtures import PLACES, REACH, Floats, RateMixture, places_of
from geogp.distributions.prediction import Prediction, check_inside
from geogp.distributions.quantity import Quantity, Variable
from geogp.errors import DataError, NumericalError

_CHUNK = 8192

_SEED = 7_205_759
"""Seed of the draws in `pit`; it is unusual, so that simulated data do not use the same draws."""


@dataclass(frozen=True)
class CountPrediction(Prediction):
    """Predictive distributions of counts, as described at the top of this module.

    `mean` is E[rate]. `function_variance` is Var(rate) = mean² (exp(s²) - 1). `noise_variance` is E
    Var(y | rate) = mean + dispersion (mean² + function_variance). A quantile is the smallest count
    with P(y <= count) >= p, so the probability of a central interval is its level or more. The tile
    variance is 0, and the shape is not used. `dispersion` (n,) is 0 or more. `known` is a cache of
    quantiles and probabilities of intervals.

    Raises NumericalError as `Prediction` does, and if a mean or dispersion is out of range, or the
    noise variance does not follow from mean, function variance and dispersion.
    """

    discrete: ClassVar[bool] = True

    dispersion: Floats = None  # type: ignore[assignment]
    known: dict[tuple[str, float], Floats] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.dispersion is None:
            object.__setattr__(self, "dispersion", np.zeros_like(self.mean))
        super().__post_init__()
        if self.dispersion.shape != self.mean.shape or not np.isfinite(self.dispersion).all():
            raise NumericalError("expected one finite dispersion for each mean.")
        if not self.mean.size:
            return
        if self.mean.min() <= 0 or self.dispersion.min() < 0:
            raise NumericalError(
                "expected means above 0 and dispersions of 0 or more, found "
                f"{self.mean.min():.3g} and {self.dispersion.min():.3g}."
            )
        expected = noise_of(self.mean, self.function_variance, self.dispersion)
        if not np.allclose(self.noise_variance, expected, rtol=1e-9, atol=0):
            raise NumericalError(
                "expected noise variances equal to mean + dispersion (mean² + function variance), "
                "found other values."
            )

    @classmethod
    def of_moments(cls, mean: Floats, variance: Floats) -> "CountPrediction":
        """Return the distribution of counts with a known rate, from mean and variance, each (n,).

        The distribution is negative binomial with dispersion (variance - mean) / mean², or Poisson
        where the variance does not exceed the mean.
        """
        dispersion = np.maximum(variance - mean, 0.0) / mean**2
        return predict_counts(np.log(mean), np.zeros(len(mean)), dispersion)

    def __getitem__(
        self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice"
    ) -> "CountPrediction":
        """Return the prediction at some of the points."""
        return CountPrediction(
            self.mean[rows],
            self.function_variance[rows],
            self.noise_variance[rows],
            dispersion=self.dispersion[rows],
            known={name: values[rows] for name, values in self.known.items()},
        )

    def columns(self) -> dict[str, Floats]:
        """Return the columns of a table that determine the distributions, by name, each (n,)."""
        return {
            "mean": self.mean,
            "function_variance": self.function_variance,
            "noise_variance": self.noise_variance,
            "dispersion": self.dispersion,
        }

    def variables(self, quantity: Quantity, level: float) -> dict[str, Variable]:
        """Return the variables of a map of predicted counts.

        The bounds are whole numbers, so the probability of the interval is its level or more.
        p_none is P(Y = 0), which is E exp(-rate) for Poisson counts.
        """
        lower, upper = self.interval(level)
        counted = f"{quantity.subject} of the tile in the quarter"
        ends = f"end of the {100 * level:g} % interval of the {counted}"
        return {
            "expected_tests": (self.mean, f"expected {counted}", "1"),
            "lower_tests": (lower, f"lower {ends}", "1"),
            "upper_tests": (upper, f"upper {ends}", "1"),
            "p_none": (
                self.cdf(0.0),
                "probability that no test is made in the tile in the quarter",
                "1",
            ),
            "log_rate_sd": (
                np.sqrt(self.log_rate_variance),
                "standard deviation of the natural logarithm of the rate of tests",
                "1",
            ),
            "dispersion": (
                self.dispersion,
                "variance of the number of tests above a Poisson variance, over the squared rate",
                "1",
            ),
        }

    @property
    def log_rate_variance(self) -> Floats:
        """s², the variance of the log rate, (n,)."""
        return np.log1p((np.sqrt(self.function_variance) / self.mean) ** 2)

    @property
    def log_rate_mean(self) -> Floats:
        """m, the mean of the log rate, (n,)."""
        return np.log(self.mean) - 0.5 * self.log_rate_variance

    def pooled(self, pieces: int) -> "CountPrediction":
        """Return the distribution of the sum over tiles with equal rates, independent given these.

        The sum of k independent negative binomial counts with equal means is negative binomial; the
        dispersion is divided by k.
        """
        return predict_counts(
            self.log_rate_mean + np.log(pieces),
            self.log_rate_variance,
            self.dispersion / pieces,
        )

    def _drawn(self, size: int, random: np.random.Generator) -> Floats:
        """Draw log rates and gamma effects of tiles, and Poisson counts given both, (size, n)."""
        shape = (size, len(self))
        rate = np.exp(
            self.log_rate_mean + np.sqrt(self.log_rate_variance) * random.standard_normal(shape)
        )
        with np.errstate(divide="ignore"):
            degree = 1 / self.dispersion
        known = np.isfinite(degree)  # with dispersion 0, there is no effect
        effect = random.gamma(np.where(known, degree, 1.0), size=shape) / np.where(known, degree, 1)
        return random.poisson(rate * np.where(known, effect, 1.0)).astype(np.float64)

    def quantile(self, probability: float) -> Floats:
        """Return the smallest counts with P(y <= count) >= probability, shape (n,)."""
        check_inside("a probability", probability)
        name = ("quantile", probability)
        if name not in self.known:
            found = np.empty(len(self))
            for mixture in self._mixtures(self.mean):
                found[mixture.rows] = mixture.quantile(probability)
            self.known[name] = found
        return self.known[name]

    def interval_mass(self, level: float) -> Floats:
        """Return the probability, bounds included, of the central interval of a level, (n,)."""
        check_inside("a level", level)
        name = ("mass", level)
        if name not in self.known:
            lower, upper = self.interval(level)
            self.known[name] = self.cdf(upper) - self.cdf(lower - 1)
        return self.known[name]

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point, shape (n,)."""
        counts = np.floor(np.broadcast_to(np.asarray(value, np.float64), self.mean.shape))
        found = np.zeros(len(self))
        for mixture in self._mixtures(np.maximum(self.mean, counts)):
            found[mixture.rows] = mixture.cdf(counts[mixture.rows])
        return found

    def pit(self, y: ArrayLike) -> Floats:
        """Return P(Y < y) + u P(Y = y), (n,), with uniform draws u from a fixed seed.

        These values are uniform if the prediction is right (Czado, Gneiting and Held 2009). For
        counts, the values P(Y <= y) are not uniform.
        """
        y = self._counts(y)
        below, upto = self.cdf(y - 1), self.cdf(y)
        share = np.random.default_rng(_SEED).random(len(y))
        return np.clip(below + share * (upto - below), 0.0, 1.0)

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y > threshold) at each point, shape (n,)."""
        return 1.0 - self.cdf(threshold)

    def log_score(self, y: ArrayLike) -> Floats:
        """Return -log P(Y = y), (n,); raise DataError if an observation is not a count."""
        y = self._counts(y)
        found = np.empty(len(self))
        for mixture in self._mixtures(np.maximum(self.mean, y)):
            found[mixture.rows] = -mixture.log_mass(y[mixture.rows])
        return found

    def crps(self, y: ArrayLike) -> Floats:
        """Return sum over k >= 0 of (P(Y <= k) - 1[y <= k])², shape (n,); lower is better.

        The sum ends where less than 1e-6 of probability is left. Raises DataError if an observation
        is not a count.
        """
        y = self._counts(y)
        found = np.empty(len(self))
        for mixture in self._mixtures(self.mean):
            found[mixture.rows] = mixture.crps(y[mixture.rows])
        return found

    def power_mean(self, base: float) -> Floats:
        """Raise NumericalError, because counts are not logarithms."""
        raise NumericalError(
            f"a mean of {base:g}^y does not exist for counts y, because counts are not transformed."
        )

    def _counts(self, y: ArrayLike) -> Floats:
        counts = np.asarray(y, np.float64)
        if counts.shape != self.mean.shape or ((counts < 0) | (counts != np.floor(counts))).any():
            raise DataError(
                f"expected {len(self)} counts, whole numbers of 0 or more, found shape "
                f"{counts.shape}{'' if counts.shape != self.mean.shape else ' and other values'}."
            )
        return counts

    def _mixtures(self, counts: Floats) -> Iterator[RateMixture]:
        """Yield the rows in chunks; each row has as many rates as it needs at `counts`."""
        m, s = self.log_rate_mean, np.sqrt(self.log_rate_variance)
        ratio = s / np.sqrt(self.dispersion + 1 / np.maximum(counts, 1.0))
        spacing = 2 * REACH / (np.array(PLACES[1:]) - 1)
        needed = 1 + np.searchsorted(-spacing, -1 / np.maximum(ratio, 1e-9))
        needed = np.where(s == 0, 0, np.minimum(needed, len(PLACES) - 1))
        for level, places in enumerate(PLACES):
            rows = np.flatnonzero(needed == level)
            z = places_of(places)
            share = np.exp(-0.5 * z**2)
            chunk = max(1, _CHUNK * PLACES[1] // places)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                rate = np.exp(m[part, None] + s[part, None] * z)
                yield RateMixture(part, rate, share / share.sum(), self.dispersion[part])


def noise_of(mean: Floats, function_variance: Floats, dispersion: Floats) -> Floats:
    """Return E Var(y | rate) = mean + dispersion (mean² + function_variance)."""
    return mean + dispersion * (mean**2 + function_variance)


def predict_counts(log_rate: Floats, variance: Floats, dispersion: Floats) -> CountPrediction:
    """Return the prediction for mean and variance of the log rate, and a dispersion, each (n,).

    Raises NumericalError if a rate overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.exp(log_rate + 0.5 * variance)
        function = (mean * np.sqrt(np.expm1(variance))) ** 2
        noise = noise_of(mean, function, dispersion)
    return CountPrediction(mean, function, noise, dispersion=dispersion)

"""Predictive distributions of counts: Poisson or negative binomial with an uncertain rate.

The log rate has the distribution N(m, s²). Given the rate, a count y has variance rate + dispersion
· rate²; if the dispersion is 0, y is Poisson. Expectations over the rate use the trapezoidal rule:
sums over evenly spaced nodes z = (log rate - m) / s from -9 to 9, weighted by the normal density.
The rule converges exponentially (Trefethen and Weideman 2014). The number of nodes is at least 37,
and larger if the distribution of y given the rate is narrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import numbers_of, rows_of, value_shown
from geogp.choices import MAX_SEED, whole_number
from geogp.distributions.count_mixtures import PLACES, REACH, Floats, RateMixture, places_of
from geogp.distributions.prediction import Prediction, check_inside
from geogp.distributions.quantity import Quantity, Variable
from geogp.errors import DataError, NumericalError

_CHUNK = 8192

_SEED = 7_205_759
"""Seed of the random draws in `pit`; it is unusual, so that no simulation has the same draws."""


@dataclass(frozen=True)
class CountPrediction(Prediction):
    """Predictive distributions of counts: Poisson or negative binomial with an uncertain rate.

    `mean` is E[rate]. `function_variance` is Var(rate) = mean² (exp(s²) - 1), where s² is the
    variance of the log rate. `noise_variance` is E[Var(y | rate)] = mean + dispersion (mean² +
    function_variance). A quantile is the smallest count with P(y <= count) >= p. `dispersion` (n,)
    is 0 or more. `tile_variance` is 0, and `shape` is not used. `known` is a cache of results.

    Raises NumericalError like `Prediction`, or if a mean or dispersion is out of range, or if the
    noise variance differs from the formula above.
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
        """Return distributions of counts with known rates, from means and variances, each (n,).

        A distribution is negative binomial with dispersion (variance - mean) / mean², or Poisson if
        the variance does not exceed the mean.
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
        """Return the arrays (n,) that determine the distributions, by column name."""
        names = ("mean", "function_variance", "noise_variance", "dispersion")
        return {name: getattr(self, name) for name in names}

    def variables(self, quantity: Quantity, level: float) -> dict[str, Variable]:
        """Return the variables of a map of counts, by name: values, long name and CF unit.

        The ends of an interval are whole numbers, so its probability is `level` or more. `p_none`
        is P(Y = 0); for Poisson counts, this is E[exp(-rate)].
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
                "(variance - Poisson variance) / squared rate, for the number of tests",
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
        """Return the distribution of the total count in `pieces` tiles with equal uncertain rates.

        Given the rate, the counts are independent and negative binomial. The sum of the counts is
        negative binomial with the dispersion divided by `pieces`.
        """
        whole_number("a number of tiles", pieces, 1, MAX_SEED)
        return predict_counts(
            self.log_rate_mean + np.log(pieces),
            self.log_rate_variance,
            self.dispersion / pieces,
        )

    def _drawn(self, size: int, random: np.random.Generator) -> Floats:
        """Draw counts (size, n), Poisson given a random rate and a random gamma factor."""
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
        """Return the probability of the central interval of a level, both ends included, (n,)."""
        check_inside("a level", level)
        name = ("mass", level)
        if name not in self.known:
            lower, upper = self.interval(level)
            self.known[name] = self.cdf(upper) - self.cdf(lower - 1)
        return self.known[name]

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point, shape (n,)."""
        counts = np.floor(
            np.broadcast_to(rows_of(value, len(self), "values", infinite=True), self.mean.shape)
        )
        found = np.zeros(len(self))
        for mixture in self._mixtures(np.maximum(self.mean, counts)):
            found[mixture.rows] = mixture.cdf(counts[mixture.rows])
        return found

    def pit(self, y: ArrayLike) -> Floats:
        """Return P(Y < y) + u P(Y = y), (n,), with uniform random draws u from a fixed seed.

        If the prediction is right, these values are uniform (Czado, Gneiting and Held 2009). The
        values P(Y <= y) of counts are not uniform.
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
        """Return the CRPS, Σ_k (P(Y <= k) - 1[y <= k])² over k >= 0, shape (n,); lower is better.

        The sum ends where P(Y > k) is below 1e-6. Raises DataError if an observation is not a
        count.
        """
        y = self._counts(y)
        found = np.empty(len(self))
        for mixture in self._mixtures(self.mean):
            found[mixture.rows] = mixture.crps(y[mixture.rows])
        return found

    def power_mean(self, base: float) -> Floats:
        """Raise NumericalError, because counts are not logarithms."""
        raise NumericalError(
            f"expected predictions of logarithms for the mean of {value_shown(base)}^y, found "
            "counts."
        )

    def _counts(self, y: ArrayLike) -> Floats:
        counts = numbers_of(y, "counts")
        if counts.shape != self.mean.shape or ((counts < 0) | (counts != np.floor(counts))).any():
            raise DataError(
                f"expected {len(self)} counts, whole numbers of 0 or more, found shape "
                f"{counts.shape}{'' if counts.shape != self.mean.shape else ' and other values'}."
            )
        return counts

    def _mixtures(self, counts: Floats) -> Iterator[RateMixture]:
        """Yield the distributions in chunks of rows; rows with large counts need more nodes."""
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
    """Return the noise variance mean + dispersion (mean² + function_variance)."""
    return mean + dispersion * (mean**2 + function_variance)


def predict_counts(log_rate: Floats, variance: Floats, dispersion: Floats) -> CountPrediction:
    """Return predictions from the means and variances of log rates, and dispersions, each (n,).

    Raises NumericalError if a rate overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.exp(log_rate + 0.5 * variance)
        function = (mean * np.sqrt(np.expm1(variance))) ** 2
        noise = noise_of(mean, function, dispersion)
    return CountPrediction(mean, function, noise, dispersion=dispersion)

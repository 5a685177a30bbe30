"""Predictive distributions of percentages of tests that succeeded.

The probability of success at a place has a beta distribution with the mean m and the variance v of
a model, and the number of successes among n tests is binomial. So the number has a beta-binomial
distribution (Skellam 1948): percentages of few tests have few possible values, and none is below 0
or above 100.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, betaln, gammaln

from geogp.arguments import rows_of, value_shown
from geogp.choices import above_zero
from geogp.distributions.prediction import Prediction, check_inside
from geogp.errors import DataError, NumericalError

Floats = NDArray[np.float64]

BINOMIAL = "binomial"
"""The law of percentages of tests that succeeded."""

WHOLE = 100.0
"""The percentage if all tests succeed."""

LEAST = 1e-3
"""Smallest mean probability of success, and of failure: a linear model may predict less."""

WIDEST = 1 / 3
"""Largest variance of the probability, as a share of the variance m (1 - m) of a single test.

A probability of which nothing is known, with a uniform distribution, has this share.
"""

NARROWEST = 1e-9
"""Smallest variance of the probability of success."""

MANY = tuple(4**k for k in range(1, 9))
"""Rows are summed together up to so many tests; of more, the percentage is a beta variable."""

POINTS = 401
"""Points of the integral of the continuous ranked probability score of a beta variable."""

_CHUNK = 1 << 13
_SUMMED = 1 << 21
_SEED = 8_164_453
"""Seed of the random draws in `pit`; it is unusual, so that no simulation has the same draws."""


@dataclass(frozen=True)
class SharePrediction(Prediction):
    """Predictive distributions of the percentage of tests that succeed.

    `mean` is 100 m and `function_variance` is 100² v, with m and v as above. `tests` are the
    numbers of tests, (n,); infinite for the probability of success itself, in per cent.
    `noise_variance` is 100² (m (1 - m) - v) / n. `shape` is not used. A quantile is the smallest
    possible percentage with P(y <= percentage) >= p.

    Raises NumericalError like `Prediction`, or if there is no such beta distribution.
    """

    tests: Floats = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.tests is None:
            object.__setattr__(self, "tests", np.full(len(self.mean), np.inf))
        super().__post_init__()
        m, v = self._moments
        if not (m * (1 - m) > v).all() or not (v > 0).all() or not (self.tests >= 1).all():
            raise NumericalError(
                "expected percentages between 0 and 100 with variances above 0 and below those of "
                "a single test, of 1 test or more, found others."
            )

    @classmethod
    def of(cls, level: Prediction, tests: ArrayLike = np.inf, further: ArrayLike = 0.0) -> Self:
        """Return percentages of tests from the linear prediction of the level, in per cent.

        `further` is the variance of other noise of a row than that of its tests. A mean that no
        percentage can have becomes the nearest possible one, and the square of the step is added to
        its variance, which is then at most the largest possible one.
        """
        m = np.clip(level.mean / WHOLE, LEAST, 1 - LEAST)
        most = WIDEST * m * (1 - m)
        total = (level.function_variance + np.asarray(further, np.float64)) / WHOLE**2
        total = total + np.square(level.mean / WHOLE - m)
        v = np.clip(total, NARROWEST, most)
        n = np.broadcast_to(np.asarray(tests, np.float64), m.shape)
        tile = np.minimum(level.tile_variance, WHOLE**2 * v)
        noise = WHOLE**2 * (m * (1 - m) - v) / n
        return cls(WHOLE * m, WHOLE**2 * v, noise, tile, tests=n)

    @classmethod
    def of_moments(cls, mean: Floats, variance: Floats) -> "SharePrediction":  # noqa: ARG003
        """Return percentages with a known probability of success, from their means, (n,)."""
        level = Prediction(mean, np.full(len(mean), WHOLE**2 * NARROWEST), np.zeros(len(mean)))
        return cls.of(level)

    def of_tests(self, tests: Floats) -> "SharePrediction":
        """Return the percentages of other numbers of tests, (n,)."""
        return SharePrediction.of(self, tests)

    def of_tests_like(self, other: Any) -> "SharePrediction":
        """Return the percentages of as many tests as another prediction has, (n,)."""
        return self.of_tests(other.tests)

    def widened(self, factor: float) -> "SharePrediction":
        """Return the prediction with the standard deviation of the level multiplied by a factor."""
        above_zero("a factor", factor, np.inf, "for standard deviations")
        parts = (factor**2 * part for part in (self.function_variance, self.tile_variance))
        function, tile = parts
        return SharePrediction.of(Prediction(self.mean, function, 0 * self.mean, tile), self.tests)

    def columns(self) -> dict[str, Floats]:
        """Return the arrays (n,) that determine the distributions, by column name."""
        names = ("mean", "function_variance", "tile_variance", "noise_variance")
        return {**{name: getattr(self, name) for name in names}, "share_tests": self.tests}

    @property
    def _moments(self) -> tuple[Floats, Floats]:
        return self.mean / WHOLE, self.function_variance / WHOLE**2

    @property
    def _few(self) -> NDArray[np.bool_]:
        """Whether the tests of each row are so few that their percentages are discrete, (n,)."""
        return np.asarray(self.tests <= MANY[-1], np.bool_)

    @property
    def _smooth(self) -> tuple[Floats, Floats]:
        """Both parameters of the beta distribution with the mean and the variance of y / 100."""
        m, total = self.mean / WHOLE, self.variance / WHOLE**2
        return _beta(m, np.minimum(total, WIDEST * m * (1 - m)))

    def _sums(self) -> Iterator[tuple[NDArray[np.intp], Floats, Floats]]:
        """Yield rows with few tests, their numbers (r, 1), and P(successes <= k), (r, k + 1)."""
        a, b = _beta(*self._moments)
        for least, most in zip((0, *MANY), MANY, strict=False):
            rows = np.flatnonzero((self.tests > least) & (self.tests <= most))
            k = np.arange(most + 1.0)
            size = -(-_SUMMED // len(k))
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                n = self.tests[part, None]
                mass = np.exp(_log_mass(np.minimum(k, n), n, a[part, None], b[part, None]))
                yield part, n, np.minimum(np.cumsum(np.where(k <= n, mass, 0.0), axis=1), 1.0)

    def quantile(self, probability: float) -> Floats:
        """Return the smallest percentages with P(y <= percentage) >= probability, (n,)."""
        check_inside("a probability", probability)
        found: Floats = np.asarray(WHOLE * betaincinv(*self._smooth, probability), np.float64)
        for rows, n, below in self._sums():
            successes = np.minimum((below < probability - 1e-12).sum(1), n[:, 0])
            found[rows] = WHOLE * successes / n[:, 0]
        return found

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point, (n,)."""
        value = np.broadcast_to(rows_of(value, len(self), "values", infinite=True), self.mean.shape)
        share = np.clip(value / WHOLE, 0.0, 1.0)
        found = np.asarray(betainc(*self._smooth, share))
        for rows, n, below in self._sums():
            successes = np.floor(share[rows] * n[:, 0] + 1e-9).astype(np.intp)
            found[rows] = np.take_along_axis(below, successes[:, None], 1)[:, 0]
        return np.where(value < 0, 0.0, np.where(value >= WHOLE, 1.0, found))

    def _below(self, y: Floats) -> Floats:
        """Return P(Y < y), (n,)."""
        step = np.where(self._few, WHOLE / self.tests, 0.0)
        return self.cdf(np.where(self._few, y - 0.5 * step, y))

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y >= threshold) at each point, (n,): all of 5 tests are at least 100 %."""
        value = np.broadcast_to(rows_of(threshold, len(self), "values", infinite=True), len(self))
        few = self._few
        tests = np.where(few, self.tests, 1.0)
        next_up = (np.ceil(value / WHOLE * tests - 1e-9) - 0.5) * WHOLE / tests
        return 1.0 - self.cdf(np.where(few, next_up, value))

    def interval_mass(self, level: float) -> Floats:
        """Return the probability of the central interval of a level, both ends included, (n,)."""
        check_inside("a level", level)
        lower, upper = self.interval(level)
        return self.cdf(upper) - self._below(lower)

    def pit(self, y: ArrayLike) -> Floats:
        """Return P(Y < y) + u P(Y = y), (n,), with uniform random draws u from a fixed seed.

        If the prediction is right, these values are uniform (Czado, Gneiting and Held 2009).
        """
        y = self._percentages(y)
        below, share = self._below(y), np.random.default_rng(_SEED).random(len(self))
        return np.asarray(below + share * (self.cdf(y) - below), np.float64)

    def log_score(self, y: ArrayLike) -> Floats:
        """Return -log P(Y = y), (n,), of a probability of success -log density in per cent."""
        y, a_b = self._percentages(y) / WHOLE, _beta(*self._moments)
        counted = np.isfinite(self.tests)
        n = np.where(counted, self.tests, 1.0)
        mass = _log_mass(np.round(y * n), n, *a_b)
        a, b = a_b
        inner = np.clip(y, LEAST**2, 1 - LEAST**2)
        density = (a - 1) * np.log(inner) + (b - 1) * np.log1p(-inner) - betaln(a, b)
        return -np.where(counted, mass, density - np.log(WHOLE))

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score ∫ (P(Y <= t) - 1[y <= t])² dt, (n,)."""
        y = self._percentages(y)
        found = np.zeros(len(self))
        for rows, n, below in self._sums():
            k = np.arange(below.shape[1])
            reached = y[rows, None] / WHOLE * n <= k + 1e-9
            found[rows] = np.where(k < n, (below - reached) ** 2, 0.0).sum(1) * WHOLE / n[:, 0]
        t = np.linspace(0, 1, POINTS)
        (many,) = np.nonzero(~self._few)
        a, b = (part[many] for part in self._smooth)
        for start in range(0, len(many), _CHUNK):
            part = slice(start, start + _CHUNK)
            reached = y[many[part], None] <= WHOLE * t
            gap = (betainc(a[part, None], b[part, None], t) - reached) ** 2
            found[many[part]] = WHOLE * np.trapezoid(gap, t, axis=1)
        return found

    @property
    def has_power_mean(self) -> bool:
        """Whether the mean of a power of y exists: no, because y is no logarithm."""
        return False

    def power_mean(self, base: float) -> Floats:
        """Raise NumericalError, because percentages are not logarithms."""
        raise NumericalError(
            f"expected predictions of logarithms for the mean of {value_shown(base)}^y, found "
            "percentages."
        )

    def _drawn(self, size: int, random: np.random.Generator) -> Floats:
        """Draw percentages, (size, n): binomial with a random probability of success."""
        share = random.beta(*_beta(*self._moments), (size, len(self)))
        counted = np.isfinite(self.tests)
        n = np.where(counted, self.tests, 1.0)
        return WHOLE * np.where(counted, random.binomial(n.astype(np.int64), share) / n, share)

    def _percentages(self, y: ArrayLike) -> Floats:
        found = np.broadcast_to(self._checked_values(y), self.mean.shape)
        check_percentages(found)
        return found


def check_percentages(y: Floats) -> None:
    """Raise DataError unless all values (n,) are from 0 to 100."""
    wrong = (y < 0) | (y > WHOLE)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"expected percentages from 0 to 100, found {y[row]:g} in row {row}.")


def error_variance(y: Floats, tests: Floats) -> Floats:
    """Return the variances of percentages (n,) around their probabilities, from binomial counts.

    With the percentage p of all tests together, they are p (100 - p) / tests: those of the rows
    themselves would be 0 for rows without a failure. Raises DataError if a percentage is impossible
    or all tests succeeded or failed.
    """
    check_percentages(y)
    if 0 < y.max() <= 1 and tests.max() < WHOLE:
        raise DataError(
            f"expected percentages from 0 to 100, found none above {y.max():g}, which {WHOLE:g} "
            "tests or more could give. Multiply fractions by 100."
        )
    p = float(np.average(y, weights=tests))
    if not 0 < p < WHOLE:
        raise DataError(
            f"all {int(tests.sum()):,} tests {'succeeded' if p else 'failed'}; there is nothing to "
            "learn."
        )
    return p * (WHOLE - p) / tests


def _beta(m: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Return both parameters of the beta distributions with means and variances, each (n,)."""
    both = m * (1 - m) / v - 1
    return m * both, (1 - m) * both


def _log_mass(k: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    """Return log P(k successes among n tests) of beta-binomial distributions."""
    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(choose + betaln(k + a, n - k + b) - betaln(a, b))

"""Predictive distributions of counts: a Poisson or negative binomial law of an uncertain rate.

log rate ~ N(m, s²); given the rate, Var(y) = rate + dispersion · rate², Poisson where the
dispersion is 0. Expectations over the rate are sums over evenly spaced places z of (log rate -
m)/s from -9 to 9 with the normal density as weights: the trapezoidal rule, which for such
integrands converges exponentially (Trefethen and Weideman 2014). There are 37 places or more, so
many that neighbours lie no farther apart than the law given the rate is wide.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geogp.errors import DataError, NumericalError
from geogp.models.prediction import Prediction

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_REACH = 9.0
_PLACES = (1, 37, 73, 145, 289, 577)
"""Numbers of places; one is enough for a rate that is known."""

_TAIL = 1e-6
"""Sums over counts end where so little probability is left."""

_MOST_STEPS = 4096
"""Counts up to this are visited one by one; beyond, sums take as many evenly spaced ones."""

_CHUNK = 8192

_SEED = 7_205_759
"""Of the draws in transforms: none that data would be made from, whose draws would be the same."""


@dataclass(frozen=True)
class CountPrediction(Prediction):
    """Predictive distributions of counts; see the module's head.

    `mean` is E[rate], `function_variance` Var(rate) = mean² (exp(s²) - 1), `noise_variance`
    the mean of Var(y | rate), mean + dispersion (mean² + function_variance). Quantiles are the
    least counts whose probability of that or less reaches p, so that a central interval holds
    its level or more. The tile variance is 0, and the shape is not used.

    Attributes
    ----------
    dispersion
        (n,), 0 or more.
    known
        Quantiles and masses of intervals that were worked out before, which subsets take along.

    Raises
    ------
    NumericalError
        As for `Prediction`; a mean or dispersion is out of range, or the noise variance is not
        that of mean, function variance and dispersion.
    """

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
                "expected noise variances mean + dispersion (mean² + function variance), found "
                "others."
            )

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
        """Return all that the distributions follow from, by name, each (n,)."""
        return {
            "mean": self.mean,
            "function_variance": self.function_variance,
            "noise_variance": self.noise_variance,
            "dispersion": self.dispersion,
        }

    @property
    def log_rate_variance(self) -> Floats:
        """s², the variance of the log rate, (n,)."""
        return np.log1p((np.sqrt(self.function_variance) / self.mean) ** 2)

    @property
    def log_rate_mean(self) -> Floats:
        """m, the mean of the log rate, (n,)."""
        return np.log(self.mean) - 0.5 * self.log_rate_variance

    @property
    def centre(self) -> Floats:
        """The median, which minimises the absolute error, (n,)."""
        return self.quantile(0.5)

    def pooled(self, pieces: int) -> "CountPrediction":
        """Return the sum over several tiles of one rate whose scatter is independent.

        A sum of k negative binomial counts of one mean is negative binomial with dispersion
        divided by k.
        """
        return predict_counts(
            self.log_rate_mean + np.log(pieces),
            self.log_rate_variance,
            self.dispersion / pieces,
        )

    def quantile(self, probability: float) -> Floats:
        """Return the least counts with P(y <= count) >= probability, shape (n,)."""
        if not 0 < probability < 1:
            raise NumericalError(f"expected a probability between 0 and 1, found {probability}.")
        name = ("quantile", probability)
        if name not in self.known:
            found = np.empty(len(self))
            for mixture in self._mixtures(self.mean):
                found[mixture.rows] = mixture.quantile(probability)
            self.known[name] = found
        return self.known[name]

    def interval_mass(self, level: float) -> Floats:
        """Return the probability of the central interval of a level, bounds included, (n,)."""
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
        """Return P(Y < y) + u P(Y = y) with u uniform, drawn from a fixed seed; shape (n,).

        Uniform where the prediction is right (Czado, Gneiting and Held 2009), which P(Y <= y)
        of a count cannot be.
        """
        y = self._counts(y)
        below, upto = self.cdf(y - 1), self.cdf(y)
        share = np.random.default_rng(_SEED).random(len(y))
        return np.clip(below + share * (upto - below), 0.0, 1.0)

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y > threshold) at each point, shape (n,)."""
        return 1.0 - self.cdf(threshold)

    def log_score(self, y: ArrayLike) -> Floats:
        """Return -log P(Y = y), shape (n,); lower is better.

        Raises
        ------
        DataError
            An observation is no count.
        """
        y = self._counts(y)
        found = np.empty(len(self))
        for mixture in self._mixtures(np.maximum(self.mean, y)):
            found[mixture.rows] = -mixture.log_mass(y[mixture.rows])
        return found

    def crps(self, y: ArrayLike) -> Floats:
        """Return sum over k >= 0 of (P(Y <= k) - 1[y <= k])², shape (n,); lower is better.

        The sum ends where less than 1e-6 of probability is left.

        Raises
        ------
        DataError
            An observation is no count.
        """
        y = self._counts(y)
        found = np.empty(len(self))
        for mixture in self._mixtures(self.mean):
            found[mixture.rows] = mixture.crps(y[mixture.rows])
        return found

    def power_mean(self, base: float) -> Floats:
        """Refuse: counts are not logarithms.

        Raises
        ------
        NumericalError
            Always.
        """
        raise NumericalError(f"counts are modelled as they are; no mean of {base:g}^y is needed.")

    def _counts(self, y: ArrayLike) -> Floats:
        counts = np.asarray(y, np.float64)
        if counts.shape != self.mean.shape or ((counts < 0) | (counts != np.floor(counts))).any():
            raise DataError(
                f"expected {len(self)} counts, whole numbers of 0 or more, found shape "
                f"{counts.shape}{'' if counts.shape != self.mean.shape else ' and other values'}."
            )
        return counts

    def _mixtures(self, counts: Floats) -> Iterator["_Mixture"]:
        """Yield the rows in chunks, each with as many rates as its widest row needs at `counts`."""
        m, s = self.log_rate_mean, np.sqrt(self.log_rate_variance)
        ratio = s / np.sqrt(self.dispersion + 1 / np.maximum(counts, 1.0))
        spacing = 2 * _REACH / (np.array(_PLACES[1:]) - 1)
        needed = 1 + np.searchsorted(-spacing, -1 / np.maximum(ratio, 1e-9))
        needed = np.where(s == 0, 0, np.minimum(needed, len(_PLACES) - 1))
        for level, places in enumerate(_PLACES):
            rows = np.flatnonzero(needed == level)
            z = _places(places)
            share = np.exp(-0.5 * z**2)
            chunk = max(1, _CHUNK * _PLACES[1] // places)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                rate = np.exp(m[part, None] + s[part, None] * z)
                yield _Mixture(part, rate, share / share.sum(), self.dispersion[part])


def _places(number: int) -> Floats:
    return np.linspace(-_REACH, _REACH, number) if number > 1 else np.zeros(1)


def noise_of(mean: Floats, function_variance: Floats, dispersion: Floats) -> Floats:
    """Return E Var(y | rate) = mean + dispersion (mean² + function_variance)."""
    return mean + dispersion * (mean**2 + function_variance)


def predict_counts(log_rate: Floats, variance: Floats, dispersion: Floats) -> CountPrediction:
    """Return the prediction for a log rate with mean and variance, and a dispersion, each (n,).

    Raises
    ------
    NumericalError
        A rate overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.exp(log_rate + 0.5 * variance)
        function = (mean * np.sqrt(np.expm1(variance))) ** 2
        noise = noise_of(mean, function, dispersion)
    return CountPrediction(mean, function, noise, dispersion=dispersion)


@dataclass(frozen=True)
class _Mixture:
    """Some rows: their rates (k, q), the weights of the q places, and dispersions (k,)."""

    rows: Rows
    rate: Floats
    share: Floats
    dispersion: Floats

    def at(self, chosen: NDArray[np.bool_] | Rows) -> "_Mixture":
        return _Mixture(self.rows[chosen], self.rate[chosen], self.share, self.dispersion[chosen])

    def cdf(self, counts: Floats) -> Floats:
        """P(Y <= count), (k,); 0 below 0."""
        found = np.zeros(len(self.rows))
        chosen = np.flatnonzero(counts >= 0)
        walk, wanted = _Walk(self.at(chosen)), counts[chosen]
        reached = np.zeros(len(chosen))
        while len(walk.open):
            walk.close(reached, walk.count >= wanted[walk.open], walk.total)
            if not walk.step():
                break
        late = walk.late
        if len(late):
            reached[late] = self.at(chosen[late]).far_cdf(wanted[late])
        found[chosen] = np.minimum(reached, 1.0)
        return found

    def far_cdf(self, counts: Floats) -> Floats:
        """P(Y <= count) from incomplete beta and gamma functions, (k,); 0 below 0.

        Between counts it is their smooth continuation.
        """
        k = np.maximum(counts, 0.0)[:, None]
        poisson = self.dispersion == 0
        found = np.empty(len(self.rows))
        found[poisson] = special.gammaincc(k[poisson] + 1, self.rate[poisson]) @ self.share
        spread = ~poisson
        a = 1 / self.dispersion[spread, None]
        below = special.betainc(a, k[spread] + 1, a / (a + self.rate[spread]))
        found[spread] = below @ self.share
        return np.where(counts < 0, 0.0, np.minimum(found, 1.0))

    def log_mass(self, counts: Floats) -> Floats:
        """Log P(Y = count), (k,)."""
        k = counts[:, None]
        with np.errstate(divide="ignore"):
            log_rate = np.log(self.rate)
        poisson = self.dispersion == 0
        found = np.empty(self.rate.shape)
        found[poisson] = k[poisson] * log_rate[poisson] - self.rate[poisson]
        spread = ~poisson
        a = 1 / self.dispersion[spread, None]
        odds = log_rate[spread] - np.log(a)
        gammas = special.gammaln(k[spread] + a) - special.gammaln(a)
        found[spread] = gammas + k[spread] * odds - (k[spread] + a) * np.logaddexp(0.0, odds)
        mixed: Floats = special.logsumexp(found + np.log(self.share), axis=1)
        return mixed - special.gammaln(counts + 1)

    def quantile(self, probability: float) -> Floats:
        """Return the least counts with P(Y <= count) >= probability, (k,)."""
        found = np.zeros(len(self.rows))
        walk = _Walk(self)
        while len(walk.open):
            count = np.full(len(walk.open), float(walk.count))
            walk.close(found, walk.total >= probability, count)
            if not walk.step():
                break
        late = walk.late
        if len(late):
            found[late] = self.at(late).search(probability)
        return found

    def search(self, probability: float) -> Floats:
        """Find quantiles by halving."""
        low, high = np.full(len(self.rows), -1.0), np.ones(len(self.rows))
        while (short := self.far_cdf(high) < probability).any():
            low, high = np.where(short, high, low), np.where(short, 2 * high + 1, high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            enough = self.far_cdf(middle) >= probability
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def crps(self, y: Floats) -> Floats:
        """Return the score at counts `y`, (k,)."""
        found = np.zeros(len(self.rows))
        walk = _Walk(self)
        score = np.zeros(len(self.rows))
        while len(walk.open):
            at = walk.open
            score[at] += (walk.total - (y[at] <= walk.count)) ** 2
            # What is left of the sum where y lies beyond the tail: ones.
            beyond = np.maximum(0.0, y - 1 - walk.count)
            walk.close(found, walk.total >= 1 - _TAIL, (score + beyond)[at])
            if not walk.step():
                break
        for row in walk.late.tolist():
            found[row] = self.at(np.array([row])).summed_crps(float(y[row]))
        return found

    def summed_crps(self, y: float) -> float:
        """Return the score of one row, each side of y by at most 4,096 evenly spaced counts."""
        top = float(self.search(1 - _TAIL)[0])
        below = self._sum_squares(0.0, min(y, top + 1), above=False) + max(0.0, y - top - 1)
        return below + self._sum_squares(y, top + 1, above=True)

    def _sum_squares(self, start: float, stop: float, *, above: bool) -> float:
        """Sum F² or (1 - F)² over the counts from start to before stop."""
        if stop <= start:
            return 0.0
        step = np.ceil((stop - start) / _MOST_STEPS)
        lows = np.arange(start, stop, step)
        widths = np.minimum(step, stop - lows)
        # Between two counts the incomplete functions go on smoothly.
        middle = lows + (widths - 1) / 2
        total = 0.0
        for at in range(0, len(middle), 512):
            counts = middle[at : at + 512]
            F = self.at(np.zeros(len(counts), np.intp)).far_cdf(counts)
            total += float(((1 - F if above else F) ** 2 * widths[at : at + 512]).sum())
        return total


class _Walk:
    """P(Y <= count) for count 0, 1, 2, ..., of the rows that are still open.

    p_0 = (1 + dispersion rate)^(-1/dispersion), or exp(-rate), and p_(k+1) = p_k · rate
    (1 + dispersion k) / ((1 + dispersion rate)(k + 1)), for each rate. Rows whose p_0 would
    underflow, and those still open after 4,096 counts, are `late`.
    """

    def __init__(self, mixture: _Mixture) -> None:
        dispersion, rate = mixture.dispersion[:, None], mixture.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.log1p(dispersion * rate) / dispersion
        exponent = np.where(dispersion > 0, spread, rate)
        # Beyond z = 7 lies 1e-12 of the weight: there it may underflow.
        slow = exponent[:, _places(rate.shape[1]) <= 7.0].max(1) > 690.0
        self.late: Rows = np.flatnonzero(slow)
        self.open: Rows = np.flatnonzero(~slow)
        self.count = 0
        self.share = mixture.share
        self.dispersion = mixture.dispersion[self.open]
        self.ratio = (rate / (1 + dispersion * rate))[self.open]
        self.mass = np.exp(-exponent[self.open])
        self.total: Floats = self.mass @ self.share

    def close(self, found: Floats, done: NDArray[np.bool_], values: Floats) -> None:
        """Write values (of the open rows) for those that are done, and close them."""
        if not done.any():
            return
        found[self.open[done]] = values[done]
        left = ~done
        self.open, self.total = self.open[left], self.total[left]
        self.dispersion, self.ratio = self.dispersion[left], self.ratio[left]
        self.mass = self.mass[left]

    def step(self) -> bool:
        """Go on to the next count; False where the rest is late."""
        if self.count >= _MOST_STEPS:
            self.late = np.concatenate([self.late, self.open])
            return False
        growth = (1 + self.dispersion * self.count) / (self.count + 1)
        self.mass *= self.ratio * growth[:, None]
        self.count += 1
        self.total = self.total + self.mass @ self.share
        return True

"""Distributions of counts with uncertain rates, as weighted sums of distributions with known rates.

`count_prediction.py` explains the distributions and the known rates (nodes) of the sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

REACH = 9.0
"""Number of standard deviations of the log rate that the nodes cover on each side of its mean."""

PLACES = (1, 37, 73, 145, 289, 577, 1153, 2305, 4609)
"""Possible numbers of nodes; a known rate needs one node. With s the standard deviation of the log
rate, the largest number is enough for counts y with s sqrt(y) up to 256. Probabilities of larger
counts are less accurate.
"""

_TAIL = 1e-6
"""Sums over counts end where the remaining probability is less than this."""

_MAX_STEPS = 4096
"""The largest number of terms in a sum over counts; longer sums use evenly spaced counts."""


def places_of(number: int) -> Floats:
    """Return `number` evenly spaced nodes from -9 to 9; a single node is 0."""
    return np.linspace(-REACH, REACH, number) if number > 1 else np.zeros(1)


@dataclass(frozen=True)
class RateMixture:
    """Distributions of k counts: rates (k, q) at q nodes, weights (q,), and dispersions (k,)."""

    rows: Rows
    rate: Floats
    share: Floats
    dispersion: Floats

    def at(self, chosen: NDArray[np.bool_] | Rows) -> "RateMixture":
        """Return the distributions of some of the rows."""
        return RateMixture(
            self.rows[chosen], self.rate[chosen], self.share, self.dispersion[chosen]
        )

    def cdf(self, counts: Floats) -> Floats:
        """Return P(Y <= count) for each row, (k,); the result is 0 for counts below 0."""
        found = np.zeros(len(self.rows))
        chosen = np.flatnonzero(counts >= 0)
        walk, wanted = _Walk(self.at(chosen)), counts[chosen]
        reached = np.zeros(len(chosen))
        for count in walk:
            walk.close(reached, count >= wanted[walk.open], walk.total)
        if len(late := walk.late):
            reached[late] = self.at(chosen[late]).far_cdf(wanted[late])
        found[chosen] = np.minimum(reached, 1.0)
        return found

    def far_cdf(self, counts: Floats) -> Floats:
        """Return P(Y <= count), (k,), by incomplete beta and gamma functions; 0 for counts below 0.

        For counts between whole numbers, the functions interpolate smoothly.
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
        """Return log P(Y = count), (k,)."""
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
        """Return the smallest counts with P(Y <= count) >= probability, (k,)."""
        found = np.zeros(len(self.rows))
        walk = _Walk(self)
        for count in walk:
            walk.close(found, walk.total >= probability, np.full(len(walk.open), float(count)))
        if len(late := walk.late):
            found[late] = self.at(late).search(probability)
        return found

    def search(self, probability: float) -> Floats:
        """Return the quantiles (k,), computed by bisection."""
        low, high = np.full(len(self.rows), -1.0), np.ones(len(self.rows))
        while (short := self.far_cdf(high) < probability).any():
            low, high = np.where(short, high, low), np.where(short, 2 * high + 1, high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            enough = self.far_cdf(middle) >= probability
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def crps(self, y: Floats) -> Floats:
        """Return the CRPS at counts `y`, (k,)."""
        found = np.zeros(len(self.rows))
        walk = _Walk(self)
        score = np.zeros(len(self.rows))
        for count in walk:
            at = walk.open
            score[at] += (walk.total - (y[at] <= count)) ** 2
            # If y is beyond the tail, each further term of the sum up to y is 1.
            beyond = np.maximum(0.0, y - 1 - count)
            walk.close(found, walk.total >= 1 - _TAIL, (score + beyond)[at])
        for row in walk.late.tolist():
            found[row] = self.at(np.array([row])).summed_crps(float(y[row]))
        return found

    def summed_crps(self, y: float) -> float:
        """Return the CRPS of one row, from at most 4,096 evenly spaced counts on each side of y."""
        top = float(self.search(1 - _TAIL)[0])
        below = self._sum_squares(0.0, min(y, top + 1), above=False) + max(0.0, y - top - 1)
        return below + self._sum_squares(y, top + 1, above=True)

    def _sum_squares(self, start: float, stop: float, *, above: bool) -> float:
        """Return Σ P(Y <= k)² or Σ P(Y > k)² over counts k from `start` to `stop` - 1."""
        if stop <= start:
            return 0.0
        step = np.ceil((stop - start) / _MAX_STEPS)
        lows = np.arange(start, stop, step)
        widths = np.minimum(step, stop - lows)
        # `middle` may lie between two counts; there, the incomplete functions interpolate smoothly.
        middle = lows + (widths - 1) / 2
        total = 0.0
        for at in range(0, len(middle), 512):
            counts = middle[at : at + 512]
            F = self.at(np.zeros(len(counts), np.intp)).far_cdf(counts)
            total += float(((1 - F if above else F) ** 2 * widths[at : at + 512]).sum())
        return total


class _Walk:
    """An iterator over the counts 0, 1, 2, ... that computes P(Y <= count) for unfinished rows.

    Given a rate, p_k = P(Y = k). p_0 is (1 + dispersion rate)^(-1/dispersion), or exp(-rate) if the
    dispersion is 0; p_(k+1) = p_k · rate (1 + dispersion k) / ((1 + dispersion rate)(k + 1)).
    `late` are the rows whose p_0 underflows, or that need more than 4,096 counts.
    """

    def __init__(self, mixture: RateMixture) -> None:
        dispersion, rate = mixture.dispersion[:, None], mixture.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.log1p(dispersion * rate) / dispersion
        exponent = np.where(dispersion > 0, spread, rate)
        # Only 1e-12 of the weight lies beyond z = 7; p_0 may underflow there.
        slow = exponent[:, places_of(rate.shape[1]) <= 7.0].max(1) > 690.0
        self.late: Rows = np.flatnonzero(slow)
        self.open: Rows = np.flatnonzero(~slow)
        self.share = mixture.share
        self.dispersion = mixture.dispersion[self.open]
        self.ratio = (rate / (1 + dispersion * rate))[self.open]
        self.mass = np.exp(-exponent[self.open])
        self.total: Floats = self.mass @ self.share

    def close(self, found: Floats, done: NDArray[np.bool_], values: Floats) -> None:
        """Write the values of rows that are done to `found`, and remove these rows from `open`."""
        if not done.any():
            return
        found[self.open[done]] = values[done]
        left = ~done
        self.open, self.total = self.open[left], self.total[left]
        self.dispersion, self.ratio = self.dispersion[left], self.ratio[left]
        self.mass = self.mass[left]

    def __iter__(self) -> Iterator[int]:
        """Yield the counts; after each count, `total` is P(Y <= count) of the open rows."""
        for count in range(_MAX_STEPS + 1):
            if not len(self.open):
                return
            yield count
            growth = (1 + self.dispersion * count) / (count + 1)
            self.mass *= self.ratio * growth[:, None]
            self.total = self.total + self.mass @ self.share
        self.late = np.concatenate([self.late, self.open])

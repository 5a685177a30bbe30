"""Regions where all points together meet a threshold with a given probability, from joint draws.

Points are ordered by p(s), the marginal probability that point s meets the threshold. The joint
region of level l is the largest set D(rho) = {s: p(s) >= rho} with

    P(the threshold is met everywhere in D(rho)) >= l,

and the excursion function F(s) is the largest l whose region contains s (Bolin and Lindgren 2015,
definitions 1 to 3, with their one-parameter family of sets). The estimate of F at the k-th point is
the share of draws in which the first k points all meet the threshold. So for each draw, only the
first point that misses the threshold is stored.
"""

from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from geogp.choices import MIN_DRAWS
from geogp.distributions.prediction import check_inside
from geogp.errors import DataError, RequestError

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

_CERTAIN = 0.95
"""Level of the intervals that describe the Monte Carlo error."""


@dataclass(frozen=True)
class JointRegion:
    """A region where all points together meet the threshold with probability `level` or more.

    `level`: smallest probability that the threshold is met everywhere in the region.
    `inside`: the points of the region, (n,).
    `excursion`: F at each point, (n,).
    `probability`, `lower`, `upper`: share of draws in which all points of the region meet the
        threshold, and its exact binomial 95 % interval; all are 1 for an empty region.
    `fewest`, `most`: 95 % interval of the number of points in the region, for the Monte Carlo
        error.
    """

    level: float
    inside: Booleans
    excursion: Floats
    probability: float
    lower: float
    upper: float
    fewest: int
    most: int


@dataclass
class FirstMisses:
    """For each draw, the first point that misses the threshold, in falling order of probability.

    `score` (n,) is the standardised distance from the threshold; the marginal probability of a
    point is Φ(score). A point with the score -inf is in no region. Raises DataError if there is no
    score, or a score is NaN.
    """

    score: Floats
    _first: list[NDArray[np.int64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not len(self.score) or np.isnan(self.score).any():
            raise DataError("expected one score or more, and no missing score.")
        self._order = np.argsort(-self.score, kind="stable")
        self._rank = np.argsort(self._order).astype(np.int32)[:, None]

    def add(self, met: Booleans) -> None:
        """Add draws (b, n), True where the threshold is met; raise DataError on another shape."""
        n = len(self.score)
        if met.ndim != 2 or met.shape[1] != n:
            raise DataError(
                f"expected draws of shape (b, n) for n = {n} points, found shape {met.shape}."
            )
        self._first.append(np.where(met.T, np.int32(n), self._rank).min(0).astype(np.int64))

    def region(self, level: float = 0.95) -> JointRegion:
        """Return the region where all points meet the threshold with probability `level` or more.

        Raises RequestError if the level is not between 0 and 1, or draws are below `MIN_DRAWS`.
        """
        check_inside("a level", level)
        first = np.sort(np.concatenate(self._first)) if self._first else np.zeros(0, np.int64)
        draws, n = len(first), len(self.score)
        if draws < MIN_DRAWS:
            raise RequestError(
                f"expected {MIN_DRAWS} draws or more for a joint region, found {draws}."
            )
        # The number of draws in which the points up to the k-th all meet the threshold.
        all_met = draws - np.searchsorted(first, np.arange(n), side="right")
        ranked = self.score[self._order]
        # Points with equal scores enter the set together, so they all have the same share.
        last = np.searchsorted(-ranked, -ranked, side="right") - 1
        share = all_met[last] / draws
        excursion = np.empty(n)
        # A set is at most as probable as each of its points, and the probability of a point is
        # known without draws.
        excursion[self._order] = np.minimum(share, special.ndtr(ranked))
        inside = excursion >= level
        size = int(inside.sum())
        hits = int(all_met[size - 1]) if size else draws
        ends = scipy.stats.binomtest(hits, draws).proportion_ci(_CERTAIN, "exact")
        lower, upper = (float(ends.low), float(ends.high)) if size else (1.0, 1.0)
        fewest, most = _quantile_ends(first, 1 - level)
        possible = int((special.ndtr(ranked) >= level).sum())
        return JointRegion(
            level,
            inside,
            excursion,
            hits / draws,
            lower,
            upper,
            min(fewest, possible, size),
            max(min(most, possible), size),
        )


def _quantile_ends(ordered: NDArray[np.int64], probability: float) -> tuple[int, int]:
    """Return two order statistics that enclose the `probability` quantile in 95 % of cases."""
    tail = (1 - _CERTAIN) / 2
    low = int(scipy.stats.binom.ppf(tail, len(ordered), probability))
    high = int(scipy.stats.binom.ppf(1 - tail, len(ordered), probability))
    return int(ordered[low - 1]) if low else 0, int(ordered[min(high, len(ordered) - 1)])

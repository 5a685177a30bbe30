"""Predictive distributions of amounts and proportions, by way of normal scores.

The normal score of a measurement y is z = Φ^(-1)(F(y)), where F is the distribution of all
measurements (the Gaussian anamorphosis of geostatistics; Chilès and Delfiner 2012, section 6.2). A
model of z gives a distribution of y = h(z) that never leaves the range of amounts. The smallest
amount may have a probability of its own, such as that of a dry day: y is 0 if z is below a limit.
So may the largest proportion.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri

from geogp.arguments import rows_of, value_shown
from geogp.distributions.prediction import Prediction, check_inside
from geogp.errors import DataError, NumericalError

Floats = NDArray[np.float64]

LAWS = ("positive", "proportion")
"""Amounts of 0 or more, and proportions from 0 to 1."""

KNOTS = ((2_000, 9), (400, 7), (100, 5), (0, 3))
"""Smallest number of measurements inside the range, and the number of knots of h for so many."""

MIN_INSIDE = 10
"""Smallest number of measurements inside the range."""

TAIL_ROWS = 3
"""Number of measurements beyond the last knot, where h goes on as a straight line."""

FARTHEST_KNOT = 2.3
"""Largest distance of a knot from the median of the measurements inside, in normal scores."""

REACH, MOST = 60.0, 200.0
"""The straight line ends so many normal scores beyond the last knot, or where log y has changed by
so much: floating point can square these amounts.
"""

LEAST_STEP = 1e-6
"""Smallest step between knots, as a share of the range of log y."""

LEAST_VARIANCE = 1e-200
"""Variance of an amount that is certain up to rounding."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
"""Nodes and weights of the integrals over quantiles."""

FARTHEST_NODE = 6.5
"""The integrals are between these quantiles of a standard normal law."""

_SEED = 4_604_021
"""Seed of the random draws in `pit`; it is unusual, so that no simulation has the same draws."""


@dataclass(frozen=True)
class NormalScores:
    """The increasing map h from normal scores z to amounts.

    Between the limits, log y (of proportions logit y) is linear in z between knots, and beyond them
    up to `REACH`.

    `law`: one of `LAWS`. `scores`, `values`: knots, z and log y or logit y, (k,) each, increasing.
    `lower`, `upper`: y is 0 where z is up to `lower`, and 1 from `upper` on. They are infinite if
    no measurement has this value.

    Raises DataError if the law is unknown, knots do not increase, or limits are not in order.
    """

    law: str
    scores: Floats
    values: Floats
    lower: float = -np.inf
    upper: float = np.inf

    def __post_init__(self) -> None:
        knots = np.array([self.scores, self.values])
        if self.law not in LAWS or knots.shape[1] < 2 or not np.isfinite(knots).all():
            raise DataError(f"expected two or more knots of one of the laws {', '.join(LAWS)}.")
        if not np.diff(knots).min() > 0 or not self.lower < self.upper:
            raise DataError("expected increasing knots of normal scores, and limits in order.")

    @classmethod
    def of(cls, law: str, y: Floats) -> Self:
        """Return the map for measurements, (n,).

        Raises DataError if a measurement is outside the range of the law, or too few are inside.
        """
        most = np.inf if law == "positive" else 1.0
        wrong = (y < 0) | (y > most)
        if wrong.any():
            row = int(wrong.argmax())
            what = "amounts of 0 or more" if law == "positive" else "proportions from 0 to 1"
            raise DataError(f"expected {what} for law={law!r}, found {y[row]:g} in row {row}.")
        inside = np.sort(_unbounded(law, y[(y > 0) & (y < most)]))
        n, ends = len(inside), np.array([(y == 0).mean(), 1 - (y == most).mean()])
        if n < MIN_INSIDE or inside[0] == inside[-1]:
            raise DataError(
                f"expected {MIN_INSIDE} or more measurements strictly inside the range of "
                f"law={law!r}, not all equal, found {n}."
            )
        count = next(knots for least, knots in KNOTS if n >= least)
        far = min(FARTHEST_KNOT, float(ndtri(1 - TAIL_ROWS / n)))
        share = ndtr(np.linspace(-far, far, count))
        values = np.quantile(inside, share, method="hazen")
        # Of many equal measurements, one knot is enough.
        apart = np.append(np.diff(values) > LEAST_STEP * (inside[-1] - inside[0]), True)
        if apart.sum() < 2:
            values, share, apart = inside[[0, -1]], np.array([0.5, n - 0.5]) / n, np.ones(2, bool)
        scores, values = ndtri(ends[0] + (ends[1] - ends[0]) * share)[apart], values[apart]
        slope = np.diff(values)[[0, -1]] / np.diff(scores)[[0, -1]]
        run = np.minimum(REACH, MOST / slope) * [-1, 1]
        scores = np.concatenate([[scores[0] + run[0]], scores, [scores[-1] + run[1]]])
        beyond = values[[0, -1]] + run * slope
        return cls(law, scores, np.insert(beyond, 1, values), *map(float, ndtri(ends)))

    def described(self) -> dict[str, Any]:
        """Return the fields as values that JSON can store; None for infinite limits."""
        ends = {name: getattr(self, name) for name in ("lower", "upper")}
        return {
            "law": self.law,
            "scores": self.scores.tolist(),
            "values": self.values.tolist(),
            **{name: end if np.isfinite(end) else None for name, end in ends.items()},
        }

    def score(self, y: Floats) -> Floats:
        """Return the normal scores of amounts; that of an end of the range is the limit there."""
        with np.errstate(divide="ignore"):
            u = _unbounded(self.law, np.clip(y, 0.0, np.inf if self.law == "positive" else 1.0))
        z = np.clip(np.interp(u, self.values, self.scores), self.lower, self.upper)
        return np.where(u == -np.inf, self.lower, np.where(u == np.inf, self.upper, z))

    def amount(self, z: Floats) -> Floats:
        """Return the amounts h(z) of normal scores."""
        u = np.interp(z, self.scores, self.values)
        y = np.exp(u) if self.law == "positive" else expit(u)
        return np.where(z <= self.lower, 0.0, np.where(z >= self.upper, 1.0, y))

    def log_slope(self, y: Floats) -> Floats:
        """Return the logarithm of dz/dy at amounts strictly inside the range, (n,)."""
        u = _unbounded(self.law, y)
        piece = np.searchsorted(self.values, u).clip(1, len(self.values) - 1) - 1
        slopes = np.diff(self.scores) / np.diff(self.values)
        inner = np.log(y) if self.law == "positive" else np.log(y) + np.log1p(-y)
        return np.asarray(np.log(slopes[piece]) - inner)

    def limits(self, y: Floats) -> NDArray[np.int8]:
        """Return -1 for amounts at the lower end of the range, 1 at the upper end, and 0 else."""
        upper = (y == 1) if self.law == "proportion" else np.zeros(len(y), np.bool_)
        return np.asarray(upper.astype(np.int8) - (y == 0), np.int8)


def _unbounded(law: str, y: Floats) -> Floats:
    """Return log y, or logit y of proportions."""
    return np.asarray(np.log(y) if law == "positive" else logit(y), np.float64)


@dataclass(frozen=True)
class AmountPrediction(Prediction):
    """Predictive distributions of amounts or proportions y = h(z), from those of normal scores z.

    `mean` and the variances are those of y; its variance has the same parts as that of z. `cdf`
    contains the probability of an amount at an end of the range, such as 0, so that an interval may
    contain more than its level (see `interval_mass`). `log_score` of such an amount is that of its
    probability, and of others that of the density. `normal` is the prediction of z, `scores` is h.

    Raises NumericalError like `Prediction`.
    """

    normal: Prediction = None  # type: ignore[assignment]
    scores: NormalScores = None  # type: ignore[assignment]

    @classmethod
    def of(cls, normal: Prediction, scores: NormalScores) -> "AmountPrediction":
        """Return the predictions of amounts with these predictions of normal scores."""
        below, upto = (normal.cdf(end) for end in (scores.lower, scores.upper))
        mean, square = 1 - upto, 1 - upto
        for _, share, amounts in _quantiles(normal, scores, below, upto):
            mean = mean + share * amounts
            square = square + share * amounts**2
        # An amount that is nearly certain has a variance, too.
        variance = np.maximum(square - mean**2, LEAST_VARIANCE)
        parts = {
            name: variance * (getattr(normal, name) / normal.variance)
            for name in ("function_variance", "tile_variance", "noise_variance")
        }
        return cls(mean, **parts, normal=normal, scores=scores)

    def __getitem__(
        self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice"
    ) -> "AmountPrediction":
        """Return the prediction at some of the points."""
        return AmountPrediction.of(self.normal[rows], self.scores)

    def widened(self, factor: float) -> "AmountPrediction":
        """Return the prediction with the standard deviations of z multiplied by a factor."""
        return AmountPrediction.of(self.normal.widened(factor), self.scores)

    def columns(self) -> dict[str, Floats]:
        """Return the arrays (n,) that determine the predictions of z, by column name."""
        return {f"score_{name}": values for name, values in self.normal.columns().items()}

    def quantile(self, probability: float) -> Floats:
        """Return the smallest amounts with P(y <= amount) >= probability, (n,).

        Raises
        ------
        RequestError
            The probability does not lie strictly between 0 and 1.
        """
        return self.scores.amount(self.normal.quantile(probability))

    def interval_mass(self, level: float) -> Floats:
        """Return the probability of the central interval of a level, both ends included, (n,)."""
        check_inside("a level", level)
        lower, upper = self.interval(level)
        return self.cdf(upper) - self._below(lower)

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point, (n,)."""
        value = rows_of(value, len(self), "values", infinite=True)
        most = np.inf if self.scores.law == "positive" else 1.0
        inside = self.normal.cdf(self.scores.score(np.broadcast_to(value, self.mean.shape)))
        return np.where(value < 0, 0.0, np.where(value >= most, 1.0, inside))

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y > threshold) at each point, (n,)."""
        return 1.0 - self.cdf(threshold)

    def pit(self, y: ArrayLike) -> Floats:
        """Return P(Y < y) + u P(Y = y), (n,), with uniform random draws u from a fixed seed.

        If the prediction is right, these values are uniform (Czado, Gneiting and Held 2009).
        """
        y = self._checked_values(y)
        below, share = self._below(y), np.random.default_rng(_SEED).random(len(self))
        return below + share * (self.cdf(y) - below)

    def log_score(self, y: ArrayLike) -> Floats:
        """Return -log P(Y = y) of amounts at an end of the range, else -log density, (n,)."""
        y = np.broadcast_to(self._checked_values(y), self.mean.shape)
        inside = (y > 0) & (y < (np.inf if self.scores.law == "positive" else 1.0))
        usual = np.where(inside, y, 0.5)
        score = self.normal.log_score(self.scores.score(usual)) - self.scores.log_slope(usual)
        with np.errstate(divide="ignore"):
            mass = -np.log(self.cdf(y) - self._below(y))
        return np.where(inside, score, mass)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score at amounts `y`, (n,); lower is better.

        With quantiles q(p), it is ∫ 2 (1[y <= q(p)] - p) (q(p) - y) dp (Laio and Tamea 2007).
        """
        y = np.broadcast_to(self._checked_values(y), self.mean.shape)
        below, upto = (self.normal.cdf(end) for end in (self.scores.lower, self.scores.upper))
        found: Floats = y * below**2 + np.abs(1 - y) * (1 - upto) ** 2
        middle = self.cdf(y).clip(below, upto)
        for over, ends in ((0.0, (below, middle)), (1.0, (middle, upto))):
            for p, share, amounts in _quantiles(self.normal, self.scores, *ends):
                found += 2 * share * (over - p) * (amounts - y)
        return found

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw amounts of shape (size, n), independent between points; see `Prediction.sample`."""
        return self.scores.amount(self.normal.sample(size, random_state=random_state))

    @property
    def has_power_mean(self) -> bool:
        """Whether the mean of a power of y exists: no, because y is no logarithm."""
        return False

    def power_mean(self, base: float) -> Floats:
        """Raise NumericalError, because amounts are not logarithms."""
        raise NumericalError(
            f"expected predictions of logarithms for the mean of {value_shown(base)}^y, found "
            "amounts."
        )

    def _below(self, y: Floats) -> Floats:
        """Return P(Y < y), (n,)."""
        upper = self.normal.cdf(self.scores.upper)
        at_one = self.scores.limits(np.broadcast_to(y, self.mean.shape)) > 0
        return np.where(y <= 0, 0.0, np.where(at_one, upper, self.cdf(y)))


def _quantiles(
    normal: Prediction, scores: NormalScores, below: Floats, upto: Floats
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield probabilities between two others, their weights, and amounts at these quantiles.

    All are (n,). The weights are those of Gauss's rule for the normal density.
    """
    first, last = (ndtri(p).clip(-FARTHEST_NODE, FARTHEST_NODE) for p in (below, upto))
    nodes = [first + (last - first) * (node + 1) / 2 for node in NODES]
    weights = [weight * np.exp(-(t**2) / 2) for weight, t in zip(WEIGHTS, nodes, strict=True)]
    scale = (upto - below) / np.maximum(sum(weights), np.finfo(float).tiny)
    for t, weight in zip(nodes, weights, strict=True):
        z = normal.mean + normal.sd * normal.shape.quantile(ndtr(t))
        yield ndtr(t), weight * scale, scores.amount(z)

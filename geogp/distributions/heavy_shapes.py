"""Shapes with heavy tails: Student's t, and scale mixtures of normals."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from geogp.distributions.shapes import Floats, Shape
from geogp.errors import RequestError

_LOG_2PI = math.log(2 * math.pi)

VALUES_AT_ONCE = 1 << 21
"""Largest number of values in memory at once; each row has a value for each component."""

_MIN_PROBABILITY = 1e-300
_NEWTON_STEPS = 200
_NEWTON_TOLERANCE = 1e-8
_STIRLING_FROM = 50.0


class HeavyTails(Shape):
    """A symmetric shape whose tails fall like a power, so that E[exp(t X)] diverges.

    Subclasses define `quantile` and `cdf`; both must be accurate in the lower tail.
    """

    symmetric = True

    @property
    def has_power_mean(self) -> bool:
        """False, because E[exp(t X)] does not exist unless t is 0."""
        return False

    def from_normal(self, z: Floats) -> Floats:
        """Return the quantiles at the probabilities Φ(z), computed in the lower tail."""
        z = np.asarray(z, np.float64)
        lower = self.quantile(np.maximum(special.ndtr(-np.abs(z)), _MIN_PROBABILITY))
        return np.where(z > 0, -lower, lower)

    def normal_score(self, x: Floats) -> Floats:
        """Return Φ^(-1)(P(X <= x)), computed from the smaller tail probability."""
        x = np.asarray(x, np.float64)
        lower, upper = self.cdf(x), self.survival(x)
        tail = special.ndtri(np.maximum(np.minimum(lower, upper), _MIN_PROBABILITY))
        return np.where(lower < upper, tail, -tail)

    def survival(self, x: Floats) -> Floats:
        """Return P(X > x) = P(X <= -x)."""
        return self.cdf(-np.asarray(x, np.float64))

    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)]: 1 if t = 0, else infinity.

        For a finite mixture, the mean is finite, but depends mostly on the widest component.
        """
        return np.where(np.asarray(t) == 0, 1.0, np.inf)


@dataclass(frozen=True)
class StudentT(HeavyTails):
    """Student's t with `df` degrees of freedom, standardised to mean 0 and variance 1.

    X = T sqrt((df - 2) / df), where T is a Student-t variable.

    Raises RequestError unless `df` is finite and above 2.
    """

    df: float

    def __post_init__(self) -> None:
        check_df(self.df)

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shape in a table: skewness 0, tail weight 1, and `df`."""
        return {**super().columns, "df": self.df}

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles at the given probabilities."""
        found = special.stdtrit(self.df, probability) * self._scale
        return np.asarray(found, np.float64)

    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""
        found = special.stdtr(self.df, np.asarray(x, np.float64) / self._scale)
        return np.asarray(found, np.float64)

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of X, with c = sqrt((df - 2) / df) and t = x / c.

        log Γ((df + 1) / 2) - log Γ(df / 2) - ½ log(df π c²) - (df + 1) / 2 log(1 + t² / df).
        """
        return self._standard_log_density(x / self._scale) - math.log(self._scale)

    def crps(self, x: Floats) -> Floats:
        """Return the CRPS, from a formula by Jordan, Krüger and Lerch (2019, appendix A).

        Let c = sqrt((df - 2) / df) and t = x / c. Let F and f be the distribution function and the
        density of T, and B the beta function. The CRPS is c times t (2 F(t) - 1) + 2 f(t) (df + t²)
        / (df - 1) - 2 sqrt(df) / (df - 1) B(½, df - ½) / B(½, df / 2)².
        """
        df = self.df
        t = np.asarray(x, np.float64) / self._scale
        density = np.exp(self._standard_log_density(t))
        # B(½, b) = sqrt(π) Γ(b) / Γ(b + ½).
        betas = math.exp(2 * log_gamma_step(df / 2) - log_gamma_step(df - 0.5)) / math.sqrt(math.pi)
        return self._scale * (
            t * (2 * special.stdtr(df, t) - 1)
            + 2 * density * (df / (df - 1) + t**2 / (df - 1))
            - 2 * math.sqrt(df) / (df - 1) * betas
        )

    def _standard_log_density(self, t: Floats) -> Floats:
        df = self.df
        constant = log_gamma_step(df / 2) - 0.5 * math.log(df * math.pi)
        return constant - (df + 1) / 2 * np.log1p(np.square(t) / df)

    @property
    def _scale(self) -> float:
        return math.sqrt((self.df - 2) / self.df)


class Mixture(HeavyTails):
    """A scale mixture of normals, X = s_I Z with P(I = i) = w_i, with mean 0 and variance 1.

    `weights` are the probabilities w_i, (q,). Methods take one x for each row.
    """

    weights: Floats

    @abstractmethod
    def scales(self, rows: slice) -> Floats:
        """Return the scales s_i of some rows, (c, q), or (1, q) if all rows have equal scales."""

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles, by Newton's method on the log of the tail probability.

        The quantile lies between the quantiles of the narrowest and the widest component. If a
        Newton step leaves this interval, the middle of the interval is used instead.
        """
        return self._each(mixture_quantile, probability)

    def cdf(self, x: Floats) -> Floats:
        """Return Σ w_i Φ(x / s_i)."""
        return self._each(lambda w, s, v: special.ndtr(v[:, None] / s) @ w, x)

    def log_density(self, x: Floats) -> Floats:
        """Return log Σ w_i φ(x / s_i) / s_i."""

        def density(w: Floats, s: Floats, v: Floats) -> Floats:
            parts = np.log(w) - np.log(s) - 0.5 * (_LOG_2PI + np.square(v[:, None] / s))
            return special.logsumexp(parts, axis=1)

        return self._each(density, x)

    def crps(self, x: Floats) -> Floats:
        """Return the CRPS, Σ_i w_i A(x, s_i²) - ½ Σ_ij w_i w_j A(0, s_i² + s_j²).

        Let A(m, v) = 2 sqrt(v) φ(m / sqrt(v)) + m (2 Φ(m / sqrt(v)) - 1) (Grimit et al. 2006).
        """

        def near(w: Floats, s: Floats, v: Floats) -> Floats:
            z = v[:, None] / s
            density = np.exp(-0.5 * (_LOG_2PI + z**2))
            return (2 * s * density + v[:, None] * (2 * special.ndtr(z) - 1)) @ w

        return self._each(near, x) - self._half_spread(len(x))

    def _half_spread(self, n: int) -> Floats | float:
        """Return ½ E|X - X'| of n rows, which is the second sum in `crps`."""
        i, j = np.triu_indices(len(self.weights))

        def spread(w: Floats, s: Floats, _: Floats) -> Floats:
            pairs = np.sqrt(np.square(s)[:, i] + np.square(s)[:, j])
            found: Floats = pairs @ (w[i] * w[j] * np.where(i == j, 1.0, 2.0))
            return found / math.sqrt(2 * math.pi)

        return self._each(spread, np.zeros(n), more=len(self.weights))

    def _each(self, function: Callable[..., Floats], *values: Floats, more: int = 1) -> Floats:
        """Return `function` of weights, scales (c, q) and values (c,), computed in chunks, (n,).

        For each component, the function computes `more` values.
        """
        n, q = len(values[0]), len(self.weights)
        found = np.empty(n)
        size = max(1, VALUES_AT_ONCE // (q * more))
        for start in range(0, n, size):
            rows = slice(start, start + size)
            parts = [one[rows] for one in values]
            scales = np.broadcast_to(self.scales(rows), (len(parts[0]), q))
            found[rows] = function(self.weights, scales, *parts)
        return found


def log_gamma_step(a: float) -> float:
    """Return log Γ(a + ½) - log Γ(a) for a > 0, without loss of digits for large a.

    For a >= 50, this is Stirling's series, ½ log a - 1/(8a) + 1/(192a³) - 1/(640a⁵).
    """
    if a < _STIRLING_FROM:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def check_df(df: float) -> None:
    """Raise RequestError unless degrees of freedom are finite and above 2."""
    if not 2 < df < math.inf:
        raise RequestError(
            f"expected finite degrees of freedom above 2, found {df}. At 2 or below, the variance "
            "is not finite."
        )


def mixture_quantile(w: Floats, s: Floats, p: Floats, start: Floats | None = None) -> Floats:
    """Return quantiles of mixtures of normals, found by Newton's method in the lower tail.

    `start` (c,) are initial values in the lower tail, by default the normal quantiles.
    """
    tail = np.minimum(p, 1 - p)
    z = special.ndtri(tail)
    low, high = s.max(1) * z, s.min(1) * z
    x = np.clip(z if start is None else start, low, high)
    log_tail = np.log(tail)
    rows = np.flatnonzero(high > low)
    for _ in range(_NEWTON_STEPS):
        if not len(rows):
            break
        at, scales = x[rows], s[rows]
        share = at[:, None] / scales
        cdf = special.ndtr(share) @ w
        density = (np.exp(-0.5 * share**2) / scales) @ w / math.sqrt(2 * math.pi)
        below = cdf < tail[rows]
        low[rows] = np.where(below, at, low[rows])
        high[rows] = np.where(below, high[rows], at)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = at - (np.log(cdf) - log_tail[rows]) * cdf / density
        newton = (step >= low[rows]) & (step <= high[rows])
        x[rows] = np.where(newton, step, 0.5 * (low[rows] + high[rows]))
        # The error after a Newton step is about the square of the step.
        moved = np.abs(x[rows] - at)
        near = newton & (moved <= _NEWTON_TOLERANCE * np.abs(at))
        rows = rows[~near & (high[rows] > low[rows])]
    return np.where(p < 0.5, x, -x)

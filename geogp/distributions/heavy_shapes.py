"""Shapes with heavy tails: Student's t, and scale mixtures of normals."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from geogp.distributions.shapes import Floats, RowChoice, Shape
from geogp.errors import RequestError

_LOG_2PI = math.log(2 * math.pi)

MixtureFunction = Callable[[Floats, Floats, Floats], Floats]

VALUES_AT_ONCE = 1 << 21
"""Number of values (of components, or of pairs of components) in memory at once."""

_MIN_PROBABILITY = 1e-300
_NEWTON_STEPS = 200
_NEWTON_TOLERANCE = 1e-8
_STIRLING_FROM = 50.0


class SymmetricShape(Shape):
    """A symmetric shape: the upper tail follows from the lower tail."""

    symmetric = True

    def from_normal(self, z: Floats) -> Floats:
        """Return the quantiles at Φ(z), from the lower tail."""
        z = np.asarray(z, np.float64)
        lower = self.quantile(np.maximum(special.ndtr(-np.abs(z)), _MIN_PROBABILITY))
        found: Floats = np.where(z > 0, -lower, lower)
        return found

    def survival(self, x: Floats) -> Floats:
        """Return P(X > x) = P(X <= -x)."""
        return self.cdf(-np.asarray(x, np.float64))


class PowerTails(SymmetricShape):
    """A symmetric shape whose tails fall like a power, so that E[exp(t X)] diverges."""

    @property
    def has_power_mean(self) -> bool:
        """False: E[exp(t X)] does not exist."""
        return False

    def exponential_mean(self, t: Floats) -> Floats:
        """Return infinity; at t = 0, return 1.

        For a finite mixture the mean is finite, but would depend mostly on the widest component.
        """
        return np.where(np.asarray(t) == 0, 1.0, np.inf)


@dataclass(frozen=True)
class StudentT(PowerTails):
    """Student's t with `df` degrees of freedom, standardised to mean 0 and variance 1.

    X = T sqrt((df - 2) / df).

    Attributes
    ----------
    df
        Degrees of freedom, above 2. Beyond about 1e9, the distribution equals the normal
        distribution to all digits, except in the tails.

    Raises
    ------
    RequestError
        The degrees of freedom are not finite, or at most 2, so that there is no variance.
    """

    df: float

    def __post_init__(self) -> None:
        check_df(self.df)

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns: skewness 0, tail weight 1, and `df`."""
        return {**super().columns, "df": self.df}

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles."""
        found = special.stdtrit(self.df, probability) * self._scale
        return np.asarray(found, np.float64)

    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""
        found = special.stdtr(self.df, np.asarray(x, np.float64) / self._scale)
        return np.asarray(found, np.float64)

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of t = x / c, minus log c, with c = sqrt((df - 2) / df).

        log Γ((df + 1) / 2) - log Γ(df / 2) - ½ log(df π) - (df + 1) / 2 log(1 + t² / df).
        """
        found: Floats = self._standard_log_density(x / self._scale) - math.log(self._scale)
        return found

    def crps(self, x: Floats) -> Floats:
        """Return the score of Jordan, Krüger and Lerch (2019), appendix A, times c.

        Let t = x / c, F and f the distribution function and density of t, and B the beta function.
        Then the score is t (2 F(t) - 1) + 2 f(t) (df + t²) / (df - 1)
        - 2 sqrt(df) / (df - 1) B(½, df - ½) / B(½, df / 2)².
        """
        df = self.df
        t = np.asarray(x, np.float64) / self._scale
        density = np.exp(self._standard_log_density(t))
        # B(½, b) = sqrt(π) Γ(b) / Γ(b + ½).
        betas = math.exp(2 * log_gamma_step(df / 2) - log_gamma_step(df - 0.5)) / math.sqrt(math.pi)
        found: Floats = self._scale * (
            t * (2 * special.stdtr(df, t) - 1)
            + 2 * density * (df / (df - 1) + t**2 / (df - 1))
            - 2 * math.sqrt(df) / (df - 1) * betas
        )
        return found

    def _standard_log_density(self, t: Floats) -> Floats:
        df = self.df
        constant = log_gamma_step(df / 2) - 0.5 * math.log(df * math.pi)
        found: Floats = constant - (df + 1) / 2 * np.log1p(np.square(t) / df)
        return found

    @property
    def _scale(self) -> float:
        return math.sqrt((self.df - 2) / self.df)


class Mixture(SymmetricShape):
    """A scale mixture of normals, X = s_I Z with P(I = i) = w_i, with mean 0 and variance 1."""

    @abstractmethod
    def _each(self, function: MixtureFunction, values: Floats) -> Floats:
        """Call a function of weights (q,), scales (c, q) and values (c,) for chunks of values."""

    @abstractmethod
    def _half_spread(self) -> Floats | float:
        """Return ½ E|X - X'| = ½ Σ_ij w_i w_j A(0, s_i² + s_j²); see `crps`."""

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles, by Newton's method on the log of the tail probability.

        The quantile of a mixture lies between the quantiles of the narrowest and the widest
        component. If a step leaves this bracket, the middle of the bracket replaces it.
        """
        return self._each(mixture_quantile, probability)

    def cdf(self, x: Floats) -> Floats:
        """Return Σ w_i Φ(x / s_i)."""
        return self._each(lambda w, s, v: special.ndtr(v[:, None] / s) @ w, x)

    def log_density(self, x: Floats) -> Floats:
        """Return log Σ w_i φ(x / s_i) / s_i."""

        def density(w: Floats, s: Floats, v: Floats) -> Floats:
            parts = np.log(w) - np.log(s) - 0.5 * (_LOG_2PI + np.square(v[:, None] / s))
            found: Floats = special.logsumexp(parts, axis=1)
            return found

        return self._each(density, x)

    def crps(self, x: Floats) -> Floats:
        """Return Σ_i w_i A(x, s_i²) - ½ Σ_ij w_i w_j A(0, s_i² + s_j²).

        Here A(m, v) = 2 sqrt(v) φ(m / sqrt(v)) + m (2 Φ(m / sqrt(v)) - 1) (Grimit et al. 2006).
        """

        def near(w: Floats, s: Floats, v: Floats) -> Floats:
            z = v[:, None] / s
            density = np.exp(-0.5 * (_LOG_2PI + z**2))
            found: Floats = (2 * s * density + v[:, None] * (2 * special.ndtr(z) - 1)) @ w
            return found

        return self._each(near, x) - self._half_spread()


class NormalMixture(Mixture):
    """Scale mixtures of normals with mean 0, one mixture per row, standardised to variance 1.

    X = s_I Z with P(I = i) = w_i and Z standard normal. The scales of a row are divided by sqrt(Σ
    w_i s_i²). Methods take one x for each row.

    Parameters
    ----------
    weights
        w, (q,), above 0. The constructor divides w by the sum of w.
    scales
        s, (n, q), above 0.

    Raises
    ------
    RequestError
        The shapes of the arrays do not match, or a value is not finite or not above 0.
    """

    def __init__(self, weights: Floats, scales: Floats) -> None:
        weights, scales = np.asarray(weights, np.float64), np.asarray(scales, np.float64)
        fits = weights.ndim == 1 and scales.ndim == 2 and scales.shape[1] == len(weights) > 0
        if not fits or not all((np.isfinite(v) & (v > 0)).all() for v in (weights, scales)):
            raise RequestError(
                "expected weights of shape (q,) and scales of shape (n, q), all finite and above "
                f"0, found shapes {weights.shape} and {scales.shape}."
            )
        self.weights = weights / weights.sum()
        self._scales = scales / np.sqrt(np.square(scales) @ self.weights)[:, None]

    def __len__(self) -> int:
        return len(self._scales)

    def __getitem__(self, rows: RowChoice) -> Shape:
        """Return the mixtures of some of the rows."""
        return NormalMixture(self.weights, self._scales[rows])

    def scales(self, rows: slice) -> Floats:
        """Return the scales of some rows, (c, q)."""
        found: Floats = self._scales[rows]
        return found

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Always raise RequestError.

        A general mixture cannot be described by columns of a table.
        """
        raise RequestError(
            "a table of predictions cannot store a mixture of normals; it can store the sum of a "
            "normal and a Student-t part (NormalPlusStudent)."
        )

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return 0, 1, ..., n - 1, because each row has its own scales."""
        return np.arange(n)

    def exponential_mean(self, t: Floats) -> Floats:
        """Return Σ w_i exp(t² s_i² / 2), or infinity where this overflows."""

        def mean(w: Floats, s: Floats, v: Floats) -> Floats:
            with np.errstate(over="ignore"):
                found: Floats = np.exp(np.square(v[:, None] * s) / 2) @ w
            return found

        return self._each(mean, t)

    def _each(self, function: MixtureFunction, values: Floats, more: int = 1) -> Floats:
        values = np.broadcast_to(np.asarray(values, np.float64), (len(self),))
        found = np.empty(len(self))
        for rows in self.chunks(more):
            found[rows] = function(self.weights, self.scales(rows), values[rows])
        return found

    def _half_spread(self) -> Floats:
        i, j = np.triu_indices(len(self.weights))

        def spread(w: Floats, s: Floats, _: Floats) -> Floats:
            pairs = np.sqrt(np.square(s)[:, i] + np.square(s)[:, j])
            found: Floats = pairs @ (w[i] * w[j] * np.where(i == j, 1.0, 2.0))
            return found / math.sqrt(2 * math.pi)

        return self._each(spread, np.zeros(1), len(self.weights))

    def chunks(self, more: int = 1) -> Iterator[slice]:
        """Yield slices of rows with `VALUES_AT_ONCE` values each; a component has `more` values."""
        size = max(1, VALUES_AT_ONCE // (len(self.weights) * more))
        return (slice(start, start + size) for start in range(0, len(self), size))


def log_gamma_step(a: float) -> float:
    """Return log Γ(a + ½) - log Γ(a) for a > 0, without loss of digits for large a.

    For a >= 50, this is Stirling's series, ½ log a - 1/(8a) + 1/(192a³) - 1/(640a⁵).
    """
    if a < _STIRLING_FROM:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def check_df(df: float) -> None:
    """Raise RequestError if degrees of freedom give no finite variance.

    Degrees of freedom must be finite and above 2.
    """
    if not 2 < df < math.inf:
        raise RequestError(
            f"expected finite degrees of freedom above 2, found {df}. At 2 or below, the variance "
            "is not finite."
        )


def mixture_quantile(w: Floats, s: Floats, p: Floats, start: Floats | None = None) -> Floats:
    """Return the quantiles, by Newton's method with a bracket on log F in the lower tail.

    `start` (c,) are first guesses of the quantiles in the lower tail, by default the normal
    quantiles.
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
        # The error after a Newton step is of the order of the squared step.
        moved = np.abs(x[rows] - at)
        near = newton & (moved <= _NEWTON_TOLERANCE * np.abs(at))
        rows = rows[~near & (high[rows] > low[rows])]
    found: Floats = np.where(p < 0.5, x, -x)
    return found

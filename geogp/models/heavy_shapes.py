"""Shapes with heavy tails: Student's t, scale mixtures of normals, and a normal plus a t."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from geogp.errors import RequestError
from geogp.models.shapes import Floats, RowChoice, Shape

_LOG_2PI = math.log(2 * math.pi)

LEAST_MASS = 1e-12
"""Mass at the wide end that `student_scales` puts into one component."""

VALUES_AT_ONCE = 1 << 21
"""Values of components, or pairs of them, that are held at once."""

_NEWTON_STEPS = 200
_STIRLING_FROM = 50.0


@dataclass(frozen=True)
class StudentT(Shape):
    """Student's t with `df` degrees of freedom, brought to mean 0 and variance 1.

    X = T sqrt((df - 2) / df).

    Attributes
    ----------
    df
        Degrees of freedom, above 2; beyond about 1e9 the normal to all digits but the tails'.

    Raises
    ------
    RequestError
        The degrees of freedom are not finite or not above 2: there is no variance.
    """

    df: float

    def __post_init__(self) -> None:
        _check_df(self.df)

    @property
    def parameters(self) -> tuple[float, float]:
        """0 and 1."""
        return 0.0, 1.0

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Skewness 0, tail weight 1, and `df`."""
        return {**super().columns, "df": self.df}

    @property
    def has_power_mean(self) -> bool:
        """E[exp(t X)] does not exist."""
        return False

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles."""
        found = special.stdtrit(self.df, probability) * self._scale
        return np.asarray(found, np.float64)

    def cdf(self, x: Floats) -> Floats:
        """Return P(X <= x)."""
        found = special.stdtr(self.df, np.asarray(x, np.float64) / self._scale)
        return np.asarray(found, np.float64)

    def survival(self, x: Floats) -> Floats:
        """Return P(X > x)."""
        return self.cdf(-np.asarray(x, np.float64))

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of t = x / c, less log c, with c = sqrt((df - 2) / df).

        log Γ((df + 1) / 2) - log Γ(df / 2) - ½ log(df π) - (df + 1) / 2 log(1 + t² / df).
        """
        found: Floats = self._standard_log_density(x / self._scale) - math.log(self._scale)
        return found

    def crps(self, x: Floats) -> Floats:
        """Return the score of Jordan, Krüger and Lerch (2019), appendix A, times c.

        At t = x / c, with F and f those of the t distribution and B the beta function:
        t (2 F(t) - 1) + 2 f(t) (df + t²) / (df - 1)
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

    def exponential_mean(self, t: Floats) -> Floats:
        """Return infinity, and 1 at t = 0: the tails fall as a power, so E[exp(t X)] diverges."""
        return _no_exponential_mean(t)

    def _standard_log_density(self, t: Floats) -> Floats:
        df = self.df
        constant = log_gamma_step(df / 2) - 0.5 * math.log(df * math.pi)
        found: Floats = constant - (df + 1) / 2 * np.log1p(np.square(t) / df)
        return found

    @property
    def _scale(self) -> float:
        return math.sqrt((self.df - 2) / self.df)


class NormalMixture(Shape):
    """Scale mixtures of centred normals, one a row, brought to variance 1.

    X = s_I Z with P(I = i) = w_i and Z standard normal; the scales of each row are divided by
    sqrt(Σ w_i s_i²). All values are taken at one x a row.

    Parameters
    ----------
    weights
        w, (q,), above 0; divided by their sum.
    scales
        s, (n, q), above 0.

    Raises
    ------
    RequestError
        Shapes do not agree, or a value is not finite or not above 0.
    """

    def __init__(self, weights: Floats, scales: Floats) -> None:
        weights, scales = np.asarray(weights, np.float64), np.asarray(scales, np.float64)
        fits = weights.ndim == 1 and scales.ndim == 2 and scales.shape[1] == len(weights) > 0
        if not fits or not all((np.isfinite(v) & (v > 0)).all() for v in (weights, scales)):
            raise RequestError(
                "expected weights (q,) and scales (n, q), all finite and above 0, found shapes "
                f"{weights.shape} and {scales.shape}."
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
    def parameters(self) -> tuple[float, float]:
        """0 and 1."""
        return 0.0, 1.0

    @property
    def columns(self) -> dict[str, float | Floats]:
        """No columns of a table hold a mixture in general.

        Raises
        ------
        RequestError
            Always.
        """
        raise RequestError(
            "a mixture of normals has no columns in a table of predictions; those of a normal and "
            "a Student-t part have (NormalPlusStudent)."
        )

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles, by Newton's method on the log of the tail's probability.

        The quantile of a mixture lies between those of its narrowest and its widest component;
        a step that leaves the bracket is replaced by its middle.
        """
        return self._by_rows(_quantile, probability)

    def cdf(self, x: Floats) -> Floats:
        """Return Σ w_i Φ(x / s_i)."""
        return self._by_rows(lambda w, s, v: special.ndtr(v[:, None] / s) @ w, x)

    def survival(self, x: Floats) -> Floats:
        """Return Σ w_i Φ(-x / s_i)."""
        return self.cdf(-np.asarray(x, np.float64))

    def log_density(self, x: Floats) -> Floats:
        """Return log Σ w_i φ(x / s_i) / s_i."""
        return self._by_rows(lambda w, s, v: special.logsumexp(_log_parts(w, s, v), axis=1), x)

    def crps(self, x: Floats) -> Floats:
        """Return Σ_i w_i A(x, s_i²) - ½ Σ_ij w_i w_j A(0, s_i² + s_j²).

        A(m, v) = 2 sqrt(v) φ(m / sqrt(v)) + m (2 Φ(m / sqrt(v)) - 1), Grimit et al. (2006).
        """
        return self._by_rows(_crps, x, len(self.weights))

    def exponential_mean(self, t: Floats) -> Floats:
        """Return Σ w_i exp(t² s_i² / 2); infinity where it overflows."""

        def mean(w: Floats, s: Floats, v: Floats) -> Floats:
            with np.errstate(over="ignore"):
                found: Floats = np.exp(np.square(v[:, None] * s) / 2) @ w
            return found

        return self._by_rows(mean, t)

    def _by_rows(
        self, function: Callable[[Floats, Floats, Floats], Floats], values: Floats, more: int = 1
    ) -> Floats:
        """Call a function of weights, scales and values with chunks of rows."""
        n = len(self)
        values = np.broadcast_to(np.asarray(values, np.float64), (n,))
        found = np.empty(n)
        size = max(1, VALUES_AT_ONCE // (len(self.weights) * more))
        for start in range(0, n, size):
            rows = slice(start, start + size)
            found[rows] = function(self.weights, self.scales(rows), values[rows])
        return found


class NormalPlusStudent(NormalMixture):
    """The sum of a normal variable and an independent Student-t one, brought to variance 1.

    The t variable is a normal one over sqrt(g), g ~ Gamma(df/2, rate df/2), so that the sum is a
    scale mixture of normals of variances s² + σ²/g; its components are `student_scales`. Density
    and tail probabilities are right to 1e-5 of their value within 8 standard deviations.

    Parameters
    ----------
    function_variance
        s², the variance of the normal part, (n,).
    noise_variance
        The variance of the t part, σ² df / (df - 2), (n,), above 0.
    df
        Degrees of freedom, above 2.

    Raises
    ------
    RequestError
        The degrees of freedom are not above 2, or variances are out of range.
    """

    def __init__(self, function_variance: Floats, noise_variance: Floats, df: float) -> None:
        total = np.asarray(function_variance, np.float64) + noise_variance
        share = noise_variance / total
        if total.ndim != 1 or not ((share > 0) & (share <= 1)).all():
            raise RequestError(
                "expected function variances (n,) of 0 or more and noise variances above 0, found "
                f"shape {total.shape}."
            )
        self.df, self.share = df, share
        self.weights, self._spread = student_scales(df)

    def __len__(self) -> int:
        return len(self.share)

    def __getitem__(self, rows: RowChoice) -> Shape:
        """Return the shapes of some of the rows."""
        part = copy(self)
        part.share = self.share[rows]
        return part

    def scales(self, rows: slice) -> Floats:
        """Return the scales of some rows, (c, q)."""
        share = self.share[rows, None]
        found: Floats = np.sqrt(1 - share + share * self._spread)
        return found

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Skewness 0, tail weight 1, and `noise_df`; the variances say the rest."""
        return {"skewness": 0.0, "tailweight": 1.0, "noise_df": self.df}

    @property
    def has_power_mean(self) -> bool:
        """E[exp(t X)] does not exist."""
        return False

    def exponential_mean(self, t: Floats) -> Floats:
        """Return infinity, and 1 at t = 0: the t part's tails fall as a power.

        That of the finite mixture, which exists, would be that of its widest component.
        """
        return _no_exponential_mean(np.broadcast_to(t, (len(self),)))


@lru_cache(maxsize=32)
def student_scales(df: float) -> tuple[Floats, Floats]:
    """Return weights w and variances v of normals whose mixture is a standardised Student's t.

    With 1/v' = g ~ Gamma(df/2, rate df/2) and u = log g, the density of u is proportional to
    exp(df/2 (u - e^u)): smooth, and small at both ends, so that the trapezoidal rule converges
    faster than any power of its step. The components below the 1e-12 quantile of g are put into
    one of their weight and variance, so that Σ w v = 1. Generalised Gauss-Laguerre quadrature of
    48 nodes, the usual choice, misses 11 % of the variance and 70 % of the probability beyond 8
    standard deviations at 3 degrees of freedom, as 1/g is no polynomial of g.

    Parameters
    ----------
    df
        Degrees of freedom, above 2.

    Returns
    -------
    w, v
        Each (q,), q from 20 to about 65.

    Raises
    ------
    RequestError
        The degrees of freedom are not finite or not above 2.
    """
    _check_df(df)
    a = df / 2
    step = min(0.5, 0.75 / math.sqrt(a))
    u = np.arange(-8000, 400) * step
    u = u[u > -600]  # keeps 1/g within floating point
    log_mass = a * (u - np.expm1(u))
    log_mass -= special.logsumexp(log_mass)
    mass, spread = np.exp(log_mass), np.exp(log_mass - u)
    first = int(np.argmax(np.cumsum(mass) > LEAST_MASS))
    last = len(mass) - int(np.argmax(np.cumsum(mass[::-1]) > 1e-17))
    w, v = mass[first:last].copy(), np.exp(-u[first:last])
    w[0] = mass[: first + 1].sum()
    v[0] = spread[: first + 1].sum() / w[0]
    w /= w.sum()
    v /= w @ v
    w.flags.writeable = v.flags.writeable = False
    return w, v


def log_gamma_step(a: float) -> float:
    """Return log Γ(a + ½) - log Γ(a) for a > 0, without loss of digits for large a.

    From 50 on by Stirling's series, ½ log a - 1/(8a) + 1/(192a³) - 1/(640a⁵).
    """
    if a < _STIRLING_FROM:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def _check_df(df: float) -> None:
    if not 2 < df < math.inf:
        raise RequestError(
            f"expected finite degrees of freedom above 2, found {df}: below there is no variance."
        )


def _no_exponential_mean(t: Floats) -> Floats:
    return np.where(np.asarray(t) == 0, 1.0, np.inf)


def _log_parts(w: Floats, s: Floats, x: Floats) -> Floats:
    """Return log(w_i φ(x / s_i) / s_i), (c, q)."""
    found: Floats = np.log(w) - np.log(s) - 0.5 * (_LOG_2PI + np.square(x[:, None] / s))
    return found


def _crps(w: Floats, s: Floats, x: Floats) -> Floats:
    z = x[:, None] / s
    near = 2 * s * np.exp(-0.5 * (_LOG_2PI + z**2)) + x[:, None] * (2 * special.ndtr(z) - 1)
    pairs = np.sqrt(np.square(s)[:, :, None] + np.square(s)[:, None])
    spread = np.einsum("i,j,nij->n", w, w, pairs) / math.sqrt(2 * math.pi)
    found: Floats = near @ w - spread
    return found


def _quantile(w: Floats, s: Floats, p: Floats) -> Floats:
    side = np.where(p < 0.5, 1.0, -1.0)
    tail = np.minimum(p, 1 - p)
    z = special.ndtri(tail)
    low, high = s.max(1) * z, s.min(1) * z
    x = 0.5 * (low + high)
    log_tail = np.log(tail)
    open_rows = np.flatnonzero(high - low > 0)
    for _ in range(_NEWTON_STEPS):
        if not len(open_rows):
            break
        at, scales = x[open_rows], s[open_rows]
        cdf = special.ndtr(at[:, None] / scales) @ w
        density = np.exp(_log_parts(w, scales, at)).sum(1)
        below = cdf < tail[open_rows]
        low[open_rows] = np.where(below, at, low[open_rows])
        high[open_rows] = np.where(below, high[open_rows], at)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = at - (np.log(cdf) - log_tail[open_rows]) * cdf / density
        inside = (step > low[open_rows]) & (step < high[open_rows])
        middle = 0.5 * (low[open_rows] + high[open_rows])
        x[open_rows] = np.where(inside, step, middle)
        done = np.abs(x[open_rows] - at) <= 1e-14 * np.abs(at)
        open_rows = open_rows[~done]
    found: Floats = side * x
    return found

"""The shape of the sum of a normal variable (the function) and a Student-t variable (the noise)."""

import math
from copy import copy
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from geogp.distributions.heavy_shapes import Mixture, check_df, mixture_quantile
from geogp.distributions.shapes import Floats, RowChoice, Shape
from geogp.errors import RequestError

MIN_MASS = 1e-12
"""Total probability of the widest components, which `student_scales` merges into one."""

_SHARES = 129


class NormalPlusStudent(Mixture):
    """The sum of independent normal and Student-t variables, standardised to variance 1.

    Given g, the t variable is normal with variance σ²/g, where g ~ Gamma(df/2, rate df/2). So the
    sum is a scale mixture of normals with variances s² + σ²/g. `student_scales` computes the
    components. Within 8 standard deviations, density and tail probabilities have a relative error
    of at most 1e-5.

    `function_variance` is s², the variance of the normal part, (n,); `noise_variance` is the
    variance of the t part, σ² df / (df - 2), (n,), above 0. Raises RequestError if the degrees of
    freedom are not above 2, or variances are out of range.
    """

    def __init__(self, function_variance: Floats, noise_variance: Floats, df: float) -> None:
        total = np.asarray(function_variance, np.float64) + noise_variance
        share = noise_variance / total
        if total.ndim != 1 or not ((share > 0) & (share <= 1)).all():
            raise RequestError(
                "expected function variances of 0 or more and noise variances above 0, both of "
                f"shape (n,); found shape {total.shape}."
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
        """Return the scales of the q components for some rows, (c, q)."""
        share = self.share[rows, None]
        return np.sqrt(1 - share + share * self._spread)

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles, by the method of `Mixture.quantile`.

        At a given probability, the quantile is a smooth function of the t variable's share of the
        variance. For many rows and few probabilities, Newton's method starts from a spline through
        the quantiles at 129 shares.
        """
        p = np.broadcast_to(np.asarray(probability, np.float64), (len(self),))
        distinct, of = np.unique(p, return_inverse=True)
        if len(self) <= 2 * _SHARES * len(distinct):
            return super().quantile(p)
        if len(distinct) > 1:
            found = np.empty(len(self))
            for place, value in enumerate(distinct):
                rows = np.flatnonzero(of == place)
                found[rows] = self[rows].quantile(np.full(len(rows), value))
            return found
        # The shape changes fastest near the smallest and largest share, so the grid is finer there.
        grid = 0.5 - 0.5 * np.cos(np.linspace(0, np.pi, _SHARES))
        grid = self.share.min() + np.ptp(self.share) * grid
        if not (np.diff(grid) > 0).all():
            return super().quantile(p)
        held = copy(self)
        held.share = grid
        lower = np.full(_SHARES, min(p[0], 1 - p[0]))
        start = scipy.interpolate.CubicSpline(grid, Mixture.quantile(held, lower))(self.share)
        return self._each(mixture_quantile, p, start)

    def kinds(self, n: int) -> NDArray[np.intp]:
        """Return 0, 1, ..., n - 1, because each row has its own scales."""
        return np.arange(n)

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shape in a table: skewness 0, tail weight 1, and `noise_df`."""
        return {**super().columns, "noise_df": self.df}


@lru_cache(maxsize=32)
def student_scales(df: float) -> tuple[Floats, Floats]:
    """Return weights w and variances v of normals whose mixture is a standardised Student's t.

    A t variable is a normal variable with variance 1/g, with g ~ Gamma(df/2, rate df/2). The
    density of u = log g is proportional to exp(df/2 (u - e^u)), which is smooth, and small at both
    ends. So the trapezoidal rule in u converges faster than any power of the step. The components
    below the 1e-12 quantile of g are merged into one component with the same total weight and
    variance. All variances are divided by a common factor, so that Σ w v = 1. Gauss-Laguerre
    quadrature would be inaccurate, because 1/g is not a polynomial in g. w and v have shape (q,),
    with q from 20 to about 65. Raises RequestError unless `df` is finite and above 2.
    """
    check_df(df)
    a = df / 2
    step = min(0.5, 0.75 / math.sqrt(a))
    u = np.arange(-8000, 400) * step
    u = u[u > -600]  # keeps 1/g finite
    log_mass = a * (u - np.expm1(u))
    log_mass -= special.logsumexp(log_mass)
    mass, spread = np.exp(log_mass), np.exp(log_mass - u)
    first = int(np.argmax(np.cumsum(mass) > MIN_MASS))
    last = len(mass) - int(np.argmax(np.cumsum(mass[::-1]) > 1e-17))
    w, v = mass[first:last].copy(), np.exp(-u[first:last])
    w[0] = mass[: first + 1].sum()
    v[0] = spread[: first + 1].sum() / w[0]
    w /= w.sum()
    v /= w @ v
    w.flags.writeable = v.flags.writeable = False
    return w, v

"""The Burr XII prior for the scale of a Gaussian process, and the mixture of normals it predicts.

"The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian processes". In
appendices E and H, the scale s² has the prior Burr XII(c, d). Let e be the residuals of n rows,
with covariance s² A. The posterior of u = log s² has no closed form, but depends on the rows only
through n and e'A^(-1)e:

log p(u | y) = log p(u) - n/2 u - e'A^(-1)e / 2 e^(-u) + constant.

The posterior mean of a function h(u) is computed by self-normalised importance sampling: Σ w_i
h(u_i) / Σ w_i with weights w_i = p(u_i, y) / q(u_i). The Scale paper draws the u_i from the prior.
geogp differs from the paper in two ways. First, the proposal density q is constant where p(u | y)
is not negligible, and 0 elsewhere. With many rows, nearly all draws from the prior would have
negligible weights. Second, the u_i (nodes) are evenly spaced instead of random. The integrand is
smooth and vanishes at both ends, so the error falls exponentially with the number of nodes.
`tests/models/papers/test_burr_process.py` compares these nodes with draws from other proposals.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from scipy import special

from geogp.distributions.heavy_shapes import Mixture
from geogp.distributions.shapes import BURR_COLUMNS, Floats
from geogp.errors import NumericalError, RequestError

_STEP = 0.25
"""Distance between nodes, relative to the width of the likelihood of u; see `_step`."""

_REACH = 40.0
"""Beyond the nodes, log p(u | y) and log(s² p(u | y)) are at least this far below their maxima."""

_MAX_NODES = 1 << 12
_FARTHEST = 600.0
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Burr:
    """The prior Burr XII(c, d) of the scale s², with density c d s²^(c-1) / (1 + s²^c)^(d+1).

    The density of log s² has its mode at -log(d) / c, and exponential tails with rates c and c d.
    Raises RequestError if c or d is not positive and finite.
    """

    c: float
    d: float

    def __post_init__(self) -> None:
        if not (0 < self.c < math.inf and 0 < self.d < math.inf):
            raise RequestError(f"expected c and d above 0, found {self.c} and {self.d}.")

    def log_density(self, u: Floats) -> Floats:
        """Return the log density of u = log s²: log(c d) + c u - (d + 1) log(1 + e^(c u))."""
        softplus = np.logaddexp(0.0, self.c * u)
        return math.log(self.c * self.d) + self.c * u - (self.d + 1) * softplus


BURR_PRIOR = Burr(2.0, 2.0)
"""The Burr prior that geogp uses for the scale s². The median of s² is 0.64, and the mean is 0.79.
Predictions have tails like Student's t with 8 degrees of freedom. The Scale paper searches c and d
in {0.5, 1, 2, 3, 4} (appendix F).
"""


@dataclass(frozen=True)
class BurrScale:
    """The posterior of the scale s²: the Burr prior times s^(-n) exp(-e'A^(-1)e / (2 s²)).

    `n` is the number of rows, and `distance` is e'A^(-1)e, with residuals e and their covariance s²
    A. Without rows, both are 0. Raises RequestError if one of them is negative, only one is 0, or
    s² has no mean because n / 2 + c d is at most 1.
    """

    prior: Burr
    n: float
    distance: float

    def __post_init__(self) -> None:
        n, distance, tail = self.n, self.distance, self.n / 2 + self.prior.c * self.prior.d
        if not 0 <= n < math.inf or not 0 <= distance < math.inf or (n > 0) != (distance > 0):
            raise RequestError(
                "expected finite n and distance e'A^(-1)e, both above 0 or both 0, found "
                f"{n:g} and {distance:g}."
            )
        if not tail > 1:
            raise RequestError(
                f"expected n / 2 + c d above 1, so that the scale s² has a mean, found {tail:g}; "
                f"fit the process to rows first, or choose a more informative prior."
            )

    @cached_property
    def nodes(self) -> tuple[Floats, float]:
        """Return the q nodes u_i, which are values of log s², and the distance between two nodes.

        Raises NumericalError if a node is beyond ±600, or more than 4,096 nodes are necessary.
        """
        low, _ = self._ends(0.0)
        _, high = self._ends(1.0)
        count = (high - low) / self._step
        if not max(-low, high) < _FARTHEST or count > _MAX_NODES:
            raise NumericalError(
                "the posterior of the scale s² is too wide for the quadrature nodes: log s² "
                f"ranges from {low:.3g} to {high:.3g}. Choose a prior with a larger c and a "
                "larger product c d, or use more rows."
            )
        nodes = math.ceil(count)
        step = (high - low) / nodes
        return low + step * (np.arange(nodes, dtype=np.float64) + 0.5), step

    @cached_property
    def weights(self) -> Floats:
        """The importance weights of the nodes, of shape (q,) and with sum 1."""
        logs = self.log_posterior(self.nodes[0])
        found: Floats = np.exp(logs - logs.max())
        found /= found.sum()
        return found

    @property
    def mean(self) -> float:
        """E[s²]."""
        return float(np.exp(self.nodes[0]) @ self.weights)

    @property
    def shape(self) -> "BurrMixture":
        """The predictive distribution, standardised to mean 0 and variance 1."""
        return BurrMixture(self)

    def log_posterior(self, u: Floats) -> Floats:
        """Return the log density of u = log s² given the rows, up to a constant."""
        inverse = np.exp(np.minimum(-u, _LARGEST_EXPONENT))
        return self.prior.log_density(u) - self.n / 2 * u - self.distance / 2 * inverse

    @property
    def _step(self) -> float:
        # The likelihood of u is e^(-n/2 (v + e^(-v))) with v = u minus the mode; the standard
        # deviation is sqrt(2 / n). The prior is analytic within π / c of the real line.
        return _STEP * min(1.0, 1 / math.sqrt(max(self.n / 2, 1.0)), 1 / self.prior.c)

    def _slope(self, u: float) -> float:
        """Return the derivative of `log_posterior` at u, which decreases with u."""
        c, d = self.prior.c, self.prior.d
        likelihood = self.distance / 2 * math.exp(min(-u, _LARGEST_EXPONENT)) - self.n / 2
        return c - (d + 1) * c * float(special.expit(c * u)) + likelihood

    def _ends(self, power: float) -> tuple[float, float]:
        """Return both values of u where log(s²^power p(u | y)) is `_REACH` below its maximum."""
        start = (
            math.log(self.distance / self.n) if self.n else -math.log(self.prior.d) / self.prior.c
        )

        def value(u: float) -> float:
            return float(self.log_posterior(np.array(u))) + power * u

        mode = _root(lambda u: self._slope(u) + power, start)
        top = value(mode)
        low = -_root(lambda u: value(-u) - top + _REACH, -mode)
        return low, _root(lambda u: value(u) - top + _REACH, mode)


class BurrMixture(Mixture):
    """The predictive distribution for a Burr prior, standardised to mean 0 and variance 1.

    The distribution is the mixture of normals Σ w_i N(0, s_i² / E[s²]) over the nodes, the same at
    every point. Within 8 standard deviations, the error of the log density is at most 1e-8.
    """

    def __init__(self, scale: BurrScale) -> None:
        self.scale, self.weights = scale, scale.weights
        self._scales = np.exp((scale.nodes[0] - math.log(scale.mean)) / 2)[None]

    def scales(self, _rows: slice) -> Floats:
        """Return the scales of the q components, (1, q); all rows have the same scales."""
        return self._scales

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the shape in a table: skewness 0, tail weight 1, c, d, n, and e'A^(-1)e."""
        scale = self.scale
        values = (scale.prior.c, scale.prior.d, scale.n, scale.distance)
        return {**super().columns, **dict(zip(BURR_COLUMNS, values, strict=True))}

    def quantile(self, probability: Floats) -> Floats:
        """Return the quantiles at `probability`; equal probabilities are computed once."""
        p, number = np.unique(np.asarray(probability, np.float64), return_inverse=True)
        return super().quantile(p)[number]

    def _half_spread(self, _n: int) -> float:
        return self._spread

    @cached_property
    def _spread(self) -> float:
        squares = np.square(self._scales[0])
        pairs = np.sqrt(squares[:, None] + squares)
        return float(self.weights @ pairs @ self.weights) / math.sqrt(2 * math.pi)


def _root(falling: Callable[[float], float], start: float) -> float:
    """Return the root of a decreasing function, or infinity if the search finds no root."""
    low = high = start
    width = 0.1
    while falling(low) < 0:
        low, width = low - width, 2 * width
    width = 0.1
    while falling(high) > 0:
        if high > 2 * _FARTHEST:
            return math.inf
        high, width = high + width, 2 * width
    if low == high:
        return start
    return float(scipy.optimize.brentq(falling, low, high, xtol=1e-12))

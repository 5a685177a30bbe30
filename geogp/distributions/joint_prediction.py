"""Joint predictive distributions of several targets at each point.

The targets of a point have the distribution functions F_k of its marginals, joined by a Gaussian
copula (Sklar 1959): z_k = Φ⁻¹(F_k(y_k)) is normal with the correlation matrix R of the point.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from geogp.arguments import numbers_of, rows_of, value_shown
from geogp.choices import MAX_DRAWS, MAX_SEED, whole_number
from geogp.distributions.html_tables import SHOWN_ROWS, html_table
from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import Floats
from geogp.errors import DataError, NumericalError, RequestError, named

NODES = {1: 1, 2: 64, 3: 24}
"""Points along each axis of the integral of a probability, by the number of limited targets."""

LATTICE = 4096
"""Points of the integral for more targets."""

FARTHEST = 38.0
"""Largest size of a normal score: a farther one has no probability in float64."""

CHUNK = 1 << 21
"""Numbers in one step of an integral."""

_SEED = 20_121_203
"""Seed of the draws of `energy_score`; it is unusual, so that no simulation has the same draws."""


def target_number(names: tuple[str, ...], target: int | str) -> int:
    """Return the number of a target, given by its name or number from 0; refuse another."""
    if target in names:
        return names.index(str(target))
    if isinstance(target, int) and 0 <= target < len(names):
        return target
    raise RequestError(
        f"expected one of the targets {named(names)}, or its number from 0, found "
        f"{value_shown(target)}."
    )


@dataclass(frozen=True)
class JointPrediction:
    """Joint predictive distributions of t targets at n points.

    Attributes
    ----------
    names
        Names of the targets.
    marginals
        The distribution of each target, t predictions of n points.
    correlation
        Correlation matrix R of the targets' normal scores at each point, (n, t, t).

    Raises
    ------
    NumericalError
        Shapes do not agree, or a correlation matrix is not positive definite.
    """

    names: tuple[str, ...]
    marginals: tuple[Prediction, ...]
    correlation: Floats

    def __post_init__(self) -> None:
        n, t = len(self), len(self.names)
        sizes = {len(marginal) for marginal in self.marginals}
        if self.correlation.shape != (n, t, t) or len(self.marginals) != t or sizes != {n}:
            raise NumericalError(
                f"expected {t} marginals of {n} points and correlations of shape {(n, t, t)}, "
                f"found {len(self.marginals)} and {self.correlation.shape}."
            )
        _ = self._factor

    def __len__(self) -> int:
        return len(self.marginals[0])

    def __getitem__(self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice") -> Any:
        """Return the joint prediction at some of the points."""
        marginals = tuple(marginal[rows] for marginal in self.marginals)
        return replace(self, marginals=marginals, correlation=self.correlation[rows])

    def _repr_html_(self) -> str:
        """Return the medians of the first points as a table; notebooks show it."""
        first = self[:SHOWN_ROWS]
        columns = {
            f"{name}, median": marginal.median.tolist()
            for name, marginal in zip(self.names, first.marginals, strict=True)
        }
        title = f"{type(self).__name__} of {named(self.names)} at {len(self):,} points"
        return html_table(title, columns, rows=len(self))

    @property
    def targets(self) -> int:
        """Number of targets, t."""
        return len(self.names)

    @cached_property
    def _factor(self) -> Floats:
        """Cholesky factors of the correlation matrices, (n, t, t)."""
        try:
            return np.asarray(np.linalg.cholesky(self.correlation), np.float64)
        except np.linalg.LinAlgError:
            raise NumericalError(
                "expected positive definite correlation matrices, found others."
            ) from None

    def marginal(self, target: int | str) -> Prediction:
        """Return the predictive distributions of one target, given by its name or number.

        Raises
        ------
        RequestError
            There is no such target.
        """
        return self.marginals[target_number(self.names, target)]

    @property
    def mean(self) -> Floats:
        """Means of the targets, (n, t)."""
        return np.column_stack([marginal.mean for marginal in self.marginals])

    @property
    def median(self) -> Floats:
        """Medians of the targets, (n, t)."""
        return np.column_stack([marginal.median for marginal in self.marginals])

    @property
    def sd(self) -> Floats:
        """Standard deviations of the targets, (n, t)."""
        return np.column_stack([marginal.sd for marginal in self.marginals])

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of the central interval of each target, (n, t) each.

        An interval holds its own target with the probability `level`; all intervals of a point
        hold all targets with a smaller probability, see `probability`.

        Raises
        ------
        RequestError
            The level does not lie strictly between 0 and 1.
        """
        ends = [marginal.interval(level) for marginal in self.marginals]
        lower, upper = zip(*ends, strict=True)
        return np.column_stack(lower), np.column_stack(upper)

    def probability(
        self,
        at_least: Mapping[str, ArrayLike] | Sequence[Any] | Floats | None = None,
        at_most: Mapping[str, ArrayLike] | Sequence[Any] | Floats | None = None,
    ) -> Floats:
        """Return the probability that all targets are within limits, (n,).

        The normal probability of a box is integrated by separation of variables (Genz 1992). The
        error is below 1e-4 for two targets with correlations of at most .99 in size, and for three
        with at most .97.

        Parameters
        ----------
        at_least, at_most
            Limits by the names of targets, each a number or (n,); or a limit for each target,
            (t,), where None means no limit. With the limits 100 and 20 of download and upload and
            at most 2 of latency (log10), this is the probability of a tier.

        Raises
        ------
        RequestError
            A name is not a target, there is no limit, or a lower limit is above the upper one.
        DataError
            A limit is NaN, or is neither one number nor one for each point.
        """
        lower, upper = self._limits(at_least, -np.inf), self._limits(at_most, np.inf)
        if (lower > upper).any():
            raise RequestError("expected at_least up to at_most, found a lower limit above.")
        limited = np.isfinite(lower).any(0) | np.isfinite(upper).any(0)
        if not limited.any():
            raise RequestError("expected a limit for one target or more, found none.")
        chosen = np.flatnonzero(limited)
        a, b = self.normal_scores(lower), self.normal_scores(upper)
        R = self.correlation[:, chosen[:, None], chosen[None, :]]
        return _box_probability(a[:, chosen], b[:, chosen], np.asarray(np.linalg.cholesky(R)))

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw measurements of shape (size, n, t); points are independent, targets are not.

        Raises
        ------
        RequestError
            The size is not a whole number of 1 or more.
        """
        whole_number("a size", size, 1, MAX_DRAWS)
        whole_number("random_state", random_state, 0, MAX_SEED)
        return self._drawn(size, np.random.default_rng(random_state))

    def joint_log_score(self, y: ArrayLike) -> Floats:
        """Return the negative log density of the targets of each point, (n,); lower is better.

        log f(y) = sum_k log f_k(y_k) - log|R| / 2 - z'(R⁻¹ - I) z / 2. Targets that are NaN are
        not measured: the density is that of the others, and 1 if there is none.

        Parameters
        ----------
        y
            Measurements, (n, t).

        Raises
        ------
        DataError
            The shape is not (n, t), or a value is infinite.
        """
        values = self._measured(y)
        known = ~np.isnan(values)
        z = self.normal_scores(np.where(known, values, self.median))
        score = np.zeros(len(self))
        for k, marginal in enumerate(self.marginals):
            rows = known[:, k]
            score[rows] += marginal[rows].log_score(values[rows, k])
        # A missing target is made independent of the others, with the score 0.
        pairs = known[:, :, None] & known[:, None, :]
        R = np.where(pairs | np.eye(len(self.names), dtype=bool), self.correlation, 0.0)
        z = np.where(known, z, 0.0)
        white = np.linalg.solve(np.linalg.cholesky(R), z[..., None])[..., 0]
        squares = np.square(white).sum(1) - np.square(z).sum(1)
        score += 0.5 * (np.linalg.slogdet(R)[1] + squares)
        return score

    def energy_score(
        self, y: ArrayLike, *, scale: ArrayLike | None = None, draws: int = 200
    ) -> Floats:
        """Return the energy score E|Y - y| - E|Y - Y'| / 2 of each point, (n,); lower is better.

        Bars are Euclidean norms of targets, divided by `scale`, (t,), if they have different units.
        Y and Y' are independent draws (Gneiting and Raftery 2007). The expectations are means over
        `draws` pairs; the same call gives the same result. Points with a missing target (NaN) have
        the score NaN.

        Raises
        ------
        DataError
            The shape of y is not (n, t), or a scale is not above 0.
        RequestError
            `draws` is not a whole number of 1 or more.
        """
        values = self._measured(y)
        whole_number("draws", draws, 1, MAX_DRAWS)
        unit = numbers_of(1.0 if scale is None else scale, "scale")
        if unit.shape not in {(), (len(self.names),)} or not (unit > 0).all():
            raise DataError(f"expected {len(self.names)} scales above 0, found {unit}.")
        random = np.random.default_rng(_SEED)
        score = np.zeros(len(self))
        for _ in range(draws):
            first, second = self._drawn(2, random) / unit
            score += np.linalg.norm(first - values / unit, axis=1) / 2
            score += np.linalg.norm(second - values / unit, axis=1) / 2
            score -= np.linalg.norm(first - second, axis=1) / 2
        return score / draws

    def _drawn(self, size: int, random: np.random.Generator) -> Floats:
        z = np.einsum("nij,snj->sni", self._factor, random.standard_normal((size, *self._shape)))
        uniform = ndtr(z).clip(2.0**-54, 1 - 2.0**-53)
        columns = [
            marginal.mean + marginal.sd * np.stack([marginal.shape.quantile(p) for p in u])
            for marginal, u in zip(self.marginals, np.moveaxis(uniform, 2, 0), strict=True)
        ]
        return np.stack(columns, 2)

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self), len(self.names)

    def normal_scores(self, values: Floats) -> Floats:
        """Return z_k = Φ⁻¹(F_k(y_k)) of values y, (n, t), from the smaller of both tails."""
        columns = []
        for k, marginal in enumerate(self.marginals):
            below, above = marginal.cdf(values[:, k]), marginal.exceedance(values[:, k])
            columns.append(np.where(below < above, ndtri(below), -ndtri(above)))
        return np.column_stack(columns).clip(-FARTHEST, FARTHEST)

    def _measured(self, y: ArrayLike) -> Floats:
        values = np.asarray(numbers_of(y, "measurements"), np.float64)
        if values.shape != self._shape:
            raise DataError(
                f"expected measurements of shape {self._shape}, one column for each of "
                f"{named(self.names)}, found {values.shape}."
            )
        if np.isinf(values).any():
            raise DataError("expected finite measurements, or NaN where none is, found infinity.")
        return values

    def _limits(self, given: Any, endless: float) -> Floats:
        """Return limits of all targets, (n, t)."""
        limits = np.full(self._shape, endless)
        for k, limit in self._numbered(given):
            if limit is not None:
                what = f"limits of {self.names[k]}"
                limits[:, k] = rows_of(limit, len(self), what, infinite=True)
        return limits

    def _numbered(self, given: Any) -> Iterator[tuple[int, Any]]:
        if given is None:
            return
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in self.names]
            if unknown:
                raise RequestError(
                    f"expected limits of {named(self.names)}, found {named(unknown)}."
                )
            yield from ((self.names.index(name), limit) for name, limit in given.items())
            return
        limits = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
        if len(limits) != len(self.names):
            raise RequestError(
                f"expected a limit (or None) for each of {named(self.names)}, found {len(limits)}."
            )
        yield from enumerate(limits)


def _box_probability(a: Floats, b: Floats, C: Floats) -> Floats:
    """Return P(a <= z <= b), (n,); z is normal, and C, (n, t, t), factors its correlation.

    Given the coordinates before it, a coordinate of z is normal. Its probability is a factor, and
    its conditional quantiles at the points of the integral are given to those after it.
    """
    n, t = a.shape
    points, weights = _points(t)
    result = np.empty(n)
    for start in range(0, n, step := max(1, CHUNK // len(weights))):
        rows = slice(start, start + step)
        low, high, factor = a[rows], b[rows], C[rows]
        mass = np.ones((len(low), len(weights)))
        drawn: list[Floats] = []
        for k in range(t):
            shift = sum(factor[:, k, j, None] * white for j, white in enumerate(drawn))
            below = ndtr((low[:, k, None] - shift) / factor[:, k, k, None])
            width = ndtr((high[:, k, None] - shift) / factor[:, k, k, None]) - below
            mass = mass * width
            if k < t - 1:
                uniform = below + width * points[:, k]
                drawn.append(ndtri(uniform.clip(1e-300, 1 - 2.0**-53)))
        result[rows] = mass @ weights
    return result.clip(0.0, 1.0)


def _points(t: int) -> tuple[Floats, Floats]:
    """Return points in the unit cube, (m, t - 1), and their weights, (m,)."""
    if t not in NODES:
        lattice = qmc.Sobol(t - 1, seed=_SEED).random(LATTICE)
        return lattice, np.full(LATTICE, 1 / LATTICE)
    nodes, weights = np.polynomial.legendre.leggauss(NODES[t])
    # Nodes are closer to the ends of the interval, where the normal quantile is steep.
    unit = (nodes + 1) / 2
    bent, own = unit**2 * (3 - 2 * unit), weights * 3 * unit * (1 - unit)
    grids = np.meshgrid(*[np.arange(NODES[t])] * (t - 1), indexing="ij")
    numbers = np.reshape(grids, (t - 1, -1)).T if t > 1 else np.zeros((1, 0), int)
    return bent[numbers], own[numbers].prod(1)

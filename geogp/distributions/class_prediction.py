"""Predictive distributions of classes: softmax probabilities averaged over random logits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geogp.arguments import numbers_of
from geogp.distributions.html_tables import SHOWN_ROWS, html_table
from geogp.distributions.quantity import Quantity, Variable
from geogp.errors import DataError

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

DRAWS = 256
"""Number of draws of the logits that a probability averages; a power of 2, as Sobol points need."""

_ENTRIES = 2**22
"""Numbers of a chunk: rows times draws times classes."""


@dataclass(frozen=True)
class ClassPrediction:
    """Distributions over k classes at n points, from e models with equal shares.

    The logits of a point under one model are f_j = mean_j + sqrt(variance_j) z_j t, where the z_j
    are independent and standard normal. If `df` is infinite, t is 1. Otherwise t² = df / chi²_df is
    common to all classes, so the logits are multivariate t. The probability of class j is the mean
    of softmax_j(f) over draws and models (Scale appendices C, D; Rich C.3).

    The draws are scrambled Sobol points, the same at every point and in every call. So a prediction
    does not depend on the other points, and its error is smaller than that of random draws.

    `mean`, `variance`: (e, n, k), float64. `df`: (e,), float64. `draws`: number of draws, a power
    of 2.
    """

    discrete: ClassVar[bool] = False
    has_power_mean: ClassVar[bool] = True  # the warning about a missing mean is not for classes

    mean: Floats
    variance: Floats
    df: Floats
    draws: int = DRAWS

    @classmethod
    def mixture(cls, parts: Sequence["ClassPrediction"]) -> "ClassPrediction":
        """Return the mixture, with equal shares, of the predictions of several models."""
        mean, variance, df = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("mean", "variance", "df")
        )
        return cls(mean, variance, df, parts[0].draws)

    def __len__(self) -> int:
        return int(self.mean.shape[1])

    def __getitem__(
        self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice"
    ) -> "ClassPrediction":
        """Return the prediction at some of the points."""
        return replace(self, mean=self.mean[:, rows], variance=self.variance[:, rows])

    def _repr_html_(self) -> str:
        """Return the first predictions as a table; notebooks show it."""
        first = self[:SHOWN_ROWS]
        probabilities = enumerate(first.probabilities.T.tolist())
        columns = {
            "class": first.codes.tolist(),
            "entropy": first.entropy.tolist(),
            **{f"p of class {code}": values for code, values in probabilities},
        }
        return html_table(f"ClassPrediction at {len(self):,} points", columns, rows=len(self))

    def pooled(self, pieces: int) -> "ClassPrediction":  # noqa: ARG002
        """Return the prediction, because `pieces` equal tiles together have the class of a tile."""
        return self

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.mean.shape[2])

    @property
    def at_least(self) -> Floats:
        """Probability of each class or a higher one, (n, k), if classes are in increasing order."""
        sums: Floats = self.probabilities[:, ::-1].cumsum(1)[:, ::-1]
        return np.minimum(sums, 1.0)

    def variables(self, quantity: Quantity, level: float) -> dict[str, Variable]:  # noqa: ARG002
        """Return the variables of a map, by name: values, long name and CF unit.

        The probability of each class, of each class or a higher one (except the lowest class), and
        of the most probable class; and the entropy.
        """
        subject, p, reached = quantity.subject, self.probabilities, self.at_least
        named = list(zip(quantity.class_tags, quantity.classes, strict=True))
        exact = {
            f"p_{quantity.suffix}_{tag}": (p[:, code], f"probability that {subject} is {name}", "1")
            for code, (tag, name) in enumerate(named)
        }
        least = {
            f"p_at_least_{tag}": (
                reached[:, code],
                f"probability that {subject} is at least {name}",
                "1",
            )
            for code, (tag, name) in enumerate(named)
            if code
        }
        return (
            exact
            | least
            | {
                "p_most_probable": (p.max(1), f"probability of the most probable {subject}", "1"),
                "entropy": (self.entropy, f"entropy of {subject}, in nats", "1"),
            }
        )

    def flags(self, quantity: Quantity) -> dict[str, tuple[Codes, str]]:
        """Return the most probable class, as a variable of a map: numbers of classes, long name."""
        return {quantity.suffix: (self.codes, f"most probable {quantity.subject}")}

    @property
    def probabilities(self) -> Floats:
        """Probability of each class at each point, (n, k)."""
        return np.exp(self.log_probabilities)

    @property
    def log_probabilities(self) -> Floats:
        """Logarithm of `probabilities`, (n, k)."""
        return self._averages[0]

    @property
    def codes(self) -> Codes:
        """Number of the most probable class at each point, (n,)."""
        found: Codes = self.log_probabilities.argmax(1)
        return found

    @property
    def entropy(self) -> Floats:
        """Entropy -Σ p_j log p_j of the class at each point, in nats, (n,)."""
        found: Floats = -(self.probabilities * self.log_probabilities).sum(1)
        return found

    @property
    def mutual_information(self) -> Floats:
        """Entropy minus the mean entropy given the logits, in nats, (n,).

        This is the information that the class of a point contains about its logits. It is large
        where models or draws disagree, and 0 if the logits are known (Houlsby et al. 2011).
        """
        return np.maximum(self.entropy - self._averages[1], 0.0)

    @property
    def logit_variance(self) -> Floats:
        """Variance of the logit of the most probable class, (n,); a score of unusual points.

        With several models, the variance between their logits is included. A softmax does not
        change if a number is added to all logits, so each model's mean logit is first subtracted.
        Infinite if `df` is 2 or less.
        """
        # df / (df - 2), which is 1 for infinite df.
        wide = np.where(self.df > 2, 1 / (1 - 2 / np.maximum(self.df, 2.0 + 1e-12)), np.inf)
        within = (self.variance * wide[:, None, None]).mean(0)
        between = (self.mean - self.mean.mean(2, keepdims=True)).var(0)
        return np.take_along_axis(within + between, self.codes[:, None], 1)[:, 0]

    def log_score(self, codes: ArrayLike) -> Floats:
        """Return -log of the probability of the observed class, (n,); lower is better.

        `codes` (n,) are numbers of classes, from 0. Raises DataError if a code is not a class.
        """
        n, k = self.log_probabilities.shape
        found = numbers_of(codes, "numbers of classes")
        with np.errstate(invalid="ignore"):
            whole = found.astype(np.intp)
        if found.shape != (n,) or (whole != found).any() or (whole < 0).any() or (whole >= k).any():
            raise DataError(
                f"expected {n} numbers of classes from 0 to {k - 1}, found shape {found.shape} "
                f"with values from {found.min(initial=0)} to {found.max(initial=0)}."
            )
        return -self.log_probabilities[np.arange(n), whole]

    @cached_property
    def _averages(self) -> tuple[Floats, Floats]:
        """Return log probabilities (n, k), and the mean entropy given the logits (n,)."""
        e, n, k = self.mean.shape
        logs, entropies = np.full((n, k), -np.inf), np.zeros(n)
        for mean, variance, df in zip(self.mean, self.variance, self.df, strict=True):
            steps = _steps(self.draws, k, float(df)) if variance.any() else np.zeros((1, k))
            for rows in _chunks(n, len(steps) * k):
                logits = mean[rows] + np.sqrt(variance[rows]) * steps[:, None]
                found = special.log_softmax(logits, axis=2)
                own = special.logsumexp(found, axis=0) - np.log(len(steps))
                logs[rows] = np.logaddexp(logs[rows], own - np.log(e))
                entropies[rows] -= (np.exp(found) * found).sum(2).mean(0) / e
        return logs, entropies


def _chunks(n: int, width: int) -> Iterator[slice]:
    size = max(1, _ENTRIES // width)
    for start in range(0, n, size):
        yield slice(start, start + size)


def _steps(draws: int, k: int, df: float) -> Floats:
    """Return draws of z t, (draws, k); see `ClassPrediction`."""
    uniform = scipy.stats.qmc.Sobol(k + 1, rng=np.random.default_rng(0)).random(draws)
    # A scrambled point can be 0, where the quantiles are infinite.
    uniform = np.clip(uniform, 1e-12, 1 - 1e-12)
    z: Floats = special.ndtri(uniform[:, :k])
    if np.isfinite(df):
        z *= np.sqrt(df / scipy.stats.chi2.ppf(uniform[:, k:], df))
    return z

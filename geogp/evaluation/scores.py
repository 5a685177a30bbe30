"""The scores of predictions, and the largest numbers that run.json may contain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Self, TypeVar

from msgspec import Meta

LARGEST = 1e100
"""Largest allowed score; sums of squares of such scores are finite."""

LARGEST_WHOLE = 2**53
"""Largest whole number that every program can read from JSON exactly."""

Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Size = Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]


class _Figures:
    """What both kinds of scores have in common."""

    nll: float | None

    @property
    def figures(self) -> dict[str, float | None]:
        """All scores except n, by name."""
        return {name: value for name, value in vars(self).items() if name != "n"}

    def gain(self, baseline: Self | None) -> float | None:
        """Return the log score of a baseline minus the log score `nll`; None if one is missing."""
        if baseline is None or self.nll is None or baseline.nll is None:
            return None
        return baseline.nll - self.nll


@dataclass(frozen=True)
class Scores(_Figures):
    """Mean scores over n rows, on the scale of the modelled target; None if n is 0.

    `mae` is the mean absolute error of the predictive median, and `rmse` the root mean squared
    error of the predictive mean. `nll` is the negative log predictive density (natural), and `crps`
    the continuous ranked probability score. A coverage is the share of rows inside the central
    interval. For counts, `nll` uses the probability of the count, and the coverage to expect may be
    above the level.
    """

    n: Count
    mae: Size | None
    rmse: Size | None
    nll: Real | None
    crps: Size | None
    coverage_50: Share | None
    coverage_80: Share | None
    coverage_95: Share | None
    width_95: Size | None


@dataclass(frozen=True)
class ClassScores(_Figures):
    """Mean scores over n rows of classes; None if n is 0.

    `accuracy`: share of rows whose most probable class is the observed class.
    `nll`: mean of -log of the probability of the observed class.
    `brier`: mean of Σ_j (p_j - o_j)², from 0 to 2, with o_j = 1 for the observed class and 0 for
        the others.
    `ece`: expected calibration error; see `calibration_terms`.
    """

    n: Count
    accuracy: Share | None
    nll: Real | None
    brier: Size | None
    ece: Share | None


def no_scores(n: int = 0) -> Scores:
    """Return scores that are all None: for no rows, or for n rows with unknown scores."""
    return Scores(n, *[None] * (len(fields(Scores)) - 1))


Kind = TypeVar("Kind", Scores, ClassScores)


def pooled(parts: Sequence[Kind]) -> Kind:
    """Return the combined scores of several sets of rows, weighted by the numbers of rows.

    The calibration error `ece` of the result is only an upper bound, because errors of the parts
    can cancel.
    """
    held = [part for part in parts if part.n]
    if len(held) <= 1:
        return (held or parts)[0]
    n = sum(part.n for part in held)

    def mean(name: str, power: int = 1) -> float | None:
        values = [(part.n, getattr(part, name)) for part in held]
        if any(value is None for _, value in values):
            return None
        total = float(sum(rows * value**power for rows, value in values))
        return math.sqrt(total / n) if power == 2 else total / n

    names = [one.name for one in fields(held[0]) if one.name != "n"]
    return replace(held[0], n=n, **{name: mean(name, 2 if name == "rmse" else 1) for name in names})


@dataclass(frozen=True, kw_only=True)
class JointScores:
    """Mean scores of joint predictions of several targets, on `n` test rows.

    `log_score` and `energy_score` are those of the joint distributions, the latter with each target
    in units of its standard deviation in the training rows. The others are those of the same
    marginal distributions taken as independent. `seen` and `stated` are the correlations of the
    normal scores of the measurements, and those of the distributions on average, for each pair of
    targets in their order.
    """

    n: Count
    log_score: Real
    energy_score: Size
    independent_log_score: Real
    independent_energy_score: Size
    seen: list[Real]
    stated: list[Real]

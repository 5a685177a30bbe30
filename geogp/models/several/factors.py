"""Independent factors of several targets, and targets that a row lacks.

The targets are y = c + A z. The t factors z are independent processes: this is a linear model of
coregionalisation (Goovaerts 1997, section 4.2). A comes from min/max autocorrelation factors
(Switzer and Green 1984; Desbarats and Dimitrakopoulos 2000): with S the covariance of the targets
and G half the covariance of differences between near rows, A⁻¹ S A⁻ᵀ is the identity and A⁻¹ G A⁻ᵀ
is diagonal. Under two structures, such as a field and noise, the factors have no correlation at any
distance.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from geogp.errors import DataError, named
from geogp.models.numerics.trees import tree_of

Floats = NDArray[np.float64]

MOST_SPREADS = 4.0
"""Covariances of targets are those of values clipped to so many standard deviations."""

LEAST_VARIANCE = 1e-6
"""Smallest eigenvalue of the correlation matrix of targets; below, a target tells another."""

NEAR = 8
"""Number of near rows whose mean predicts a target that a row lacks."""

LEAST_COMPLETE = 30
"""Smallest number of rows that have all targets."""

RIDGE = 1.0
"""Weight of the prior of regression coefficients of standardised targets, in rows."""


@dataclass(frozen=True)
class Factors:
    """The map y = c + A z between t targets and t factors.

    `centre`: c, (t,). `mixing`: A, (t, t).
    """

    centre: Floats
    mixing: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats, names: tuple[str, ...]) -> "Factors":
        """Return the factors of rows with inputs x (n, d) and targets y (n, t).

        Raises DataError if a target is constant, or the others determine it.
        """
        centre, sd = y.mean(0), y.std(0)
        if not (sd > 0).all():
            raise DataError(f"expected targets that vary, found {named(_where(names, sd == 0))}.")
        unit = np.clip((y - centre) / sd, -MOST_SPREADS, MOST_SPREADS)
        total = np.cov(unit.T, bias=True)
        if np.linalg.eigvalsh(total)[0] < LEAST_VARIANCE:
            raise DataError(
                f"expected targets that differ, found that some of {named(names)} determine "
                "another. Leave it out."
            )
        nearest = np.asarray(tree_of(x).query(x, 2)[1])
        own = nearest[:, 0] == np.arange(len(x))
        other = np.where(own, nearest[:, 1], nearest[:, 0])
        gap = unit - unit[other]
        _, inverse = scipy.linalg.eigh(gap.T @ gap / (2 * len(gap)), total)
        mixing = np.linalg.inv(inverse.T)
        largest = np.abs(mixing).argmax(0)
        signs = np.sign(mixing[largest, np.arange(len(sd))])
        return cls(np.asarray(centre), np.asarray(sd[:, None] * mixing * signs, np.float64))

    def scores(self, y: Floats) -> Floats:
        """Return the factors z of targets y, (n, t) each."""
        return np.asarray(np.linalg.solve(self.mixing, (y - self.centre).T).T, np.float64)

    def mean(self, z: Floats) -> Floats:
        """Return the targets of factors, (n, t) each."""
        return self.centre + z @ self.mixing.T

    def variance(self, of_factors: Floats) -> Floats:
        """Return the variances of targets from those of independent factors, (n, t) each."""
        return of_factors @ np.square(self.mixing).T

    def score_variance(self, covariance: Floats) -> Floats:
        """Return the variances of factors, (n, t), from covariances of targets, (n, t, t)."""
        inverse = np.linalg.inv(self.mixing)
        variance: Floats = np.einsum("ki,nij,kj->nk", inverse, covariance, inverse)
        return variance


@dataclass(frozen=True)
class CompletedTargets:
    """Targets of rows, with predictions where rows lack them.

    `y`: measured or predicted targets, (n, t). `covariance`: that of the errors of the predicted
    ones, (n, t, t); 0 for measured ones.
    """

    y: Floats
    covariance: Floats

    def drawn(self, seed: int) -> Floats:
        """Return targets with errors drawn for the predicted ones, (n, t)."""
        random, y = np.random.default_rng([seed, 7]), self.y.copy()
        lacking = np.flatnonzero(self.covariance.any((1, 2)))
        for pattern, rows in _patterns(self.covariance[lacking].diagonal(0, 1, 2) == 0):
            some, own = lacking[rows], np.flatnonzero(~pattern)
            covariance = self.covariance[some[0]][np.ix_(own, own)]
            errors = random.multivariate_normal(np.zeros(len(own)), covariance, len(some))
            y[np.ix_(some, own)] += errors
        return y


def completed(x: Floats, y: Floats, names: tuple[str, ...]) -> CompletedTargets:
    """Predict the targets that rows lack (NaN in y, (n, t)) from the targets that they have.

    A target that is lacking is a linear function of the row's other targets, and of the means of
    all targets over the `NEAR` nearest rows that have them. The coefficients are those of the rows
    that have all targets, and so is the covariance of the errors.

    Raises DataError if fewer than `LEAST_COMPLETE` rows have all targets.
    """
    known, t = ~np.isnan(y), len(names)
    complete = known.all(1)
    if complete.sum() < LEAST_COMPLETE:
        raise DataError(
            f"expected {LEAST_COMPLETE} rows or more that have all of {named(names)}, found "
            f"{complete.sum()}. Fit each target alone."
        )
    filled, covariance = np.where(known, y, 0.0), np.zeros((len(y), t, t))
    if complete.all():
        return CompletedTargets(filled, covariance)
    near = np.column_stack([_near_mean(x, y[:, k]) for k in range(t)])
    centre, sd = y[complete].mean(0), y[complete].std(0)
    sd = np.where(sd > 0, sd, 1.0)
    unit, around = (y - centre) / sd, (near - centre) / sd
    for pattern, rows in _patterns(known):
        if pattern.all():
            continue
        told, lacking = np.flatnonzero(pattern), np.flatnonzero(~pattern)
        columns = np.column_stack([unit[:, told], around])
        design = np.column_stack([np.ones(len(y)), columns])
        inner = design[complete].T @ design[complete] + RIDGE * np.eye(design.shape[1])
        slopes = np.linalg.solve(inner, design[complete].T @ unit[complete][:, lacking])
        errors = unit[complete][:, lacking] - design[complete] @ slopes
        freedom = max(1, len(errors) - design.shape[1])
        spread = sd[lacking]
        own = spread[:, None] * (errors.T @ errors / freedom) * spread
        filled[np.ix_(rows, lacking)] = centre[lacking] + spread * (design[rows] @ slopes)
        covariance[np.ix_(rows, lacking, lacking)] = own
    return CompletedTargets(filled, covariance)


def _near_mean(x: Floats, y: Floats) -> Floats:
    """Return means of a target over the nearest other rows that have it, (n,)."""
    has = np.flatnonzero(~np.isnan(y))
    count = min(NEAR + 1, len(has))
    number = has[tree_of(x[has]).query(x, count)[1].reshape(len(x), count)]
    own = number == np.arange(len(x))[:, None]
    own[~own.any(1), -1] = True
    others = y[number[~own].reshape(len(x), count - 1)]
    return np.asarray(others.mean(1), np.float64)


def _patterns(known: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Return the different rows of a mask (n, t), each with the numbers of its rows."""
    patterns, number = np.unique(known, axis=0, return_inverse=True)
    return [(own, np.flatnonzero(number.reshape(-1) == k)) for k, own in enumerate(patterns)]


def _where(names: tuple[str, ...], mask: NDArray[np.bool_]) -> list[str]:
    return [name for name, own in zip(names, mask, strict=True) if own]

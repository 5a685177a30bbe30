"""Split conformal repair of predictive distributions.

The score of a calibration row is ``|z|``, where z = Φ^(-1)(F(y)) and F is the row's predictive
distribution function; for a normal prediction the score is ``|y - mean| / sd``. The conformal
quantile q_p of m scores at level p is the k-th smallest score, k = ceil((m + 1) p), where k must
not exceed m (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). If a new row's score is
exchangeable with these scores, it is at most q_p with probability k / (m + 1), which lies between p
and p + 1 / (m + 1); with ties the probability is at least k / (m + 1). For each level p in
`LADDER`, the repair changes the central interval from ``|z|`` <= t_p to ``|z|`` <= q_p, where t_p
is the normal quantile. `warped_shapes.py` describes the intervals between and beyond the levels.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from geogp.choices import one_of
from geogp.distributions.prediction import Prediction
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import LADDER, Warp, covering_knots
from geogp.errors import DataError, RequestError
from geogp.evaluation.conformal.conformal_cells import (
    EVERYWHERE,
    MIN_ROWS,
    Cell,
    RepairPlaces,
    partition,
)
from geogp.evaluation.conformal.local_quantiles import MAX_SCORE, MIN_NEAREST, NearbyScores
from geogp.evaluation.conformal.repair_methods import BY_STRATA, LOCAL, MARGINAL, METHODS, NONE

MIN_IN_ALL = 19
"""Fewest rows with a 95 % interval: the least m with ceil(0.95 (m + 1)) <= m."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Repair:
    """A fitted repair, made by `fit_repair`.

    `n` counts the calibration rows. `cells` partition all rows (methods marginal and strata);
    `nearby` holds the calibration rows by location (method local).
    """

    method: str
    n: int = 0
    cells: tuple[Cell, ...] = ()
    nearby: NearbyScores | None = None

    def apply(self, prediction: Prediction, places: RepairPlaces) -> Prediction:
        """Return predictions with the repaired distributions.

        Mean, variances and median remain the values of the model; other quantiles, probabilities
        and scores come from the repaired distributions. The predictions must be of measurements,
        like the calibration rows, because the repair does not apply to the level without noise.
        Raises RequestError if predictions are counts or already repaired, DataError if the numbers
        of rows differ or a row lies in no cell because its stratum is unknown.
        """
        _refuse_counts(prediction)
        if len(prediction) != len(places):
            raise DataError(
                f"expected a place for each of {len(prediction)} predictions, found {len(places)} "
                "places."
            )
        if self.method == NONE or not len(places):
            return prediction
        if self.nearby is None:
            knots = np.array([cell.knots for cell in self.cells])
            number = self.cell_of(places)
        else:
            where = np.column_stack([places.longitude, places.latitude])
            distinct, number = np.unique(where, axis=0, return_inverse=True)
            knots, number = self.nearby.knots(*distinct.T), number.reshape(-1)
        return replace(prediction, shape=WarpedShape(prediction.shape, Warp(knots), number))

    def cell_of(self, places: RepairPlaces) -> NDArray[np.intp]:
        """Return the index of each row's cell, (n,); DataError if a row lies in no cell."""
        number = np.full(len(places), -1, np.intp)
        for place, cell in enumerate(self.cells):
            number[cell.holds(places)] = place
        if (number < 0).any():
            raise DataError(
                f"expected the stratum of each place, because the repair differs between strata, "
                f"found {int((number < 0).sum())} places of unknown stratum."
            )
        return number

    @property
    def ladder(self) -> list[float]:
        """Levels at which every cell has a knot."""
        return [level for level in LADDER if self._holds(level)]

    @property
    def smallest(self) -> Cell | None:
        """The cell with the fewest rows; None for a repair without cells."""
        return min(self.cells, key=lambda cell: cell.n, default=None)

    def _holds(self, level: float) -> bool:
        """Return whether every cell has a knot at a level (a local repair has no cells)."""
        place = LADDER.index(level)
        return self.method != NONE and all(np.isfinite(cell.knots[place]) for cell in self.cells)


NO_REPAIR = Repair(NONE)
"""The repair that does not change predictions."""


def check_method(method: str) -> str:
    """Return the method; RequestError if it is not one of `METHODS`."""
    one_of("conformal repair", method, METHODS)
    return method


def check_rows(method: str, m: int) -> None:
    """Raise DataError, with the numbers found and needed, if there are too few calibration rows."""
    least = MIN_NEAREST if method == LOCAL else MIN_IN_ALL
    if m < least:
        raise DataError(
            f"expected at least {least} calibration rows for the repair {method}, the minimum for "
            f"a 95 % interval, found {m}. Choose more quarters or a larger "
            f"region{', or choose marginal.' if method == LOCAL else '.'}"
        )


def fit_repair(
    method: str, prediction: Prediction, y: ArrayLike, places: RepairPlaces, least: int = MIN_ROWS
) -> Repair:
    """Fit a repair to m calibration rows that were used for nothing else.

    `prediction` is the model's prediction of the measurements `y` (m,). For the method strata, a
    class of tests with fewer than `least` rows in a stratum is pooled with the next larger class;
    the last class is pooled with the class before it. A stratum with fewer than `least` rows shares
    the cells of the other stratum.

    Raises DataError if there are too few rows, lengths differ, a measurement is not finite, or rows
    are so extreme that no interval of the prediction's shape reaches them; RequestError if the
    method is unknown or predictions are counts.
    """
    if check_method(method) == NONE:
        return NO_REPAIR
    scores = normal_scores(prediction, y)
    m = len(scores)
    if m != len(places):
        raise DataError(
            f"expected a place for each of {m} calibration rows, found {len(places)} places."
        )
    check_rows(method, m)
    if method == LOCAL:
        return Repair(LOCAL, m, nearby=NearbyScores(places.longitude, places.latitude, scores))
    if method == MARGINAL:
        return Repair(MARGINAL, m, (_cell((EVERYWHERE, 1, None), scores),))
    groups = partition(places, least)
    return Repair(BY_STRATA, m, tuple(_cell(name, scores[rows]) for name, rows in groups.items()))


def normal_scores(prediction: Prediction, y: ArrayLike) -> Floats:
    """Return ``|Φ^(-1)(F(y))|`` for each prediction F, (n,); at most 37.

    Raises DataError if `y` has another shape or is not finite, RequestError if predictions are
    counts.
    """
    _refuse_counts(prediction)
    y = np.asarray(y, np.float64)
    if y.shape != prediction.mean.shape or not np.isfinite(y).all():
        raise DataError(
            f"expected {len(prediction)} finite measurements, one per prediction, found shape "
            f"{y.shape}{'' if y.shape != prediction.mean.shape else ' and values not finite'}."
        )
    return np.abs(prediction.shape.normal_score((y - prediction.mean) / prediction.sd))


def rank(m: int, level: float) -> int:
    """Return k = ceil((m + 1) p), without the rounding error of the product."""
    return math.ceil((m + 1) * level - 1e-9)


def scatter(m: int, level: float = 0.95) -> tuple[float, float]:
    """Return bounds that a conformal interval's coverage meets for 95 of 100 samples of m rows.

    Given the calibration rows, the coverage has the distribution Beta(k, m + 1 - k); see
    `coverage_bands.py`.
    """
    k = rank(m, level)
    low, high = (float(stats.beta.ppf(end, k, m + 1 - k)) for end in (0.025, 0.975))
    return low, high


def ladder_knots(scores: ArrayLike) -> Floats:
    """Return the knots at the levels of `LADDER`, (K,): the conformal quantiles of scores (m,).

    `covering_knots` raises the knots slightly, so that rows at the ends of intervals lie inside. A
    knot is NaN if k exceeds m, or if it reaches `MAX_SCORE`, because the interval would be
    infinite.
    """
    ordered = np.sort(np.asarray(scores, np.float64))
    m = len(ordered)
    ranks = [rank(m, level) for level in LADDER]
    quantiles = [float(ordered[k - 1]) if k <= m else math.nan for k in ranks]
    found: Floats = covering_knots(np.array([quantiles]))[0]
    return np.where(found < MAX_SCORE, found, np.nan)


def _cell(name: tuple[str, int, int | None], scores: Floats) -> Cell:
    knots = ladder_knots(scores)
    if np.isnan(knots[LADDER.index(0.95)]):
        raise DataError(
            f"expected normal scores below {MAX_SCORE:g}, found {int((scores >= MAX_SCORE).sum())} "
            f"of {len(scores)} calibration rows with larger scores. No 95 % interval of the "
            "predicted shape reaches these rows. Fit the model again."
        )
    return Cell(*name, len(scores), tuple(knots.tolist()))


def _refuse_counts(prediction: Prediction) -> None:
    if prediction.discrete:
        raise RequestError(
            "expected predictions of a speed or a latency, found counts of tests: intervals of "
            "whole numbers are not repaired. Leave --conformal at none."
        )

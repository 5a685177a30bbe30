"""Split conformal repair of predictive distributions.

The score of a calibration row is ``|z|``, z = Φ^(-1)(F(y)) with F its prediction: for a normal
prediction ``|y - mean| / sd``. Of m scores the conformal quantile q_p of level p is the k-th
smallest, k = ceil((m + 1) p) (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). A new row whose
score is exchangeable with these has a score of at most q_p with probability k / (m + 1), from p to
p + 1 / (m + 1), where scores have no ties; with ties at least that. The repair moves the central
interval of each level p of a ladder from ``|z|`` <= t_p to ``|z|`` <= q_p, for which k must
not exceed m; see `warped_shapes.py` for what lies between and beyond.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from geogp.distributions.prediction import Prediction
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import LADDER, Warp, covering_knots
from geogp.errors import DataError, RequestError
from geogp.evaluation.conformal.conformal_cells import (
    EVERYWHERE,
    LEAST_ROWS,
    Cell,
    RepairPlaces,
    partition,
)
from geogp.evaluation.conformal.local_quantiles import LEAST_NEAREST, MOST_SCORE, NearbyScores
from geogp.evaluation.conformal.repair_methods import BY_STRATA, LOCAL, MARGINAL, METHODS, NONE

LEAST_IN_ALL = 19
"""Rows without which there is no 95 % interval: the least m with ceil(0.95 (m + 1)) <= m."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Repair:
    """A fitted repair; `fit_repair` makes it.

    Attributes
    ----------
    method
        One of `METHODS`.
    n
        Calibration rows.
    cells
        A partition of all rows, for the methods marginal and strata.
    nearby
        Calibration rows by place, for the method local.
    """

    method: str
    n: int = 0
    cells: tuple[Cell, ...] = ()
    nearby: NearbyScores | None = None

    def apply(self, prediction: Prediction, places: RepairPlaces) -> Prediction:
        """Return predictions with the repaired distributions.

        Mean, variances and median stay those of the model; quantiles, probabilities and scores
        are those of the repaired distributions. Predictions must be of measurements, as those of
        the calibration rows were: to the level without noise the repair says nothing.

        Raises
        ------
        RequestError
            The predictions are of counts, or repaired already.
        DataError
            Rows differ in number, or lie in no cell: their stratum is unknown, that of the
            calibration rows is not.
        """
        _refuse_counts(prediction)
        if len(prediction) != len(places):
            raise DataError(
                f"expected a place for each of {len(prediction)} predictions, found {len(places)}."
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
        """Return the number of the cell of each row, (n,).

        Raises
        ------
        DataError
            A row lies in no cell.
        """
        number = np.full(len(places), -1, np.intp)
        for place, cell in enumerate(self.cells):
            number[cell.holds(places)] = place
        if (number < 0).any():
            raise DataError(
                f"expected places in town or country, as the repair tells them apart, found "
                f"{int((number < 0).sum())} of unknown stratum."
            )
        return number

    @property
    def ladder(self) -> list[float]:
        """Levels at which every cell has a knot."""
        return [level for level in LADDER if self._holds(level)]

    @property
    def smallest(self) -> Cell | None:
        """The cell of fewest rows; None of a repair without cells."""
        return min(self.cells, key=lambda cell: cell.n, default=None)

    def _holds(self, level: float) -> bool:
        """Tell whether every cell has a knot at a level; a local repair has as its rows allow."""
        place = LADDER.index(level)
        return self.method != NONE and all(np.isfinite(cell.knots[place]) for cell in self.cells)


NO_REPAIR = Repair(NONE)
"""Leaves predictions as they are."""


def check_method(method: str) -> str:
    """Return a method of repair, or refuse it.

    Raises
    ------
    RequestError
        It is none of `METHODS`.
    """
    if method not in METHODS:
        raise RequestError(
            f"expected a conformal repair of {', '.join(METHODS)}, found {method!r}."
        )
    return method


def check_rows(method: str, m: int) -> None:
    """Refuse too few calibration rows for a method.

    Raises
    ------
    DataError
        Says how many there are, and how many it needs.
    """
    least = LEAST_NEAREST if method == LOCAL else LEAST_IN_ALL
    if m < least:
        raise DataError(
            f"expected at least {least} calibration rows for the repair {method}, without which "
            f"there is no 95 % interval, found {m}. Ask for more quarters or a larger region"
            f"{', or choose marginal.' if method == LOCAL else '.'}"
        )


def fit_repair(
    method: str, prediction: Prediction, y: ArrayLike, places: RepairPlaces, least: int = LEAST_ROWS
) -> Repair:
    """Fit a repair to calibration rows, which nothing else may have used.

    Parameters
    ----------
    method
        One of `METHODS`.
    prediction
        Of the measurements of the calibration rows, as the model gave them, of length m.
    y
        What was measured, (m,).
    places
        Theirs.
    least
        Rows of a cell of the method strata: in each stratum classes of tests with fewer are
        pooled with the next larger class, the last with the one before. A stratum with fewer in
        all is not told apart from the other.

    Raises
    ------
    DataError
        There are too few rows, lengths differ, a measurement is not finite, or rows lie so far
        out that no interval of the prediction's shape reaches them.
    RequestError
        The method has another name, or the predictions are of counts.
    """
    if check_method(method) == NONE:
        return NO_REPAIR
    scores = normal_scores(prediction, y)
    m = len(scores)
    if m != len(places):
        raise DataError(f"expected a place for each of {m} calibration rows, found {len(places)}.")
    check_rows(method, m)
    if method == LOCAL:
        return Repair(LOCAL, m, nearby=NearbyScores(places.longitude, places.latitude, scores))
    if method == MARGINAL:
        return Repair(MARGINAL, m, (_cell((EVERYWHERE, 1, None), scores),))
    groups = partition(places, least)
    return Repair(BY_STRATA, m, tuple(_cell(name, scores[rows]) for name, rows in groups.items()))


def normal_scores(prediction: Prediction, y: ArrayLike) -> Floats:
    """Return ``|Φ^(-1)(F(y))|`` for each prediction F, (n,); at most 37 where tails end there.

    Raises
    ------
    DataError
        `y` has another shape or a value that is not finite.
    RequestError
        The predictions are of counts.
    """
    _refuse_counts(prediction)
    y = np.asarray(y, np.float64)
    if y.shape != prediction.mean.shape or not np.isfinite(y).all():
        raise DataError(
            f"expected {len(prediction)} finite measurements, one per prediction, found shape "
            f"{y.shape}{'' if y.shape != prediction.mean.shape else ' and others'}."
        )
    return np.abs(prediction.shape.normal_score((y - prediction.mean) / prediction.sd))


def rank(m: int, level: float) -> int:
    """Return k = ceil((m + 1) p), a product that is whole but for rounding taken as whole."""
    return math.ceil((m + 1) * level - 1e-9)


def scatter(m: int, level: float = 0.95) -> tuple[float, float]:
    """Return between which shares a conformal interval holds, in 95 of 100 draws of m rows.

    Given the calibration rows the coverage is Beta(k, m + 1 - k); see `coverage_bands.py`.
    """
    k = rank(m, level)
    low, high = (float(stats.beta.ppf(end, k, m + 1 - k)) for end in (0.025, 0.975))
    return low, high


def ladder_knots(scores: ArrayLike) -> Floats:
    """Return the knots of scores (m,) at the ladder's levels, (K,): their conformal quantiles.

    They are raised as `covering_knots` says, so that rows at the ends of intervals lie inside.
    NaN from the first level on whose k exceeds m, or whose score lies where scores are no more
    told apart: its interval would be infinite.
    """
    ordered = np.sort(np.asarray(scores, np.float64))
    m = len(ordered)
    ranks = [rank(m, level) for level in LADDER]
    quantiles = [float(ordered[k - 1]) if k <= m else math.nan for k in ranks]
    found: Floats = covering_knots(np.array([quantiles]))[0]
    return np.where(found < MOST_SCORE, found, np.nan)


def _cell(name: tuple[str, int, int | None], scores: Floats) -> Cell:
    knots = ladder_knots(scores)
    if np.isnan(knots[LADDER.index(0.95)]):
        raise DataError(
            f"expected normal scores below {MOST_SCORE:g}, found "
            f"{int((scores >= MOST_SCORE).sum())} of {len(scores)} calibration rows beyond: no "
            "95 % interval of the predicted shape reaches them. Fit the model anew."
        )
    return Cell(*name, len(scores), tuple(knots.tolist()))


def _refuse_counts(prediction: Prediction) -> None:
    if prediction.discrete:
        raise RequestError(
            "expected predictions of a speed or a latency, found counts of tests: intervals of "
            "whole numbers are not repaired. Leave --conformal at none."
        )

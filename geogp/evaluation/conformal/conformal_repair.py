"""Split conformal repair of predictive distributions.

The score of a calibration row is ``|z|`` with z = Φ^(-1)(F(y)), where F is the row's predictive
distribution function. For a normal prediction, the score is ``|y - mean| / sd``. The conformal
quantile q_p of m scores at level p is the k-th smallest score with k = ceil((m + 1) p), and k must
not exceed m (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). Let the score of a new row be
exchangeable with the m scores. Then the new score is at most q_p with probability k / (m + 1),
which lies between p and p + 1 / (m + 1). With ties, the probability is at least k / (m + 1). For
each level p in `LADDER`, the repair changes the central interval from ``|z|`` <= t_p to ``|z|`` <=
q_p, where t_p is the normal quantile. `warped_shapes.py` describes the repair of intervals at other
levels.

Let n test rows be exchangeable with the m calibration rows. Given the calibration rows, the
coverage of intervals with level p has the distribution Beta(k, m + 1 - k). So the number of test
rows inside their intervals is beta-binomial with parameters n, k, m + 1 - k (Vovk 2012, proposition
2a; Angelopoulos and Bates 2021, section 3.2 and appendix C).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from geogp.arrays import Floats
from geogp.choices import one_of
from geogp.distributions.prediction import Prediction
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import KNOTS, LADDER, Warp, covering_knots
from geogp.errors import DataError
from geogp.evaluation.conformal.conformal_cells import EVERYWHERE, Cell, RepairPlaces, partition
from geogp.evaluation.conformal.local_quantiles import MAX_SCORE, MIN_NEAREST, NearbyScores
from geogp.evaluation.conformal.repair_methods import BY_STRATA, LOCAL, MARGINAL, METHODS, NONE
from geogp.evaluation.metrics import Interval

MIN_IN_ALL = 19
"""Smallest number m of calibration rows for a 95 % interval: ceil(0.95 (m + 1)) <= m."""

CHECKED = (0.5, 0.8, 0.9, 0.95)
"""Levels at which the coverage is checked."""


@dataclass(frozen=True)
class Repair:
    """A conformal repair from `n` calibration rows, with `cells`, or with scores `nearby`."""

    method: str
    n: int = 0
    cells: tuple[Cell, ...] = ()
    nearby: NearbyScores | None = None

    def apply(self, prediction: Prediction, places: RepairPlaces) -> Prediction:
        """Return the predictions of measurements with repaired distributions.

        The repair does not change mean, variances and median. Raises RequestError if predictions
        are already repaired, and DataError if a row has no cell because its stratum is unknown.
        """
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
        """Return the index of each row's cell, (n,); raise DataError if a row has no cell."""
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
        """Levels at which every cell has a conformal quantile; all levels for the method local."""
        if self.method == NONE:
            return []
        knots = zip(*(cell.knots for cell in self.cells), strict=True)
        held = [bool(np.isfinite(part).all()) for part in knots] or [True] * len(LADDER)
        return [level for level, found in zip(LADDER, held, strict=True) if found]

    @property
    def smallest(self) -> Cell | None:
        """The cell with the fewest rows; None for a repair without cells."""
        return min(self.cells, key=lambda cell: cell.n, default=None)


NO_REPAIR = Repair(NONE)
"""The repair that does not change predictions."""


def check_rows(method: str, m: int) -> None:
    """Raise DataError if m calibration rows are too few for a method of repair."""
    least = MIN_NEAREST if method == LOCAL else MIN_IN_ALL
    if m < least:
        raise DataError(
            f"expected at least {least} calibration rows for the repair {method}, the minimum for "
            f"a 95 % interval, found {m}. Choose more quarters or a larger "
            f"region{', or choose marginal.' if method == LOCAL else '.'}"
        )


def fit_repair(method: str, prediction: Prediction, y: Floats, places: RepairPlaces) -> Repair:
    """Fit a repair to m calibration rows, which must not be used for anything else.

    `prediction` is the model's prediction of the measurements `y` (m,). Raises RequestError if the
    method is unknown. Raises DataError if there are too few rows, or too many normal scores are
    `MAX_SCORE` or more.
    """
    one_of("conformal repair", method, METHODS)
    if method == NONE:
        return NO_REPAIR
    scores = normal_scores(prediction, y)
    m = len(scores)
    check_rows(method, m)
    if method == LOCAL:
        return Repair(LOCAL, m, nearby=NearbyScores(places.longitude, places.latitude, scores))
    if method == MARGINAL:
        return Repair(MARGINAL, m, (_cell((EVERYWHERE, 1, None), scores),))
    groups = partition(places)
    return Repair(BY_STRATA, m, tuple(_cell(name, scores[rows]) for name, rows in groups.items()))


def normal_scores(prediction: Prediction, y: Floats) -> Floats:
    """Return ``|Φ^(-1)(F(y))|`` for each predictive distribution function F, (n,); at most 37."""
    return np.abs(prediction.shape.normal_score((y - prediction.mean) / prediction.sd))


def rank(m: int, level: float) -> int:
    """Return k = ceil((m + 1) p) for the level p, corrected for rounding errors of the product."""
    return math.ceil((m + 1) * level - 1e-9)


def scatter(m: int) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of the coverage of 95 % intervals.

    Given m calibration rows, the coverage has the distribution Beta(k, m + 1 - k).
    """
    k = rank(m, 0.95)
    low, high = (float(scipy.stats.beta.ppf(end, k, m + 1 - k)) for end in (0.025, 0.975))
    return low, high


def ladder_knots(scores: ArrayLike) -> Floats:
    """Return the conformal quantiles of scores (m,) at the levels of `LADDER`, (K,).

    `covering_knots` raises the quantiles slightly, so that rows exactly at the end of an interval
    count as inside. The result has NaN if k exceeds m, or if the quantile is `MAX_SCORE` or more.
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
            "predicted distribution can contain these rows. Fit the model again."
        )
    return Cell(*name, len(scores), tuple(knots.tolist()))


@dataclass(frozen=True)
class CellCheck:
    """Check of the coverage of test rows in one cell at one level.

    `calibration` and `test` are numbers of rows in the cell. `observed` is the coverage. For
    `band`, see `coverage_band`; `inside` tells whether the coverage lies in the band.
    """

    cell: str
    level: float
    calibration: int
    test: int
    observed: float
    band: Interval
    inside: bool


def coverage_band(m: int, n: int, p: float, level: float = 0.99, checks: int = 1) -> Interval:
    """Return the range in which the coverage of n test rows by intervals of level p should lie.

    `m` is the number of calibration rows, with ceil((m + 1) p) <= m. `level` is the probability
    that all coverages lie in their bands, if there are `checks` bands. By the correction of Šidák
    (1967), each band has the probability ``level ** (1 / checks)``. This correction is exact for
    independent cells; for several levels of one cell, the bands are too wide.
    """
    k = rank(m, p)
    tail = (1 - level ** (1 / checks)) / 2
    # SciPy's search for quantiles would sum over all counts at each step.
    below = np.cumsum(scipy.stats.betabinom(n, k, m + 1 - k).pmf(np.arange(n + 1)))
    lower, upper = np.searchsorted(below, [tail, 1 - tail])
    return Interval(float(lower) / n, float(min(upper, n)) / n)


def check_coverage(
    repair: Repair,
    prediction: Prediction,
    y: Floats,
    places: RepairPlaces,
) -> list[CellCheck]:
    """Return a check of the coverage of test rows for each cell and each level in `CHECKED`.

    If the rows are exchangeable, all coverages lie in their bands with a probability of 99 %.
    Raises DataError if a row belongs to no cell.
    """
    number, size = repair.cell_of(places), normal_scores(prediction, y)
    held = [
        (cell, stated, size[number == place])
        for place, cell in enumerate(repair.cells)
        for stated in CHECKED
        if (number == place).any() and np.isfinite(cell.knots[LADDER.index(stated)])
    ]
    found = []
    for cell, stated, scores in held:
        band = coverage_band(cell.n, len(scores), stated, checks=len(held))
        observed = float(np.mean(scores <= KNOTS[LADDER.index(stated)]))
        inside = band.lower <= observed <= band.upper
        found.append(
            CellCheck(cell.name, stated, cell.n, len(scores), observed, band, bool(inside))
        )
    return found

"""How far chance can move the coverage of a conformal repair from its level.

Let there be m calibration rows and n test rows, all exchangeable and without ties, and k = ceil((m
+ 1) p). Given the calibration rows, the coverage of intervals with level p has the distribution
Beta(k, m + 1 - k). So the number of test rows inside is beta-binomial with parameters n, k, m + 1 -
k (Vovk 2012, proposition 2a; Angelopoulos and Bates 2021, section 3.2 and appendix C).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from geogp.distributions.prediction import Prediction
from geogp.distributions.warps import KNOTS, LADDER
from geogp.errors import RequestError
from geogp.evaluation.conformal.conformal_cells import RepairPlaces
from geogp.evaluation.conformal.conformal_repair import Repair, normal_scores, rank
from geogp.evaluation.metrics import Interval

CHECKED = (0.5, 0.8, 0.9, 0.95)
"""The levels that are checked."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellCheck:
    """Coverage of the test rows of one cell at one level.

    `calibration` and `test` are the numbers m and n of rows in the cell. `observed` is the share of
    test rows inside the intervals. `band` is the range that chance explains, for all checks
    together. `inside` is true if the share lies in the band.
    """

    cell: str
    level: float
    calibration: int
    test: int
    observed: float
    band: Interval
    inside: bool


def coverage_band(m: int, n: int, p: float, level: float = 0.99, checks: int = 1) -> Interval:
    """Return the range that chance explains for the share of test rows inside intervals of level p.

    `m` and `n` are the numbers of calibration rows and test rows. `level` is the probability that
    the shares of all `checks` lie in their bands. By the correction of Šidák (1967), each band has
    probability ``level ** (1 / checks)``. This is exact for independent cells; for several levels
    of one cell, the bands are too wide. Raises RequestError if there is no test row, or too few
    calibration rows for the level.
    """
    k = rank(m, p)
    if n < 1 or not 0 < p < 1 or not 0 < level < 1 or checks < 1 or k > m:
        raise RequestError(
            "expected one test row or more, levels between 0 and 1, and calibration rows m with "
            f"ceil((m + 1) p) <= m, found n {n}, p {p:g}, level {level:g}, m {m}."
        )
    tail = (1 - level ** (1 / checks)) / 2
    # SciPy's search for quantiles would sum over all counts at each step.
    below = np.cumsum(stats.betabinom(n, k, m + 1 - k).pmf(np.arange(n + 1)))
    lower, upper = np.searchsorted(below, [tail, 1 - tail])
    return Interval(float(lower) / n, float(min(upper, n)) / n)


def check_coverage(
    repair: Repair,
    prediction: Prediction,
    y: ArrayLike,
    places: RepairPlaces,
    *,
    levels: tuple[float, ...] = CHECKED,
    level: float = 0.99,
) -> list[CellCheck]:
    """Compare the coverage of test rows with a band, cell by cell.

    `repair` needs cells (marginal or strata). Pass repaired predictions; for predictions without
    repair, the result shows why a repair is needed. `level` is the probability that all shares lie
    in their bands, if the rows are exchangeable. Raises RequestError if the repair has no cells or
    a level is not in `LADDER`. Raises DataError if a row has no cell or lengths differ.
    """
    odd = [stated for stated in levels if stated not in LADDER]
    if not repair.cells or odd:
        raise RequestError(
            f"expected a repair with cells (marginal or strata) and levels among {LADDER}, found "
            f"the method {repair.method}; levels outside this list: {odd or 'none'}."
        )
    number, size = repair.cell_of(places), normal_scores(prediction, y)
    held = [
        (cell, stated, size[number == place])
        for place, cell in enumerate(repair.cells)
        for stated in levels
        if (number == place).any() and np.isfinite(cell.knots[LADDER.index(stated)])
    ]
    found = []
    for cell, stated, scores in held:
        band = coverage_band(cell.n, len(scores), stated, level, len(held))
        observed = float(np.mean(scores <= KNOTS[LADDER.index(stated)]))
        inside = band.lower <= observed <= band.upper
        found.append(
            CellCheck(cell.name, stated, cell.n, len(scores), observed, band, bool(inside))
        )
    return found

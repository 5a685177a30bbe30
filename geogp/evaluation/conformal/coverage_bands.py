"""How far chance can move the coverage of a conformal repair from its level.

Let there be m calibration rows and n test rows, all exchangeable and without ties, and k = ceil((m
+ 1) p). Given the calibration rows, the coverage of intervals with level p has the distribution
Beta(k, m + 1 - k). So the number of test rows inside is beta-binomial with parameters n, k, m + 1 -
k (Vovk 2012, proposition 2a; Angelopoulos and Bates 2021, section 3.2 and appendix C).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from geogp.distributions.prediction import Prediction
from geogp.distributions.warps import KNOTS, LADDER
from geogp.evaluation.conformal.conformal_cells import RepairPlaces
from geogp.evaluation.conformal.conformal_repair import Repair, normal_scores, rank
from geogp.evaluation.metrics import Interval

CHECKED = (0.5, 0.8, 0.9, 0.95)
"""The levels that are checked."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellCheck:
    """Coverage (`observed`) of the test rows of one cell at one level.

    `calibration` and `test` are the numbers m and n of rows in the cell. `band` is the range that
    chance explains, for all checks together; `inside` tells whether the coverage lies in it.
    """

    cell: str
    level: float
    calibration: int
    test: int
    observed: float
    band: Interval
    inside: bool


def coverage_band(m: int, n: int, p: float, level: float = 0.99, checks: int = 1) -> Interval:
    """Return the range that chance explains for the share of n test rows in intervals of level p.

    `m` is the number of calibration rows, with ceil((m + 1) p) <= m. `level` is the probability
    that the shares of all `checks` lie in their bands. By the correction of Šidák (1967), each band
    has probability ``level ** (1 / checks)``. This is exact for independent cells; for several
    levels of one cell, the bands are too wide.
    """
    k = rank(m, p)
    tail = (1 - level ** (1 / checks)) / 2
    # SciPy's search for quantiles would sum over all counts at each step.
    below = np.cumsum(stats.betabinom(n, k, m + 1 - k).pmf(np.arange(n + 1)))
    lower, upper = np.searchsorted(below, [tail, 1 - tail])
    return Interval(float(lower) / n, float(min(upper, n)) / n)


def check_coverage(
    repair: Repair,
    prediction: Prediction,
    y: Floats,
    places: RepairPlaces,
) -> list[CellCheck]:
    """Compare the coverage of test rows with a band, cell by cell, for a repair with cells.

    All shares lie in their bands with a probability of 99 %, if the rows are exchangeable. Raises
    DataError if a row has no cell.
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

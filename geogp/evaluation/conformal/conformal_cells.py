"""Cells: groups of rows with a common conformal repair, by stratum and number of tests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.arrays import Floats, Mask
from geogp.evaluation.strata import COUNT_STARTS
from geogp.geodata.places.stratum_names import STRATA, UNKNOWN

MIN_ROWS = 100
"""Smallest number of calibration rows in a cell.

With 99 rows or more, a cell has a conformal quantile at every level of `LADDER`. With 100 rows, the
coverage of the 95 % interval has the distribution Beta(96, 5), with standard deviation 0.022.
"""

EVERYWHERE = "all"
"""Name that replaces the stratum if a cell contains rows of all strata."""


@dataclass(frozen=True)
class RepairPlaces:
    """Stratum, number of tests and location of each row, on which a conformal repair may depend.

    `stratum` (n,) contains the two names in `strata`, or ``unknown``. `tests` (n,) are numbers of
    tests, 1 or more. `longitude` and `latitude` (n,) are coordinates of tiles in degrees.
    """

    stratum: NDArray[np.str_]
    tests: Floats
    longitude: Floats
    latitude: Floats
    strata: tuple[str, str] = STRATA

    def __len__(self) -> int:
        return len(self.stratum)


@dataclass(frozen=True)
class Cell:
    """Rows with a common repair: rows of one stratum (or ``all``) with `least` to `most` tests.

    `most` is None if there is no upper limit. `knots` are the conformal quantiles at the levels of
    `LADDER`; a quantile is NaN if the `n` calibration rows are too few for its level.
    """

    stratum: str
    least: int
    most: int | None
    n: int
    knots: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of the cell, for example ``urban, 1 to 4 tests``."""
        if self.most is None:
            tests = f"{self.least} or more tests" if self.least > 1 else "any number of tests"
        elif self.most == self.least:
            tests = f"{self.least} test{'s' if self.least > 1 else ''}"
        else:
            tests = f"{self.least} to {self.most} tests"
        return f"{self.stratum}, {tests}"

    def holds(self, places: RepairPlaces) -> Mask:
        """Return whether each row belongs to the cell, (n,)."""
        most = np.inf if self.most is None else self.most
        # A map may be for 2.5 tests; these belong to the class of 2 tests.
        counted = np.floor(places.tests)
        inside: Mask = (counted >= self.least) & (counted <= most)
        return inside if self.stratum == EVERYWHERE else inside & (places.stratum == self.stratum)


def partition(places: RepairPlaces) -> dict[tuple[str, int, int | None], Mask]:
    """Return a mask of the calibration rows in each cell; a key is (stratum, `least`, `most`).

    The rows of a stratum are divided into classes by number of tests. A class with fewer than
    `MIN_ROWS` rows is pooled with the next class, or the last class with the class before. If a
    stratum has fewer than `MIN_ROWS` rows, each cell contains rows of both strata.
    """
    names = [name for name in places.strata if (places.stratum == name).sum() >= MIN_ROWS]
    apart = len(names) == len(places.strata) and not (places.stratum == UNKNOWN).any()
    found: dict[tuple[str, int, int | None], Mask] = {}
    for stratum in names if apart else [EVERYWHERE]:
        own = (places.stratum == stratum) | (stratum == EVERYWHERE)
        tests = np.floor(places.tests[own])
        starts = [1]
        for start in COUNT_STARTS[1:]:
            if (tests >= start).sum() < MIN_ROWS:
                break
            if ((tests >= starts[-1]) & (tests < start)).sum() >= MIN_ROWS:
                starts.append(start)
        for low, most in zip(starts, [*(start - 1 for start in starts[1:]), None], strict=True):
            found[stratum, low, most] = Cell(stratum, low, most, 0, ()).holds(places)
    return found

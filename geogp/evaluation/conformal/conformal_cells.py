"""Cells of rows with a common repair: strata and classes of tests; small cells are pooled."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.evaluation.strata import COUNT_CLASSES
from geogp.geodata.places.region import STRATA, UNKNOWN
from geogp.geodata.places.stratum_column import names_of

MIN_ROWS = 100
"""Smallest number of calibration rows in a cell.

With 99 rows or more, a cell has a knot at every level of `LADDER`. With 100 calibration rows, the
coverage of the 95 % interval has the distribution Beta(96, 5) with a standard deviation of 2.2
points. With 19 rows, the smallest number that allows a 95 % interval, the standard deviation would
be 4.8 points.
"""

EVERYWHERE = "all"
"""Stratum of a cell that contains all strata."""

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class RepairPlaces:
    """Stratum, number of tests and location of each row; a repair may depend on these.

    `stratum` (n,) contains the two names in `strata`, or ``unknown``; `tests` (n,) are numbers of
    tests, 1 or more; `longitude` and `latitude` (n,) are coordinates of tiles in degrees. Raises
    DataError if lengths differ, a stratum has another name, a number of tests is below 1, or a
    value is not finite.
    """

    stratum: NDArray[np.str_]
    tests: Floats
    longitude: Floats
    latitude: Floats
    strata: tuple[str, str] = STRATA

    def __post_init__(self) -> None:
        object.__setattr__(self, "stratum", np.asarray(self.stratum, np.str_))
        for name in ("tests", "longitude", "latitude"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        held = (self.stratum, self.tests, self.longitude, self.latitude)
        if len({part.shape for part in held}) != 1 or self.stratum.ndim != 1:
            raise DataError(
                "expected one stratum, number of tests, longitude and latitude for each row, "
                "found shapes "
                f"{[part.shape for part in held]}."
            )
        odd = sorted(set(np.unique(self.stratum).tolist()) - {*self.strata, UNKNOWN})
        if odd:
            raise DataError(
                f"expected the strata {', '.join(self.strata)} or {UNKNOWN}, found "
                f"{', '.join(odd)}."
            )
        if not all(np.isfinite(part).all() for part in held[1:]) or (self.tests < 1).any():
            raise DataError(
                "expected finite coordinates and 1 test or more in each row, found "
                "rows without them."
            )

    def __len__(self) -> int:
        return len(self.stratum)

    def __getitem__(self, rows: "Rows | NDArray[np.intp] | slice") -> "RepairPlaces":
        """Return some of the rows."""
        return RepairPlaces(
            self.stratum[rows],
            self.tests[rows],
            self.longitude[rows],
            self.latitude[rows],
            self.strata,
        )

    @classmethod
    def of_table(cls, rows: pd.DataFrame) -> "RepairPlaces":
        """Return stratum, tests and location of rows of test_predictions.parquet."""
        names = ("tests", "longitude", "latitude")
        tests, longitude, latitude = (rows[name].to_numpy(np.float64) for name in names)
        stratum = rows["stratum"]
        return cls(stratum.to_numpy(str), tests, longitude, latitude, names_of(stratum))


@dataclass(frozen=True)
class Cell:
    """Rows with a common repair.

    `stratum` is ``all`` if the cell contains both strata. `least` and `most` bound the numbers of
    tests of the rows; if `most` is None, there is no upper bound. `knots` are the conformal
    quantiles q_p at the levels of `LADDER`; a knot is NaN if n calibration rows are too few for the
    level.
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

    def holds(self, places: RepairPlaces) -> Rows:
        """Return which rows belong to the cell, (n,)."""
        most = np.inf if self.most is None else self.most
        # A map may be for 2.5 tests; these belong to the class of 2 tests.
        counted = np.floor(places.tests)
        inside: Rows = (counted >= self.least) & (counted <= most)
        return inside if self.stratum == EVERYWHERE else inside & (places.stratum == self.stratum)


def partition(
    places: RepairPlaces, least: int = MIN_ROWS
) -> dict[tuple[str, int, int | None], Rows]:
    """Return the calibration rows of each cell, by stratum, lowest and highest number of tests.

    The cells cover every number of tests of 1 or more, so every row of a map belongs to a cell.
    """
    names = [name for name in places.strata if (places.stratum == name).sum() >= least]
    apart = len(names) == len(places.strata) and not (places.stratum == UNKNOWN).any()
    found: dict[tuple[str, int, int | None], Rows] = {}
    for stratum in names if apart else [EVERYWHERE]:
        own = (places.stratum == stratum) | (stratum == EVERYWHERE)
        tests = np.floor(places.tests[own])
        starts = [1]
        for start, _ in COUNT_CLASSES[1:]:
            if (tests >= start).sum() < least:
                break
            if ((tests >= starts[-1]) & (tests < start)).sum() >= least:
                starts.append(start)
        for low, end in zip(starts, [*starts[1:], None], strict=True):
            most = None if end is None else end - 1
            cell = Cell(stratum, low, most, 0, ())
            found[stratum, low, most] = cell.holds(places)
    return found

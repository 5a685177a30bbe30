"""Observations: what the models learn from, one row a tile and quarter."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.geodata.places.region import STRATA


@dataclass(frozen=True)
class Observations:
    """Measured tiles of one region, service and target, ordered by quarter and quadkey.

    For the target ``tests`` all tiles of the region in each quarter, measured or not.

    Attributes
    ----------
    quadkey
        Codes at zoom 16, uint64 (n,); see `quadkeys.py`.
    quarter
        Quarter indices, int64 (n,); see `quarters.py`.
    longitude, latitude
        Centroids in degrees, longitudes unwrapped around the region, float64 (n,).
    y
        log10 of the tile's average in Mbps (ms for latency), or its number of tests, float64
        (n,).
    tests, devices
        Counts behind the average, int64 (n,); 0 where nothing was measured.
    stratum
        One of `strata`, or ``unknown``, str (n,).
    target, service
        What was measured.
    strata
        Names of the region's strata.
    """

    quadkey: NDArray[np.uint64]
    quarter: NDArray[np.int64]
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    y: NDArray[np.float64]
    tests: NDArray[np.int64]
    devices: NDArray[np.int64]
    stratum: NDArray[np.str_]
    target: str
    service: str
    strata: tuple[str, str] = STRATA

    def __len__(self) -> int:
        return len(self.y)

    @property
    def quarters(self) -> tuple[int, ...]:
        """Quarter indices that occur, in order."""
        return tuple(np.unique(self.quarter).tolist())

    def taken(self, rows: NDArray[np.bool_]) -> "Observations":
        """Return some of the rows, (n,)."""
        return replace(
            self,
            quadkey=self.quadkey[rows],
            quarter=self.quarter[rows],
            longitude=self.longitude[rows],
            latitude=self.latitude[rows],
            y=self.y[rows],
            tests=self.tests[rows],
            devices=self.devices[rows],
            stratum=self.stratum[rows],
        )


_OF_1970 = 4 * 1970
"""The quarter that pandas counts from."""


def quarter_periods(indices: NDArray[np.int64]) -> pd.PeriodIndex:
    """Return quarter indices, (n,), as calendar quarters of pandas.

    Examples
    --------
    >>> str(quarter_periods(np.array([8095]))[0])
    '2023Q4'
    """
    return pd.PeriodIndex(pd.arrays.PeriodArray(indices - _OF_1970, pd.PeriodDtype("Q")))


@dataclass(frozen=True)
class SourceRows:
    """Where and when the rows of the source are, those left out for a target among them.

    Splits are made of these, so that they do not depend on the values of a target.

    Attributes
    ----------
    quadkey, quarter, longitude, latitude
        As `Observations` has them, each (n,).
    kept
        Which of them are observations, (n,).
    """

    quadkey: NDArray[np.uint64]
    quarter: NDArray[np.int64]
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    kept: NDArray[np.bool_]

"""Observations: one row per tile and quarter, from which the models learn."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.geodata.places.region import STRATA


@dataclass(frozen=True)
class Observations:
    """Measured tiles of one region, service and target, ordered by quarter and quadkey.

    For the target ``tests``: all tiles of the region in each quarter, measured or not.

    Attributes
    ----------
    quadkey, quarter
        Codes at zoom 16, uint64 (n,); indices of quarters, int64 (n,).
    longitude, latitude
        Centroids in degrees, longitudes unwrapped around the region, float64 (n,).
    y
        log10 of the tile's average in Mbps (ms for latency), or its number of tests, float64 (n,).
    tests, devices
        Counts behind the average, int64 (n,); 0 in a tile without measurements.
    stratum
        One of `strata`, or ``unknown``, str (n,).
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

    def taken(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Observations":
        """Return some of the rows, by a mask (n,) or by their numbers."""
        columns = {k: v[rows] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **columns)


_OF_1970 = 4 * 1970
"""Index of the quarter from which pandas counts."""


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
    """Place and quarter of all source rows (n,), also of rows left out for a target.

    Splits use them, so that a split does not depend on the values of a target. `kept` marks the
    observations.
    """

    quadkey: NDArray[np.uint64]
    quarter: NDArray[np.int64]
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    kept: NDArray[np.bool_]

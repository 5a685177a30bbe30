"""Values of covariates, and the interface of their sources."""

from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError

Floats = NDArray[np.float64]


class CovariateValues(NamedTuple):
    """Values of a covariate (n,), NaN without data, and their sd (n,), NaN if it is unknown."""

    value: Floats
    sd: Floats


class Covariate(Protocol):
    """A quantity that is known, or interpolated, at any place.

    `interpolation` says how. `prior_sd` is the standard deviation of a value without data near it,
    NaN if there is no value then.
    """

    @property
    def interpolation(self) -> str:
        """How values at places come from data, in words."""

    @property
    def rows(self) -> int:
        """Number of points; 0 for a raster."""

    @property
    def prior_sd(self) -> float:
        """Standard deviation of a value without data near it; NaN if there is no value then."""

    def at(
        self, longitude: ArrayLike, latitude: ArrayLike, quarter: ArrayLike | None = None
    ) -> CovariateValues:
        """Return values at places in degrees, and in calendar quarters, each (n,)."""


def indices_of(quarter: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of calendar quarters (n,), which may be periods, text or indices.

    DataError if a quarter cannot be read.
    """
    found = np.asarray(quarter)
    if found.dtype.kind in "iu":
        return found.astype(np.int64)
    try:
        periods = pd.PeriodIndex(pd.Series(found).astype(str), freq="Q")
    except ValueError as error:
        raise DataError(f"expected quarters such as 2023Q4, found {error}.") from None
    if periods.hasnans:
        raise DataError("expected a quarter such as 2023Q4 in each row, found missing values.")
    indices: NDArray[np.int64] = np.asarray(periods.year * 4 + periods.quarter - 1, np.int64)
    return indices

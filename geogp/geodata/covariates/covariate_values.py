"""Values of a covariate, and conversion of calendar quarters to indices."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError

Floats = NDArray[np.float64]


class CovariateValues(NamedTuple):
    """Values of a covariate, (n,), and their standard deviations, (n,); NaN if unknown."""

    value: Floats
    sd: Floats


def indices_of(quarter: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of calendar quarters, (n,); raise DataError for other text."""
    found = np.asarray(quarter)
    if found.dtype.kind in "iu":
        return found.astype(np.int64)
    try:
        periods = pd.PeriodIndex(pd.Series(found).astype(str), freq="Q")
    except ValueError as error:
        raise DataError(f"expected quarters such as 2023Q4, found {error}.") from None
    if periods.hasnans:
        raise DataError("expected a quarter such as 2023Q4 in each row, found missing values.")
    return np.asarray(periods.year * 4 + periods.quarter - 1, np.int64)

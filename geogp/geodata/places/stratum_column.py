"""The stratum column of tables; it stores the names of both strata, even if one is empty."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from geogp.errors import DataError, named
from geogp.geodata.places.stratum_names import STRATA, UNKNOWN


def stratum_column(stratum: ArrayLike, names: tuple[str, str]) -> Any:
    """Return strata, (n,), as a categorical column with the categories `names` and ``unknown``."""
    return pd.Categorical(np.asarray(stratum, np.str_), [*names, UNKNOWN])


def names_of(stratum: Any) -> tuple[str, str]:
    """Return the names of the strata in a column; urban and rural for a column of plain text."""
    kind = getattr(stratum, "dtype", None)
    if not isinstance(kind, pd.CategoricalDtype):
        return STRATA
    first, second, *_ = map(str, kind.categories)
    return first, second


def with_strata(rows: pd.DataFrame, own: Sequence[str] | None) -> pd.DataFrame:
    """Return test predictions whose stratum column has the categories `own`, or urban and rural."""
    names = STRATA if own is None else (own[0], own[1])
    values = rows["stratum"].astype(str)
    odd = sorted(map(str, set(values) - {*names, UNKNOWN}))  # includes missing values
    if odd:
        raise DataError(f"expected the strata {named(names)} or {UNKNOWN}, found {named(odd)}.")
    return rows.assign(stratum=stratum_column(values, names))

"""Converts times of points (numbers with a unit, dates or periods) to quarters since year 0."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError

Floats = NDArray[np.float64]

_DAYS = 365.2425 / 4
"""Mean number of days in a quarter."""

QUARTERS_PER = {
    "year": 4.0,
    "quarter": 1.0,
    "month": 1 / 3,
    "week": 7 / _DAYS,
    "day": 1 / _DAYS,
    "hour": 1 / 24 / _DAYS,
    "minute": 1 / 1440 / _DAYS,
    "second": 1 / 86400 / _DAYS,
}
"""Number of quarters in one unit of time."""


@dataclass(frozen=True)
class Times:
    """Times in quarters, (n,), and the kind of the times.

    Times are counted from the year 0; times that are numbers keep their own zero. The kind is
    ``quarter`` for calendar quarters, ``date`` for dates and other periods, or ``number``.
    """

    quarters: Floats
    kind: str


def times_of(values: Any, unit: str | None, what: str) -> Times:
    """Return dates, periods, or numbers in `unit` as `Times`; dates without a time zone are in UTC.

    A date becomes 4 * year plus the quarters since the start of the year. A calendar quarter
    becomes a whole number. For numbers, 0 remains 0. `what` is the name of `values` in messages.
    Raises RequestError for numbers without unit, and DataError for text or a missing time.
    """
    series = pd.Series(values).reset_index(drop=True)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.dtype.categories.dtype)
    if isinstance(series.dtype, pd.ArrowDtype) and series.dtype.kind == "M":
        series = pd.Series(pd.to_datetime(series.to_numpy()))
    if series.isna().any():
        raise DataError(
            f"expected a time in every row of {what}, found none in "
            f"{int(series.isna().sum())} rows; drop those rows."
        )
    if series.dtype == "period[Q-DEC]":  # quarters of another type are fiscal
        periods = pd.PeriodIndex(series)
        quarters = np.asarray(periods.year * 4 + periods.quarter - 1, np.float64)
        return Times(quarters, "quarter")
    if isinstance(series.dtype, pd.PeriodDtype):
        periods = pd.PeriodIndex(series)
        middle = periods.start_time + (periods.end_time - periods.start_time) / 2
        return Times(_of_dates(pd.DatetimeIndex(middle)), "date")
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        dates = pd.DatetimeIndex(series).tz_convert("UTC").tz_localize(None)
        return Times(_of_dates(dates), "date")
    if pd.api.types.is_datetime64_dtype(series.dtype):
        return Times(_of_dates(pd.DatetimeIndex(series)), "date")
    if series.dtype.kind not in "iuf":
        raise DataError(
            f"expected dates, periods or numbers in {what}, found {series.dtype} such as "
            f"{series.iloc[0]!r}. Convert the column with pandas.to_datetime, or "
            "pandas.PeriodIndex(..., freq='Q') for quarters."
        )
    if unit is None:
        raise RequestError(
            f"expected time_unit for the numbers in {what}: one of {', '.join(QUARTERS_PER)}."
        )
    numbers = series.to_numpy(np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"expected finite times in {what}, found infinite times.")
    return Times(numbers * QUARTERS_PER[unit], "number")


def time_at(time: Any, unit: str | None) -> Times:
    """Return one time: a date, a period, text such as ``2023Q4`` or ``2023-11``, or a number.

    Raises RequestError if the time cannot be read.
    """
    if isinstance(time, str):
        try:
            period = pd.Period(time)
            # The period of an empty text is no period.
            longer = getattr(period, "freqstr", "").startswith(("Y", "Q", "M"))
            time = period if longer else pd.Timestamp(time)
        except ValueError as error:
            raise RequestError(
                f"expected a time such as 2023Q4 or 2023-11-05, found {time!r}."
            ) from error
    return times_of([time], unit, "time")


def _of_dates(dates: pd.DatetimeIndex) -> Floats:
    quarter = dates.to_period("Q")
    start, end = quarter.start_time, (quarter + 1).start_time
    share = np.asarray((dates - start) / (end - start), np.float64)
    share = np.minimum(share, 1 - 1e-9)  # the last instant is still in the quarter
    return np.asarray(quarter.year * 4 + quarter.quarter - 1, np.float64) + share

"""Times in quarters: every kind of column, one answer."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError, RequestError
from geogp.estimators.point_times import QUARTERS_PER, time_at, times_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.period_range("2022Q1", periods=3, freq="Q"), [8088, 8089, 8090]),
        (pd.to_datetime(["2022-01-01", "2022-04-01", "2022-02-15"]), [8088, 8089, 8088.5]),
        (pd.to_datetime(["2022-01-01T02:00+02:00"], utc=False), [8088]),
        (pd.to_datetime(["2022-01-01"]).tz_localize("America/Puerto_Rico"), [8088 + 4 / 24 / 90]),
    ],
)
def test_dates_and_periods_are_quarters_in_utc(values, expected):
    assert times_of(values, None, "time").quarters == pytest.approx(expected)


def test_a_year_of_every_unit_is_four_quarters():
    per_year = {"year": 1, "quarter": 4, "month": 12, "week": 365.2425 / 7, "day": 365.2425}
    per_year |= {"hour": 365.2425 * 24, "minute": 365.2425 * 1440, "second": 365.2425 * 86400}
    assert per_year.keys() == QUARTERS_PER.keys()
    for unit, count in per_year.items():
        assert times_of([count], unit, "time").quarters == pytest.approx([4.0])


def test_longer_periods_stand_for_their_middle():
    assert times_of(pd.PeriodIndex(["2022"], freq="Y"), None, "t").quarters == pytest.approx(
        8090, abs=0.02
    )


@pytest.mark.parametrize(
    ("values", "unit", "error", "match"),
    [
        ([1.0, 2.0], None, RequestError, "time_unit"),
        (["2022Q1"], None, DataError, "pandas.to_datetime"),
        ([np.nan], "day", DataError, "1 rows; drop those rows"),
        ([np.inf], "day", DataError, "finite"),
        (pd.to_datetime(["2022-01-01", None]), None, DataError, "found none in 1 rows"),
    ],
)
def test_what_is_no_time_is_refused(values, unit, error, match):
    with pytest.raises(error, match=match):
        times_of(values, unit, "the column when")


@pytest.mark.parametrize(
    ("time", "unit", "expected"),
    [
        ("2023Q4", None, 8095),
        ("2023-10-01", None, 8095),
        (pd.Period("2023Q4", freq="Q"), None, 8095),
        (2.0, "year", 8.0),
        ("2023", None, 8094.02),
        ("2023-11", None, 8095.5),
    ],
)
def test_one_time(time, unit, expected):
    assert time_at(time, unit).quarters == pytest.approx([expected], abs=0.01)


def test_text_that_is_no_time_is_refused():
    with pytest.raises(RequestError, match="such as 2023Q4"):
        time_at("soon", None)


def test_fiscal_quarters_follow_one_another():
    """Of a year that ends in January, a quarter is no calendar quarter: its middle counts."""
    found = times_of(pd.period_range("2022Q1", periods=9, freq="Q-JAN"), None, "time").quarters
    assert np.diff(found) == pytest.approx(1, abs=0.05)
    assert found[0] == pytest.approx(8084.83, abs=0.05)  # February to April 2021


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.period_range("2022Q1", periods=3, freq="Q"), "quarter"),
        (pd.period_range("2022-01", periods=3, freq="M"), "date"),
        (pd.to_datetime(["2022-01-01"]), "date"),
        (pd.Series(pd.to_datetime(["2022-01-01"])).astype("timestamp[ns][pyarrow]"), "date"),
        (pd.Series(pd.to_datetime(["2022-01-01"])).astype("category"), "date"),
        ([1, 2], "number"),
    ],
)
def test_times_have_a_kind(values, kind):
    assert times_of(values, "day", "time").kind == kind

"""Times in texts and numbers: order of day and month, serial and epoch dates, and time zones."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError, quoted

Texts = NDArray[np.object_]

_EPOCHS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""Units of times since 1970, in a second; from 1973 to 2286, there are 1e8 to 1e10 seconds."""

_SERIAL = (32_874, 73_051)
"""Days since 1900 in the years from 1990 to 2099."""

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("jan january ene enero januar", "feb february febrero februar"),
            *("mar march marzo marz", "apr april abr abril", "may mayo mai", "jun june junio juni"),
            *("jul july julio juli", "aug august ago agosto", "sep sept september septiembre"),
            *("oct october octubre okt oktober", "nov november noviembre"),
            "dec december dic diciembre dez dezember",
        ),
        1,
    )
    for name in names.split()
}
"""Months by name, in English, Spanish and German."""

ZONES = {
    **dict.fromkeys(("UTC", "GMT", "Z", "WET"), 0),
    "AST": -4,
    "ADT": -3,
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
    "AKST": -9,
    "AKDT": -8,
    "HST": -10,
    "SST": -11,
    "CHST": 10,
    "WEST": 1,
    "CET": 1,
    "CEST": 2,
    "EET": 2,
    "EEST": 3,
    "MSK": 3,
    "JST": 9,
    "KST": 9,
}
"""Hours of abbreviations of time zones; where countries share one, as in North America."""

_ZONE = re.compile(
    r"[\s_]*(?:(?P<offset>[+-]\d{1,2}:?\d{2}|(?<=[\d\s])[+-]\d{2})|\[?(?P<name>[A-Z][A-Za-z_]+(?:/[A-Za-z_+\-0-9]+)+)\]?"
    r"|(?P<short>UTC|GMT|Z|[A-Z][A-Za-z]?[A-Z]{1,2}T)(?P<plus>[+-]\d{1,2}(?::?\d{2})?)?)$"
)
_CLOCK = re.compile(
    r"(?:^|(?<=\d)[T\s_,]+|(?<=[a-z.])[\s,]+)(?P<h>\d{1,2})[:.h](?P<m>\d{2})(?:[:.m](?P<s>\d{2})s?(?:[.,]\d+)?)?"
    r"\s*(?P<half>[AaPp]\.?\s?[Mm]\.?)?$"
)
_PACKED = re.compile(
    r"(?P<y>\d{4})(?P<mo>\d{2})(?P<d>\d{2})(?:[T\s_-]?(?P<h>\d{2}):?(?P<m>\d{2})(?::?(?P<s>\d{2})(?:\.\d+)?)?)?"
)
_WORDS = re.compile(
    r"(?:[A-Za-z]{2,9}\.?,\s*)?(?:(?P<d>\d{1,2})(?:st|nd|rd|th|\.)?[\s\-/]*(?:de\s+)?(?P<mo>[A-Za-z]{3,10})\.?|(?P<mo2>[A-Za-z]{3,10})\.?[\s\-/]*(?P<d2>\d{1,2})(?:st|nd|rd|th)?)[\s,\-/]*(?:de\s+)?(?P<y>\d{4}|\d{2})"
)
_THREE = re.compile(r"(?P<a>\d{1,4})(?P<sign>[-/. _])(?P<b>\d{1,2})(?P=sign)(?P<c>\d{1,4})\.?")
_ISO = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?)?$"
_HAS_CLOCK = re.compile(r":\d{2}|T\d{2}|\d{2}\.\d{2}\.\d{2}")
_QUARTER = re.compile(
    r"(?P<y>\d{4})[\s-]*Q(?P<q>[1-4])|Q(?P<q2>[1-4])[\s-]*(?P<y2>\d{4})", re.IGNORECASE
)


@dataclass(frozen=True)
class CellTimes:
    """The times in a column of n cells, in UTC.

    `quarter` is the index of each quarter, and -1 in missing and unreadable cells; `wrong` marks
    unreadable ones. `seconds` are counted from 1970, and NaN in these cells. `ahead` and `early`
    mark times in the future and before `FIRST_YEAR`. `note`, `question` and `sample` are as in
    `CellNumbers`.
    """

    quarter: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    ahead: NDArray[np.bool_]
    early: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    note: str = ""
    question: str = ""
    sample: str = ""


DATES_SHORT = {"dmy": "day before month", "mdy": "month before day", "ymd": "year, month, day"}
"""The orders of the numbers in a date, in words."""

LONGEST = 60
"""Most characters of a text that may be a time."""

NEARLY_ALL = 0.95
"""Share of the dates that a reading must fit."""

FIRST_YEAR = 2000
"""Times before this year are bad: they come from clocks that were never set."""


def zone_of(text: str) -> dt.tzinfo:
    """Return a time zone by its name or offset; raise RequestError if there is no such zone."""
    offset = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", text)
    if offset:
        minutes = 60 * int(offset[2]) + int(offset[3] or 0)
        if minutes < 24 * 60:
            return dt.timezone(dt.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    elif text.upper() in ZONES:
        return dt.timezone(dt.timedelta(hours=ZONES[text.upper()]))
    else:
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise RequestError(
        f"expected --timezone with a name such as America/Puerto_Rico, or an offset such as "
        f"-04:00, found {quoted(text)}."
    )


def is_clock(texts: Texts) -> bool:
    """Return whether texts are times of day, such as 14:30:00, without a date."""
    filled = [text for text in dict.fromkeys(texts.tolist()) if text][:1000]
    return bool(filled) and all(_CLOCK.fullmatch(text) for text in filled)


def read_times(
    column: "pd.Series[Any]", texts: Texts, *, dates: str | None, timezone: str | None
) -> CellTimes:
    """Return the quarters of a column, (n,).

    `column` has the cells as they are stored, and `texts` as texts, where a missing cell is empty.
    `dates` and `timezone` are what the user says; see `PointOptions`.
    """
    zone = dt.UTC if timezone is None else zone_of(timezone)
    if column.dtype.kind == "M" or isinstance(column.dtype, pd.DatetimeTZDtype):
        bare = column.dt.tz is None
        local = {"ambiguous": True, "nonexistent": "shift_forward"}
        times = column.dt.tz_localize(zone, **local) if bare else column
        known = times.dt.tz_convert("UTC").reset_index(drop=True)
        note = _zoned("", {"": zone}, zone) if bare else ""
        return _quarters(known, column.isna().to_numpy(), note)
    numbers = _numbers(column, texts)
    missing = texts == ""
    if numbers is not None and dates not in {"dmy", "mdy", "ymd"}:
        return _from_numbers(numbers, missing, dates, zone)
    if zone is dt.UTC and pd.Series(texts).str.match(_ISO).all():
        times = pd.to_datetime(pd.Series(texts), utc=True, format="ISO8601", errors="coerce")
        if times.notna().all():  # much faster than single texts
            marked = pd.Series(texts).str.endswith("Z").all()
            return _quarters(times, missing, _zoned("", {"UTC" if marked else "": zone}, zone))
    inverse, unique = pd.factorize(texts)  # in their order, so that examples are from first rows
    distinct = _from_texts(unique.tolist(), dates, zone)
    if distinct.question:
        return distinct
    return replace(
        distinct,
        quarter=distinct.quarter[inverse],
        wrong=distinct.wrong[inverse],
        ahead=distinct.ahead[inverse],
        early=distinct.early[inverse],
        seconds=distinct.seconds[inverse],
    )


def _numbers(column: "pd.Series[Any]", texts: Texts) -> NDArray[np.float64] | None:
    """Return the numbers of a column that holds numbers only, otherwise None."""
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    filled = pd.Series(texts[texts != ""])
    if not filled.str.fullmatch(r"\d+(?:\.\d+)?").mean() >= NEARLY_ALL:  # also without any cell
        return None
    return np.asarray(pd.to_numeric(pd.Series(texts), errors="coerce"), np.float64)


def _from_numbers(
    numbers: NDArray[np.float64], missing: NDArray[np.bool_], dates: str | None, zone: dt.tzinfo
) -> CellTimes:
    """Return the quarters of days since 1900, times since 1970, or digits such as 20231105."""
    known = numbers[np.isfinite(numbers)]
    middle = float(np.median(known)) if len(known) else np.nan
    epoch = next((unit for unit, scale in _EPOCHS.items() if 1e8 <= middle / scale < 1e10), None)
    packed = [
        text
        for text in map("{:.0f}".format, known[:1])
        if len(text) in {8, 14} and text[:2] in {"19", "20"}
    ]
    seen = pd.Series(pd.NaT, index=range(len(numbers)), dtype="datetime64[ns]")
    fine = np.isfinite(numbers)
    if dates in {"excel", "excel-1904"} or (dates is None and _SERIAL[0] <= middle < _SERIAL[1]):
        start = "1904-01-01" if dates == "excel-1904" else "1899-12-30"
        fine &= (numbers >= 0) & (numbers < 100_000)
        seen[fine] = pd.Timestamp(start) + pd.to_timedelta(numbers[fine], unit="D")
        note = "days since 1904" if dates == "excel-1904" else "days since 1900, as in Excel"
    elif packed and dates is None:
        texts = ["" if np.isnan(value) else f"{value:.0f}" for value in numbers]
        return _from_texts(texts, None, zone)
    elif epoch is not None and dates in {None, "unix"}:
        seconds = numbers / _EPOCHS[epoch]
        fine &= (seconds > 0) & (seconds < 9e9)
        seen[fine] = pd.Timestamp(0) + pd.to_timedelta(seconds[fine], unit="s")
        return _quarters(seen.dt.tz_localize("UTC"), missing, f"{epoch} since 1970, in UTC")
    else:
        fine[:] = False
        note = ""
    local = seen.dt.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
    return _quarters(local.dt.tz_convert("UTC"), missing, _zoned(note, {}, zone))


@dataclass(frozen=True)
class _Date:
    """A date in a text: year, month and day, or three numbers whose order is open, and the rest."""

    numbers: tuple[int, int, int]
    order: str
    clock: tuple[int, int, int] = (0, 0, 0)
    zone: str = ""


def _from_texts(texts: list[str], dates: str | None, zone: dt.tzinfo) -> CellTimes:
    """Return the quarters of texts."""
    parsed = [_parsed(text) if 0 < len(text) <= LONGEST else None for text in texts]
    order, question, note = _order(texts, parsed, dates)
    if question:
        none = np.zeros(len(texts), np.bool_)
        empty = np.full(len(texts), -1)
        unknown = np.full(len(texts), np.nan)
        return CellTimes(empty, none, none, none, unknown, question=question, sample=note)
    zones = dict.fromkeys(one.zone for one in parsed if one is not None)
    moments = np.full(len(texts), np.datetime64("NaT"), "datetime64[s]")
    for place, one in enumerate(parsed):
        if one is None:
            continue
        day = _year_month_day(one.numbers, order if one.order in {"?", "."} else one.order)
        with suppress(ValueError, OverflowError):  # there is no such day or time zone
            own = zone_of(one.zone) if one.zone else zone
            moment = dt.datetime(*day, *one.clock, tzinfo=own)
            moments[place] = moment.astimezone(dt.UTC).replace(tzinfo=None)
    times = pd.Series(moments.astype("datetime64[ns]")).dt.tz_localize("UTC")
    missing = np.array([not text for text in texts], np.bool_)
    return _quarters(times, missing, _zoned(note, zones, zone))


def _zoned(note: str, zones: Iterable[str], zone: dt.tzinfo) -> str:
    """Return a note with the time zone of the times."""
    named = list(dict.fromkeys("UTC" if text == "Z" else text for text in zones if text))
    shown = [
        f"{text} as UTC{ZONES[text.upper()]:+03d}:00" if ZONES.get(text.upper()) else text
        for text in named[:3]
    ]
    if not named or "" in zones:
        shown.append("UTC" if zone is dt.UTC else f"{zone}")
        if zone is dt.UTC:
            shown[-1] += ", assumed" if not named else " where none is given"
    return f"{note}{', ' if note else ''}time zone {', '.join(shown)}"


def _parsed(text: str) -> _Date | None:
    """Return the date in a text; None if there is none."""
    quarter = _QUARTER.fullmatch(text)
    if quarter:
        year, number = quarter["y"] or quarter["y2"], quarter["q"] or quarter["q2"]
        return _Date((int(year), 3 * int(number) - 2, 1), "ymd")
    rest, zone = text.replace(" at ", " "), ""
    match = _ZONE.search(rest)
    if match and (match["offset"] is None or _HAS_CLOCK.search(rest[: match.start()])):
        zone = match["offset"] or match["name"] or match["plus"] or match["short"]
        rest = rest[: match.start()]
    packed = _PACKED.fullmatch(rest)
    if packed:
        hour, minute, second = (int(packed[name] or 0) for name in ("h", "m", "s"))
        day = int(packed["y"]), int(packed["mo"]), int(packed["d"])
        return _Date(day, "ymd", (hour, minute, second), zone)
    clock = (0, 0, 0)
    at = _CLOCK.search(rest)
    if at and at.start():
        hour = int(at["h"])
        if at["half"]:
            hour = hour % 12 + (12 if at["half"][0] in "pP" else 0)
        clock, rest = (hour, int(at["m"]), min(59, int(at["s"] or 0))), rest[: at.start()]
    day_found = _day(rest.strip(" ,_"))
    return None if day_found is None else replace(day_found, clock=clock, zone=zone)


@lru_cache(4096)
def _day(text: str) -> _Date | None:
    """Return the day in a text without a time of day; None if there is none."""
    three = _THREE.fullmatch(text)
    if three:
        first, last = len(three["a"]), len(three["c"])
        if first == 3 or last == 3 or (first < 4 and last == 1):
            return None
        order = "ymd" if first == 4 else three["sign"] if three["sign"] == "." else "?"
        return _Date((int(three["a"]), int(three["b"]), int(three["c"])), order)
    words = _WORDS.fullmatch(text)
    month = _MONTHS.get((words["mo"] or words["mo2"]).lower()) if words else None
    if words is None or month is None:
        return None
    return _Date((int(words["y"]), month, int(words["d"] or words["d2"])), "ymd")


def _order(texts: list[str], parsed: list[_Date | None], dates: str | None) -> tuple[str, str, str]:
    """Return the order of the numbers in dates, a question if it is open, and a note.

    With a question, the note is the text with two readings.
    """
    open_dates: dict[tuple[int, int, int], str] = {}
    count: Counter[tuple[int, int, int]] = Counter()
    dotted = True
    for text, date in zip(texts, parsed, strict=True):
        if date and date.order in {"?", "."}:
            open_dates.setdefault(date.numbers, text)
            count[date.numbers] += 1
            dotted &= date.order == "."
    if dates in DATES_SHORT:
        return str(dates), "", DATES_SHORT[str(dates)]
    if not open_dates:
        return "dmy", "", ""
    share = {
        order: sum(
            count[numbers]
            for numbers in open_dates
            if _may_be_measured(*_year_month_day(numbers, order))
        )
        / count.total()
        for order in DATES_SHORT
    }
    # An order must fit all dates, or nearly all if none fits all: some dates may be bad.
    able = [order for order in share if share[order] == 1] or [
        order for order in share if share[order] >= NEARLY_ALL
    ]
    if dotted and "dmy" in able:  # with points, the month is never first
        able = [order for order in able if order != "mdy"]
    if len(able) < 2:
        best = able[0] if able else "dmy"
        return best, "", DATES_SHORT[best]
    numbers, text = next(iter(open_dates.items()))
    readings = [
        "{}-{:02d}-{:02d} (--dates {})".format(*_year_month_day(numbers, order), order)
        for order in able
    ]
    return "", " or ".join(dict.fromkeys(readings)), text


def _may_be_measured(year: int, month: int, day: int) -> bool:
    now = dt.datetime.now(dt.UTC).year
    return 1 <= day <= 31 and 1 <= month <= 12 and FIRST_YEAR <= year <= now + 1


def _year_month_day(numbers: tuple[int, int, int], order: str) -> tuple[int, int, int]:
    """Return year, month and day from numbers in the order ``dmy``, ``mdy`` or ``ymd``."""
    year, month, day = (numbers[order.index(letter)] for letter in "ymd")
    return year + 2000 if year < 100 else year, month, day


def _quarters(times: "pd.Series[Any]", missing: NDArray[np.bool_], note: str) -> CellTimes:
    """Return the quarters of times in UTC, (n,)."""
    unread = times.isna().to_numpy()
    # Local times without a time zone may lie up to 14 hours ahead of UTC.
    ahead = (times > pd.Timestamp.now("UTC") + pd.Timedelta(days=1)).to_numpy()
    early = (times < pd.Timestamp(FIRST_YEAR, 1, 1, tz="UTC")).to_numpy()
    filled = times.fillna(pd.Timestamp(FIRST_YEAR, 1, 1, tz="UTC"))
    quarter = np.asarray(filled.dt.year * 4 + filled.dt.quarter - 1, np.int64)
    seconds = (filled - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(np.float64)
    return CellTimes(
        np.where(unread, -1, quarter),
        unread & ~np.asarray(missing),
        ahead,
        early,
        np.where(unread, np.nan, seconds),
        note,
    )

"""Quarters and values of the tests in a table, with their units."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, named, quoted, shown
from geogp.geodata.points.cell_numbers import CellNumbers, decimal_sign, read_numbers
from geogp.geodata.points.cell_times import FIRST_YEAR, is_clock, read_times
from geogp.geodata.points.point_options import PointOptions
from geogp.geodata.points.roles import (
    AMBIGUOUS,
    DECIBELS,
    KBPS,
    MS,
    SPEEDS,
    UnitText,
    known_export,
    latency_unit,
    plain,
    role_of,
    signal_unit,
    speed_unit,
)
from geogp.geodata.points.tables import PointTable, RowReview
from geogp.geodata.tiles.plausibility import LIMITS
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.targets import SIGNALS, find_target

Floats = NDArray[np.float64]

USUAL_KBPS, USUAL_MS = (100.0, 1e6), (1.0, 2000.0)
"""Between these limits lies the median of usual speeds in kbps, and of usual latencies in ms."""

MANY_TIMES, FEW, SHARE = 300, 5, 0.001
"""A file seems to mix units if over 5 values and over 0.1 % are 300 times the median or more."""

DAY_AS_DIGITS = 240_000
"""Numbers below this are no dates: seconds of a day, or hours, minutes and seconds as digits."""

USUAL_DECIBELS = (-120.0, 30.0)
"""Between these limits lies the median of usual signals in dBm or dB."""


class _Kind(NamedTuple):
    """How values of a kind are read: factors of units, the usual range, and the unit in a text."""

    scales: dict[str, float]
    usual: tuple[float, float]
    unit_in: Callable[[str], UnitText]


_SPEED = _Kind(KBPS, USUAL_KBPS, speed_unit)
_LATENCY = _Kind(MS, USUAL_MS, latency_unit)
_SIGNAL = _Kind(DECIBELS, USUAL_DECIBELS, signal_unit)
_UNKNOWN_SIGNAL = _Kind({"dBm": 1.0}, USUAL_DECIBELS, signal_unit)

STATED, OPTION, CELLS, ROW = "the column's name", "--units", "the cells", "the row of units"
"""Where a unit may be read from, besides the header of a known export."""


def with_dates(table: PointTable, options: PointOptions, needed: Sequence[str]) -> dict[str, str]:
    """Return the names of the known columns; a date without a time of day may be the time.

    Raises the errors of `find_columns`, and DataError if a time beside a date is no time of day.
    """
    known = table.columns(options, [role for role in needed if role != "time"])
    several = [name for name in table.names if role_of(name) == "time"]
    if "time" not in known and "date" in known and not several:
        known["time"] = known.pop("date")
    elif "time" in known and "date" in known and not is_clock(table.values(known["time"])):
        numbers = pd.to_numeric(pd.Series(table.values(known["time"])), errors="coerce")
        if numbers.notna().any() and numbers.max() < DAY_AS_DIGITS:
            raise DataError(
                f"the column {shown(known['time'])} of {table.path} has numbers that are no dates, "
                f"beside the dates of {shown(known['date'])}. Write times of day as HH:MM:SS, or "
                f"take the dates alone with --columns time={known['date']}."
            )
        del known["date"]
    if "time" in needed and "time" not in known:
        table.columns(options, needed)  # raises the error
    return known


def read_quarters(
    review: RowReview, columns: dict[str, str], options: PointOptions
) -> tuple[NDArray[np.int64], Floats]:
    """Return the index of each row's quarter in UTC, (n,), and mark rows without a time.

    Also returns the seconds since 1970, (n,), which are NaN where they are unknown. Raises
    DataError if the times are local without a time zone, or if there are times beside
    ``--at-quarter``.
    """
    table = review.table
    if options.at_quarter is not None:
        if "time" in columns:
            raise DataError(
                f"{table.path} has times in the column {shown(columns['time'])}; --at-quarter is "
                "for a file without times. Leave --at-quarter out, or rename the column."
            )
        review.notes.append(("time", f"{options.at_quarter} for all rows (--at-quarter)"))
        quarter = np.full(len(table), quarter_index(options.at_quarter), np.int64)
        return quarter, np.full(len(table), np.nan)
    name = columns["time"]
    cells, texts = table.frame[name], table.values(name)
    if "date" in columns:
        dates = table.values(columns["date"])
        # Workbooks store a date as midnight of that day.
        days = np.array([text.removesuffix(" 00:00:00") for text in dates], object)
        texts = np.where((dates == "") | (texts == ""), "", days + " " + texts).astype(object)
        cells, name = pd.Series(texts), f"{columns['date']} and {name}"
    local = re.search("local", f"{name} {table.units.get(name, '')}", re.IGNORECASE)
    if local and options.timezone is None:
        raise DataError(
            f"the column {shown(name)} of {table.path} has local times. Give their time zone with "
            "--timezone, such as America/Puerto_Rico or -04:00."
        )
    times = read_times(cells, texts, dates=options.dates, timezone=options.timezone)
    if times.question:
        column = columns.get("date", columns["time"])
        review.ask(column, times.sample, times.question, "Choose the form with --dates.")
        return times.quarter, times.seconds
    for wrong, reason in (
        (texts == "", "no time"),
        (times.wrong, "unreadable time"),
        (times.ahead, "time in the future"),
        (times.early, f"time before {FIRST_YEAR}"),
    ):
        if wrong.any():
            first = f", such as {quoted(texts[int(wrong.argmax())])}" if reason != "no time" else ""
            review.mark(wrong, f"{reason} in the column {shown(name)}{first}")
    note = f", {times.note}" if times.note else ""
    review.notes.append(("time", f"from the column {shown(name)}{note}"))
    return times.quarter, times.seconds


YES = ("1", "true", "t", "yes", "y", "ok", "success", "succeeded", "successful", "passed", "pass")
NO = ("0", "false", "f", "no", "n", "fail", "failed", "failure", "error", "timeout")
"""Texts of tests that succeeded and of those that failed, in any case."""


def read_successes(
    review: RowReview, columns: Mapping[str, str], options: PointOptions, service: str
) -> tuple[Floats, dict[str, tuple[str, str]]]:
    """Return 100 for tests that succeeded and 0 for those that failed, (n,), and units of columns.

    A column says which, or with ``--at-least`` the download: a test without one failed. Values are
    NaN in missing cells of a column of successes, and in bad cells, which are marked.
    """
    table = review.table
    if options.at_least is not None:
        name = columns["download"]
        speed, unit = read_target(review, name, options, "download", service, failures=True)
        reached = speed >= 1000 * options.at_least
        kept = review.kept
        text = (
            f"at least {options.at_least:g} Mbps in the column {shown(name)}: "
            f"{int((kept & ~reached).sum()):,} of {int(kept.sum()):,} tests failed, "
            f"{int((kept & np.isnan(speed)).sum()):,} of them without a download"
        )
        review.notes.append(("success", text))
        return np.where(reached, 100.0, 0.0), {name: unit}
    name = columns["success"]
    cells = np.array([text.strip().lower() for text in table.values(name)], object)
    texts = np.array([text.removesuffix(".0") for text in cells], object)
    yes, no = (np.isin(texts.astype(str), words) for words in (YES, NO))
    odd = ~(yes | no | (texts == ""))
    if odd.any():
        first = quoted(table.texts(name)[int(odd.argmax())])
        review.mark(odd, f"no success or failure in the column {shown(name)}, such as {first}")
    told = f"from the column {shown(name)}: {int(no.sum()):,} of {len(table):,} tests failed"
    review.notes.append(("success", told))
    return np.where(yes, 100.0, np.where(no, 0.0, np.nan)), {}


def read_error_sd(
    review: RowReview, name: str, options: PointOptions, target: str, unit: str
) -> Floats:
    """Return the standard deviation of the error of each value of a target, (n,).

    It is in the unit of the values: kbps, ms, dBm or dB. `unit` is that of the target's column,
    which the column has if it does not say its own. Raises DataError if neither is one unit.
    """
    kind = _kind_of(target)
    own = kind.unit_in(f" {review.table.units.get(name, '')}").unit or kind.unit_in(name).unit
    scale = kind.scales.get(own or unit)
    if scale is None:
        raise DataError(
            f"the unit of the column {shown(name)} of {review.table.path} is unclear: the values "
            f"are in {unit}. Add the unit to the name, as in error_{next(iter(kind.scales))}."
        )
    found = read_cells(review, name, options)
    review.mark(found.numbers < 0, f"standard deviation below 0 in the column {shown(name)}")
    review.mark(np.isnan(found.numbers) & ~found.wrong, "no error_sd", apart=True)
    review.notes.append(("error_sd", f"from the column {shown(name)}, {own or unit}"))
    return found.numbers * scale


def _kind_of(target: str) -> _Kind:
    if target in SPEEDS:
        return _SPEED
    *kinds, unknown = SIGNALS
    return _SIGNAL if target in kinds else _UNKNOWN_SIGNAL if target == unknown else _LATENCY


def read_target(
    review: RowReview,
    name: str,
    options: PointOptions,
    target: str,
    service: str,
    *,
    failures: bool = False,
) -> tuple[Floats, tuple[str, str]]:
    """Return the values of a target in kbps, ms, dBm or dB, (n,), with their unit and its origin.

    Values are NaN in missing cells, and in bad cells, which are marked; with `failures`, negative
    values are not bad. Raises DataError if the unit is unknown.
    """
    kind = _kind_of(target)
    limit = LIMITS[service][find_target(target).columns[0]]
    scale = kind.scales.get(_stated(review.table, name, options, target)[0] or "", 1.0)
    low, high = kind.usual
    found = read_cells(
        review,
        name,
        options,
        plausible=lambda values: limit.holds(values * scale),
        usual=lambda values: bool(low <= np.nanmedian(values) * scale <= high),
    )
    if found.question:
        return found.numbers, ("", "")
    note = f", {found.note}" if found.note else ""
    factors, unit = _factors(review, name, options, target, found.units)
    values = found.numbers * factors
    own = find_target(target).unit
    if target in SIGNALS[:-1] and unit[0] != own:
        unit = own, f"{unit[1]} says {unit[0]}, but {target.upper()} is in {own}"
    told = f"from the column {shown(name)}, {unit[0]} ({unit[1]}){note}"
    review.notes.append((target, told))
    seen = np.where(values < 0, np.nan, values) if failures else values
    _mark_impossible(review, seen, name, target=target, service=service, unit=unit[0])
    return values, unit


def read_cells(
    review: RowReview,
    name: str,
    options: PointOptions,
    *,
    plausible: Callable[[Floats], bool] = lambda _: True,
    usual: Callable[[Floats], bool] = lambda _: True,
) -> CellNumbers:
    """Return the numbers in a column, (n,); mark unreadable cells, and ask about two readings.

    `plausible` and `usual` are as in `read_numbers`.
    """
    table = review.table
    numbers = table.numbers(name)
    if numbers is not None:
        wrong = np.isinf(numbers)
        without_units = np.full(len(table), "", object)
        found = CellNumbers(np.where(wrong, np.nan, numbers), wrong, without_units)
    else:
        found = read_numbers(
            table.texts(name),
            decimal=options.decimal,
            thousands=options.separators.get(name),
            file_decimal=_file_decimal(table, options),
            plausible=plausible,
            usual=usual,
        )
    if found.question:
        sign = "," if "," in found.sample else "."
        cure = f"Say which with --decimal {sign} or --thousands {name}={sign}"
        review.ask(name, found.sample, found.question, f"{cure} (quoted if the shell needs it).")
    elif found.wrong.any():
        first = table.texts(name)[int(found.wrong.argmax())]
        review.mark(found.wrong, f"no number in the column {shown(name)}, such as {quoted(first)}")
    return found


def _file_decimal(table: PointTable, options: PointOptions) -> str | None:
    """Return the decimal sign of the coordinates in a file; None if they have none."""
    if table.places is not None:
        return None
    columns = table.columns(options, ["latitude", "longitude"])
    for role in ("latitude", "longitude"):
        column = table.frame[columns[role]]
        sign = "." if column.dtype.kind == "f" else decimal_sign(table.values(columns[role]))
        if sign is not None:
            return sign
    return None


def _stated(
    table: PointTable, name: str, options: PointOptions, target: str
) -> tuple[str | None, str]:
    """Return the unit of a column, or None, and where it was read from.

    Raises DataError if the name and the row of units contradict each other.
    """
    speed, find = target in SPEEDS, _kind_of(target).unit_in
    row, own = find(f" {table.units.get(name, '')}").unit, find(name).unit
    if speed and options.units is not None:
        other = own if own not in {None, AMBIGUOUS, options.units} else None
        return options.units, OPTION if other is None else f"{OPTION}; the name says {other}"
    if row is not None and own not in {None, AMBIGUOUS, row}:
        raise DataError(
            f"the column {shown(name)} of {table.path} has the unit {own} in its name, but {row} "
            "in the row of units. Correct one of them."
        )
    if row is not None or own is not None:
        return (row, ROW) if row is not None else (own, STATED)
    export = known_export(table.names)
    if (
        export is not None
        and target in export.columns
        and plain(name) in export.columns[target].names
    ):
        return export.columns[target].unit, f"the header: {export.name}"
    return (None, "") if speed else (find_target(target).unit, "assumed")


def _factors(
    review: RowReview, name: str, options: PointOptions, target: str, cells: NDArray[np.object_]
) -> tuple[Floats, tuple[str, str]]:
    """Return the factor of each value to kbps or ms, (n,), and the unit with its origin."""
    table = review.table
    unit, origin = _stated(table, name, options, target)
    scales, find = _kind_of(target).scales, _kind_of(target).unit_in
    own = {text: find(f" {text}") for text in dict.fromkeys(cells.tolist()) if text}
    odd = [text for text, found in own.items() if found.unit not in scales or found.name.strip()]
    if odd:
        review.mark(
            np.isin(cells.astype(str), odd),
            f"no unit of {target} in the column {shown(name)}, such as {quoted(odd[0])}",
        )
    known = {text: str(found.unit) for text, found in own.items() if text not in odd}
    bare = (cells == "") & (table.values(name) != "")
    if known and not (bare.any() and unit not in scales):
        origin = CELLS if not bare.any() else f"{origin}, and {CELLS}"
        unit = unit if unit in scales else next(iter(known.values()))
    if unit == AMBIGUOUS:
        raise DataError(
            f"the unit of the column {shown(name)} in {table.path} may be bits or bytes. Say which "
            f"with --units, one of {named(KBPS)}."
        )
    if unit is None:
        raise DataError(
            f"the unit of the column {shown(name)} in {table.path} is unknown. Give --units with "
            f"one of {named(KBPS)}, or add the unit to the name, as in {shown(name)}_mbps. (The "
            "command-line client of Speedtest writes B/s.)"
        )
    if unit not in scales:
        raise DataError(
            f"the column {shown(name)} of {table.path} has the unit {unit}, but the target "
            f"{target} is in {named(scales)}. Say what the column holds, as in --target sinr "
            f"--columns sinr={name}; the kinds are {named(SIGNALS)}."
        )
    factor = np.full(len(table), scales[unit])
    for text, one in known.items():
        factor[cells == text] = scales[one]
    used = dict.fromkeys([*([unit] if bare.any() or not known else []), *known.values()])
    return factor, (", ".join(used), origin)


def _mark_impossible(
    review: RowReview, values: Floats, name: str, *, target: str, service: str, unit: str
) -> None:
    """Mark values below or above the limits; ask if the values seem to have two units."""
    limit = LIMITS[service][find_target(target).columns[0]]
    least = limit.least or 0
    beyond, right = values > limit.most, f"is the unit right ({unit})?"
    below = f" {limit.named(least)}; {right}" if limit.least is not None else " 0"
    review.mark(values < least, f"{target} below{below}")
    review.mark(beyond, f"{target} above {limit.named(limit.most)}; {right}")
    known = values[values > 0]
    many = values > MANY_TIMES * np.median(known) if len(known) else beyond
    if not beyond.any() and target in SPEEDS and many.sum() > max(FEW, SHARE * len(values)):
        review.questions.append(
            f"the column {shown(name)}: values over {MANY_TIMES} times the median in "
            f"{review.table.where(many)} may be in another unit than {unit}. Write "
            "all values in one unit."
        )

"""How to read a file of points: what a user settles if the file leaves it open."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from geogp.choices import check_settings, one_of, setting
from geogp.errors import RequestError, quoted
from geogp.geodata.places.region_choice import CRS_OF_FILES
from geogp.geodata.points.roles import KBPS, USUAL
from geogp.geodata.tiles.quarters import quarter_index

DECIMALS = (".", ",")

DATES = {
    "dmy": "day first, such as 31.12.2023",
    "mdy": "month first, such as 12/31/2023",
    "ymd": "year first, such as 23-12-31",
    "excel": "days since 1900, as Excel stores dates",
    "excel-1904": "days since 1904, as old versions of Excel for Mac store dates",
    "unix": "seconds, milliseconds, microseconds or nanoseconds since 1970",
}
"""Values of ``--dates``, with an explanation."""

MOST_LEFT_OUT = 5.0
"""Default for the largest percentage of bad rows that are left out."""


MOST_AT_LEAST = 100_000
"""Largest download of ``--at-least`` in Mbps: that of the fastest Ethernet."""


def named_columns(texts: Sequence[str]) -> dict[str, str]:
    """Return the columns that a user named, such as ``latitude=lat,time=when``, by what they hold.

    Raises RequestError if a text is not of this form, or if a column is named twice.
    """
    roles = "|".join(USUAL)
    columns: dict[str, str] = {}
    for text in texts:
        for entry in re.split(rf",\s*(?=(?:{roles})=)", text):
            role, equals, name = entry.partition("=")
            if not (equals and name):
                raise RequestError(
                    f"expected --columns as latitude=NAME,longitude=NAME, found {quoted(entry)}."
                )
            one_of("column", role.strip(), USUAL)
            if role.strip() in columns:
                raise RequestError(f"expected one column for {role.strip()}, found two names.")
            columns[role.strip()] = name
    return columns


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How to read a table of places. Raises RequestError if a value is not allowed."""

    title: ClassVar = "Reading a file of your own tests"

    columns: tuple[str, ...] = setting(
        "Columns of the file: latitude=NAME,time=NAME and so on, for latitude, longitude, time, "
        "date, download, upload, latency, rsrp, rsrq, sinr, rssi, signal, success, provider, "
        "technology, session (a drive), error_sd (the standard deviation of the error of each "
        "value). Default: usual names, and drives from gaps in time.",
        default=(),
    )
    delimiter: str | None = setting(
        "Sign between the values of a text file, or tab. Default: as in the file."
    )
    decimal: str | None = setting(
        "Decimal sign of the numbers: . or a comma. Default: as in the file.",
        noun="decimal sign",
        choices=DECIMALS,
    )
    encoding: str | None = setting(
        "Encoding of a text file, such as utf-8 or cp1252. Default: as in the file."
    )
    sheet: str | None = setting(
        "Sheet of a workbook, or layer of a file with several layers. Default: the only one."
    )
    crs: str | None = setting(CRS_OF_FILES)
    most_left_out: float = setting(
        "Largest percentage of bad rows that are left out; a file with more is refused.",
        default=MOST_LEFT_OUT,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        named_columns(self.columns)
        if not 0 <= self.most_left_out <= 100:
            raise RequestError(
                f"expected --most-left-out from 0 to 100 per cent, found {self.most_left_out:g}."
            )
        if self.delimiter is not None and len(self.sign) != 1:
            raise RequestError(
                f"expected --delimiter with one sign, or tab, found {quoted(self.delimiter)}."
            )
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, ValueError) as error:
                raise RequestError(
                    "expected --encoding such as utf-8, utf-16 or cp1252, found "
                    f"{quoted(self.encoding)}."
                ) from error

    @property
    def sign(self) -> str:
        """The sign between values: `delimiter`, where ``tab`` means the sign."""
        names = {"tab": "\t", "\\t": "\t"}
        return names.get(self.delimiter or "", self.delimiter or "")


@dataclass(frozen=True, kw_only=True)
class PointOptions(TableOptions):
    """How to read a file of measurements. Raises RequestError if a value is not allowed."""

    units: str | None = setting(
        f"Unit of the speeds: {', '.join(KBPS)}. Default: the unit that the file states.",
        noun="unit",
        choices=KBPS,
    )
    thousands: tuple[str, ...] = setting(
        "Sign between thousands in a column, as COLUMN=SIGN. Default: as in the file.",
        default=(),
    )
    dates: str | None = setting(
        f"Form of the dates: {', '.join(DATES)}. Default: as in the file.",
        noun="form of dates",
        choices=DATES,
    )
    timezone: str | None = setting(
        "Time zone of times without one: a name such as America/Puerto_Rico, or an offset such as "
        "-04:00. Default: UTC."
    )
    at_quarter: str | None = setting("Quarter of all rows of a file without times, as 2023Q4.")
    at_least: float | None = setting(
        "With --target success: a test succeeded if its download is at least so many Mbps, and "
        "failed if it is lower or missing.",
        positive=True,
        most=MOST_AT_LEAST,
        unit="Mbps",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.separators
        if self.at_quarter is not None:
            quarter_index(self.at_quarter)
        if self.timezone is not None:
            from geogp.geodata.points.cell_times import zone_of  # noqa: PLC0415 - slow

            zone_of(self.timezone)

    @property
    def separators(self) -> dict[str, str]:
        """The sign between thousands of each column in `thousands`."""
        signs = {}
        for text in self.thousands:
            name, _, sign = text.rpartition("=")
            if not name or sign not in {*DECIMALS, "'", " "}:
                raise RequestError(
                    "expected --thousands as COLUMN=SIGN, such as download_kbps=. , found "
                    f"{quoted(text)}."
                )
            signs[name] = sign
        return signs


@dataclass(frozen=True)
class PointSource:
    """A file of measurements, and how to read it.

    `file` is the path. If `provider` or `technology` is given, only the measurements with this
    value are read. If `by_provider`, tests are pooled by provider, too. Raises RequestError if one
    provider is chosen, too.
    """

    file: str
    options: PointOptions = PointOptions()
    provider: str | None = None
    technology: str | None = None
    by_provider: bool = False

    def __post_init__(self) -> None:
        if self.by_provider and self.provider is not None:
            raise RequestError(
                "--provider maps one provider, and --by-provider maps all. Leave one of them out."
            )

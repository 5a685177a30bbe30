"""Reading of workbooks of Excel: the rows of a sheet, with their numbers and dates."""

import datetime as dt
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from geogp.errors import DataError, RequestError, named, quoted, shown
from geogp.geodata.places.archives import check_file
from geogp.geodata.points.text_tables import Row

MAX_ROWS, MAX_CELLS = 5_001_000, 1000
"""Most rows of a sheet, and most columns, that are read."""


class Sheet(NamedTuple):
    """The rows of a sheet that have cells, and whether its dates are days since 1904."""

    title: str
    rows: list[Row]
    since_1904: bool


def read_sheet(path: Path, sheet: str | None) -> Sheet:
    """Return the sheet of a workbook with this name, or the only one with rows.

    Raises RequestError if the package openpyxl is missing, or there is no such sheet, and DataError
    if the workbook is damaged, or has no sheet or several sheets with rows.
    """
    try:
        import openpyxl  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RequestError(
            f"{path} is a workbook, which needs the extra xlsx: pip install 'geogp[xlsx]'. Or save "
            "the sheet as .csv."
        ) from error
    check_file(path)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {}
        for one in book.worksheets:
            hidden = one.sheet_state != "visible"
            if sheet == one.title or (sheet is None and not hidden):
                one.reset_dimensions()  # programs write wrong ones
                found = (
                    Row(number, _texts_of(cells))
                    for number, cells in enumerate(one.iter_rows(values_only=True), 1)
                )
                rows = [row for row in islice(found, MAX_ROWS) if row.cells]
                if rows:
                    sheets[one.title] = rows
        names, since_1904 = book.sheetnames, book.epoch.year == 1904
    except DataError:
        raise
    except Exception as error:  # openpyxl raises errors of many kinds for damaged files
        raise DataError(f"{path} cannot be read as a workbook ({error}). Save it again.") from error
    if sheet is not None and sheet not in names:
        raise RequestError(f"{path} has no sheet {quoted(sheet)}; its sheets are {named(names)}.")
    if len(sheets) != 1:
        raise DataError(
            f"expected one sheet with rows in {path}, found {len(sheets)}: {named(sheets)}. "
            "Choose one with --sheet."
        )
    title, rows = next(iter(sheets.items()))
    return Sheet(title, rows, since_1904)


def with_numbers(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts of a sheet, with numbers in the columns that have only numbers.

    Raises DataError if a program exchanged day and month in a part of a column.
    """
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        held = [cell for cell in column if cell]
        _check_dates(path, str(frame.columns[place]), held)
        if held and all(isinstance(cell, _NumberText) for cell in held):
            frame.isetitem(place, pd.to_numeric(column.where(column != "", None)).to_numpy())
    return frame


class _NumberText(str):
    """The text of a number in a workbook, whose decimal sign is known."""

    __slots__ = ()


class _DateText(str):
    """The text of a date in a workbook, in ISO 8601."""

    __slots__ = ()


def _texts_of(cells: Sequence[object]) -> list[str]:
    """Return the texts of a row of a workbook, without empty cells at its end."""
    texts = [_cell_text(cell) for cell in cells[:MAX_CELLS]]
    while texts and not texts[-1].strip():
        texts.pop()
    return texts


def _check_dates(path: Path, name: str, cells: Sequence[str]) -> None:
    """Raise DataError if a program took days for months in a part of a column of dates.

    Excel does so in the United States with texts such as 13/07/2023: only days up to 12 become
    dates, with day and month exchanged.
    """
    dates = [cell for cell in cells if isinstance(cell, _DateText)]
    left = [cell for cell in cells if re.match(r"\d{1,2}/\d{1,2}/\d{4}", cell)]
    if dates and left and all(int(cell[8:10]) <= 12 for cell in dates):
        raise DataError(
            f"the column {shown(name)} of {path} has dates such as {dates[0]} beside texts such as "
            f"{quoted(left[0])}: a program has exchanged day and month in the dates. Import the "
            "original file again, with this column as text."
        )


def _cell_text(cell: object) -> str:
    """Return the text of a cell of a workbook; dates are in ISO 8601."""
    if cell is None:
        return ""
    if isinstance(cell, dt.datetime):
        return _DateText(cell.isoformat(" "))
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return _NumberText(repr(cell))
    return str(cell)

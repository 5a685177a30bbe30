"""Tables of texts, in text files and workbooks: their rows with lines, and the header.

The header may stand below other rows, and a row of units below the header.
"""

import bz2
import csv
import datetime as dt
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import charset_normalizer
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, named, quoted, shown
from geogp.geodata.places.archives import check_file
from geogp.geodata.points.roles import latency_unit, speed_unit

MAX_TEXT_BYTES = 1 << 29
"""Largest size of a text file, after unpacking, because its text is kept in memory."""

MAX_ROWS, MAX_CELLS = 5_001_000, 1000
"""Most rows of a sheet, and most columns, that are read."""

SAMPLE_BYTES, SAMPLE_ROWS = 1 << 18, 200
"""What the encoding and the delimiter are chosen by."""

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}

_PACKED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
"""First bytes of packed files, and their readers."""

_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""Byte order marks, and the encodings of texts that begin with them."""

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
"""Errors of damaged packed files."""

LONGEST = 60
"""Most characters of a cell that may be a number."""

SEARCHED = 50
"""Number of rows among which the header is searched."""

_UNITS = {
    *("utc", "gmt", "local", "deg", "degree", "degrees", "°", "decimal degrees", "dd", "wgs84"),
    *("m", "km", "km/h", "m/s", "dbm", "db", "%"),
    *("yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "dd.mm.yyyy", "mm/dd/yyyy", "hh:mm:ss"),
}
"""What a row of units may hold beside units of speeds and latencies, in small letters."""


class Row(NamedTuple):
    """The cells of a row, and the line in which the row ends."""

    line: int
    cells: list[str]


def unpacked(path: Path, endings: Sequence[str]) -> tuple[bytes, str]:
    """Return the content of a file, unpacked if it is packed, and the ending of its name.

    An archive must contain exactly one file whose name ends in one of `endings`. Raises DataError
    if the content is too large, or the file is damaged.
    """
    check_file(path)
    name = path.name.lower()
    try:
        with path.open("rb") as stream:
            head = stream.read(6)
        if head.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(path) as archive:
                names = [
                    member
                    for member in archive.namelist()
                    if member.lower().endswith(tuple(endings))
                    and not member.startswith("__MACOSX/")
                ]
                if len(names) != 1:
                    raise DataError(
                        f"expected one table in {path}, found {len(names)}: "
                        f"{named(names or archive.namelist())}. Unpack the "
                        "archive, and give the table itself."
                    )
                with archive.open(names[0]) as member:
                    return _limited(path, member), Path(names[0].lower()).suffix
        for mark, open_packed in _PACKED.items():
            if head.startswith(mark):
                inner = Path(name).stem if Path(name).suffix in {".gz", ".bz2", ".xz"} else name
                with path.open("rb") as stream, open_packed(stream) as plain:
                    return _limited(path, plain), Path(inner).suffix
        with path.open("rb") as stream:
            return _limited(path, stream), Path(name).suffix
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read ({error}). Download or write it again.") from error


def _limited(path: Path, stream: IO[bytes]) -> bytes:
    content = stream.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise DataError(
            f"{path} has more than {MAX_TEXT_BYTES:,} bytes of text, the most that geogp reads. "
            "Write it as Parquet."
        )
    return content


def decoded(path: Path, content: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file, and its encoding; raise DataError if it cannot be decoded.

    Without `encoding`, the encoding is that of the byte order mark, UTF-8, or a guess from the
    characters of the text.
    """
    found = encoding or next(
        (one for mark, one in _MARKS.items() if content.startswith(mark)), None
    )
    if found is None:
        even, odd = content[:SAMPLE_BYTES:2].count(0), content[1:SAMPLE_BYTES:2].count(0)
        if max(even, odd) > len(content[:SAMPLE_BYTES]) // 4:
            found = "utf-16-be" if even > odd else "utf-16-le"
    if found is None:
        try:
            return content.decode(), "utf-8"
        except UnicodeDecodeError:
            found = _guessed(content)
    try:
        return content.decode(found).removeprefix("\ufeff"), found
    except (UnicodeError, LookupError) as error:
        raise DataError(
            f"{path} cannot be read as text in {found} ({error}). Give its encoding with "
            "--encoding, such as utf-8 or cp1252."
        ) from error


def _guessed(content: bytes) -> str:
    """Return the likely encoding of a text that is not UTF-8: cp1252, or one that fits better."""
    first = next(k for k, byte in enumerate(content) if byte > 127)
    begin = max(0, first - SAMPLE_BYTES // 2)
    guesses = list(charset_normalizer.from_bytes(content[begin : begin + SAMPLE_BYTES]))
    western = [guess for guess in guesses if {"cp1252", "latin_1"} & {*guess.could_be_from_charset}]
    if not guesses or any(
        guess.percent_chaos <= guesses[0].percent_chaos
        and guess.percent_coherence >= guesses[0].percent_coherence
        for guess in western
    ):
        return "cp1252"
    return str(guesses[0].encoding)


def rows_of(path: Path, text: str, delimiter: str) -> tuple[list[Row], str]:
    """Return the rows of a text with cells, and the delimiter; empty lines are left out.

    With `delimiter` "", it is the one of the line ``sep=;``, or else the one that gives most rows
    the same number of cells. Raises DataError if a quote has no end.
    """
    first, _, rest = text.partition("\n")
    begin = 0
    if first.strip().lower().startswith("sep=") and len(first.strip().strip('"')) in {4, 5}:
        delimiter = delimiter or first.strip("\r\n").strip('"')[4:] or "\t"
        text, begin = rest, 1
    sample = "".join(islice(io.StringIO(text, newline=""), SAMPLE_ROWS))
    if not delimiter:
        delimiter = max(DELIMITERS, key=lambda sign: _fit(sample, sign))
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        filled = [Row(begin + rows.line_num, cells) for cells in rows if any(map(str.strip, cells))]
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as CSV: {error} in or before line {begin + rows.line_num}. "
            "Correct this line."
        ) from error
    return filled, delimiter


def _fit(sample: str, sign: str) -> tuple[int, int]:
    """Return the number of lines with the usual number of cells, above one, and this number."""
    lines = csv.reader(io.StringIO(sample, newline=""), delimiter=sign)
    widths: Counter[int] = Counter()
    with suppress(csv.Error):  # of a cell that is too long; the lines before it decide
        widths.update(len(cells) for cells in lines if len(cells) > 1)
    if not widths:
        return 0, 0
    width, count = widths.most_common(1)[0]
    return count, width


@dataclass(frozen=True)
class TextTable:
    """The n rows of a table of texts below its header.

    `number` are the lines of the rows. `units` has the texts of a row of units by column. `ragged`
    marks rows with more cells than the header. `notes` say what was skipped.
    """

    frame: pd.DataFrame
    number: NDArray[np.int64]
    units: dict[str, str] = field(default_factory=dict)
    ragged: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()


def table_of(path: Path, rows: Sequence[Row], known: Callable[[str], bool], unit: str) -> TextTable:
    """Return the table in rows of texts; `known` says whether a name is one that geogp knows.

    `unit` is the word for a row's number: line or row. Empty columns without a name, and a column
    of row numbers without a name, are dropped. Rows that begin with ``#`` are comments. Raises
    DataError if no row can be the header.
    """
    place = _header_place(path, rows, known)
    header = [cell.strip() for cell in rows[place].cells]
    header[0] = header[0].lstrip("#").strip()
    width, body = (
        len(header),
        [
            row
            for row in rows[place + 1 :]
            if not (_is_comment(row) and len(row.cells) < max(2, len(header)))
        ],
    )
    ends = any(row.cells[-1].strip() for row in body)  # else, the rows end with a delimiter
    longer = ends and Counter(len(row.cells) for row in body).most_common(1)[0][0] == width + 1
    if longer and header[-1] and _are_row_names([row.cells[0] for row in body]):
        header, width = ["", *header], width + 1
    comments = len(rows) - place - 1 - len(body)
    notes = [f"names in {unit} {rows[place].line}"]
    if place:
        notes.append(f"{place} row{'s' if place > 1 else ''} above the names skipped")
    if comments:
        notes.append(f"{comments} comments skipped")
    units: dict[int, str] = {}
    if body and _is_units(body[0].cells):
        units = {k: _bare(cell) for k, cell in enumerate(body[0].cells[:width]) if cell.strip()}
        body, notes = body[1:], [*notes, f"units in {unit} {body[0].line}"]
    extra = [any(map(str.strip, row.cells[width:])) for row in body]
    cells = [(row.cells + [""] * width)[:width] for row in body]
    frame = pd.DataFrame(cells, columns=range(width), dtype=object)
    kept = [k for k in range(width) if header[k]]
    named = frame[kept].set_axis([header[k] for k in kept], axis=1)
    return TextTable(
        named,
        np.array([row.line for row in body], np.int64),
        {header[k]: text for k, text in units.items() if header[k]},
        np.array(extra, np.bool_),
        tuple(notes),
    )


def _header_place(path: Path, rows: Sequence[Row], known: Callable[[str], bool]) -> int:
    """Return the number of the row with the names of the columns."""
    top = rows[:SEARCHED]
    usual = Counter(len(row.cells) for row in rows[: 4 * SEARCHED]).most_common(1)
    width = usual[0][0] if usual else 0
    fitting = [
        place
        for place, row in enumerate(top)
        if len(row.cells) <= width + 1
        and (
            (len(row.cells) >= width - 1 and _may_be_names(row.cells))
            or sum(map(known, _stripped(row.cells))) >= 2
        )
    ]
    names = {place: sum(map(known, _stripped(top[place].cells))) for place in fitting}
    best = max(names, key=lambda place: (names[place], -place), default=None)
    if best is not None and names[best] >= 2:
        return best
    plain = [place for place in fitting if not _is_comment(top[place])]
    if not plain:
        found = "|".join(top[0].cells)[:80] if top else "an empty file"
        raise DataError(
            f"expected a row with the names of the columns in {path}, found none: the first row "
            f"is {quoted(found)}."
        )
    return plain[0]


def _stripped(cells: Sequence[str]) -> list[str]:
    return [cell.strip().lstrip("#").strip() for cell in cells]


def _is_comment(row: Row) -> bool:
    return row.cells[0].lstrip().startswith("#")


def _may_be_names(cells: Sequence[str]) -> bool:
    """Return whether cells may be names: texts in half of the columns or more, and no numbers."""
    filled = [cell for cell in _stripped(cells) if cell]
    numbers = [
        cell
        for cell in filled
        if len(cell) < LONGEST and re.fullmatch(r"[+-]?[\d.,:/\s-]*\d[\d.,:/\s-]*", cell)
    ]
    return len(filled) >= max(1, len(cells) / 2) and not numbers


def _are_row_names(cells: Sequence[str]) -> bool:
    """Return whether cells are names of rows, which R writes without a name: 1, 2, 3 or texts."""
    texts = [cell.strip().strip('"') for cell in cells]
    counted = [str(number) for number in range(1, len(texts) + 1)]
    return texts == counted or not any(re.match(r"[+-]?[\d.]", text) for text in texts)


def _bare(cell: str) -> str:
    return cell.strip().strip("()[]{}").strip()


def _is_units(cells: Sequence[str]) -> bool:
    """Return whether a row below the names holds units: at least half of its texts are units."""
    filled = [text for text in map(_bare, cells) if text not in {"", "-", "--"}]
    if any(re.match(r"[+-]?[.,]?\d", text) for text in filled):
        return False
    units = [
        text
        for text in filled
        if text.lower() in _UNITS
        or any(
            reading.unit is not None and not reading.name.strip()
            for reading in (speed_unit(text), latency_unit(f" {text}"))
        )
    ]
    return len(units) >= max(2, len(filled) / 2)


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
        for worksheet in book.worksheets:
            hidden = worksheet.sheet_state != "visible"
            if sheet == worksheet.title or (sheet is None and not hidden):
                worksheet.reset_dimensions()  # programs write wrong ones
                all_rows = (
                    Row(number, _texts_of(cells))
                    for number, cells in enumerate(worksheet.iter_rows(values_only=True), 1)
                )
                rows = [row for row in islice(all_rows, MAX_ROWS) if row.cells]
                if rows:
                    sheets[worksheet.title] = rows
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
        filled = [cell for cell in column if cell]
        _check_dates(path, str(frame.columns[place]), filled)
        if filled and all(isinstance(cell, _NumberText) for cell in filled):
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

"""The header of a table of texts: where it is, its names and units, and rows of another length."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, quoted
from geogp.geodata.points.speed_units import latency_unit, speed_unit
from geogp.geodata.points.text_rows import Row

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
    held = [cell for cell in _stripped(cells) if cell]
    numbers = [
        cell
        for cell in held
        if len(cell) < LONGEST and re.fullmatch(r"[+-]?[\d.,:/\s-]*\d[\d.,:/\s-]*", cell)
    ]
    return len(held) >= max(1, len(cells) / 2) and not numbers


def _are_row_names(cells: Sequence[str]) -> bool:
    """Return whether cells are names of rows, which R writes without a name: 1, 2, 3 or texts."""
    texts = [cell.strip().strip('"') for cell in cells]
    counted = [str(number) for number in range(1, len(texts) + 1)]
    return texts == counted or not any(re.match(r"[+-]?[\d.]", text) for text in texts)


def _bare(cell: str) -> str:
    return cell.strip().strip("()[]{}").strip()


def _is_units(cells: Sequence[str]) -> bool:
    """Return whether a row below the names holds units: at least half of its texts are units."""
    held = [text for text in map(_bare, cells) if text not in {"", "-", "--"}]
    if any(re.match(r"[+-]?[.,]?\d", text) for text in held):
        return False
    units = [
        text
        for text in held
        if text.lower() in _UNITS
        or any(
            found.unit is not None and not found.name.strip()
            for found in (speed_unit(text), latency_unit(f" {text}"))
        )
    ]
    return len(units) >= max(2, len(held) / 2)

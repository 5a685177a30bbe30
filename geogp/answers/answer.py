"""One answer about a finished run: facts, a table whose columns know their texts, and layers.

An `Answer` is made from the content of its JSON file, in the file of its question. So a fresh
answer and a stored one are the same, and each medium needs one function for all answers: the
terminal (`geogp_cli.questions`), files (`answers.area_files`), the report and the page
(`answers.pages`).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from geogp.reports.words import MISSING
from geogp.value_scales import suffix_of

if TYPE_CHECKING:
    from geogp.maps.views import View


@dataclass(frozen=True)
class Column:
    """A column of an answer as people see it.

    `label` contains the unit. `names` are the columns of the table with the values, such as the two
    ends of an interval; `form` turns these values into a text, as in `str.format`. A narrow
    terminal leaves out `minor` columns first.
    """

    label: str
    names: tuple[str, ...]
    form: str
    minor: bool = False

    def text(self, row: dict[str, Any]) -> str:
        """Return the text of a row; a dash if a value is empty."""
        values = [row[name] for name in self.names]
        return MISSING if None in values else self.form.format(*values)


def with_interval(
    label: str, interval: str, names: Iterable[str], form: str, unit: str = ""
) -> list[Column]:
    """Return a column of values, and a column of their intervals.

    `names` are the columns of the value, the lower end and the upper end; `form` is the format of a
    number, such as ``.1f``. A `unit` comes after the numbers.
    """
    middle, *ends = names
    sign = f" {unit}" if unit else ""
    return [
        Column(label, (middle,), f"{{:{form}}}{sign}"),
        Column(interval, tuple(ends), f"{{:{form}}} to {{:{form}}}{sign}"),
    ]


def band_of(name: str, unit: str) -> tuple[str, str, str]:
    """Return the columns of a value, and of the lower and the upper end of its interval."""
    end = suffix_of(unit)
    return f"{name}_{end}", f"{name}_lower_{end}", f"{name}_upper_{end}"


def of_target(content: dict[str, Any]) -> str:
    """Return what titles say of the target of a run of several; nothing for one target."""
    target = content.get("target")
    return f", {target}" if target in content.get("targets", ()) else ""


def of_another(content: dict[str, Any]) -> bool:
    """Return whether an answer is about another target of a run than that of its map."""
    return "targets" in content and content["target"] != content["targets"][0]


AREA_COLUMNS = (
    Column("area", ("area",), "{}"),
    Column("tiles", ("tiles",), "{:,}", minor=True),
    Column("measured", ("measured_tiles",), "{:,}", minor=True),
    Column("far from data", ("far_share",), "{:.0%}", minor=True),
)
"""The first columns of a table of areas."""

Clock = Callable[[], dict[str, float | str]]
"""Returns the last facts of an answer: the seconds since the request, and the data's source."""


@dataclass(frozen=True)
class AreaLayer:
    """A layer of the page: the value of each area at one time, in words `what`.

    `band` are the columns with the lower end of the 95 % interval, the value and the upper end, and
    `kind` is the type of their values. `median` is the column with the same of the medians that the
    map shows, or None. `directed` means that the table also has the columns ``probability_rose``
    and ``direction``. The raster of the answer has the number of the area of each tile.
    """

    view: "View"
    what: str
    time: str
    band: tuple[str, str, str]
    kind: Any
    median: str | None = None
    directed: bool = False


@dataclass(frozen=True)
class TileLayer:
    """A layer of the page: the change of each tile between two quarters.

    `change` and `sd` are the names of the rasters of the median change, in per cent or in dB, and
    of the standard deviation of the change on the scale of the model. Only the change between the
    latest `quarters` is on the page.
    """

    view: "View"
    quarters: tuple[str, str]
    change: str
    sd: str


@dataclass(frozen=True)
class Answer:
    """An answer: its name in file names, facts and rows for JSON, and what people see.

    `content` is the content of the JSON file, with the rows of the table under the key `key`.
    `before` and `after` are sentences around the table on the terminal, where the table has `most`
    rows at most. `other_names` are the names of its files that have another name, without endings.
    """

    name: str
    title: str
    content: dict[str, Any]
    key: str
    table: pd.DataFrame
    columns: tuple[Column, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    most: int | None = None
    areas: AreaLayer | None = None
    tiles: TileLayer | None = None
    other_names: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the rows that people see."""
        return [[column.text(row) for column in self.columns] for row in self.content[self.key]]

    @property
    def described(self) -> dict[str, Any]:
        """The content with the names of the files and the rows of `table`, for ``--json``."""
        files = [str(path) for path in self.files]
        return {**self.content, "files": files, self.key: plain_rows(self.table)}


@dataclass(frozen=True)
class AnswerKind:
    """The stored answers to one question: the pattern of their JSON files, and how they are read.

    `key` is the key of the rows; `drawn` says whether the answers are layers of the page.
    `read` makes an answer from its name, the content of its JSON file, and its table.
    """

    pattern: str
    key: str
    read: Callable[[str, dict[str, Any], pd.DataFrame], Answer]
    drawn: bool = False


def with_rows(facts: dict[str, Any], key: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return the content of a JSON file: the facts, and the rows of a table under a key."""
    return {**facts, key: plain_rows(table)}


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, with null in empty cells."""
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in table.to_dict(orient="records")
    ]


def _plain(value: Any) -> Any:
    """Return a value of a table for JSON: dates and other objects as text, empty cells as None."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else str(value)

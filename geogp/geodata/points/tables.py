"""Files of points as one table, with the line of each point, and the review of its rows."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, named, shown
from geogp.geodata.places.archives import check_file
from geogp.geodata.points.cell_numbers import is_missing
from geogp.geodata.points.point_options import MOST_LEFT_OUT, TableOptions, named_columns
from geogp.geodata.points.roles import find_columns, role_of
from geogp.geodata.points.text_tables import (
    DELIMITERS,
    TextTable,
    decoded,
    read_sheet,
    rows_of,
    table_of,
    unpacked,
    with_numbers,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_POINTS = 5_000_000
"""Largest number of points in a file."""

SHOWN = 5
"""Number of lines that a message lists."""

TEXTS = (".csv", ".txt", ".tsv", ".tab", ".dat", ".log")
TREES = (".json", ".ndjson", ".jsonl", ".geojsonl", ".geojsons")
TABLES, WORKBOOKS = (".parquet", ".geoparquet"), (".xlsx", ".xlsm")
VECTORS = (".gpkg", ".geojson", ".fgb", ".shp", ".kml", ".kmz", ".shz")
PACKED = (".zip", ".gz", ".bz2", ".xz")
ENDINGS = (*TEXTS, *TREES, *TABLES, *WORKBOOKS, *VECTORS, *PACKED)

_NUMBER = r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_POINT = re.compile(
    rf"(?:SRID=4326;)?\s*POINT\s*(?:Z|M|ZM)?\s*\(\s*{_NUMBER}\s+{_NUMBER}[^()]*\)", re.IGNORECASE
)
"""A point in a text, such as ``POINT (-66.1 18.4)``."""

_TREE = re.compile(rb'\s*(?:\[\s*\{|\{\s*")')
"""How JSON begins."""

GEOMETRY = ("geometry", "wkt", "geom", "the_geom", "wkb_geometry")
"""Usual names of columns of texts that hold points, such as ``POINT (-66.1 18.4)``."""


@dataclass(frozen=True)
class PointTable:
    """The columns of a file of n points, and the number of the line (or row) of each point.

    The columns of a text file are text. Rows of other files are counted from 1. `notes` are pairs
    of a subject and what was understood of it. `units` are the texts of a row of units by column.
    `ragged` marks rows with more cells than the table has columns. `places` are longitudes and
    latitudes of geometries, (n, 2), or None if the file has none.
    """

    path: Path
    frame: pd.DataFrame
    number: NDArray[np.int64]
    unit: str
    notes: tuple[tuple[str, str], ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    ragged: Mask | None = None
    places: Floats | None = None

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(map(str, self.frame))

    def where(self, wrong: Mask) -> str:
        """Return a text with the first marked lines, such as ``lines 3, 9 (2 of 40)``."""
        lines = self.number[wrong]
        shown = ", ".join(map(str, lines[:SHOWN])) + (", ..." if len(lines) > SHOWN else "")
        plural = "s" if len(lines) > 1 else ""
        return f"{self.unit}{plural} {shown} ({len(lines):,} of {len(self):,})"

    def texts(self, name: str) -> NDArray[np.object_]:
        """Return a column as text without spaces at the ends, (n,); only empty cells are ``''``."""
        column = self.frame[name]
        known = column.astype(object).where(column.notna(), "").astype(str).str.strip()
        return np.asarray(known, object)

    def values(self, name: str) -> NDArray[np.object_]:
        """Return a column as text, (n,), where all marks of missing values are ``''``."""
        texts = self.texts(name)
        return np.where(is_missing(texts), "", texts).astype(object)

    def numbers(self, name: str) -> Floats | None:
        """Return a column of numbers, (n,), NaN in empty cells; None for other columns."""
        column = self.frame[name]
        if column.dtype.kind not in "iuf":
            return None
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))

    def columns(self, options: TableOptions, needed: Sequence[str]) -> dict[str, str]:
        """Return the names of the known columns; raise the errors of `find_columns`.

        A geometry replaces columns of coordinates.
        """
        wanted = [
            role for role in needed if self.places is None or role not in {"latitude", "longitude"}
        ]
        return find_columns(self.names, named_columns(options.columns), wanted, str(self.path))


def read_point_table(path: Path, options: TableOptions | None = None) -> PointTable:
    """Return the table in a file of points, in one of the formats of `ENDINGS`.

    Raises RequestError if there is no such file, the format is unknown, or an option is for
    another format. Raises DataError if the file is damaged, empty or too large, or has several
    sheets or layers.
    """
    options = options or TableOptions()
    endings = {ending.lower() for ending in path.suffixes[-2:]}
    if not path.is_file() or not endings & set(ENDINGS):
        found = f"{path}{'' if path.is_file() else ', which is not a file'}"
        old = (
            " Save the workbook as .xlsx or .csv."
            if path.suffix.lower() in {".xls", ".ods"}
            else ""
        )
        raise RequestError(
            f"expected a file of points that ends in {', '.join(ENDINGS)}, found {found}.{old}"
        )
    table = _read(path, options)
    if not 0 < len(table) <= MAX_POINTS:
        raise DataError(
            f"expected from 1 to {MAX_POINTS:,} points in {path}, found {len(table):,}."
        )
    return table


def _read(path: Path, options: TableOptions) -> PointTable:
    ending = path.suffix.lower()
    known = _known_names(options)
    if ending in WORKBOOKS:
        _refuse_options(path, options, "delimiter", "encoding")
        return _read_workbook(path, options, known)
    if ending in TABLES + VECTORS or (ending == ".zip" and _holds_shapes(path)):
        _refuse_options(path, options, "delimiter", "encoding")
        return _read_shapes(path, options)
    content, ending = unpacked(path, (*TEXTS, *TREES, ".geojson"))
    if ending in {*TREES, ".geojson"} or _TREE.match(content):
        _refuse_options(path, options, "delimiter", "sheet")
        return _read_tree(path, content, options)
    _refuse_options(path, options, "sheet")
    text, encoding = decoded(path, content, options.encoding)
    rows, sign = rows_of(path, text, options.sign)
    found = table_of(path, rows, known, "line")
    name = DELIMITERS.get(sign, repr(sign))
    notes = [
        ("file", f"text in {encoding}, {name} between values"),
        ("header", "; ".join(found.notes)),
    ]
    return _of_texts(path, found, "line", notes)


def _refuse_options(path: Path, options: TableOptions, *names: str) -> None:
    """Raise RequestError if an option is given that has no effect on a file of this form."""
    for name in names:
        if getattr(options, name) is not None:
            raise RequestError(
                f"--{name} has no effect on {path}, which is a file of another form. Leave "
                f"--{name} out."
            )


def _known_names(options: TableOptions) -> Callable[[str], bool]:
    given = set(named_columns(options.columns).values())
    return lambda name: name in given or role_of(name) is not None


def _of_texts(
    path: Path, found: TextTable, unit: str, notes: Iterable[tuple[str, str]]
) -> PointTable:
    """Return a table of texts; a column of geometries in text becomes the places."""
    table = PointTable(
        path, found.frame, found.number, unit, tuple(notes), found.units, found.ragged
    )
    for name in table.names:
        if name.lower() in GEOMETRY and table.names.count(name) == 1:
            texts = table.texts(name)
            found_points = [_POINT.fullmatch(text) for text in texts.tolist()]
            points = np.array(
                [one.groups() if one else ("nan", "nan") for one in found_points], np.float64
            ).reshape(-1, 2)
            if np.isfinite(points).any():
                other = int(((texts != "") & np.isnan(points[:, 0])).sum())
                told = ("other shapes", f"{other:,} shapes are no points")
                return replace(
                    table, places=points, notes=(*table.notes, *([told] if other else []))
                )
    return table


def _read_workbook(path: Path, options: TableOptions, known: Callable[[str], bool]) -> PointTable:
    """Return the table in a sheet of a workbook."""
    sheet = read_sheet(path, options.sheet)
    found = table_of(path, sheet.rows, known, "row")
    notes = [("file", f"workbook, sheet {shown(sheet.title)}"), ("header", "; ".join(found.notes))]
    if sheet.since_1904:
        notes.append(("dates", "plain numbers are days since 1904 with --dates excel-1904"))
    frame = with_numbers(path, found.frame)
    return _of_texts(path, replace(found, frame=frame), "row", notes)


def _read_tree(path: Path, content: bytes, options: TableOptions) -> PointTable:
    """Return the table in JSON: a list of objects, or one object in each line; or GeoJSON."""
    text, encoding = decoded(path, content, options.encoding)
    try:
        if text.lstrip().startswith("["):
            rows, numbers = json.loads(text), None
        else:
            lines = [
                (k, line) for k, line in enumerate(text.split("\n"), 1) if line.strip("\r \x1e")
            ]
            whole = len(lines) > 1 and lines[0][1].strip() == "{"
            held = [] if whole else [json.loads(line.strip("\r\x1e")) for _, line in lines]
            rows, numbers = (
                (_listed(json.loads(text)), None) if whole else (held, [k for k, _ in lines])
            )
            if len(held) == 1:
                rows, numbers = _listed(held[0]), None
        if "\\ud" in text.lower():  # half of a character is no text
            json.dumps(rows, ensure_ascii=False).encode()
    except RecursionError as error:
        raise DataError(f"{path} is nested too deeply.") from error
    except ValueError as error:
        raise DataError(f"{path} cannot be read as JSON ({error}). Write it again.") from error
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    if first.get("type") in {"FeatureCollection", "Feature"}:
        return _of_features(path, first.get("features", rows), first.get("crs"))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"expected a list of objects in {path}, or one object in each line.")
    frame = pd.json_normalize(rows)
    number = np.array(numbers or range(1, len(frame) + 1), np.int64)
    kind = "objects in lines" if numbers else "list of objects"
    unit = "line" if numbers else "row"
    return _of_texts(
        path, TextTable(frame, number), unit, [("file", f"JSON in {encoding}, {kind}")]
    )


def _of_features(path: Path, features: Any, crs: object) -> PointTable:
    """Return the table of GeoJSON features in lines or in a packed file, which are in degrees."""
    if crs is not None and not re.search(r"CRS84|4326", json.dumps(crs)):
        raise DataError(f"{path} has another CRS than longitude and latitude. Unpack the file.")
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise DataError(f"expected GeoJSON features in {path}. Write the file again.")
    places = np.full((len(features), 2), np.nan)
    for place, one in enumerate(features):
        shape = one.get("geometry") or {}
        point = shape.get("coordinates") if shape.get("type") == "Point" else None
        if isinstance(point, list) and len(point) > 1:
            places[place] = [
                value if isinstance(value, int | float) else np.nan for value in point[:2]
            ]
    frame = pd.json_normalize([one.get("properties") or {} for one in features])
    frame = frame.reindex(range(len(features)))
    number = np.arange(1, len(frame) + 1)
    return PointTable(path, frame, number, "row", (("file", "GeoJSON features"),), places=places)


def _listed(found: object) -> list[Any]:
    """Return the rows of a JSON object: its only list of objects, or the object itself."""
    if isinstance(found, dict) and found.get("type") != "FeatureCollection":
        lists = [
            one
            for one in found.values()
            if isinstance(one, list) and one and isinstance(one[0], dict)
        ]
        if len(lists) == 1:
            return lists[0]
    return [found]


def _holds_shapes(path: Path) -> bool:
    """Return whether an archive has a shapefile or another vector file."""
    import zipfile  # noqa: PLC0415

    check_file(path)
    with zipfile.ZipFile(path) as archive:
        names = [name.lower() for name in archive.namelist() if not name.startswith("__MACOSX/")]
    return any(name.endswith(VECTORS) for name in names)


def _read_shapes(path: Path, options: TableOptions) -> PointTable:
    """Return the table of a Parquet or vector file, with coordinates from its points."""
    from geogp.geodata.places.polygons import (  # noqa: PLC0415 - slow, and not for text files
        DAMAGE,
        read_shapes,
        without_network,
    )

    try:
        frame = read_shapes(path, MAX_POINTS, options.sheet, options.crs)
        if not isinstance(frame, pd.DataFrame):
            return _of_arrow(path, frame)
        if getattr(frame, "active_geometry_name", None) is None:
            number = np.arange(1, len(frame) + 1)
            found = TextTable(pd.DataFrame(frame), number)
            return _of_texts(path, found, "row", [("file", path.suffix.lower().strip("."))])
        with without_network():
            return _with_places(path, frame)
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as points ({' '.join(str(error).split())}). Write it again."
        ) from error


def _of_arrow(path: Path, table: Any) -> PointTable:
    """Return an Arrow table, with a column such as ``client.Geo.Latitude`` for a nested value."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and not for text files

    while any(map(pa.types.is_struct, table.schema.types)):
        table = table.flatten()
    whole = {kind: pd.Int64Dtype() for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
    frame = table.to_pandas(ignore_metadata=True, types_mapper=whole.get)
    for name in [one.name for one in table.schema if pa.types.is_binary(one.type)]:
        frame[name] = frame[name].map(
            lambda cell: cell.decode(errors="replace") if isinstance(cell, bytes) else None
        )
    number = np.arange(1, len(frame) + 1)
    return _of_texts(path, TextTable(frame, number), "row", [("file", "Parquet")])


def _with_places(path: Path, shapes: Any) -> PointTable:
    """Return the table of shapes with the places of its points; others have none."""
    import shapely  # noqa: PLC0415

    places, kind = shapes.geometry, path.suffix.lower().strip(".")
    if places.crs is None:
        raise DataError(
            f"{path} has no CRS, so the meaning of its coordinates is unknown. Give it with --crs, "
            "such as --crs EPSG:4326 for degrees."
        )
    places = places.to_crs(4326)
    points = places.to_numpy().copy()
    single = (shapely.get_type_id(points) == 4) & (shapely.get_num_geometries(points) == 1)
    points[single] = shapely.get_geometry(points[single], 0)
    other = (shapely.get_type_id(points) > 0) & ~single
    points[(shapely.get_type_id(points) != 0) | shapely.is_empty(points)] = None
    frame = pd.DataFrame(shapes.drop(columns=shapes.active_geometry_name)).reset_index(drop=True)
    xy = np.column_stack([shapely.get_x(points), shapely.get_y(points)])
    if len(xy) and not np.isfinite(xy).any():
        raise DataError(
            f"expected points in {path}, found {named(sorted(set(places.geom_type.dropna())))}."
        )
    notes = [("file", f"{kind} with points in {shapes.crs.name}")]
    if other.any():
        notes.append(("other shapes", f"{int(other.sum())} shapes are no points"))
    return PointTable(path, frame, np.arange(1, len(frame) + 1), "row", tuple(notes), places=xy)


@dataclass
class RowReview:
    """Notes, questions and left-out rows of a table, collected while its columns are read.

    `notes` are pairs of a subject and what was understood of it. `questions` are messages about
    what has two meanings. `bad` are the masks of rows with a fault, by reason; `apart` are those of
    rows that are left out for what they are, such as tests without the target. A row counts for its
    first reason.
    """

    table: PointTable
    notes: list[tuple[str, str]]
    questions: list[str] = field(default_factory=list)
    bad: dict[str, Mask] = field(default_factory=dict)
    apart: dict[str, Mask] = field(default_factory=dict)

    @classmethod
    def of(cls, table: PointTable) -> "RowReview":
        """Return the review of a table, in which rows with too many values are bad."""
        review = cls(table, list(table.notes))
        if table.ragged is not None:
            review.mark(table.ragged, "more values than the header has names")
        return review

    @property
    def kept(self) -> Mask:
        """Mask of the rows that are not left out, (n,)."""
        none = np.zeros(len(self.table), np.bool_)
        return np.asarray(~np.any([none, *self._left_out.values()], axis=0), np.bool_)

    @property
    def _left_out(self) -> dict[str, Mask]:
        return {**self.bad, **self.apart}

    def mark(self, rows: Mask, reason: str, *, apart: bool = False) -> None:
        """Leave out rows, (n,), that are not left out yet."""
        rows = np.asarray(rows, np.bool_) & self.kept
        if rows.any():
            (self.apart if apart else self.bad)[reason] = rows

    def ask(self, column: str, sample: str, readings: str, cure: str) -> None:
        """Add a question about a column of which a text, `sample`, has several readings."""
        line = self.table.number[int((self.table.values(column) == sample).argmax())]
        self.questions.append(
            f"column {column}, {self.table.unit} {line}: {sample} may be {readings}. {cure}"
        )

    def check(self, most: float = MOST_LEFT_OUT) -> None:
        """Raise DataError if there are questions, or more than `most` per cent of bad rows."""
        path, n = self.table.path, len(self.table)
        if self.questions:
            asked = "\n  - ".join(self.questions)
            raise DataError(f"{path} has more than one meaning:\n  - {asked}")
        count = sum(int(rows.sum()) for rows in self.bad.values())
        if count > most / 100 * n:
            told = "\n  - ".join(
                f"{self.table.where(rows)}: {why}" for why, rows in self.bad.items()
            )
            raise DataError(
                f"{path} has {count:,} bad rows of {n:,}, more than the {most:g} % that geogp "
                f"leaves out:\n  - {told}\nCorrect or remove them, or allow more with "
                "--most-left-out."
            )
        if not self.kept.any():
            reasons = "; ".join(self.reasons())
            raise DataError(f"{path} has no row that can be used: {reasons}.")

    def reasons(self) -> list[str]:
        """Return each reason with its rows, such as ``no time: lines 3, 9 (2 of 40)``."""
        return [f"{why}: {self.table.where(rows)}" for why, rows in self._left_out.items()]

    def counts(self) -> dict[str, int]:
        """Return the number of rows that are left out for each reason."""
        return {why: int(rows.sum()) for why, rows in self._left_out.items()}

    def left_out(self, columns: dict[str, str]) -> pd.DataFrame:
        """Return a table of the left-out rows: line, whether it is bad, reason, and `columns`."""
        parts = [
            pd.DataFrame({"place": np.flatnonzero(rows), "kind": kind, "reason": why})
            for kind, found in (("bad", self.bad), ("apart", self.apart))
            for why, rows in found.items()
        ]
        empty = pd.DataFrame({"place": [], "kind": [], "reason": []}).astype({"place": np.int64})
        found = pd.concat([empty, *parts]).sort_values("place", kind="stable")
        place = found.pop("place").to_numpy(np.int64)
        found.insert(0, self.table.unit, self.table.number[place])
        cells = {role: self.table.texts(name)[place] for role, name in columns.items()}
        return found.reset_index(drop=True).assign(**cells)

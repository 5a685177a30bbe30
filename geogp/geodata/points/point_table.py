"""Reading of files of points, with the line of each point for messages."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError
from geogp.geodata.tiles.quadkeys import NORTHMOST

Floats = NDArray[np.float64]

MAX_POINTS = 5_000_000
"""Largest number of points in a file."""

MAX_CSV_BYTES = 1 << 29
"""Largest size of a CSV file, because its text is kept in memory."""

SHOWN = 5
"""Number of lines that a message lists."""

TEXTS, TABLES = (".csv", ".txt", ".tsv"), (".parquet", ".geoparquet")
VECTORS = (".gpkg", ".geojson", ".fgb", ".shp", ".zip")

_EMPTY = ("", "na", "nan", "null", "none")
"""How an empty cell may be written, in small letters."""


@dataclass(frozen=True)
class PointTable:
    """The columns of a file of n points, and the number of the line (or row) of each point.

    The columns of a CSV file are text. Rows of other files are counted from 1.
    """

    path: Path
    frame: pd.DataFrame
    number: NDArray[np.int64]
    unit: str

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(map(str, self.frame))

    def where(self, wrong: NDArray[np.bool_]) -> str:
        """Return a text with the first marked lines, such as ``lines 3, 9 (2 of 40)``."""
        lines = self.number[wrong]
        shown = ", ".join(map(str, lines[:SHOWN])) + (", ..." if len(lines) > SHOWN else "")
        plural = "s" if len(lines) > 1 else ""
        return f"{self.unit}{plural} {shown} ({len(lines):,} of {len(self):,})"

    def texts(self, name: str) -> NDArray[np.object_]:
        """Return a column as text without spaces at the ends, (n,); empty cells are ``''``."""
        column = self.frame[name]
        known = column.astype(object).where(column.notna(), "").astype(str).str.strip()
        return np.asarray(known.where(~known.str.lower().isin(_EMPTY), ""), object)

    def numbers(self, name: str, faults: list[str]) -> Floats:
        """Return a column as numbers, (n,), NaN in empty cells; add a fault if a cell is wrong."""
        column = self.frame[name]
        if column.dtype.kind in "iuf":
            values = column.to_numpy(np.float64, na_value=np.nan)
            wrong = np.isinf(values)
        else:
            texts = self.texts(name)
            values = np.asarray(pd.to_numeric(pd.Series(texts), errors="coerce"), np.float64)
            wrong = ~np.isfinite(values) & (texts != "")
        if wrong.any():
            first = str(column.iloc[int(wrong.argmax())])
            faults.append(
                f"expected numbers in the column {name}, such as 12.5, found {first[:40]!r} and "
                f"the like in {self.where(wrong)}."
            )
        return values

    def refuse(self, faults: Sequence[str]) -> None:
        """Raise DataError with the list of faults, if there are any."""
        if faults:
            told = "\n  - ".join(faults)
            raise DataError(f"{self.path} cannot be used:\n  - {told}\nCorrect or remove them.")


def read_point_table(path: Path) -> PointTable:
    """Return the table in a file of points: CSV, Parquet, GeoPackage or another vector file.

    If a vector file has no columns of coordinates, its points become the columns ``longitude`` and
    ``latitude``. Raises RequestError if there is no such file or the format is unknown, and
    DataError if the file is damaged, empty or too large.
    """
    ending = path.suffix.lower()
    if not path.is_file() or ending not in TEXTS + TABLES + VECTORS:
        found = f"{path}{'' if path.is_file() else ', which is not a file'}"
        raise RequestError(
            f"expected a file of points that ends in {', '.join(TEXTS + TABLES + VECTORS)}, found "
            f"{found}."
        )
    if ending in TEXTS:
        frame, number = _read_csv(path)
    else:
        frame = _read_shapes(path)
        number = np.arange(1, len(frame) + 1)
    if not 0 < len(frame) <= MAX_POINTS:
        raise DataError(
            f"expected from 1 to {MAX_POINTS:,} points in {path}, found {len(frame):,}."
        )
    return PointTable(path, frame, number, "line" if ending in TEXTS else "row")


def coordinates(
    table: PointTable, columns: Mapping[str, str], faults: list[str]
) -> tuple[Floats, Floats]:
    """Return longitude and latitude of n points in degrees; add faults of missing or wrong ones.

    `columns` has the names of the columns ``longitude`` and ``latitude``. Points with the
    coordinates 0, 0 have no coordinates: devices without a position write them.
    """
    before = len(faults)
    longitude, latitude = (
        table.numbers(columns[role], faults) for role in ("longitude", "latitude")
    )
    if len(faults) > before:
        return longitude, latitude
    absent = np.isnan(longitude) | np.isnan(latitude) | ((longitude == 0) & (latitude == 0))
    if absent.any():
        faults.append(
            f"expected coordinates, found none (an empty cell, or 0, 0) in {table.where(absent)}."
        )
    beyond = ~absent & ((np.abs(latitude) > NORTHMOST) | (np.abs(longitude) > 180))
    if beyond.any():
        swapped = np.abs(longitude[beyond]).max() <= NORTHMOST
        hint = " Are latitude and longitude swapped?" if swapped else ""
        faults.append(
            f"expected latitudes from -{NORTHMOST:.2f} to {NORTHMOST:.2f} and longitudes from -180 "
            f"to 180 degrees, found {latitude[beyond][0]:g} and {longitude[beyond][0]:g} and the "
            f"like in {table.where(beyond)}.{hint}"
        )
    return longitude, latitude


def _read_csv(path: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the columns of a CSV file as text, and the line in which each row ends."""
    if path.stat().st_size > MAX_CSV_BYTES:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes; expected at most {MAX_CSV_BYTES:,} bytes. "
            f"Write it as Parquet."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            names, rows = _header(path, stream)
            values: list[list[str]] = []
            number: list[int] = []
            for row in rows:
                if not row:  # an empty line
                    continue
                if len(row) != len(names):
                    raise DataError(
                        f"expected {len(names)} values in line {rows.line_num} of {path}, as in "
                        f"its first line, found {len(row)}."
                    )
                values.append(row)
                number.append(rows.line_num)
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(f"{path} cannot be read as CSV in UTF-8 ({error}).") from error
    return pd.DataFrame(values, columns=names, dtype=object), np.array(number, np.int64)


def _header(path: Path, stream: TextIO) -> tuple[list[str], Any]:
    """Return the names in the first line, and a reader of the other lines.

    The sign between values is the comma, semicolon or tab that occurs most in the first line.
    """
    first = stream.readline()
    rows = csv.reader(chain([first], stream), delimiter=max(",;\t", key=first.count), strict=True)
    names = [name.strip() for name in next(rows, [])]
    if not names or len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"expected a different name for each column in the first line of {path}, found "
            f"{', '.join(names) or 'an empty line'}."
        )
    return names, rows


def _read_shapes(path: Path) -> pd.DataFrame:
    """Return the table of a Parquet or vector file, with coordinates from its points."""
    from geogp.geodata.places.polygons import (  # noqa: PLC0415 - slow, and not for CSV files
        DAMAGE,
        read_shapes,
        without_network,
    )

    try:
        frame = read_shapes(path, MAX_POINTS)
        if getattr(frame, "active_geometry_name", None) is None:
            return pd.DataFrame(frame)
        with without_network():
            return _flat(path, frame)
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as points ({' '.join(str(error).split())}). Write it again."
        ) from error


def _flat(path: Path, frame: Any) -> pd.DataFrame:
    """Return a GeoDataFrame of points as a table, with the coordinates as columns."""
    places = frame.geometry
    if places.crs is None or not (places.isna() | (places.geom_type == "Point")).all():
        raise DataError(f"{path} must contain points only, with a CRS.")
    places = places.to_crs(4326)
    table = pd.DataFrame(frame.drop(columns=frame.active_geometry_name)).reset_index(drop=True)
    if {"longitude", "latitude"} & set(table):
        return table
    x, y = places.x.to_numpy(np.float64), places.y.to_numpy(np.float64)
    return table.assign(longitude=x, latitude=y)

"""Layers of named polygons: counties, urban areas, or a user's own polygons."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from numpy.typing import ArrayLike, NDArray
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError, RequestError, check_name, named, shown
from geogp.files import sha256_of
from geogp.geodata.places.file_choice import file_and_rest
from geogp.geodata.places.polygons import NAMES, choose_polygons
from geogp.geodata.tiles.ookla import InputFile

ELSEWHERE = "elsewhere"  # label of points outside all polygons of a layer

# Names of the layers that come with the boundaries.
COUNTY, URBAN_AREA, TRACT = "county", "urban area", "tract"

# Columns that may contain Census numbers; the first that exists is used.
_NUMBERS = ("GEOID", "UACE20", "UACE10", "UA", "GEOID20", "GEOID10")
_KEYS = (*_NUMBERS, "GID", "id", "ID", "code", "CODE")  # columns of short identifiers

_BESIDE = (".dbf", ".prj", ".cpg", ".shx")  # other files of a shapefile, with labels and CRS


@dataclass(frozen=True)
class PolygonLayer:
    """Named polygons in degrees, with longitudes from -180 to 180.

    Coastlines differ between files, so a point outside all polygons belongs to the nearest polygon,
    if its distance is at most `snap_degrees`. `places` is the position of each label in the file,
    or empty if the labels have the order of the file. `column` is the name of the column of labels,
    if the user chose one of several columns. `keys` are short identifiers, such as Census numbers;
    they are empty if the file has none, or polygons with one label have different identifiers.
    `warnings` are about rows of the file that were left out.
    """

    name: str
    labels: tuple[str, ...]
    shapes: tuple[BaseGeometry, ...]
    snap_degrees: float = 0.0
    places: tuple[int, ...] = ()
    column: str = ""
    keys: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of_table(
        cls, name: str, table: gpd.GeoDataFrame, column: str | None = None
    ) -> "PolygonLayer":
        """Return a layer from a table in degrees; polygons with the same label are united.

        `column` contains the labels. By default, `column` is the first of `NAMES` in the table,
        and the Census number is added to labels that occur twice. Raises RequestError if there is
        no such column. Raises DataError if a polygon has no label, or a label has control
        characters.
        """
        chosen = column or next((usual for usual in NAMES if usual in table), "NAME")
        labels = column_of(table, chosen, name)
        unnamed = int((table[chosen].isna() | (labels.str.strip() == "")).sum())
        if unnamed:
            raise DataError(
                f"expected a name in column {chosen} for each polygon of {name}, found none for "
                f"{unnamed} of {len(table)}. Name or remove these polygons, or choose another "
                f"column, as FILE:COLUMN."
            )
        for label in labels:
            check_name(f"a name of a polygon of {name}", label)
        number = next((usual for usual in _NUMBERS if usual in table), None)
        if column is None and number is not None:
            twice = labels.duplicated(keep=False)
            labels = labels.where(~twice, labels + " (" + table[number].astype(str) + ")")
        merged = table.geometry.groupby(labels.to_numpy()).agg(lambda group: group.union_all())
        places = merged.index.get_indexer(labels.unique()).argsort()
        shapes = tuple(merged)
        names, keys = tuple(map(str, merged.index)), _keys_of(table, labels)
        return cls(name, names, shapes, places=tuple(places.tolist()), keys=keys)

    def __len__(self) -> int:
        return len(self.labels)

    def index(self, longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.int64]:
        """Return the index of the polygon that contains each point, (n,), or -1 if there is none.

        A point in several polygons, or on a common edge, belongs to the polygon that comes first in
        the file (see `places`). Longitudes may lie beyond 180 degrees.
        """
        points = _points(longitude, latitude)
        point, polygon = self._tree.query(points, predicate="intersects")
        place = np.asarray(self.places or range(len(self)))
        first = np.full(points.shape, len(self))
        np.minimum.at(first, point, place[polygon])
        found = np.append(place.argsort(), len(self))[first]
        lost = np.flatnonzero(found == len(self))
        if self.snap_degrees and len(lost):
            point, polygon = self._tree.query_nearest(
                points[lost], max_distance=self.snap_degrees, all_matches=False
            )
            found[lost[point]] = polygon
        return np.where(found == len(self), -1, found)

    def label(self, longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.str_]:
        """Return the label of the polygon that contains each point, (n,), or ``elsewhere``."""
        names = np.array([*self.labels, ELSEWHERE])
        return names[self.index(longitude, latitude)]

    def overlap(self, longitude: ArrayLike, latitude: ArrayLike, what: str) -> str | None:
        """Return a warning if points (`what`) lie inside more than one polygon, otherwise None."""
        points = _points(longitude, latitude)
        point, _ = self._tree.query(points, predicate="within")
        several = int((np.bincount(point) > 1).sum())
        if not several:
            return None
        return (
            f"polygons of {self.name} overlap: {several:,} of {len(points):,} {what} lie in more "
            "than one polygon, and are assigned to the first of these polygons in the file."
        )

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(self.shapes)


def _keys_of(table: gpd.GeoDataFrame, labels: pd.Series) -> tuple[str, ...]:
    """Return the identifier of each label, in the order of the labels; empty if there is none."""
    column = next((key for key in _KEYS if key in table), None)
    if column is None or table[column].isna().any():
        return ()
    pairs = pd.DataFrame({"label": labels, "key": table[column].astype(str)}).drop_duplicates()
    return () if pairs["label"].duplicated().any() else tuple(pairs.sort_values("label")["key"])


def _points(longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.object_]:
    """Return shapely points, (n,), with longitudes from -180 to 180."""
    wrapped = (np.asarray(longitude, np.float64) + 180) % 360 - 180
    return np.asarray(shapely.points(wrapped, np.asarray(latitude, np.float64)))


def read_layer(text: str, crs: str | None = None) -> PolygonLayer:
    """Return the layer of polygons in a file, named after the file and its chosen layer.

    `text` is ``FILE`` or ``FILE:COLUMN``, or ``FILE:LAYER`` or ``FILE:LAYER:COLUMN``; `crs` is as
    in `read_polygons`.
    """
    warnings: list[str] = []
    chosen = choose_polygons(text, "FILE or FILE:COLUMN", crs, warnings)
    path, table, column = chosen.path, chosen.table, chosen.rest
    check_name("a name of a file of polygons", chosen.name, RequestError)
    layer = replace(PolygonLayer.of_table(chosen.name, table, column), warnings=tuple(warnings))
    if ELSEWHERE in layer.labels:
        raise DataError(
            f"{path} has a polygon with the name {ELSEWHERE!r}, which geogp uses for places "
            f"outside all polygons. Rename the polygon."
        )
    others = set(table.columns) - {column, table.active_geometry_name}
    return replace(layer, column=column) if column is not None and others else layer


def read_layers(
    texts: Sequence[str], crs: str | None = None
) -> tuple[tuple[PolygonLayer, ...], tuple[InputFile, ...]]:
    """Return the layers of several files, and the records of these files.

    Texts and `crs` are as in `read_layer`. If a file is used with two columns, its layers have
    names such as ``districts_NAME``. Raises RequestError if two layers have the same name.
    """
    layers = [read_layer(text, crs) for text in texts]
    places = [file_and_rest(text) for text in texts]
    stems = [layer.name for layer in layers]
    known = []
    for layer in layers:
        twice = stems.count(layer.name) > 1 and layer.column
        known.append(replace(layer, name=f"{layer.name}_{layer.column}") if twice else layer)
    names = [layer.name for layer in known]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise RequestError(
            f"expected layers with different names, found {named(double)} more than once. "
            "A layer has the name of its file: rename one of the files, or give each --layer once."
        )
    # A file with two layers is listed once, with the number of polygons of the last layer.
    files = {
        path: files_read(path, len(layer), len(layer))
        for (path, _), layer in zip(places, layers, strict=True)
    }
    return tuple(known), tuple(file for paths in files.values() for file in paths)


def column_of(table: gpd.GeoDataFrame, column: str, where: Path | str) -> pd.Series:
    """Return a column as text, ``""`` in empty cells; raise RequestError without this column."""
    if column not in table or column == table.active_geometry_name:
        columns = named(name for name in table.columns if name != "geometry")
        raise RequestError(
            f"expected a column {shown(column)} in {where}, found the columns {columns}. Give one "
            "of these columns."
        )
    texts = table[column].astype(object)
    return pd.Series(texts.where(texts.notna(), "").astype(str))


def files_read(path: Path, rows: int, used: int) -> tuple[InputFile, ...]:
    """Return records of a file and, for a shapefile, of the files that belong to it."""
    files = [path]
    if path.suffix.lower() == ".shp":
        beside = (file for file in path.parent.iterdir() if file.stem == path.stem)
        files += sorted(file for file in beside if file.suffix.lower() in _BESIDE)
    return tuple(InputFile(file.name, sha256_of(file), rows, used) for file in files)

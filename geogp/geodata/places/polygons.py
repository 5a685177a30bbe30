"""Reading of polygons from files, in longitude and latitude."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import shapely
from numpy.typing import NDArray
from pyproj import CRS
from pyproj.exceptions import CRSError
from pyproj.network import (  # type: ignore[attr-defined]
    is_network_enabled,
    set_network_enabled,
)
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError, RequestError, named, quoted, shown
from geogp.geodata.places.archives import check_file
from geogp.geodata.places.file_choice import crs_for, file_and_rest
from geogp.geodata.places.region import cut_at_antimeridian, polygonal_parts
from geogp.geodata.places.vector_files import layers_of, read_vector
from geogp.geodata.tiles.parquet_files import read_table

MAX_POLYGONS = 1 << 20  # largest number in a file
MAX_VERTICES = 1 << 26  # largest number in a file; a vertex takes 16 bytes

NAMES = ("NAME", "NAME20", "NAME10", "NAMELSAD", "name", "Name")
"""Columns that may contain the names of polygons; the first that exists is used."""

_PARQUET = (".parquet", ".geoparquet")

_SAME_DEGREES = 1e-4  # about 10 m: coordinate systems this close mean the same places

Read = TypeVar("Read")

_PIECES = 100  # an edge as long as its polygon is cut into so many pieces for a reprojection

_SWITCH = threading.Lock()

DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,  # includes all errors of pyogrio and pyproj
    NameError,  # pyogrio raises it if the name of a CRS is not text
    OSError,
    pa.ArrowException,
    shapely.errors.ShapelyError,
)
"""Errors that the libraries raise for damaged files."""


class ChosenPolygons(NamedTuple):
    """The polygons that a user chose: file, layer (or None), polygons, and the rest of the text."""

    path: Path
    layer: str | None
    table: gpd.GeoDataFrame
    rest: str | None

    @property
    def name(self) -> str:
        """The name of the file, and of the layer if the user chose one."""
        return self.path.stem if self.layer is None else f"{self.path.stem}_{self.layer}"


def choose_polygons(
    text: str, form: str, crs: str | None, warnings: list[str] | None
) -> ChosenPolygons:
    """Return the polygons of ``FILE``, ``FILE:LAYER``, ``FILE:REST`` or ``FILE:LAYER:REST``.

    Only a file with several layers needs the layer. In a file with one layer, a column comes before
    a layer of the same name. `form` says in messages what the text may be; `crs` and `warnings` are
    as in `read_polygons`. Raises RequestError if there is no file, and the errors of
    `read_polygons`.
    """
    path, rest = file_and_rest(text)
    if not path.is_file():
        raise RequestError(f"no file {path}: expected a file of polygons, as {form}.")
    check_file(path)
    names = [] if path.suffix.lower() in _PARQUET else _undamaged(path, partial(layers_of, path))
    fits = [name for name in names if f"{rest or ''}:".startswith(f"{name}:")]
    layer = max(fits, key=len) if fits and len(names) > 1 else None
    if layer is None and len(names) > 1:
        raise RequestError(
            f"expected one of the {len(names)} layers of {path} after its name, found "
            f"{'none' if rest is None else quoted(rest)}. The layers are {named(names)}. Give "
            f"FILE:LAYER, such as {path.name}:{shown(names[0])}, and a column after it, as "
            "FILE:LAYER:COLUMN."
        )
    table = read_polygons(path, layer, crs, warnings)
    if fits and (layer is not None or str(rest).partition("=")[0] not in table):
        rest = str(rest)[len(max(fits, key=len)) + 1 :] or None
    return ChosenPolygons(path, layer, table, rest)


def read_polygons(
    path: Path,
    layer: str | None = None,
    crs: str | None = None,
    warnings: list[str] | None = None,
) -> gpd.GeoDataFrame:
    """Return the polygons of a file in WGS 84, with longitudes from -180 to 180.

    The formats are GeoParquet and the formats of `read_vector`; `layer` is as in `read_vector`, and
    `crs` as in `_with_crs`. Polygons are cut at the antimeridian; see `_within_one_turn`. Invalid
    polygons, such as a ring that crosses itself, are made valid. Rows without a shape are left out;
    with `warnings`, points and lines are too, and a warning is added. Raises DataError if the file
    is damaged, has several layers or no CRS, or if more rows have other shapes than polygons.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file. Write all polygons to one file.")
    table = _undamaged(path, lambda: _checked(path, read_shapes(path, MAX_POLYGONS, layer, crs)))
    try:
        table = _valid(_only_polygons(path, table, warnings))
        with without_network():
            degrees = table.to_crs(4326)
        turned = _within_one_turn(table.geometry, degrees.geometry)
        return _valid(degrees.set_geometry(turned)).reset_index(drop=True)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except DAMAGE as error:
        raise DataError(
            f"{path} has a CRS that cannot be converted to longitude and latitude ({_line(error)})."
        ) from error


def _undamaged(path: Path, read: Callable[[], Read]) -> Read:
    """Return what a function reads; turn the errors of damaged files into DataError."""
    try:
        return read()
    except (DataError, RequestError):
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as boundaries ({_line(error)}). Expected a complete file of "
            "polygons: GeoParquet, GeoPackage, GeoJSON, FlatGeobuf, KML or zipped shapefile; "
            "download or write this file again."
        ) from error


def read_shapes(path: Path, most: int, layer: str | None = None, crs: str | None = None) -> Any:
    """Return the shapes in a Parquet or vector file, at most `most`, with their columns.

    The rows of a Parquet file without shapes are an Arrow table.
    `layer` is as in `read_vector`, and `crs` as in `_with_crs`. Raises DataError as `check_file`,
    `read_table` and `read_vector` do, the errors of `_with_crs`, and errors in `DAMAGE`.
    """
    check_file(path)
    if path.suffix.lower() not in _PARQUET:
        return _with_crs(path, read_vector(path, most, layer), crs)
    table = read_table(path, most)
    if b"geo" not in (table.schema.metadata or {}):
        return table
    return _with_crs(path, geo_table(table), crs)


def _with_crs(path: Path, table: gpd.GeoDataFrame, crs: str | None) -> gpd.GeoDataFrame:
    """Return a table with the CRS that the user gave with ``--crs``, if it has none of its own.

    `crs` is as in `crs_for`. Raises RequestError if geogp does not know this CRS, or the table has
    another CRS, so that its coordinates would mean other places.
    """
    code = crs_for(path, crs)
    if code is None or table.active_geometry_name is None:
        return table
    try:
        given = CRS.from_user_input(code)
    except CRSError as error:
        raise RequestError(
            f"expected --crs with a known code, such as EPSG:4326, found {code}."
        ) from error
    if table.crs is None:
        return table.set_crs(given)
    corners = gpd.GeoSeries([shapely.box(*table.total_bounds)])
    with without_network():
        own, other = (corners.set_crs(one).to_crs(4326).total_bounds for one in (table.crs, given))
    if not np.allclose(own, other, rtol=0, atol=_SAME_DEGREES):
        raise RequestError(
            f"--crs {code} contradicts {path}, which has the CRS {shown(table.crs.name)}. --crs is "
            f"for files without a CRS: leave it out, or name one file, as --crs FILE={code}."
        )
    return table


def no_crs(path: Path, table: gpd.GeoDataFrame) -> DataError:
    """Return the error for shapes without a CRS, with a place of the file and the cure."""
    place = shapely.get_coordinates(table.geometry.to_numpy())[:1]
    west, south, east, north = table.total_bounds
    degrees = max(abs(west), abs(east)) <= 180 and max(abs(south), abs(north)) <= 90
    lacks = " (a shapefile has it in a .prj file)" if path.suffix.lower() == ".shp" else ""
    hint = (
        "These coordinates fit longitude and latitude: then --crs EPSG:4326."
        if degrees
        else "These coordinates are not longitude and latitude; the source of the file names its "
        "CRS, such as --crs EPSG:32161 for metres in Puerto Rico."
    )
    return DataError(
        f"{path} has no CRS{lacks}, so the meaning of its coordinates is unknown, such as "
        f"{', '.join(f'{degree:.10g}' for degree in place.ravel())}. Give the CRS with "
        f"--crs. {hint}"
    )


def geo_table(found: pa.Table) -> gpd.GeoDataFrame:
    """Convert a GeoParquet table to a GeoDataFrame, through an Arrow file in memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)
    return gpd.read_feather(pa.BufferReader(sink.getvalue()))


@contextmanager
def without_network() -> Iterator[None]:
    """Turn off PROJ's network access in a ``with`` block; a CRS can refer to a grid on a server.

    The setting applies to the whole process, so a lock lets only one thread at a time change it.
    """
    with _SWITCH:
        before = is_network_enabled()
        set_network_enabled(active=False)
        try:
            yield
        finally:
            set_network_enabled(active=before)


def _checked(path: Path, table: Any) -> gpd.GeoDataFrame:
    """Return a table whose index is the words for each row; DataError without shapes or CRS."""
    if not isinstance(table, gpd.GeoDataFrame) or table.active_geometry_name is None:
        raise DataError(f"{path} contains no geometry. Expected polygons.")
    if table.crs is None:
        raise no_crs(path, table)
    vertices = int(shapely.get_num_coordinates(table.geometry.to_numpy()).sum())
    if vertices > MAX_VERTICES:
        raise DataError(
            f"{path} contains polygons with {vertices:,} vertices; expected at most "
            f"{MAX_VERTICES:,}. Simplify the polygons."
        )
    if table.active_geometry_name != "geometry":
        table = table.rename_geometry("geometry")
    column = next((name for name in NAMES if name in table), None)
    names = [None] * len(table) if column is None else table[column].to_list()
    rows = [
        f"row {number}{f' ({shown(name)})' if isinstance(name, str) else ''}"
        for number, name in enumerate(names, 1)
    ]
    return table.set_axis(pd.Index(rows, dtype=object), axis=0)


def _only_polygons(
    path: Path, table: gpd.GeoDataFrame, warnings: list[str] | None
) -> gpd.GeoDataFrame:
    """Return the rows with polygons, also with those in collections; warn of all other shapes."""
    shapes, kinds = table.geometry.to_numpy().copy(), table.geom_type.to_numpy()
    partly = np.zeros(len(table), np.bool_)
    for k in np.flatnonzero(kinds == "GeometryCollection"):
        if parts := polygonal_parts(shapes[k]):
            partly[k] = _kinds(shapes[k]) != {"Polygon"}
            shapes[k] = parts[0] if len(parts) == 1 else MultiPolygon(parts)
    table = table.set_geometry(gpd.GeoSeries(shapes, index=table.index, crs=table.crs))
    empty = (table.geometry.is_empty | table.geometry.isna()).to_numpy()
    used = ~empty & table.geom_type.isin(("Polygon", "MultiPolygon")).to_numpy()
    others = ~empty & ~used
    listed = named(
        f"{row}: {kind}" for row, kind in zip(table.index[others], kinds[others], strict=True)
    )
    if others.sum() > used.sum() or (warnings is None and others.any()):
        raise DataError(
            f"expected polygons only, found {int(others.sum()):,} of {len(table):,} rows with "
            f"other shapes ({listed}). Remove these rows, or write the polygons to a file."
        )
    if not used.any():
        raise DataError(f"expected polygons, found none in {len(table):,} rows.")
    for rows, what, consequence in (
        (others, "have no polygon, and are left out", listed),
        (partly, "also have points or lines, which are left out", named(table.index[partly])),
        (empty, "have no shape, and are left out", named(table.index[empty])),
    ):
        if warnings is not None and rows.any():
            warnings.append(
                f"{path}: {int(rows.sum()):,} of {len(table):,} rows {what}: {consequence}."
            )
    return table[used]


def _kinds(shape: BaseGeometry) -> set[str]:
    """Return the types of the single shapes in a collection, also in collections inside it."""
    parts = getattr(shape, "geoms", None)
    return {shape.geom_type} if parts is None else set().union(*map(_kinds, parts))


def _valid(table: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Return a table of polygons after a repair of invalid polygons."""
    wrong = np.flatnonzero(~table.geometry.is_valid)
    if not len(wrong):
        return table
    shapes = table.geometry.to_numpy().copy()
    parts = {k: polygonal_parts(shapes[k]) for k in wrong}
    lost = [str(table.index[k]) for k, polygons in parts.items() if not polygons]
    if lost:
        raise DataError(
            f"found no valid area in {len(lost)} of {len(table)} polygons: {named(lost)}. Repair "
            "or remove these polygons."
        )
    for k, polygons in parts.items():
        shapes[k] = polygons[0] if len(polygons) == 1 else MultiPolygon(polygons)
    return table.set_geometry(gpd.GeoSeries(shapes, index=table.index, crs=table.crs))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _within_one_turn(source: gpd.GeoSeries, degrees: gpd.GeoSeries) -> gpd.GeoSeries:
    """Return polygons in degrees with longitudes from -180 to 180, cut at the antimeridian.

    `degrees` is `source` with each vertex reprojected. In `degrees`, a polygon across the
    antimeridian is wider than 180 degrees, because its longitudes jump. A polygon wider than 180
    degrees is reprojected again, with its edges in small pieces, and its longitudes are made
    continuous. Raises DataError if a polygon encloses a pole, or lies beyond latitude 90 or
    longitude 360.
    """
    before, row = shapely.get_parts(source.to_numpy(), return_index=True)
    after = shapely.get_parts(degrees.to_numpy())
    bounds = shapely.bounds(after)
    good = (np.abs(bounds[:, [0, 2]]) <= 360) & (np.abs(bounds[:, [1, 3]]) <= 90)
    wrong = np.flatnonzero(~good.all(1))
    if len(wrong):
        raise DataError(
            f"expected polygons in degrees, found {bounds[wrong[0]].tolist()} in "
            f"{degrees.index[row[wrong[0]]]}. Are the coordinates in metres, or in another CRS?"
        )
    torn = np.ptp(bounds[:, ::2], axis=1) > 180
    if degrees.crs is not None and source.crs.is_geographic:
        torn &= np.ptp(shapely.bounds(before)[:, ::2], axis=1) <= 180
    beyond = (bounds[:, 0] < -180) | (bounds[:, 2] > 180)
    moved = np.unique(row[torn | beyond])
    if not len(moved):
        return degrees
    shapes = degrees.to_numpy().copy()
    for k in moved:
        polygons: list[Polygon] = []
        for piece in np.flatnonzero(row == k):
            whole = after[piece]
            if torn[piece]:
                whole = _unwrapped(before[piece], source, degrees.index[k])
            polygons += cut_at_antimeridian(whole)
        shapes[k] = polygons[0] if len(polygons) == 1 else MultiPolygon(polygons)
    return gpd.GeoSeries(shapes, index=degrees.index, crs=degrees.crs)


def _unwrapped(part: Polygon, source: gpd.GeoSeries, row: object) -> Polygon:
    """Return a polygon in degrees, with continuous longitudes along its rings."""
    west, south, east, north = part.bounds
    fine = shapely.segmentize(part, max(east - west, north - south) / _PIECES)
    fine = gpd.GeoSeries([fine], crs=source.crs).to_crs(4326).iloc[0]
    shell = _running(fine.exterior, row)
    holes = [_running(ring, row) for ring in fine.interiors]
    middle = _middle(shell)
    for hole in holes:
        hole[:, 0] += 360 * round((middle - _middle(hole)) / 360)
    whole = Polygon(shell, holes)
    # Wrongly unwrapped rings cross themselves, and lose area when they are made valid.
    area = sum(piece.area for piece in polygonal_parts(whole))
    if not area or abs(area - whole.area) > 1e-6 * whole.area:
        raise _refusal(row, "cannot be split into valid polygons at the antimeridian")
    return whole


def _running(ring: shapely.LinearRing, row: object) -> NDArray[np.float64]:
    """Return the vertices of a ring, with multiples of 360 degrees added to avoid jumps."""
    points: NDArray[np.float64] = shapely.get_coordinates(ring)
    points[:, 0] = np.unwrap(points[:, 0], period=360)
    if abs(points[-1, 0] - points[0, 0]) > 180:
        raise _refusal(row, "encloses a pole")
    return points


def _middle(points: NDArray[np.float64]) -> float:
    return float(points[:, 0].min() + points[:, 0].max()) / 2


def _refusal(row: object, what: str) -> DataError:
    return DataError(
        f"the polygon in {row} {what}. Reproject the polygons to EPSG:4326, cut them at 180 "
        "degrees, and give the new file."
    )

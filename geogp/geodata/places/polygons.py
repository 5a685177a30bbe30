"""Reading of polygons from files, in longitude and latitude."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray
from pyproj.network import (  # type: ignore[attr-defined]
    is_network_enabled,
    set_network_enabled,
)
from shapely.geometry import MultiPolygon, Polygon

from geogp.errors import DataError
from geogp.geodata.places.archives import check_file
from geogp.geodata.places.region import cut_at_antimeridian, polygonal_parts
from geogp.geodata.places.vector_files import read_vector
from geogp.geodata.tiles.parquet_files import read_table

MAX_POLYGONS = 1 << 20  # largest number in a file
MAX_VERTICES = 1 << 26  # largest number in a file; a vertex takes 16 bytes

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


def read_polygons(path: Path) -> gpd.GeoDataFrame:
    """Return the polygons of a file in WGS 84, with longitudes from -180 to 180.

    The formats are GeoParquet and the formats of `read_vector`. Polygons are cut at the
    antimeridian; see `_within_one_turn`. Invalid polygons, such as a ring that crosses itself, are
    made valid. Raises DataError if the file is damaged, has several layers or no CRS, or contains a
    shape that is not a polygon with an area.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file. Write all polygons to one file.")
    try:
        table = read_shapes(path, MAX_POLYGONS)
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as boundaries ({_line(error)}). Expected a complete file of "
            "polygons: GeoParquet, GeoPackage, GeoJSON, FlatGeobuf or zipped shapefile; download "
            "or write this file again."
        ) from error
    table = _checked(path, table)
    if table.active_geometry_name != "geometry":
        table = table.rename_geometry("geometry")
    try:
        table = _valid(table)
        with without_network():
            degrees = table.to_crs(4326)
        turned = _within_one_turn(table.geometry, degrees.geometry)
        return _valid(degrees.set_geometry(turned))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except DAMAGE as error:
        raise DataError(
            f"{path} has a CRS that cannot be converted to longitude and latitude ({_line(error)})."
        ) from error


def read_shapes(path: Path, most: int) -> Any:
    """Return the rows of a Parquet or vector file, at most `most`, with their shapes, if any.

    Raises DataError as `check_file`, `read_table` and `read_vector` do, and errors in `DAMAGE`.
    """
    check_file(path)
    if path.suffix.lower() not in {".parquet", ".geoparquet"}:
        return read_vector(path, most)
    found = read_table(path, most)
    return geo_table(found) if b"geo" in (found.schema.metadata or {}) else found.to_pandas()


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
    """Return a table without empty shapes; raise DataError unless all other shapes are polygons."""
    if not isinstance(table, gpd.GeoDataFrame) or table.active_geometry_name is None:
        raise DataError(f"{path} contains no geometry. Expected polygons.")
    if table.crs is None:
        raise DataError(
            f"{path} has no CRS, so the meaning of its coordinates is unknown. Set the CRS; for "
            f"Census files use GeoDataFrame.set_crs(4269)."
        )
    table = table[~(table.geometry.is_empty | table.geometry.isna())]
    vertices = int(shapely.get_num_coordinates(table.geometry.to_numpy()).sum())
    if vertices > MAX_VERTICES:
        raise DataError(
            f"{path} contains polygons with {vertices:,} vertices; expected at most "
            f"{MAX_VERTICES:,}. Simplify the polygons."
        )
    if not len(table) or not table.geom_type.isin(("Polygon", "MultiPolygon")).all():
        raise DataError(f"{path} must contain polygons only.")
    return table


def _valid(table: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Return a table of polygons after a repair of invalid polygons."""
    wrong = np.flatnonzero(~table.geometry.is_valid)
    if not len(wrong):
        return table
    shapes = table.geometry.to_numpy().copy()
    parts = {k: polygonal_parts(shapes[k]) for k in wrong}
    lost = [str(table.index[k]) for k, held in parts.items() if not held]
    if lost:
        raise DataError(
            f"found no valid area in {len(lost)} of {len(table)} polygons, the first in row "
            f"{lost[0]}. Repair or remove these polygons."
        )
    for k, held in parts.items():
        shapes[k] = held[0] if len(held) == 1 else MultiPolygon(held)
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
            f"expected polygons in degrees, found {bounds[wrong[0]].tolist()} in row "
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
        held: list[Polygon] = []
        for part in np.flatnonzero(row == k):
            whole = after[part]
            if torn[part]:
                whole = _unwrapped(before[part], source, degrees.index[k])
            held += cut_at_antimeridian(whole)
        shapes[k] = held[0] if len(held) == 1 else MultiPolygon(held)
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
        f"the polygon in row {row} {what}. Reproject the polygons to EPSG:4326, cut them at 180 "
        "degrees, and give the new file."
    )

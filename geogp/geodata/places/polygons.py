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
from pyproj.network import (  # type: ignore[attr-defined]
    is_network_enabled,
    set_network_enabled,
)
from shapely.geometry import MultiPolygon

from geogp.errors import DataError
from geogp.geodata.places.antimeridian import within_one_turn
from geogp.geodata.places.archives import check_file
from geogp.geodata.places.region import polygonal_parts
from geogp.geodata.places.vector_files import read_vector
from geogp.geodata.tiles.parquet_files import read_table

MAX_POLYGONS = 1 << 20  # in a file
MAX_VERTICES = 1 << 26  # in a file, counted after reading; a vertex takes 16 bytes

_SWITCH = threading.Lock()

_DAMAGE = (
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


def read_polygons(path: Path, name: str) -> gpd.GeoDataFrame:
    """Return the polygons of a file in WGS 84, with longitudes from -180 to 180.

    The formats are GeoParquet and the formats of `read_vector`. Polygons across the antimeridian
    are cut there; see `within_one_turn`. Invalid polygons, such as a ring that crosses itself, are
    made valid. Raises DataError if the file is damaged, has several layers or no CRS, or contains
    anything but polygons with an area.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file. Write all polygons to one file.")
    try:
        check_file(path)
        if name.lower().endswith((".parquet", ".geoparquet")):
            table = _geo_table(read_table(path, MAX_POLYGONS))
        else:
            table = read_vector(path, MAX_POLYGONS)
    except DataError:
        raise
    except _DAMAGE as error:
        if "Missing geo metadata" in str(error):
            raise DataError(
                f"{path} contains no geometry. Expected GeoParquet with polygons."
            ) from error
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
        turned = within_one_turn(table.geometry, degrees.geometry)
        return _valid(degrees.set_geometry(turned))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except _DAMAGE as error:
        raise DataError(
            f"{path} has a CRS that cannot be converted to longitude and latitude ({_line(error)})."
        ) from error


def _geo_table(found: pa.Table) -> gpd.GeoDataFrame:
    """Return a GeoParquet table as a GeoDataFrame, which GeoPandas reads from an Arrow file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)
    return gpd.read_feather(pa.BufferReader(sink.getvalue()))


@contextmanager
def without_network() -> Iterator[None]:
    """Turn PROJ's network access off, because a file's CRS can refer to a grid on a server.

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
    """Return the polygons of a table; raise DataError if the table contains anything else."""
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
            f"{MAX_VERTICES:,}. "
            "Simplify the polygons."
        )
    if not len(table) or not table.geom_type.isin(("Polygon", "MultiPolygon")).all():
        raise DataError(f"{path} must contain polygons only.")
    return table


def _valid(table: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Return the table with invalid polygons made valid."""
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

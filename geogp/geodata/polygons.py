"""Polygons in files: any format of GeoPandas, brought to longitude and latitude."""

from pathlib import Path

import geopandas as gpd
import pyarrow as pa
import shapely

from geogp.errors import DataError

_DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,  # all of pyogrio's and pyproj's errors
    OSError,
    pa.ArrowException,
    shapely.errors.ShapelyError,
)
"""What the libraries raise, depending on which byte of a file is damaged."""


def read_polygons(path: Path, name: str) -> gpd.GeoDataFrame:
    """Read polygons and bring them to longitude and latitude on WGS 84."""
    try:
        table = gpd.read_parquet(path) if name.endswith(".parquet") else gpd.read_file(path)
    except _DAMAGE as error:
        if "Missing geo metadata" in str(error):
            raise DataError(
                f"{path} holds no geometry. Expected GeoParquet with polygons."
            ) from error
        raise DataError(
            f"{path} cannot be read as boundaries ({_line(error)}). Expected whole GeoParquet with "
            "polygons, or the Census Bureau's zip file; fetch it again."
        ) from error
    if not isinstance(table, gpd.GeoDataFrame) or table.active_geometry_name is None:
        raise DataError(f"{path} holds no geometry. Expected polygons.")
    if table.crs is None:
        raise DataError(
            f"{path} has no CRS, so its coordinates have no meaning. Set it, for Census files "
            "with GeoDataFrame.set_crs(4269)."
        )
    table = table[~(table.geometry.is_empty | table.geometry.isna())]
    if not len(table) or not table.geom_type.isin(("Polygon", "MultiPolygon")).all():
        raise DataError(f"{path} must hold polygons and nothing else.")
    if table.active_geometry_name != "geometry":
        table = table.rename_geometry("geometry")
    try:
        return table.to_crs(4326)
    except _DAMAGE as error:
        if "Missing geo metadata" in str(error):
            raise DataError(
                f"{path} holds no geometry. Expected GeoParquet with polygons."
            ) from error
        raise DataError(
            f"{path} has a CRS that cannot be turned into longitude and latitude ({_line(error)})."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

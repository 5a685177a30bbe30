"""Files of polygons that GDAL reads: of four formats, told before GDAL sees them, and no network.

GDAL takes a file for what its content looks like, and some of its formats ask servers. pyogrio
cannot name the drivers that may open a file, and no option of GDAL keeps all drivers from the
network. So a file goes to GDAL only when its name and its first bytes leave one driver, and none of
the four asks a server but the one of GeoJSON, for a CRS that is a link: that is refused here.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import geopandas as gpd
import pyogrio

from geogp.errors import DataError

ENDINGS = (".geojson", ".json", ".gpkg", ".fgb", ".shp", ".zip", ".shz")
"""Endings of what is read: GeoJSON, GeoPackage, FlatGeobuf, a shapefile, plain or zipped."""

_TEXTS = (".geojson", ".json")

_ARCHIVES = (".zip", ".shz")

_HEAD = 72

_TOP_TYPES = ("FeatureCollection", "Feature", "Polygon", "MultiPolygon", "GeometryCollection")

_CRS_TYPES = ("name", "epsg", "ogc")
"""Types of a CRS of GeoJSON that GDAL looks up in its tables; it fetches ``link`` and ``url``."""

_SPECIAL = "!;?"
"""Signs that pyogrio takes for parts of an address, not of a name."""


def read_vector(path: Path, most: int) -> gpd.GeoDataFrame:
    """Return the shapes of the only layer of a file, at most a number of them.

    Parameters
    ----------
    path
        A file with one of `ENDINGS`; see `geogp.geodata.untrusted.check_file` for what an archive
        must not be.
    most
        Shapes that are read.

    Raises
    ------
    DataError
        The file is of another format, its content is not what its name says, its CRS is an address,
        or it has no layer with shapes, or several.
    """
    source = _source(path)
    return pyogrio.read_dataframe(source, layer=_only_layer(path, source), max_features=most)


def _source(path: Path) -> str:
    """Return what GDAL is given: a name that only one driver can open."""
    whole, ending = str(path.absolute()), path.suffix.lower()
    if ending in _TEXTS:
        _check_geojson(path)
        return f"GeoJSON:{whole}"
    if ending in _ARCHIVES:
        return f"/vsizip/{{{whole}}}/{_shapefile_in(path)}"
    if ending not in ENDINGS:
        raise DataError(
            f"{path} is of a format that is not read: expected a file that ends in .parquet, "
            f"{', '.join(ENDINGS)}, found {path.suffix or 'no ending'}. Write its polygons to one."
        )
    if whole.startswith("/vsi") or set(_SPECIAL) & set(whole):
        raise DataError(f"{path} has a name that GDAL takes for an address. Rename it.")
    with path.open("rb") as stream:
        _check_head(path, ending, stream.read(_HEAD))
    return whole


def _check_head(path: Path, ending: str, head: bytes) -> None:
    """Refuse a file that is called what it is not: GDAL would take it for what it looks like.

    Each beginning holds a byte 0, where GDAL's search for words of other formats ends.
    """
    fits = {
        ".shp": head[:4] == b"\x00\x00\x27\x0a",
        ".gpkg": head[:16] == b"SQLite format 3\x00" and head[68:70] == b"GP",
        # A size of four bytes, at most 10 MB, follows the eight of the name.
        ".fgb": head[:7] == b"fgb\x03fgb" and head[11:12] == b"\x00",
    }
    if not fits[ending]:
        raise DataError(
            f"{path} ends in {ending}, but does not begin as such a file does. Fetch or make it "
            "again."
        )


def _shapefile_in(path: Path) -> str:
    """Return the name of the only shapefile of an archive."""
    with zipfile.ZipFile(path) as archive:
        names = [
            name
            for name in archive.namelist()
            if name.lower().endswith(".shp") and not name.startswith("__MACOSX/")
        ]
        if len(names) != 1:
            raise DataError(
                f"expected one shapefile in {path}, found {len(names)}: "
                f"{', '.join(names or archive.namelist())[:200]}. Write the one that is meant to a "
                "file of its own."
            )
        with archive.open(names[0]) as stream:
            _check_head(path, ".shp", stream.read(_HEAD))
    return names[0]


def _check_geojson(path: Path) -> None:
    """Refuse text that is not GeoJSON, or that names an address as its CRS.

    All of it is parsed: a CRS may stand anywhere, in a single geometry too, and its key may be
    written with escapes. The coordinates are let go at once.
    """

    def types(pairs: list[tuple[str, Any]]) -> tuple[Any, ...]:
        """Return the types of an object, after a look at its CRS."""
        for key, value in pairs:
            if _read_as(key) == "crs" and isinstance(value, tuple):
                _check_crs(path, value)
        return tuple(value for key, value in pairs if _read_as(key) == "type")

    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=types)
    except DataError:
        raise
    except RecursionError as error:
        raise DataError(f"{path} cannot be read as GeoJSON: it is nested too deeply.") from error
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as GeoJSON ({error}). Fetch or make it again."
        ) from error
    if not isinstance(found, tuple) or len(found) != 1 or found[0] not in _TOP_TYPES:
        told = repr(found[0])[:40] if isinstance(found, tuple) and found else "none"
        raise DataError(
            f"expected GeoJSON in {path}, of type {', '.join(_TOP_TYPES)}, found type {told}."
        )


def _check_crs(path: Path, types: tuple[Any, ...]) -> None:
    if not types or {str(one).lower() for one in types} - set(_CRS_TYPES):
        raise DataError(
            f"expected a CRS of type 'name' in {path}, found one of type "
            f"{', '.join(map(repr, types))[:40] or 'none'}; a CRS at an address is not fetched. "
            'Write it as {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::4269"}}, '
            "or write the file in longitude and latitude, without a CRS."
        )


def _read_as(key: str) -> str:
    """Return a key as GDAL reads it: in any case, and up to a character 0."""
    return key.partition("\0")[0].lower()


def _only_layer(path: Path, source: str) -> str:
    """Return the name of the layer of a file with shapes; there must be one."""
    # A table without shapes has no type of geometry.
    names = [str(name) for name, kind in pyogrio.list_layers(source) if kind is not None]
    if not names:
        raise DataError(f"{path} holds no geometry. Expected polygons.")
    if len(names) > 1:
        raise DataError(
            f"expected one layer in {path}, found {len(names)}: {', '.join(names)}. Write the one "
            "that is meant to a file of its own."
        )
    return names[0]

"""Reading of vector files in four formats, without network access.

GDAL chooses a driver by the content of a file, and some drivers send requests to servers. The
package pyogrio cannot restrict the drivers, and no option of GDAL keeps all drivers from the
network. So this module lets GDAL open a file only if the file's name and first bytes fit one of
four drivers. Only the GeoJSON driver of these four can send a request, to download a CRS from a web
address; this module refuses such a CRS.
"""

import json
import sqlite3
import zipfile
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import geopandas as gpd
import pyogrio

from geogp.errors import DataError

_FORMATS = "GeoParquet, GeoJSON, GeoPackage, FlatGeobuf and shapefiles, plain or zipped"

_TEXTS, _ARCHIVES = (".geojson", ".json"), (".zip", ".shz")
ENDINGS = (*_TEXTS, ".gpkg", ".fgb", ".shp", *_ARCHIVES)
_NOT_IN_ARCHIVES = (*_TEXTS, ".gpkg", ".fgb", ".parquet", ".geoparquet")

_HEAD = 72

_TOP_TYPES = ("FeatureCollection", "Feature", "Polygon", "MultiPolygon", "GeometryCollection")

_CRS_TYPES = ("name", "epsg", "ogc")
"""Types of a GeoJSON CRS for which GDAL needs no download."""

_SPECIAL = "!;?"  # characters in a path that pyogrio reads as parts of an address


def read_vector(path: Path, most: int) -> gpd.GeoDataFrame:
    """Return the shapes in a file, which must have exactly one layer.

    The file must have passed `check_file`. Raises DataError if the format is unknown, the content
    does not fit the file's name, the CRS is a web address, or there are several layers or more than
    `most` shapes.
    """
    source = _source(path)
    # Read one more than the limit, because counting first would parse the file twice.
    found = pyogrio.read_dataframe(source, layer=_only_layer(path, source), max_features=most + 1)
    if len(found) > most:
        raise DataError(
            f"{path} contains {len(found):,} polygons or more; expected at most {most:,}. Keep "
            f"only the polygons of the region."
        )
    return found


def _source(path: Path) -> str:
    """Return the file's name for GDAL, in a form that only one driver can open."""
    whole, ending = str(path.absolute()), path.suffix.lower()
    if ending in _TEXTS:
        _check_geojson(path)
        return f"GeoJSON:{whole}"
    if ending in _ARCHIVES:
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in whole))
        if min(depths) < 0 or depths[-1] != 0:  # in /vsizip/{...}, GDAL pairs the braces
            raise DataError(f"{path} has an unpaired brace in its path. Rename the file or folder.")
        return f"/vsizip/{{{whole}}}/{_shapefile_in(path)}"
    if ending not in ENDINGS:
        raise DataError(
            f"{path} has a format that geogp does not read: expected a name that ends in .parquet, "
            f"{', '.join(ENDINGS)}, found {path.suffix or 'no ending'}. Write the polygons to a "
            f"file in one of these formats: {_FORMATS}."
        )
    if whole.startswith("/vsi") or set(_SPECIAL) & set(whole):
        raise DataError(f"{path} has a name that GDAL would read as an address. Rename the file.")
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    _check_head(path, ending, head)
    if ending == ".gpkg" and head[68:70] != b"GP":
        _check_tables(path)
    return whole


def _check_tables(path: Path) -> None:
    """Raise DataError if an SQLite database lacks ``gpkg_contents``, a table of each GeoPackage.

    Old programs wrote GeoPackages without the mark ``GP`` in the first bytes.
    """
    # Immutable: SQLite sets no locks and writes no file beside the database.
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            found = base.execute(
                "SELECT 1 FROM sqlite_master WHERE name='gpkg_contents'"
            ).fetchone()
    except sqlite3.Error as error:
        raise DataError(
            f"{path} cannot be read as a GeoPackage ({error}). Download or write this file again."
        ) from error
    if found is None:
        raise DataError(
            f"{path} is an SQLite database without the table gpkg_contents, so it is not a "
            f"GeoPackage. Write its polygons to a file in one of these formats: {_FORMATS}."
        )
    # GDAL reads a file without the mark, but warns; this turns the warning off.
    pyogrio.set_gdal_config_options({"GPKG_WARN_UNRECOGNIZED_APPLICATION_ID": False})


def _check_head(path: Path, ending: str, head: bytes) -> None:
    """Raise DataError if the first bytes of a file do not fit its extension.

    GDAL chooses a driver by the first bytes of a file. In each of the allowed formats, these bytes
    contain a zero byte, where GDAL stops searching for words of other formats. GDAL uses the
    GeoPackage driver for all GeoPackages, with or without the mark ``GP``.
    """
    fits = {
        ".shp": head[:4] == b"\x00\x00\x27\x0a",
        ".gpkg": head[:16] == b"SQLite format 3\x00"
        and (head[68:70] == b"GP" or head[68:72] == bytes(4)),
        # Eight bytes name the format; the next four bytes are a size, at most 10 MB.
        ".fgb": head[:7] == b"fgb\x03fgb" and head[11:12] == b"\x00",
    }
    if not fits[ending]:
        raise DataError(
            f"{path} ends in {ending}, but does not begin like a file of this format. Download or "
            "write this file again."
        )


def _shapefile_in(path: Path) -> str:
    """Return the name of the only shapefile in a zip archive."""
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
        names = [name for name in members if name.lower().endswith(".shp")]
        others = [name for name in members if name.lower().endswith(_NOT_IN_ARCHIVES)]
        if others and not names:
            raise DataError(
                f"expected a shapefile in {path}, found {', '.join(others)[:200]}. Unpack "
                f"the archive, and give the file itself. geogp reads {_FORMATS}."
            )
        if len(names) != 1:
            raise DataError(
                f"expected one shapefile in {path}, found {len(names)}: "
                f"{', '.join(names or members)[:200]}. Write the shapefile that you need to a "
                f"separate file. geogp reads {_FORMATS}."
            )
        if "\\" in names[0]:
            raise DataError(
                f"{path} contains {names[0]}, a name that GDAL would change. Rename this file, or "
                f"unpack the archive and give the file itself."
            )
        with archive.open(names[0]) as stream:
            _check_head(path, ".shp", stream.read(_HEAD))
    return names[0]


class _Seen(NamedTuple):
    """The types of a GeoJSON object, and of its first CRS that GDAL might download."""

    types: tuple[Any, ...]
    wrong: tuple[Any, ...] | None


def _check_geojson(path: Path) -> None:
    """Raise DataError if a file is not GeoJSON, or has a CRS that is a web address.

    The whole text is parsed, because any object may have a CRS, and the key ``crs`` may have
    escapes.
    """
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_seen)
    except RecursionError as error:
        raise DataError(f"{path} cannot be read as GeoJSON: it is nested too deeply.") from error
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as GeoJSON ({error}). Download or write this file again."
        ) from error
    types, wrong = found if isinstance(found, _Seen) else _Seen((), None)
    if wrong is not None:
        raise DataError(
            f"expected a CRS of type 'name' in {path}, found one of type "
            f"{', '.join(map(repr, wrong))[:40] or 'none'}; geogp does not download a CRS. "
            'Write the CRS as {"type": "name", "properties": '
            '{"name": "urn:ogc:def:crs:EPSG::4269"}}, '
            "or write the file in longitude and latitude, without a CRS."
        )
    if len(types) != 1 or types[0] not in _TOP_TYPES:
        type_name = repr(types[0])[:40] if types else "none"
        raise DataError(
            f"expected GeoJSON in {path}, of type {', '.join(_TOP_TYPES)}, found type {type_name}."
        )


def _seen(pairs: list[tuple[str, Any]]) -> _Seen:
    """Return the type of a GeoJSON object, and of the first CRS in it that GDAL might download.

    GDAL ignores the case of a key, and ignores all text after a null character. GDAL does not
    search ``properties`` for a CRS, because a column may have the name ``crs``. GDAL reads a CRS as
    an address if the CRS has no type, or a type that is not in `_CRS_TYPES`.
    """
    wrong: list[tuple[Any, ...]] = []
    named = [(key.partition("\0")[0].lower(), key, value) for key, value in pairs]
    for name, key, value in named:
        parts = value if isinstance(value, list) else [value]
        for part in (one for one in parts if isinstance(one, _Seen)):
            known = {str(one).lower() for one in part.types} <= set(_CRS_TYPES)
            if name == "crs" and not isinstance(value, list) and not (part.types and known):
                wrong.append(part.types)
            elif key != "properties" and part.wrong is not None:
                wrong.append(part.wrong)
    types = tuple(value for name, _, value in named if name == "type")
    return _Seen(types, wrong[0] if wrong else None)


def _only_layer(path: Path, source: str) -> str:
    """Return the name of the layer with shapes; raise DataError unless there is exactly one."""
    # The geometry type of a table without shapes is None.
    names = [str(name) for name, kind in pyogrio.list_layers(source) if kind is not None]
    if not names:
        raise DataError(f"{path} contains no geometry. Expected polygons.")
    if len(names) > 1:
        raise DataError(
            f"expected one layer in {path}, found {len(names)}: {', '.join(names)}. Write the "
            f"layer that you need to a separate file."
        )
    return names[0]

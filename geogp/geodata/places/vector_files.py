"""Reading of vector files in five formats, without network access.

GDAL chooses a driver by the content of a file, and some drivers send requests to servers. The
package pyogrio cannot restrict the drivers, and no option of GDAL keeps all drivers from the
network. So this module lets GDAL open a file only if the file's name and first bytes fit one of
four drivers. Only the GeoJSON driver of these four can send a request, to download a CRS from a web
address; this module refuses such a CRS. The first bytes of KML do not exclude other drivers, and
GDAL would follow the links in KML. So this module reads the placemarks of KML without GDAL.
"""

import json
import re
import sqlite3
import zipfile
from contextlib import closing
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree as ET

import geopandas as gpd
import pyogrio
import shapely
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError, named, quoted, shown
from geogp.geodata.places.archives import ARCHIVES, MAX_BYTES

_FORMATS = "GeoParquet, GeoJSON, GeoPackage, FlatGeobuf, KML and shapefiles, plain or zipped"

_TEXTS = (".geojson", ".json")
ENDINGS = (*_TEXTS, ".gpkg", ".fgb", ".kml", ".shp", *ARCHIVES)

_IN_ARCHIVES = ((".shp",), (".geojson", ".gpkg", ".fgb", ".kml"), (".json",))
"""Endings of files in archives; the first group with a file in the archive is read."""

_HEAD = 72

_TOP_TYPES = ("FeatureCollection", "Feature", "Polygon", "MultiPolygon", "GeometryCollection")

_CRS_TYPES = ("name", "epsg", "ogc")
"""Types of a GeoJSON CRS for which GDAL needs no download."""

_DEEPEST = 100  # elements of KML inside each other

_KML_TEXTS = ("name", "description")  # elements of a placemark that are columns

_SPECIAL = "!;?"  # characters in a path that pyogrio reads as parts of an address


def read_vector(path: Path, most: int, layer: str | None = None) -> gpd.GeoDataFrame:
    """Return the shapes in a layer of a file; a file with several layers needs the name of one.

    The file must have passed `check_file`. Raises DataError if the format is unknown, the content
    does not fit the file's name, the CRS is a web address, or there are several layers, no such
    layer or more than `most` shapes.
    """
    member, inner = _member_and_layer(path, layer)
    ending = _ending(path, member)
    if ending == ".kml":
        return _read_kml(path, _content(path, member), most)
    source = _source(path, ending, member)
    name = _chosen_layer(path, source, inner)
    # Read one more than the limit, because counting first would parse the file twice.
    table = pyogrio.read_dataframe(source, layer=name, max_features=most + 1)
    if len(table) > most:
        raise DataError(
            f"{path} contains {len(table):,} polygons or more; expected at most {most:,}. Keep "
            f"only the polygons of the region."
        )
    return table


def layers_of(path: Path) -> list[str]:
    """Return the names of the layers of a file: of a GeoPackage, or of several files in an archive.

    Other files have one layer without a name, and the list is empty. The file must have passed
    `check_file`. Raises the errors of `read_vector`.
    """
    members = _members(path) if path.suffix.lower() in ARCHIVES else [None]
    if len(members) > 1:
        return [PurePosixPath(str(name)).stem for name in members]
    ending = _ending(path, members[0])
    return _layers_in(_source(path, ending, members[0])) if ending == ".gpkg" else []


def _ending(path: Path, member: str | None) -> str:
    """Return the ending that names the format; DataError if geogp does not read it."""
    ending = path.suffix.lower() if member is None else PurePosixPath(member).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(
            f"{path} has a format that geogp does not read: expected a name that ends in .parquet, "
            f"{', '.join(ENDINGS)}, found {path.suffix or 'no ending'}. Write the polygons to a "
            f"file in one of these formats: {_FORMATS}."
        )
    return ending


def _member_and_layer(path: Path, layer: str | None) -> tuple[str | None, str | None]:
    """Return the file to read in an archive (None elsewhere), and the layer in this file.

    If there are several files, `layer` is the name of one of them, without its ending.
    """
    if path.suffix.lower() not in ARCHIVES:
        return None, layer
    names = _members(path)
    if len(names) == 1:
        return names[0], layer
    chosen = [name for name in names if PurePosixPath(name).stem == layer]
    if len(chosen) != 1:
        raise DataError(
            f"expected one file of shapes in {path}, found {len(names)}: {named(names)}. Choose "
            f"one with its name after the archive, as {path.name}:{PurePosixPath(names[0]).stem}."
        )
    return chosen[0], None


def _members(path: Path) -> list[str]:
    """Return the names of the files of shapes in an archive; DataError if there is none."""
    with zipfile.ZipFile(path) as archive:
        members = [
            member for member in archive.infolist() if not member.filename.startswith("__MACOSX/")
        ]
    for endings in _IN_ARCHIVES:
        shapes = [member for member in members if member.filename.lower().endswith(endings)]
        for member in shapes:
            if "\\" in member.filename:
                raise DataError(
                    f"{path} contains {quoted(member.filename)}, a name that GDAL would change. "
                    "Rename this file, or unpack the archive and give the file itself."
                )
            if member.file_size > MAX_BYTES:
                raise DataError(
                    f"{quoted(member.filename)} in {path} has {member.file_size:,} bytes; expected "
                    f"at most {MAX_BYTES:,} bytes."
                )
        if shapes:
            return [member.filename for member in shapes]
    raise DataError(
        f"expected a file of shapes in {path}, found "
        f"{named(member.filename for member in members)}. If there is one, unpack the archive, "
        f"and give the file itself. geogp reads {_FORMATS}."
    )


def _source(path: Path, ending: str, member: str | None) -> str:
    """Return the file's name for GDAL, in a form that only one driver can open."""
    whole = str(path.absolute())
    if member is not None:
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in whole))
        if min(depths) < 0 or depths[-1] != 0:  # in /vsizip/{...}, GDAL pairs the braces
            raise DataError(f"{path} has an unpaired brace in its path. Rename the file or folder.")
        address = f"/vsizip/{{{whole}}}/{member}"
    else:
        address = whole
    if ending in _TEXTS:
        _check_geojson(path, _content(path, member))
        return f"GeoJSON:{address}"
    if member is None and (whole.startswith("/vsi") or set(_SPECIAL) & set(whole)):
        raise DataError(f"{path} has a name that GDAL would read as an address. Rename the file.")
    head = _content(path, member, _HEAD)
    _check_head(path, ending, head)
    if ending == ".gpkg" and head[68:70] != b"GP":
        if member is not None:
            raise DataError(
                f"{path} contains {quoted(member)} in an old form of GeoPackage. Unpack the "
                "archive, and give the file itself."
            )
        _check_tables(path)
    return address


def _content(path: Path, member: str | None, most: int = -1) -> bytes:
    """Return the first bytes of a file, or of a file in an archive; by default, all."""
    if member is None:
        with path.open("rb") as stream:
            return stream.read(most)
    with zipfile.ZipFile(path) as archive, archive.open(member) as packed:
        return packed.read(most)


def _check_tables(path: Path) -> None:
    """Raise DataError if an SQLite database lacks ``gpkg_contents``, a table of each GeoPackage.

    Old programs wrote GeoPackages without the mark ``GP`` in the first bytes.
    """
    # Immutable: SQLite sets no locks and writes no file beside the database.
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            row = base.execute("SELECT 1 FROM sqlite_master WHERE name='gpkg_contents'").fetchone()
    except sqlite3.Error as error:
        raise DataError(
            f"{path} cannot be read as a GeoPackage ({error}). Download or write this file again."
        ) from error
    if row is None:
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
            f"{path}{' contains a file that' if path.suffix.lower() in ARCHIVES else ''} ends in "
            f"{ending}, but does not begin like a file of this format. Download or write this file "
            "again."
        )


class _Seen(NamedTuple):
    """The types of a GeoJSON object, and of its first CRS that GDAL might download."""

    types: tuple[Any, ...]
    wrong: tuple[Any, ...] | None


def _check_geojson(path: Path, content: bytes) -> None:
    """Raise DataError if a file is not GeoJSON, or has a CRS that is a web address.

    The whole text is parsed, because any object may have a CRS, and the key ``crs`` may have
    escapes.
    """
    try:
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_seen)
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


def _layers_in(source: str) -> list[str]:
    # The geometry type of a table without shapes is None.
    return [str(name) for name, kind in pyogrio.list_layers(source) if kind is not None]


def _chosen_layer(path: Path, source: str, layer: str | None) -> str:
    """Return the name of the layer to read; DataError if there is no such layer, or a choice."""
    names = _layers_in(source)
    if not names:
        raise DataError(f"{path} contains no geometry. Expected polygons.")
    if layer in names or (layer is None and len(names) == 1):
        return names[0] if layer is None else layer
    raise DataError(
        f"expected {'one layer' if layer is None else f'a layer {quoted(layer)}'} in {path}, found "
        f"{len(names)}: {named(names)}. Choose a layer with its name after the file, as "
        f"{path.name}:{names[0]}."
    )


class _Placemarks:
    """The placemarks that an XML parser finds in a KML file; other elements are not kept."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self.depth, self.depth_of_placemark = 0, 0
        self.builder: ET.TreeBuilder | None = None
        self.rows: list[dict[str, str]] = []
        self.shapes: list[BaseGeometry | None] = []

    def doctype(self, *_: object) -> NoReturn:
        raise DataError(
            f"{self.path} has a document type (DOCTYPE), which geogp does not read, because it can "
            "refer to other files. Write the file again without it."
        )

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise DataError(f"{self.path} cannot be read as KML: it is nested too deeply.")
        name = name.rpartition("}")[2]
        if self.depth == 1 and name != "kml":
            raise DataError(f"expected KML in {self.path}, found an element {shown(name)}.")
        if self.builder is None and name == "Placemark":
            self.builder, self.depth_of_placemark = ET.TreeBuilder(), self.depth
        if self.builder is not None:
            self.builder.start(name, attributes)

    def data(self, text: str) -> None:
        if self.builder is not None:
            self.builder.data(text)

    def end(self, name: str) -> None:
        if self.builder is not None:
            self.builder.end(name.rpartition("}")[2])
            if self.depth == self.depth_of_placemark:
                self.add(self.builder.close())
                self.builder = None
        self.depth -= 1

    def add(self, placemark: ET.Element) -> None:
        if len(self.rows) == self.most:
            raise DataError(
                f"{self.path} contains more than {self.most:,} placemarks. Keep only those of the "
                "region."
            )
        columns = _kml_columns(placemark)
        try:
            shape = next((shape for part in placemark if (shape := _kml_shape(part))), None)
        except (ValueError, shapely.errors.ShapelyError) as error:
            name = f" ({shown(columns['name'])})" if "name" in columns else ""
            raise DataError(
                f"{self.path} has a wrong shape in placemark {len(self.rows) + 1}{name}: "
                f"{shown(error)}. Expected coordinates as LONGITUDE,LATITUDE with spaces between "
                "them. Correct or remove it."
            ) from error
        self.rows.append(columns)
        self.shapes.append(shape)


def _read_kml(path: Path, content: bytes, most: int) -> gpd.GeoDataFrame:
    """Return the placemarks of a KML file, with their names and extended data as columns.

    Raises DataError if the file is damaged, has a document type, has no placemark or more than
    `most`, or a shape is wrong.
    """
    placemarks = _Placemarks(path, most)
    parser = ET.XMLParser(target=placemarks)  # noqa: S314 - without document types
    try:
        parser.feed(content)
        parser.close()
    except DataError:
        raise
    except (ET.ParseError, LookupError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as KML ({shown(error)}). Download or write this file again."
        ) from error
    if not placemarks.rows:
        raise DataError(
            f"{path} contains no placemark. geogp does not follow links to other files: give the "
            "file that contains the shapes."
        )
    return gpd.GeoDataFrame(placemarks.rows, geometry=placemarks.shapes, crs=4326)


def _kml_columns(placemark: ET.Element) -> dict[str, str]:
    """Return the name, the description and the extended data of a placemark."""
    columns = {part.tag: (part.text or "").strip() for part in placemark if part.tag in _KML_TEXTS}
    for data in placemark.iterfind("ExtendedData/Data"):
        columns.setdefault(data.get("name", ""), data.findtext("value", "").strip())
    for data in placemark.iterfind("ExtendedData/SchemaData/SimpleData"):
        columns.setdefault(data.get("name", ""), (data.text or "").strip())
    return {name: text for name, text in columns.items() if name and name != "geometry"}


def _kml_shape(element: ET.Element) -> BaseGeometry | None:
    """Return the shape of an element; None if the element is no shape."""
    if element.tag == "Point":
        return shapely.Point(_kml_coordinates(element)[0])
    if element.tag in {"LineString", "LinearRing"}:
        return shapely.LineString(_kml_coordinates(element))
    if element.tag == "Polygon":
        shell = element.find("outerBoundaryIs/LinearRing")
        if shell is None:
            raise ValueError("a polygon without an outer boundary")
        holes = element.iterfind("innerBoundaryIs/LinearRing")
        return shapely.Polygon(_kml_coordinates(shell), list(map(_kml_coordinates, holes)))
    if element.tag == "MultiGeometry":
        shapes = [shape for part in element if (shape := _kml_shape(part)) is not None]
        polygons = [shape for shape in shapes if isinstance(shape, shapely.Polygon)]
        alike = len(polygons) == len(shapes)
        return shapely.MultiPolygon(polygons) if alike else shapely.GeometryCollection(shapes)
    return None


def _kml_coordinates(element: ET.Element) -> list[tuple[float, float]]:
    """Return the longitudes and latitudes of a shape; heights are left out."""
    words = re.sub(r"\s*,\s*", ",", element.findtext("coordinates", "")).split()
    places = [word.split(",") for word in words]
    if not places or any(len(place) < 2 for place in places):
        raise ValueError(f"expected coordinates, found {shown(' '.join(words)) or 'none'}")
    return [(float(place[0]), float(place[1])) for place in places]

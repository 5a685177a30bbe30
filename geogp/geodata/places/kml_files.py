"""Reading of KML files, without GDAL, which would follow links in them.

The shapes are those of the placemarks, in longitude and latitude. A file with a document type is
refused, because such a type can define entities that refer to other files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn
from xml.parsers import expat

import geopandas as gpd
import shapely
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError, shown

_DEEPEST = 100  # elements inside each other

_TEXTS = ("name", "description")  # elements that are columns

_LINES = ("LineString", "LinearRing")


@dataclass
class _Element:
    """An element of a placemark: its name without the namespace, and what it contains."""

    name: str
    attributes: dict[str, str]
    inside: "list[_Element]" = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def all(self, name: str) -> "Iterator[_Element]":
        return (one for one in self.inside if one.name == name)

    def find(self, *names: str) -> "_Element | None":
        """Return the first element at the end of a path of names."""
        found: _Element | None = self
        for name in names:
            found = None if found is None else next(found.all(name), None)
        return found


class _Placemarks:
    """Collects the placemarks of a file while it is parsed; other elements are not kept."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self.open: list[_Element] = []
        self.depth = 0
        self.rows: list[dict[str, Any]] = []
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
        name = name.rpartition(" ")[2]
        if self.depth == 1 and name != "kml":
            raise DataError(f"expected KML in {self.path}, found an element {shown(name)}.")
        if not self.open and name != "Placemark":
            return
        element = _Element(name, attributes)
        if self.open:
            self.open[-1].inside.append(element)
        self.open.append(element)

    def text(self, text: str) -> None:
        if self.open:
            self.open[-1].pieces.append(text)

    def end(self, _: str) -> None:
        self.depth -= 1
        if self.open and len(self.open) == 1:
            self.add(self.open[0])
        self.open = self.open[:-1]

    def add(self, placemark: _Element) -> None:
        if len(self.rows) == self.most:
            raise DataError(
                f"{self.path} contains more than {self.most:,} placemarks. Keep only those of the "
                "region."
            )
        columns = _columns(placemark)
        try:
            shape = next((one for part in placemark.inside if (one := _shape(part))), None)
        except (ValueError, shapely.errors.ShapelyError) as error:
            name = columns.get("name")
            raise DataError(
                f"{self.path} has a wrong shape in placemark {len(self.rows) + 1}"
                f"{'' if name is None else f' ({shown(name)})'}: {shown(error)}. Expected "
                "coordinates as LONGITUDE,LATITUDE with spaces between them. Correct or remove it."
            ) from error
        self.rows.append(columns)
        self.shapes.append(shape)


def read_kml(path: Path, stream: IO[bytes], most: int) -> gpd.GeoDataFrame:
    """Return the placemarks of a KML file, with their names and extended data as columns.

    Raises DataError if the file is damaged, has a document type, has no placemark or more than
    `most`, or a shape is wrong.
    """
    found = _Placemarks(path, most)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = found.doctype
    parser.StartElementHandler = found.start
    parser.CharacterDataHandler = found.text
    parser.EndElementHandler = found.end
    try:
        parser.ParseFile(stream)
    except (expat.ExpatError, LookupError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} cannot be read as KML ({shown(error)}). Download or write this file again."
        ) from error
    if not found.rows:
        raise DataError(
            f"{path} contains no placemark. geogp does not follow links to other files: give the "
            "file that contains the shapes."
        )
    return gpd.GeoDataFrame(found.rows, geometry=found.shapes, crs=4326)


def _columns(placemark: _Element) -> dict[str, Any]:
    """Return the name, the description and the extended data of a placemark."""
    found = {one.name: one.text.strip() for one in placemark.inside if one.name in _TEXTS}
    for part in placemark.all("ExtendedData"):
        for data in part.all("Data"):
            value = data.find("value")
            found.setdefault(data.attributes.get("name", ""), value.text.strip() if value else "")
        for schema in part.all("SchemaData"):
            for data in schema.all("SimpleData"):
                found.setdefault(data.attributes.get("name", ""), data.text.strip())
    return {name: text for name, text in found.items() if name and name != "geometry"}


def _shape(element: _Element) -> BaseGeometry | None:
    """Return the shape of an element; None if the element is no shape."""
    if element.name == "Point":
        return shapely.Point(_coordinates(element)[0])
    if element.name in _LINES:
        return shapely.LineString(_coordinates(element))
    if element.name == "Polygon":
        shell = element.find("outerBoundaryIs", "LinearRing")
        if shell is None:
            raise ValueError("a polygon without an outer boundary")
        holes = [ring for part in element.all("innerBoundaryIs") for ring in part.all("LinearRing")]
        return shapely.Polygon(_coordinates(shell), list(map(_coordinates, holes)))
    if element.name == "MultiGeometry":
        shapes = [one for part in element.inside if (one := _shape(part)) is not None]
        polygons = [one for one in shapes if isinstance(one, shapely.Polygon)]
        alike = len(polygons) == len(shapes)
        return shapely.MultiPolygon(polygons) if alike else shapely.GeometryCollection(shapes)
    return None


def _coordinates(element: _Element) -> list[tuple[float, float]]:
    """Return the longitudes and latitudes of a shape; heights are left out."""
    found = element.find("coordinates")
    words = re.sub(r"\s*,\s*", ",", "" if found is None else found.text).split()
    places = [word.split(",") for word in words]
    if not places or any(len(place) < 2 for place in places):
        raise ValueError(f"expected coordinates, found {shown(' '.join(words)) or 'none'}")
    return [(float(place[0]), float(place[1])) for place in places]

"""A region that a user draws: all polygons of a file, or some of them."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.places.layers import files_of
from geogp.geodata.places.polygons import read_polygons
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.ookla import InputFile

LONGEST_CODE = 60
"""Letters of the code of a region, which names files."""


@dataclass(frozen=True)
class OwnFile:
    """What a user writes as ``FILE`` or ``FILE:COLUMN=VALUE``.

    Attributes
    ----------
    path
        The file.
    column, value
        Which rows are meant; None takes all.
    """

    path: Path
    column: str | None = None
    value: str | None = None

    @classmethod
    def of(cls, text: str) -> "OwnFile":
        """Take apart what a user wrote, whether or not the file exists.

        Raises
        ------
        RequestError
            What follows the file is no ``COLUMN=VALUE``.
        """
        path, rest = _file_and_rest(text)
        if rest is None:
            return cls(path)
        column, equals, value = rest.partition("=")
        if not (column and equals):
            raise RequestError(
                f"expected the rows of {path} that are the region as COLUMN=VALUE, found {rest!r}."
            )
        return cls(path, column, value)

    @property
    def absolute(self) -> str:
        """The same, from any working directory; the file keeps its name, even of a link."""
        place = self.path.parent.resolve() / self.path.name
        return str(place) if self.column is None else f"{place}:{self.column}={self.value}"

    def read(self) -> tuple[gpd.GeoDataFrame, tuple[InputFile, ...]]:
        """Read the rows that are meant, in longitude and latitude, and say what was read.

        Raises
        ------
        RequestError
            There is no such file or column, or no row has the value.
        DataError
            As `read_polygons` says.
        """
        if not self.path.is_file():
            raise RequestError(
                f"no file {self.path}: expected polygons, as FILE or FILE:COLUMN=VALUE."
            )
        table = read_polygons(self.path, self.path.name)
        chosen = table if self.column is None else self._chosen(table)
        files = (
            InputFile(path.name, sha256_of(path), len(table), len(chosen))
            for path in files_of(self.path)
        )
        return chosen, tuple(files)

    def _chosen(self, table: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
        if self.column not in table or self.column == table.active_geometry_name:
            columns = ", ".join(str(name) for name in table.columns if name != "geometry")
            raise RequestError(
                f"expected a column {self.column} in {self.path}, found the columns {columns}."
            )
        texts = table[self.column].astype(str)
        chosen = table[texts == self.value]
        if not len(chosen):
            held = ", ".join(sorted(texts.unique())[:8])
            raise RequestError(
                f"no row of {self.path} has {self.value!r} in {self.column}; it holds {held}."
            )
        return chosen


def read_own_region(text: str, name: str | None = None) -> tuple[Region, tuple[InputFile, ...]]:
    """Read a region from a file of polygons, in any format of `read_polygons` and any CRS.

    Parameters
    ----------
    text
        ``FILE``, all polygons of which are the region together, or ``FILE:COLUMN=VALUE`` for those
        rows.
    name
        What the region is called; None takes the name of the file without its ending.

    Returns
    -------
    (Region, files)
        The region without strata, and the files that were read.

    Raises
    ------
    RequestError
        There is no such file, column or value.
    DataError
        The file is damaged, or holds other things than polygons with a CRS.
    """
    own = OwnFile.of(text)
    chosen, files = own.read()
    full = own.path.stem if name is None else name.strip()
    try:
        region = Region.from_geometry(code_of(full), full, chosen.geometry.union_all())
    except DataError as error:
        raise DataError(f"{own.path}: {error}") from error
    return region, files


def code_of(name: str) -> str:
    """Return a short name that can stand in names of files: letters, digits, ``-`` and ``_``.

    Raises
    ------
    RequestError
        Nothing of the name is left.
    """
    plain = unicodedata.normalize("NFC", name)
    code = re.sub(r"[^\w-]+", "_", plain).strip("_-")[:LONGEST_CODE]
    if not code:
        raise RequestError(
            f"expected a name with a letter or digit for the region, found {name!r}. Give one with "
            "--region-name."
        )
    return code


def _file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` at the first colon before which there is a file, else at the first."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]

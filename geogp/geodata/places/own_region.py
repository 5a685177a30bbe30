"""A region of a user: all polygons of a file, or some of them."""

import re
import unicodedata

import geopandas as gpd

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.places.layers import files_of
from geogp.geodata.places.polygon_names import OwnFile
from geogp.geodata.places.polygons import read_polygons
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.ookla import InputFile

LONGEST_CODE = 60
"""Most letters in the code of a region, which names files."""


def read_own_region(text: str, name: str | None = None) -> tuple[Region, tuple[InputFile, ...]]:
    """Return a region without strata, and the files that were read.

    `text` is ``FILE``, whose polygons together are the region, or ``FILE:COLUMN=VALUE`` for some
    rows. `name` is the name of the region; None takes the name of the file without its ending.
    RequestError where there is no such file, column or value; DataError as in `read_polygons`.
    """
    own = OwnFile.of(text)
    chosen, files = _read(own)
    full = own.path.stem if name is None else name.strip()
    try:
        region = Region.from_geometry(code_of(full), full, chosen.geometry.union_all())
    except DataError as error:
        raise DataError(f"{own.path}: {error}") from error
    return region, files


def code_of(name: str) -> str:
    """Return a short name for files: letters, digits, ``-`` and ``_``.

    RequestError where nothing of the name is left.
    """
    plain = unicodedata.normalize("NFC", name)
    code = re.sub(r"[^\w-]+", "_", plain).strip("_-")[:LONGEST_CODE]
    if not code:
        raise RequestError(
            f"expected a name with a letter or digit for the region, found {name!r}. Give one with "
            "--region-name."
        )
    return code


def _read(own: OwnFile) -> tuple[gpd.GeoDataFrame, tuple[InputFile, ...]]:
    """Return the chosen rows in longitude and latitude, and the files that were read."""
    if not own.path.is_file():
        raise RequestError(f"no file {own.path}: expected polygons, as FILE or FILE:COLUMN=VALUE.")
    table = read_polygons(own.path, own.path.name)
    chosen = table if own.column is None else _chosen(own, table)
    files = (
        InputFile(path.name, sha256_of(path), len(table), len(chosen))
        for path in files_of(own.path)
    )
    return chosen, tuple(files)


def _chosen(own: OwnFile, table: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    if own.column not in table or own.column == table.active_geometry_name:
        columns = ", ".join(str(name) for name in table.columns if name != "geometry")
        raise RequestError(
            f"expected a column {own.column} in {own.path}, found the columns {columns}."
        )
    texts = table[own.column].astype(str)
    chosen = table[texts == own.value]
    if not len(chosen):
        held = ", ".join(sorted(texts.unique())[:8])
        raise RequestError(
            f"no row of {own.path} has {own.value!r} in {own.column}; it holds {held}."
        )
    return chosen

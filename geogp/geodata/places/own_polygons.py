"""Regions and strata from files of polygons of the user."""

import re
import unicodedata

from shapely.geometry import MultiPolygon
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError, RequestError, check_name, named, quoted
from geogp.geodata.places.file_choice import column_and_value
from geogp.geodata.places.layers import ELSEWHERE, column_of, files_read
from geogp.geodata.places.polygons import choose_polygons
from geogp.geodata.places.region import Region, Strata, polygonal_parts
from geogp.geodata.places.stratum_names import ALL, UNKNOWN
from geogp.geodata.tiles.ookla import InputFile

LONGEST_CODE = 60  # letters in the code of a region, because file names contain the code
LONGEST_NAME = 40

_TAKEN = {ALL, UNKNOWN}

_SLIVER = 1e-6  # gaps and overlaps with a smaller share of the region are not reported


def read_own_region(
    text: str, name: str | None = None, crs: str | None = None
) -> tuple[Region, tuple[InputFile, ...], tuple[str, ...]]:
    """Return a region from a file of polygons, without strata, the files read, and warnings.

    If `text` is ``FILE`` or ``FILE:LAYER``, the region is the union of all polygons; with
    ``:COLUMN=VALUE`` at the end, the union of the polygons with this value. `name` is the name of
    the region, by default the name of the file without the extension. Raises RequestError if there
    is no such file, column or value. Raises the errors of `choose_polygons`.
    """
    warnings: list[str] = []
    path, _, table, rest = choose_polygons(text, "FILE or FILE:COLUMN=VALUE", crs, warnings)
    chosen = table
    if rest is not None:
        column, value = column_and_value(path, rest)
        texts = column_of(table, column, path)
        chosen = table[texts == value]
        if not len(chosen):
            raise RequestError(
                f"no row of {path} has {quoted(value)} in {column}; this column contains "
                f"{named(sorted(texts.unique()))}."
            )
    full = path.stem if name is None else name
    try:
        region = region_of(full, chosen.geometry.union_all())
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return region, files_read(path, len(table), len(chosen)), tuple(warnings)


def region_of(name: str, boundary: BaseGeometry) -> Region:
    """Return a region with a name from the user; raise the errors of `Region.from_geometry`."""
    return Region.from_geometry(code_of(name), name.strip(), boundary)


def code_of(name: str) -> str:
    """Return a code for file names.

    Raises RequestError if `name` has no letter or digit, or has control characters.
    """
    plain = unicodedata.normalize("NFC", name)
    code = re.sub(r"[^\w-]+", "_", plain).strip("_-")[:LONGEST_CODE]
    if not code:
        raise RequestError(
            f"expected a name with a letter or digit for the region, found {quoted(name)}. Give a "
            "name with --region-name."
        )
    check_name("a name of the region", name, RequestError)
    return code


def read_own_strata(
    text: str, region: Region, crs: str | None = None
) -> tuple[Strata, tuple[InputFile, ...], tuple[str, ...]]:
    """Return two strata from a file of polygons, the files that were read, and warnings.

    If `text` is ``FILE:COLUMN``, the column must have two values, which are the names of the
    strata. If `text` is ``FILE``, the first stratum is all polygons, and has the name of the file;
    the second stratum, ``elsewhere``, is all other places. A file with several layers needs the
    name of one, as ``FILE:LAYER`` or ``FILE:LAYER:COLUMN``. Raises RequestError if there is no such
    file or column, or if the column does not have two values. Raises DataError if the file is
    damaged, or the name of a stratum is not allowed.
    """
    warnings: list[str] = []
    path, _, table, column = choose_polygons(text, "FILE or FILE:COLUMN", crs, warnings)
    if column is None:
        names, areas = [path.stem.strip(), ELSEWHERE], [table.geometry.union_all()]
    else:
        values = column_of(table, column, path).str.strip()
        names = [str(name) for name in values.unique()]
        if len(names) != 2:
            raise RequestError(
                f"expected two values in {column} of {path}, the names of two strata, found "
                f"{len(names)}: {named(names)}."
            )
        areas = [table.geometry[values == name].union_all() for name in names]
    for name in names:
        if not name or name.casefold() in _TAKEN or len(name) > LONGEST_NAME:
            raise DataError(
                f"{path} names a stratum {quoted(name)}; expected 1 to {LONGEST_NAME} characters, "
                f"and not {' or '.join(sorted(_TAKEN))}. Rename the stratum."
            )
        check_name(f"a name of a stratum in {path}", name)
    if names[0] == names[1]:
        raise DataError(f"{path} names both strata {quoted(names[0])}. Rename the file.")
    shapes = [MultiPolygon(polygonal_parts(area)) for area in areas]
    rest = shapes[1] if len(shapes) == 2 else None
    first, second = names
    strata = Strata(shapes[0], rest, (first, second), first).moved(sum(region.bounds[::2]) / 2)
    files = files_read(path, len(table), len(table))
    return strata, files, (*warnings, *_warnings(strata, region))


def _warnings(strata: Strata, region: Region) -> tuple[str, ...]:
    """Return warnings about empty strata, and about places in both strata or in neither."""
    whole, warnings = region.boundary.area, []
    held = region.boundary.intersection(strata.area)
    other = region.boundary.difference(strata.area)
    if strata.rest is not None:
        twice = held.intersection(strata.rest).area / whole
        if twice > _SLIVER:
            warnings.append(
                f"{twice:.1%} of {region.name} lies in both strata, and is assigned to "
                f"{strata.names[0]}."
            )
        other = other.intersection(strata.rest)
        neither = 1 - (held.area + other.area) / whole
        if neither > _SLIVER:
            warnings.append(
                f"{neither:.1%} of {region.name} lies in neither stratum: the stratum of these "
                "places is unknown, so only results for the whole region include them."
            )
    for name, part in zip(strata.names, (held, other), strict=True):
        if part.area <= _SLIVER * whole:
            warnings.append(f"no part of {region.name} lies in the stratum {name}.")
    return tuple(warnings)

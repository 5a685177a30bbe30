"""Two strata of a user, instead of urban and rural."""

from shapely.geometry import MultiPolygon

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.places.layers import ELSEWHERE, files_of, place_of
from geogp.geodata.places.polygons import read_polygons
from geogp.geodata.places.region import UNKNOWN, Region, Strata, polygonal_parts
from geogp.geodata.places.stratum_column import ALL
from geogp.geodata.tiles.ookla import InputFile

LONGEST_NAME = 40

_TAKEN = {ALL, UNKNOWN}

_SLIVER = 1e-6
"""Share of a region below which gaps and overlaps come from two drawings of one line."""


def read_own_strata(
    text: str, region: Region
) -> tuple[Strata, tuple[InputFile, ...], tuple[str, ...]]:
    """Return two strata of a region, the files that were read, and warnings.

    `text` is ``FILE:COLUMN``, whose two values name the strata, in the order of the file. Or it is
    ``FILE``: its polygons are the first stratum, named after the file, and all other places are the
    second, ``elsewhere``. RequestError where there is no such file or column, or not two values;
    DataError where the file is damaged or a stratum has a reserved name.
    """
    path, column = place_of(text)
    table = read_polygons(path, path.name)
    files = tuple(
        InputFile(one.name, sha256_of(one), len(table), len(table)) for one in files_of(path)
    )
    if column is None:
        names, areas = [path.stem.strip(), ELSEWHERE], [table.geometry.union_all()]
    else:
        if column not in table or column == table.active_geometry_name:
            held = ", ".join(str(name) for name in table.columns if name != "geometry")
            raise RequestError(f"expected a column {column} in {path}, found the columns {held}.")
        values = table[column].astype(str).str.strip()
        names = [str(name) for name in values.unique()]
        if len(names) != 2:
            raise RequestError(
                f"expected two values in {column} of {path}, the names of two strata, found "
                f"{len(names)}: {', '.join(names[:6])}."
            )
        areas = [table.geometry[values == name].union_all() for name in names]
    _check_names(names, str(path))
    shapes = [MultiPolygon(polygonal_parts(area)) for area in areas]
    rest = shapes[1] if len(shapes) == 2 else None
    first, second = names
    strata = Strata(shapes[0], rest, (first, second), first).moved(sum(region.bounds[::2]) / 2)
    return strata, files, _warnings(strata, region)


def _check_names(names: list[str], where: str) -> None:
    for name in names:
        if not name or name.casefold() in _TAKEN or len(name) > LONGEST_NAME:
            raise DataError(
                f"{where} calls a stratum {name!r}; expected 1 to {LONGEST_NAME} letters, and not "
                f"{' or '.join(sorted(_TAKEN))}. Rename it."
            )
    if names[0] == names[1]:
        raise DataError(f"{where} calls both strata {names[0]!r}. Rename the file.")


def _warnings(strata: Strata, region: Region) -> tuple[str, ...]:
    """Return warnings of places in both strata, of places in neither, and of an empty stratum."""
    whole, told = region.boundary.area, []
    held = region.boundary.intersection(strata.area)
    other = region.boundary.difference(strata.area)
    if strata.rest is not None:
        twice = held.intersection(strata.rest).area / whole
        if twice > _SLIVER:
            told.append(
                f"{twice:.1%} of {region.name} lies in both strata, and counts as "
                f"{strata.names[0]}."
            )
        other = other.intersection(strata.rest)
        neither = 1 - (held.area + other.area) / whole
        if neither > _SLIVER:
            told.append(
                f"{neither:.1%} of {region.name} lies in neither stratum: places there are of "
                "unknown stratum, and count for the whole region only."
            )
    for name, part in zip(strata.names, (held, other), strict=True):
        if part.area <= _SLIVER * whole:
            told.append(f"nothing of {region.name} lies in the stratum {name}.")
    return tuple(told)

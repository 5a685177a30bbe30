"""Boundaries of states and urban areas, as the U.S. Census Bureau publishes them."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import geopandas as gpd

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.layers import COUNTY, URBAN_AREA, PolygonLayer
from geogp.geodata.ookla import InputFile
from geogp.geodata.polygons import read_polygons
from geogp.geodata.region import Region
from geogp.geodata.sources import Source

PUBLIC_BOUNDARIES = "https://www2.census.gov/geo/tiger/GENZ2018/shp"
"""The Census Bureau's cartographic boundary files of 2018."""

STATE_FILES = ("states.parquet", "cb_2018_us_state_500k.zip", "cb_2018_us_state_5m.zip")
"""Names under which states are looked for, in this order."""

URBAN_FILES = (
    "urban_areas_{code}.parquet",
    "cb_2020_us_ua20_corrected_500k.zip",
    "cb_2020_us_ua20_500k.zip",
    "cb_2018_us_ua10_500k.zip",
    "tl_2020_us_uac20.zip",
    "tl_2020_us_uac10.zip",
    "ua99_d00_shp.zip",
)
"""Names under which urban areas are looked for, in this order."""

COUNTY_FILES = ("counties_{code}.parquet", "cb_2018_us_county_500k.zip")
"""Names under which counties are looked for, in this order."""

COAST_DEGREES = 0.02
"""How far the coast of a county may be drawn from that of its state, about 2 km."""

URBAN_VINTAGES = {"UACE20": 2020, "UACE10": 2010, "UA": 2000}
"""The column that tells the census of an urban-area file."""


@dataclass(frozen=True)
class Boundaries:
    """A region with the files it comes from and what the user should know.

    `counties` and `urban_areas` are the polygons one by one; None where no file has them.
    """

    region: Region
    files: tuple[InputFile, ...]
    warnings: tuple[str, ...]
    counties: PolygonLayer | None = None
    urban_areas: PolygonLayer | None = None


def read_region(source: Source, name: str) -> Boundaries:
    """Read a state by postal code, name or FIPS number, with its urban areas.

    Parameters
    ----------
    source
        A folder or address with ``states.parquet``, ``urban_areas_<ST>.parquet`` and
        ``counties_<ST>.parquet``, or with the Census Bureau's own zip files.
    name
        ``PR``, ``Puerto Rico`` or ``72``.

    Raises
    ------
    RequestError
        No such state; the nearest names are given.
    DataError
        A file is missing, damaged, without geometry or without CRS, or the urban areas are of
        an unknown census.
    NetworkError
        The source could not be read.
    """
    states, used = _read_first(source, STATE_FILES)
    if states is None:
        raise DataError(f"no state boundaries in {source.where}; expected {STATE_FILES[0]}.")
    _require(states, ("STUSPS", "NAME", "STATEFP"), source)
    row = _find_state(states, name)
    code, full = str(row["STUSPS"]), str(row["NAME"])
    counties, more = _counties(source, code, str(row["STATEFP"]))
    files = [*used, *more]
    urban, used = _read_first(source, [file.format(code=code) for file in URBAN_FILES])
    if urban is None:
        warning = (
            f"no urban areas of {full} in {source.where}: the region is mapped without the "
            "strata urban and rural."
        )
        region = Region.from_geometry(code, full, row.geometry)
        return Boundaries(region, tuple(files), (warning,), counties)
    files += used
    vintage = _vintage(urban, source)
    near = urban.geometry[urban.intersects(row.geometry)]
    warnings = () if len(near) else (f"no urban area of {files[-1].name} touches {full}.",)
    region = Region.from_geometry(code, full, row.geometry, near.union_all(), vintage)
    towns = PolygonLayer.of_table(URBAN_AREA, urban.loc[near.index]) if len(near) else None
    return Boundaries(region, tuple(files), warnings, counties, towns)


def _counties(
    source: Source, code: str, number: str
) -> tuple[PolygonLayer | None, list[InputFile]]:
    """Read the counties of a state; None where the source has none."""
    table, used = _read_first(source, [file.format(code=code) for file in COUNTY_FILES])
    if table is None:
        return None, []
    if "STATEFP" in table:
        table = table[table["STATEFP"].astype(str) == number]
    if not len(table):
        raise DataError(f"{used[0].name} in {source.where} holds no county of {code}.")
    return replace(PolygonLayer.of_table(COUNTY, table), snap_degrees=COAST_DEGREES), used


def _read_first(
    source: Source, names: Sequence[str]
) -> tuple[gpd.GeoDataFrame | None, list[InputFile]]:
    """Read the first of several files that the source has."""
    for name in names:
        if source.has(name):
            path = source.fetch(name)
            table = read_polygons(path, name)
            return table, [InputFile(name, sha256_of(path), len(table), len(table))]
    return None, []


def _require(table: gpd.GeoDataFrame, columns: tuple[str, ...], source: Source) -> None:
    absent = [name for name in columns if name not in table]
    if absent:
        raise DataError(
            f"expected columns {', '.join(columns)} in the states of {source.where}, "
            f"found no {', '.join(absent)}."
        )


def _find_state(states: gpd.GeoDataFrame, name: str) -> gpd.GeoSeries:
    wanted = name.strip().casefold()
    for column in ("STUSPS", "NAME", "STATEFP"):
        match = states[states[column].astype(str).str.casefold() == wanted]
        if len(match):
            return match.iloc[0]
    labels: dict[str, str] = {}
    for full, code in zip(states["NAME"], states["STUSPS"], strict=True):
        labels[str(full).casefold()] = labels[str(code).casefold()] = f"{full} ({code})"
    near = difflib.get_close_matches(wanted, labels, n=4, cutoff=0.5)
    shown = dict.fromkeys(labels[key] for key in near) or sorted(set(labels.values()))
    raise RequestError(f"unknown region {name!r}. Nearest: {', '.join(shown)}.")


def _vintage(urban: gpd.GeoDataFrame, source: Source) -> int:
    for column, year in URBAN_VINTAGES.items():
        if column in urban:
            return year
    raise DataError(
        f"the urban areas in {source.where} are of an unknown census: expected a column "
        f"{', '.join(URBAN_VINTAGES)}, found {', '.join(map(str, urban.columns))}."
    )


def state_codes(source: Source, names: Sequence[str] | None = None) -> list[str]:
    """Return the postal codes of some states, each once, or of all that the source holds.

    Parameters
    ----------
    source
        As `read_region` has it.
    names
        Postal codes, names or FIPS numbers; None for all.

    Raises
    ------
    RequestError, DataError, NetworkError
        As `read_region` says.
    """
    states, _ = _read_first(source, STATE_FILES)
    if states is None:
        raise DataError(f"no state boundaries in {source.where}; expected {STATE_FILES[0]}.")
    _require(states, ("STUSPS", "NAME", "STATEFP"), source)
    if names is None:
        return sorted(set(states["STUSPS"].astype(str)))
    return list(dict.fromkeys(str(_find_state(states, name)["STUSPS"]) for name in names))

"""Boundaries of states, counties and urban areas from the US Census Bureau."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, UnreachableError, named
from geogp.files import sha256_of
from geogp.geodata.places.layers import COUNTY, TRACT, URBAN_AREA, PolygonLayer
from geogp.geodata.places.polygons import read_polygons
from geogp.geodata.places.region import Region, Strata
from geogp.geodata.places.state_names import AUTO, INVENTED, URBAN_VINTAGES, unknown_state
from geogp.geodata.store.sources import Source
from geogp.geodata.tiles.ookla import InputFile
from geogp.geodata.tiles.parquet_files import reading_process

_FOLDERS = {"cb_2018": "GENZ2018/shp/", "cb_2020": "GENZ2020/shp/"}
"""Folder of a file on the Census Bureau's site, by the first letters of the file's name."""

# Possible names of files; the first file that exists is read.
STATE_FILES = ("states.parquet", "cb_2018_us_state_500k.zip", "cb_2018_us_state_5m.zip")
COUNTY_FILES = ("counties_{code}.parquet", "cb_2018_us_county_500k.zip")
TRACT_FILES = (
    "tracts_{code}.parquet",
    "cb_2020_{number}_tract_500k.zip",
    "cb_2018_{number}_tract_500k.zip",
)
OWN_URBAN_FILE = "urban_areas_{code}.parquet"  # the urban areas of one state, from any census
URBAN_FILES = {
    2020: (
        "cb_2020_us_ua20_corrected_500k.zip",
        "cb_2020_us_ua20_500k.zip",
        "tl_2020_us_uac20.zip",
    ),
    2010: ("cb_2018_us_ua10_500k.zip", "tl_2020_us_uac10.zip"),
    2000: ("ua99_d00_shp.zip",),
}

COAST_DEGREES = 0.02  # largest distance of the coastlines of a county and its state, about 2 km

_STATE_COLUMNS = ("STUSPS", "NAME", "STATEFP")

_CODE = re.compile(r"[\w-]{1,60}")


@dataclass(frozen=True)
class Boundaries:
    """A region, its counties and urban areas (None if not found), the files read, and warnings.

    `on_land` says whether the region lost what lies outside the states; see `read_around`.
    """

    region: Region
    files: tuple[InputFile, ...]
    warnings: tuple[str, ...]
    counties: PolygonLayer | None = None
    urban_areas: PolygonLayer | None = None
    on_land: bool = False


@reading_process()
def read_region(source: Source, name: str, vintage: str = AUTO) -> Boundaries:
    """Return a state, given by postal code, name or FIPS number, with its urban areas.

    `source` is a folder or address with ``states.parquet``, ``urban_areas_<ST>.parquet`` and
    ``counties_<ST>.parquet``, or with the Census Bureau's zip files. `vintage`, one of
    `VINTAGE_CHOICES`, is the census of the urban areas. Raises RequestError if the state is unknown
    or has no such urban areas. Raises DataError if a file is missing, damaged, or from an unknown
    census, and NetworkError if the source could not be read.
    """
    reading = _Reading(source)
    row = _find_state(_all_states(reading), name)
    code, number = str(row["STUSPS"]), str(row["STATEFP"])
    counties = _counties(reading, [code])
    if counties is not None and "STATEFP" in counties:
        counties = counties[counties["STATEFP"].astype(str) == number]
    if counties is not None and not len(counties):
        raise DataError(f"{reading.files[-1].name} in {source.where} contains no county of {code}.")
    region = Region.from_geometry(code, str(row["NAME"]), row.geometry)
    region = replace(region, invented=_is_true(row.get(INVENTED)))
    urban = _urban_areas(reading, [code], vintage)
    return _boundaries(reading, region, counties, urban)


@reading_process()
def read_around(
    source: Source,
    region: Region,
    vintage: str = AUTO,
    measured: NDArray[np.object_] | None = None,
) -> Boundaries:
    """Return a user's region with the urban areas and counties that touch the region.

    If `measured` are the boxes of tiles (m,), the region loses what lies outside the states that it
    touches, but keeps these boxes. Without a file of states, only files of the whole country are
    read, and nothing is cut off. Raises the errors of `read_region`.
    """
    reading = _Reading(source)
    states = _states(reading)
    touched = gpd.GeoDataFrame() if states is None else states[states.intersects(region.wrapped)]
    codes = [str(code) for code in touched.get("STUSPS", ())]
    on_land = measured is not None and len(touched) > 0
    if measured is not None and on_land:
        land = touched.geometry.union_all()
        beyond = measured[~shapely.covers(land, measured)]
        shape = shapely.union_all([region.wrapped.intersection(land), *beyond])
        region = Region.from_geometry(region.code, region.name, shape)
    region = replace(region, invented=any(map(_is_true, touched.get(INVENTED, ()))))
    counties = _counties(reading, codes)
    if counties is not None:
        counties = counties[counties.intersects(region.wrapped)]
    made = _boundaries(reading, region, counties, _urban_areas(reading, codes, vintage))
    return replace(made, on_land=on_land)


@reading_process()
def read_tracts(source: Source, region: Region) -> PolygonLayer | None:
    """Return the Census tracts that touch a region; None if there is no file.

    The file of a state, with postal code ST and number NN, is ``tracts_<ST>.parquet`` or
    ``cb_2020_<NN>_tract_500k.zip``. Raises the errors of `read_region`.
    """
    reading, tables = _Reading(source), []
    states = _all_states(reading)
    for _, state in states[states.intersects(region.wrapped)].iterrows():
        names = {"code": state["STUSPS"], "number": state["STATEFP"]}
        tracts = reading.first([name.format(**names) for name in TRACT_FILES])
        if tracts is not None:
            tables.append(tracts[tracts.intersects(region.wrapped)])
    if not tables:
        return None
    layer = PolygonLayer.of_table(TRACT, pd.concat(tables, ignore_index=True))
    return replace(layer, snap_degrees=COAST_DEGREES)


def _boundaries(
    reading: "_Reading",
    region: Region,
    counties: gpd.GeoDataFrame | None,
    urban: gpd.GeoDataFrame | None,
) -> Boundaries:
    """Return a region with its counties and the urban areas that touch the region.

    Raises UnreachableError if the source does not answer and files are missing in the cache.
    """
    if reading.silent is not None and (counties is None or urban is None):
        raise reading.silent
    where, layer = reading.source.where, None
    warnings: list[str] = []
    if reading.silent is not None:
        names = ", ".join(file.name for file in reading.files)
        warnings.append(f"{where} could not be reached; these files come from the cache: {names}.")
    if counties is not None and len(counties):
        layer = replace(PolygonLayer.of_table(COUNTY, counties), snap_degrees=COAST_DEGREES)
    if urban is None:
        warnings.append(
            f"found no urban areas of {region.name} in {where}: geogp maps the region without the "
            "urban and rural strata."
        )
        return Boundaries(region, tuple(reading.files), tuple(warnings), layer)
    near = urban[urban.intersects(region.wrapped)]
    if not len(near):
        warnings.append(f"no urban area in {reading.files[-1].name} touches {region.name}.")
    strata = Strata.of_urban_areas(near.geometry.union_all(), _vintage(urban, where))
    towns = PolygonLayer.of_table(URBAN_AREA, near) if len(near) else None
    region = region.with_strata(strata)
    return Boundaries(region, tuple(reading.files), tuple(warnings), layer, towns)


def _all_states(reading: "_Reading") -> gpd.GeoDataFrame:
    """Return the table of the states in a source; raise DataError if there is none."""
    states = _states(reading)
    if states is None and reading.silent is not None:
        raise reading.silent
    if states is None:
        where = reading.source.where
        raise DataError(f"no state boundaries in {where}; expected {STATE_FILES[0]}.")
    return states


def _states(reading: "_Reading") -> gpd.GeoDataFrame | None:
    """Return the table of the states in a source, or None if the source has no such file."""
    states = reading.first(STATE_FILES)
    if states is None:
        return None
    absent = [name for name in _STATE_COLUMNS if name not in states]
    if absent:
        raise DataError(
            f"expected columns {', '.join(_STATE_COLUMNS)} in the states of "
            f"{reading.source.where}, found no {named(absent)}."
        )
    odd = [code for code in map(str, states["STUSPS"]) if not _CODE.fullmatch(code)]
    if odd:  # codes are parts of file names
        raise DataError(
            f"expected codes of letters and digits in the states of {reading.source.where}, found "
            f"{odd[0]!r}."
        )
    return states


def _counties(reading: "_Reading", codes: Sequence[str]) -> gpd.GeoDataFrame | None:
    """Return the counties of the given states or of the whole country; None if not found."""
    own, *national = COUNTY_FILES
    table = reading.of_states(own, codes)
    return reading.first(national) if table is None else table


def _urban_areas(
    reading: "_Reading", codes: Sequence[str], vintage: str
) -> gpd.GeoDataFrame | None:
    """Return the urban areas of one census, by default of the newest; None if not found."""
    where, before = reading.source.where, list(reading.files)
    areas = reading.of_states(OWN_URBAN_FILE, codes)
    year = None if areas is None else _vintage(areas, where)
    if vintage == AUTO:
        newer = [each for each in URBAN_FILES if year is None or each > year]
    else:
        newer = [] if str(year) == vintage else [int(vintage)]
    after, reading.files = reading.files, before
    national = reading.first([name for each in newer for name in URBAN_FILES[each]])
    if national is not None:
        return national
    if vintage not in {AUTO, str(year)}:
        other = "" if year is None else f", only urban areas of {year}"
        raise RequestError(
            f"found no urban areas of {vintage} in {where}{other}; expected "
            f"{URBAN_FILES[int(vintage)][0]}. Leave --urban-vintage out to use the newest census."
        )
    reading.files = after
    return areas


@dataclass
class _Reading:
    """A source, the files read from it so far, and its error if it does not answer."""

    source: Source
    files: list[InputFile] = field(default_factory=list)
    silent: UnreachableError | None = None

    def first(self, names: Sequence[str]) -> gpd.GeoDataFrame | None:
        """Return the polygons of the first file in `names` that exists, or None.

        If the source does not answer, this method and later calls use only files in the cache.
        """
        for place in (f"{folder}{name}" for name in names for folder in _folders(name)):
            try:
                path = self.source.find(place, ask=self.silent is None)
            except UnreachableError as error:
                self.silent = error
                continue
            if path is not None:
                table = read_polygons(path)
                name = place.rpartition("/")[2]
                self.files.append(InputFile(name, sha256_of(path), len(table), len(table)))
                return table
        return None

    def of_states(self, name: str, codes: Sequence[str]) -> gpd.GeoDataFrame | None:
        """Return the polygons in the files of some states as one table, without repetitions."""
        tables = [
            table for code in codes if (table := self.first([name.format(code=code)])) is not None
        ]
        if len(tables) < 2:
            return tables[0] if tables else None
        together = pd.concat(tables, ignore_index=True)
        return together[~together.geometry.to_wkb().duplicated()]


def _folders(name: str) -> list[str]:
    """Return the folders to search for a file: the top folder, and the Census Bureau's folder."""
    return ["", *(folder for start, folder in _FOLDERS.items() if name.startswith(start))]


def _find_state(states: gpd.GeoDataFrame, name: str) -> gpd.GeoSeries:
    wanted = name.strip().casefold()
    for column in _STATE_COLUMNS:
        match = states[states[column].astype(str).str.casefold() == wanted]
        if len(match):
            return match.iloc[0]
    raise unknown_state(name, zip(states["NAME"].map(str), states["STUSPS"].map(str), strict=True))


def _is_true(value: object) -> bool:
    """Return whether a value of a table, which can be empty, is true."""
    return str(value) == "True"


def _vintage(urban: gpd.GeoDataFrame, where: str) -> int:
    for column, year in URBAN_VINTAGES.items():
        if column in urban:
            return year
    raise DataError(
        f"the urban areas in {where} come from an unknown census: expected one of the columns "
        f"{', '.join(URBAN_VINTAGES)}, found {named(urban.columns)}."
    )


def state_codes(source: Source, names: Sequence[str] | None = None) -> list[str]:
    """Return the postal codes of states, without repetitions.

    `names` are postal codes, names or FIPS numbers; the default is all states of the source.
    Raises the errors of `read_region`.
    """
    states = _all_states(_Reading(source))
    if names is None:
        return sorted(set(states["STUSPS"].astype(str)))
    return list(dict.fromkeys(str(_find_state(states, name)["STUSPS"]) for name in names))

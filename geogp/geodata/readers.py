"""Functions that read a region or its tiles with one call."""

import warnings
from pathlib import Path

import geopandas as gpd

from geogp.choices import one_of
from geogp.geodata.places.region import Region
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.places.stratum_column import stratum_column
from geogp.geodata.store.addresses import PUBLIC_SOURCE
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.observations import quarter_periods
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import format_quadkeys, tile_areas_km2
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import SERVICES, find_target


def read_region(
    name: str | Path,
    *,
    boundaries: str | Path | None = None,
    urban_vintage: str = "auto",
    strata: str | Path | None = None,
) -> Region:
    """Read a region: a state of the U.S. Census, or polygons of your own.

    Parameters
    ----------
    name
        A state, such as ``PR``, ``Puerto Rico`` or ``72``; or a file of polygons, ``FILE`` or
        ``FILE:COLUMN=VALUE``.
    boundaries
        Folder or address of Census boundaries. It defaults to the Bureau's own site for a state,
        and to no boundaries for a file.
    urban_vintage
        Census of the urban areas: ``auto``, ``2000``, ``2010`` or ``2020``.
    strata
        Polygons of your own two strata, as ``FILE`` or ``FILE:COLUMN``, instead of urban and rural.

    Returns
    -------
    Region
        The region, with its code, name, boundary, bounds, strata and tiles.

    Raises
    ------
    RequestError
        There is no such state; the message gives the nearest names.
    DataError
        A file is missing or damaged.
    NetworkError
        The boundaries could not be fetched.

    Warns
    -----
    UserWarning
        Urban areas are missing, boundaries come from the cache, or your own strata overlap, leave
        gaps or are empty.
    """
    text = str(name)
    own = isinstance(name, Path) or Path(text.rpartition(":")[0] or text).is_file()
    found = RegionChoice(
        region=None if own else text,
        file=text if own else None,
        boundaries=None if boundaries is None else str(boundaries),
        urban_vintage=urban_vintage,
        strata=None if strata is None else str(strata),
    ).read()
    _warn(found.warnings)
    return found.region


def read_tiles(
    region: Region | str | Path,
    *,
    target: str = "download",
    service: str = "mobile",
    quarters: str | None = None,
    source: str | Path = PUBLIC_SOURCE,
) -> gpd.GeoDataFrame:
    """Read Ookla's tiles of a region as a table of measurements.

    Parameters
    ----------
    region
        A result of `read_region`, or a `name` as in `read_region`.
    target
        ``download`` or ``upload``, in log10 of Mbps; ``latency``, in log10 of ms; or ``tests``, the
        number of tests in every tile of the region, 0 for a tile without a row in Ookla's files.
    service
        ``mobile`` or ``fixed``.
    quarters
        ``2022Q1..2023Q4``, ``2021Q3``, or several of these with commas; by default all quarters of
        `source`.
    source
        Ookla's bucket, or a folder or address with the same layout. Data from an address are stored
        in the cache.

    Returns
    -------
    GeoDataFrame
        A table in EPSG:4326 with a row for each tile and quarter. The columns are ``longitude`` and
        ``latitude`` of the centroid, ``quarter`` (``Period[Q]``), ``y`` (the target), ``tests``,
        ``devices``, ``stratum`` and ``quadkey``; for the target ``tests`` also ``area_km2``, the
        area of the tile. `attrs` contains the target, the service, the attribution, and the rows
        that were left out.

    Raises
    ------
    RequestError
        An unknown target, service or quarter.
    DataError
        There are no tiles, or a file is damaged.
    NetworkError
        The source could not be read.

    Warns
    -----
    UserWarning
        Quarters are missing or have few rows, or rows were left out.
    """
    find_target(target)
    place = region if isinstance(region, Region) else read_region(region)
    one_of("service", service, SERVICES)
    found = read_observations(
        open_source(str(source)),
        place,
        service=service,
        target=target,
        quarters=None if quarters is None else parse_quarters(str(quarters)),
    )
    _warn(found.warnings)
    seen = found.observations
    table = gpd.GeoDataFrame(
        {
            "longitude": seen.longitude,
            "latitude": seen.latitude,
            "quarter": quarter_periods(seen.quarter),
            "y": seen.y,
            "tests": seen.tests,
            "devices": seen.devices,
            "stratum": stratum_column(seen.stratum, seen.strata),
            "quadkey": format_quadkeys(seen.quadkey),
        },
        geometry=gpd.points_from_xy(seen.longitude, seen.latitude),
        crs="EPSG:4326",
    )
    if find_target(target).counted:
        table["area_km2"] = tile_areas_km2(seen.latitude)
    table.attrs = {
        "target": target,
        "service": service,
        "attribution": found.attribution,
        "rows_left_out": [one.described() for one in found.left_out],
    }
    return table


def _warn(texts: tuple[str, ...]) -> None:
    for text in texts:
        warnings.warn(text, UserWarning, stacklevel=3)

"""The public functions `read_region` and `read_tiles`."""

import warnings
from pathlib import Path

import geopandas as gpd

from geogp.arguments import checked_arguments
from geogp.choices import one_of
from geogp.geodata.places.file_choice import file_and_rest
from geogp.geodata.places.region import Region
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.places.stratum_column import stratum_column
from geogp.geodata.store.addresses import PUBLIC_SOURCE
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.observations import quarter_periods
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import format_quadkeys, tile_areas_km2
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import SERVICES, check_in_tiles, find_target, target_of


@checked_arguments
def read_region(
    name: str | Path,
    *,
    boundaries: str | Path | None = None,
    urban_vintage: str = "auto",
    strata: str | Path | None = None,
    crs: str | None = None,
) -> Region:
    """Read a region: a state of the United States, or polygons of your own.

    Parameters
    ----------
    name
        A state, such as ``PR``, ``Puerto Rico`` or ``72``; or a file of polygons, ``FILE`` or
        ``FILE:COLUMN=VALUE``. A file with several layers needs one: ``FILE:LAYER`` and so on.
    boundaries
        Folder or web address of Census boundaries. The default for a state is the site of the
        Census Bureau; by default, a file of polygons is used without Census boundaries.
    urban_vintage
        Census year of the urban areas: ``2000``, ``2010``, ``2020``, or ``auto`` for the newest.
    strata
        File of your own two strata, as ``FILE`` or ``FILE:COLUMN``; the default is urban and rural.
    crs
        Code of the coordinate system, such as ``EPSG:4326``, of files of polygons that state none.

    Returns
    -------
    Region
        The region, with its code, name, boundary, bounds, strata and tiles.

    Raises
    ------
    RequestError
        The state is unknown; the message lists similar names.
    DataError
        A file is missing or damaged.
    NetworkError
        The boundaries could not be downloaded.

    Warns
    -----
    UserWarning
        The region has no urban areas, the boundaries come from the cache, or your own strata are
        empty, overlap, or do not cover the region.
    """
    text = str(name)
    own = isinstance(name, Path) or file_and_rest(text)[0].is_file()
    read = RegionChoice(
        region=None if own else text,
        file=text if own else None,
        boundaries=None if boundaries is None else str(boundaries),
        urban_vintage=urban_vintage,
        strata=None if strata is None else str(strata),
        crs=crs,
    ).read()
    _warn(read.warnings)
    return read.region


@checked_arguments
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
        The result of `read_region`, or a `name` that `read_region` accepts.
    target
        ``download`` or ``upload``, in log10 of Mbps; ``latency``, in log10 of ms; ``tests``, the
        number of tests in each tile, also in tiles without a test; or ``tier``, the number of the
        tier of download and upload speed, from 0 (below 5/1 Mbps) to 3 (35/3 Mbps); for the fixed
        service from 0 (below 25/3 Mbps) to 2 (100/20 Mbps), with the name ``fixed-tier``. Or
        several of download, upload and latency, such as ``download,upload``.
    service
        ``mobile`` or ``fixed``.
    quarters
        ``2022Q1..2023Q4``, ``2021Q3``, or several of these, separated by commas; by default all
        quarters of `source`.
    source
        Ookla's public bucket, or a folder or web address with the same layout. Downloaded data are
        stored in the cache.

    Returns
    -------
    GeoDataFrame
        A table in EPSG:4326 with a row for each tile and quarter. The columns are ``longitude`` and
        ``latitude`` of the centroid, ``quarter`` (``Period[Q]``), ``y`` (the target), ``tests``,
        ``devices``, ``stratum`` and ``quadkey``. For the target ``tests``, the column ``area_km2``
        is the area of the tile. With several targets, ``y`` is the first, and each has a column
        with its name; a row with an impossible value of one of them is left out. The attribute
        ``attrs`` of the table contains the target, the service, the attribution, and the rows that
        were left out.

    Raises
    ------
    RequestError
        The target, the service or a quarter is unknown.
    DataError
        There are no tiles, or a file is damaged.
    NetworkError
        The source does not answer, or answers with an error.

    Warns
    -----
    UserWarning
        Quarters are missing or have few rows, or rows with impossible values were left out.
    """
    check_in_tiles(target)
    place = region if isinstance(region, Region) else read_region(region)
    one_of("service", service, SERVICES)
    target = target_of(target, service)
    ingested = read_observations(
        open_source(str(source)),
        place,
        service=service,
        target=target,
        quarters=None if quarters is None else parse_quarters(str(quarters)),
    )
    _warn(ingested.warnings)
    seen = ingested.observations
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
    if seen.every is not None:
        table[[*seen.targets]] = seen.every
    if find_target(target).counted:
        table["area_km2"] = tile_areas_km2(seen.latitude)
    table.attrs = {
        "target": target,
        "service": service,
        "attribution": ingested.attribution,
        "rows_left_out": [left.described() for left in ingested.left_out],
    }
    return table


def _warn(texts: tuple[str, ...]) -> None:
    for text in texts:
        warnings.warn(text, UserWarning, stacklevel=4)

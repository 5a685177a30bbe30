"""Counts of tests of every tile of a region, also of tiles without a test."""

import numpy as np

from geogp.errors import RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.observations import Observations

MOST_ROWS = 5_000_000
"""More tiles times quarters than this are refused: their table alone would take 0.4 GB."""


def complete_counts(measured: Observations, region: Region) -> Observations:
    """Return all tiles of a region in each quarter with data, with 0 tests where none was made.

    Ookla publishes only tiles with tests. The other tiles of zoom 16 with their centre in the
    region are counts of 0, which the likelihood of a rate needs as much. RequestError above 5
    million tiles times quarters.
    """
    quarters = measured.quarters
    most = MOST_ROWS // len(quarters)
    about = region.about_tiles(quadkeys.ZOOM, most)
    if about > most:
        fewer = MOST_ROWS // about
        cure = f"Ask for {fewer} or fewer with --quarters." if fewer else "Map a part of it."
        raise RequestError(
            f"{region.name} has about {about:,} tiles; with {len(quarters)} quarters these are "
            f"{about * len(quarters):,} counts, more than {MOST_ROWS:,}. {cure}"
        )
    tiles = region.tiles(quadkeys.ZOOM)
    codes = np.union1d(quadkeys.tiles_to_codes(tiles.column, tiles.row), measured.quadkey)
    longitude, latitude = quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes))
    stratum = region.stratum(longitude, latitude)
    count = len(quarters)
    at = np.searchsorted(quarters, measured.quarter) * len(codes)
    at += np.searchsorted(codes, measured.quadkey)
    tests = np.zeros(count * len(codes), np.int64)
    devices = np.zeros_like(tests)
    tests[at], devices[at] = measured.tests, measured.devices
    return Observations(
        quadkey=np.tile(codes, count),
        quarter=np.repeat(np.array(quarters, np.int64), len(codes)),
        longitude=np.tile(region.unwrap(longitude), count),
        latitude=np.tile(latitude, count),
        y=tests.astype(np.float64),
        tests=tests,
        devices=devices,
        stratum=np.tile(stratum, count),
        target=measured.target,
        service=measured.service,
        strata=region.strata_names,
    )

"""Counts of tests: every tile of the region in every quarter, zeros among them."""

import numpy as np
import pytest

from geogp.errors import RequestError
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import observations as counts
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import (
    EARTH_RADIUS_KM,
    codes_to_tiles,
    tile_areas_km2,
    tile_bounds,
    tile_centres,
    tiles_to_codes,
)
from geogp.geodata.tiles.quarters import parse_quarters


def _read(bucket, region, quarters="2020Q1..2020Q3", target="tests"):
    return read_observations(
        Folder(bucket), region, target=target, quarters=parse_quarters(quarters)
    ).observations


def test_every_tile_is_there_in_every_quarter(bucket, testland):
    found = _read(bucket, testland)
    tiles = testland.tiles(16)
    codes = np.sort(tiles_to_codes(tiles.column, tiles.row))
    assert len(found) == 3 * len(tiles)
    for quarter in found.quarters:
        np.testing.assert_array_equal(found.quadkey[found.quarter == quarter], codes)
    assert len(found.quarters) == 3


def test_counts_are_those_of_the_files_and_zero_elsewhere(bucket, testland):
    found, measured = _read(bucket, testland), _read(bucket, testland, target="download")
    assert found.tests.sum() == measured.tests.sum() > 0
    assert found.devices.sum() == measured.devices.sum()
    np.testing.assert_array_equal(found.y, found.tests)
    assert (found.tests > 0).sum() == len(measured)
    rows = found.tests > 0
    for name in ("quadkey", "quarter", "longitude", "latitude", "tests", "devices", "stratum"):
        np.testing.assert_array_equal(getattr(found, name)[rows], getattr(measured, name))
    assert (found.target, found.service) == ("tests", "mobile")


def test_places_are_those_of_the_tiles(bucket, testland):
    found = _read(bucket, testland, "2020Q2")
    longitude, latitude = tile_centres(*codes_to_tiles(found.quadkey))
    np.testing.assert_allclose(found.latitude, latitude)
    np.testing.assert_allclose(found.longitude, testland.unwrap(longitude))
    np.testing.assert_array_equal(found.stratum, testland.stratum(longitude, latitude))


def test_too_many_tiles_are_refused_with_the_number(bucket, testland, monkeypatch):
    tiles = len(testland.tiles(16))
    monkeypatch.setattr(counts, "MAX_ROWS", 2 * tiles)
    assert len(_read(bucket, testland, "2020Q1..2020Q2")) == 2 * tiles
    message = (
        rf"about {tiles:,} tiles; with 3 quarters this gives {3 * tiles:,} counts, .* Choose 2"
    )
    with pytest.raises(RequestError, match=message):
        _read(bucket, testland)
    monkeypatch.setattr(counts, "MAX_ROWS", tiles - 1)
    with pytest.raises(RequestError, match="Map a part of the region"):
        _read(bucket, testland, "2020Q1")


def test_areas_are_those_of_the_sphere():
    """Against the area between parallels, R² (sin a - sin b) times the longitudes between."""
    column, row = np.full(4, 20_000), np.array([32_768, 29_000, 25_000, 12_000])
    bounds = tile_bounds(column, row)
    width = np.deg2rad(bounds.east - bounds.west)
    height = np.sin(np.deg2rad(bounds.north)) - np.sin(np.deg2rad(bounds.south))
    _, latitude = tile_centres(column, row)
    ratio = (6378.137 / EARTH_RADIUS_KM) ** 2
    expected = ratio * EARTH_RADIUS_KM**2 * width * height
    np.testing.assert_allclose(tile_areas_km2(latitude), expected, rtol=1e-4)
    np.testing.assert_allclose(tile_areas_km2(latitude, 14), 16 * tile_areas_km2(latitude))


@pytest.mark.parametrize("zoom", [10, 16])
def test_tiles_are_counted_before_they_are_made(testland, zoom):
    exact = len(testland.tiles(zoom))
    assert testland.about_tiles(zoom, 10**7) == exact
    assert testland.about_tiles(16, 40) == pytest.approx(len(testland.tiles(16)), rel=0.3)

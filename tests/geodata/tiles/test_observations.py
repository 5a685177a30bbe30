"""Observations: counts of tests with zeros, row groups of a file, and the table itself."""

import dataclasses

import numpy as np
import pytest
from bucket_files import tile_columns, write_quarter

from geogp.errors import RequestError
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import observations as counts
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import (
    codes_to_tiles,
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


@pytest.mark.parametrize("zoom", [10, 16])
def test_tiles_are_counted_before_they_are_made(testland, zoom):
    exact = len(testland.tiles(zoom))
    assert testland.about_tiles(zoom, 10**7) == exact
    assert testland.about_tiles(16, 40) == pytest.approx(len(testland.tiles(16)), rel=0.3)


def test_row_groups_that_touch_the_region_at_one_tile_are_read(tmp_path, testland):
    """At the last tile of a range of codes, which starts its group, and at the first of one."""
    first, last = testland.code_ranges.T
    tiles = testland.tiles()
    inside = quadkeys.tiles_to_codes(tiles.column, tiles.row).astype(np.int64)
    end, start = np.intersect1d(last, inside)[0], np.intersect1d(first, inside)[0]
    codes = np.array([end, end + 1, start - 1, start])
    for code in (end + 1, start - 1):
        assert not ((first <= code) & (code <= last)).any()
    texts = quadkeys.format_quadkeys(codes.astype(np.uint64)).tolist()
    write_quarter(tmp_path, "2020Q1", tile_columns(texts), rows=2)
    read = read_observations(Folder(tmp_path), testland, quarters=parse_quarters("2020Q1"))
    assert read.observations.quadkey.astype(np.int64).tolist() == [end, start]


def test_observations_know_their_length_and_quarters():
    empty = {
        field.name: np.zeros(3)
        for field in dataclasses.fields(Observations)
        if field.name not in {"target", "service"}
    }
    changes = {"quarter": np.array([8080, 8077, 8080]), "target": "download", "service": "mobile"}
    table = Observations(**(empty | changes))
    assert len(table) == 3
    assert table.quarters == (8077, 8080)

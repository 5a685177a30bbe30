"""The map as a table of tiles."""

import json
from dataclasses import replace

import geopandas as gpd
import mercantile
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from maps_worlds import irregular_region, make_world
from shapely.geometry import box

from geogp.errors import DataError
from geogp.geodata.places.region import Region, Tiles
from geogp.maps.frame import Frame
from geogp.maps.tile_table import tile_table, write_tile_table


@pytest.fixture(scope="module")
def counties(world):
    west = world.tiles.centres[0] < -66.5
    return np.where(west, "West", "East")


@pytest.fixture(scope="module")
def path(world, counties, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "tiles.parquet"
    write_tile_table(world.grid, world.tiles, path, county=counties)
    return path


@pytest.fixture(scope="module")
def table(path):
    return gpd.read_parquet(path)


def tiles_of(table):
    return [mercantile.quadkey_to_tile(quadkey) for quadkey in table["quadkey"]]


def test_a_row_for_each_tile_with_all_values_of_the_grid(world, table):
    frame = Frame.of_grid(world.grid)
    assert len(table) == len(world.tiles)
    assert table["quadkey"].is_monotonic_increasing
    assert table["quadkey"].is_unique
    rows = np.array([tile.y - frame.row for tile in tiles_of(table)])
    columns = np.array([tile.x - frame.column for tile in tiles_of(table)])
    for name, variable in world.grid.data_vars.items():
        np.testing.assert_array_equal(table[name], variable.values[rows, columns], err_msg=name)
    assert table["median_mbps"].dtype == np.float32
    assert table["tests"].dtype == np.int32
    assert table["far"].dtype == bool
    assert np.all((table["stratum"] == "urban") == table["urban"])
    assert 0 < table["urban"].mean() < 1


def test_squares_are_those_of_the_quadkeys(table):
    assert table.crs.equals("OGC:CRS84")
    expected = np.array([mercantile.bounds(tile) for tile in tiles_of(table)])
    np.testing.assert_allclose(table.geometry.bounds, expected, rtol=1e-12)
    areas = shapely.area(table.geometry.to_numpy())
    np.testing.assert_allclose(areas, np.prod(expected[:, 2:] - expected[:, :2], axis=1), rtol=1e-9)
    centres = np.column_stack([table["longitude"], table["latitude"]])
    np.testing.assert_allclose(centres, (expected[:, :2] + expected[:, 2:]) / 2, rtol=1e-12)


def test_counties_follow_their_tiles(table):
    assert np.all((table["county"] == "West") == (table["longitude"] < -66.5))


@pytest.mark.parametrize("first", [None, "West"])
def test_a_tile_of_no_county_has_none(world, first):
    names = np.full(len(world.tiles), None, object)
    names[0] = first
    column = tile_table(world.grid, world.tiles, county=names)["county"]
    assert column.type == pa.string()
    assert column.null_count == len(world.tiles) - (first is not None)


def test_columns_say_what_they_are(world, path):
    schema = pq.read_schema(path)
    assert schema.field("median_mbps").metadata == {
        b"long_name": b"median of the predicted download speed",
        b"units": b"Mbit s-1",
    }
    assert b"units" not in schema.field("far").metadata
    told = json.loads(schema.metadata[b"geogp"])
    assert told == dict(world.grid.attrs)
    geo = json.loads(schema.metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    west, south, east, north = geo["columns"]["geometry"]["bbox"]
    assert (west, south, east, north) == pytest.approx(gpd.read_parquet(path).total_bounds)


def test_without_urban_areas_and_counties(latency_world, tmp_path):
    write_tile_table(latency_world.grid, latency_world.tiles, tmp_path / "tiles.parquet")
    table = gpd.read_parquet(tmp_path / "tiles.parquet")
    assert set(table["stratum"]) == {"unknown"}
    assert not {"county", "urban"} & set(table.columns)
    assert "median_ms" in table


def test_longitudes_beyond_the_antimeridian_are_wrapped(tmp_path):
    region = Region.from_geometry(
        "XX", "Both sides", box(179, 51, 180, 52).union(box(-180, 51, -179, 52)), None, None
    )
    world = make_world(region, 12)
    write_tile_table(world.grid, world.tiles, tmp_path / "tiles.parquet")
    table = gpd.read_parquet(tmp_path / "tiles.parquet")
    assert len(table) == len(world.tiles)
    west, _, east, _ = table.total_bounds
    assert -180 <= west < -179
    assert 179 < east <= 180
    expected = np.array([mercantile.bounds(tile) for tile in tiles_of(table)])
    np.testing.assert_allclose(table.geometry.bounds, expected, rtol=1e-12)
    frame = Frame.of_grid(world.grid)
    columns = (np.array([tile.x for tile in tiles_of(table)]) - frame.column) % (1 << 12)
    rows = np.array([tile.y for tile in tiles_of(table)]) - frame.row
    np.testing.assert_array_equal(
        table["median_mbps"], world.grid["median_mbps"].values[rows, columns]
    )


def test_a_large_table_is_small(tmp_path):
    """Places, squares and strata of 60,000 tiles or so take 20 bytes a tile and less."""
    region = irregular_region()
    tiles = region.tiles(17)
    world = make_world(region, 17)
    assert len(tiles) > 50_000
    grid = world.grid[["urban"]].assign_attrs(world.grid.attrs)
    write_tile_table(grid, tiles, tmp_path / "t")
    assert (tmp_path / "t").stat().st_size < 20 * len(tiles)


def test_refusals(world, counties):
    with pytest.raises(DataError, match=rf"a county for each of {len(world.tiles)} tiles"):
        tile_table(world.grid, world.tiles, county=counties[1:])
    moved = replace(world.tiles, column=world.tiles.column + 10_000)
    with pytest.raises(DataError, match="lie outside the raster"):
        tile_table(world.grid, moved)
    other = Tiles(world.tiles.column, world.tiles.row, 15)
    with pytest.raises(DataError, match="expected tiles of zoom 14, found zoom 15"):
        tile_table(world.grid, other)

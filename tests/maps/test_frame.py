import numpy as np
import pytest
from pyproj import Transformer

from geogp.errors import DataError
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles import quadkeys
from geogp.maps.frame import Frame, to_mercator


def test_projection_equals_proj():
    longitude, latitude = np.array([-66.1, 12.5, 179.9]), np.array([18.4, -47.0, 71.0])
    proj = Transformer.from_crs("EPSG:4326", "EPSG:3857", always_xy=True)
    np.testing.assert_allclose(
        to_mercator(longitude, latitude), proj.transform(longitude, latitude), rtol=1e-12
    )


def test_projection_is_continuous_beyond_the_antimeridian():
    easting, _ = to_mercator([-179.5, -180.5], [60.0, 60.0])
    assert easting[0] - easting[1] == pytest.approx(quadkeys.HALF_WORLD_M / 180)


def test_every_tile_lands_in_the_pixel_of_its_centre(world):
    frame = Frame.of_tiles(world.tiles)
    numbers = np.arange(len(world.tiles), dtype=float)
    raster = frame.place(world.tiles, numbers, np.nan)
    easting, northing = to_mercator(*world.tiles.centres)
    across = np.abs(frame.x[:, None] - easting).argmin(axis=0)
    down = np.abs(frame.y[:, None] - northing).argmin(axis=0)
    np.testing.assert_array_equal(raster[down, across], numbers)
    assert np.isfinite(raster).sum() == len(world.tiles)


def test_a_pixels_centre_is_in_the_tile_of_its_quadkey(world):
    frame = Frame.of_tiles(world.tiles)
    proj = Transformer.from_crs("EPSG:3857", "EPSG:4326", always_xy=True)
    x, y = np.meshgrid(frame.x, frame.y)
    column, row = quadkeys.tiles_at(*proj.transform(x.ravel(), y.ravel()), zoom=14)
    expected_row, expected_column = np.divmod(np.arange(column.size), frame.width)
    np.testing.assert_array_equal(column, frame.column + expected_column)
    np.testing.assert_array_equal(row, frame.row + expected_row)


def test_bounds_are_the_outer_edges_of_the_corner_tiles(world):
    frame = Frame.of_tiles(world.tiles)
    edges = quadkeys.tile_bounds(world.tiles.column, world.tiles.row, 14)
    expected = (edges.west.min(), edges.south.min(), edges.east.max(), edges.north.max())
    assert frame.bounds == expected
    corners = to_mercator([expected[0], expected[2]], [expected[1], expected[3]])
    west, south, east, north = frame.bounds_m
    np.testing.assert_allclose([[west, east], [south, north]], corners, rtol=1e-12)


def test_columns_west_of_the_antimeridian_stay_continuous():
    tiles = Tiles(np.array([-3, 2]), np.array([5, 6]), 6)
    frame = Frame.of_tiles(tiles)
    assert (frame.width, frame.height) == (6, 2)
    assert frame.bounds[0] < -180 < frame.bounds[2]
    np.testing.assert_allclose(np.diff(frame.x), quadkeys.tile_size_m(6))


@pytest.mark.parametrize(
    ("column", "row", "zoom", "message"),
    [
        ([0, 9], [0, 0], 5, r"1 of 2 tiles lie outside the raster"),
        ([0, 0], [0, 0], 5, r"each tile once, found 1 repeated"),
        ([0, 1], [0, 0], 6, r"tiles of zoom 5, found zoom 6"),
    ],
)
def test_a_tile_without_a_pixel_of_its_own_is_refused(column, row, zoom, message):
    frame = Frame(5, 0, 0, 4, 4)
    with pytest.raises(DataError, match=message):
        frame.place(Tiles(np.array(column), np.array(row), zoom), np.zeros(2), np.nan)


def test_values_of_another_number_are_refused():
    frame = Frame(5, 0, 0, 4, 4)
    with pytest.raises(DataError, match=r"each of 2 tiles, found shape \(3,\)"):
        frame.place(Tiles(np.array([0, 1]), np.array([0, 0]), 5), np.zeros(3), np.nan)


def test_no_tile_is_refused():
    empty = np.zeros(0, np.int64)
    with pytest.raises(DataError, match="at least one tile"):
        Frame.of_tiles(Tiles(empty, empty, 16))

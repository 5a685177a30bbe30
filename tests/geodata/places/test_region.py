"""Regions: holes, islands, the antimeridian, tiles and the scale, against plain shapely."""

import numpy as np
import pytest
import shapely
from bucket_files import ISLAND, LAKE, MAINLAND, TOWN, small_region
from shapely.geometry import GeometryCollection, LineString, MultiPolygon, Point, Polygon, box

from geogp.errors import DataError
from geogp.geodata.places.census import read_region
from geogp.geodata.places.region import Region
from geogp.geodata.places.stratum_names import RURAL, UNKNOWN, URBAN
from geogp.geodata.tiles import quadkeys

WEST_PART, EAST_PART = box(172.0, 51.0, 180.0, 54.0), box(-180.0, 51.0, -130.0, 71.0)


@pytest.fixture
def across() -> Region:
    """A region on both sides of the antimeridian, as Alaska is stored."""
    return Region.from_geometry("AA", "Across", MultiPolygon([WEST_PART, EAST_PART]))


def _points(bounds, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    west, south, east, north = bounds
    return random.uniform(west - 0.1, east + 0.1, n), random.uniform(south - 0.1, north + 0.1, n)


def test_points_are_tested_as_shapely_does_one_by_one(testland):
    longitude, latitude = _points(testland.bounds)
    found = testland.contains(longitude, latitude)
    expected = [
        any(part.contains(Point(x, y)) for part in testland.boundary.geoms)
        for x, y in zip(longitude, latitude, strict=True)
    ]
    np.testing.assert_array_equal(found, expected)
    assert 100 < found.sum() < len(found) - 100


@pytest.mark.parametrize(
    ("code", "name", "heading"),
    [
        ("drive_log_2024", "drive_log_2024", "Drive log 2024"),
        ("PR", "Puerto Rico", "Puerto Rico"),
        ("own_region", "own region", "own region"),  # as the user wrote it
    ],
)
def test_the_name_of_a_file_is_written_in_words(code, name, heading):
    assert Region.from_geometry(code, name, box(0, 0, 1, 1)).heading == heading


def test_holes_are_out_and_islands_are_in(testland):
    places = [Polygon(LAKE).centroid, ISLAND.centroid, TOWN.centroid, Point(-65.95, 18.16)]
    inside = testland.contains([place.x for place in places], [place.y for place in places])
    assert inside.tolist() == [False, True, True, False]


def test_stratum_is_urban_inside_an_urban_area(testland):
    longitude, latitude = _points(testland.bounds)
    found = testland.stratum(longitude, latitude)
    expected = [TOWN.contains(Point(x, y)) for x, y in zip(longitude, latitude, strict=True)]
    np.testing.assert_array_equal(found == URBAN, expected)
    np.testing.assert_array_equal(found == RURAL, np.logical_not(expected))


def test_stratum_is_unknown_without_urban_areas_and_rural_without_towns():
    none_known = small_region(urban=False)
    assert none_known.stratum([-66.17, 0], [18.12, 0]).tolist() == [UNKNOWN, UNKNOWN]
    no_town = Region.from_geometry("XX", "X", MAINLAND, MultiPolygon(), 2020)
    assert no_town.stratum([-66.17], [18.12]).tolist() == [RURAL]
    assert (no_town.urban_vintage, none_known.urban_vintage) == (2020, None)


def test_a_region_across_the_antimeridian_is_one_piece(across):
    assert across.bounds == (-188.0, 51.0, -130.0, 71.0)
    assert across.boundary.area == pytest.approx(WEST_PART.area + EAST_PART.area)
    for turn in (-360, 0, 360):
        inside = across.contains(np.array([175.0, -150.0, -189.0, 0.0]) + turn, [52, 60, 52, 60])
        assert inside.tolist() == [True, True, False, False]


def test_what_is_cut_at_180_degrees_is_joined_again():
    halves = MultiPolygon([box(179.0, 51, 180, 53), box(-180, 51, -178, 53)])
    towns = MultiPolygon([box(179.9, 51.5, 180, 52), box(-180, 51.5, -179.9, 52)])
    found = Region.from_geometry("AA", "Across", halves, towns, 2010)
    assert len(found.boundary.geoms) == len(found.strata.area.geoms) == 1
    assert found.boundary.equals(box(-181, 51, -178, 53))
    assert found.strata.area.equals(box(-180.1, 51.5, -179.9, 52))


def test_urban_areas_move_with_the_boundary():
    urban = MultiPolygon([box(173.0, 52.0, 174.0, 53.0), box(-150.0, 60.0, -149.0, 61.0)])
    both = MultiPolygon([WEST_PART, EAST_PART])
    found = Region.from_geometry("AA", "Across", both, urban, 2010)
    strata = found.stratum([173.5, -186.5, -149.5, 175.5], [52.5, 52.5, 60.5, 52.5])
    assert strata.tolist() == [URBAN, URBAN, URBAN, RURAL]


def test_unwrapped_longitudes_are_whole_turns_away_and_near(across):
    longitude = np.linspace(-720, 720, 1001)
    found = across.unwrap(longitude)
    turns = (found - longitude) / 360
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-12)
    assert np.abs(found - (-188.0 - 130.0) / 2).max() <= 180


def test_a_region_far_from_the_antimeridian_stays_where_it_is(testland):
    np.testing.assert_array_equal(
        shapely.bounds(testland.boundary), shapely.bounds(MultiPolygon([MAINLAND, ISLAND]))
    )


def _brute_force(place: Region, zoom: int) -> list[tuple[int, int]]:
    """Tiles of the box and a margin, row by row, whose centre shapely finds in the region."""
    west, south, east, north = place.bounds
    columns, rows = quadkeys.tiles_at([west, east], [north, south], zoom)
    found = []
    for row in range(rows[0] - 2, rows[1] + 3):
        for column in range(columns[0] - 2, columns[1] + 3):
            x, y = quadkeys.tile_centres(np.array(column), np.array(row), zoom)
            if place.boundary.contains(Point(float(x), float(y))):
                found.append((column, row))
    return found


@pytest.mark.parametrize(("name", "zoom"), [("testland", 14), ("testland", 16), ("across", 7)])
def test_tiles_are_those_of_brute_force(name, zoom, request):
    place = request.getfixturevalue(name)
    tiles = place.tiles(zoom)
    assert list(zip(tiles.column.tolist(), tiles.row.tolist(), strict=True)) == _brute_force(
        place, zoom
    )
    assert (len(tiles), tiles.zoom) == (len(tiles.column), zoom)
    assert place.contains(*tiles.centres).all()


def test_tiles_made_in_strips_are_the_same(testland):
    strips, tiles = list(testland._strips(16, 300)), testland.tiles(16)
    assert len(strips) > 3
    for place, expected in enumerate((tiles.column, tiles.row)):
        np.testing.assert_array_equal(np.concatenate([one[place] for one in strips]), expected)


def test_zoom_falls_until_the_tiles_fit(testland):
    counts = {zoom: len(testland.tiles(zoom)) for zoom in range(1, 17)}
    for most in (counts[16], counts[15], counts[14], 100, 30):
        zoom = testland.zoom_within(16, most)
        assert counts[zoom] <= 1.2 * most
        if zoom < 16:
            assert counts[zoom + 1] > 0.8 * most
    assert testland.zoom_within(16, counts[16]) == 16
    assert testland.zoom_within(16, counts[16] - 1) == 15
    assert testland.zoom_within(12, 10**9) == 12


def test_the_zoom_of_a_large_region_is_found_from_coarser_tiles(across, monkeypatch):
    asked = []
    tiles = Region.tiles
    monkeypatch.setattr(Region, "tiles", lambda self, zoom: asked.append(zoom) or tiles(self, zoom))
    zoom = across.zoom_within(16, 20_000)
    assert max(asked) <= 12
    assert len(tiles(across, zoom)) <= 1.05 * 20_000 < 1.2 * len(tiles(across, zoom + 1))


def test_geometry_collections_give_their_polygons():
    mixed = GeometryCollection(
        [Point(0, 0), LineString([(5, 5), (6, 6)]), GeometryCollection([MAINLAND]), ISLAND]
    )
    found = Region.from_geometry("XX", "X", mixed)
    assert found.boundary.equals(MultiPolygon([MAINLAND, ISLAND]))


def test_a_boundary_that_crosses_itself_is_repaired():
    bow_tie = Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])
    found = Region.from_geometry("XX", "X", bow_tie)
    assert found.boundary.is_valid
    assert found.contains([0.2, 1.8, 1.0], [1.0, 1.0, 0.2]).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "boundary", [Point(0, 0), LineString([(0, 0), (1, 1)]), Polygon(), GeometryCollection()]
)
def test_a_boundary_without_area_is_refused(boundary):
    with pytest.raises(DataError, match="the boundary of Nowhere contains no polygon"):
        Region.from_geometry("XX", "Nowhere", boundary)


@pytest.mark.real
def test_alaska_is_one_region(census):
    alaska = read_region(census, "AK").region
    west, _, east, _ = alaska.bounds
    assert 40 < east - west < 60
    attu_and_juneau = ([172.90, -134.42], [52.90, 58.35])
    assert alaska.contains(*attu_and_juneau).all()
    tiles = quadkeys.tiles_at(*attu_and_juneau)
    assert alaska.contains(*quadkeys.tile_centres(*tiles)).all()
    assert np.ptp(alaska.tiles(9).centres[0]) < 60


def test_a_boundary_beyond_the_tiles_is_refused():
    for bounds in ((0, 0, 500_000, 4_000_000), (0, 80, 10, 89), (-500, 0, 10, 10)):
        with pytest.raises(DataError, match="Are the coordinates in metres"):
            Region.from_geometry("XX", "Nowhere", shapely.box(*bounds))

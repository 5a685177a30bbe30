"""Quadkeys against mercantile, an independent implementation, and against Ookla's geometry."""

import itertools

import mercantile
import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from geogp.errors import DataError
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.tile_files import tile_file

ZOOMS = (1, 2, 9, 16, 23, 30)


def _tiles(zoom: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Random tiles and the four corners of the world."""
    random = np.random.default_rng(zoom)
    last = 2**zoom - 1
    column = np.append(random.integers(0, last, n, endpoint=True), [0, 0, last, last])
    row = np.append(random.integers(0, last, n, endpoint=True), [0, last, 0, last])
    return column, row


@pytest.mark.parametrize("zoom", ZOOMS)
def test_quadkeys_are_those_of_mercantile(zoom):
    column, row = _tiles(zoom)
    codes = quadkeys.tiles_to_codes(column, row, zoom)
    texts = quadkeys.format_quadkeys(codes, zoom)
    expected = [mercantile.quadkey(int(x), int(y), zoom) for x, y in zip(column, row, strict=True)]
    assert texts.tolist() == expected
    np.testing.assert_array_equal(quadkeys.parse_quadkeys(expected, zoom), codes)
    for found, wanted in zip(quadkeys.codes_to_tiles(codes), (column, row), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("zoom", ZOOMS)
def test_bounds_are_those_of_mercantile(zoom):
    column, row = _tiles(zoom)
    found = quadkeys.tile_bounds(column, row, zoom)
    tiles = [mercantile.bounds(int(x), int(y), zoom) for x, y in zip(column, row, strict=True)]
    for edge in ("west", "south", "east", "north"):
        wanted = [getattr(tile, edge) for tile in tiles]
        np.testing.assert_allclose(getattr(found, edge), wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("zoom", [1, 4, 11, 16, 22])
def test_points_fall_into_the_tiles_of_mercantile(zoom):
    random = np.random.default_rng(zoom)
    longitude, latitude = random.uniform(-180, 180, 200), random.uniform(-85, 85, 200)
    column, row = quadkeys.tiles_at(longitude, latitude, zoom)
    expected = [mercantile.tile(x, y, zoom) for x, y in zip(longitude, latitude, strict=True)]
    assert list(zip(column.tolist(), row.tolist(), strict=True)) == [t[:2] for t in expected]


@given(st.text("0123", min_size=1, max_size=32))
def test_parse_then_format_gives_the_text_back(text):
    codes = quadkeys.parse_quadkeys([text], len(text))
    assert quadkeys.format_quadkeys(codes, len(text)).tolist() == [text]
    assert int(codes[0]) == int(text, 4)


@given(st.lists(st.text("0123", min_size=16, max_size=16), min_size=2, max_size=20))
def test_codes_sort_as_texts_do(texts):
    codes = quadkeys.parse_quadkeys(texts)
    ordered = [texts[place] for place in np.argsort(codes, kind="stable")]
    assert ordered == sorted(texts)


@given(st.integers(-(2**16), 2**17), st.integers(0, 2**16 - 1))
def test_columns_beyond_the_antimeridian_are_wrapped(column, row):
    code = quadkeys.tiles_to_codes(np.array([column]), np.array([row]))
    found = quadkeys.codes_to_tiles(code)
    assert (found[0].item(), found[1].item()) == (column % 2**16, row)


def test_centres_are_the_middle_in_degrees():
    column, row = _tiles(16)
    bounds = quadkeys.tile_bounds(column, row)
    longitude, latitude = quadkeys.tile_centres(column, row)
    boxes = shapely.box(bounds.west, bounds.south, bounds.east, bounds.north)
    middle = shapely.centroid(boxes)
    np.testing.assert_allclose(longitude, shapely.get_x(middle), atol=1e-9)
    np.testing.assert_allclose(latitude, shapely.get_y(middle), atol=1e-9)


@pytest.mark.parametrize("zoom", [0, 8, 16])
def test_tile_width_is_that_of_mercantile(zoom):
    bounds = mercantile.xy_bounds(0, 0, zoom)
    assert quadkeys.tile_size_m(zoom) == pytest.approx(bounds.right - bounds.left, rel=1e-12)


@pytest.mark.real
def test_bounds_are_the_geometry_that_ookla_publishes(real_data):
    file = tile_file("mobile", quarter_index("2023Q4"))
    paths = [real_data / "ookla-open-data" / file]
    paths.append(real_data / "ookla-schema-sample-2021-2-mobile.parquet")
    for path in paths:
        table = pq.read_table(path, columns=["quadkey", "tile"])
        edges = shapely.bounds(shapely.from_wkt(table["tile"].to_numpy()))
        codes = quadkeys.parse_quadkeys(table["quadkey"].to_numpy())
        found = quadkeys.tile_bounds(*quadkeys.codes_to_tiles(codes))
        ours = np.column_stack([found.west, found.south, found.east, found.north])
        np.testing.assert_allclose(ours, edges, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["0123012301230123", "012301230123012"], "16 digits .* 1 of another length.*'0123012301"),
        (["01230123012301230"], "16 digits .*another length"),
        (["", "banana"], "found 2 of another length, the first ''"),
        (["0123012301230124"], "digits 0 to 3, found 1 .* the first '0123012301230124'"),
        (["0123012301230123", "/123012301230123"], "digits 0 to 3"),
        (["bananabananabana", "012301230123012é"], "found 2 .* the first 'bananabananabana'"),
    ],
)
def test_wrong_quadkeys_are_refused(texts, message):
    with pytest.raises(DataError, match=message):
        quadkeys.parse_quadkeys(texts)


def test_areas_are_those_of_the_sphere():
    """Against the area between parallels, R² (sin a - sin b) times the longitudes between."""
    column, row = np.full(4, 20_000), np.array([32_768, 29_000, 25_000, 12_000])
    bounds = quadkeys.tile_bounds(column, row)
    width = np.deg2rad(bounds.east - bounds.west)
    height = np.sin(np.deg2rad(bounds.north)) - np.sin(np.deg2rad(bounds.south))
    _, latitude = quadkeys.tile_centres(column, row)
    ratio = (6378.137 / quadkeys.EARTH_RADIUS_KM) ** 2
    expected = ratio * quadkeys.EARTH_RADIUS_KM**2 * width * height
    np.testing.assert_allclose(quadkeys.tile_areas_km2(latitude), expected, rtol=1e-4)
    np.testing.assert_allclose(
        quadkeys.tile_areas_km2(latitude, 14), 16 * quadkeys.tile_areas_km2(latitude)
    )


def test_no_quadkeys_give_no_codes():
    assert quadkeys.parse_quadkeys([]).shape == (0,)


def _touching(box, zoom: int) -> set[int]:
    """Codes of the tiles that touch a box, each asked by itself, in any turn of the world."""
    west, south, east, north = box
    touching = set()
    for x in range(2**zoom):
        for y in range(2**zoom):
            tile = mercantile.bounds(x, y, zoom)
            meets = any(
                tile.west + turn < east and west < tile.east + turn for turn in (-360, 0, 360)
            )
            if meets and tile.south < north and south < tile.north:
                touching.add(int(mercantile.quadkey(x, y, zoom), 4))
    return touching


BOXES = {
    "puerto rico": (-67.3, 17.9, -65.2, 18.5),
    "alaska": (-187.6, 51.2, -129.9, 71.4),
    "beyond 180": (170.0, -20.0, 200.0, 10.0),
    "point": (10.0, 10.0, 10.0, 10.0),
    "four quarters": (-1.0, -1.0, 1.0, 1.0),
    "world": (-179.9, -85.0, 179.9, 85.0),
}


@pytest.mark.parametrize("most", [1, 16])
@pytest.mark.parametrize("name", BOXES)
def test_ranges_cover_every_tile_that_touches_the_box(name, most):
    zoom = 5
    ranges = quadkeys.code_ranges(*BOXES[name], zoom=zoom, most=most)
    covered = [code for first, last in ranges for code in range(first, last + 1)]
    assert len(ranges) <= most
    assert covered == sorted(set(covered))
    assert set(covered) <= set(range(4**zoom))
    assert _touching(BOXES[name], zoom) <= set(covered)
    for (_, last), (first, _) in itertools.pairwise(ranges):
        assert first > last + 1  # neighbours are one range


@pytest.mark.parametrize("name", ["puerto rico", "alaska", "beyond 180", "four quarters"])
def test_with_enough_pieces_the_cover_is_exact(name):
    ranges = quadkeys.code_ranges(*BOXES[name], zoom=5, most=4**5)
    covered = {code for first, last in ranges for code in range(first, last + 1)}
    assert covered == _touching(BOXES[name], 5)


def test_ranges_of_a_small_box_are_small():
    ranges = quadkeys.code_ranges(*BOXES["puerto rico"], most=16)
    assert sum(last - first + 1 for first, last in ranges) < 4**16 / 1000

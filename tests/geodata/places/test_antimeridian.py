"""Layers across the antimeridian: every point gets the polygon that holds it."""

import geopandas as gpd
import numpy as np
import pytest
import shapely
from shapely.geometry import MultiPolygon, Polygon, box

from geogp.errors import DataError
from geogp.geodata.places.layers import ELSEWHERE, PolygonLayer, read_layer

ALBERS = 3338
"""Alaska Albers, whose plane runs on across the antimeridian."""


@pytest.fixture
def read(tmp_path):
    """Write polygons of a CRS to a file, and read them as a layer."""

    def layer_of(shapes: list, crs: int) -> PolygonLayer:
        names = [chr(ord("A") + k) for k in range(len(shapes))]
        path = tmp_path / "zones.parquet"
        gpd.GeoDataFrame({"NAME": names}, geometry=shapes, crs=crs).to_parquet(path)
        return read_layer(str(path))

    return layer_of


def _plane(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return points of longitudes and latitudes in the plane of Alaska Albers."""
    points = gpd.GeoSeries(shapely.points(longitude, latitude), crs=4326).to_crs(ALBERS)
    return shapely.get_coordinates(points.to_numpy())


def _on_plane(shape: Polygon) -> Polygon:
    return shapely.transform(shape, lambda xy: _plane(xy[:, 0], xy[:, 1]))


def test_polygons_of_alaska_albers_hold_the_points_that_they_hold_on_their_plane(read):
    """Points in the plane's own polygons, which know of no antimeridian, tell who is right."""
    across = _on_plane(box(176, 51, 188, 55).difference(box(179, 52, 183, 54)))
    west = _on_plane(box(188.5, 51, 195, 55))
    islands = MultiPolygon([_on_plane(box(170, 51, 174, 55)), _on_plane(box(178, 56, 184, 58))])
    hole_west = _on_plane(box(170, 60, 190, 64).difference(box(185, 61, 188, 63)))
    shapes = [across, west, islands, hole_west]
    layer = read(shapes, ALBERS)
    random = np.random.default_rng(0)
    longitude, latitude = random.uniform(165, 200, 4000), random.uniform(50, 65, 4000)
    plane = shapely.points(_plane(longitude, latitude))
    inside = np.stack([shapely.contains(shape, plane) for shape in shapes])
    # Straight edges of the plane are bowed in degrees where a polygon is not cut anew.
    near = np.stack([shapely.dwithin(shape.boundary, plane, 20_000) for shape in shapes]).any(0)
    expected = np.where(inside.any(0), np.array(list("ABCD"))[inside.argmax(0)], ELSEWHERE)
    for turn in (0, -360):
        found = layer.label(longitude + turn, latitude)
        assert (found[~near] == expected[~near]).all()
    assert (~near).sum() > 2000
    assert set(expected[~near]) == {*"ABCD", ELSEWHERE}
    for shape in layer.shapes:
        assert shape.is_valid
        assert -180 <= shape.bounds[0] <= shape.bounds[2] <= 180


def test_longitudes_that_run_on_beyond_180_are_turned_and_cut(read):
    far = box(195, 50, 199, 60)
    layer = read([box(170, 50, 190, 60), far, box(-200, 40, -175, 45)], 4326)
    longitude = np.array([165.0, 175.0, 185.0, -175.0, -165.0, 197.0, -163.0])
    assert layer.label(longitude, np.full(7, 55.0)).tolist() == [
        *(ELSEWHERE, "A", "A", "A", "B", "B", "B")
    ]
    assert layer.label([165.0, -178.0, -170.0], [42.0] * 3).tolist() == ["C", "C", ELSEWHERE]
    assert [shape.area for shape in layer.shapes] == pytest.approx([200, 40, 125])


def test_wide_polygons_that_do_not_cross_stay_as_they_are(read):
    wide = box(-170, 10, 170, 20)
    projected = gpd.GeoSeries([wide], crs=4326).to_crs(3857).iloc[0]
    for layer in (read([wide], 4326), read([projected], 3857)):
        assert layer.label([0.0, 175.0, -175.0], [15.0] * 3).tolist() == ["A", ELSEWHERE, ELSEWHERE]
        assert layer.shapes[0].area == pytest.approx(wide.area)


def test_what_cannot_be_turned_is_refused(read):
    with pytest.raises(
        DataError, match=r"zones\.parquet: the polygon in row 2 \(B\) encloses a pole"
    ):
        read([box(0, -2e6, 1e6, -1e6), box(-1e6, -1e6, 1e6, 1e6)], 3413)
    with pytest.raises(DataError, match=r"expected polygons in degrees, .* row 1.* metres"):
        read([box(0, 0, 5000, 5000)], 4326)

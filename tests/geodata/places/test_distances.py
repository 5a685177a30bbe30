import numpy as np
import pytest
from pyproj import Geod

from geogp.errors import DataError
from geogp.geodata.places.distances import nearest_km, spacing_km, sums_within_km


def test_distance_equals_pyproj_on_the_sphere():
    random = np.random.default_rng(0)
    lon, lat = random.uniform(-67, -65.5, 40), random.uniform(17.9, 18.5, 40)
    points = np.array([[-66.9, 18.1], [-66.2, 18.4], [-65.7, 18.15]])
    sphere = Geod(a=6371008.8, b=6371008.8)
    by_hand = [
        min(sphere.inv(x, y, px, py)[2] for px, py in points) / 1000
        for x, y in zip(lon, lat, strict=True)
    ]
    np.testing.assert_allclose(nearest_km(lon, lat, *points.T), by_hand, rtol=1e-9, atol=1e-6)


def test_a_place_among_the_points_is_at_no_distance():
    lon, lat = np.array([-66.0, -66.2, -66.0]), np.array([18.0, 18.1, 18.0])
    found = nearest_km(lon, lat, lon[::2], lat[::2])
    assert found[0] == found[2] == 0
    assert found[1] > 20


def test_distance_across_the_antimeridian_is_short():
    found = nearest_km([-180.005], [0.0], [180.005], [0.0])
    assert found[0] == pytest.approx(0.01 * np.pi / 180 * 6371.0088, rel=1e-4)


@pytest.mark.parametrize("km", [0.5, 8.0, 25_000.0])
def test_sums_are_those_of_points_within_the_distance(km):
    random = np.random.default_rng(1)
    lon, lat = random.uniform((179.9, -0.1), (180.1, 0.1), (30, 2)).T
    values = random.integers(1, 9, 30)
    places = np.array([[-180.0, 0.0], [180.05, 0.02]])
    sphere = Geod(a=6371008.8, b=6371008.8)
    by_hand = [
        sum(
            value
            for a, b, value in zip(lon, lat, values, strict=True)
            if sphere.inv(x, y, a, b)[2] <= 1000 * km
        )
        for x, y in places
    ]
    found = sums_within_km(*places.T, lon, lat, values, km=km)
    np.testing.assert_array_equal(found, by_hand)
    assert km < 20_000 or found[0] == values.sum()


def test_spacing_is_the_distance_to_the_next_place():
    longitude, latitude = np.array([0.0, 1.0, 1.0, 4.0]), np.zeros(4)
    np.testing.assert_allclose(spacing_km(longitude, latitude), np.array([1, 1, 3]) * 111.195, 1e-5)
    assert spacing_km([5.0, 5.0], [5.0, 5.0]) == pytest.approx(np.pi * 6371.0088)


def test_what_has_no_distance_is_refused():
    with pytest.raises(DataError, match=r"expected measured points, .* found 0 points"):
        nearest_km([-66.0], [18.0], [], [])
    with pytest.raises(DataError, match="1 of them not finite"):
        nearest_km([-66.0], [18.0], [-66.0, np.nan], [18.0, 18.0])
    with pytest.raises(DataError, match="finite coordinates of the places"):
        nearest_km([np.nan], [18.0], [-66.0], [18.0])

"""Inputs of models: the box to [-1, 1], and how far apart points are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geogp.errors import RequestError
from geogp.estimators.point_columns import Points
from geogp.estimators.point_scale import SPACING_KM, PointScale
from geogp.geodata.places.distances import nearest_km


def points(x, y, **more):
    return Points(np.asarray(x, float), np.asarray(y, float), **more)


@pytest.mark.parametrize("bounds", [(-67, 17, -65, 19), (-188, 51, -130, 71)])
def test_the_bounding_box_is_scaled_to_the_square(bounds):
    west, south, east, north = bounds
    x = [west, east, (west + east) / 2, west + 360, west + (east - west) / 4]
    y = [south, north, south, north, south + (north - south) / 4]
    corners = [[-1, -1], [1, 1], [0, -1], [-1, 1], [-0.5, -0.5]]
    np.testing.assert_allclose(PointScale(bounds).inputs(points(x, y)), corners, atol=1e-12)


def test_a_unit_of_the_scale_is_kilometres_at_the_middle_latitude():
    """Of a box 20 degrees tall, whose south is a quarter wider than its middle."""
    degree = 2 * np.pi * 6371.0088 / 360
    east, north = PointScale((10.0, 40.0, 12.0, 60.0)).half_size_km
    assert east == pytest.approx(degree * np.cos(np.radians(50)), rel=1e-6)
    assert north == pytest.approx(10 * degree, rel=1e-6)


def test_units_are_kilometres_on_the_sphere():
    scale = PointScale.of_points(points([10, 12], [50, 51]), "EPSG:4326")
    east, north = scale.half_size_km
    apart = nearest_km(*(np.array([v]) for v in (10.0, 50.5)), *(np.array([v]) for v in (12, 50.5)))
    assert 2 * east == pytest.approx(apart[0], rel=1e-3)
    assert 2 * north == pytest.approx(111.19, rel=1e-3)


def test_units_of_metres_and_of_plain_numbers():
    place = points([0, 2000, 0, 2000], [0, 0, 1000, 1000])
    assert PointScale.of_points(place, "EPSG:32161").half_size_km == pytest.approx((1, 0.5))
    spacing = np.sqrt(2000 * 1000 / 4)
    assert PointScale.of_points(place, None).km == pytest.approx(SPACING_KM / spacing)


DEGREES = st.floats(-20, 20, allow_subnormal=False)


@given(st.floats(-180, 180, allow_subnormal=False), st.lists(DEGREES, min_size=2, max_size=20))
def test_longitudes_go_across_180_degrees(middle, offsets):
    """Points within 40 degrees keep their distances, wherever the longitudes are cut."""
    true = np.asarray(offsets)
    if np.ptp(true) < 0.01:
        true[0] += 1
    wrapped = (true + middle + 180) % 360 - 180
    scale = PointScale.of_points(points(wrapped, np.linspace(0, 1, len(true))), "EPSG:4326")
    west, _, east, _ = scale.bounds
    assert east - west == pytest.approx(np.ptp(true), abs=1e-6)
    inputs = scale.inputs(points(wrapped, np.zeros(len(true))))[:, 0]
    assert inputs == pytest.approx(2 * (true - true.min()) / np.ptp(true) - 1, abs=1e-6)


def test_times_and_exposures():
    place = points([0, 1], [0, 1], time=np.array([4.0, 8.0]), exposure=np.array([1.0, 3.0]))
    scale = PointScale.of_points(place, None, counts=True)
    assert scale.columns == ("x", "y", "time", "log_exposure")
    assert scale.units[2:] == (2.0, 1.0)
    assert scale.inputs(place)[:, 2:] == pytest.approx(
        np.array([[-1, -np.log(2)], [1, np.log(1.5)]])
    )
    with pytest.raises(RequestError, match="expected times in the column time"):
        scale.inputs(points([0], [0]))


def test_one_time_is_none():
    place = points([0, 1], [0, 1], time=np.array([4.0, 4.0]))
    assert PointScale.of_points(place, None).times is None


def test_points_on_a_line_have_a_box():
    scale = PointScale.of_points(points([0, 1], [5, 5]), None)
    assert (scale.inputs(points([0, 1], [5, 5])) == [[-1, 0], [1, 0]]).all()

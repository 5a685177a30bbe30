"""Hexagons of H3: which points they hold, their shapes, and refusals."""

import numpy as np
import pytest
import shapely

from geogp.errors import RequestError
from geogp.geodata.places import hexagons
from geogp.geodata.places.hexagons import hexagons_of, resolution_of


def test_each_point_lies_in_its_hexagon():
    pytest.importorskip("h3")
    random = np.random.default_rng(0)
    points = random.uniform(-67, -65, 300), random.uniform(17, 19, 300)
    found = hexagons_of(*points, 5)
    shapes = np.array(found.shapes)
    assert shapely.contains_xy(shapes[found.number], *points).all()
    assert list(found.names) == sorted(set(found.names))
    # Turns around the Earth do not matter.
    again = hexagons_of(points[0] + 360, points[1], 5)
    assert again.names == found.names


def test_a_hexagon_at_the_antimeridian_is_cut():
    pytest.importorskip("h3")
    found = hexagons_of([179.99, -179.99], [52.0, 52.0], 2)
    assert len(found.names) == 1
    west, _, east, _ = found.shapes[0].bounds
    assert (west, east) == (-180, 180)
    assert found.shapes[0].area < 15
    assert shapely.contains_xy(found.shapes[0], [179.9, -179.9, 0.0], 52.0).tolist() == [1, 1, 0]


def test_the_text_of_a_resolution():
    assert [resolution_of(text) for text in ("h3:0", "h3:15", "county")] == [0, 15, None]
    for text in ("h3:16", "h3:", "h3:-1", "h3:7:8"):
        with pytest.raises(RequestError, match="h3: and a resolution from 0 to 15, found"):
            resolution_of(text)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(hexagons, "find_spec", lambda _: None)
    with pytest.raises(RequestError, match=r"needs the package h3.* Install 'geogp\[h3\]'"):
        hexagons_of([0.0], [0.0], 7)

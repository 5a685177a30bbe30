"""What is taken of tables and arrays, and what is refused."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from geogp.errors import DataError, RequestError
from geogp.estimators.point_columns import PointColumns, is_geographic, km_per_unit

PLAIN = PointColumns("a", "b", None, "when", "day", "tests", "devices")
DEGREES = PointColumns("lon", "lat", "EPSG:4326")


def table(**columns):
    return pd.DataFrame(
        {"a": [1.0, 2], "b": [3, 4], "when": [5, 6], "other": ["x", "y"], **columns}
    )


def test_a_table_and_an_array_of_the_same_points_agree():
    held = table(tests=[1, 2], devices=[1, 1])
    one = PLAIN.read(held)
    other = PLAIN.read(held[["a", "b", "when", "tests", "devices"]].to_numpy(float))
    for name in ("x", "y", "time", "tests", "devices"):
        assert (getattr(one, name) == getattr(other, name)).all()


def test_columns_of_counts_may_be_absent():
    found = PLAIN.read(table())
    assert found.tests is None
    assert found.devices is None
    assert len(found.at(np.array([True, False]))) == 1


def test_points_of_a_geodataframe_are_brought_to_the_crs():
    points = gpd.GeoDataFrame(geometry=gpd.points_from_xy([-66.0], [18.0]), crs="EPSG:4326")
    metres = points.to_crs("EPSG:32161")
    found = DEGREES.read(metres)
    assert (found.x, found.y) == (pytest.approx([-66.0]), pytest.approx([18.0]))
    with pytest.raises(RequestError, match="a table with the CRS None"):
        DEGREES.read(points.set_crs(None, allow_override=True))
    with pytest.raises(DataError, match="other shapes"):
        DEGREES.read(metres.set_geometry(metres.buffer(1)))


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (table().drop(columns="b"), RequestError, "expected a column 'b'"),
        (table().drop(columns="when"), RequestError, "expected a column 'when'"),
        (table(a=[1, np.nan]), DataError, "the column a.*1 of 2 rows, the first in row 1"),
        (table(a=["1", "2"]), DataError, "expected numbers in the column a"),
        (table(tests=[0, 1]), DataError, "tests of 1 or more, found 0"),
        (
            table(tests=[2, 3], devices=[2, 4]),
            DataError,
            "more devices in 1 of 2 rows, the first in row 1 with 4 devices and 3 tests",
        ),
        (table(devices=[1, 2]), DataError, "2 devices and 1 tests. A row without a number"),
        (table()[:0], DataError, "empty table"),
        (np.zeros((3, 6)), DataError, r"found 6 feature\(s\)"),
        (np.zeros((3, 1)), DataError, "minimum of 2"),
        (np.zeros(3), DataError, "one row for each point"),
        (np.zeros((0, 2)), DataError, r"0 sample\(s\)"),
        (np.array([["u", "v"]], object), DataError, "give a table"),
        (np.array([[1j, 2]]), DataError, "Complex data not supported"),
        (np.array([[1.0, np.inf]]), DataError, "the column y"),
        (sparse.eye(3), DataError, "sparse input is not supported"),
    ],
)
def test_what_is_refused(given, error, match):
    with pytest.raises(error, match=match):
        PLAIN.read(given)


def test_metres_are_no_degrees():
    with pytest.raises(DataError, match="swapped, or are they in metres"):
        DEGREES.read(pd.DataFrame({"lon": [250_000.0], "lat": [2_000_000.0]}))
    with pytest.raises(DataError, match="swapped, or are they in metres"):
        DEGREES.read(pd.DataFrame({"lon": [18.0], "lat": [-166.0]}))


def test_exposures_are_above_0():
    columns = PointColumns("a", "b", exposure="area")
    with pytest.raises(DataError, match="exposures above 0"):
        columns.read(table(area=[0.0, 1.0]))


def test_coordinate_reference_systems():
    assert is_geographic("EPSG:4326")
    assert not is_geographic(None)
    assert not is_geographic("EPSG:32161")
    assert km_per_unit("EPSG:32161") == pytest.approx(0.001)
    assert km_per_unit("EPSG:2263") == pytest.approx(0.3048006 / 1000)  # U.S. survey feet
    with pytest.raises(RequestError, match="such as EPSG:4326"):
        is_geographic("nowhere")

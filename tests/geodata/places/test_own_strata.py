"""Two classes of places of the user's own: names, which place is in which, and refusals."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from bucket_files import small_region
from shapely.geometry import box

from geogp.errors import DataError, RequestError
from geogp.geodata.places.own_polygons import read_own_strata
from geogp.geodata.places.region import Region
from geogp.geodata.places.stratum_column import names_of, stratum_column, with_strata
from geogp.geodata.places.stratum_names import marked, phrase

WEST, EAST = box(-66.3, 18.0, -66.1, 18.4), box(-66.1, 18.0, -65.8, 18.4)


def _write(path, shapes, **columns):
    gpd.GeoDataFrame(columns, geometry=shapes, crs=4326).to_file(path)
    return str(path)


def _at(strata, region, longitude, latitude):
    return region.with_strata(strata).stratum(longitude, latitude).tolist()


def test_the_two_values_of_a_column_name_the_classes(tmp_path):
    region = small_region(urban=False)
    text = _write(tmp_path / "a.gpkg", [EAST, WEST, WEST], side=["the east", "west", "west"])
    strata, files, warnings = read_own_strata(f"{text}:side", region)
    assert strata.names == ("the east", "west")
    assert _at(strata, region, [-66.0, -66.15, -50.0], [18.2] * 3) == [
        "the east",
        "west",
        "unknown",
    ]
    assert [(file.name, file.rows) for file in files] == [("a.gpkg", 3)]
    assert warnings == ()


def test_without_a_column_all_else_is_elsewhere(tmp_path):
    region = small_region(urban=False)
    strata, _, warnings = read_own_strata(_write(tmp_path / "my west.geojson", [WEST]), region)
    assert strata.names == ("my west", "elsewhere")
    assert strata.words == "my west"
    assert _at(strata, region, [-66.0, -66.15, -50.0], [18.2] * 3) == [
        "elsewhere",
        "my west",
        "elsewhere",
    ]
    assert warnings == ()


def test_gaps_are_unknown_and_overlaps_are_of_the_first_both_said(tmp_path):
    region = small_region(urban=False)
    shapes = [box(-66.2, 18.1, -66.1, 18.3), box(-66.15, 18.1, -66.05, 18.3)]
    text = _write(tmp_path / "a.geojson", shapes, kind=["a", "b"])
    strata, _, warnings = read_own_strata(f"{text}:kind", region)
    found = _at(strata, region, [-66.18, -66.13, -66.07, -66.01], [18.25] * 4)
    assert found == ["a", "a", "b", "unknown"]
    # Of 0.0388 square degrees 0.0092 lie in both, 0.0104 in neither.
    assert [text.split("%")[0] for text in warnings] == ["23.7", "26.8"]
    assert "lies in both strata, and is assigned to a." in warnings[0]
    assert "lies in neither stratum" in warnings[1]


def test_a_class_without_any_of_the_region_is_said(tmp_path):
    region = small_region(urban=False)
    text = _write(tmp_path / "far.geojson", [box(10, 10, 11, 11)])
    assert read_own_strata(text, region)[2] == ("no part of Testland lies in the stratum far.",)


def test_across_the_antimeridian_places_are_found(tmp_path):
    region = Region.from_geometry("x", "X", box(179, 0, 180, 1).union(box(-180, 0, -179, 1)))
    text = _write(tmp_path / "a.geojson", [box(179.5, 0, 180, 1), box(-180, 0, -179.5, 1)])
    strata, _, _ = read_own_strata(text, region)
    assert _at(strata, region, [179.7, -179.7, 179.2, -179.2], [0.5] * 4) == [
        *["a"] * 2,
        *["elsewhere"] * 2,
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["a", "a", "a"], "found 1: a"),
        (["a", "b", "c"], "found 3: a, b, c"),
    ],
)
def test_other_than_two_values_are_refused(tmp_path, values, told):
    text = _write(tmp_path / "a.geojson", [EAST, WEST, WEST], kind=values)
    with pytest.raises(RequestError, match=f"expected two values in kind .* {told}"):
        read_own_strata(f"{text}:kind", small_region())


@pytest.mark.parametrize("name", ["all", "Unknown", " ", "x" * 41])
def test_names_that_stand_for_something_else_are_refused(tmp_path, name):
    text = _write(tmp_path / "a.geojson", [EAST, WEST], kind=[name, "b"])
    with pytest.raises(DataError, match="names a stratum"):
        read_own_strata(f"{text}:kind", small_region())


def test_a_file_called_elsewhere_and_a_missing_column_are_refused(tmp_path):
    text = _write(tmp_path / "elsewhere.geojson", [EAST], kind=["b"])
    with pytest.raises(DataError, match="names both strata 'elsewhere'"):
        read_own_strata(text, small_region())
    with pytest.raises(RequestError, match=r"expected a column side in .*found the columns kind"):
        read_own_strata(f"{text}:side", small_region())
    with pytest.raises(RequestError, match="no file"):
        read_own_strata(str(tmp_path / "none.gpkg"), small_region())


def test_a_column_of_strata_knows_names_without_rows():
    column = stratum_column(np.array(["b", "unknown"]), ("a", "b"))
    assert names_of(column) == ("a", "b")
    assert names_of(pd.Series(column)[:0]) == ("a", "b")
    assert names_of(np.array(["a"])) == ("urban", "rural")
    rows = pd.DataFrame({"stratum": ["b", "b"]})
    assert names_of(with_strata(rows, ["a", "b"])["stratum"]) == ("a", "b")
    with pytest.raises(DataError, match="expected the strata urban, rural or unknown, found b"):
        with_strata(rows, None)


def test_strata_are_drawn_by_their_place():
    assert marked(["all", "rural"], 1, 2, 3) == {"all": 3, "rural": 2}
    assert marked(["all", "x", "y"], 1, 2, 3) == {"all": 3, "x": 1, "y": 2}
    assert [phrase(name) for name in ("urban", "x")] == ["in town", "in stratum x"]

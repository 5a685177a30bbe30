"""The command `geogp points`: what it states, and that it refuses what a map would refuse."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

CASES = Path(__file__).parents[1] / "fixtures" / "cases"


@pytest.fixture
def plain():
    return pd.read_csv(CASES / "plain.csv")


@pytest.fixture
def refused(geogp, tmp_path):
    """Return what the command says of a table that it must refuse as data."""

    def call(table, *options):
        path = tmp_path / "drive.csv"
        table.to_csv(path, index=False)
        code, _, told = geogp("points", path, *options)
        assert code == 3
        return told

    return call


def test_what_was_understood_is_stated(geogp):
    code, out, _ = geogp("points", CASES / "10-two-header-rows" / "t.csv", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["units"] == {"download": {"unit": "Mbps", "from": "the row of units"}}
    assert found["understood"]["header"] == "names in line 1; units in line 2"
    assert (found["rows"], found["tests"], found["left_out"]) == (400, 400, {})
    assert sum(found["quarters"].values()) == 400
    np.testing.assert_allclose(found["extent_km"], [26.3, 27.7], atol=0.1)


def test_left_out_rows_are_counted(geogp):
    code, out, told = geogp("points", CASES / "19-phone-app-export" / "app.csv")
    assert code == 0
    assert "190 rows: not mobile" in out
    assert "left out of app.csv, not mobile: lines 3, 13" in told


def test_a_lost_sign_is_a_warning(geogp):
    code, _, told = geogp("points", CASES / "13b-lost-minus-sign" / "t.csv")
    assert code == 0
    assert "529 km from the nearest towns" in told
    assert "4 km with the other sign of the longitude" in told


def test_a_region_makes_a_lost_sign_an_error(geogp, tmp_path):
    import geopandas as gpd
    from shapely.geometry import box

    region = gpd.GeoDataFrame({"name": ["here"]}, geometry=[box(-67.5, 17.5, -65, 19)], crs=4326)
    region.to_file(tmp_path / "here.gpkg")
    for command in (("points",), ("map", "--points")):
        path = CASES / "13b-lost-minus-sign" / "t.csv"
        code, _, told = geogp(*command, path, "--region-file", tmp_path / "here.gpkg")
        assert code == 3
        assert "with the other sign of the longitude 400 of 400 would" in told


class TestRefusals:
    def test_all_zeros(self, plain, refused):
        told = refused(plain.assign(download_mbps=0))
        assert "203 of 203 tests of drive.csv in a quarter are 0" in told
        assert "Map how often a test succeeds (--target success), map --target latency" in told

    def test_failed_tests(self, geogp):
        path = CASES / "31-failed-tests-zero" / "z.csv"
        code, shown, _ = geogp("points", path, "--target", "success", "--at-least", 1)
        assert code == 0
        assert "tests failed, 0 of them without a download" in " ".join(
            shown.replace("│", " ").split()
        )
        code, _, told = geogp("points", path)
        assert code == 3
        assert "Map how often a test succeeds (--target success), map --target latency" in told

    def test_one_place(self, plain, refused):
        told = refused(pd.concat([plain.assign(lat=18.3, lon=-66.1)] * 12))
        assert "expected rows in each part of the split" in told

    def test_three_points(self, plain, refused):
        assert "expected rows in each part of the split" in refused(plain.head(3))

    def test_equal_values(self, plain, refused):
        told = refused(plain.assign(download_mbps=20.0))
        assert "has the same value in all" in told

    def test_swapped_rows(self, plain, refused):
        swapped = plain.rename(columns={"lat": "lon", "lon": "lat"})
        mixed = pd.concat([swapped.head(21), plain.tail(379)])
        assert "21 bad rows of 400" in refused(mixed)
        half = pd.concat([swapped.head(200), plain.tail(200)])
        assert "more than 2,000 km" in refused(half)

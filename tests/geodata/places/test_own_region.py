"""A region of the user's own: any format and CRS, rows picked, names, and what is refused."""

import hashlib
import json
import stat
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from shapely.geometry import LineString, Point, box

from geogp.errors import DataError, RequestError
from geogp.geodata.places import archives as untrusted
from geogp.geodata.places.file_choice import absolute_name
from geogp.geodata.places.own_polygons import code_of, read_own_region

WEST, EAST = box(-66.2, 18.1, -66.1, 18.3), box(-66.1, 18.1, -66.0, 18.3)


def _table(crs=4326) -> gpd.GeoDataFrame:
    table = gpd.GeoDataFrame({"NAME": ["West", "East"], "n": [1, 2]}, geometry=[WEST, EAST])
    return table.set_crs(4326).to_crs(crs)


def _write(path, table=None):
    table = _table() if table is None else table
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".zip":
        table.to_file(path.with_suffix(".shp"))
        with zipfile.ZipFile(path, "w") as archive:
            for part in path.parent.glob(f"{path.stem}.*"):
                if part != path:
                    archive.write(part, part.name)
    else:
        table.to_file(path)
    return path


@pytest.mark.parametrize("ending", ["geojson", "gpkg", "parquet", "geoparquet", "zip", "shp"])
def test_all_polygons_of_a_file_are_the_region_in_any_format(tmp_path, ending):
    path = tmp_path / f"my place.{ending}"
    if ending == "geoparquet":
        _table().to_parquet(path)
    else:
        _write(path)
    region, files, _ = read_own_region(str(path))
    assert (region.code, region.name) == ("my_place", "my place")
    assert region.boundary.symmetric_difference(box(-66.2, 18.1, -66.0, 18.3)).area < 1e-9
    assert region.strata is None
    named = {file.name: file for file in files}
    assert named[path.name].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (named[path.name].rows, named[path.name].rows_used) == (2, 2)
    assert ("my place.dbf" in named) == (ending == "shp")


@pytest.mark.parametrize("crs", [3857, 32161, 4269, 32619])
def test_any_crs_is_brought_to_degrees(tmp_path, crs):
    region, _, _ = read_own_region(str(_write(tmp_path / "a.gpkg", _table(crs))))
    # Edges that are straight in another CRS are so in degrees: vertices are what is moved.
    np.testing.assert_allclose(region.bounds, (-66.2, 18.1, -66.0, 18.3), rtol=0, atol=2e-3)


def test_a_file_without_crs_is_refused(tmp_path):
    path = _write(tmp_path / "a.parquet", _table().set_crs(None, allow_override=True))
    with pytest.raises(DataError, match="has no CRS, so the meaning of its coordinates is unknown"):
        read_own_region(str(path))


@pytest.mark.parametrize(
    ("rows", "used", "wanted"), [("NAME=East", 1, EAST), ("n=1", 1, WEST), ("", 2, None)]
)
def test_rows_are_picked_by_a_value(tmp_path, rows, used, wanted):
    path = _write(tmp_path / "a.geojson")
    region, files, _ = read_own_region(f"{path}:{rows}" if rows else str(path))
    wanted = shapely.union_all([WEST, EAST]) if wanted is None else wanted
    assert region.boundary.symmetric_difference(wanted).area < 1e-9
    assert (files[0].rows, files[0].rows_used) == (2, used)


def test_values_and_files_may_hold_colons_and_equals_signs(tmp_path):
    odd = "a=b:c/d"
    table = _table().assign(NAME=[odd, "East"])
    path = _write(tmp_path / "x:y=z.geojson", table)
    region, _, _ = read_own_region(f"{path}:NAME={odd}")
    assert region.boundary.symmetric_difference(WEST).area < 1e-9
    assert absolute_name(f"{path}:NAME={odd}") == f"{path.resolve()}:NAME={odd}"


def test_the_file_is_absolute_wherever_it_is_named(tmp_path, monkeypatch):
    _write(tmp_path / "a.geojson")
    monkeypatch.chdir(tmp_path)
    assert absolute_name("a.geojson") == str(tmp_path.resolve() / "a.geojson")
    assert absolute_name("a.geojson:n=2") == f"{tmp_path.resolve() / 'a.geojson'}:n=2"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            "NAME=North",
            r"no row of .*a.geojson has 'North' in NAME; this column contains East, West",
        ),
        ("CITY=East", r"expected a column CITY in .*a.geojson, found the columns NAME, n"),
        ("geometry=x", "expected a column geometry"),
        ("NAME", r"expected COLUMN=VALUE, .* found 'NAME'"),
        ("=East", r"expected COLUMN=VALUE, .* found '=East'"),
    ],
)
def test_rows_that_are_not_there_are_refused(tmp_path, rows, told):
    path = _write(tmp_path / "a.geojson")
    with pytest.raises(RequestError, match=told):
        read_own_region(f"{path}:{rows}")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(
        RequestError, match=r"no file .*none.gpkg: expected a file of polygons, as FILE"
    ):
        read_own_region(str(tmp_path / "none.gpkg"))
    with pytest.raises(RequestError, match=r"no file .*none.gpkg"):
        read_own_region(f"{tmp_path / 'none.gpkg'}:A=b")


@pytest.mark.parametrize(
    "shapes", [[Point(0, 0), Point(1, 1)], [Point(0, 0), LineString([(0, 0), (1, 1)])]]
)
def test_other_things_than_polygons_are_refused(tmp_path, shapes):
    path = _write(tmp_path / "a.geojson", _table().set_geometry(shapes, crs=4326))
    with pytest.raises(
        DataError, match=r"expected polygons only, found 2 of 2 rows .*row 1 \(West\): Point"
    ):
        read_own_region(str(path))


def test_metres_that_are_called_degrees_are_refused(tmp_path):
    table = _table(3857).set_crs(4326, allow_override=True)
    with pytest.raises(DataError, match=r"a.parquet: "):
        read_own_region(str(_write(tmp_path / "a.parquet", table)))


def test_a_table_without_shapes_is_refused(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="contains no geometry"):
        read_own_region(str(tmp_path / "a.parquet"))


def test_a_region_across_the_antimeridian_is_whole(tmp_path):
    table = gpd.GeoDataFrame({"a": [1, 2]}, geometry=[box(179, 0, 180, 1), box(-180, 0, -179, 1)])
    region, _, _ = read_own_region(str(_write(tmp_path / "a.geojson", table.set_crs(4326))))
    west, _, east, _ = region.bounds
    assert east - west == pytest.approx(2)
    assert region.contains([179.5, -179.5, 0.0], [0.5] * 3).tolist() == [True, True, False]
    assert region.wrapped.bounds == pytest.approx((-180, 0, 180, 1))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("San Juan", "San_Juan"),
        ("../../etc/passwd", "etc_passwd"),
        ("/tmp/x", "tmp_x"),
        ("a\\b:c*?<script>", "a_b_c_script"),
        ("Côte d'Or", "Côte_d_Or"),
        ("..", None),
        ("", None),
        ("\x00\n", None),
        ("x" * 500, "x" * 60),
    ],
)
def test_names_of_files_are_letters_and_digits(name, code):
    if code is None:
        with pytest.raises(RequestError, match="expected a name with a letter or digit"):
            code_of(name)
    else:
        assert code_of(name) == code


def test_the_region_is_called_what_the_user_says(tmp_path):
    path = _write(tmp_path / "a.geojson")
    region, _, _ = read_own_region(str(path), "  The Valley ")
    assert (region.code, region.name) == ("The_Valley", "The Valley")


def test_a_file_that_leads_to_others_is_refused(tmp_path):
    _write(tmp_path / "a.gpkg")
    source = f"<SrcDataSource>{tmp_path / 'a.gpkg'}</SrcDataSource>"
    text = f'<OGRVRTDataSource><OGRVRTLayer name="a">{source}</OGRVRTLayer></OGRVRTDataSource>'
    for name in ("a.vrt", "b.geojson"):
        (tmp_path / name).write_text(text)
        with pytest.raises(
            DataError, match=r"has a format that geogp does not read|cannot be read as GeoJSON"
        ):
            read_own_region(str(tmp_path / name))
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("c.vrt", text)
    with pytest.raises(DataError, match="expected a file of shapes in"):
        read_own_region(str(tmp_path / "c.zip"))


@pytest.mark.parametrize("name", ["../a.shp", "/a.shp", "x/../../a.shp", "..\\a.shp", "C:a.shp"])
def test_members_that_lead_out_of_an_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(DataError, match="leads out of the archive"):
        read_own_region(str(tmp_path / "a.zip"))


def test_links_in_an_archive_are_refused(tmp_path):
    member = zipfile.ZipInfo("a.shp")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(DataError, match=r"contains 'a.shp', which is a link"):
        read_own_region(str(tmp_path / "a.zip"))


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.shp", bytes(1 << 20))
    monkeypatch.setattr(untrusted, "RATIO_FROM", 1 << 19)
    with pytest.raises(DataError, match="declares 1,048,576 unpacked bytes"):
        read_own_region(str(tmp_path / "a.zip"))
    monkeypatch.undo()
    monkeypatch.setattr(untrusted, "MAX_UNPACKED", 1 << 19)
    with pytest.raises(DataError, match="too many for a file of boundaries"):
        read_own_region(str(tmp_path / "a.zip"))


def test_geojson_by_hand_is_read(tmp_path):
    ring = [[-66.12, 18.42], [-66.03, 18.42], [-66.03, 18.48], [-66.12, 18.48], [-66.12, 18.42]]
    path = tmp_path / "own.geojson"
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    assert read_own_region(str(path))[0].bounds == pytest.approx((-66.12, 18.42, -66.03, 18.48))

"""Regions from polygons of the user: formats, layers, CRS, rows, names, and what is refused."""

import hashlib
import json
import zipfile
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import shapely
from shapely.geometry import GeometryCollection, LineString, Point, Polygon, box

from geogp.errors import DataError, RequestError
from geogp.geodata.places.file_choice import absolute_name
from geogp.geodata.places.layers import read_layer, read_layers
from geogp.geodata.places.own_polygons import code_of, read_own_region, read_own_strata
from geogp.geodata.places.polygons import read_polygons

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


def test_metres_that_are_called_degrees_are_refused(tmp_path):
    table = _table(3857).set_crs(4326, allow_override=True)
    with pytest.raises(DataError, match=r"a.parquet: "):
        read_own_region(str(_write(tmp_path / "a.parquet", table)))


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


def test_geojson_by_hand_is_read(tmp_path):
    ring = [[-66.12, 18.42], [-66.03, 18.42], [-66.03, 18.48], [-66.12, 18.48], [-66.12, 18.42]]
    path = tmp_path / "own.geojson"
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    assert read_own_region(str(path))[0].bounds == pytest.approx((-66.12, 18.42, -66.03, 18.48))


CASES = Path(__file__).parents[2] / "fixtures" / "cases"
BARE = CASES / "41-shapefile-without-prj"
MIXED = CASES / "51-mixed-geometries"

WEST, EAST = box(-66.2, 18.1, -66.1, 18.3), box(-66.1, 18.1, -66.0, 18.3)


@pytest.fixture
def package(tmp_path):
    """A GeoPackage with two layers, one of them with a colon in its name."""
    path = tmp_path / "areas.gpkg"
    for layer, names in (("wards", ["a", "b"]), ("wards:old", ["c", "d"])):
        table = gpd.GeoDataFrame({"NAME": names, "wards": ["x", "y"]}, geometry=[WEST, EAST])
        table.set_crs(4326).to_file(path, layer=layer)
    return path


@pytest.mark.parametrize(
    ("rest", "name", "labels"),
    [
        ("wards", "areas_wards", ("a", "b")),
        ("wards:old", "areas_wards:old", ("c", "d")),
        ("wards:wards", "areas_wards", ("x", "y")),
        ("wards:old:NAME", "areas_wards:old", ("c", "d")),
    ],
)
def test_a_layer_is_chosen_by_its_name(package, rest, name, labels):
    layer = read_layer(f"{package}:{rest}")
    assert (layer.name, layer.labels) == (name, labels)


def test_layers_of_one_file_have_different_names(package):
    layers, files = read_layers([f"{package}:wards", f"{package}:wards:old:NAME"])
    assert [layer.name for layer in layers] == ["areas_wards", "areas_wards:old"]
    assert [file.name for file in files] == ["areas.gpkg"]


def test_regions_and_strata_choose_layers_too(package):
    region, files, _ = read_own_region(f"{package}:wards:NAME=b")
    assert region.bounds == EAST.bounds
    assert (files[0].rows, files[0].rows_used) == (2, 1)
    whole = read_own_region(f"{package}:wards:old")[0]
    assert whole.bounds == (*WEST.bounds[:2], *EAST.bounds[2:])
    assert read_own_strata(f"{package}:wards:NAME", whole)[0].names == ("a", "b")


@pytest.mark.parametrize("rest", ["", ":streets", ":NAME=a"])
def test_a_choice_of_a_layer_is_asked_for_with_their_names(package, rest):
    told = r"one of the 2 layers of .*areas\.gpkg .* The layers are wards, wards:old\. Give FILE:L"
    with pytest.raises(RequestError, match=told):
        read_own_region(f"{package}{rest}")


def test_the_only_layer_may_be_named_and_a_column_of_its_name_comes_first(tmp_path):
    path = tmp_path / "zones.gpkg"
    table = gpd.GeoDataFrame({"zones": ["x", "y"], "NAME": ["a", "b"]}, geometry=[WEST, EAST])
    table.set_crs(4326).to_file(path, layer="zones")
    assert read_layer(f"{path}:zones").labels == ("x", "y")
    assert read_layer(f"{path}:zones:NAME").labels == ("a", "b")
    assert read_own_region(f"{path}:zones=y")[0].bounds == EAST.bounds
    assert read_own_region(f"{path}:zones:NAME=a")[0].bounds == WEST.bounds


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("deg", r"such as -65\.95, 18\.1\. Give the CRS with --crs\. .* then --crs EPSG:4326"),
        ("m", r"such as 251158\.\d+, 229582\.\d+\. Give the CRS with --crs\. .* are not longitude"),
    ],
)
def test_a_shapefile_without_its_crs_is_refused_once(name, told):
    with pytest.raises(DataError, match=rf"has no CRS \(a shapefile has it in a \.prj.*{told}"):
        read_own_region(str(BARE / f"{name}.shp"))


def test_the_crs_of_the_user_settles_it():
    metres = read_own_region(str(BARE / "m.shp"), crs="EPSG:32161")[0]
    degrees = read_own_region(str(BARE / "deg.shp"), crs="deg.shp=EPSG:4326,m.shp=EPSG:3857")[0]
    assert metres.bounds == pytest.approx(degrees.bounds, abs=1e-3)
    assert read_layer(f"{BARE / 'm.shp'}:name", "EPSG:32161").labels == ("Caguas",)
    with pytest.raises(DataError, match=r"in row 1 \(Caguas\)\. Are the coordinates in metres"):
        read_own_region(str(BARE / "m.shp"), crs="EPSG:4326")
    with pytest.raises(DataError, match="has no CRS"):
        read_own_region(str(BARE / "m.shp"), crs="deg.shp=EPSG:32161")


def test_a_crs_that_contradicts_the_file_is_refused(tmp_path):
    table = gpd.GeoDataFrame({"NAME": ["a", "b"]}, geometry=[WEST, EAST], crs=4326).to_crs(32161)
    table.to_file(tmp_path / "a.gpkg")
    for same in ("EPSG:32161", "EPSG:2866"):  # of 1983, and of 1983 measured again
        assert len(read_polygons(tmp_path / "a.gpkg", crs=same)) == 2
    with pytest.raises(RequestError, match=r"--crs EPSG:3857 contradicts .*a\.gpkg, .*NAD83"):
        read_polygons(tmp_path / "a.gpkg", crs="EPSG:3857")


@pytest.mark.parametrize("crs", ["degrees", "EPSG:1e9 ", "http://x/y", "+proj=longlat", "a=", ""])
def test_other_words_for_a_crs_are_refused(crs):
    with pytest.raises(RequestError, match="--crs with the code of a coordinate system"):
        read_polygons(BARE / "m.shp", crs=crs)


def test_an_unknown_crs_is_refused():
    with pytest.raises(RequestError, match="--crs with a known code, such as EPSG:4326, found EP"):
        read_polygons(BARE / "m.shp", crs="EPSG:999999")


def test_other_shapes_are_left_out_and_named():
    region, _, warnings = read_own_region(str(MIXED / "mixed.geojson"))
    assert region.bounds == pytest.approx((-66.2, 18.1, -65.95, 18.35))
    (told,) = warnings
    assert "1 of 2 rows have no polygon, and are left out: row 2 (admin centre): Point" in told
    layer = read_layer(f"{MIXED / 'mixed.geojson'}:name")
    assert (layer.labels, layer.warnings) == (("Caguas",), warnings)


def test_polygons_in_collections_are_used(tmp_path):
    region, _, warnings = read_own_region(str(MIXED / "collection.geojson"))
    assert region.bounds == pytest.approx((-66.2, 18.1, -65.95, 18.35))
    assert warnings == ()
    shapes = [
        GeometryCollection([WEST, GeometryCollection([EAST])]),
        GeometryCollection([Point(0, 0), EAST]),
        LineString([(0, 0), (1, 1)]),
        Polygon(),
    ]
    table = gpd.GeoDataFrame({"NAME": ["a", "b", None, "d"]}, geometry=shapes, crs=4326)
    table.to_parquet(tmp_path / "a.parquet")
    region, _, warnings = read_own_region(str(tmp_path / "a.parquet"))
    assert region.boundary.area == pytest.approx(WEST.area + EAST.area)
    told = " ".join(warnings)
    assert "1 of 4 rows have no polygon, and are left out: row 3: LineString." in told
    assert "1 of 4 rows also have points or lines, which are left out: row 2 (b)." in told
    assert "1 of 4 rows have no shape, and are left out: row 4 (d)." in told


def test_a_file_with_more_other_shapes_than_polygons_is_refused(tmp_path):
    shapes = [WEST, *(Point(k, k) for k in range(20))]
    table = gpd.GeoDataFrame({"NAME": [f"n{k}" for k in range(21)]}, geometry=shapes, crs=4326)
    table.to_file(tmp_path / "a.geojson")
    told = r"20 of 21 rows with other shapes \(row 2 \(n1\): Point, .* and 10 more\)\. Remove"
    with pytest.raises(DataError, match=told):
        read_own_region(str(tmp_path / "a.geojson"))

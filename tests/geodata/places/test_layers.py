"""Layers of named polygons: labels, points in them, files, and refusals."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
from shapely.geometry import Point, Polygon, box

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.places.census import read_region
from geogp.geodata.places.file_choice import absolute_name
from geogp.geodata.places.layers import ELSEWHERE, PolygonLayer, read_layer, read_layers
from geogp.geodata.store.sources import Folder

WEST, EAST = box(-67, 18, -66, 19), box(-66, 18, -65, 19)


def _table(**columns) -> gpd.GeoDataFrame:
    return gpd.GeoDataFrame(columns, geometry=[WEST, EAST], crs=4326)


def test_points_get_the_label_of_their_polygon():
    layer = PolygonLayer.of_table("county", _table(NAME=["A", "B"]))
    found = layer.label([-66.5, -65.5, -64.0, 294.5], [18.5, 18.5, 18.5, 18.5])
    assert found.tolist() == ["A", "B", ELSEWHERE, "B"]


def test_a_point_on_an_edge_belongs_to_one_polygon_only():
    layer = PolygonLayer.of_table("county", _table(NAME=["A", "B"]))
    assert layer.index([-66.0], [18.5]).tolist() == [0]


def test_a_point_in_several_polygons_belongs_to_the_first_in_the_file():
    around = box(-70, 10, -60, 25)
    shapes = gpd.GeoSeries([EAST, around, WEST, around], crs=4326)
    table = gpd.GeoDataFrame({"NAME": ["Z", "M", "A", "Z"]}, geometry=shapes)
    points = [-65.5, -66.5, -61.0], [18.5] * 3
    layer = PolygonLayer.of_table("zones", table)
    # Z holds them all with its second polygon, and stands first in the file.
    assert layer.label(*points).tolist() == ["Z"] * 3
    # M before A, whatever the order of the labels.
    assert layer.labels == ("A", "M", "Z")
    late = PolygonLayer.of_table("zones", table.iloc[[1, 2, 0]])
    assert late.label(*points).tolist() == ["M"] * 3
    early = PolygonLayer.of_table("zones", table.iloc[[2, 1]])
    assert early.label(*points).tolist() == ["M", "A", "M"]


def test_points_in_several_polygons_are_counted_and_those_on_an_edge_are_not():
    beside = PolygonLayer("county", ("A", "B"), (WEST, EAST))
    edge = WEST.bounds[2]
    assert edge == EAST.bounds[0]
    points = [edge, -66.5, -65.5 + 360, 0.0], [18.5] * 4
    assert beside.overlap(*points, "tiles") is None
    layer = PolygonLayer("zones", ("A", "B", "C"), (WEST, EAST, box(-65.9, 18, -60, 19)))
    assert "of zones overlap: 1 of 4 tiles lie in more than one" in layer.overlap(*points, "tiles")


def test_equal_names_are_told_apart_by_number():
    table = _table(NAME=["St. Louis", "St. Louis"], GEOID=["29189", "29510"])
    layer = PolygonLayer.of_table("county", table)
    assert layer.labels == ("St. Louis (29189)", "St. Louis (29510)")


def test_census_numbers_are_keys():
    table = _table(NAME=["B", "A"], GEOID=["002", "001"], id=[1, 2])
    layer = PolygonLayer.of_table("county", table)
    assert (layer.labels, layer.keys) == (("A", "B"), ("001", "002"))
    assert PolygonLayer.of_table("county", table.drop(columns="GEOID")).keys == ("2", "1")
    assert PolygonLayer.of_table("county", table[["NAME", "geometry"]]).keys == ()
    # Two polygons of one label have no key in common.
    united = PolygonLayer.of_table("zone", table.assign(kind="x"), "kind")
    assert united.keys == ()


def test_polygons_of_one_label_are_one_where_the_user_names_the_column():
    layer = PolygonLayer.of_table("zone", _table(kind=["x", "x"], NAME=["A", "B"]), "kind")
    assert layer.labels == ("x",)
    assert layer.shapes[0].area == pytest.approx(2)


def test_a_coast_drawn_otherwise_snaps_to_the_nearest_within_reach():
    layer = PolygonLayer("county", ("A", "B"), (WEST, EAST), snap_degrees=0.02)
    assert layer.label([-67.01, -64.99, -64.9], [18.5] * 3).tolist() == ["A", "B", ELSEWHERE]


def test_refusals(tmp_path):
    path = tmp_path / "zones.parquet"
    _table(zone=["A", "B"]).to_parquet(path)
    with pytest.raises(RequestError, match=r"expected a column NAME .* found the columns zone"):
        read_layer(str(path))
    with pytest.raises(RequestError, match="expected a column kind "):
        read_layer(f"{path}:kind")
    with pytest.raises(RequestError, match=r"no file .*absent"):
        read_layer(str(tmp_path / "absent.parquet"))
    _table(NAME=["A", ELSEWHERE]).to_parquet(path)
    with pytest.raises(DataError, match="uses for places outside all polygons"):
        read_layer(str(path))
    points = gpd.GeoDataFrame({"NAME": ["A"]}, geometry=[Point(0, 0)], crs=4326)
    points.to_parquet(path)
    with pytest.raises(DataError, match="expected polygons only"):
        read_layer(str(path))


def test_polygons_whose_rings_cross_themselves_are_made_valid(tmp_path):
    path = tmp_path / "zones.parquet"
    bow_tie = Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])
    spike = Polygon([(5, 0), (6, 0), (6, 1), (6, 0), (7, 0), (7, -1), (5, -1)])
    table = gpd.GeoDataFrame({"NAME": ["A", "A", "B"]}, geometry=[bow_tie, WEST, spike], crs=4326)
    table.to_parquet(path)
    layer = read_layer(str(path))
    assert all(shape.is_valid for shape in layer.shapes)
    assert [shape.area for shape in layer.shapes] == pytest.approx([3, 2])
    found = layer.label([0.5, 1.5, 1.0, -66.5, 6.0, 6.0], [1.0, 1.0, 0.5, 18.5, -0.5, 0.5])
    assert found.tolist() == ["A", "A", ELSEWHERE, "A", "B", ELSEWHERE]
    flat = Polygon([(0, 0), (1, 1), (2, 2)])
    table.set_geometry([bow_tie, flat, spike], crs=4326).to_parquet(path)
    with pytest.raises(DataError, match=r"no valid area in 1 of 3 polygons: row 2 \(A\)"):
        read_layer(str(path))


@pytest.mark.parametrize("nothing", [None, np.nan, "", "  "])
def test_polygons_without_a_name_are_refused(nothing):
    with pytest.raises(DataError, match=r"in column NAME .* of zone, found none for 1 of 2\. Name"):
        PolygonLayer.of_table("zone", _table(NAME=["A", nothing]))


def test_files_of_several_layers_are_refused_without_a_choice(tmp_path):
    path = tmp_path / "zones.gpkg"
    _table(NAME=["A", "B"]).to_file(path, layer="districts")
    pyogrio.write_dataframe(pd.DataFrame({"NAME": ["no shape"]}), path, layer="notes")
    assert read_layer(str(path)).labels == ("A", "B")
    _table(NAME=["C", "D"]).to_file(path, layer="wards")
    told = (
        r"expected one of the 2 layers of .* after its name, found none\. The layers are "
        r"districts, wards\. Give FILE:LAYER, such as zones\.gpkg:districts, and a column"
    )
    with pytest.raises(RequestError, match=told):
        read_layer(str(path))


def test_several_layers_have_names_of_their_own(tmp_path):
    path, other = tmp_path / "zones.parquet", tmp_path / "more.shp"
    _table(zone=["A", "B"], kind=["x", "x"]).to_parquet(path)
    _table(zone=["C", "D"]).to_file(other)
    layers, files = read_layers([f"{path}:zone", f"{other}:zone", f"{path}:kind"])
    assert [layer.name for layer in layers] == ["zones_zone", "more", "zones_kind"]
    assert [layer.labels for layer in layers] == [("A", "B"), ("C", "D"), ("x",)]
    # A shapefile keeps its labels and its CRS in files beside it.
    parts = ["more.shp", "more.cpg", "more.dbf", "more.prj", "more.shx"]
    assert [file.name for file in files] == ["zones.parquet", *parts]
    assert [file.sha256 for file in files[1:]] == [sha256_of(tmp_path / name) for name in parts]
    with pytest.raises(RequestError, match="different names, found zones_kind more than once"):
        read_layers([f"{path}:kind", f"{path}:kind"])
    assert read_layers([]) == ((), ())


def test_a_layer_is_named_alike_from_any_folder_and_keeps_its_name(tmp_path, monkeypatch):
    (tmp_path / "stored").write_text("")
    (tmp_path / "zones.shp").symlink_to(tmp_path / "stored")
    (tmp_path / "at:noon.shp").write_text("")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    whole = tmp_path.resolve()
    assert absolute_name("../zones.shp") == f"{whole}/zones.shp"
    assert absolute_name("../zones.shp:NAME") == f"{whole}/zones.shp:NAME"
    assert absolute_name("../at:noon.shp") == f"{whole}/at:noon.shp"
    assert absolute_name("../none.shp:NAME") == f"{whole}/none.shp:NAME"


def test_only_files_of_the_shapefile_are_listed_with_it(tmp_path):
    path = tmp_path / "more.shp"
    _table(zone=["C", "D"]).to_file(path)
    (tmp_path / "more.dbf").rename(tmp_path / "more.DBF")
    (tmp_path / "more.cpg").unlink()
    for name in ("more.txt", "other.dbf"):
        (tmp_path / name).write_text("no part of it")
    _, files = read_layers([f"{path}:zone"])
    assert [file.name for file in files] == ["more.shp", "more.DBF", "more.prj", "more.shx"]


def test_counties_of_another_state_are_refused(tmp_path):
    state = gpd.GeoDataFrame({"STATEFP": ["72"], "STUSPS": ["PR"], "NAME": ["Puerto Rico"]})
    state.set_geometry([box(-67, 18, -65, 19)], crs=4326).to_parquet(tmp_path / "states.parquet")
    assert read_region(Folder(tmp_path), "PR").counties is None
    _table(NAME=["A", "B"], STATEFP=["13", "13"]).to_parquet(tmp_path / "counties_PR.parquet")
    with pytest.raises(DataError, match="contains no county of PR"):
        read_region(Folder(tmp_path), "PR")


@pytest.mark.real
def test_every_tile_of_puerto_rico_lies_in_a_county(real_data):
    found = read_region(Folder(real_data / "census"), "PR")
    labels = found.counties.label(*found.region.tiles(15).centres)
    assert len(found.counties) == 78
    assert len(np.unique(labels)) == 78
    assert ELSEWHERE not in labels
    assert found.counties.overlap(*found.region.tiles(15).centres, "tiles") is None

"""Files of polygons that are too large, lead elsewhere, or are not what they are called."""

import io
import json
import stat
import struct
import zipfile
from pathlib import Path

import geopandas as gpd
import pyogrio
import pytest
import shapely

from geogp.errors import DataError
from geogp.geodata.places import archives as untrusted
from geogp.geodata.places import polygons
from geogp.geodata.places.layers import read_layer

SHAPE = shapely.box(0, 0, 1, 1)


def _table(n: int = 1) -> gpd.GeoDataFrame:
    return gpd.GeoDataFrame({"NAME": [f"a{k}" for k in range(n)]}, geometry=[SHAPE] * n, crs=4326)


def _zip(path: Path, folder: Path, **extra: bytes) -> Path:
    """Write a zipped shapefile with further members."""
    folder.mkdir()
    _table().to_file(folder / "a.shp")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
        for name, content in extra.items():
            archive.writestr(name, content)
    return path


def test_a_whole_archive_is_read(tmp_path):
    assert read_layer(str(_zip(tmp_path / "a.zip", tmp_path / "loose"))).labels == ("a0",)


@pytest.mark.parametrize("name", ["../a.shp", "/a.shp", "x/../../a.shp", "..\\a.shp", "C:a.shp"])
def test_members_that_lead_out(tmp_path, name):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose", **{name: b"x"})
    with pytest.raises(DataError, match="leads out of the archive"):
        read_layer(str(path))


def test_members_that_are_links(tmp_path):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose")
    member = zipfile.ZipInfo("b.shp")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(DataError, match=r"'b\.shp', which is a link"):
        read_layer(str(path))


@pytest.mark.parametrize(
    ("limit", "told"),
    [("RATIO_FROM", "unpacked bytes in an archive of"), ("MAX_UNPACKED", "too many")],
)
def test_members_that_unpack_to_far_more(tmp_path, monkeypatch, limit, told):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose", big=bytes(1 << 20))
    monkeypatch.setattr(untrusted, limit, 1 << 19)
    with pytest.raises(DataError, match=told):
        read_layer(str(path))


def test_too_many_members(tmp_path, monkeypatch):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose")
    monkeypatch.setattr(untrusted, "MAX_MEMBERS", 3)
    with pytest.raises(
        DataError, match="contains 5 files with 5 different names; expected at most 3 files"
    ):
        read_layer(str(path))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.prj", "")
    with pytest.raises(DataError, match="all with different names"):
        read_layer(str(path))


def test_a_size_that_the_archive_denies(tmp_path):
    """GDAL reads as much as the archive says; what it says is held against what is there."""
    path = _zip(tmp_path / "a.zip", tmp_path / "loose")
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 3 << 30)
    path.write_bytes(content)
    with pytest.raises(DataError, match="unpacked bytes in an archive of"):
        read_layer(str(path))


@pytest.mark.parametrize("name", ["a.zip", "a.shz", "a.ZIP"])
def test_what_is_called_an_archive_must_be_one(tmp_path, name):
    (tmp_path / name).write_text(_table().to_json())
    with pytest.raises(DataError, match="not a zip file"):
        read_layer(str(tmp_path / name))


@pytest.fixture
def secret(tmp_path) -> Path:
    _table().to_file(tmp_path / "secret.gpkg")
    return tmp_path / "secret.gpkg"


def _pointers(secret: Path) -> dict[str, str]:
    line = f"gdal vector pipeline ! read {secret} ! reproject --dst-crs EPSG:4326"
    source = f"<SrcDataSource>{secret}</SrcDataSource>"
    layer = f'<OGRVRTLayer name="secret">{source}</OGRVRTLayer>'
    return {
        "a.geojson": json.dumps({"type": "gdal_streamed_alg", "command_line": line}),
        "b.json": f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>",
        "c.xml": "<OGRWFSDataSource><URL>http://127.0.0.1:9/</URL></OGRWFSDataSource>",
        "d.moaw": "{}",
    }


@pytest.mark.parametrize("name", ["a.geojson", "b.json", "c.xml", "d.moaw"])
def test_files_that_lead_to_others(tmp_path, secret, name):
    (tmp_path / name).write_text(_pointers(secret)[name])
    with pytest.raises(DataError, match=r"expected GeoJSON in|cannot be read as GeoJSON|not read:"):
        read_layer(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a.geojson", "b.json"])
def test_gdal_would_follow_them(tmp_path, secret, name):
    """Otherwise the test above would hold nothing."""
    (tmp_path / name).write_text(_pointers(secret)[name])
    assert gpd.read_file(tmp_path / name)["NAME"].tolist() == ["a0"]


def test_of_an_archive_only_its_file_of_shapes_is_read(tmp_path, secret):
    text = _pointers(secret)["b.json"].encode()
    extra = {"x.vrt": text, "__MACOSX/._a.shp": b"of a Mac"}
    path = _zip(tmp_path / "a.zip", tmp_path / "loose", **extra)
    assert read_layer(str(path)).labels == ("a0",)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.vrt", text)
    with pytest.raises(DataError, match=r"expected a file of shapes in .*, found x\.vrt"):
        read_layer(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.shp", text)
    with pytest.raises(
        DataError,
        match=r"ends in \.shp, but does not begin like a file of this "
        "format",
    ):
        read_layer(str(path))


@pytest.mark.parametrize("ending", ["geojson", "gpkg", "parquet"])
def test_files_with_too_many_polygons(tmp_path, monkeypatch, ending):
    path = tmp_path / f"a.{ending}"
    _table(4).to_parquet(path) if ending == "parquet" else _table(4).to_file(path)
    assert len(read_layer(str(path))) == 4
    monkeypatch.setattr(polygons, "MAX_POLYGONS", 3)
    with pytest.raises(DataError, match=r"4 polygons|declares 4 rows; expected at most 3"):
        read_layer(str(path))


def test_polygons_with_too_many_corners(tmp_path, monkeypatch):
    _table().to_file(tmp_path / "a.gpkg")
    monkeypatch.setattr(polygons, "MAX_VERTICES", 4)
    with pytest.raises(DataError, match="polygons with 5 vertices; expected at most 4"):
        read_layer(str(tmp_path / "a.gpkg"))


def test_files_that_are_too_large_are_not_read(tmp_path, monkeypatch):
    _table().to_file(tmp_path / "a.geojson")
    monkeypatch.setattr(untrusted, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="expected at most 100"):
        read_layer(str(tmp_path / "a.geojson"))


def test_a_name_of_a_crs_that_is_no_text(tmp_path):
    path = _zip(tmp_path / "a.zip", tmp_path / "loose")
    stream = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(stream, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            new.writestr(
                member.filename,
                content.replace(b"WGS_1984", b"W\xff\xfe1984")
                if member.filename.endswith("prj")
                else content,
            )
    path.write_bytes(stream.getvalue())
    with pytest.raises(DataError, match="cannot be read as boundaries"):
        read_layer(str(path))


def test_a_folder_of_parts_is_no_file(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    _table().to_parquet(tmp_path / "a.parquet" / "0.parquet")
    with pytest.raises(DataError, match="is a folder; expected a file"):
        polygons.read_polygons(tmp_path / "a.parquet")


def test_a_file_is_parsed_once(tmp_path, monkeypatch):
    """Its polygons are not counted before they are read, and no more are read than may be."""
    _table(9).to_file(tmp_path / "a.geojson")
    monkeypatch.setattr(polygons, "MAX_POLYGONS", 3)
    read, found = pyogrio.read_dataframe, []
    monkeypatch.setattr(
        pyogrio, "read_dataframe", lambda *a, **b: found.append(read(*a, **b)) or found[-1]
    )
    monkeypatch.setattr("pyogrio.read_info", None)
    with pytest.raises(DataError, match="contains 4 polygons or more; expected at most 3"):
        read_layer(str(tmp_path / "a.geojson"))
    assert [len(table) for table in found] == [4]

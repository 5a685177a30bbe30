"""Files of polygons that would make GDAL ask a server, and those that are not what they are called.

A socket listens on the loopback address and never answers: a request shows as a waiting connection.
"""

import json
import re
import select
import socket
import sqlite3
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import geopandas as gpd
import pyogrio
import pyproj.network
import pytest
import shapely

from geogp.errors import DataError, RequestError
from geogp.geodata.places.layers import read_layer
from geogp.geodata.places.polygons import read_polygons

TABLE = gpd.GeoDataFrame({"NAME": ["a"]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4326)

BY_LINK = '"type": "link", "properties": {"href": "URL", "type": "esriwkt"}'
BY_URL = '"type": "url", "properties": {"url": "URL"}'

WFS = """<?xml version="1.0"?><wfs:WFS_Capabilities version="1.1.0"
 xmlns:wfs="http://www.opengis.net/wfs" xmlns:ows="http://www.opengis.net/ows"
 xmlns:xlink="http://www.w3.org/1999/xlink"><ows:OperationsMetadata>
 <ows:Operation name="GetCapabilities"><ows:DCP><ows:HTTP><ows:Get xlink:href="URL?"/></ows:HTTP>
 </ows:DCP></ows:Operation><ows:Operation name="GetFeature"><ows:DCP><ows:HTTP>
 <ows:Get xlink:href="URL?"/></ows:HTTP></ows:DCP></ows:Operation></ows:OperationsMetadata>
 <wfs:FeatureTypeList><wfs:FeatureType><wfs:Name>a</wfs:Name>
 <wfs:DefaultSRS>urn:ogc:def:crs:EPSG::4326</wfs:DefaultSRS></wfs:FeatureType>
 </wfs:FeatureTypeList></wfs:WFS_Capabilities>"""

GML = """<?xml version="1.0"?><a:FeatureCollection xmlns:a="URL/ns"
 xmlns:gml="http://www.opengis.net/gml" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="URL/ns URL/a.xsd"><gml:featureMember><a:x fid="1"><a:NAME>q</a:NAME><a:g>
 <gml:Polygon srsName="URL/srs"><gml:outerBoundaryIs><gml:LinearRing><gml:coordinates>0,0 0,1 1,1
 0,0</gml:coordinates></gml:LinearRing></gml:outerBoundaryIs></gml:Polygon></a:g></a:x>
 </gml:featureMember></a:FeatureCollection>"""

VRT = """<OGRVRTDataSource><OGRVRTLayer name="q"><SrcDataSource>/vsicurl/URL/v.geojson
</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"""


@pytest.fixture
def server(monkeypatch) -> Iterator[SimpleNamespace]:
    """A server that is never to be asked: its address, and whether it was."""
    monkeypatch.setenv("GDAL_HTTP_TIMEOUT", "1")  # a request ends, so that the test can fail
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield SimpleNamespace(
            listening=listening,
            url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            asked=lambda: bool(select.select([listening], [], [], 0)[0]),
        )


def _geojson(crs: str, at: str = "top") -> str:
    """Return GeoJSON of one polygon with a CRS somewhere."""
    whole = json.loads(TABLE.to_json(drop_id=True))
    feature = whole["features"][0]
    {"top": whole, "feature": feature, "geometry": feature["geometry"]}[at]["crs"] = "HERE"
    return json.dumps(whole).replace('"HERE"', crs)


def _gpkg(path: Path, url: str) -> None:
    """Write a GeoPackage whose CRS is an address."""
    TABLE.to_file(path)
    with sqlite3.connect(path) as base:
        base.execute(f"UPDATE gpkg_spatial_ref_sys SET organization='X', definition='{url}'")
    base.close()


def _view(path: Path, url: str) -> None:
    """Write a GeoPackage whose layer is made by a function that opens an address."""
    TABLE.to_file(path)
    with sqlite3.connect(path) as base:
        call = f"gdal_get_pixel_value('/vsicurl/{url}/x.tif', 1, 'pixel', 0, 0)"
        base.execute(f"CREATE VIEW w AS SELECT fid, geom, {call} AS NAME FROM a")
        base.execute("UPDATE gpkg_contents SET table_name='w'")
        base.execute("UPDATE gpkg_geometry_columns SET table_name='w'")
    base.close()


def _shapefile(path: Path, url: str) -> None:
    """Write a shapefile whose CRS is an address."""
    TABLE.to_file(path)
    path.with_suffix(".prj").write_text(url)


TEXTS = {
    "link.geojson": _geojson(f"{{{BY_LINK}}}"),
    "link.json": _geojson(f"{{{BY_LINK}}}"),
    "url.geojson": _geojson(f"{{{BY_URL}}}"),
    "escaped.geojson": _geojson(f"{{{BY_LINK}}}").replace('"crs"', '"\\u0063rs"'),
    "capital.geojson": _geojson(f"{{{BY_LINK.replace('link', 'LINK')}}}").replace("crs", "CRS"),
    "second.geojson": _geojson(f'{{"type": "name", {BY_LINK}}}'),
    "feature.geojson": _geojson(f"{{{BY_LINK}}}", "feature"),
    "geometry.geojson": _geojson(f"{{{BY_LINK}}}", "geometry"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_crs_at_an_address_is_refused_and_not_fetched(tmp_path, server, name):
    (tmp_path / name).write_text(TEXTS[name].replace("URL", server.url))
    with pytest.raises(DataError, match=r"expected a CRS of type 'name' in .*(?i:'link'|'url')"):
        read_layer(str(tmp_path / name))
    assert not server.asked()


LINK = f"{{{BY_LINK}}}"


@pytest.mark.parametrize(
    "properties",
    [
        {"crs": {"code": 4326}},
        {"CRS": "HERE"},
        {"x": [{"crs": "HERE"}]},
        {"geometry": {"type": "Point", "coordinates": [0, 0], "crs": "HERE"}},
        {"features": [{"type": "Feature", "crs": "HERE", "geometry": None, "properties": {}}]},
    ],
)
@pytest.mark.parametrize("at", ["top", "feature", "geometry"])
def test_a_column_called_crs_is_none_and_asks_nobody(tmp_path, server, properties, at):
    whole = json.loads(TABLE.to_json(drop_id=True))
    feature = whole["features"][0]
    {"top": whole, "feature": feature, "geometry": feature["geometry"]}[at].setdefault(
        "properties", {}
    ).update(properties)
    text = json.dumps(whole).replace('"HERE"', LINK).replace("URL", server.url)
    (tmp_path / "a.geojson").write_text(text)
    assert read_layer(str(tmp_path / "a.geojson")).labels == ("a",)
    assert not server.asked()


@pytest.mark.parametrize("before", ["feature", "geometry"])
def test_a_column_called_crs_hides_no_crs(tmp_path, server, before):
    text = _geojson(LINK, before).replace('"NAME"', f'"crs": {LINK}, "NAME"')
    (tmp_path / "a.geojson").write_text(text.replace("URL", server.url))
    with pytest.raises(DataError, match=r"expected a CRS of type 'name' in .*'link'"):
        read_layer(str(tmp_path / "a.geojson"))
    assert not server.asked()


OTHERS = {
    "wfs.xml": WFS,
    "wfs.gml": WFS,
    "wfs.geojson": WFS,
    "schema.gml": GML,
    "schema.xml": GML,
    "a.vrt": VRT,
    "late.vrt": " " * (1 << 17) + VRT,
    "wfs.shp": WFS,
    "wfs.gpkg": WFS,
    "wfs.fgb": WFS,
    "a.kml": "<kml><Document><NetworkLink><Link><href>URL/a.kml</href></Link></NetworkLink>"
    "</Document></kml>",
    "a.gpx": '<gpx xmlns="http://www.topografix.com/GPX/1/1"><link href="URL"/></gpx>',
    "wms.xml": "<GDAL_WMS><Service name='WMS'><ServerUrl>URL</ServerUrl></Service></GDAL_WMS>",
    "tiles.json": '{"tilejson": "2.2.0", "tiles": ["URL/{z}/{x}/{y}.pbf"]}',
    "api.geojson": '{"links": [{"rel": "data", "type": "application/json", "href": "URL"}]}',
    "dtd.gml": '<?xml version="1.0"?><!DOCTYPE kml SYSTEM "URL/a.dtd"><FeatureCollection/>',
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_refused_and_ask_nobody(tmp_path, server, name):
    (tmp_path / name).write_text(OTHERS[name].replace("URL", server.url))
    told = (
        "format that geogp does not read|cannot be read as GeoJSON|does not begin like a file"
        r"|expected GeoJSON in|contains no placemark"
    )
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / name))
    assert not server.asked()


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of GDAL, of a CRS that it does not know
@pytest.mark.parametrize(
    ("name", "write", "told"),
    [
        ("a.gpkg", _gpkg, "has no CRS"),
        ("a.gpkg", _view, "cannot be read as boundaries"),
        ("a.shp", _shapefile, "has no CRS"),
    ],
)
def test_no_address_in_a_file_of_ours_is_asked(tmp_path, server, name, write, told):
    write(tmp_path / name, server.url)
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / name))
    assert not server.asked()


def test_gdal_would_ask(tmp_path, server):
    """Otherwise the tests above would hold nothing."""
    (tmp_path / "a.geojson").write_text(TEXTS["link.geojson"].replace("URL", server.url))
    asked = threading.Event()

    def answer() -> None:
        server.listening.accept()[0].close()
        asked.set()

    threading.Thread(target=answer, daemon=True).start()
    with suppress(pyogrio.errors.DataSourceError):
        pyogrio.list_layers(tmp_path / "a.geojson")
    assert asked.wait(10)


@pytest.mark.parametrize("start", ["/vsicurl/", "", "/vsizip//vsicurl/"])
def test_addresses_are_no_names_of_files(server, start):
    name = f"{start}{server.url}/a.geojson"
    with pytest.raises(RequestError, match="no file"):
        read_layer(name)
    with pytest.raises(DataError, match=r"a\.geojson"):
        read_polygons(Path(name))
    assert not server.asked()


def test_a_file_whose_name_reads_as_an_address_is_refused(tmp_path, monkeypatch, server):
    folder = tmp_path / f"x.zip!{server.url.replace('//', '')}"
    folder.mkdir()
    (folder / "a.gpkg").write_bytes(b"")
    with pytest.raises(DataError, match=r"a name that GDAL would read as an address\. Rename"):
        read_layer(str(folder / "a.gpkg"))
    # A folder that is called as the beginning of an address.
    monkeypatch.chdir(tmp_path)
    place = Path(server.url.replace("//", "/"))
    place.mkdir(parents=True)
    TABLE.to_file(tmp_path / "a.gpkg")
    (tmp_path / "a.gpkg").rename(place / "a.gpkg")
    assert read_layer(str(place / "a.gpkg")).labels == ("a",)
    assert not server.asked()


def test_a_grid_at_an_address_is_not_fetched_and_the_switch_is_put_back(tmp_path, server):
    """With PROJ's network on, a CRS in a file could lead it to any server."""
    crs = f"+proj=longlat +a=6378137 +rf=298 +nadgrids={server.url}/g.tif +type=crs"
    TABLE.set_crs(crs, allow_override=True).to_parquet(tmp_path / "a.parquet")
    before = pyproj.network.is_network_enabled()
    pyproj.network.set_network_enabled(active=True)
    try:
        with pytest.raises(DataError, match="has a CRS that cannot be converted to longitude"):
            read_layer(str(tmp_path / "a.parquet"))
        assert pyproj.network.is_network_enabled()
    finally:
        pyproj.network.set_network_enabled(active=before)
    assert not server.asked()


@pytest.mark.parametrize("start", ["", "\ufeff", "\n \n"])
def test_names_of_a_crs_are_read(tmp_path, start):
    text = _geojson('{"type": "name", "properties": {"name": "EPSG:3857"}}').replace(
        '"NAME": "a"', '"NAME": "a", "CRS": "link"'
    )
    (tmp_path / "a.geojson").write_text(start + text, "utf-8")
    layer = read_layer(str(tmp_path / "a.geojson"))
    assert layer.shapes[0].bounds[2] == pytest.approx(1 / 111_319.49, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("a.fgb", "FlatGeobuf"),
        ("A.GPKG", "GPKG"),
        ("a.json", "GeoJSON"),
        ("a;b{c}!.geojson", "GeoJSON"),
    ],
)
def test_files_of_the_formats_are_read(tmp_path, name, driver):
    plain = (tmp_path / name).with_name(f"x{(tmp_path / name).suffix.lower()}")
    TABLE.to_file(plain, driver=driver)
    plain.rename(tmp_path / name)
    assert read_layer(str(tmp_path / name)).labels == ("a",)


def _zip(path: Path, name: str) -> None:
    """Write a zipped shapefile."""
    parts = path.parent / "parts"
    parts.mkdir()
    TABLE.to_file(parts / "a.shp")
    with zipfile.ZipFile(path, "w") as archive:
        for part in parts.iterdir():
            archive.write(part, f"{name}{part.suffix}")


@pytest.mark.parametrize(
    ("archive", "name"),
    [("{a}.zip", "a"), ("a.zip", "a,b"), ("a.zip", "a;b?"), ("a;b?!.shz", "in/a{b}")],
)
def test_zipped_shapefiles_are_read_whatever_they_are_called(tmp_path, archive, name):
    _zip(tmp_path / archive, name)
    assert read_layer(str(tmp_path / archive)).labels == ("a",)


@pytest.mark.parametrize(
    ("archive", "name", "told"),
    [
        ("a{b.zip", "a", r"a\{b\.zip has an unpaired brace in its path\. Rename the file"),
        ("a}.zip", "a", "has an unpaired brace"),
        ("}a{.zip", "a", "has an unpaired brace"),
        (
            "a.zip",
            "a\\b",
            r"contains 'a\\\\b\.shp', a name that GDAL would change\. Rename this file",
        ),
    ],
)
def test_names_that_gdal_misreads_are_refused(tmp_path, archive, name, told):
    _zip(tmp_path / archive, name)
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / archive))


def test_parquet_in_an_archive_is_to_be_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.parquet", "x")
        archive.writestr("__MACOSX/._a.parquet.shp", "x")
    told = (
        r"expected a file of shapes in .*, found a\.parquet\. .* unpack the .*GeoParquet, GeoJSON"
    )
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / "a.zip"))


@pytest.mark.parametrize("name", ["a.gpkg", "in/A.GeoJSON", "a.json", "a.fgb", "a.kml", "a.KMZ"])
def test_zipped_files_of_the_formats_are_read(tmp_path, name):
    inside = "doc.kml" if name == "a.KMZ" else name
    plain = tmp_path / f"x{Path(inside).suffix.lower()}"
    if plain.suffix == ".kml":
        plain.write_text(KML)
    else:
        TABLE.to_file(plain, driver="GeoJSON" if "json" in name.lower() else None)
    path = tmp_path / ("a.KMZ" if name == "a.KMZ" else "a {b}.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._a.shp", "of a Mac")
        archive.writestr("readme.txt", "about")
        archive.write(plain, inside)
    layer = read_layer(str(path))
    assert layer.labels == ("a",)
    assert layer.shapes[0].bounds == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.gpkg", r"a\.zip contains a file that ends in \.gpkg, but does not begin"),
        ("a.geojson", r"a\.zip cannot be read as GeoJSON"),
        ("a.kml", r"a\.zip cannot be read as KML"),
        ("a.fgb", "does not begin like a file of this format"),
    ],
)
def test_zipped_files_that_are_something_else_ask_nobody(tmp_path, server, name, told):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, (" " + WFS).replace("URL", server.url))
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / "a.zip"))
    assert not server.asked()


def test_a_crs_at_an_address_is_not_fetched_from_an_archive(tmp_path, server):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.geojson", TEXTS["link.geojson"].replace("URL", server.url))
    with pytest.raises(DataError, match=r"expected a CRS of type 'name' in .*'link'"):
        read_layer(str(tmp_path / "a.zip"))
    assert not server.asked()


def test_one_of_several_files_in_an_archive_is_chosen_with_its_name(tmp_path):
    for name in ("wards", "districts"):
        TABLE.assign(NAME=name).to_file(tmp_path / f"{name}.shp")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for part in tmp_path.glob("*.???"):
            if part.suffix != ".zip":
                archive.write(part, f"in/{part.name}")
    with pytest.raises(RequestError, match=r"one of the 2 layers of .*a\.zip after its name"):
        read_layer(str(tmp_path / "a.zip"))
    assert read_layer(f"{tmp_path / 'a.zip'}:wards").labels == ("wards",)
    assert read_layer(f"{tmp_path / 'a.zip'}:wards:NAME").name == "a_wards"


KML = """<?xml version="1.0" encoding="UTF-8"?><kml xmlns="http://www.opengis.net/kml/2.2">
<!-- <OGRVRTDataSource> <wfs:WFS_Capabilities> --><Document><Style id="s"/><Folder><Placemark>
<name>a</name><ExtendedData><Data name="people"><value>7</value></Data></ExtendedData><Polygon>
<outerBoundaryIs><LinearRing><coordinates>0,0,12 1,0,12 1,1 0 , 1
0,0</coordinates></LinearRing></outerBoundaryIs></Polygon></Placemark>REST</Folder></Document></kml>
"""

RING = "<LinearRing><coordinates>{}</coordinates></LinearRing>"
HOLE = RING.format("5.2,0.2 5.4,0.2 5.4,0.4 5.2,0.2")


def test_kml_is_read(tmp_path):
    rest = (
        "<Placemark><name>b &amp; c</name><MultiGeometry><Polygon><outerBoundaryIs>"
        f"{RING.format('5,0 6,0 6,1 5,1 5,0')}</outerBoundaryIs><innerBoundaryIs>{HOLE}"
        "</innerBoundaryIs></Polygon><Polygon><outerBoundaryIs>"
        f"{RING.format('7,0 8,0 8,1')}</outerBoundaryIs></Polygon></MultiGeometry></Placemark>"
        "<Placemark><name>p</name><Point><coordinates>1,2</coordinates></Point></Placemark>"
        "<Placemark><name>none</name></Placemark>"
    )
    (tmp_path / "a.kml").write_text(KML.replace("REST", rest))
    layer = read_layer(str(tmp_path / "a.kml"))
    assert layer.labels == ("a", "b & c")
    assert [shape.area for shape in layer.shapes] == pytest.approx([1, 1 + 0.5 - 0.02])
    told = " ".join(layer.warnings)
    assert "1 of 4 rows have no polygon, and are left out: row 3 (p): Point" in told
    assert "1 of 4 rows have no shape, and are left out: row 4 (none)" in told
    with pytest.raises(DataError, match="expected a name in column people for each polygon"):
        read_layer(f"{tmp_path / 'a.kml'}:people")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '<!DOCTYPE kml [<!ENTITY x SYSTEM "URL/x">]><kml><Placemark>&x;</Placemark></kml>',
            "has a document type",
        ),
        ('<!DOCTYPE kml SYSTEM "URL/a.dtd"><kml/>', "has a document type"),
        (
            "<kml><NetworkLink><Link><href>URL/a.kml</href></Link></NetworkLink></kml>",
            "contains no placemark. geogp does not follow links",
        ),
        (WFS, "expected KML in .*, found an element WFS_Capabilities"),
        (VRT, "expected KML in .*, found an element OGRVRTDataSource"),
        ("<kml><Placemark>", "cannot be read as KML .no element found"),
        ("<kml>" + "<a>" * 200, "nested too deeply"),
        (
            (
                f"<kml><Placemark><name>x</name><Polygon><outerBoundaryIs>{RING.format('a,b')}"
                "</outerBoundaryIs></Polygon></Placemark></kml>"
            ),
            r"wrong shape in placemark 1 \(x\): could not convert",
        ),
        (
            (
                f"<kml><Placemark><Polygon><outerBoundaryIs>{RING.format('1,2 3,4')}"
                "</outerBoundaryIs></Polygon></Placemark></kml>"
            ),
            "wrong shape in placemark 1: ",
        ),
        ("<kml><Placemark><Point/></Placemark></kml>", "expected coordinates, found none"),
    ],
)
def test_kml_that_is_wrong_is_refused_and_asks_nobody(tmp_path, server, text, told):
    (tmp_path / "a.kml").write_text(text.replace("URL", server.url))
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / "a.kml"))
    assert not server.asked()


def _unmarked(path: Path, *commands: str) -> None:
    """Write a GeoPackage as old writers did, without the mark of one."""
    TABLE.to_file(path)
    with sqlite3.connect(path) as base:
        for command in ("PRAGMA application_id=0", "PRAGMA user_version=0", *commands):
            base.execute(command)
    base.close()


def test_a_geopackage_without_the_mark_of_one_is_read(tmp_path):
    _unmarked(tmp_path / "a #.gpkg")
    assert read_layer(str(tmp_path / "a #.gpkg")).labels == ("a",)


def test_a_database_that_is_no_geopackage_is_refused(tmp_path):
    _unmarked(tmp_path / "a.gpkg", "DROP TABLE gpkg_contents")
    with pytest.raises(
        DataError, match="without the table gpkg_contents, so it is not a GeoPackage"
    ):
        read_layer(str(tmp_path / "a.gpkg"))
    (tmp_path / "b.gpkg").write_bytes((tmp_path / "a.gpkg").read_bytes()[:100] + bytes(900))
    with pytest.raises(DataError, match=r"cannot be read as a GeoPackage \(.*\)\. Download"):
        read_layer(str(tmp_path / "b.gpkg"))


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of GDAL, of a CRS that it does not know
@pytest.mark.parametrize("write", [_gpkg, _view])
def test_no_address_in_a_geopackage_without_the_mark_is_asked(tmp_path, server, write):
    write(tmp_path / "a.gpkg", server.url)
    with sqlite3.connect(tmp_path / "a.gpkg") as base:
        base.execute("PRAGMA application_id=0")
    base.close()
    with pytest.raises(DataError, match=r"has no CRS|cannot be read as boundaries"):
        read_layer(str(tmp_path / "a.gpkg"))
    assert not server.asked()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'type': 'FeatureCollection'}", "cannot be read as GeoJSON"),
        ('{"type": "Topology"}', r"found type 'Topology'\."),
        ('{"type": ["FeatureCollection"]}', r"found type \['FeatureCollection'\]"),
        ("[]", "found type none"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "FeatureCollection"}\n{"type": "FeatureCollection"}', "Extra data"),
    ],
)
def test_json_that_is_not_geojson(tmp_path, text, told):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=told):
        read_layer(str(tmp_path / "a.json"))


def test_all_of_the_package_opens_files_through_one_function():
    """What asks GDAL for shapes stands in one module."""
    root = Path(__file__).parents[3] / "geogp"
    calls = re.compile(r"pyogrio\.|\.read_file\(|fiona")
    found = {path.name for path in root.rglob("*.py") if calls.search(path.read_text("utf-8"))}
    assert found == {"vector_files.py"}

"""Files of boundaries that lead elsewhere, or hold no sound polygons."""

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults_folders import Tally, World, forget
from faults_requests import GOOD, Counter, counting, faults_of

SQUARE = [[-90.2, 31.8], [-89.8, 31.8], [-89.8, 32.2], [-90.2, 32.2], [-90.2, 31.8]]


def _geojson(ring: list[Any] | None = None, crs: dict[str, Any] | None = None, **more: Any) -> str:
    shape = {"type": "Polygon", "coordinates": [SQUARE if ring is None else ring]}
    found: dict[str, Any] = {"type": "FeatureCollection", **more}
    if crs is not None:
        found["crs"] = crs
    found["features"] = [{"type": "Feature", "properties": {"a": 1}, "geometry": shape}]
    return json.dumps(found)


def _link(url: str, kind: str) -> dict[str, Any]:
    return {"type": "link", "properties": {"href": f"{url}/crs", "type": kind}}


def _crs_files(url: str) -> dict[str, str]:
    """Return files whose CRS is somewhere else."""
    named = {"type": "name", "properties": {"name": f"{url}/def/crs/EPSG/0/4326"}}
    gml = (
        '<gml:FeatureCollection xmlns:gml="http://www.opengis.net/gml"><gml:featureMember><a><g>'
        f'<gml:Polygon srsName="{url}/def/crs/EPSG/0/4326"><gml:outerBoundaryIs><gml:LinearRing>'
        "<gml:coordinates>-90.2,31.8 -89.8,31.8 -89.8,32.2 -90.2,31.8</gml:coordinates>"
        "</gml:LinearRing></gml:outerBoundaryIs></gml:Polygon></g></a></gml:featureMember>"
        "</gml:FeatureCollection>"
    )
    linked = gml.replace(
        "<g>", f'<g xlink:href="{url}/x" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    schema = gml.replace(
        "<gml:FeatureCollection ",
        '<gml:FeatureCollection xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{url}/a {url}/wfs?service=WFS&amp;request=DescribeFeatureType" ',
    )
    esri = {
        "geometryType": "esriGeometryPolygon",
        "spatialReference": {"wkt": f"{url}/crs"},
        "exceededTransferLimit": True,
        "features": [{"attributes": {"a": 1}, "geometry": {"rings": [SQUARE]}}],
    }
    return {
        "link-proj4.geojson": _geojson(crs=_link(url, "proj4")),
        "link-ogcwkt.geojson": _geojson(crs=_link(url, "ogcwkt")),
        "link.json": _geojson(crs={"type": "url", "properties": {"url": f"{url}/crs"}}),
        "named.geojson": _geojson(crs=named),
        "esri.json": json.dumps(esri),
        "crs.gml": gml,
        "linked.gml": linked,
        "schema.gml": schema,
    }


def _service_files(url: str) -> dict[str, str]:
    """Return files that are lists of services or of other files."""
    wfs = (
        '<?xml version="1.0"?><WFS_Capabilities version="1.1.0" '
        'xmlns:xlink="http://www.w3.org/1999/xlink"><OperationsMetadata><Operation '
        f'name="GetFeature"><DCP><HTTP><Get xlink:href="{url}/wfs?"/></HTTP></DCP></Operation>'
        "</OperationsMetadata><FeatureTypeList><FeatureType><Name>a</Name></FeatureType>"
        "</FeatureTypeList></WFS_Capabilities>"
    )
    vrt = (
        '<OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>/vsicurl/'
        f"{url}/a.geojson</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    )
    kml = (
        '<kml xmlns="http://www.opengis.net/kml/2.2"><Document><NetworkLink><Link>'
        f"<href>{url}/a.kml</href></Link></NetworkLink></Document></kml>"
    )
    entity = f'<?xml version="1.0"?><!DOCTYPE kml SYSTEM "{url}/a.dtd">' + kml
    pages = {"links": [{"rel": "next", "href": f"{url}/more"}], "type": "FeatureCollection"}
    api = {"links": [{"rel": "data", "type": "application/json", "href": f"{url}/collections"}]}
    wms = f"<GDAL_WMS><Service name='WMS'><ServerUrl>{url}/wms</ServerUrl></Service></GDAL_WMS>"
    return {
        **{f"wfs{ending}": wfs for ending in (".xml", ".gml", ".geojson", ".json", ".txt")},
        "wfs-prefix.xml": wfs.replace("WFS_Capabilities", "wfs:WFS_Capabilities"),
        "short.xml": f"<OGRWFSDataSource><URL>{url}/wfs</URL></OGRWFSDataSource>",
        **{f"vrt{ending}": vrt for ending in (".vrt", ".xml", ".geojson", "")},
        "spaces.vrt": "\n" * 70_000 + vrt,
        "network.kml": kml,
        "entity.kml": entity,
        "entity.gml": entity.replace("kml", "FeatureCollection"),
        "network.gpx": f'<gpx xmlns="http://www.topografix.com/GPX/1/1"><link href="{url}"/></gpx>',
        "next.geojson": json.dumps(pages | json.loads(_geojson())),
        "api.json": json.dumps(api),
        "api.geojson": json.dumps(api),
        "tiles.json": json.dumps({"tilejson": "2.2.0", "tiles": [f"{url}/{{z}}/{{x}}/{{y}}.pbf"]}),
        "wms.xml": wms,
        "plain.csv": 'a,WKT\n1,"POLYGON((-90.2 31.8,-89.8 31.8,-89.8 32.2,-90.2 31.8))"\n',
        "half.tab": "!table\n!version 300\n",
        "half.mif": 'Version 300\nCharset "Neutral"\nColumns 1\n  a Integer\nData\nRegion 1\n 4\n',
    }


def _odd_shapes() -> dict[str, str]:
    far = [[1e308, 1e308], [-1e308, 1e308], [0, -1e308], [1e308, 1e308]]
    bow = [[-90.2, 31.8], [-89.8, 32.2], [-89.8, 31.8], [-90.2, 32.2], [-90.2, 31.8]]
    nan = [[-90.2, 31.8], ["NaN", 31.8], [-89.8, 32.2], [-90.2, 31.8]]
    return {
        "crossing.geojson": _geojson(bow),
        "nan.geojson": _geojson(nan).replace('"NaN"', "NaN"),
        "infinite.geojson": _geojson(nan).replace('"NaN"', "Infinity"),
        "null.geojson": _geojson(nan).replace('"NaN"', "null"),
        "far.geojson": _geojson(far),
        "open.geojson": _geojson(SQUARE[:2]),
        "no-ring.geojson": _geojson([]),
        "no-area.geojson": _geojson([SQUARE[0]] * 5),
        "no-features.geojson": '{"type": "FeatureCollection", "features": []}',
        "no-geometry.geojson": _geojson().replace('"Polygon"', "null"),
        "deep.geojson": "[" * 10**5,
        "empty.geojson": "",
        "world.geojson": _geojson([[-180, -90], [180, -90], [180, 90], [-180, 90], [-180, -90]]),
    }


def _archives(folder: Path, url: str) -> list[Path]:
    """Write archives that hold what no file may be, and a bomb."""
    vrt = _service_files(url)["vrt.vrt"]
    members = {
        "vrt.zip": {"a.vrt": vrt},
        "crs.zip": {"a.geojson": _geojson(crs=_link(url, "proj4"))},
        "wfs.zip": {"a.xml": _service_files(url)["wfs.xml"]},
        "network.kmz": {"doc.kml": _service_files(url)["network.kml"]},
        "bomb.zip": {"a.geojson": " " * (200 << 20)},
        "outside.zip": {"../a.geojson": _geojson()},
        "prj.shz": {"a.prj": f"{url}/crs", "a.shp": "x"},
    }
    for name, held in members.items():
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in held.items():
                archive.writestr(member, content)
    return [folder / name for name in members]


def _database(folder: Path, url: str) -> Path:
    """Write a database whose CRS and tables are somewhere else."""
    path = folder / "elsewhere.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE spatial_ref_sys (srid, auth_name, auth_srid, srtext)")
        base.execute("INSERT INTO spatial_ref_sys VALUES (1, 'x', 1, ?)", (f"{url}/crs",))
        base.execute("CREATE TABLE geometry_columns (f_table_name, f_geometry_column, srid)")
        base.execute("CREATE TABLE a (WKT_GEOMETRY TEXT)")
        base.execute("INSERT INTO geometry_columns VALUES ('a', 'WKT_GEOMETRY', 1)")
    return path


def _files(folder: Path, server: Counter) -> list[str]:
    """Write the files; return what the command is given."""
    folder.mkdir()
    url = server.url
    texts = {**_crs_files(url), **_service_files(url), **_odd_shapes()}
    for name, content in texts.items():
        (folder / name).write_text(content)
    (folder / "whole.geojson").write_text(_geojson())
    host, port = url.removeprefix("http://").split(":")
    within = folder / "vsicurl" / "http:" / f"{host}:{port}"
    within.mkdir(parents=True)
    (within / "a.geojson").write_text(_geojson())
    strings = [
        f"PG:host={host} port={port} dbname=a",
        f"WFS:{url}/wfs",
        f"OAPIF:{url}/api",
        f"ESRIJSON:{url}/a",
    ]
    for name in (f"PG:host={host} port={port} dbname=a", "MVT:http:"):
        (folder / name).write_text(_geojson())
    paths = [folder / name for name in ("whole.geojson", *texts)]
    paths += [*_archives(folder, url), _database(folder, url)]
    return [
        *map(str, paths),
        *strings,
        f"/vsicurl/{url}/a.geojson",
        f"vsicurl/http:/{host}:{port}/a.geojson",
        f"/vsizip//vsicurl/{url}/a.zip",
        f"{url}/a.geojson",
        f"https://{host}:{port}/a.geojson",
        "MVT:http:",
    ]


def boundary_files(world: World, tally: Tally) -> None:
    """Map regions of odd files, with odd layers and strata: no server is asked."""
    with counting(world, tally) as server:
        folder = world.folder / "boundaries"
        given = _files(folder, server)
        uses: dict[str, Callable[[str], list[str]]] = {
            "--region-file": lambda text: ["--region-file", text, "--region-name", "Odd"],
            "--layer": lambda text: ["--layer", f"{text}:a"],
            "--strata": lambda text: ["--strata", text],
        }
        for use, options in uses.items():
            for text in tally.chosen(given, lambda text, use=use: _name(use, text, folder, server)):
                place = world.place()
                arguments = world.map(place, *options(text))
                if use == "--region-file":
                    arguments.remove("DEMO")
                server.asked.clear()
                told = world.call(*arguments, folder=str(folder))
                faults = faults_of(told, GOOD, asked=server.asked)
                if text.endswith("/whole.geojson") and told.code != 0:
                    faults.append(f"a sound file was refused: {told.last}")
                tally.note(
                    f"boundaries: {use.removeprefix('--')}",
                    _name(use, text, folder, server),
                    faults,
                )
                if not faults:
                    forget(place)


def _name(use: str, text: str, folder: Path, server: Counter) -> str:
    """Return the name of a case, which is the same in each run."""
    return f"{use.removeprefix('--')} {text.replace(f'{folder}/', '')}".replace(
        str(server.server_address[1]), "PORT"
    )

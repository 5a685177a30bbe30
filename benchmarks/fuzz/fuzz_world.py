"""Small valid files of every kind that geogp reads, and a finished run, to be damaged."""

import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geogp.files import sha256_of
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.store.cache import Note, note_text
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.tile_files import VALUES
from geogp.maps.page.packing import pack
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

HERE = b"@WORLD@"
"""Placeholder in cases for the folder of the world, whose name differs between machines."""

SOURCE = "https://127.0.0.1:9/bucket/tiles.parquet"

NEXT = b"\n--next answer--\n"
"""Separator between the answers of a server."""


@dataclass(frozen=True)
class World:
    """A folder with valid files for each reader, and a finished run."""

    folder: Path

    @property
    def run(self) -> Path:
        """The finished run."""
        return self.folder / "run"

    def seeds(self, reader: str) -> list[bytes]:
        """Return the valid files of a reader."""
        return [path.read_bytes() for path in sorted((self.folder / "seeds" / reader).iterdir())]

    def keep(self, reader: str, contents: list[bytes]) -> None:
        """Write the valid files of a reader."""
        folder = self.folder / "seeds" / reader
        folder.mkdir(parents=True)
        for number, content in enumerate(contents):
            (folder / f"{number}").write_bytes(content)


def square() -> Region:
    """Return the region that fuzzed tiles are read for."""
    return Region.from_geometry("XX", "Testland", shapely.box(-66.12, 18.1, -66.05, 18.15))


def fit_data() -> tuple[Data, Data]:
    """Return rows to learn from and to validate on."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (40, 2))
    y = np.sin(3 * x).sum(1) + 0.1 * random.standard_normal(40)
    return Data(x[:30], y[:30]), Data(x[30:], y[30:])


FIT = FitSettings(epochs=2, batch=15)


def make_world(folder: Path) -> World:
    """Write the valid files and make the run, in about ten seconds."""
    world = World(folder)
    world.keep("tiles", _tiles())
    states = _states()
    world.keep("boundaries-parquet", [_parquet(states)])
    world.keep("boundaries-zip", [_zipped(states, folder)])
    world.keep("layer-geojson", [states.to_json().encode()])
    gpkg = folder / "a.gpkg"
    states.to_file(gpkg)
    world.keep("layer-gpkg", [gpkg.read_bytes()])
    _add_points(world)
    world.keep("cache-file", [_tiles()[0]])
    world.keep("cache-note", [_note(_tiles()[0], folder)])
    world.keep("packed", _packed())
    world.keep("http", _answers())
    world.keep("names", [b"2019Q1..2023Q4", b"0231301203010123", b"a b.parquet"])
    world.keep("weights", [b'{"alpha": 0.1, "beta": 0.2, "seconds": 1.5, "trials": []}'])
    world.keep("rank", [b'{"r": 16, "chosen_by": "budget", "expected_seconds": 0.1}'])
    _add_models(world)
    _add_run(world)
    return world


def _add_points(world: World) -> None:
    """Keep one table of tests in several forms."""
    random = np.random.default_rng(0)
    times = pd.Timestamp("2023-07-01") + pd.to_timedelta(random.uniform(0, 180, 40), unit="D")
    table = pd.DataFrame(
        {
            "time": times.strftime("%Y-%m-%d %H:%M"),
            "lat": random.uniform(18.1, 18.15, 40).round(5),
            "lon": random.uniform(-66.12, -66.05, 40).round(5),
            "download_mbps": random.lognormal(3, 1, 40).round(2),
            "provider": "North",
        }
    )
    days = table.assign(time=times.strftime("%d/%m/%Y"))
    german = days.to_csv(index=False, sep=";", decimal=",").encode("utf-16")
    world.keep("points-csv", [table.to_csv(index=False).encode(), german])
    world.keep("points-json", [table.to_json(orient="records").encode()])
    world.keep("points-parquet", [_written(table)])
    stream = io.BytesIO()
    table.to_excel(stream, index=False)
    world.keep("points-xlsx", [stream.getvalue()])
    marks = "".join(
        f'<Placemark><ExtendedData><Data name="time"><value>{row.time}</value></Data>'
        f'<Data name="download_mbps"><value>{row.download_mbps}</value></Data></ExtendedData>'
        f"<Point><coordinates>{row.lon},{row.lat}</coordinates></Point></Placemark>"
        for row in table.itertuples()
    )
    head = '<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2"><Document>'
    world.keep("points-kml", [f"{head}{marks}</Document></kml>".encode()])


def _written(table: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    table.to_parquet(stream, index=False)
    return stream.getvalue()


def _tiles() -> list[bytes]:
    """Return a quarter of tiles as written by several writers; the first has checksums."""
    columns, rows = quadkeys.tiles_at([-66.14, -66.03], [18.16, 18.09])
    column, row = np.meshgrid(np.arange(columns[0], columns[1], 2), np.arange(rows[0], rows[1], 2))
    codes = np.sort(quadkeys.tiles_to_codes(column.ravel(), row.ravel()))
    random = np.random.default_rng(0)
    n = len(codes)
    devices = random.integers(1, 20, n)
    numbers = {name: random.integers(100, 300_000, n) for name in VALUES[:3]}
    table = pa.table(
        {
            "quadkey": quadkeys.format_quadkeys(codes).tolist(),
            "tile": ["POLYGON"] * n,
            **numbers,
            "tests": devices + random.integers(0, 30, n),
            "devices": devices,
        }
    )
    made = []
    for options in (
        {"write_page_checksum": True, "compression": "none", "use_dictionary": False},
        {"write_page_checksum": True, "compression": "zstd"},
        {"compression": "snappy"},
        {
            "compression": "none",
            "data_page_version": "2.0",
            "use_dictionary": False,
            "column_encoding": {"quadkey": "DELTA_BYTE_ARRAY", "tests": "DELTA_BINARY_PACKED"},
        },
    ):
        stream = io.BytesIO()
        pq.write_table(table, stream, row_group_size=40, **options)
        made.append(stream.getvalue())
    return made


def _states() -> gpd.GeoDataFrame:
    island = shapely.box(-65.9, 18.15, -65.88, 18.17)
    shapes = [
        shapely.MultiPolygon([shapely.box(-66.2, 18.1, -66.0, 18.3), island]),
        shapely.box(-65.0, 17.6, -64.5, 18.0),
    ]
    columns = {"STUSPS": ["PR", "VI"], "NAME": ["Puerto Rico", "Islands"], "STATEFP": ["72", "78"]}
    return gpd.GeoDataFrame(columns, geometry=shapes, crs=4269)


def _parquet(table: gpd.GeoDataFrame) -> bytes:
    stream = io.BytesIO()
    table.to_parquet(stream, index=False)
    return stream.getvalue()


def _zipped(table: gpd.GeoDataFrame, folder: Path) -> bytes:
    loose = folder / "loose"
    loose.mkdir()
    table.to_file(loose / "states.shp")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(loose.iterdir()):
            archive.write(path, path.name)
    shutil.rmtree(loose)
    return stream.getvalue()


def _note(content: bytes, folder: Path) -> bytes:
    path = folder / "entry"
    path.write_bytes(content)
    note = Note(
        source=SOURCE,
        etag='"abc"',
        last_modified="Wed, 21 Oct 2015 07:28:00 GMT",
        bytes_stored=5000,
        date="2024-01-01T00:00:00+00:00",
        sha256=sha256_of(path),
        size=len(content),
        rows=90,
        rows_in_source=90,
        bytes_read=4000,
        groups_read=2,
        groups_in_source=2,
        ranges=[[0, 4**16 - 1]],
        columns=["quadkey", *VALUES],
        simulated=False,
    )
    return note_text(note).encode()


def _packed() -> list[bytes]:
    random = np.random.default_rng(0)
    values = random.uniform(0, 100, (2, 9, 11))
    values[0, 0] = np.nan
    arrays = [pack(values[0], 0.5, 8), pack(values, 0.01, 16), pack(values[1], 1, 8, none=False)]
    return [json.dumps(one).encode() for one in arrays]


def _answers() -> list[bytes]:
    head = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 40\r\nETag: "abc"\r\n'
        b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nAccept-Ranges: bytes\r\n\r\n"
    )
    part = (
        b'HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nETag: "abc"\r\n'
        b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Range: bytes 5-14/40\r\n\r\n"
        b"0123456789"
    )
    busy = b"HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    moved = b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"
    whole = head.replace(b"40", b"10", 1) + b"0123456789"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n"
    orders = [[head, part], [busy, head, busy, part], [moved, head, part], [head, whole]]
    return [NEXT.join(one) for one in [*orders, [chunked, chunked]]]


def _add_models(world: World) -> None:
    """Write a small model and the checkpoint of a fit that stopped after an epoch."""
    sizes = Architecture(d=2, h=4, r=4, blocks=1)
    train, validation = fit_data()
    path = world.folder / "model"
    contents = []
    for name in ("dbk-rbf", "sv-rbf", "dnn"):
        model = build(name, sizes, train.x)
        model.take_target(train.y)
        save_model(model, path, {"unit": "log10 Mbps"})
        contents.append(path.read_bytes())
    world.keep("model", contents)
    checkpoint = world.folder / "checkpoint"
    fit(build("vbll", sizes, train.x), train, validation, FIT, checkpoint=checkpoint)
    world.keep("checkpoint", [checkpoint.read_bytes()])


def _add_run(world: World) -> None:
    folder = world.folder / "source"
    region = simple_region()
    made = simulate(region, rows=600, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(made, region, folder)
    request = MapSettings(
        region="DEMO",
        source=str(folder),
        boundaries=str(folder / "boundaries"),
        out=world.run,
        model="dbk-rbf",
        preset="quick",
        epochs=1,
        zoom=11,
    )
    run_map(request)
    text = (world.run / "run.json").read_bytes().replace(str(world.folder).encode(), HERE)
    for reader in ("run-reopen", "run-report", "run-gallery", "run-folder"):
        world.keep(reader, [text])
    world.keep("predictions", [(world.run / "test_predictions.parquet").read_bytes()])
    world.keep("grid", [(world.run / "grid.nc").read_bytes()])
    world.keep("stale", [b'["report.tex", "areas_x.csv"]'])

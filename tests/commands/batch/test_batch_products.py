"""One table, one raster and one page of all runs of a batch, and places in buckets and memory."""

import json
import logging
import os
import shutil
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
import requests
from batch_worlds import CODES, NAMES, working_here
from geopandas.testing import assert_geodataframe_equal
from moto.server import ThreadedMotoServer
from msgspec import to_builtins
from rasterio.transform import Affine
from rio_cogeo.cogeo import cog_validate
from run_worlds import made_up_run

from geogp.commands.batch import make_batch as running
from geogp.commands.batch.batch_place import open_place
from geogp.commands.batch.batch_plan import Execution
from geogp.commands.batch.batch_work import WorkOutcome
from geogp.commands.batch.make_batch import make_batch
from geogp.commands.batch.mosaic import join_rasters
from geogp.commands.batch.national import join_tables
from geogp.errors import DataError, NetworkError, RequestError
from geogp.geodata.tiles.quadkeys import HALF_WORLD_M
from geogp.runs.locks import LOCK_FILES
from geogp.runs.run_names import RUN_FILE

NATIONAL = Path("national/mobile-download")
BANDS = ("median_mbps", "lower_mbps", "upper_mbps")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def here(monkeypatch, no_pictures):
    """Compute in this process."""
    with working_here(monkeypatch) as direct:
        yield direct


@pytest.mark.trial
def test_the_mosaic_has_the_values_of_each_run_at_its_tiles(batch):
    filled = 0
    with rasterio.open(batch / NATIONAL / "map.tif") as whole:
        assert (whole.count, whole.dtypes[0], whole.crs.to_epsg()) == (3, "float32", 3857)
        assert whole.tags()["variables"] == " ".join(BANDS)
        assert "simulated" in whole.tags()["attribution"].casefold()
        mosaic = whole.read()
        for name in NAMES:
            for number, band in enumerate(BANDS):
                with rasterio.open(batch / name / f"{band}.tif") as part:
                    assert whole.descriptions[number] == part.descriptions[0]
                    assert whole.units[number] == part.units[0]
                    values = part.read(1)
                    window = whole.window(*part.bounds).round_offsets().round_lengths()
                    place = window.toslices()
                    there = np.isfinite(values)
                    np.testing.assert_array_equal(mosaic[number][place][there], values[there])
                    filled += there.sum()
        # And nothing else.
        assert np.isfinite(mosaic).sum() == filled
    valid, errors, _ = cog_validate(batch / NATIONAL / "map.tif", strict=True)
    assert (valid, errors) == (True, [])


@pytest.mark.trial
def test_the_table_has_the_rows_of_each_run(batch):
    table = gpd.read_parquet(batch / NATIONAL / "tiles.parquet")
    parts = [gpd.read_parquet(batch / name / "tiles.parquet") for name in NAMES]
    assert list(table.columns) == ["region", *parts[0].columns]
    assert list(dict.fromkeys(table["region"])) == list(CODES)
    start = 0
    for code, part in zip(CODES, parts, strict=True):
        mine = table.iloc[start : start + len(part)].reset_index(drop=True)
        assert set(mine["region"]) == {code}
        assert_geodataframe_equal(mine.drop(columns="region"), part)
        start += len(part)
    assert start == len(table)
    geo = json.loads(pq.read_schema(batch / NATIONAL / "tiles.parquet").metadata[b"geo"])
    np.testing.assert_allclose(geo["columns"]["geometry"]["bbox"], table.total_bounds)


@pytest.mark.trial
def test_a_table_with_columns_that_others_lack(batch, tmp_path):
    place = shutil.copytree(batch, tmp_path / "place")
    path = place / NAMES[1] / "tiles.parquet"
    table = pq.read_table(path)
    pq.write_table(
        table.drop_columns(["stratum"]).add_column(2, "county", [["Somewhere"] * len(table)]), path
    )
    runs = dict(zip(NAMES, CODES, strict=True))
    out = tmp_path / "joined.parquet"
    join_tables(place, runs, out)
    joined = gpd.read_parquet(out)
    assert len(joined) == sum(
        pq.read_metadata(place / run / "tiles.parquet").num_rows for run in runs
    )
    assert joined.columns[-1] == "geometry"
    assert set(joined["county"].where(joined["region"] == "BB").dropna()) == {"Somewhere"}
    assert joined["county"].isna().equals(joined["region"] != "BB")
    assert joined["stratum"].isna().equals(joined["region"] == "BB")
    pq.write_table(table.set_column(2, table.column_names[2], [[b"?"] * len(table)]), path)
    with pytest.raises(DataError, match="expected tables with the same columns"):
        join_tables(place, runs, out)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"BB-mobile-download/tiles.parquet is damaged"):
        join_tables(place, runs, out)


@pytest.mark.parametrize(
    ("geo", "geogp"),
    [
        ({"primary_column": "x", "columns": {"x": {"bbox": [0, 0, 1, 1]}}}, "[]"),
        ({"primary_column": "x", "columns": {"x": {"bbox": ["a", "b", "c", "d"]}}}, "{}"),
        ({"primary_column": "y", "columns": {"y": {"bbox": [0, 0, 1, 1]}}}, "{}"),
        ([], "{}"),
        ({"primary_column": "x", "columns": {"x": {"bbox": [0, 0, 1, 1]}}}, "[" * 100_000),
    ],
    ids=["a list", "edges of text", "no such column", "a list of columns", "deep"],
)
def test_damaged_metadata_of_a_table_are_told(tmp_path, geo, geogp):
    (tmp_path / "run").mkdir()
    table = pa.table({"x": [1.0]}).replace_schema_metadata({"geo": json.dumps(geo), "geogp": geogp})
    pq.write_table(table, tmp_path / "run" / "tiles.parquet")
    with pytest.raises(DataError, match="Delete its folder, and continue the batch"):
        join_tables(tmp_path, {"run": "AA"}, tmp_path / "joined.parquet")


@pytest.mark.trial
def test_the_page_shows_every_run_and_its_links_hold(batch):
    page = (batch / NATIONAL / "index.html").read_text("utf-8")
    for code, name in zip(CODES, NAMES, strict=True):
        assert f"State {code}" in page
        for file in ("map.html", "report.html"):
            link = f"./../../{name}/{file}"
            assert f'href="{link}"' in page
            assert (batch / NATIONAL / link).is_file()
    for file in ("map.tif", "tiles.parquet"):
        assert f'href="{file}"' in page


def write_raster(folder, tile, values, *, nodata=np.nan):
    """Write the raster of a run whose first pixel is a tile."""
    zoom, column, row = tile
    size = 2 * HALF_WORLD_M / (1 << zoom)
    folder.mkdir(parents=True)
    with rasterio.open(
        folder / "v.tif",
        "w",
        driver="GTiff",
        width=values.shape[1],
        height=values.shape[0],
        count=1,
        dtype=values.dtype,
        crs="EPSG:3857",
        nodata=nodata,
        transform=Affine(
            size, 0, column * size - HALF_WORLD_M, 0, -size, HALF_WORLD_M - row * size
        ),
    ) as raster:
        raster.write(values, 1)


def reader(path, zoom):
    """Return what tells the value at the middle of a tile."""
    size = 2 * HALF_WORLD_M / (1 << zoom)
    with rasterio.open(path) as raster:
        values, index = raster.read(1), raster.index

    def read(column, row):
        x, y = (column + 0.5) * size - HALF_WORLD_M, HALF_WORLD_M - (row + 0.5) * size
        return values[index(x, y)]

    return read


def test_rasters_of_other_zooms_and_across_the_edge_of_the_world(tmp_path):
    """Against each tile's value, looked up one by one."""
    random = np.random.default_rng(0)
    fine, coarse, edge = (
        random.uniform(1, 9, shape).astype(np.float32) for shape in ((700, 30), (5, 6), (4, 10))
    )
    fine[::3] = np.nan
    runs = [tmp_path / name for name in ("fine", "coarse", "edge")]
    write_raster(runs[0], (11, 100, 300), fine)
    write_raster(runs[1], (9, 26, 120), coarse)
    write_raster(runs[2], (11, -4, 900), edge)  # four columns west of the edge
    out = tmp_path / "map.tif"
    join_rasters(runs, ["v"], out)
    with rasterio.open(out) as raster:
        assert raster.bounds.left == pytest.approx(-HALF_WORLD_M)
        assert raster.bounds.right == pytest.approx(HALF_WORLD_M)
    read = reader(out, 11)
    for (down, across), value in np.ndenumerate(fine[::17, ::5]):
        column, row = 100 + 5 * across, 300 + 17 * down
        if np.isfinite(value):
            assert read(column, row) == np.float32(value)
    for (down, across), value in np.ndenumerate(edge):
        assert read((across - 4) % 2048, 900 + down) == np.float32(value)
    for down in range(20):
        for across in range(24):
            column, row = 4 * 26 + across, 4 * 120 + down
            under = fine[row - 300, column - 100]  # the first with a value wins
            value = coarse[down // 4, across // 4] if np.isnan(under) else under
            assert read(column, row) == np.float32(value)
    # Of 2,048 by 700 pixels of 4 bytes nearly all are empty, and take no room.
    assert out.stat().st_size < 150_000
    assert {path.name for path in tmp_path.iterdir()} == {"map.tif", "fine", "coarse", "edge"}


def test_whole_numbers_without_data_become_nan(tmp_path):
    write_raster(tmp_path / "run", (8, 3, 4), np.array([[7, -1], [-1, 2]], np.int32), nodata=-1)
    join_rasters([tmp_path / "run"], ["v"], tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), [[7, np.nan], [np.nan, 2]])


def test_an_overview_of_classes_has_no_class_between_two(tmp_path):
    classes = (2 * (np.indices((600, 600)).sum(0) % 2)).astype(np.uint8)
    write_raster(tmp_path / "run", (12, 30, 40), classes, nodata=255)
    told = {"flag_values": "0 1 2", "flag_meanings": "low middle high"}
    with rasterio.open(tmp_path / "run" / "v.tif", "r+") as raster:
        raster.update_tags(1, **told)
    join_rasters([tmp_path / "run"], ["v"], tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif", overview_level=0) as small:
        assert small.shape == (300, 300)
        assert set(np.unique(small.read(1))) <= {0, 2}
    with rasterio.open(tmp_path / "map.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), classes)
        assert told.items() <= raster.tags(1).items()


@pytest.mark.trial
@pytest.mark.usefixtures("here")
def test_tiers_of_several_states_are_joined(states, tmp_path):
    request = states.request("AA,BB", targets="tier", model="class-rbf")
    made = make_batch(request, str(tmp_path / "out"))
    assert made.exit_code == 0
    names = ("AA-mobile-tier", "BB-mobile-tier")
    group = tmp_path / "out" / "national" / "mobile-tier"
    for name in names:
        run = json.loads((tmp_path / "out" / name / "run.json").read_text("utf-8"))
        assert made.rows[name].accuracy["random"] == run["metrics"]["random"]["all"]["accuracy"]
    with rasterio.open(group / "map.tif") as whole:
        bands = [*("tier", "p_at_least_5_1", "p_at_least_7_1", "p_at_least_35_3")]
        assert whole.tags()["variables"].split() == [*bands, "p_most_probable"]
        assert whole.tags(1)["flag_meanings"] == "below_5_1 5_1 7_1 35_3"
        tier = whole.read(1)
    table = gpd.read_parquet(group / "tiles.parquet")
    names = np.array(["below 5/1", "5/1", "7/1", "35/3"])[tier[np.isfinite(tier)].astype(int)]
    assert pd.Series(names).value_counts().to_dict() == table["tier"].value_counts().to_dict()


def test_what_is_no_raster_of_tiles_is_refused(tmp_path):
    write_raster(tmp_path / "odd", (8, 3.5, 4), np.ones((2, 2)))
    with pytest.raises(DataError, match="expected a raster of tiles in EPSG:3857"):
        join_rasters([tmp_path / "odd"], ["v"], tmp_path / "map.tif")
    (tmp_path / "odd" / "v.tif").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"odd/v.tif is damaged"):
        join_rasters([tmp_path / "odd"], ["v"], tmp_path / "map.tif")


@pytest.fixture(scope="module")
def server():
    """Return the address of an S3 server with an empty bucket."""
    logging.getLogger("werkzeug").setLevel("ERROR")
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with requests.Session() as session:
        session.trust_env = False
        assert session.put(f"http://{host}:{port}/bucket", timeout=30).ok
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return "s3://bucket"


@pytest.fixture
def made(batch, here, monkeypatch):
    """Runs are those of the finished batch, unless they are there; tells which were made."""
    names = []

    def make(order):
        folder = order.folder / order.run.name
        if (folder / RUN_FILE).exists():
            return WorkOutcome("kept", 1.0, 1, "here:1")
        names.append(order.run.name)
        shutil.copytree(batch / order.run.name, folder, copy_function=shutil.copy2)
        return WorkOutcome("made", 1.0, 1, "here:1")

    monkeypatch.setattr(running, "make_run", make)
    return names


def files_at(place, *parts):
    """Return the paths of the files in a folder at the address of a place."""
    root = "/".join((place.root, *parts))
    return {path[len(root) :].strip("/") for path in place.files.find(root)}


@pytest.mark.trial
def test_a_batch_in_a_bucket(bucket, batch, states, made):
    where = f"{bucket}/some/batch"
    result = make_batch(states.request("AA,BB"), where)
    assert (result.exit_code, made) == (0, list(NAMES[:2])), result.described()
    place = open_place(where)
    own = {path.name for path in (batch / NAMES[0]).iterdir()}
    assert files_at(place, NAMES[0]) == own - LOCK_FILES
    content = place.files.cat_file(f"{place.root}/{NAMES[0]}/{RUN_FILE}")
    assert content == (batch / NAMES[0] / RUN_FILE).read_bytes()
    assert files_at(place, *NATIONAL.parts) == {"tiles.parquet", "map.tif", "index.html"}
    page = place.files.cat_file(f"{place.root}/{NATIONAL}/index.html").decode()
    assert f'href="./../../{NAMES[1]}/map.html"' in page
    table = place.files.cat_file(f"{place.root}/batch.json")
    assert {row["state"] for row in json.loads(table)["runs"].values()} == {"done"}
    again = make_batch(None, where)
    assert {row.how for row in again.rows.values()} == {"kept"}
    assert again.national["mobile-download"].seconds is None  # it was not joined again


def write_run(folder, *files, **run):
    """Write a folder of files with a run.json that names them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)
    names = sorted({Path(file).parts[0] for file in files})
    (folder / RUN_FILE).write_text(json.dumps(to_builtins(made_up_run(files=names)) | run))
    return folder


@pytest.fixture(params=["memory", "bucket"])
def used(tmp_path, bucket, request):
    """A place with the upload of a run, and a file of the user beside it."""
    address = bucket if request.param == "bucket" else "memory:/"
    place = open_place(f"{address}/used-{tmp_path.name}")
    write_run(place.folder / "run", "map.html", "old.tif", "zarr/0.0", "zarr/9.9", seed=1)
    place.upload_run("run")
    place.files.pipe_file(f"{place.root}/run/my-notes.txt", b"content")
    return place


def test_an_upload_replaces_the_files_of_a_run_and_no_others(used):
    files = ("map.html", "new.tif", "zarr/0.0")
    run = write_run(used.folder / "run", *files, seed=2)
    (run / ".geogp.lock").touch()
    used.upload_run("run")
    assert files_at(used, "run") == {RUN_FILE, "my-notes.txt", *files}


@pytest.mark.parametrize("content", [b"no json", b'{"files": ["../x"]}', b"[" * 100_000])
def test_a_run_json_that_cannot_be_read_names_no_files_to_remove(used, content):
    used.files.pipe_file(f"{used.root}/x", b"content")
    used.files.pipe_file(f"{used.root}/run/{RUN_FILE}", content)
    used.upload_run("run")
    assert files_at(used) == {
        *("x", "run/run.json", "run/my-notes.txt", "run/map.html", "run/old.tif"),
        *("run/zarr/0.0", "run/zarr/9.9"),
    }


def test_an_upload_that_was_stopped_is_done_again(used, monkeypatch):
    """What was copied in part is not finished, and what was copied whole is left as it is."""
    write_run(used.folder / "run", "map.html", "other.tif", seed=2)
    put, copied = type(used.files).put_file, []

    def stopped(self, source, target):
        if target.endswith("other.tif"):
            raise OSError("the line broke.")
        put(self, source, target)

    def counted(self, source, target):
        copied.append(target.rpartition("/")[2])
        put(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(used.files), "put_file", stopped)
        with pytest.raises(NetworkError, match=r"cannot write .*: the line broke\."):
            used.upload_run("run")
    assert files_at(used, "run") == {"map.html", "my-notes.txt"}
    monkeypatch.setattr(type(used.files), "put_file", counted)
    for _ in range(2):
        used.upload_run("run")
        assert copied == ["map.html", "other.tif", RUN_FILE]


@pytest.mark.trial
def test_only_what_is_finished_is_uploaded(states, made, here, monkeypatch):
    """An upload that fails leaves the runs, and the same call makes up for it."""
    where = "memory://finished/batch"
    here.faults[NAMES[1]] = [DataError("bad.")] * 2
    place = open_place(where)
    with monkeypatch.context() as patch:
        put = type(place.files).put_file

        def failing(self, source, target):
            if not target.endswith("batch.json"):
                raise OSError("the line broke.")
            put(self, source, target)

        patch.setattr(type(place.files), "put_file", failing)
        with pytest.raises(NetworkError, match="the line broke"):
            make_batch(states.request("AA,BB"), where)
    assert made == [NAMES[0]]
    assert make_batch(None, where).exit_code == 3
    assert made == [NAMES[0]]
    assert {path.partition("/")[0] for path in files_at(place)} == {
        *("batch.json", "national", NAMES[0])
    }


def test_places_that_cannot_be(tmp_path, bucket, monkeypatch):
    with pytest.raises(RequestError, match="user name or password"):
        open_place("s3://name:word@bucket/x")
    with pytest.raises(RequestError, match="cannot write to no-such://x"):
        open_place("no-such://x")
    with pytest.raises(RequestError, match="s3://bucket/folder"):
        open_place("s3:///x")
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="is a file"):
        open_place(str(tmp_path / "file" / "deeper"))
    open_place(f"{bucket}/none").check_address(["batch.json"])
    absent = open_place("s3://absent/x")
    write_run(absent.folder / "run")
    with pytest.raises(NetworkError, match=r"cannot write s3://absent/x: "):
        absent.upload("run/run.json")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(NetworkError, match="Check the address, the connection"):
        open_place(f"{bucket}/x").check_address(["batch.json"])


@pytest.mark.trial
def test_products_that_cannot_be_made_are_told(batch, states, tmp_path, here):
    place = shutil.copytree(batch, tmp_path / "place", copy_function=shutil.copy2)
    shutil.rmtree(place / "national")
    damaged = place / NAMES[1] / "lower_mbps.tif"
    then = damaged.stat()
    damaged.write_bytes(bytes(then.st_size))
    os.utime(damaged, ns=(then.st_atime_ns, then.st_mtime_ns))  # else the run would be repaired
    result = make_batch(states.request(), str(place), Execution(retries=3))
    assert result.exit_code == 3
    assert "lower_mbps.tif is damaged" in result.national["mobile-download"].error
    shutil.copy2(batch / NAMES[1] / damaged.name, damaged)
    assert make_batch(None, str(place)).exit_code == 0
    assert (place / NATIONAL / "map.tif").is_file()

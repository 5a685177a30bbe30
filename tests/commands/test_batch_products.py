"""One table, one raster and one page of all runs of a batch, and places in buckets and memory."""

import json
import logging
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

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

from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_plan import Execution, runs_of
from geogp.commands.batch.batch_work import WorkOrder, make_run, scratch_folder
from geogp.commands.batch.make_batch import make_batch
from geogp.commands.batch.mosaic import join_rasters
from geogp.commands.batch.national import JoinedRun, join_tables
from geogp.errors import DataError, NetworkError, RequestError
from geogp.geodata.tiles.quadkeys import HALF_WORLD_M
from geogp.runs.locks import LOCK_FILES, is_vacant
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
    runs = {name: JoinedRun(code, "0") for name, code in zip(NAMES, CODES, strict=True)}
    out = tmp_path / "joined.parquet"
    assert join_tables(place, runs, out) == sum(
        pq.read_metadata(place / run / "tiles.parquet").num_rows for run in runs
    )
    joined = gpd.read_parquet(out)
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
        join_tables(tmp_path, {"run": JoinedRun("AA", "0")}, tmp_path / "joined.parquet")


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
def sent(batch, here, monkeypatch, tmp_path):
    """Runs that go to an address are those of the finished batch; tells which were made."""
    made = []

    def carried_out(job):
        made.append(job.folder.path.name)
        shutil.copytree(batch / made[-1], job.folder.path, dirs_exist_ok=True)
        return SimpleNamespace(already_there=False)

    monkeypatch.setattr("geogp.commands.batch.batch_work.run_job", carried_out)
    return made


@pytest.mark.trial
def test_a_batch_in_a_bucket(bucket, batch, states, sent, tmp_path):
    where = f"{bucket}/some/batch"
    result = make_batch(states.request("AA,BB"), where)
    assert (result.exit_code, sent) == (0, list(NAMES[:2])), result.described()
    place = open_place(where)
    held = {path.name for path in (batch / NAMES[0]).iterdir()}
    assert set(place.sizes(NAMES[0])) == held - LOCK_FILES
    assert place.read(NAMES[0], RUN_FILE) == (batch / NAMES[0] / RUN_FILE).read_bytes()
    assert set(place.sizes(*NATIONAL.parts)) == {"tiles.parquet", "map.tif", "index.html"}
    page = place.read(*NATIONAL.parts, "index.html").decode()
    assert f'href="./../../{NAMES[1]}/map.html"' in page
    again = make_batch(None, where)
    assert {row.how for row in again.rows.values()} == {"kept"}
    assert again.national["mobile-download"].seconds is None  # it was not joined again
    assert list((tmp_path / "cache" / "batch").rglob("*.tif")) == []  # nothing is left here


@pytest.mark.trial
def test_memory_is_a_place_too_and_a_run_that_lacks_a_file_is_made_again(states, sent):
    where = "memory://batch"
    for expected in ("made", "kept"):
        assert make_batch(states.request("AA"), where).rows[NAMES[0]].how == expected
    open_place(where).files.rm_file(f"/batch/{NAMES[0]}/map.html")
    assert make_batch(states.request("AA"), where).rows[NAMES[0]].how == "made"
    assert "map.html" in open_place(where).sizes(NAMES[0])


@pytest.mark.trial
def test_a_run_at_an_address_goes_on_where_it_was_stopped(batch, states, sent, monkeypatch):
    """What was copied in part is not finished, and what is made stays until it is copied."""
    where = "memory://half"
    put, count = Place.put, iter(range(99))

    def failing(self, path, *parts):
        if next(count) == 3:
            raise NetworkError("the line broke.")
        put(self, path, *parts)

    order = WorkOrder(runs_of(states.request("AA"))[0], where, None)
    with monkeypatch.context() as patch:
        patch.setattr(Place, "put", failing)
        with pytest.raises(NetworkError, match="the line broke"):
            make_run(order)
    assert open_place(where).record(NAMES[0]) is None
    folder = scratch_folder(where, None) / NAMES[0]
    assert (folder / RUN_FILE).is_file()
    (folder / RUN_FILE).unlink()  # as a stop while it was emptied leaves it
    assert make_run(order).how == "made"
    assert open_place(where).record(NAMES[0]) is not None
    assert is_vacant(folder)


def write_run(folder, *files, **run):
    """Write a folder of files with a run.json that names them."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)
    names = sorted({Path(file).parts[0] for file in files})
    held = to_builtins(made_up_run(files=names))
    (folder / RUN_FILE).write_text(json.dumps(held | run))
    return folder


PRODUCTS = ("areas_county.csv", "exceedance_x.tif", "report.tex", "figures/a/map.pdf")


@pytest.fixture
def used(tmp_path):
    """A place with a run, what commands wrote into it, and a file of the user."""
    place = open_place(f"memory://used-{tmp_path.name}")
    one = write_run(tmp_path / "one", "map.html", "old.tif", "zarr/0.0", "zarr/9.9", seed=1)
    place.put_run(one, "run")
    for file in (*PRODUCTS, "my-notes.txt"):
        place.write(b"content", "run", *file.split("/"))
    return place


@pytest.mark.parametrize(
    ("changed", "kept"),
    [({}, PRODUCTS), ({"seed": 2}, ()), ({"drawing": {"thresholds": [25]}}, ())],
    ids=["the same run", "another fit", "another map"],
)
def test_a_run_put_over_one_removes_what_is_of_it_or_outdated_and_no_more(
    used, tmp_path, changed, kept
):
    files = ("map.html", "new.tif", "zarr/0.0")
    used.put_run(write_run(tmp_path / "two", *files, **{"seed": 1} | changed), "run")
    assert set(used.sizes("run")) == {RUN_FILE, "my-notes.txt", *files, *kept}


def test_files_in_a_folder_without_a_run_are_the_users(tmp_path):
    place = open_place("memory://users")
    place.write(b"content", "run", "figures", "mine.png")
    place.put_run(write_run(tmp_path / "one", "map.html"), "run")
    assert "figures/mine.png" in place.sizes("run")


def test_products_of_a_run_that_cannot_be_read_are_outdated(used, tmp_path):
    used.write(b'{"files": ["../x"]}', "run", RUN_FILE)
    used.put_run(write_run(tmp_path / "two", "map.html", seed=1), "run")
    left = set(used.sizes("run"))
    assert left.isdisjoint(PRODUCTS)
    assert "my-notes.txt" in left


@pytest.mark.parametrize("files", [("map.html", "old.tif"), ("map.html", "third.tif")])
def test_a_copy_that_was_stopped_is_known_to_the_next(used, tmp_path, monkeypatch, files):
    """Nothing of it is left but what the next one has, and nothing else is lost by the stop."""
    two = write_run(tmp_path / "two", "map.html", "another.tif", seed=1)
    put = type(used).put

    def stopped(self, path, *parts):
        if parts[-1] == RUN_FILE:
            raise NetworkError("the line broke.")
        put(self, path, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(type(used), "put", stopped)
        with pytest.raises(NetworkError, match="the line broke"):
            used.put_run(two, "run")
    assert "another.tif" in used.sizes("run")
    assert used.record("run") is None
    used.put_run(write_run(tmp_path / "three", *files, seed=1), "run")
    kept = {RUN_FILE, "my-notes.txt", *PRODUCTS, *files}
    assert set(used.sizes("run")) == kept


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
    assert open_place(f"{bucket}/none").read("batch.json") is None
    with pytest.raises(NetworkError, match=r"cannot write s3://absent/x/batch.json"):
        open_place("s3://absent/x").write(b"1", "batch.json")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(NetworkError, match="Check the address, the connection"):
        open_place(f"{bucket}/x").write(b"1", "batch.json")


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

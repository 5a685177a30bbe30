"""The commands fetch and cache, killed and out of room too; a map from a server."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmark_scripts import load
from run_worlds import run_json

from geogp.geodata.store.remote import PATIENCE
from geogp.runs.pipeline.run_map import run_map

COMMAND = [sys.executable, "-c", "from geogp_cli.entry import run; run()"]


@pytest.fixture(scope="module")
def faults():
    return load("faults.faults")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def world(faults, tmp_path_factory):
    return faults.make_world(tmp_path_factory.mktemp("world"), rows=2000)


@pytest.fixture
def server(faults, world):
    with faults.serving(world.folder / "old", world.folder / "new") as running:
        yield running


def asked(world, server, quarters="2022Q1..2023Q4"):
    boundaries = ["--boundaries", str(world.folder / "boundaries")]
    return ["fetch", "DEMO", "--source", server.url, *boundaries, "--quarters", quarters]


def test_fetch_tells_what_was_read_of_what_is_stored(world, server, geogp):
    code, out, told = geogp(*asked(world, server, "2021Q4..2022Q2"), "--json")
    assert code == 0
    assert "downloading boundaries and tiles" in told
    found = json.loads(out)
    assert (found["region"], found["service"], found["missing"]) == ("DEMO", "mobile", ["2021Q4"])
    assert [one["quarter"] for one in found["quarters"]] == ["2022Q1", "2022Q2"]
    assert sum(one["bytes_read"] for one in found["quarters"]) == server.told.sent
    for one in found["quarters"]:
        assert one["fresh"]
        assert one["groups_read"] < one["groups_in_source"]
        assert one["bytes_read"] < 0.6 * one["bytes_stored"]
    code, out, _ = geogp(*asked(world, server, "2022Q1"))
    assert code == 0
    read, stored = (found["quarters"][0][f"bytes_{what}"] / 1e6 for what in ("read", "stored"))
    assert f"{read:.2f} of {stored:.2f}" in out
    assert "cache" in out


def test_what_cannot_be_fetched(world, server, geogp):
    code, _, told = geogp(*asked(world, server, "2022Q1,2021Q1"))
    assert (code, "2021Q1 was requested but" in told) == (3, True)
    code, _, told = geogp("fetch", "PR", "--source", world.folder / "old")
    assert (code, "reads this folder directly" in told) == (2, True)
    code, _, told = geogp(*asked(world, server), "--service", "mobil")
    assert (code, "choose one of mobile, fixed. Did you mean mobile?" in told) == (2, True)
    code, _, told = geogp(*asked(world, server, "2021Q1..2021Q2"))
    assert (code, "has no mobile tiles for 2021Q1, 2021Q2" in told) == (3, True)
    server.tell(load("faults.faulty_server").Fault("403", times=99, method="HEAD"))
    code, out, told = geogp(*asked(world, server))
    assert (code, out, "answered 403" in told) == (4, "", True)


def test_what_was_not_reached_is_no_success(world, faults, geogp, monkeypatch):
    monkeypatch.setitem(vars(PATIENCE), "first_wait_s", 0.01)
    with faults.serving(world.folder / "old") as server:
        assert geogp(*asked(world, server, "2022Q1"))[0] == 0
    code, out, told = geogp(*asked(world, server, "2022Q1..2022Q3"), "--json")
    found = json.loads(out)
    assert (code, found["unreached"], found["missing"]) == (4, ["2022Q2", "2022Q3"], [])
    assert [one["quarter"] for one in found["quarters"]] == ["2022Q1"]
    assert "not in the cache, so they are left out: 2022Q2, 2022Q3." in " ".join(told.split())
    code, out, _ = geogp(*asked(world, server, "2022Q1..2022Q3"))
    assert (code, "not reached: 2022Q2, 2022Q3" in out) == (4, True)
    code, out, told = geogp(*asked(world, server, "2022Q1"))
    assert (code, "come from the cache, unchecked" in told) == (0, True)


def test_the_cache_is_listed_verified_and_cleared(world, server, geogp, cache):
    assert geogp(*asked(world, server, "2022Q1..2022Q2"))[0] == 0
    code, out, _ = geogp("cache", "list", "--json")
    items = json.loads(out)["items"]
    assert (code, [item["kind"] for item in items]) == (0, ["region", "region"])
    assert {item["state"] for item in items} == {None}
    assert geogp("cache", "verify")[0] == 0
    path = Path(items[0]["path"])
    path.write_bytes(path.read_bytes()[:-1])
    code, out, _ = geogp("cache", "verify")
    assert (code, "1 damaged" in out) == (3, True)
    code, out, _ = geogp("cache", "verify", "--json")
    states = [item["state"] for item in json.loads(out)["items"]]
    assert (code, states) == (3, ["damaged", "whole"])
    code, out, _ = geogp("cache", "clear", "--json")
    assert (code, json.loads(out)["deleted"]) == (0, 2)
    left = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} == {".lock"}
    assert json.loads(geogp("cache", "list", "--json")[1])["items"] == []


@pytest.mark.trial
def test_five_kills(faults, world, server):
    faults.kills(world, server, 5, np.random.default_rng(1))
    assert sum(found.total() for found in world.outcomes.values()) == 5
    assert not faults.wrongs(world), world.outcomes


def test_a_limit_on_the_size_of_files(faults, world, server, cache):
    """As a full disk: an error that says so, nothing half-written, and the next run is right."""
    done = subprocess.run(
        [*COMMAND, *asked(world, server)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GEOGP_CACHE": str(cache)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert done.returncode == 2
    assert "the disk is full or a file-size limit is reached" in done.stderr
    assert "GEOGP_CACHE" in done.stderr
    assert not [path for path in (cache / "tiles").rglob("*obile*") if path.is_file()]
    found = faults.run(faults.Web(server.url, faults.QUICK), world.region)
    assert faults.same(found, world.old)


@pytest.mark.trial
@pytest.mark.usefixtures("no_pictures", "short_field_fits")
def test_a_map_from_a_server_is_that_of_the_folder(small, finished, faults, tmp_path):
    with faults.serving(small.folder) as server:
        request = replace(small.request(tmp_path / "run", split="both"), source=server.url)
        found = run_map(request)
        assert run_map(request).already_there
    for metrics in ("metrics", "baseline", "n"):
        assert run_json(found)[metrics] == run_json(finished)[metrics]
    tiles = [file for file in run_json(found)["inputs"] if "source" in file]
    assert len(tiles) == 2
    for file in tiles:
        assert file["source"] == f"{server.url}/{file['name']}"
        assert file["bytes_stored"] == (small.folder / file["name"]).stat().st_size
        assert 0 < file["bytes_read"] <= 1.5 * file["bytes_stored"]
    local = [
        file for file in run_json(finished)["inputs"] if file["name"].endswith("tiles.parquet")
    ]
    keys = {"name", "sha256", "rows", "rows_sha256", "rows_used"}
    assert [set(file) for file in local] == [keys] * 2


@pytest.fixture
def many_groups(faults, world, tmp_path):
    """Serve one quarter in row groups of 20 rows, so that it takes many requests."""
    (source,) = (world.folder / "old").rglob("2022-01-01*")
    path = tmp_path / "served" / source.relative_to(world.folder / "old")
    path.parent.mkdir(parents=True)
    pq.write_table(pq.read_table(source), path, row_group_size=20, compression="none")
    with faults.serving(tmp_path / "served") as running:
        yield running


@pytest.mark.trial
def test_a_quarter_killed_five_times_goes_on_from_what_came(
    faults, world, many_groups, cache, tmp_path
):
    """Each process is killed some requests on; little of the quarter is sent twice."""
    server, arguments = many_groups, [*asked(world, many_groups, "2022Q1"), "--json"]
    fork, environment = load("faults.fork_command"), {"GEOGP_CACHE": str(cache)}

    def ended(process):
        process.join()
        return process.exitcode

    assert ended(fork.start(arguments, tmp_path, environment)) == 0
    whole, requests = server.told.sent, server.told.seen["GET"]
    assert requests >= 10
    shutil.rmtree(cache)
    sent, twice = 0, 0
    for _ in range(5):
        server.tell(manner=load("faults.faulty_server").Manner(delay_s=0.1))
        process = fork.start(arguments, tmp_path, environment)
        until = time.monotonic() + 20
        while server.told.seen["GET"] <= requests // 7 and time.monotonic() < until:
            time.sleep(0.002)
        process.kill()
        assert ended(process) == -signal.SIGKILL
        time.sleep(0.3)  # what the server was answering
        (ranges,) = cache.rglob("*.ranges")
        parts = map(str.split, ranges.read_text().splitlines()[1:])
        kept = sum(int(part[1]) for part in parts if len(part) == 3)
        sent += server.told.sent
        assert kept > 0
    server.tell()
    assert ended(fork.start(arguments, tmp_path, environment)) == 0
    twice = sent - kept
    assert server.told.sent == whole - kept
    assert 0 <= twice < 0.5 * whole
    found = faults.run(faults.Web(server.url, faults.QUICK), world.region, "2022Q1")
    assert found.files[0].bytes_read == whole
    assert faults.sound()
    assert not [*cache.rglob("*.parts"), *cache.rglob("*.ranges")]

"""The hash by which a run is left as it is: what changes it, and what does not."""

import importlib.util
import os
import shutil
import sys
from dataclasses import replace

import pytest
from batch_worlds import BENCHMARKS

from geogp.commands.batch.batch_plan import runs_of
from geogp.commands.batch.fingerprints import Fingerprints
from geogp.geodata.places.census import state_codes
from geogp.geodata.store.sources import open_source


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def folder(states, tmp_path):
    """A copy of the source that a test may change."""
    return shutil.copytree(states.folder, tmp_path / "source")


@pytest.fixture
def request_of(states, folder):
    return runs_of(states.request("AA", source=str(folder), boundaries=str(folder / "boundaries")))[
        0
    ].request


@pytest.fixture
def serving(monkeypatch):
    """Return what serves a folder over HTTP."""
    name = "faulty_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].serving


def fingerprint(request):
    return Fingerprints().of(request)


def test_it_follows_settings_files_and_versions(request_of, folder, tmp_path, monkeypatch):
    first = fingerprint(request_of)
    assert len(first) == 64
    assert fingerprint(request_of) == first
    assert fingerprint(replace(request_of, out=tmp_path / "x", fresh=True)) == first
    found = {first}
    for changes in ({"seed": 1}, {"target": "upload"}, {"zoom": 11}, {"quarters": "2023Q3"}):
        found.add(fingerprint(replace(request_of, **changes)))
    tiles = next(folder.rglob("*_tiles.parquet"))
    os.utime(tiles, ns=(0, 1))
    found.add(fingerprint(request_of))
    os.utime(folder / "boundaries" / "states.parquet", ns=(0, 1))
    found.add(fingerprint(request_of))
    tiles.unlink()
    found.add(fingerprint(request_of))
    monkeypatch.setattr("geogp.commands.batch.fingerprints.__version__", "another")
    found.add(fingerprint(request_of))
    assert len(found) == 9


@pytest.mark.parametrize("column", ["", ":name"])
def test_it_follows_layers_and_the_parts_of_a_shapefile(request_of, tmp_path, column):
    layer = tmp_path / "layer.shp"
    layer.write_bytes(b"1")
    asked = replace(request_of, layers=(f"{layer}{column}",))
    first = fingerprint(asked)
    layer.with_suffix(".dbf").write_bytes(b"2")
    second = fingerprint(asked)
    layer.write_bytes(b"11")
    assert len({first, second, fingerprint(asked), fingerprint(request_of)}) == 4


def test_of_an_address_it_asks_no_more_than_the_header(request_of, folder, serving):
    with serving(folder) as server:
        asked = replace(request_of, source=server.url, quarters="2023Q3..2023Q4")
        first = fingerprint(asked)
        assert fingerprint(asked) == first
        assert server.told.sent == 0
        tiles = sorted(folder.rglob("*_tiles.parquet"))
        shutil.copyfile(tiles[0], tiles[1])
        second = fingerprint(asked)
        assert None not in {first, second}
        assert first != second
    assert fingerprint(asked) is None  # nobody answers: what is there must be looked at


def test_boundaries_at_an_address_are_those_of_the_cache(request_of, folder, serving):
    with serving(folder / "boundaries") as server:
        asked = replace(request_of, boundaries=server.url)
        before = fingerprint(asked)
        assert state_codes(open_source(server.url), ["State BB", "AA"]) == ["BB", "AA"]
        after = fingerprint(asked)
    assert before != after
    assert fingerprint(asked) == after

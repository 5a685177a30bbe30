from pathlib import Path
from types import ModuleType

import pytest
from benchmark_scripts import load
from bucket_files import small_region, tile_columns, tiles_around, write_quarter

from geogp.geodata.places.census import read_region
from geogp.geodata.places.region import Region
from geogp.geodata.store.sources import Folder


@pytest.fixture(scope="session")
def testland() -> Region:
    return small_region()


@pytest.fixture
def bucket(tmp_path) -> Path:
    """Return a folder with three good quarters of 7 and 11 columns."""
    folder = tmp_path / "bucket"
    for seed, quarter in enumerate(("2020Q1", "2020Q2", "2020Q3")):
        write_quarter(folder, quarter, tile_columns(tiles_around(), seed))
    return folder


@pytest.fixture(scope="session")
def census(real_data) -> Folder:
    return Folder(real_data / "census")


@pytest.fixture(scope="session")
def puerto_rico(census) -> Region:
    return read_region(census, "PR").region


@pytest.fixture(scope="session")
def faulty() -> ModuleType:
    """Return the server that fails as it is told to."""
    return load("faults.faulty_server")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Return an empty cache; nothing on this machine goes through a proxy."""
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"

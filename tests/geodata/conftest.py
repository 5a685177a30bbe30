from pathlib import Path

import pytest
from bucket_files import small_region, tile_columns, tiles_around, write_quarter

from geogp.geodata.census import read_region
from geogp.geodata.region import Region
from geogp.geodata.sources import Folder


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

"""Regions and tiles as a program reads them: the rows that the command reads."""

import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box

from geogp import read_region, read_tiles
from geogp.errors import RequestError
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles.ookla import read_observations


@pytest.fixture(scope="module")
def region(small):
    return read_region("DEMO", boundaries=small.folder / "boundaries")


def test_tiles_are_the_rows_that_the_command_reads(small, region):
    found = read_tiles(region, source=small.folder)
    seen = read_observations(Folder(small.folder), region).observations
    assert (found.y == seen.y).all()
    assert (found.tests == seen.tests).all()
    assert (found.stratum.astype(str) == seen.stratum).all()
    quarter = found.quarter.dt.year * 4 + found.quarter.dt.quarter - 1
    assert (quarter == seen.quarter).all()
    assert found.crs.to_epsg() == 4326
    assert (found.geometry.x == found.longitude).all()
    assert found.attrs["attribution"].startswith("Simulated")
    assert isinstance(found.quarter.dtype, pd.PeriodDtype)


def test_counts_hold_tiles_without_tests(small, region):
    found = read_tiles(region, target="tests", source=small.folder, quarters="2023Q4")
    assert (found.y == found.tests).all()
    assert (found.y == 0).any()


def test_several_targets_have_a_column_each(small, region):
    several = read_tiles(region, target="latency,upload", source=small.folder)
    for name in ("latency", "upload"):
        alone = read_tiles(region, target=name, source=small.folder)
        assert (several[name] == alone.y).all()
        assert (several.quadkey == alone.quadkey).all()
    assert (several.y == several.latency).all()
    assert several.attrs["target"] == "latency,upload"


def test_a_region_of_ones_own(small, region, tmp_path):
    import geopandas as gpd

    west, south, east, north = region.bounds
    half = gpd.GeoDataFrame(geometry=[box(west, south, east, (south + north) / 2)], crs="EPSG:4326")
    half.to_file(tmp_path / "half.gpkg")
    own = read_region(tmp_path / "half.gpkg")
    assert own.bounds == pytest.approx((west, south, east, (south + north) / 2))
    assert len(read_tiles(own, source=small.folder)) < len(read_tiles(region, source=small.folder))
    assert read_region(str(tmp_path / "half.gpkg")).bounds == own.bounds


def test_quarters_that_are_missing_are_a_warning(small, region):
    with pytest.warns(UserWarning, match="no tiles of"):
        found = read_tiles(region, source=small.folder, quarters="2023Q2..2023Q4")
    assert np.isfinite(found.y).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"target": "jitter"}, "unknown target"),
        ({"target": "download,tests"}, "different ones of download, upload, latency together"),
        ({"target": "rsrp"}, "Ookla's tiles have no rsrp: --target rsrp maps a file of your own"),
        ({"quarters": "2023Q5"}, "quarter"),
    ],
)
def test_what_is_refused(small, region, arguments, match):
    with pytest.raises(RequestError, match=match):
        read_tiles(region, source=small.folder, **arguments)


def test_an_unknown_state_is_refused(small):
    with pytest.raises(RequestError, match="DEMO"):
        read_region("DEMP", boundaries=small.folder / "boundaries")

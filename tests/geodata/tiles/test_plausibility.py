"""Values that cannot be: named, left out for one target, or refused where they are many."""

import re

import numpy as np
import pytest
from bucket_files import small_region, tile_columns, tiles_around, write_quarter

from geogp.errors import DataError
from geogp.geodata.store.sources import Folder, Web
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quadkeys import (
    codes_to_tiles,
    format_quadkeys,
    parse_quadkeys,
    tile_centres,
)
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.tile_files import tile_file

TILES = tiles_around(1)
REGION = small_region()

TARGETS = ("download", "upload", "latency", "tests")

BAD = {
    "speed": ("avg_d_kbps", 10**18, np.int64, "1000000000000000000"),
    "float speed": ("avg_d_kbps", 1e308, np.float64, r"1e\+308"),
    "just above": ("avg_d_kbps", 20_000_001, np.int64, "20000001"),
    "upload": ("avg_u_kbps", 10_000_001, np.int64, "10000001"),
    "latency": ("avg_lat_ms", 60_001, np.int64, "60001"),
    "no latency": ("avg_lat_ms", 0, np.int64, "0"),
    "tests": ("tests", 2**64 - 1, np.uint64, "18446744073709551615"),
}
"""A value beyond the limit of its column for mobile networks, and how it is told."""


def _inside(count: int) -> list[int]:
    """Return places of some tiles of the region among `TILES`."""
    longitude, latitude = tile_centres(*codes_to_tiles(parse_quadkeys(TILES)))
    return np.flatnonzero(REGION.contains(longitude, latitude))[:count].tolist()


def _columns(kind: str, count: int, seed: int = 0) -> dict:
    """Return columns with a bad value in some rows of the region."""
    name, value, dtype, _ = BAD[kind]
    columns = tile_columns(TILES, seed)
    changed = np.asarray(columns[name]).astype(dtype)
    changed[_inside(count)] = value
    return columns | {name: changed}


def _read(folder, target: str = "download", quarters: str = "2020Q1", service: str = "mobile"):
    source = folder if isinstance(folder, Web) else Folder(folder)
    return read_observations(
        source, REGION, target=target, service=service, quarters=parse_quarters(quarters)
    )


def _target(kind: str) -> str:
    found = {"avg_d_kbps": "download", "avg_u_kbps": "upload", "avg_lat_ms": "latency"}
    return found.get(BAD[kind][0], "download")


@pytest.mark.parametrize("kind", BAD)
def test_a_few_bad_values_are_left_out_and_named(tmp_path, kind):
    write_quarter(tmp_path / "good", "2020Q1", tile_columns(TILES))
    write_quarter(tmp_path / "bad", "2020Q1", _columns(kind, 5))
    good, bad = (_read(tmp_path / name, _target(kind)) for name in ("good", "bad"))
    gone = parse_quadkeys([TILES[at] for at in _inside(5)])
    kept = ~np.isin(good.observations.quadkey, gone)
    assert (~kept).sum() == 5
    for name in ("quadkey", "y", "tests", "devices", "longitude", "stratum"):
        expected = getattr(good.observations, name)[kept]
        np.testing.assert_array_equal(getattr(bad.observations, name), expected)
    # The split is made of all rows of the source, whatever their values.
    np.testing.assert_array_equal(bad.source_rows.quadkey, good.source_rows.quadkey)
    np.testing.assert_array_equal(bad.kept, kept)
    assert good.kept.all()
    assert good.left_out == ()
    (out,) = bad.left_out
    assert (out.rows, out.described()["quarter"]) == (5, "2020Q1")
    column, told, tile = BAD[kind][0], BAD[kind][3], TILES[_inside(1)[0]]
    (warning,) = bad.warnings
    file = re.escape(tile_file("mobile", out.quarter))
    left_out = f"5 rows of {file} are left out of {_target(kind)}, after the split, because"
    assert re.match(f"{left_out} their values are impossible: ", warning)
    limit = "not above 0 ms" if kind == "no latency" else "above [0-9,]+ (kbps|ms|tests)"
    assert re.search(f"{column} {told} in tile {tile}, {limit}", warning)
    assert bad.files[0].rows_used == len(bad.observations)


@pytest.mark.parametrize("kind", BAD)
def test_many_bad_values_are_refused(tmp_path, kind):
    path = write_quarter(tmp_path, "2020Q1", _columns(kind, 6))
    column, told, tile = BAD[kind][0], BAD[kind][3], TILES[_inside(1)[0]]
    rows = r"found impossible values in 6 of [0-9]+ rows of the region"
    expected = rf"(?s){re.escape(str(path))}.*{rows}.*{column} {told} in tile {tile}"
    with pytest.raises(DataError, match=expected) as caught:
        _read(tmp_path, _target(kind))
    assert caught.value.exit_code == 3
    assert str(caught.value).count("in tile") == 3


def test_one_in_a_thousand_may_be_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("geogp.geodata.tiles.plausibility.MAX_ROWS", 0)
    rows = len(_inside(len(TILES)))
    assert 1000 < rows < 2000
    write_quarter(tmp_path, "2020Q1", _columns("speed", 1))
    assert len(_read(tmp_path).observations) == rows - 1
    write_quarter(tmp_path, "2020Q1", _columns("speed", 2))
    with pytest.raises(DataError, match="found impossible values in 2 of"):
        _read(tmp_path)


def test_a_quarter_of_bad_rows_only_is_refused(tmp_path):
    tiles = [TILES[at] for at in _inside(3)]
    write_quarter(tmp_path, "2020Q1", tile_columns(tiles, avg_d_kbps=[10**18] * 3))
    with pytest.raises(DataError, match="found impossible values in 3 of 3 rows"):
        _read(tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_a_bad_upload_leaves_other_targets_as_they_are(tmp_path, target):
    write_quarter(tmp_path / "good", "2020Q1", tile_columns(TILES))
    write_quarter(tmp_path / "bad", "2020Q1", _columns("upload", 3))
    good, bad = (_read(tmp_path / name, target) for name in ("good", "bad"))
    lost = 3 if target == "upload" else 0
    assert len(good.observations) - len(bad.observations) == lost
    assert bool(bad.warnings) == bool(lost)


def test_bad_numbers_of_tests_are_no_zeros(tmp_path):
    """A tile without a test has a count of 0; a tile whose count cannot be has none."""
    write_quarter(tmp_path, "2020Q1", _columns("tests", 2))
    found = _read(tmp_path, "tests")
    tiles = [TILES[at] for at in _inside(2)]
    assert not set(tiles) & set(format_quadkeys(found.observations.quadkey))
    assert set(tiles) <= set(format_quadkeys(found.source_rows.quadkey))
    assert found.observations.y.min() > 0  # all tiles but these have tests
    assert found.observations.y.max() < 100


def test_limits_are_those_of_the_service(tmp_path):
    """A fixed line can be faster than any phone."""
    write_quarter(tmp_path, "2020Q1", _columns("just above", 2), service="fixed")
    assert not _read(tmp_path, service="fixed").left_out
    columns = _columns("just above", 2)
    columns["avg_d_kbps"][_inside(1)] = 100_000_001
    write_quarter(tmp_path, "2020Q1", columns, service="fixed")
    assert _read(tmp_path, service="fixed").left_out[0].rows == 1


def _exchanged(seed: int, name: str = "avg_d_kbps", **changes) -> dict:
    """Return columns of which one is exchanged with tests."""
    columns = tile_columns(TILES, seed, **changes)
    high = np.maximum(columns[name], columns["devices"])
    return columns | {name: columns["tests"], "tests": high}


@pytest.mark.parametrize(("target", "column"), [("download", "avg_d_kbps"), ("tests", "tests")])
def test_exchanged_columns_of_one_quarter_are_a_warning(tmp_path, target, column):
    path = write_quarter(tmp_path, "2020Q1", _exchanged(0))
    (warning,) = _read(tmp_path, target).warnings
    assert path.as_posix().endswith(re.search(r"parquet/\S+\.parquet", warning)[0])
    assert re.search(rf"columns? {column}.* seems? to ", warning)


@pytest.mark.parametrize(
    ("target", "column"), [("download", "avg_d_kbps"), ("latency", "avg_lat_ms")]
)
def test_exchanged_columns_of_one_of_three_quarters_are_a_warning(tmp_path, target, column):
    few = {"devices": np.ones(len(TILES), int), "tests": np.full(len(TILES), 4)}
    for seed, quarter in enumerate(("2020Q1", "2020Q3")):
        write_quarter(tmp_path, quarter, tile_columns(TILES, seed, **few))
    write_quarter(tmp_path, "2020Q2", _exchanged(2, column, **few))
    (warning,) = _read(tmp_path, target, "2020Q1..2020Q3").warnings
    told = rf"columns {column} and tests of \S+2020-04-01\S+ seem to be swapped: .*other quarters"
    assert re.search(told, warning)


def test_plain_quarters_are_no_warnings(bucket):
    for target in TARGETS:
        found = _read(bucket, target, "2020Q1..2020Q3")
        assert found.warnings == ()
        assert found.kept.all()


@pytest.mark.real
@pytest.mark.parametrize(("service", "target"), [("mobile", "download"), ("fixed", "latency")])
def test_no_real_row_is_left_out(real_data, puerto_rico, service, target):
    found = read_observations(
        Folder(real_data / "ookla-open-data"),
        puerto_rico,
        service=service,
        target=target,
        quarters=parse_quarters("2021Q4,2022Q3"),
    )
    assert found.left_out == ()
    assert found.kept.all()
    assert found.warnings == ()

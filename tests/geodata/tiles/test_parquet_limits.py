"""Parquet files that say to be larger than they can be, unpack to far more, or end their reader."""

import os
import re
import resource
import signal
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from bucket_files import tile_columns, tiles_around, write_quarter

from geogp.errors import DataError, ReadingError
from geogp.geodata.places.layers import read_layer
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import parquet_files
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.parquet_files import (
    DamagedParquetError,
    open_parquet,
    read_table,
    reading_process,
)
from geogp.geodata.tiles.quarters import parse_quarters


def _file(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def _numbers(rows: int, columns: int = 1) -> pa.Table:
    return pa.table({f"c{k}": np.arange(rows) for k in range(columns)})


def _spoilt(path: Path) -> Path:
    """Write a file that ends its reader: a chunk has another type than its column."""
    _file(path, pa.table({"quadkey": ["a", "b"]}))
    spoilt, changes = re.subn(
        rb"(?s)\x15\x0c(?=\x19.{2,9}\x07quadkey)", b"\x15\x00", path.read_bytes()
    )
    assert changes == 1
    path.write_bytes(spoilt)
    return path


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("rows", "declares 100 rows; expected at most 1"),
        ("row groups", "declares 4 row groups; expected at most 1"),
        ("columns", "declares 3 columns; expected at most 1"),
        ("rows in a group", "declares 25 rows in a group; expected at most 1"),
        ("bytes in a group", "bytes in a group; expected at most 1"),
    ],
)
def test_what_the_footer_says_is_limited(tmp_path, monkeypatch, limit, told):
    path = _file(tmp_path / "a", _numbers(100, 3), row_group_size=25)
    assert read_table(path).equals(_numbers(100, 3))
    monkeypatch.setitem(parquet_files.LIMITS, limit, 1)
    with pytest.raises(DataError, match=told):
        read_table(path)


def test_rows_alone_are_not_limited_below_their_values(tmp_path):
    """A large state has some four million predictions."""
    rows = 4_276_800
    table = pa.table({"a": pa.nulls(rows, pa.int8()), "b": np.zeros(rows, np.int8)})
    assert read_table(_file(tmp_path / "a", table)).num_rows == rows


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
def test_text_that_unpacks_to_far_more_is_counted_as_it_comes(tmp_path, monkeypatch, encoding):
    """5,000 rows of one value of 20 kB: 100 MB, of which the file holds a few kB."""
    text = pa.DictionaryArray.from_arrays(np.zeros(5_000, np.int32), ["x" * 20_000])
    table = pa.table({"a": text.cast(pa.string())})
    dictionary = encoding == "dictionary"
    options = {"use_dictionary": dictionary, "compression": "zstd", "store_schema": False}
    if not dictionary:
        options["column_encoding"] = {"a": encoding}
    path = _file(tmp_path / "a", table, **options)
    del table
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(parquet_files, "MAX_TABLE_BYTES", 8_000_000)
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=r"more than 8,000,000|more memory"):
        read_table(path)
    assert pa.total_allocated_bytes() - before < 16_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits memory")
def test_a_page_of_gigabytes_is_damage_and_takes_no_memory_here(tmp_path):
    """One value of a dictionary fills all rows, 40 GB in all."""
    words = pa.DictionaryArray.from_arrays(np.zeros(40_000, np.int32), ["x" * 1_000_000])
    path = _file(tmp_path / "a", pa.table({"a": words}), compression="zstd", store_schema=False)
    assert path.stat().st_size < 5000
    with pytest.raises(DamagedParquetError, match="memory"):
        read_table(path)


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view(), pa.binary(5000)]
)
def test_other_kinds_of_text_are_counted(tmp_path, monkeypatch, kind):
    text = pa.array(["x" * 5000] * 4000)
    path = _file(
        tmp_path / "a",
        pa.table(
            {
                "a": text.cast(pa.binary()).cast(kind)
                if pa.types.is_fixed_size_binary(kind)
                else text.cast(kind)
            }
        ),
    )
    assert read_table(path).num_rows == 4000
    monkeypatch.setattr(parquet_files, "MAX_TABLE_BYTES", 4000 * 5000 - 1)
    with pytest.raises(DataError, match="the unpacked rows have more than 19,999,999 bytes"):
        read_table(path)


_STORED: dict[str, dict[str, object]] = {
    "dictionary": {"use_dictionary": True},
    "dictionary, then plain": {
        "use_dictionary": True,
        "dictionary_pagesize_limit": 500,
        "write_batch_size": 200,
    },
    "plain": {"use_dictionary": False},
    "lengths": {
        "use_dictionary": False,
        "column_encoding": {"quadkey": "DELTA_LENGTH_BYTE_ARRAY"},
    },
    "differences": {"use_dictionary": False, "column_encoding": {"quadkey": "DELTA_BYTE_ARRAY"}},
}


@pytest.mark.parametrize(
    ("stored", "version"), [*((stored, "1.0") for stored in _STORED), ("plain", "2.0")]
)
def test_quadkeys_are_read_however_they_are_stored(tmp_path, testland, stored, version):
    columns = tile_columns(tiles_around())
    first = write_quarter(tmp_path / "a", "2020Q1", columns)
    options = {**_STORED[stored], "data_page_version": version, "data_page_size": 1000}
    other = write_quarter(tmp_path / "b", "2020Q1", columns, rows=500, **options)
    assert pq.read_table(first).equals(pq.read_table(other))
    plain, found = (
        read_observations(Folder(tmp_path / name), testland, quarters=parse_quarters("2020Q1"))
        for name in "ab"
    )
    np.testing.assert_array_equal(found.observations.quadkey, plain.observations.quadkey)
    np.testing.assert_array_equal(found.observations.y, plain.observations.y)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_shapes_of_a_file_are_limited(tmp_path, monkeypatch, encoding):
    names = [f"a{k}" for k in range(200)]
    table = gpd.GeoDataFrame({"NAME": names}, geometry=[shapely.box(0, 0, 1, 1)] * 200, crs=4326)
    path = tmp_path / "a.parquet"
    table.to_parquet(path, use_dictionary=False, column_encoding={"geometry": encoding})
    assert len(read_layer(str(path))) == 200
    monkeypatch.setattr(parquet_files, "MAX_TABLE_BYTES", 10_000)
    with pytest.raises(DataError, match="the unpacked rows have more than 10,000 bytes"):
        read_layer(str(path))


def test_only_wanted_columns_of_a_row_group_count(tmp_path, monkeypatch):
    table = pa.table({"a": np.arange(1000), "b": ["x" * 100] * 1000})
    path = _file(tmp_path / "a", table, use_dictionary=False)
    monkeypatch.setitem(parquet_files.LIMITS, "bytes in a group", 50_000)
    with open_parquet(path) as opened:
        assert opened.read([0], ["a"]).num_rows == 1000
        with pytest.raises(DataError, match="bytes in a group; expected at most 50,000"):
            opened.read([0], ["a", "b"])
        with pytest.raises(DataError, match="bytes in a group; expected at most 50,000"):
            opened.groups(["b"])


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(DataError, match="columns with different names, found a, a"):
        read_table(_file(tmp_path / "a", table))


@pytest.mark.parametrize("size", [0, 8, 11, 12, 100])
def test_no_footer(tmp_path, size):
    (tmp_path / "a").write_bytes(b"PAR1" * (size // 4))
    with pytest.raises(DamagedParquetError, match="does not end with a footer"):
        read_table(tmp_path / "a")


def test_a_file_that_ends_its_reader_ends_nothing_else(tmp_path):
    """Not even the reading of another file by the same process."""
    good = _file(tmp_path / "good", _numbers(100), row_group_size=50)
    bad = _spoilt(tmp_path / "bad")
    with open_parquet(good) as opened:
        assert opened.read([0]).num_rows == 50
        with (
            pytest.raises(DamagedParquetError, match=r"that read the file ended \(SIGABRT\)"),
            open_parquet(bad) as other,
        ):
            other.groups(["quadkey"], "quadkey")
        assert opened.read([1])["c0"].to_pylist() == list(range(50, 100))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_from_outside_is_no_fault_of_the_file(tmp_path, sent):
    path = _file(tmp_path / "a", _numbers(10))
    with open_parquet(path) as opened:
        os.kill(parquet_files._PROCESS.running.pid, sent)
        with pytest.raises(
            ReadingError, match=f"another program stopped the process .* .{sent.name}"
        ):
            opened.read([0])
        assert opened.read([0]).equals(_numbers(10))


@pytest.mark.parametrize("python", ["", "/nonexistent/python", sys.executable + "\0"])
def test_a_process_that_cannot_start_is_no_fault_of_the_file(tmp_path, monkeypatch, python):
    monkeypatch.setattr(parquet_files, "_PROCESS", parquet_files._Process())
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(ReadingError, match="did not start"):
        read_table(_file(tmp_path / "a", _numbers(10)))


def test_what_python_prints_at_its_start_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('{}')\nprint('hello')\n")
    monkeypatch.setattr(parquet_files, "_PROCESS", parquet_files._Process())
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    assert read_table(_file(tmp_path / "a", _numbers(10))).equals(_numbers(10))


def test_a_file_that_changed_before_it_was_opened_again_is_refused(tmp_path):
    path = _file(tmp_path / "a", _numbers(10))
    with open_parquet(path, hashed=True) as opened:
        parquet_files.stop_reading()
        assert opened.read([0]).equals(_numbers(10))
        parquet_files.stop_reading()
        _file(path, _numbers(11))
        with pytest.raises(DataError, match="changed while it was read"):
            opened.read([0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_has_a_process_of_its_own(tmp_path):
    path = _file(tmp_path / "a", _numbers(10))
    with open_parquet(path) as opened:
        assert opened.read([0]).num_rows == 10
        child = os.fork()
        if not child:
            os._exit(0 if opened.read([0]).num_rows == 10 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert opened.read([0]).num_rows == 10


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_large_stacks_take_no_memory_from_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_PROCESS", parquet_files._Process())
    before = resource.getrlimit(resource.RLIMIT_STACK)
    if 0 <= before[1] < 2 << 30:
        pytest.skip("the system allows no large stacks")
    resource.setrlimit(resource.RLIMIT_STACK, (2 << 30, before[1]))
    try:
        assert read_table(_file(tmp_path / "a", _numbers(10))).num_rows == 10
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


def test_one_process_reads_all_files_and_ends_with_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_PROCESS", parquet_files._Process())
    path = _file(tmp_path / "a", _numbers(10))
    with reading_process():
        for _ in range(3):
            read_table(path)
        process = parquet_files._PROCESS.running
        assert (parquet_files._PROCESS.starts, process.poll()) == (1, None)
    assert process.poll() is not None
    assert parquet_files._PROCESS.running is None


def test_an_interrupt_between_question_and_answer_mixes_nothing_up(tmp_path, monkeypatch):
    path = _file(tmp_path / "a", _numbers(10))
    # A shell starts background processes with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(*_: object) -> pa.Table:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    try:
        with open_parquet(path) as opened:
            with monkeypatch.context() as patched:
                patched.setattr(parquet_files, "_rows", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    opened.read([0])
            assert opened.read([0]).equals(_numbers(10))
    finally:
        signal.signal(signal.SIGINT, before)


def test_columns_keep_their_names_in_files_of_any_order(tmp_path):
    path = _file(tmp_path / "turned.parquet", pa.table({"b": [1, 2], "c": ["x", "y"], "a": [3, 4]}))
    with open_parquet(path) as opened:
        found = opened.read(names=["a", "b"])
    assert found.to_pydict() == {"a": [3, 4], "b": [1, 2]}

"""Parquet files that say to be larger than they can be, or unpack to far more than they take."""

import io
import re
import tracemalloc
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from bucket_files import tile_columns, tiles_around, write_quarter
from geogp.geodata.tiles.parquet_footer import check_types
from geogp.geodata.tiles.parquet_limits import GroupReader, check_footer, check_parquet
from geogp.geodata.tiles.parquet_pages import Pages, read_pages
from geogp.geodata.tiles.thrift import structure

from geogp.errors import DataError
from geogp.geodata.places.layers import read_layer
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import parquet_limits
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters


def _file(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def _numbers(rows: int, columns: int = 1) -> pa.Table:
    return pa.table({f"c{k}": np.arange(rows) for k in range(columns)})


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("MOST_GROUPS", "says 4 row groups; expected at most 1"),
        ("MOST_COLUMNS", "says 3 columns; expected at most 1"),
        ("MOST_GROUP_ROWS", "says 25 rows in a group; expected at most 1"),
        ("MOST_GROUP_BYTES", "bytes in a group; expected at most 1"),
    ],
)
def test_what_the_footer_says_is_limited(tmp_path, monkeypatch, limit, told):
    metadata = pq.read_metadata(_file(tmp_path / "a", _numbers(100, 3), row_group_size=25))
    check_footer(metadata)
    with pytest.raises(DataError, match="says 100 rows; expected at most 99"):
        check_footer(metadata, 99)
    monkeypatch.setattr(parquet_limits, limit, 1)
    with pytest.raises(DataError, match=told):
        check_footer(metadata)


def test_rows_times_columns_are_limited(tmp_path, monkeypatch):
    path = _file(tmp_path / "a", _numbers(100, 3))
    check_parquet(path)
    monkeypatch.setattr(parquet_limits, "MOST_CELLS", 299)
    with pytest.raises(DataError, match="100 rows of 3 columns; expected at most 299 values"):
        check_parquet(path)


def test_rows_alone_are_not_limited_below_their_values(tmp_path):
    """A large state has some four million predictions."""
    rows = 4_276_800
    table = pa.table({"a": pa.nulls(rows, pa.int8()), "b": np.zeros(rows, np.int8)})
    check_parquet(_file(tmp_path / "a", table))


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
def test_text_that_unpacks_to_far_more_is_measured_first(tmp_path, monkeypatch, encoding):
    """20,000 rows of one value of 20 kB: 400 MB, of which the file holds a few kB."""
    text = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 20_000])
    table = pa.table({"a": text.cast(pa.string())})
    dictionary = encoding == "dictionary"
    options = {"use_dictionary": dictionary, "compression": "zstd", "store_schema": False}
    if not dictionary:
        options["column_encoding"] = {"a": encoding}
    path = _file(tmp_path / "a", table, **options)
    del table
    assert path.stat().st_size < 200_000
    check_parquet(path)
    monkeypatch.setattr(parquet_limits, "MOST_TEXT_BYTES", 300_000_000)
    with pytest.raises(DataError, match="unpack to more than 300,000,000 bytes"):
        check_parquet(path)


def test_one_word_of_a_dictionary_cannot_fill_a_column_of_quadkeys(tmp_path, testland):
    tiles = tiles_around()
    write_quarter(tmp_path, "2020Q1", tile_columns(tiles), use_dictionary=True)
    read_observations(Folder(tmp_path), testland, quarters=parse_quarters("2020Q1"))
    tiles[5] = "0" * 100_000
    write_quarter(
        tmp_path,
        "2020Q1",
        tile_columns(tiles),
        use_dictionary=True,
        dictionary_pagesize_limit=1 << 24,
    )
    with pytest.raises(
        DataError, match="expected texts of at most 64 bytes in quadkey, found one of 100000"
    ):
        read_observations(Folder(tmp_path), testland, quarters=parse_quarters("2020Q1"))


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


_ENCODINGS = {
    "dictionary": {8},
    "dictionary, then plain": {0, 8},
    "plain": {0},
    "lengths": {6},
    "differences": {7},
}
"""As numbers of the format."""


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("stored", _STORED)
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
    chunk = pq.read_metadata(other).row_group(0).column(0)
    assert read_pages(other, [chunk]).encodings == _ENCODINGS[stored]


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _hide_dictionary(path: Path, *, turned: bool = False) -> None:
    """Let the first chunk begin with data pages, as its footer says; see `turned`.

    With `turned`, the pages after the first two are moved before these: those of plain text, which
    follow a dictionary that is full.
    """
    chunk = pq.read_metadata(path).row_group(0).column(0)
    first, data = chunk.dictionary_page_offset, chunk.data_page_offset
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    body, footer = content[: -8 - length], content[-8 - length : -8]
    if turned:
        fields, place = structure(content, data)
        middle, end = place + fields[3].value, first + chunk.total_compressed_size
        body = body[:first] + body[middle:end] + body[first:middle] + body[end:]
    said = b"\x26" + _varint(2 * data) + b"\x26" + _varint(2 * first)
    assert footer.count(said) == 1
    place = footer.index(said)
    rest = footer[place + len(said) :]
    footer = footer[:place] + b"\x26" + _varint(2 * first) + bytes([rest[0] + 0x20]) + rest[1:]
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert not pq.read_metadata(path).row_group(0).column(0).has_dictionary_page


@pytest.mark.parametrize(
    ("stored", "hidden"),
    [
        ("dictionary", False),
        ("dictionary", True),
        ("dictionary, then plain", True),
        ("differences", False),
    ],
)
def test_long_text_is_found_before_it_fills_rows(tmp_path, monkeypatch, stored, hidden):
    """Whatever the footer says of it; all of it would be 40 MB, of which no part is made."""
    texts = ["0" * 20_000] * 2000
    if stored == "dictionary, then plain":
        texts += [f"{k:016d}" for k in range(3000)]
    table = pa.table({"quadkey": texts})
    options = {**_STORED[stored], "data_page_size": 20_000, "write_batch_size": 2000}
    path = _file(tmp_path / "a", table, **options)
    del table
    if hidden:
        _hide_dictionary(path, turned=stored != "dictionary")
    assert path.stat().st_size < 100_000
    with (
        pq.ParquetFile(path) as opened,
        GroupReader(opened, path, ["quadkey"], text="quadkey") as reader,
    ):
        before = pa.total_allocated_bytes()
        lengths = parquet_limits._check_lengths
        held: list[int] = []

        def check(*arguments: object) -> None:
            held.append(pa.total_allocated_bytes() - before)
            lengths(*arguments)

        monkeypatch.setattr(parquet_limits, "_check_lengths", check)
        with pytest.raises(DataError, match="at most 64 bytes in quadkey, found one of 20000"):
            reader.read(0)
    assert max(held) < 8_000_000


def test_a_page_larger_than_its_values_is_read_row_by_row():
    assert Pages(frozenset({7}), 1000).small_batch == 64
    assert Pages(frozenset({7}), 1 << 24).small_batch == 4
    assert Pages(frozenset({7}), 1 << 31).small_batch == 1


@pytest.mark.parametrize("place", [1, 4, 7])
def test_headers_of_pages_that_are_damaged(tmp_path, place):
    path = _file(tmp_path / "a", pa.table({"quadkey": ["0123"] * 100}))
    content = bytearray(path.read_bytes())
    content[4 + place] ^= 0x81
    path.write_bytes(content)
    with (
        pq.ParquetFile(path) as opened,
        GroupReader(opened, path, ["quadkey"], text="quadkey") as reader,
        pytest.raises((pa.ArrowException, OSError)),
    ):
        reader.read(0)


def test_row_groups_are_read_by_parts_and_stopped(tmp_path, monkeypatch):
    table = pa.table({"quadkey": ["0123"] * 100_000, "b": np.arange(100_000)})
    path = _file(tmp_path / "a", table)
    with pq.ParquetFile(path) as opened:

        def read(names: list[str], longest: int) -> pa.Table:
            with GroupReader(opened, path, names, text="quadkey", longest=longest) as reader:
                return reader.read(0)

        assert read(["b", "quadkey"], 64).equals(table.select(["b", "quadkey"]))
        assert read(["quadkey"], 4).num_rows == 100_000
        with pytest.raises(DataError, match="at most 3 bytes in quadkey, found one of 4"):
            read(["quadkey"], 3)
        monkeypatch.setattr(parquet_limits, "MOST_GROUP_BYTES", 500_000)
        with pytest.raises(DataError, match="unpacks to more than 500,000 bytes"):
            read(["b"], 64)


def test_shapes_of_a_file_are_limited(tmp_path, monkeypatch):
    table = gpd.GeoDataFrame({"NAME": ["a"]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4326)
    table.to_parquet(tmp_path / "a.parquet")
    read_layer(str(tmp_path / "a.parquet"))
    monkeypatch.setattr(parquet_limits, "MOST_TEXT_BYTES", 10)
    with pytest.raises(DataError, match="unpack to more than 10 bytes"):
        read_layer(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_shapes_stored_by_differences_are_read(tmp_path, monkeypatch, encoding):
    names = [f"a{k}" for k in range(200)]
    table = gpd.GeoDataFrame({"NAME": names}, geometry=[shapely.box(0, 0, 1, 1)] * 200, crs=4326)
    path = tmp_path / "a.parquet"
    options = {"use_dictionary": False, "column_encoding": {"geometry": encoding}}
    table.to_parquet(path, **options)
    assert len(read_layer(str(path))) == 200
    monkeypatch.setattr(parquet_limits, "MOST_TEXT_BYTES", 10_000)
    with pytest.raises(DataError, match="unpack to more than 10,000 bytes"):
        read_layer(str(path))


def test_a_footer_that_hides_differences(tmp_path):
    """pyarrow does not hold them as a dictionary, whatever the footer says."""
    options = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    path = _file(tmp_path / "a", pa.table({"a": ["x" * 9] * 9}), **options)
    content = path.read_bytes()
    spoilt = re.sub(
        rb"\x19\x25([\x06\x0e])([\x06\x0e])(?=\x19\x18\x01a)", b"\x19\x25\x06\x00", content
    )
    assert spoilt != content
    path.write_bytes(spoilt)
    assert "DELTA_BYTE_ARRAY" not in pq.read_metadata(path).row_group(0).column(0).encodings
    with pytest.raises(OSError, match="DictAccumulator"):
        check_parquet(path)


@pytest.mark.parametrize("kind", [pa.binary(5000), pa.decimal256(70)])
def test_values_of_one_length_are_limited(tmp_path, monkeypatch, kind):
    """One value of a dictionary fills all rows."""
    value = b"x" * 5000 if pa.types.is_fixed_size_binary(kind) else 1
    path = _file(tmp_path / "a", pa.table({"a": pa.array([value] * 4000, kind)}))
    assert path.stat().st_size < 20_000
    check_parquet(path)
    width = pq.read_metadata(path).schema.column(0).length
    monkeypatch.setattr(parquet_limits, "MOST_FIXED_BYTES", 4000 * width - 1)
    with pytest.raises(DataError, match=f"says {4000 * width:,} bytes of values of one length"):
        check_parquet(path)


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view()])
def test_other_kinds_of_text_are_limited(tmp_path, monkeypatch, kind):
    path = _file(tmp_path / "a", pa.table({"a": pa.array(["x" * 5000] * 4000).cast(kind)}))
    check_parquet(path)
    monkeypatch.setattr(parquet_limits, "MOST_TEXT_BYTES", 4000 * 5000 - 1)
    with pytest.raises(DataError, match="unpack to more than 19,999,999 bytes"):
        check_parquet(path)


def test_only_wanted_columns_of_a_row_group_count(tmp_path, monkeypatch):
    table = pa.table({"a": np.arange(1000), "b": ["x" * 100] * 1000})
    metadata = pq.read_metadata(_file(tmp_path / "a", table, use_dictionary=False))
    monkeypatch.setattr(parquet_limits, "MOST_GROUP_BYTES", 50_000)
    check_footer(metadata, names=["a"])
    with pytest.raises(DataError, match="bytes in a group; expected at most 50,000"):
        check_footer(metadata)


def test_the_footer_as_pyarrow_reads_it(tmp_path):
    """Two readers of one footer: ours gives the rows, groups and types that pyarrow gives."""
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None], "c": [[1.5], [], None]})
    path = _file(tmp_path / "a", table, row_group_size=2)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer, end = structure(content[-8 - length : -8], 0)
    assert end == length
    metadata = pq.read_metadata(path)
    assert footer[3].value == metadata.num_rows == 3
    groups = [one.value for one in footer[4].value]
    assert [group[3].value for group in groups] == [2, 1]
    names = {1: "INT32", 2: "INT64", 5: "DOUBLE", 6: "BYTE_ARRAY"}
    for number, group in enumerate(groups):
        theirs = [metadata.row_group(number).column(k) for k in range(3)]
        ours = [one.value[3].value for one in group[1].value]
        assert [names[one[1].value] for one in ours] == [one.physical_type for one in theirs]
        assert [one[7].value for one in ours] == [one.total_compressed_size for one in theirs]
    check_types(path)
    check_types(io.BytesIO(content))


@pytest.mark.parametrize("size", [0, 8, 11, 12, 100])
def test_no_footer(tmp_path, size):
    (tmp_path / "a").write_bytes(b"PAR1" * (size // 4))
    with pytest.raises(pa.ArrowInvalid):
        check_types(tmp_path / "a")


def test_a_chunk_of_another_type_is_refused_before_pyarrow_sees_it(tmp_path):
    """pyarrow would end the process."""
    path = _file(tmp_path / "a", pa.table({"quadkey": ["a", "b"]}))
    spoilt, changes = re.subn(
        rb"(?s)\x15\x0c(?=\x19.{2,9}\x07quadkey)", b"\x15\x00", path.read_bytes()
    )
    assert changes == 1
    path.write_bytes(spoilt)
    with pytest.raises(pa.ArrowInvalid, match="types of its columns are not those of its schema"):
        check_types(path)


_SCHEMA = b"\x29\x2c\x55\x02\x00\x15\x02\x25\x00\x00"
"""Field 2 of a footer: a root, and a column of whole numbers."""

_MANY = 1 << 15
_COUNT = b"\x80\x80\x02"

_UNUSED = {
    "booleans": b"\xf1" + _COUNT + b"\x01" * _MANY,
    "numbers": b"\xf6" + _COUNT + b"\x81\x02" * _MANY,
    "doubles": b"\xf7" + _COUNT + bytes(8 * _MANY),
    "texts": b"\xf8" + _COUNT + b"\x01a" * _MANY,
    "empty structures": b"\xfc" + _COUNT + bytes(_MANY),
    "structures": b"\xfc" + _COUNT + b"\x11\x15\x81\x02\x18\x01a\x39\x00\x00" * _MANY,
}


def _as_file(footer: bytes) -> io.BytesIO:
    return io.BytesIO(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("held", _UNUSED)
def test_nothing_is_made_of_what_a_footer_holds_for_others(held):
    footer = _SCHEMA + b"\x59" + _UNUSED[held] + b"\x00"
    whole, end = structure(footer, 0)
    assert len(whole[7].value) == _MANY
    assert structure(footer, 0, wanted={}) == ({}, end)
    assert structure(footer[:-1] + b"\x11\x00", 0, wanted={8: {}})[0].keys() == {8}
    del whole
    stream = _as_file(footer)
    tracemalloc.start()
    try:
        check_types(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(footer) + (1 << 18)


def test_the_chunks_of_a_footer_are_read_one_by_one():
    """Of 5,000 row groups: 600 bytes for each, if they were all held."""
    chunk = b"\x26\x08\x1c\x15\x02\x19\x05\x19\x08\x15\x00\x16\x00\x16\x00\x16\x00\x26\x00\x00\x00"
    groups = b"\x29\xfc\x88\x27" + (b"\x19\x1c" + chunk + b"\x00") * 5000
    stream = _as_file(_SCHEMA + groups + b"\x00")
    tracemalloc.start()
    try:
        check_types(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(stream.getvalue()) + (1 << 18)
    other = chunk.replace(b"\x15\x02", b"\x15\x04")
    groups = groups[: -len(chunk) - 1] + other + b"\x00"
    with pytest.raises(pa.ArrowInvalid, match="types of its columns"):
        check_types(_as_file(_SCHEMA + groups + b"\x00"))


@pytest.mark.parametrize(
    ("footer", "told"),
    [
        (b"\x49\x0c" + _SCHEMA[1:] + b"\x00", "row groups before a schema"),
        (_SCHEMA + b"\x29\x3c" + b"\x19\x1c\x3c\x15\x02\x00\x00\x00" * 3, "a chunk of 5 bytes"),
        (_SCHEMA + b"\x29\x1c\x19\x1c\x00", "chunks are more than it has room for"),
        (_SCHEMA + b"\x09\x08\x0c\x09\x08\x0c\x00", "field 4 comes twice"),
        (_SCHEMA + b"\x09\x84\x80\x08\x0c\x00", "a field has the number 65538"),
        (b"\x29\xfc\x81\x80\x02" + bytes(40_000) + b"\x00", "a schema of 32769 elements"),
        (_SCHEMA + b"\x59\x29\x03\x03\x00", "elements of type 9"),
        (_SCHEMA + b"\x5c\x10\x00\x00", "type 0 is unknown"),
        (_SCHEMA + b"\x50\x00", "type 0 is unknown"),
        (b"\x29\x2c\x55\x02\x00\x15\x82\x80\x80\x80\x20\x00", "more than 32 bits"),
        (b"\x29\x2c\x55\x02\x00\x25\x00\x00\x00", "a column has no type"),
    ],
)
def test_footers_of_which_a_reader_could_take_something_else(footer, told):
    with pytest.raises(pa.ArrowInvalid, match=told):
        check_types(_as_file(footer))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x1c" * 40, "nested too deeply"),
        (b"\x19\xfc\xff\xff\xff\x0f", "longer than the footer"),
        (b"\x16" + b"\xff" * 20, "more than 64 bits"),
        (b"\x1d\x00", "type 13 is unknown"),
        (b"\x18\x7f\x00", "ends too early"),
    ],
)
def test_structures_that_are_none(content, told):
    with pytest.raises(ValueError, match=told):
        structure(content, 0)

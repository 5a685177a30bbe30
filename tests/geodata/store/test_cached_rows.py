"""Rows are read from the very bytes that are told of, whatever other processes do to the cache."""

import hashlib
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket_files import NEW, national_tiles, read, tile_columns, write_quarter
from msgspec.structs import replace
from run_worlds import made_up_run, note_of

from geogp.errors import DataError
from geogp.geodata.store.cache import cache_items, clear_cache
from geogp.geodata.store.fetch_quarters import fetch_quarters
from geogp.geodata.store.remote import Patience, Transfer
from geogp.geodata.store.sources import Folder, Web
from geogp.geodata.tiles import ookla
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.tile_files import tile_file
from geogp.records.run_record import InputRecord
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import input_record, same_input

QUICK = Patience(attempts=2, first_wait_s=0.01, longest_wait_s=0.02, timeout_s=2.0)
QUARTER = quarter_index("2020Q1")
NAME = tile_file("mobile", QUARTER)
EVERYWHERE = np.array([[0, 4**16 - 1]])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One quarter of the world, twice: with other values in the second folder."""
    folder = tmp_path_factory.mktemp("written")
    columns = tile_columns(national_tiles(1000))
    write_quarter(folder / "old", "2020Q1", columns, names=NEW, rows=300)
    columns["avg_d_kbps"] = columns["avg_d_kbps"] + 7
    write_quarter(folder / "new", "2020Q1", columns, names=NEW, rows=300)
    return folder


@pytest.fixture
def old(written, tmp_path):
    return shutil.copytree(written / "old", tmp_path / "old")


@pytest.fixture
def server(faulty, old, cache):
    with faulty.serving(old) as running:
        yield running


def total(found) -> float:
    return float(found.observations.y.sum())


@pytest.fixture
def meanwhile(monkeypatch):
    """Let another process act after files were held, the first times that they are."""

    def plan(act, times=1):
        left = [times]

        def held(*arguments, **options):
            found = fetch_quarters(*arguments, **options)
            if left[0]:
                left[0] -= 1
                act()
            return found

        monkeypatch.setattr(ookla, "fetch_quarters", held)

    return plan


def test_an_entry_replaced_before_it_is_read_is_held_again(
    server, written, old, testland, meanwhile
):
    source = Web(server.url, QUICK)
    before = read(source, testland)

    def refresh():
        shutil.copy(written / "new" / NAME, old / NAME)
        fetch_quarters(source, testland, "mobile", [QUARTER], refresh=True)

    meanwhile(refresh)
    found = read(source, testland)
    assert total(found) == total(read(Folder(written / "new"), testland)) != total(before)
    (item,) = cache_items()
    (file,) = found.files
    assert file.sha256 == hashlib.sha256(item.path.read_bytes()).hexdigest()
    assert file.etag == item.note.etag != before.files[0].etag
    assert found.warnings == ()


def test_an_entry_deleted_before_it_is_read_is_fetched_again(server, old, testland, meanwhile):
    source = Web(server.url, QUICK)
    meanwhile(clear_cache)
    assert total(read(source, testland)) == total(read(Folder(old), testland))


def test_an_entry_that_goes_with_its_source_is_an_error(server, old, testland, meanwhile):
    def both():
        clear_cache()
        (old / NAME).unlink()

    meanwhile(both)
    with pytest.raises(DataError, match="the file of 2020Q1 disappeared from http"):
        read(Web(server.url, QUICK), testland)


def test_an_entry_that_is_never_left_alone_is_an_error(server, testland, meanwhile):
    meanwhile(clear_cache, times=99)
    with pytest.raises(DataError, match=r"changed 3 times while it was read"):
        read(Web(server.url, QUICK), testland)


def test_a_file_in_place_is_hashed_as_it_is_read(written, old, testland, meanwhile):
    meanwhile(lambda: shutil.copy(written / "new" / NAME, old / NAME))
    found = read(Folder(old), testland)
    assert total(found) == total(read(Folder(written / "new"), testland))
    content = (written / "new" / NAME).read_bytes()
    assert found.files[0].sha256 == hashlib.sha256(content).hexdigest()


def test_a_run_goes_on_whatever_was_fetched_before(server, written, old, testland, tmp_path):
    """The same rows count as the same input out of a region's entry and out of the world's."""
    source = Web(server.url, QUICK)
    (alone,) = read(source, testland).files
    clear_cache()
    source.local_file(NAME, EVERYWHERE, Transfer())
    (amid,) = read(source, testland).files
    assert alone.sha256 != amid.sha256
    assert same_input(input_record(alone), input_record(amid))
    folder, identity = RunFolder(tmp_path / "run"), made_up_run(inputs=[input_record(alone)])
    folder.begin(note_of(identity))
    assert folder.finished(made_up_run(inputs=[input_record(amid)])) is None
    shutil.copy(written / "new" / NAME, old / NAME)
    clear_cache()
    (other,) = read(source, testland).files
    assert not same_input(input_record(alone), input_record(other))


CACHED = {"source": "https://tiles.test", "rows_sha256": "r"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"sha256": "a"}, {"sha256": "a", "etag": "x"}, True),
        ({"sha256": "a"}, {"sha256": "b"}, False),
        (CACHED | {"sha256": "a"}, {"sha256": "b", "rows_sha256": "r"}, True),
        (CACHED | {"sha256": "a"}, CACHED | {"sha256": "b"}, True),
        (CACHED | {"sha256": "a"}, {"sha256": "a", "rows_sha256": "s"}, False),
        ({"sha256": "a", "rows_sha256": "r"}, {"sha256": "b", "rows_sha256": "r"}, False),
        (CACHED | {"sha256": "a"}, {"sha256": "a"}, True),  # of an older run
        (CACHED | {"sha256": "a"}, {"sha256": "b"}, False),
    ],
)
def test_inputs_of_the_cache_are_compared_by_their_rows_where_both_say(one, other, same):
    rest = {"name": "x", "rows": 3, "rows_used": 2}
    first = InputRecord(**rest, **one)
    assert same_input(first, InputRecord(**rest, **other)) is same
    assert not same_input(first, replace(first, name="y"))


@pytest.mark.parametrize("column", ["tests", "quadkey"])
def test_a_wrong_row_is_laid_to_the_source_and_not_to_the_cache(
    server, old, testland, cache, *, column
):
    """Of the file in place the path is named, and other advice given."""
    table = pq.read_table(old / NAME)
    if column == "tests":
        wrong = pa.array(np.zeros(len(table), np.int64))
    else:
        wrong = table["quadkey"].to_pylist()
        wrong = pa.array([wrong[place // 2 * 2] for place in range(len(wrong))])
    table = table.set_column(table.column_names.index(column), column, wrong)
    pq.write_table(table, old / NAME, row_group_size=300)
    with pytest.raises(DataError, match=re.escape(f"{server.url}/{NAME} cannot")) as refusal:
        read(Web(server.url, QUICK), testland)
    assert "--refresh" in str(refusal.value)
    assert "Repair" not in str(refusal.value)
    assert str(cache) not in str(refusal.value)
    with pytest.raises(DataError, match=re.escape(f"{old / NAME} cannot")) as refusal:
        read(Folder(old), testland)
    assert "Repair the file" in str(refusal.value)

"""The cache listed, checked and cleared: what is in it of others, and what others do meanwhile."""

import errno
import json
import os
import threading

import pytest
from bucket_files import read, tile_columns, tiles_around, write_quarter

from geogp.errors import OutputError
from geogp.geodata.store import cache as cache_module
from geogp.geodata.store.cache import (
    DAMAGED,
    UNFINISHED,
    WHOLE,
    CacheEntry,
    cache_items,
    clear_cache,
)
from geogp.geodata.store.remote import Patience, Transfer
from geogp.geodata.store.sources import Folder, Web
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.tile_files import tile_file

QUICK = Patience(attempts=2, first_wait_s=0.01, longest_wait_s=0.02, timeout_s=5.0)
NAME = tile_file("mobile", quarter_index("2020Q1"))


@pytest.fixture
def folder(tmp_path):
    write_quarter(tmp_path / "served", "2020Q1", tile_columns(tiles_around()))
    (tmp_path / "served" / "border.json").write_text("{}")
    return tmp_path / "served"


@pytest.fixture
def source(faulty, folder, cache):
    with faulty.serving(folder) as running:
        yield Web(running.url, QUICK)


def filled(source, region):
    """Return the paths of an entry of tiles and of a file downloaded whole."""
    read(source, region)
    source.fetch("border.json")
    tiles, border = (item.path for item in cache_items())
    return tiles, border


def files(cache):
    return sorted(path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_what_others_put_there_is_neither_listed_nor_deleted(source, testland, cache):
    tiles, border = filled(source, testland)
    mine = [
        cache / "keep.txt",
        cache / "downloads" / "thesis" / "chapter.docx",
        cache / "downloads" / "thesis" / "chapter.docx.json",
        cache / "tiles" / "bathroom" / "plan.parquet",
        cache / "tiles" / "bathroom-1a2b3c4d" / "plan.parquet",
        cache / "tiles" / "plan-1a2b3c4d",
        border.parent / "notes.txt",
        tiles.parent / "notes.json",
        tiles.parent / ".hidden.parquet.x",
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"sha256": "00"}))
    (cache / "tiles" / "empty").mkdir()
    assert [item.path for item in cache_items(check=True)] == [tiles, border]
    done = clear_cache()
    assert (done.files, done.busy) == (2, 0)
    assert files(cache) == sorted(mine)
    assert (cache / "tiles" / "empty").is_dir()
    assert cache_items() == []


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("which", ["left", "tiles", "border"])
def test_what_vanishes_while_it_is_listed_is_left_out(
    source, testland, monkeypatch, *, which, check
):
    tiles, border = filled(source, testland)
    left = tiles.with_name(f".{tiles.name}.abcdefgh")
    left.write_text("half")
    gone = {"left": left, "tiles": tiles, "border": border}[which]
    original = cache_module._files

    def racing():
        found = original()
        gone.unlink()
        return found

    monkeypatch.setattr(cache_module, "_files", racing)
    assert {item.path for item in cache_items(check=check)} == {left, tiles, border} - {gone}


def test_what_is_being_fetched_is_not_cleared(source, testland, cache):
    entry = CacheEntry.of(source.where, NAME, testland.code_ranges)
    left = entry.path.with_name(f".{entry.path.name}.abcdefgh")
    with entry.locked(Transfer()):
        (lock,) = (cache / "tiles" / ".locks").iterdir()
        held = lock.stat().st_ino
        left.parent.mkdir(parents=True)
        left.write_text("half")
        done = clear_cache()
        assert (done.files, done.size, done.busy) == (0, 0, 1)
        assert left.exists()
    done = clear_cache()
    assert (done.files, done.size, done.busy) == (1, 4, 0)
    assert not left.exists()
    assert lock.stat().st_ino == held


def test_a_fetch_goes_on_while_the_cache_is_cleared(source, faulty, folder, testland):
    """Again and again, while a whole file comes, is cut, written and read."""
    ended = threading.Event()

    def clear():
        while not ended.wait(0.002):
            clear_cache()
            cache_items(check=True)

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for _ in range(3):
            found = read(source, testland)
            assert len(found.observations) == len(read(Folder(folder), testland).observations)
    finally:
        ended.set()
        thread.join()


def test_what_a_refresh_is_writing_is_not_called_damaged(source, testland):
    tiles, _ = filled(source, testland)
    tiles.write_bytes(tiles.read_bytes() + b"of a newer file")
    entry = CacheEntry.of(source.where, NAME, None)
    with entry.locked(Transfer()):
        assert cache_items(check=True)[0].state == UNFINISHED
    assert cache_items(check=True)[0].state == DAMAGED


def test_a_cache_that_can_only_be_read_is_listed_checked_and_used(source, testland, monkeypatch):
    tiles, border = filled(source, testland)
    left = border.with_name(".border.json.json.a1b2c3d4")
    left.write_text("half")
    tiles.write_bytes(b"damaged")
    opened = os.open

    def refused(path, flags=0, *_, **__):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) or not flags:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *_, **__)

    for name in ("open", "unlink"):
        monkeypatch.setattr(os, name, refused)
    states = {item.path: item.state for item in cache_items(check=True)}
    assert states == {tiles: DAMAGED, border: WHOLE, left: UNFINISHED}
    assert {item.path for item in cache_items()} == set(states)
    assert source.fetch("border.json") == border
    with pytest.raises(OutputError, match=r"Read-only file system\. Set GEOGP_CACHE to another"):
        source.fetch("other.json")
    with pytest.raises(OutputError, match="cannot clear the cache"):
        clear_cache()


def test_a_leftover_of_a_download_is_cleared_unless_something_is_downloaded(source, testland):
    _, border = filled(source, testland)
    left = border.with_name(".border.json.json.a1b2c3d4")
    left.write_text("half")
    assert {item.path: item.state for item in cache_items(check=True)}[left] == UNFINISHED
    with CacheEntry.of_file(source.where, "border.json").locked(Transfer()):
        done = clear_cache()
    assert (done.files, done.busy, left.exists()) == (1, 2, True)
    done = clear_cache()
    assert (done.files, done.busy, left.exists()) == (2, 0, False)


def test_a_download_whose_note_is_damaged_is_damaged(source, testland):
    _, border = filled(source, testland)
    border.with_name(f"{border.name}.json").write_text("{")
    assert {item.path: item.state for item in cache_items()}[border] == DAMAGED
    assert clear_cache().files == 2
    assert cache_items() == []

"""A download that was stopped goes on with what came of the same version, and of no other."""

import resource

import pytest
from bucket_files import (
    NEW,
    national_tiles,
    read,
    same,
    tile_columns,
    tiles_around,
    write_quarter,
)

from geogp.errors import NetworkError, OutputError
from geogp.geodata.store import remote_tiles
from geogp.geodata.store.cache import LOCKS, UNFINISHED, cache_items, clear_cache
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web

QUICK = Patience(
    attempts=2, first_wait_s=0.002, longest_wait_s=0.01, timeout_s=0.4, slowest=100_000.0
)
GROUPS = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    tiles = national_tiles(1000)
    columns = tile_columns(tiles)
    # A text of the geometry that is longer than what is read along, so that columns come apart.
    columns["tile"] = [f"POLYGON(({tile}))" * 40 for tile in tiles]
    options = {"names": NEW, "rows": -(-len(tiles_around()) // GROUPS), "compression": "none"}
    write_quarter(folder / "old", "2020Q1", columns, **options)
    columns["avg_d_kbps"] = columns["avg_d_kbps"] + 7
    write_quarter(folder / "new", "2020Q1", columns, **options)
    return folder


@pytest.fixture
def server(faulty, written, cache):
    with faulty.serving(written / "old", written / "new") as running:
        yield running


def _stop(server, faulty, region, place, **manner):
    """Read until the server refuses at a request; return the bytes that it sent."""
    server.tell(faulty.Fault("403", place, 1), manner=faulty.Manner(**manner))
    with pytest.raises(NetworkError, match="403"):
        read(Web(server.url, QUICK), region)
    sent = server.told.sent
    server.tell(manner=faulty.Manner(**manner))
    return sent


@pytest.fixture(scope="module")
def whole(faulty, written, testland, tmp_path_factory):
    """Return the bytes that an undisturbed download takes, and how many requests."""
    with pytest.MonkeyPatch.context() as patch, faulty.serving(written / "old") as running:
        patch.setenv("GEOGP_CACHE", str(tmp_path_factory.mktemp("apart")))
        patch.setenv("NO_PROXY", "127.0.0.1")
        read(Web(running.url, QUICK), testland)
        return running.told.sent, running.told.seen["GET"]


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_stopped_quarter_goes_on_from_what_came(
    server, faulty, written, testland, *, whole, share
):
    place = int(share * whole[1])
    first = _stop(server, faulty, testland, place)
    found = read(Web(server.url, QUICK), testland)
    assert same(found, read(Folder(written / "old"), testland))
    assert first > 0.5 * share * whole[0]
    assert first + server.told.sent == whole[0]
    assert found.files[0].bytes_read == whole[0]
    assert not [item for item in cache_items() if item.kind == "none"]


def test_parts_of_another_version_are_discarded(server, faulty, written, testland, whole):
    _stop(server, faulty, testland, whole[1] - 2)
    server.folder = written / "new"
    found = read(Web(server.url, QUICK), testland)
    assert same(found, read(Folder(written / "new"), testland))
    assert server.told.sent >= whole[0]


@pytest.mark.parametrize("damage", ["flip", "cut", "torn", "list", "other place"])
def test_damaged_parts_are_asked_for_again(
    server, faulty, written, testland, *, whole, cache, damage
):
    first = _stop(server, faulty, testland, whole[1] - 2)
    (copy,), (ranges,) = cache.rglob("*.parts"), cache.rglob("*.ranges")
    title, *lines = ranges.read_text().splitlines()
    lost = first
    if damage == "flip":
        start, length, _ = map(str, lines[-1].split())
        content = bytearray(copy.read_bytes())
        content[int(start) + int(length) // 2] ^= 1
        copy.write_bytes(content)
        lost = int(length)
    elif damage == "cut":
        copy.write_bytes(b"")
    elif damage == "torn":
        lost = int(lines[-1].split()[1])
        ranges.write_text("\n".join([title, *lines[:-1], lines[-1][:5]]))
    elif damage == "list":
        ranges.write_text("{")
    else:
        moved = [f"{int(start) + 1} {rest}" for start, rest in (one.split(" ", 1) for one in lines)]
        ranges.write_text("\n".join([title, *moved]))
    found = read(Web(server.url, QUICK), testland)
    assert same(found, read(Folder(written / "old"), testland))
    assert first - lost + server.told.sent == whole[0]


@pytest.mark.parametrize("manner", [{"etag": "weak"}, {"etag": "none", "dated": False}])
def test_without_a_strong_etag_a_file_comes_whole_and_nothing_is_kept(
    server, faulty, written, testland, manner
):
    """Nothing would tell whether two parts are of one file; one answer is."""
    _stop(server, faulty, testland, 0, **manner)
    assert not cache_items()
    found = read(Web(server.url, QUICK), testland)
    assert same(found, read(Folder(written / "old"), testland))
    assert found.files[0].bytes_read == found.files[0].bytes_stored
    assert server.told.seen["GET"] == 1


def test_parts_are_listed_as_unfinished_and_cleared(server, faulty, testland, whole, cache):
    _stop(server, faulty, testland, whole[1] - 2)
    items = cache_items(check=True)
    assert {(item.kind, item.state) for item in items} == {("none", UNFINISHED)}
    clear_cache()
    left = [path for path in cache.rglob("*") if path.is_file()]
    assert [path for path in left if path.parent.name != LOCKS] == []


def test_large_ranges_are_kept_in_small_parts(
    server, faulty, written, testland, *, whole, cache, monkeypatch
):
    monkeypatch.setattr(remote_tiles, "LARGEST", 1000)
    _stop(server, faulty, testland, 2 * whole[1])
    (ranges,) = cache.rglob("*.ranges")
    assert max(int(line.split()[1]) for line in ranges.read_text().splitlines()[1:]) == 1000
    found = read(Web(server.url, QUICK), testland)
    assert same(found, read(Folder(written / "old"), testland))


def test_a_part_that_cannot_be_kept_is_said(server, testland):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(
            OutputError, match=r"the disk is full or a file-size limit is reached. Free some"
        ):
            read(Web(server.url, QUICK), testland)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

"""Tiles over HTTP: what is read, what is kept, and what every fault leaves behind."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bucket_files import (
    NEW,
    national_tiles,
    read,
    same,
    spoil_chunk,
    tile_columns,
    write_quarter,
)

from geogp.errors import DataError, NetworkError, UnreachableError
from geogp.geodata.store.cache import DAMAGED, UNFINISHED, CacheEntry, cache_items, clear_cache
from geogp.geodata.store.fetch_quarters import QuarterFiles, fetch_quarters
from geogp.geodata.store.remote import Patience, Transfer
from geogp.geodata.store.sources import Folder, LocalFile, Web
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import SIMULATED
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.tile_files import tile_file

QUICK = Patience(
    attempts=4, first_wait_s=0.01, longest_wait_s=0.05, timeout_s=0.4, slowest=100_000.0
)
QUARTER = quarter_index("2020Q1")
NAME = tile_file("mobile", QUARTER)
BOTH = "2020Q1..2020Q2"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two files of which the region is a part, far tiles around; and other values of the same."""
    folder = tmp_path_factory.mktemp("written")
    tiles = national_tiles(1000)
    for seed, quarter in enumerate(("2020Q1", "2020Q2")):
        columns = tile_columns(tiles, seed)
        columns["tile"] = [f"POLYGON(({tile} {seed}))" * 9 for tile in tiles]
        options = {"names": NEW, "rows": 150, "compression": "none"}
        write_quarter(folder / "national", quarter, columns, **options)
        columns["avg_d_kbps"] = columns["avg_d_kbps"] + 7
        write_quarter(folder / "replacement", quarter, columns, **options)
    return folder


@pytest.fixture
def national(written, tmp_path):
    return Path(shutil.copytree(written / "national", tmp_path / "national"))


@pytest.fixture
def replacement(written):
    return written / "replacement"


@pytest.fixture
def server(faulty, national, replacement, cache):
    with faulty.serving(national, replacement) as running:
        yield running


def web(server) -> Web:
    return Web(server.url, QUICK)


def test_only_what_the_region_touches_is_read(server, national, testland):
    found = read(web(server), testland, BOTH)
    assert same(found, read(Folder(national), testland, BOTH))
    near = pq.read_metadata(national / NAME)
    for file in found.files:
        assert file.rows == near.num_rows
        assert file.bytes_read < 0.35 * file.bytes_stored
        assert file.source == f"{server.url}/{file.name}"
        assert file.etag.startswith('"')
    # All that the server sent, the answers to questions without a body left out.
    assert sum(file.bytes_read for file in found.files) == server.told.sent


def test_the_geometry_is_not_read_nor_groups_of_other_regions(server, national, testland):
    whole = read(Folder(national), testland, BOTH)
    for name in ("2020Q1", "2020Q2"):
        path = national / tile_file("mobile", quarter_index(name))
        groups = pq.read_metadata(path).num_row_groups
        for group in range(groups):
            spoil_chunk(path, group, "tile")
        for column in ("quadkey", "avg_d_kbps", "tests"):
            spoil_chunk(path, 0, column)
            spoil_chunk(path, groups - 1, column)
    assert same(read(web(server), testland, BOTH), whole)


def test_the_second_reading_asks_only_whether_the_files_changed(server, testland):
    first = read(web(server), testland, BOTH)
    server.tell()
    again = read(web(server), testland, BOTH)
    assert same(first, again)
    assert first.files == again.files
    assert {method for method, _ in server.told.requests} == {"HEAD"}
    assert again.warnings == ()


def test_an_entry_has_a_note_of_what_it_is(server, testland, cache):
    held = web(server).local_file(NAME, testland.code_ranges, Transfer())
    note = json.loads(held.path.with_suffix(".json").read_text())
    table = pq.read_table(held.path)
    assert table.column_names == [
        *("quadkey", "avg_d_kbps", "avg_u_kbps", "avg_lat_ms", "tests", "devices")
    ]
    codes = quadkeys.parse_quadkeys(table["quadkey"].to_numpy()).astype(np.int64)
    assert (np.diff(codes) > 0).all()
    inside = [(codes >= low) & (codes <= high) for low, high in testland.code_ranges]
    assert np.any(inside, axis=0).all()
    assert note["rows"] == len(table) < note["rows_in_source"]
    assert note["ranges"] == testland.code_ranges.tolist()
    assert note["bytes_stored"] == (server.folder / NAME).stat().st_size
    assert (held.fresh, held.note.sha256) == (True, note["sha256"])
    assert [path.suffix for path in cache.rglob("*obile*") if path.is_file()].count(".json") == 1


def test_row_groups_that_do_not_tell_regions_apart_are_read_once(server, national, testland):
    table = pq.read_table(national / NAME)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    pq.write_table(shuffled, national / NAME, row_group_size=500)
    source = web(server)
    found = read(source, testland, "2020Q1")
    assert same(found, read(Folder(national), testland, "2020Q1"))
    (item,) = cache_items(check=True)
    assert (item.kind, item.note.rows) == ("world", len(table))
    stored = pq.read_table(item.path)
    assert stored["quadkey"].to_pylist() == sorted(table["quadkey"].to_pylist())
    server.tell()
    everywhere = np.array([[0, 10**7]])
    held = source.local_file(NAME, everywhere, Transfer())
    assert (held.path, held.fresh) == (item.path, False)
    assert server.told.seen["GET"] == 0


@pytest.mark.parametrize(
    "manner",
    [
        {"ranges": False},
        {"ranges": False, "etag": "none", "dated": False},
        {"heads": False},
        {"etag": "weak"},
        {"etag": "none", "dated": False},
    ],
)
def test_poorer_servers_serve_too(server, faulty, national, testland, manner):
    server.tell(manner=faulty.Manner(**manner))
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))
    assert {item.state for item in cache_items(check=True)} == {"whole"}


PASSING = ["drop", "cut", "short", "long", "slow", "misplaced", "429", "500", "503"]


@pytest.mark.parametrize("kind", PASSING)
def test_a_fault_that_passes_is_overcome(server, faulty, national, testland, kind):
    server.tell(faulty.Fault(kind, 3, times=2))
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))
    assert server.told.seen["GET"] > 5


@pytest.mark.parametrize("kind", ["cut", "misplaced", "slow", "403", "404", "size"])
def test_a_fault_that_stays_is_an_error_and_the_next_run_is_right(
    server, faulty, national, testland, kind
):
    server.tell(faulty.Fault(kind, 2, times=10**6))
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1") as refusal:
        read(web(server), testland, "2020Q1")
    assert refusal.value.exit_code == 4
    # What came of the same version stays for the next run, and is no entry.
    assert {item.path.suffix for item in cache_items()} <= {".parts", ".ranges"}
    server.tell()
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))


@pytest.mark.parametrize("kind", ["drop", "503", "404"])
def test_a_header_that_fails(server, faulty, national, testland, kind):
    server.tell(faulty.Fault(kind, times=10**6, method="HEAD"))
    expected = DataError if kind == "404" else NetworkError
    with pytest.raises(expected):
        read(web(server), testland, "2020Q1")
    assert not cache_items()
    server.tell()
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))


def test_a_refusal_says_what_it_may_mean(server, faulty, testland):
    server.tell(faulty.Fault("403", times=9, method="HEAD"))
    with pytest.raises(NetworkError, match=r"answered 403 .*needs a login"):
        read(web(server), testland, "2020Q1")
    assert server.told.seen["HEAD"] == 1


@pytest.mark.parametrize(
    ("etag", "dated", "ranges", "place"),
    [
        *(("strong", True, True, place) for place in (0, 1, 3)),
        ("weak", True, True, 0),
        ("none", False, False, 0),
    ],
)
def test_a_file_replaced_midway_is_never_mixed(
    server, faulty, national, testland, *, replacement, etag, dated, ranges, place
):
    manner = faulty.Manner(etag=etag, dated=dated, ranges=ranges)
    server.tell(faulty.Fault("replace", place), manner=manner)
    found = read(web(server), testland, "2020Q1")
    old, new = (read(Folder(folder), testland, "2020Q1") for folder in (national, replacement))
    assert not same(old, new)
    assert same(found, old) or same(found, new)
    assert same(read(web(server), testland, "2020Q1"), found)


@pytest.mark.parametrize(
    "etag",
    [
        pytest.param("weak", id="another ETag of each answer"),
        pytest.param("once", id="no ETag, and a server that heeds If-Match"),
    ],
)
def test_an_answer_of_another_file_is_known_by_its_etag_alone(
    server, faulty, national, testland, *, replacement, etag
):
    """Of the same size, without a date, and the file itself is the same before and after."""
    assert (national / NAME).stat().st_size == (replacement / NAME).stat().st_size
    server.tell(faulty.Fault("other", 0), manner=faulty.Manner(etag=etag, dated=False))
    assert same(read(web(server), testland, "2020Q1"), read(Folder(national), testland, "2020Q1"))
    assert server.told.seen["GET"] > 1


def test_a_file_that_keeps_changing_is_an_error(server, faulty, testland, monkeypatch):
    server.tell(faulty.Fault("size", times=10**6))
    with pytest.raises(NetworkError, match=r"changed while it was read.*started 3 times"):
        read(web(server), testland, "2020Q1")


def test_a_changed_source_is_said_and_taken_on_request(server, national, replacement, testland):
    first = read(web(server), testland, "2020Q1")
    shutil.copy(replacement / NAME, national / NAME)
    again = read(web(server), testland, "2020Q1")
    assert same(first, again)
    (warning,) = again.warnings
    assert "has changed the files of 2020Q1 since the download on 20" in warning
    assert "--refresh" in warning
    held = fetch_quarters(web(server), testland, "mobile", [QUARTER], refresh=True)
    assert held.files[QUARTER].fresh
    now = read(web(server), testland, "2020Q1")
    assert now.warnings == ()
    assert same(now, read(Folder(replacement), testland, "2020Q1"))
    held = fetch_quarters(web(server), testland, "mobile", [QUARTER], refresh=True)
    assert not held.files[QUARTER].fresh


def test_a_refresh_that_fails_keeps_what_was_there(server, faulty, national, replacement, testland):
    first = read(web(server), testland, "2020Q1")
    shutil.copy(replacement / NAME, national / NAME)
    server.tell(faulty.Fault("500", 2, times=10**6))
    with pytest.raises(NetworkError, match="500"):
        fetch_quarters(web(server), testland, "mobile", [QUARTER], refresh=True)
    server.tell()
    assert same(read(web(server), testland, "2020Q1"), first)


def test_without_the_network_the_cache_is_used_and_the_run_says_so(
    faulty, national, cache, testland
):
    with faulty.serving(national) as running:
        source = web(running)
        first = read(source, testland, "2020Q1")
    alone = read(source, testland, "2020Q1..2020Q2")
    assert same(alone, first)
    assert (alone.missing, alone.unreached) == ((), (QUARTER + 1,))
    told = " ".join(alone.warnings)
    assert (
        "could not be reached to check for changed files: the files of 2020Q1 come from the cache"
        in told
    )
    assert "These quarters are not in the cache, so they are left out: 2020Q2" in told
    with pytest.raises(UnreachableError, match="2020-04-01_performance"):
        read(source, testland, "2020Q1,2020Q2")
    clear_cache()
    with pytest.raises(UnreachableError):
        read(source, testland, "2020Q1..2020Q2")


def test_simulated_tiles_are_known_by_their_note(faulty, national, cache, testland):
    (national / "simulation.json").write_text("{}")
    with faulty.serving(national) as running:
        source = web(running)
        assert read(source, testland, BOTH).attribution == SIMULATED
    assert read(source, testland, BOTH).attribution == SIMULATED


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_whether_tiles_are_simulated_is_never_guessed(server, faulty, testland, kind):
    server.tell(faulty.Fault(kind, method="HEAD", about="simulation.json"))
    with pytest.raises(NetworkError, match=r"simulation\.json"):
        read(web(server), testland, BOTH)
    server.tell()
    read(web(server), testland, BOTH)


def test_a_bucket_that_refuses_absent_files_has_no_simulated_tiles(server, faulty, testland):
    server.tell(faulty.Fault("403", method="HEAD", about="simulation.json"))
    assert read(web(server), testland, BOTH).attribution != SIMULATED


def test_damaged_bytes_are_found_and_fetched_again(server, national, testland):
    """Whichever byte of whichever file of an entry is wrong."""
    good = read(Folder(national), testland, BOTH)
    read(web(server), testland, BOTH)
    random = np.random.default_rng(3)
    for number in range(4):
        paths = [item.path for item in cache_items()]
        entry = paths[random.integers(len(paths))]
        path = entry.with_suffix(".json") if number % 2 else entry
        content = bytearray(path.read_bytes())
        place = random.integers(len(content))
        content[place] ^= 1 << random.integers(8)
        path.write_bytes(content)
        states = {item.path: item.state for item in cache_items(check=True)}
        assert states.pop(entry) == DAMAGED
        assert set(states.values()) == {"whole"}
        assert same(read(web(server), testland, BOTH), good)
        assert {item.state for item in cache_items(check=True)} == {"whole"}


@pytest.mark.parametrize(
    "change", ["note", "edited", "other note", "no note", "no file", "short", "list"]
)
def test_an_entry_without_its_note_is_no_entry(server, national, testland, change):
    read(web(server), testland, BOTH)
    one, other = sorted(item.path for item in cache_items())
    note = one.with_suffix(".json")
    if change == "note":
        content = json.loads(note.read_text())
        note.write_text(json.dumps(content | {"source": "http://127.0.0.1/else"}))
    elif change == "edited":
        content = json.loads(note.read_text()) | {"rows_in_source": 5, "simulated": True}
        note.write_text(json.dumps(content, indent=1) + "\n")
        states = {item.path: item.state for item in cache_items(check=True)}
        assert states == {one: DAMAGED, other: "whole"}
    elif change == "other note":
        shutil.copy(other, one)
        shutil.copy(other.with_suffix(".json"), note)
    elif change == "no note":
        note.unlink()
    elif change == "no file":
        one.unlink()
    elif change == "short":
        one.write_bytes(one.read_bytes()[:-1])
    else:
        note.write_text("[" * 100_000)
    server.tell()
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))
    assert server.told.seen["GET"] > 0


def test_a_damaged_source_is_refused_and_not_kept(server, national, testland):
    path = national / NAME
    for group in range(pq.read_metadata(path).num_row_groups):
        spoil_chunk(path, group, "quadkey")
    with pytest.raises(
        DataError,
        match=r"http://127.*cannot be used|is not a complete Parquet "
        "file",
    ):
        read(web(server), testland, "2020Q1")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"http://127.* is not a complete Parquet file"):
        read(web(server), testland, "2020Q1")
    assert not cache_items()


def test_what_a_killed_process_left_is_seen_and_swept(server, national, testland, cache):
    entry = CacheEntry.of(server.url, NAME, testland.code_ranges)
    entry.path.parent.mkdir(parents=True)
    left = entry.path.with_name(f".{entry.path.name}.abcdefgh")
    left.write_bytes(b"half")
    (item,) = cache_items(check=True)
    assert (item.path, item.state) == (left, UNFINISHED)
    assert same(read(web(server), testland, BOTH), read(Folder(national), testland, BOTH))
    assert not left.exists()


def test_a_stopped_transfer_ends(server, testland):
    transfer = Transfer()
    transfer.stopped.set()
    with pytest.raises(KeyboardInterrupt):
        web(server).local_file(NAME, testland.code_ranges, transfer)


@pytest.mark.parametrize(
    ("where", "warned"),
    [
        ("http://example.org/x", True),
        ("http://127.0.0.1:9000/x", False),
        ("http://localhost/x", False),
        ("https://example.org/x", False),
        ("/a/folder", False),
    ],
)
def test_what_comes_without_tls_is_said(where, warned):
    told = QuarterFiles({QUARTER: LocalFile(Path("x.parquet"), simulated=False)}, {}).warnings(
        where
    )
    assert ["is read without TLS" in text for text in told] == [True] * warned
    assert QuarterFiles({}, {}).warnings(where) == []

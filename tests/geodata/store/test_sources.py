"""Folders and web addresses as sources of files; the web is a server on this machine."""

import hashlib
import json
import resource
import socket
from pathlib import Path

import pytest

from geogp.errors import DataError, NetworkError, OutputError, RequestError, UnreachableError
from geogp.geodata.store.addresses import absolute_place
from geogp.geodata.store.cache_place import cache_folder
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web, open_source

QUICK = Patience(attempts=3, first_wait_s=0.005, longest_wait_s=0.02, timeout_s=1.0)


@pytest.fixture
def server(faulty, tmp_path, cache):
    folder = tmp_path / "served"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "file.bin").write_bytes(bytes(range(256)) * 40)
    with faulty.serving(folder) as running:
        yield running


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_folder_gives_its_own_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("b")
    folder = Folder(tmp_path)
    assert folder.where == str(tmp_path)
    assert (folder.has("a/b.txt"), folder.has("a"), folder.has("c")) == (True, False, False)
    assert folder.find("a/b.txt") == tmp_path / "a" / "b.txt"


def test_places_are_opened_by_how_they_are_written(tmp_path, monkeypatch):
    assert open_source(str(tmp_path)) == Folder(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_source("~") == Folder(tmp_path)
    assert open_source("https://example.org/x") == Web("https://example.org/x")
    assert open_source("http://example.org/x") == Web("http://example.org/x")


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("s3://ookla-open-data", "https://ookla-open-data.s3.amazonaws.com"),
        ("s3://ookla-open-data/", "https://ookla-open-data.s3.amazonaws.com"),
        ("s3://bucket/some/prefix/", "https://bucket.s3.amazonaws.com/some/prefix"),
    ],
)
def test_a_bucket_is_read_over_https(written, address):
    assert open_source(written) == Web(address)


def test_a_name_that_is_too_long_is_no_folder(tmp_path):
    with pytest.raises(DataError, match="no folder"):
        open_source(f"{tmp_path}/{300 * '9'}")


@pytest.mark.parametrize(
    ("written", "endpoint"),
    [
        ("https://host/get?token=SECRET&path=", None),
        ("https://host/get#SECRET", None),
        ("https://SECRET@host/x", None),
        ("s3://bucket/x?token=SECRET", None),
        ("s3://SECRET@bucket/x", None),
        ("s3://bucket/x", "http://host/?token=SECRET&path="),
        ("s3://bucket/x", "http://host:1/#SECRET"),
        ("s3://bucket/x", "https://me:SECRET@host"),
        ("s3://bucket/x", "host/SECRET"),
        ("https://[SECRET", None),
        ("https:///SECRET", None),
    ],
)
def test_an_address_that_keeps_a_secret_or_is_none_is_refused(written, endpoint, monkeypatch):
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    with pytest.raises(RequestError, match="address") as refusal:
        open_source(written)
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no folder .*nowhere. Give a folder, or an address"):
        open_source(str(tmp_path / "nowhere"))
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"no folder"):
        open_source(str(tmp_path / "file"))


def test_the_cache_is_where_the_user_says(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("GEOGP_CACHE")
    assert cache_folder().name == "geogp"


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_file_comes_over_the_web_into_the_cache(server, cache, slash):
    web = Web(server.url + slash)
    path = web.find("a/file.bin")
    assert path.read_bytes() == (server.folder / "a" / "file.bin").read_bytes()
    note = path.with_name(path.name + ".json")
    assert _files(cache) == sorted([path, note])
    noted = json.loads(note.read_text())
    assert noted["source"].endswith("a/file.bin")
    assert noted["size"] == path.stat().st_size
    assert noted["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert web.where == server.url + slash


@pytest.mark.parametrize("damage", ["file", "note"])
def test_a_cached_file_that_no_longer_agrees_with_its_note_is_fetched_again(server, damage):
    web = Web(server.url)
    path = web.fetch("a/file.bin")
    whole = path.read_bytes()
    if damage == "file":
        path.write_bytes(whole[:-1])
    else:
        path.with_name(path.name + ".json").write_text("{")
        path.write_bytes(b"left by somebody")
    assert web.fetch("a/file.bin").read_bytes() == whole


def test_two_addresses_do_not_share_files(server):
    for folder in ("x_y", "x/y"):
        (server.folder / folder).mkdir(parents=True)
        (server.folder / folder / "f").write_text(folder)
    found = [Web(f"{server.url}/{folder}").fetch("f").read_text() for folder in ("x_y", "x/y")]
    assert found == ["x_y", "x/y"]


def test_a_file_that_is_not_there_is_no_error_but_cannot_be_fetched(server, cache):
    web = Web(server.url)
    assert web.find("a/none.bin") is None
    with pytest.raises(NetworkError, match=r"could not read .*a/none.bin.*404"):
        web.fetch("a/none.bin")
    assert _files(cache) == []


def test_a_server_that_is_not_there_is_a_network_error(cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        web = Web(f"http://127.0.0.1:{free.getsockname()[1]}", QUICK)
        for ask in (web.find, web.fetch):
            with pytest.raises(
                UnreachableError, match=r"could not read http://127.0.0.1:\d+/a: .*"
            ):
                ask("a")
    assert _files(cache) == []


def test_a_file_that_cannot_be_stored_is_said_and_not_kept(server, cache):
    (server.folder / "large.bin").write_bytes(bytes(1 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with pytest.raises(OutputError, match=r"cannot store .*large.bin.* Free some space or set"):
            Web(server.url, QUICK).fetch("large.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert _files(cache) == []


def test_places_are_absolute_and_addresses_stay(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    whole = str((tmp_path / "here").resolve())
    for typed in (".", "../here/", "../link", str(tmp_path / "link"), whole):
        assert absolute_place(typed) == whole
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_place("~/here") == whole
    for address in ("https://example.org/a/../b", "http://example.org", "s3://bucket/x/"):
        assert absolute_place(address) == address

"""Files are whole or untouched."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geogp.errors import OutputError
from geogp.files import remove, sha256_of, write_bytes, write_folder, write_into, write_text


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.bin"
    for content in (b"first \x00\xff", b"", b"x" * 300_000):
        write_bytes(path, content)
        assert path.read_bytes() == content
    assert _names(tmp_path) == ["a.bin"]


def test_makes_the_folders_it_needs(tmp_path):
    path = tmp_path / "one" / "two" / "a.txt"
    write_text(path, "São Tomé €\n")
    assert path.read_bytes() == "São Tomé €\n".encode()


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_others_may_read_what_the_umask_lets_them(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_bytes(tmp_path / "a", b"1")
        write_folder(tmp_path / "b", lambda folder: write_text(folder / "c", "1"))
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    for name, most in (("a", 0o666), ("b", 0o777), ("b/c", 0o666)):
        assert (tmp_path / name).stat().st_mode & 0o777 == most & ~umask


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "the disk is full or a file-size limit is reached. .* --out"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "cannot write .*report.html: Input/output error. .* --out"),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, code, message, step):
    path = tmp_path / "report.html"
    write_bytes(path, b"old")

    def fail(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    if step == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError, match=message) as caught:
        write_bytes(path, b"new and longer")
    assert caught.value.__cause__.errno == code
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["report.html"]


def test_an_interruption_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["a"]


def test_content_is_on_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    """At the time of fsync, the whole content stands beside and the old file is in place."""
    path = tmp_path / "a"
    write_bytes(path, b"old")
    seen = []

    def look(handle: int) -> None:
        seen.append((os.fstat(handle).st_size, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", look)
    write_bytes(path, b"newer")
    assert seen == [(5, b"old")]


def test_a_path_under_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "folder" / "a"):
        with pytest.raises(OutputError, match=r"cannot write .*: .*(directory|exists)") as caught:
            write_bytes(path, b"2")
        assert caught.value.exit_code == 2
    assert (tmp_path / "file").read_bytes() == b"1"


def test_a_folder_in_the_way_leaves_nothing_behind(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        write_bytes(tmp_path / "a", b"1")
    assert _names(tmp_path) == ["a"]
    assert _names(tmp_path / "a") == []


LIMITED = """
import resource, sys
from pathlib import Path
from geogp.errors import OutputError
from geogp.files import write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
path = Path(sys.argv[1])
write_bytes(path, b"a" * 900)
try:
    write_bytes(path, b"b" * 5000)
except OutputError as error:
    print(error)
"""


def test_a_real_limit_on_the_size_of_files(tmp_path):
    path = tmp_path / "a"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert f"cannot write {path}: the disk is full or a file-size limit" in done.stdout
    assert path.read_bytes() == b"a" * 900
    assert _names(tmp_path) == ["a"]


def test_sha256(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert sha256_of(path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    content = bytes(range(256)) * 5000
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()


def test_folders_are_whole_or_untouched(tmp_path):
    path = tmp_path / "new" / "store"
    for name in ("first", "second"):
        write_folder(path, lambda folder, name=name: write_text(folder / name, name))
        assert _names(path) == [name]

    def stopped(folder):
        write_text(folder / "third", "")
        raise KeyboardInterrupt

    def full(folder):
        write_text(folder / "third", "")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(KeyboardInterrupt):
        write_folder(path, stopped)
    with pytest.raises(OutputError, match="the disk is full"):
        write_folder(path, full)
    assert _names(tmp_path / "new") == ["store"]
    assert _names(path) == ["second"]


def test_files_of_a_folder_are_replaced_and_others_stay(tmp_path):
    path = tmp_path / "new" / "joined"
    write_text(path / "notes.txt", "the user's")
    write_text(path.parent / ".joined.ab_d3fgh" / "a", "of a killed call")
    write_text(path.parent / ".joined.toolong12" / "a", "the user's")
    seen = []

    def write(folder, text):
        for name in ("a", "mark"):
            write_text(folder / name, text)
        seen.append(_names(path))

    for text in ("first", "second"):
        write_into(path, ("a", "mark"), lambda folder, text=text: write(folder, text))
        assert {(path / name).read_text() for name in ("a", "mark")} == {text}
    with pytest.raises(OutputError):  # the mark is of no file that is left
        write_into(path, ("b", "mark"), lambda folder: write(folder, "third"))
    assert seen == [["notes.txt"], *[["a", "mark", "notes.txt"]] * 2]
    assert _names(path) == ["a", "notes.txt"]
    assert _names(path.parent) == [".joined.toolong12", "joined"]


def test_a_folder_in_a_place_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="--out"):
        write_folder(tmp_path / "file" / "store", lambda _folder: None)


def test_remove_takes_files_folders_and_nothing(tmp_path):
    write_text(tmp_path / "folder" / "a", "")
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("link", "b", "nothing"):
        remove(tmp_path / name)
    assert _names(tmp_path) == ["folder"]
    remove(tmp_path / "folder")
    assert _names(tmp_path) == []

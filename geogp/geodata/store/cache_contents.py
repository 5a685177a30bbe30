"""What is in the cache: listed, checked byte by byte, deleted."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from geogp.errors import DataError, OutputError
from geogp.files import read_json, sha256_of
from geogp.geodata.store.cache import (
    MOST_NOTE_BYTES,
    Note,
    agrees,
    children,
    downloads_folder,
    files_below,
    lock_of,
    our_folders,
    read_note,
    tiles_folder,
)
from geogp.geodata.store.cache import WHOLE as OF_ALL

WHOLE, DAMAGED, UNFINISHED = "whole", "damaged", "unfinished"

DEAD_S = 600
"""A download that has not written for so long has ended: one waits a minute for a byte."""

_LEFT = re.compile(r"tmp[a-z0-9_]{8}|\..+\.[A-Za-z0-9_]{6,}")
"""Names of files that a download writes before they have theirs."""


@dataclass(frozen=True)
class Item:
    """Something in the cache.

    Attributes
    ----------
    path, size
        Its file and the bytes of it.
    kind
        ``region`` or ``world`` (tiles), ``file`` (downloaded whole), ``none`` (left by a process
        that was killed: never read, but for parts of a download, which the next one goes on from).
    state
        ``whole``, ``damaged`` (does not agree with its note, or the note not with itself: never
        read, fetched again), ``unfinished``; None where nothing was checked.
    source, date, etag
        Where and when it is from.
    rows, bytes_read, bytes_stored
        Of tiles: rows held, bytes that came for them, and size of the file at the source.
    """

    path: Path
    size: int
    kind: str
    state: str | None = None
    source: str | None = None
    date: str | None = None
    etag: str | None = None
    rows: int | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None

    def described(self) -> dict[str, str | int | None]:
        """Return it for JSON."""
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True)
class Cleared:
    """What was deleted.

    Attributes
    ----------
    files, size
        How many, notes left out, and their bytes.
    busy
        Files that stay, as another process is fetching them.
    """

    files: int
    size: int
    busy: int


def cache_items(*, check: bool = False) -> list[Item]:
    """List the cache; with `check`, compare every file with its note, byte by byte.

    What does not bear a name of geogp's, in a folder of geogp's, is no part of the cache; what
    another process deletes meanwhile is left out.
    """
    items = []
    for path in _tile_files():
        with suppress(FileNotFoundError):
            items.append(_tiles_item(path, check=check))
    for path in _download_files():
        with suppress(FileNotFoundError):
            items.append(_download_item(path, check=check))
    return items


def clear_cache() -> Cleared:
    """Delete what geogp put into the cache, and nothing else.

    Entries of tiles are deleted under their lock; those that another process is fetching stay, and
    so do locks and folders, in which it may be about to write.

    Raises
    ------
    OutputError
        A file cannot be deleted.
    """
    deleted, busy = [], 0
    try:
        for item in cache_items():
            if _delete(item):
                deleted.append(item)
            else:
                busy += 1
    except OSError as error:
        raise OutputError(f"cannot clear the cache: {error}.") from error
    return Cleared(len(deleted), sum(item.size for item in deleted), busy)


def delete_download(path: Path) -> None:
    """Delete a file that was downloaded whole, and its note."""
    _note_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _delete(item: Item) -> bool:
    """Delete an item with its note; False where it is being fetched."""
    path = item.path
    lock = _lock_of(path)
    if lock is None:
        if _LEFT.fullmatch(path.name):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime < DEAD_S:
                    return False
        delete_download(path)
        return True
    with _held(lock) as free:
        if free:
            if path.suffix == ".parquet":
                path.with_suffix(".json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            if lock_of(path) is None:  # in a folder that was left
                with suppress(OSError):  # not the last
                    path.parent.rmdir()
        return free


@contextmanager
def _held(place: Path) -> Iterator[bool]:
    """Hold a lock, if nobody else does; say whether it is held."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _lock_of(path: Path) -> Path | None:
    """Return the lock of a file of tiles, or of one in a folder that was left of it."""
    for place in (path, *path.parents):
        if place.parent.parent == tiles_folder():
            return lock_of(place)
    return None


def _tile_files() -> list[Path]:
    """Return the files of entries, and what was left of them, without the notes of files."""
    found = []
    for folder in our_folders(tiles_folder()):
        for place in children(folder):
            if lock_of(place) is None:
                continue
            if place.is_dir():
                found += files_below(place)
            elif place.suffix != ".json" or not place.with_suffix(".parquet").is_file():
                found.append(place)
    return found


def _tiles_item(path: Path, *, check: bool) -> Item:
    note_path = path.with_suffix(".json")
    note = read_note(note_path)
    if path.suffix != ".parquet" or not note_path.exists():
        return Item(path, path.stat().st_size, "none", UNFINISHED)
    if note is None:
        kind = "world" if path.stem.endswith(OF_ALL) else "region"
        return Item(path, path.stat().st_size, kind, DAMAGED)
    return _entry(path, note, check=check)


def _download_files() -> list[Path]:
    """Return files with a note, notes without a file, and what was left unfinished."""
    found = []
    for folder in our_folders(downloads_folder()):
        for path in children(folder):
            if path.suffix == ".json" and path.with_suffix("").is_file():
                continue
            alone = path.suffix == ".json" and _download_note(path) is not None
            noted = alone or _note_of(path).is_file()
            if path.is_file() and (noted or _LEFT.fullmatch(path.name)):
                found.append(path)
    return found


def _download_item(path: Path, *, check: bool) -> Item:
    size, note = path.stat().st_size, _note_of(path)
    if not note.is_file():
        return Item(path, size, "none", UNFINISHED)
    noted = _download_note(note)
    if noted is None:
        return Item(path, size, "file", DAMAGED)
    good = not check or sha256_of(path) == noted["sha256"]
    state = (WHOLE if good else DAMAGED) if check else None
    return Item(path, size, "file", state, noted.get("source"), noted.get("date"))


def _note_of(path: Path) -> Path:
    """Return where the note of a downloaded file stands."""
    return path.with_name(f"{path.name}.json")


def _entry(path: Path, note: Note, *, check: bool) -> Item:
    state = _state(path, note) if check else None
    return Item(
        path,
        path.stat().st_size,
        "world" if note.ranges is None else "region",
        state,
        note.source,
        note.date,
        note.etag,
        note.rows,
        note.bytes_read,
        note.bytes_stored,
    )


def _state(path: Path, note: Note) -> str:
    """Compare an entry with its note; where they differ, again while nobody writes it."""
    if agrees(path, note):
        return WHOLE
    lock = lock_of(path)
    assert lock is not None
    try:
        with _held(lock) as free:
            if not free:
                return UNFINISHED
            path.stat()  # deleted meanwhile?
            again = read_note(path.with_suffix(".json"))
            return WHOLE if again is not None and agrees(path, again) else DAMAGED
    except PermissionError:  # a cache that can only be read has no locks
        return DAMAGED


def _download_note(path: Path) -> dict[str, str] | None:
    try:
        content = read_json(path, MOST_NOTE_BYTES)
    except DataError:
        return None
    if not isinstance(content, dict):
        return None
    if not all(isinstance(content.get(key), str) for key in ("source", "date", "sha256")):
        return None
    return content

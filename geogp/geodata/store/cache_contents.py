"""Listing, checking and clearing of the cache."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from geogp.errors import OutputError
from geogp.geodata.store import cache

WHOLE, DAMAGED, UNFINISHED = "whole", "damaged", "unfinished"

FILE, LEFT = "file", "none"

_FOLDER = re.compile(r".+-[0-9a-f]{8}")  # form of the names of `readable_folder`


@dataclass(frozen=True)
class Item:
    """One file in the cache: a data file, a note without a data file, or an unfinished file.

    `kind` is ``region`` or ``world`` for tiles, ``file`` for a file that was downloaded as a whole,
    and ``none`` for a file that a killed process left. `state` is ``whole``, ``unfinished`` or
    ``damaged``, or None without a check. A damaged file does not match its note, or its note was
    changed.
    """

    path: Path
    size: int
    kind: str
    state: str | None = None
    note: cache.Note | None = None

    def described(self) -> dict[str, str | int | None]:
        """Return the item for JSON; only tiles have an ETag, rows and byte counts."""
        keys = ("source", "date", "etag", "rows", "bytes_read", "bytes_stored")
        known = keys[:2] if self.kind == FILE else keys
        told = {key: getattr(self.note, key, None) if key in known else None for key in keys}
        item = {"path": str(self.path), "kind": self.kind, "state": self.state}
        return {**item, **told, "size": self.size}


@dataclass(frozen=True)
class ClearedCache:
    """The number of deleted files, not counting notes, and their size in bytes.

    `busy` is the number of files that are kept because another process is downloading them.
    """

    files: int
    size: int
    busy: int


def cache_items(*, check: bool = False) -> list[Item]:
    """Return the items of the cache; if `check` is true, compare each file with its note.

    The comparison reads all bytes. Files and folders with names that geogp never creates are not
    part of the cache. Files that another process deletes during the listing are omitted.
    """
    items = []
    for path in _files():
        with suppress(FileNotFoundError):
            items.append(_item(path, check=check))
    return items


def clear_cache() -> ClearedCache:
    """Delete the files that geogp wrote into the cache, and no other files.

    Each file is locked before the deletion. Files that another process is downloading are kept.
    Lock files and folders are kept, because another process may need them. Raises OutputError if a
    deletion fails.
    """
    deleted, busy = [], 0
    try:
        for item in cache_items():
            with _held(item.path) as free:
                if not free:
                    busy += 1
                    continue
                if item.kind != LEFT:
                    cache.note_of(item.path).unlink(missing_ok=True)
                item.path.unlink(missing_ok=True)
                deleted.append(item)
    except OSError as error:
        raise OutputError(f"cannot clear the cache: {error}.") from error
    return ClearedCache(len(deleted), sum(item.size for item in deleted), busy)


def _files() -> list[Path]:
    """Return the paths of data files, of notes without a data file, and of unfinished files."""
    return [
        path
        for top in (cache.tiles_folder(), cache.downloads_folder())
        for folder in cache.children(top)
        for path in (cache.children(folder) if _FOLDER.fullmatch(folder.name) else ())
        if path.is_file() and not _is_note(path) and cache.own_name(path) is not None
    ]


def _is_note(path: Path) -> bool:
    """Return whether a file is the note of an existing data file."""
    other = path.with_suffix(".parquet" if cache.is_tiles(path) else "")
    return path.suffix == ".json" and other != path and other.is_file()


def _item(path: Path, *, check: bool) -> Item:
    note_path, size = cache.note_of(path), path.stat().st_size
    tiles = cache.is_tiles(path)
    if not note_path.exists() or (tiles and path.suffix != ".parquet"):
        return Item(path, size, LEFT, UNFINISHED)
    kind = FILE if not tiles else cache.OF_ALL if path.stem.endswith(cache.OF_ALL) else "region"
    note = cache.read_note(note_path)
    if note is None:
        return Item(path, size, kind, DAMAGED)
    return Item(path, size, kind, _state(path, note) if check else None, note)


def _state(path: Path, note: cache.Note) -> str:
    """Return the state of a file; if it does not match its note, lock it and compare again."""
    if cache.agrees(path, note):
        return WHOLE
    try:
        with _held(path) as free:
            if not free:
                return UNFINISHED
            path.stat()  # raises if the file was deleted
            again = cache.read_note(cache.note_of(path))
            return WHOLE if again is not None and cache.agrees(path, again) else DAMAGED
    except FileNotFoundError:
        raise
    except OSError:  # a read-only cache has no locks
        return DAMAGED


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Try to lock a file for a ``with`` block; yield whether the lock was free."""
    lock = cache.lock_of(path)
    with suppress(Timeout):
        lock.acquire(timeout=0)
    try:
        yield lock.is_locked
    finally:
        lock.release()

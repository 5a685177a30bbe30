"""The cache: rows of remote tile files, and small files that were downloaded as a whole.

An entry is a data file with a note, a JSON file next to the data file. The note contains the size
and the SHA-256 of the data file, and a hash of the note itself. The note is written last, so a data
file that does not match its note is not an entry. The folder may also contain files of killed
processes. geogp does not read such files, except partial copies, from which a stopped download
continues; see `remote_tiles.py`.
"""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from filelock import FileLock, Timeout

from geogp.errors import DataError, OutputError
from geogp.files import output_error, read_text, sha256_of, writing
from geogp.geodata.store.cache_place import cache_folder
from geogp.geodata.store.remote import CURE, RemoteFile, Transfer, Version
from geogp.geodata.tiles.tile_files import Ranges

MAX_NOTE_BYTES = 1 << 20

LOCKS = ".locks"
"""Folder of lock files, which are never deleted, because a process may wait for a lock."""

OF_ALL = "world"  # part of the file name of an entry with the rows of all regions

_TILES = re.compile(r"(.+)-(?:[0-9a-f]{12}|world)\.(?:parquet|json|parts|ranges)")
_LEFT = re.compile(r"\.(.+)\.[a-z0-9_]{8}")
"""Pattern of the names that `writing` gives to unfinished files."""

WHOLE, DAMAGED, UNFINISHED = "whole", "damaged", "unfinished"

FILE, LEFT = "file", "none"

_FOLDER = re.compile(r".+-[0-9a-f]{8}")  # form of the names of `readable_folder`


def tiles_folder() -> Path:
    """Return the cache's folder for rows of tile files."""
    return cache_folder() / "tiles"


def downloads_folder() -> Path:
    """Return the cache's folder for files that were downloaded as a whole."""
    return cache_folder() / "downloads"


def readable_folder(address: str) -> str:
    """Return a folder name for an address: a readable part, and a hash to make it unique."""
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', address)[:80]}-{digest}"


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a cache entry, stored next to the data file.

    `source` is the address of the remote file; its `etag`, `last_modified` and size
    (`bytes_stored`) come from the server. `date` is the time of the download in UTC. `sha256` and
    `size` describe the data file, and `note_sha256` is the hash of all other values of the note.
    The other fields are only for tiles. `bytes_read` is the number of downloaded bytes, including
    failed requests, and `simulated` is true if the source declares its tiles as simulated.
    """

    source: str
    etag: str | None
    last_modified: str | None
    bytes_stored: int
    date: str
    sha256: str
    size: int
    rows: int = 0
    rows_in_source: int = 0
    bytes_read: int = 0
    groups_read: int = 0
    groups_in_source: int = 0
    ranges: list[list[int]] | None = None
    columns: list[str] = []
    simulated: bool = False
    format: Literal["geogp-tiles-2"] = "geogp-tiles-2"
    note_sha256: str = ""

    @classmethod
    def of(cls, remote: RemoteFile, sha256: str, size: int, **details: Any) -> "Note":
        """Return the note of a data file that was just made from a remote file."""
        date = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
        stored, etag, changed = vars(remote.version).values()
        return cls(remote.address, etag, changed, stored, date, sha256, size, **details)

    @property
    def version(self) -> Version:
        """The version of the remote file at the time of the download."""
        return Version(self.bytes_stored, self.etag, self.last_modified)


def note_text(note: Note) -> str:
    """Return a note as JSON text, with the hash of its other values (`note_sha256`)."""
    content = msgspec.structs.asdict(note)
    del content["note_sha256"]
    content["note_sha256"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps(content, indent=1) + "\n"


def read_note(path: Path) -> Note | None:
    """Read a note; return None if the note is missing or was changed after geogp wrote it."""
    try:
        text = read_text(path, MAX_NOTE_BYTES)
        note = msgspec.json.decode(text, type=Note)
    except (DataError, msgspec.MsgspecError, RecursionError):
        return None
    return note if text == note_text(note) else None


@dataclass(frozen=True)
class CacheEntry:
    """The place in the cache for a remote file, or for some rows of a remote tile file.

    `ranges` are quadkey codes of the rows; None means all rows, or a file without tiles.
    """

    path: Path
    source: str
    ranges: list[list[int]] | None = None

    @classmethod
    def of(cls, url: str, name: str, ranges: Ranges | None) -> "CacheEntry":
        """Return the cache entry for some rows of a tile file below a web address."""
        listed = None if ranges is None else ranges.tolist()
        selection = (
            OF_ALL if listed is None else hashlib.sha256(repr(listed).encode()).hexdigest()[:12]
        )
        file = f"{Path(name).stem}-{selection}.parquet"
        source = f"{url.rstrip('/')}/{name}"
        return cls(tiles_folder() / readable_folder(url) / file, source, listed)

    @classmethod
    def of_file(cls, url: str, name: str) -> "CacheEntry":
        """Return the cache entry for a whole file below a web address."""
        path = downloads_folder() / readable_folder(url) / name.replace("/", "__")
        return cls(path, f"{url.rstrip('/')}/{name}")

    @property
    def note_path(self) -> Path:
        """Path of the entry's note."""
        return note_of(self.path)

    @property
    def copy_path(self) -> Path:
        """Path of the partial copy of the remote file during a download."""
        return self.path.with_suffix(".parts")

    def read(self, *, damaged: bool = False) -> Note | None:
        """Return the note of a complete and unchanged entry, otherwise None.

        If `damaged` is true, the data file must exist, but may differ from its note.
        """
        note = read_note(self.note_path)
        if note is None or (note.source, note.ranges) != (self.source, self.ranges):
            return None
        return note if agrees(self.path, note) or (damaged and self.path.is_file()) else None

    def sweep(self) -> None:
        """Delete unfinished files that a killed process left for this entry."""
        starts = tuple(f".{own.name}." for own in (self.path, self.note_path, self.copy_path))
        for path in children(self.path.parent):
            if path.name.startswith(starts):
                path.unlink(missing_ok=True)

    def keep(self, note: Note) -> None:
        """Write the note, which completes the entry; raise OutputError if the writing fails."""
        with writing(self.note_path, CURE) as stream:
            stream.write(note_text(note).encode())

    @contextmanager
    def locked(self, transfer: Transfer) -> Iterator[None]:
        """Hold a lock in a ``with`` block, so that only one process downloads the remote file.

        The system releases the lock when the process ends, even if the process is killed. Raises
        OutputError if the folder cannot be written.
        """
        try:
            lock = lock_of(self.path)
            while not lock.is_locked:
                transfer.check()
                with suppress(Timeout):
                    lock.acquire(timeout=0.5, poll_interval=0.05)
        except OSError as error:
            raise output_error(tiles_folder() / LOCKS, error, CURE) from error
        try:
            yield
        finally:
            lock.release()


def children(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, or an empty list if the folder does not exist."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_tiles(path: Path) -> bool:
    """Return whether a path is in the cache's folder for rows of tile files."""
    return path.parent.parent == tiles_folder()


def note_of(path: Path) -> Path:
    """Return a note's path: ``a.json`` for tiles ``a.parquet``, ``b.zip.json`` for ``b.zip``."""
    return path.with_suffix(".json") if is_tiles(path) else path.with_name(f"{path.name}.json")


def own_name(path: Path) -> str | None:
    """Return the name that determines a file's lock; None if geogp did not create the file.

    All entries of one remote tile file, and the unfinished files of these entries, share a lock.
    All files that are downloaded as a whole from one address also share a lock.
    """
    left = _LEFT.fullmatch(path.name)
    if is_tiles(path):
        match = _TILES.fullmatch(left[1] if left else path.name)
        return match[1] if match else None
    return "" if left or note_of(path).is_file() or read_note(path) is not None else None


def lock_of(path: Path) -> FileLock:
    """Return the lock of a file, not yet acquired; raise OSError if no lock file can be made."""
    name = f"{path.parent.name}/{own_name(path) or ''}"
    folder = tiles_folder() / LOCKS
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock")


def agrees(path: Path, note: Note) -> bool:
    """Return whether a file has the size and the SHA-256 in its note."""
    try:
        return path.stat().st_size == note.size and sha256_of(path) == note.sha256
    except OSError:
        return False


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
    note: Note | None = None

    def described(self) -> dict[str, str | int | None]:
        """Return the item for JSON; only tiles have an ETag, rows and byte counts."""
        keys = ("source", "date", "etag", "rows", "bytes_read", "bytes_stored")
        known = keys[:2] if self.kind == FILE else keys
        facts = {key: getattr(self.note, key, None) if key in known else None for key in keys}
        item = {"path": str(self.path), "kind": self.kind, "state": self.state}
        return {**item, **facts, "size": self.size}


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
                    note_of(item.path).unlink(missing_ok=True)
                item.path.unlink(missing_ok=True)
                deleted.append(item)
    except OSError as error:
        raise OutputError(f"cannot clear the cache: {error}.") from error
    return ClearedCache(len(deleted), sum(item.size for item in deleted), busy)


def _files() -> list[Path]:
    """Return the paths of data files, of notes without a data file, and of unfinished files."""
    return [
        path
        for top in (tiles_folder(), downloads_folder())
        for folder in children(top)
        for path in (children(folder) if _FOLDER.fullmatch(folder.name) else ())
        if path.is_file() and not _is_note(path) and own_name(path) is not None
    ]


def _is_note(path: Path) -> bool:
    """Return whether a file is the note of an existing data file."""
    other = path.with_suffix(".parquet" if is_tiles(path) else "")
    return path.suffix == ".json" and other != path and other.is_file()


def _item(path: Path, *, check: bool) -> Item:
    note_path, size = note_of(path), path.stat().st_size
    tiles = is_tiles(path)
    if not note_path.exists() or (tiles and path.suffix != ".parquet"):
        return Item(path, size, LEFT, UNFINISHED)
    kind = FILE if not tiles else OF_ALL if path.stem.endswith(OF_ALL) else "region"
    note = read_note(note_path)
    if note is None:
        return Item(path, size, kind, DAMAGED)
    return Item(path, size, kind, _state(path, note) if check else None, note)


def _state(path: Path, note: Note) -> str:
    """Return the state of a file; if it does not match its note, lock it and compare again."""
    if agrees(path, note):
        return WHOLE
    try:
        with _held(path) as free:
            if not free:
                return UNFINISHED
            path.stat()  # raises if the file was deleted
            again = read_note(note_of(path))
            return WHOLE if again is not None and agrees(path, again) else DAMAGED
    except FileNotFoundError:
        raise
    except OSError:  # a read-only cache has no locks
        return DAMAGED


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Try to lock a file for a ``with`` block; yield whether the lock was free."""
    lock = lock_of(path)
    with suppress(Timeout):
        lock.acquire(timeout=0)
    try:
        yield lock.is_locked
    finally:
        lock.release()

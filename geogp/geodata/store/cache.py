"""The cache of tiles: rows of remote files, each entry with a note of what it is.

An entry is a Parquet file with a JSON file of the same name beside it. It is an entry only while
both agree: the note is written last, and holds the size and the SHA-256 of the other, and a hash of
itself. Whatever else lies in the folder (what a killed process left) is not an entry and is never
read.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, get_args, get_type_hints

import numpy as np
import pooch
from filelock import FileLock, Timeout

from geogp.errors import DataError, OutputError
from geogp.files import parse_json, read_text, sha256_of, writing
from geogp.geodata.store.remote import Transfer, Version
from geogp.geodata.tiles.tile_files import Ranges

FORMAT = "geogp-tiles-2"

CURE = "set GEOGP_CACHE to another folder"
"""What to do where the cache cannot be written."""

MOST_NOTE_BYTES = 1 << 20

NOTE_DIGEST = "note_sha256"
"""Key of the hash of all else in a note."""

WHOLE = "world"
"""Stands in the name of an entry with the rows of all regions."""

LOCKS = ".locks"
"""Folder of the locks: empty files that stay, as one process may wait for what another deletes."""

_FOLDER = re.compile(r".+-[0-9a-f]{8}")
_FILE = re.compile(r"(.+)-(?:[0-9a-f]{12}|world)\.(?:parquet|json|parts)")
_LEFT = re.compile(rf"\.{_FILE.pattern}\..+")


def cache_folder() -> Path:
    """Return the cache: ``GEOGP_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("GEOGP_CACHE") or pooch.os_cache("geogp"))


def readable_folder(address: str) -> str:
    """Return a folder name for an address: what it reads like, and a digest that keeps it apart."""
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', address)[:80]}-{digest}"


def children(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing where there is none, or none any more."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder and in those below it; what vanishes meanwhile is left out."""
    found = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.is_file())


def our_folders(folder: Path) -> list[Path]:
    """Return the folders in one of the cache that bear names as `readable_folder` gives them."""
    return [one for one in children(folder) if _FOLDER.fullmatch(one.name) and one.is_dir()]


def lock_of(path: Path) -> Path | None:
    """Return the lock of a file in a folder of tiles; None of one that is not geogp's.

    All entries of one remote file, and what was left of them, have one lock.
    """
    found = _FILE.fullmatch(path.name) or _LEFT.fullmatch(path.name)
    if found is None:
        return None
    digest = hashlib.sha256(f"{path.parent.name}/{found[1]}".encode()).hexdigest()[:16]
    return tiles_folder() / LOCKS / f"{digest}.lock"


@dataclass(frozen=True)
class Note:
    """What an entry is.

    Attributes
    ----------
    source
        Address of the file it was made from.
    etag, last_modified, bytes_stored
        What the server said of that file; the last is its size.
    date
        When it was read, UTC.
    sha256, size
        Of the entry's Parquet file.
    rows, rows_in_source
        Rows of the entry, and of the file it was made from.
    bytes_read
        Bytes that came over the network for it, those of failed requests too.
    groups_read, groups_in_source
        Row groups.
    ranges
        Codes of the quadkeys it holds all rows of; None for those of the whole world.
    columns
        Its columns.
    simulated
        Whether the source says that its tiles are simulated.
    """

    source: str
    etag: str | None
    last_modified: str | None
    bytes_stored: int
    date: str
    sha256: str
    size: int
    rows: int
    rows_in_source: int
    bytes_read: int
    groups_read: int
    groups_in_source: int
    ranges: list[list[int]] | None
    columns: list[str]
    simulated: bool
    format: str = FORMAT

    @property
    def version(self) -> Version:
        """The version of the source's file."""
        return Version(self.bytes_stored, self.etag, self.last_modified)


@dataclass(frozen=True)
class CacheEntry:
    """A place in the cache for rows of one remote file.

    Attributes
    ----------
    path
        Its Parquet file.
    source
        Address of the remote file.
    ranges
        Codes of the quadkeys it holds; None for all.
    """

    path: Path
    source: str
    ranges: list[list[int]] | None

    @classmethod
    def of(cls, url: str, name: str, ranges: Ranges | None) -> "CacheEntry":
        """Return the entry of a file under a URL."""
        listed = None if ranges is None else ranges.tolist()
        part = WHOLE if listed is None else hashlib.sha256(repr(listed).encode()).hexdigest()[:12]
        file = f"{Path(name).stem}-{part}.parquet"
        source = f"{url.rstrip('/')}/{name}"
        return cls(tiles_folder() / readable_folder(url) / file, source, listed)

    @property
    def note_path(self) -> Path:
        """Where its note stands."""
        return self.path.with_suffix(".json")

    @property
    def parts(self) -> Path:
        """Folder of what came before a download was stopped; see `partial_downloads.py`."""
        return self.path.with_suffix(".parts")

    def read(self) -> Note | None:
        """Return the note where there is an entry, whole and as it was written; else None."""
        note = read_note(self.note_path)
        if note is None or (note.source, note.ranges) != (self.source, self.ranges):
            return None
        return note if agrees(self.path, note) else None

    def clean(self) -> None:
        """Delete what is no whole entry: damaged files, and what a killed process left."""
        if self.read() is None:
            self.note_path.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        for left in self.leftovers():
            left.unlink(missing_ok=True)

    def leftovers(self) -> list[Path]:
        """Return unfinished files of this entry."""
        if not self.path.parent.is_dir():
            return []
        starts = (f".{self.path.name}.", f".{self.note_path.name}.")
        return [one for one in self.path.parent.iterdir() if one.name.startswith(starts)]

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Open the Parquet file beside its place; see `writing`."""
        with writing(self.path, CURE) as stream:
            yield stream

    def keep(self, note: Note) -> None:
        """Write the note, which makes the Parquet file an entry.

        Raises
        ------
        OutputError
            The disk is full, or the folder cannot be written.
        """
        with writing(self.note_path, CURE) as stream:
            stream.write(note_text(note).encode())

    @contextmanager
    def locked(self, transfer: Transfer) -> Iterator[None]:
        """Hold the lock of the remote file: of two processes one fetches, the other waits.

        The system frees the lock of a process that ends, however it ends.

        Raises
        ------
        OutputError
            The folder cannot be written.
        """
        place = lock_of(self.path)
        assert place is not None
        with _locked(place, transfer):
            yield


@contextmanager
def source_lock(source: str, transfer: Transfer) -> Iterator[None]:
    """Hold the lock of the file at an address; see `CacheEntry.locked`."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    with _locked(tiles_folder() / LOCKS / f"{digest}.lock", transfer):
        yield


@contextmanager
def _locked(place: Path, transfer: Transfer) -> Iterator[None]:
    """Hold a lock that other processes may hold, too."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place)
        while not lock.is_locked:
            transfer.check()
            try:
                lock.acquire(timeout=0.5, poll_interval=0.05)
            except Timeout:
                continue
    except OSError as error:
        raise OutputError(
            f"cannot write {place}: {error.strerror or error}. S{CURE[1:]}."
        ) from error
    try:
        yield
    finally:
        lock.release()


def tiles_folder() -> Path:
    """Return the folder of the entries of tiles."""
    return cache_folder() / "tiles"


def downloads_folder() -> Path:
    """Return the folder of files that were downloaded whole."""
    return cache_folder() / "downloads"


def agrees(path: Path, note: Note) -> bool:
    """Tell whether a file is the one that a note is of, byte by byte."""
    try:
        return path.stat().st_size == note.size and sha256_of(path) == note.sha256
    except OSError:
        return False


def read_note(path: Path) -> Note | None:
    """Return a note, as it was written; None where there is none, or another byte in it."""
    try:
        text = read_text(path, MOST_NOTE_BYTES)
        content = parse_json(text, str(path))
    except DataError:
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    content.pop(NOTE_DIGEST, None)
    if set(content) != {one.name for one in fields(Note)} or not _typed(content):
        return None
    note = Note(**content)
    return note if text == note_text(note) else None


def note_text(note: Note) -> str:
    """Return the file of a note, with the hash of all else in it."""
    content = asdict(note)
    content[NOTE_DIGEST] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps(content, indent=1) + "\n"


def overlap(codes: "np.ndarray[Any, np.dtype[np.uint64]]", ranges: Ranges) -> Any:
    """Tell which codes lie in sorted, disjoint ranges."""
    signed = codes.astype(np.int64)
    place = np.searchsorted(ranges[:, 0], signed, side="right") - 1
    return (place >= 0) & (signed <= ranges[np.maximum(place, 0), 1])


def _typed(content: dict[str, Any]) -> bool:
    """Tell whether the values of a note have the types of its fields."""
    for name, kind in get_type_hints(Note).items():
        value, choices = content[name], get_args(kind) or (kind,)
        if name == "ranges":
            if value is not None and not isinstance(value, list):
                return False
        elif name == "columns":
            if not isinstance(value, list):
                return False
        elif type(value) not in choices:
            return False
    return True

"""What is in the cache: listed, checked byte by byte, deleted."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from geogp.errors import OutputError
from geogp.geodata.store.cache import (
    OF_ALL,
    Note,
    agrees,
    children,
    downloads_folder,
    is_tiles,
    lock_of,
    note_of,
    own_folders,
    own_name,
    read_note,
    tiles_folder,
)

WHOLE, DAMAGED, UNFINISHED = "whole", "damaged", "unfinished"

FILE, LEFT = "file", "none"


@dataclass(frozen=True)
class Item:
    """Something in the cache.

    Attributes
    ----------
    kind
        ``region`` or ``world`` (tiles), ``file`` (downloaded whole), ``none`` (left by a process
        that was killed: never read, but for copies, which the next download goes on from).
    state
        ``whole``, ``damaged`` (does not agree with its note, or the note not with itself: never
        read, fetched again), ``unfinished``; None where nothing was checked.
    """

    path: Path
    size: int
    kind: str
    state: str | None = None
    note: Note | None = None

    def described(self) -> dict[str, str | int | None]:
        """Return it for JSON; only tiles have rows and bytes."""
        told: dict[str, str | int | None] = dict.fromkeys(
            ("source", "date", "etag", "rows", "bytes_read", "bytes_stored")
        )
        known = list(told)[: 2 if self.kind == FILE else None]
        told |= {key: getattr(self.note, key) for key in known if self.note is not None}
        told |= {"size": self.size}
        return {"path": str(self.path), "kind": self.kind, "state": self.state, **told}


@dataclass(frozen=True)
class ClearedCache:
    """What was deleted: files, notes left out, and their bytes; and what others are fetching."""

    files: int
    size: int
    busy: int


def cache_items(*, check: bool = False) -> list[Item]:
    """List the cache; with `check`, compare every file with its note, byte by byte.

    What does not bear a name of geogp's, in a folder of geogp's, is no part of the cache; what
    another process deletes meanwhile is left out.
    """
    items = []
    for path in _files():
        with suppress(FileNotFoundError):
            items.append(_item(path, check=check))
    return items


def clear_cache() -> ClearedCache:
    """Delete what geogp put into the cache, and nothing else.

    Each file is deleted under its lock; those that another process is fetching stay, and so do
    locks and folders, in which it may be about to write.

    Raises
    ------
    OutputError
        A file cannot be deleted.
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
    """Return the files of entries, notes without a file, and what was left of either."""
    return [
        path
        for top in (tiles_folder(), downloads_folder())
        for folder in own_folders(top)
        for path in children(folder)
        if path.is_file() and not _is_note(path) and own_name(path) is not None
    ]


def _is_note(path: Path) -> bool:
    """Tell whether a file is the note of another that is there."""
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
    """Compare an entry with its note; if they differ, compare again under the lock."""
    if agrees(path, note):
        return WHOLE
    try:
        with _held(path) as free:
            if not free:
                return UNFINISHED
            path.stat()  # deleted meanwhile?
            again = read_note(note_of(path))
            return WHOLE if again is not None and agrees(path, again) else DAMAGED
    except FileNotFoundError:
        raise
    except OSError:  # a cache that can only be read has no locks
        return DAMAGED


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Lock a file if no other process has locked it; yield whether it is locked."""
    place = lock_of(path, own_name(path) or "")
    place.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(place).acquire(timeout=0))
        except Timeout:
            yield False
        else:
            yield True

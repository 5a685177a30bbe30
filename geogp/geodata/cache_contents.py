"""What is in the cache: listed, checked byte by byte, deleted."""

from dataclasses import dataclass
from pathlib import Path

from geogp.errors import DataError, OutputError
from geogp.files import read_json, sha256_of
from geogp.geodata.cache import (
    MOST_NOTE_BYTES,
    Note,
    agrees,
    downloads_folder,
    read_note,
    tiles_folder,
)

WHOLE, DAMAGED, UNFINISHED = "whole", "damaged", "unfinished"

_LOCKS = ".locks"


@dataclass(frozen=True)
class Item:
    """Something in the cache.

    Attributes
    ----------
    path, size
        Its file and the bytes of it.
    kind
        ``region`` or ``world`` (tiles), ``file`` (downloaded whole), ``none`` (left by a process
        that was killed, and never read).
    state
        ``whole``, ``damaged`` (does not agree with its note: never read, fetched again),
        ``unfinished``; None where nothing was checked.
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


def cache_items(*, check: bool = False) -> list[Item]:
    """List the cache; with `check`, compare every file with its note, byte by byte."""
    items = []
    for path in _files(tiles_folder()):
        note = read_note(path.with_suffix(".json"))
        if path.suffix == ".json" and path.with_suffix(".parquet").is_file():
            if note is not None:
                continue
        elif path.suffix == ".parquet" and note is not None and not path.name.startswith("."):
            items.append(_entry(path, note, check=check))
            continue
        items.append(Item(path, path.stat().st_size, "none", UNFINISHED))
    for path in _files(downloads_folder()):
        noted = _download_note(path.with_name(f"{path.name}.json"))
        if path.suffix == ".json" and _download_note(path) and path.with_suffix("").is_file():
            continue
        if noted is None:
            items.append(Item(path, path.stat().st_size, "none", UNFINISHED))
            continue
        good = not check or sha256_of(path) == noted["sha256"]
        state = (WHOLE if good else DAMAGED) if check else None
        size = path.stat().st_size
        items.append(Item(path, size, "file", state, noted.get("source"), noted.get("date")))
    return items


def clear_cache() -> tuple[int, int]:
    """Delete what geogp put into the cache, and nothing else.

    Returns
    -------
    (files, bytes)
        Deleted.

    Raises
    ------
    OutputError
        A file cannot be deleted.
    """
    items = cache_items()
    try:
        for item in items:
            notes = (item.path.with_suffix(".json"), item.path.with_name(f"{item.path.name}.json"))
            for path in (*(note for note in notes if item.kind != "none"), item.path):
                path.unlink(missing_ok=True)
        for lock in _files(tiles_folder() / _LOCKS):
            lock.unlink(missing_ok=True)
        for folder in (tiles_folder(), downloads_folder()):
            for path in sorted(folder.rglob("*"), reverse=True) if folder.is_dir() else []:
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
    except OSError as error:
        raise OutputError(f"cannot clear the cache: {error}.") from error
    return len(items), sum(item.size for item in items)


def _entry(path: Path, note: Note, *, check: bool) -> Item:
    state = (WHOLE if agrees(path, note) else DAMAGED) if check else None
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


def _files(folder: Path) -> list[Path]:
    """Return the files under a folder of the cache, locks left out unless they are asked for."""
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (folder.name == _LOCKS or _LOCKS not in path.parts)
    ]


def _download_note(path: Path) -> dict[str, str] | None:
    try:
        content = read_json(path, MOST_NOTE_BYTES)
    except DataError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("sha256"), str):
        return None
    return content

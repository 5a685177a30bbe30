"""Places that hold files: a folder, or a URL whose files are kept in the cache."""

import hashlib
import os
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import numpy as np

from geogp.errors import DataError, NetworkError, RefusedError, RequestError, UnreachableError
from geogp.files import writing
from geogp.geodata.store.cache import CacheEntry, Note
from geogp.geodata.store.remote import (
    CURE,
    PATIENCE,
    SHORT_PATIENCE,
    Patience,
    RemoteFile,
    Transfer,
)
from geogp.geodata.store.remote_tiles import fetch_entry
from geogp.geodata.tiles.tile_files import SIMULATION_FILE, Ranges

MAX_BYTES = 1 << 30
"""A file downloaded whole that is larger is refused."""


@dataclass(frozen=True)
class LocalFile:
    """A Parquet file on this machine that holds all rows of some quadkeys.

    Attributes
    ----------
    simulated
        Whether the source declares its tiles as simulated.
    note
        Of an entry of the cache: what it was made from. None for a file read in place, which is
        hashed as it is read.
    fresh, checked, changed
        Whether it was read just now; whether the source answered if the file is still the same
        (always true for a file read in place); and whether the source has another file now.
    """

    path: Path
    simulated: bool
    note: Note | None = None
    fresh: bool = False
    checked: bool = True
    changed: bool = False


@dataclass(frozen=True)
class FoundFile:
    """A file that a place has: its name there, and where it is on this machine.

    `certain` tells whether the place answered for all names before it.
    """

    name: str
    path: Path
    certain: bool = True


@dataclass(frozen=True)
class Folder:
    """A folder on this machine."""

    path: Path

    @property
    def where(self) -> str:
        """The folder's path."""
        return str(self.path)

    def has(self, name: str) -> bool:
        """Tell whether the folder holds a file of that name."""
        return (self.path / relative_name(name)).is_file()

    def find(self, names: Sequence[str], *, ask: bool = True) -> FoundFile | None:
        """Return the first of several files that the folder holds; None where it holds none."""
        del ask
        return next((FoundFile(name, self.path / name) for name in names if self.has(name)), None)

    def local_file(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> LocalFile | None:
        """Return the file itself, whatever the quadkeys."""
        del ranges, refresh
        transfer.check()
        if not self.has(name):
            return None
        path = self.path / name
        return LocalFile(path, self.has(SIMULATION_FILE))


@dataclass(frozen=True)
class Web:
    """A URL under which files stand; what was fetched once is taken from the cache.

    Small files are downloaded whole; of files of tiles, the rows of a region (`local_file`).
    """

    url: str
    patience: Patience = PATIENCE

    @property
    def where(self) -> str:
        """The URL."""
        return self.url

    def find(self, names: Sequence[str], *, ask: bool = True) -> FoundFile | None:
        """Return the first of several files, downloaded where it is not in the cache.

        Without network, or where `ask` is false, the first in the cache, if any.

        Raises
        ------
        NetworkError, UnreachableError
            The server refuses, or fails again and again; nothing answers, and none is in the cache.
        """
        silent: UnreachableError | None = None
        certain = ask
        for name in names:
            try:
                if self._entry(name).note_path.exists() or (certain and self._is_there(name)):
                    break
            except UnreachableError as error:
                silent, certain = error, False
        else:
            if silent is not None:
                raise silent
            return None
        return FoundFile(name, self.fetch(name), certain)

    def fetch(self, name: str) -> Path:
        """Return the file from the cache, where it is downloaded first if it must be.

        No hash of it is published that it could be compared with. So that of the first download is
        noted beside it, and every later use is compared with the note.

        Raises
        ------
        NetworkError, OutputError
            The download failed; or the copy is damaged, and the address now has another file than
            the note describes; the cache cannot be written.
        """
        entry = self._entry(name)
        if entry.read() is not None:  # needs no lock, which a cache that can only be read has not
            return entry.path
        with entry.locked(Transfer()):
            if entry.read() is None:
                entry.sweep()
                self._download(entry, entry.read(damaged=True))
        return entry.path

    def _download(self, entry: CacheEntry, known: Note | None) -> None:
        """Download a file whole, into an entry of which there may be a note."""
        with (
            closing(RemoteFile(entry.source, self.patience)) as remote,
            writing(entry.path, CURE) as stream,
        ):
            if not remote.begin(lambda: remote.copy(stream, MAX_BYTES)):
                raise NetworkError(f"could not read {entry.source}: there is no such file (404).")
            _require_form(entry.source, stream)
            stream.seek(0)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
            note = Note.of(remote, digest, stream.tell())
            if known is not None and digest != known.sha256:
                raise NetworkError(
                    f"{entry.source} is no longer what it was when it was first downloaded "
                    f"({entry.note_path}), and the copy next to this note is damaged. Delete "
                    f"both to download the new file; runs that were made from the old file "
                    f"cannot be continued then."
                )
        if known is None:
            entry.keep(note)

    def local_file(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> LocalFile | None:
        """Return the cached rows of some quadkeys of a file, read from the source if they must be.

        `ranges` are first and last codes of quadkeys, sorted and disjoint, (n, 2). `transfer`
        counts bytes, and can stop the download. `refresh` reads again what changed at the source.

        Raises
        ------
        NetworkError, DataError, OutputError
            As `fetch_entry` says; UnreachableError if nothing answers and nothing is cached.
        """
        ranges = np.asarray(ranges, np.int64)
        entries = CacheEntry.of(self.url, name, ranges), CacheEntry.of(self.url, name, None)
        held = self._cached(entries, transfer)
        if held is not None and not (refresh and held.changed):
            return held
        with entries[0].locked(transfer):
            again = self._cached(entries, transfer)  # another process may have fetched meanwhile
            if again is not None and not (refresh and again.changed):
                return again
            for entry in entries:
                entry.sweep()
            made = fetch_entry(*entries, self._simulated, transfer, self.patience)
        if made is None:
            return again
        entry, note = made
        return LocalFile(entry.path, note.simulated, note, fresh=True)

    def _cached(
        self, entries: tuple[CacheEntry, CacheEntry], transfer: Transfer
    ) -> LocalFile | None:
        """Return the first entry that is whole, and whether its source changed."""
        for entry in entries:
            note = entry.read()
            if note is None:
                continue
            held = LocalFile(entry.path, note.simulated, note)
            if transfer.unreachable:
                return replace(held, checked=False)
            patience = replace(
                self.patience, attempts=SHORT_PATIENCE.attempts, timeout_s=SHORT_PATIENCE.timeout_s
            )
            with closing(RemoteFile(entry.source, patience, transfer)) as remote:
                try:
                    there = remote.open()
                except NetworkError as error:
                    transfer.unreachable |= isinstance(error, UnreachableError)
                    return replace(held, checked=False)
                return replace(held, changed=not there or remote.version.differs(note.version))
        return None

    def _is_there(self, name: str) -> bool:
        with closing(RemoteFile(self._entry(name).source, self.patience)) as remote:
            return remote.open()

    def _simulated(self) -> bool:
        """Tell whether the source declares its tiles as simulated."""
        try:
            return self._is_there(SIMULATION_FILE)
        except RefusedError:  # as a bucket that may not be listed says of absent files
            return False

    def _entry(self, name: str) -> CacheEntry:
        return CacheEntry.of_file(self.url, relative_name(name))


def _require_form(address: str, stream: BinaryIO) -> None:
    """Refuse what is not of the form that the address promises, such as a page of a login."""
    form = address.rpartition(".")[2].lower()
    stream.seek(0)
    wrong = form == "zip" and not zipfile.is_zipfile(stream)
    if wrong or (form == "parquet" and stream.read(4) != b"PAR1"):
        raise NetworkError(
            f"{address} answered with something other than a {form} file. Did a proxy or a login "
            f"page answer? Open the address in a browser, and try again."
        )


Source = Folder | Web
"""A place that holds files by relative names."""


def relative_name(name: str) -> str:
    """Return a name of a file below a place; refuse one that leads elsewhere.

    Names contain parts of data, such as the code of a state.

    Raises
    ------
    DataError
        The name is absolute, has an empty part, ``.`` or ``..``, or a sign no name should have.
    """
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or set(name) & set('\\?#%:*"<>|') or not name.isprintable():
        raise DataError(f"expected the name of a file below the source, found {name!r}.")
    return name


def open_source(where: str) -> Source:
    """Return the place a user named: a folder, an ``https://`` or an ``s3://`` address.

    A bucket is read anonymously over HTTPS: from Amazon's servers, or from those that
    ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` names.

    Raises
    ------
    DataError, RequestError
        There is no such folder; the address is none, or holds a name, a password or a query, which
        would be written into run.json.
    """
    if where.startswith(("http://", "https://")):
        return Web(_checked(where))
    if where.startswith("s3://"):
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        base = (
            f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://{bucket}.s3.amazonaws.com"
        )
        return Web(_checked(f"{base}/{prefix}".rstrip("/")))
    folder = Path(where).expanduser()
    try:
        found = folder.is_dir()
    except OSError:  # a name that is too long
        found = False
    if not found:
        raise DataError(
            f"no folder {folder}. Give a folder, or an address that starts with https:// or s3://."
        )
    return Folder(folder)


def _checked(address: str) -> str:
    """Return an address; refuse one that names of files cannot follow, or that holds a secret.

    What is wrong is not repeated: it may be a password.
    """
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise RequestError(
            "expected an address such as https://host/folder, found one that cannot be read."
        ) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise RequestError(
            "expected an address such as https://host/folder, found one without https:// or "
            "without a host. Check AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL too."
        )
    if "@" in parts.netloc:
        raise RequestError(
            "an address with a user name or password would be stored in run.json; put them into "
            "~/.netrc, and give the address without them."
        )
    if "?" in address or "#" in address:
        raise RequestError(
            "an address with ? or # could store secret keys in run.json, and names of files "
            "cannot follow it; give the address of a folder, without ? or #."
        )
    return address

"""Sources of files: a local folder, or a web address whose files are stored in the cache."""

import hashlib
import os
import zipfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from geogp.errors import DataError, NetworkError, RefusedError, RequestError, UnreachableError
from geogp.files import writing
from geogp.geodata.store.addresses import s3_endpoint
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

MAX_BYTES = 1 << 30  # largest size of a file that is downloaded as a whole, in bytes


@dataclass(frozen=True)
class LocalFile:
    """A local Parquet file of tiles, in a folder or in the cache.

    `simulated` is true if the source declares its tiles as simulated. `note` describes a cache
    entry, and is None for a file in a folder. `fresh` is true if the file was just downloaded.
    `checked` is false if the source did not answer the check for a new version; `changed` is true
    if the source has a new version.
    """

    path: Path
    simulated: bool
    note: Note | None = None
    fresh: bool = False
    checked: bool = True
    changed: bool = False


@dataclass(frozen=True)
class Folder:
    """A local folder as a source of files."""

    path: Path

    @property
    def where(self) -> str:
        """Path of the folder."""
        return str(self.path)

    def has(self, name: str) -> bool:
        """Return whether the folder contains a file `name`."""
        return (self.path / relative_name(name)).is_file()

    def find(self, name: str, *, ask: bool = True) -> Path | None:
        """Return the path of a file, or None if there is no such file."""
        del ask
        return self.path / name if self.has(name) else None

    def local_file(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> LocalFile | None:
        """Return a tile file with all its rows, or None if there is no such file."""
        del ranges, refresh
        transfer.check()
        path = self.find(name)
        return None if path is None else LocalFile(path, self.has(SIMULATION_FILE))


@dataclass(frozen=True)
class Web:
    """A web address as a source of files, which are downloaded into the cache."""

    where: str
    patience: Patience = PATIENCE

    def find(self, name: str, *, ask: bool = True) -> Path | None:
        """Return the path of a file in the cache, or None; download the file if necessary.

        Returns None if there is no such file, or if the file is not in the cache and `ask` is
        false. Raises the errors of `fetch`, and UnreachableError if no server answers.
        """
        there = self._entry(name).note_path.exists() or (ask and self._is_there(name))
        return self.fetch(name) if there else None

    def fetch(self, name: str) -> Path:
        """Return the path of an existing file in the cache; download the file if necessary.

        The source publishes no hash of the file. So geogp stores the hash of the first download in
        a note, and compares the file with the note at each later use. Raises NetworkError if the
        download fails. Raises NetworkError also if the file in the cache is damaged and the source
        has another version. Raises OutputError if the cache cannot be written.
        """
        entry = self._entry(name)
        if entry.read() is not None:  # no lock, because a read-only cache has none
            return entry.path
        with entry.locked(Transfer()):
            if entry.read() is None:
                entry.sweep()
                self._download(entry, entry.read(damaged=True))
        return entry.path

    def _download(self, entry: CacheEntry, known: Note | None) -> None:
        """Download a whole file into a cache entry; `known` is the note of an earlier download."""
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
                    f"{entry.source} has changed since the first download (see "
                    f"{entry.note_path}), and the file next to this note is damaged. Delete the "
                    f"note and the file to download the new file; then runs that were made from "
                    f"the old file cannot be continued."
                )
        if known is None:
            entry.keep(note)

    def local_file(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> LocalFile | None:
        """Return a local file with a region's rows of a tile file, after a download if necessary.

        `ranges`, (n, 2), are sorted and disjoint ranges of quadkey codes (first, last). `transfer`
        counts bytes, and can stop the download. If `refresh` is true, a file that changed at the
        source is downloaded again. Raises the errors of `fetch_entry`, and UnreachableError if no
        server answers and the cache has no rows.
        """
        entries = CacheEntry.of(self.where, name, ranges), CacheEntry.of(self.where, name, None)
        cached = self._cached(entries, transfer)
        if cached is not None and not (refresh and cached.changed):
            return cached
        with entries[0].locked(transfer):
            again = self._cached(entries, transfer)  # another process may have fetched it
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
        """Return the first complete cache entry, after a check for a new version at the source."""
        for entry in entries:
            note = entry.read()
            if note is None:
                continue
            file = LocalFile(entry.path, note.simulated, note)
            if transfer.unreachable:
                return replace(file, checked=False)
            patience = replace(
                self.patience, attempts=SHORT_PATIENCE.attempts, timeout_s=SHORT_PATIENCE.timeout_s
            )
            with closing(RemoteFile(entry.source, patience, transfer)) as remote:
                try:
                    there = remote.open()
                except NetworkError as error:
                    transfer.unreachable |= isinstance(error, UnreachableError)
                    return replace(file, checked=False)
                return replace(file, changed=not there or remote.version.differs(note.version))
        return None

    def _is_there(self, name: str) -> bool:
        with closing(RemoteFile(self._entry(name).source, self.patience)) as remote:
            return remote.open()

    def _simulated(self) -> bool:
        """Return whether the source declares its tiles as simulated."""
        try:
            return self._is_there(SIMULATION_FILE)
        except RefusedError:  # a bucket without public listing refuses requests for missing files
            return False

    def _entry(self, name: str) -> CacheEntry:
        return CacheEntry.of_file(self.where, relative_name(name))


def _require_form(address: str, stream: BinaryIO) -> None:
    """Raise NetworkError if a file does not fit its name, for example if it is a login page."""
    form = address.rpartition(".")[2].lower()
    stream.seek(0)
    wrong = form == "zip" and not zipfile.is_zipfile(stream)
    if wrong or (form == "parquet" and stream.read(4) != b"PAR1"):
        raise NetworkError(
            f"{address} answered with something other than a {form} file. Did a proxy or a login "
            f"page answer? Open the address in a browser, and try again."
        )


Source = Folder | Web
"""A local folder or a web address, with files that have relative names."""


def relative_name(name: str) -> str:
    """Return the name of a file in a source; raise DataError if the name is not allowed.

    Names can contain text from data, such as the code of a state. So these names are refused:
    absolute names, names with forbidden characters, or with a part that is empty, ``.`` or ``..``.
    """
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or set(name) & set('\\?#%:*"<>|') or not name.isprintable():
        raise DataError(f"expected the name of a file in the folder of the source, found {name!r}.")
    return name


def open_source(where: str) -> Source:
    """Return the source that a user chose: a folder, an ``https://`` or an ``s3://`` address.

    A bucket is read over HTTPS and without a login, from Amazon or from the server in
    ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL``. Raises DataError if there is no such folder,
    and RequestError as in `_checked`.
    """
    if where.startswith(("http://", "https://")):
        return Web(_checked(where))
    if where.startswith("s3://"):
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        endpoint = s3_endpoint()
        base = (
            f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://{bucket}.s3.amazonaws.com"
        )
        return Web(_checked(f"{base}/{prefix}".rstrip("/")))
    folder = Path(where).expanduser()
    if not os.path.isdir(folder):  # noqa: PTH112 - is_dir raises an error if the name is too long
        raise DataError(
            f"no folder {folder}. Give a folder, or an address that starts with https:// or s3://."
        )
    return Folder(folder)


def _checked(address: str) -> str:
    """Return a web address; raise RequestError if it is invalid or has a query, fragment or login.

    The error messages do not contain the address, because it may contain a password.
    """
    try:
        parts = urlsplit(address)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid:
        raise RequestError(
            "expected an address such as https://host/folder, found an address without https:// or "
            "without a host. Check AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL too."
        )
    if "@" in parts.netloc or {"?", "#"} & set(address):
        raise RequestError(
            "expected the address of a folder, found an address with a user name, a password, ? or "
            "#, which would be stored in run.json. Put user name and password into ~/.netrc, and "
            "remove ? or # and the text that follows."
        )
    return address

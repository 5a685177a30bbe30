"""Places that hold files: a folder, or a URL whose files are kept in the cache."""

import datetime as dt
import json
import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import numpy as np
import pooch
import requests

from geogp.errors import DataError, NetworkError, RequestError, UnreachableError
from geogp.files import read_json, sha256_of, write_text
from geogp.geodata.cache import MOST_NOTE_BYTES, Entry, Note, downloads_folder, readable_folder
from geogp.geodata.remote import GLANCE, PATIENCE, Patience, RemoteFile, Transfer
from geogp.geodata.remote_tiles import fetch_entry
from geogp.geodata.tile_files import SIMULATION_FILE, Ranges

pooch.get_logger().setLevel("WARNING")  # its advice on hashes is not for our users

TIMEOUT_S = 60
"""Seconds without an answer after which a request has failed."""


@dataclass(frozen=True)
class Held:
    """A Parquet file on this machine that holds all rows of some quadkeys.

    Attributes
    ----------
    path, sha256
        The file.
    simulated
        Whether the source says that its tiles are simulated.
    note
        Of an entry of the cache: what it was made from. None for a file read in place.
    fresh
        Whether it was read from the source just now.
    checked
        Whether the source could be asked if it is still the same; always true in place.
    changed
        Whether the source has another file now.
    """

    path: Path
    sha256: str
    simulated: bool
    note: Note | None = None
    fresh: bool = False
    checked: bool = True
    changed: bool = False


class Source(Protocol):
    """A place that holds files by relative names."""

    @property
    def where(self) -> str:
        """The place as the user wrote it."""

    def has(self, name: str) -> bool:
        """Tell whether the place holds a file of that name."""

    def fetch(self, name: str) -> Path:
        """Return a local path of the file."""

    def hold(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> Held | None:
        """Bring the rows of some quadkeys of a file of tiles here; None where there is none."""


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

    def fetch(self, name: str) -> Path:
        """Return the file's path.

        Raises
        ------
        DataError
            There is no such file.
        """
        if not self.has(name):
            raise DataError(f"no file {name} in {self.path}.")
        return self.path / name

    def hold(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> Held | None:
        """Return the file itself, whatever the quadkeys."""
        del ranges, refresh
        transfer.check()
        if not self.has(name):
            return None
        path = self.path / name
        return Held(path, sha256_of(path), self.has(SIMULATION_FILE))


@dataclass(frozen=True)
class Web:
    """A URL under which files stand; what was fetched once is taken from the cache.

    Small files are downloaded whole; of files of tiles, the rows of a region (`hold`).
    """

    url: str
    patience: Patience = PATIENCE

    @property
    def where(self) -> str:
        """The URL."""
        return self.url

    def has(self, name: str) -> bool:
        """Tell whether the file is in the cache; if not, ask the server for its header.

        Raises
        ------
        NetworkError
            The server cannot be reached, or answers neither 2xx nor 404.
        """
        if self._note(name).exists():
            return True
        try:
            answer = requests.head(self._address(name), timeout=TIMEOUT_S, allow_redirects=True)
        except requests.RequestException as error:
            raise _unreachable(self.url, error) from error
        if answer.status_code == requests.codes.not_found:
            return False
        if not answer.ok:
            raise NetworkError(
                f"{self._address(name)} answered {answer.status_code} {answer.reason}; "
                "check the address and try again."
            )
        return True

    def fetch(self, name: str) -> Path:
        """Return the file from the cache, where it is downloaded first if it must be.

        A note beside the file holds its source, date, size and SHA-256. A file without a note,
        or that no longer agrees with it, is downloaded again.

        Raises
        ------
        NetworkError
            The download failed.
        """
        note = self._note(name)
        path = note.with_suffix("")
        known = _noted_hash(note) if path.is_file() else None
        if known is None:
            path.unlink(missing_ok=True)
        try:
            pooch.retrieve(
                self._address(name),
                known_hash=known,
                fname=path.name,
                path=path.parent,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
            )
        except ValueError as error:
            raise NetworkError(
                f"{self._address(name)} is no longer what {note} says and the copy beside it is "
                "damaged. Delete both to take the new file."
            ) from error
        except (requests.RequestException, OSError) as error:
            raise _unreachable(self._address(name), error) from error
        if known is None:
            content = {
                "source": self._address(name),
                "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
                "size": path.stat().st_size,
                "sha256": sha256_of(path),
            }
            write_text(note, json.dumps(content, indent=1) + "\n")
        return path

    def hold(
        self, name: str, ranges: Ranges, transfer: Transfer, *, refresh: bool = False
    ) -> Held | None:
        """Return the cached rows of some quadkeys of a file, read from the source if they must be.

        Parameters
        ----------
        name
            A file of tiles.
        ranges
            First and last codes of quadkeys, sorted and disjoint, (n, 2).
        transfer
            Counts bytes, and can stop the download.
        refresh
            Read again what changed at the source.

        Raises
        ------
        NetworkError
            The server refuses, or fails again and again.
        UnreachableError
            Nothing is cached, and nothing answers.
        DataError
            The file is damaged.
        OutputError
            The cache cannot be written.
        """
        ranges = np.asarray(ranges, np.int64)
        entries = Entry.of(self.url, name, ranges), Entry.of(self.url, name, None)
        held = self._cached(entries, transfer)
        if held is not None and not (refresh and held.changed):
            return held
        with entries[0].locked(transfer):
            again = self._cached(entries, transfer)  # another process may have fetched meanwhile
            if again is not None and not (refresh and again.changed):
                return again
            for entry in entries:
                entry.clean()
            made = fetch_entry(
                *entries,
                simulated=self._simulated,
                transfer=transfer,
                patience=self.patience,
            )
        if made is None:
            return again
        entry, note = made
        return Held(entry.path, note.sha256, note.simulated, note, fresh=True)

    def _cached(self, entries: tuple[Entry, Entry], transfer: Transfer) -> Held | None:
        """Return the first entry that is whole, and whether its source changed."""
        for entry in entries:
            note = entry.read()
            if note is None:
                continue
            held = Held(entry.path, note.sha256, note.simulated, note)
            if transfer.unreachable:
                return replace(held, checked=False)
            patience = replace(self.patience, attempts=GLANCE.attempts, timeout_s=GLANCE.timeout_s)
            with closing(RemoteFile(entry.source, patience, transfer)) as remote:
                try:
                    there = remote.open()
                except NetworkError as error:
                    transfer.unreachable |= isinstance(error, UnreachableError)
                    return replace(held, checked=False)
                return replace(held, changed=not there or remote.version.differs(note.version))
        return None

    def _simulated(self) -> bool:
        """Tell whether the source says that its tiles are simulated."""
        with closing(RemoteFile(self._address(SIMULATION_FILE), self.patience)) as remote:
            try:
                return remote.open()
            except UnreachableError:
                raise
            except NetworkError:  # a bucket that may not be listed refuses absent files
                return False

    def _note(self, name: str) -> Path:
        """Return where the note on a cached file stands."""
        file = relative_name(name).replace("/", "__") + ".json"
        return downloads_folder() / readable_folder(self.url) / file

    def _address(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{relative_name(name)}"


_ADDRESSES = ("http://", "https://", "s3://")


def relative_name(name: str) -> str:
    """Return a name of a file below a place; refuse one that leads elsewhere.

    Names are put together from data, such as the code of a state.

    Raises
    ------
    DataError
        The name is absolute, has an empty part, ``.`` or ``..``, or a sign no name should have.
    """
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or set(name) & set('\\?#%:*"<>|') or not name.isprintable():
        raise DataError(f"expected the name of a file below the source, found {name!r}.")
    return name


def absolute_place(where: str) -> str:
    """Return a place that names the same folder from any working directory.

    Addresses stay as they are. A folder becomes absolute, without links, so that two ways of
    writing it are one.
    """
    if where.startswith(_ADDRESSES):
        return where
    return str(Path(os.path.expanduser(where)).resolve())  # noqa: PTH111 - `~nobody` stays


def open_source(where: str) -> Source:
    """Return the place a user named: a folder, an ``https://`` or an ``s3://`` address.

    A bucket is read anonymously over HTTPS: from Amazon's servers, or from those that
    ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` names.

    Raises
    ------
    DataError
        There is no such folder.
    RequestError
        The address holds a name or a password, which would be written into run.json.
    """
    if where.startswith(("http://", "https://")):
        return Web(_without_credentials(where))
    if where.startswith("s3://"):
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            endpoint = _without_credentials(endpoint)
            return Web(f"{endpoint.rstrip('/')}/{bucket}/{prefix}".rstrip("/"))
        return Web(f"https://{bucket}.s3.amazonaws.com/{prefix}".rstrip("/"))
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"no folder {folder}. Give a folder, or an address that starts with https:// or s3://."
        )
    return Folder(folder)


def _without_credentials(address: str) -> str:
    """Return an address; refuse one that holds a name or a password."""
    if "@" in urlsplit(address).netloc:
        raise RequestError(
            "an address with a user name or password would be kept in run.json; put them "
            "into ~/.netrc, and give the address without."
        )
    return address


def _noted_hash(note: Path) -> str | None:
    """Return the hash that a note gives, or None where there is no note that can be read."""
    try:
        found = read_json(note, MOST_NOTE_BYTES)["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _unreachable(address: str, error: Exception) -> NetworkError:
    return NetworkError(f"could not read {address}: {error}. Check the connection and try again.")

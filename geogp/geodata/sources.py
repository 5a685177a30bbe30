"""Places that hold files: a folder, or a URL whose files are kept in the cache."""

import datetime as dt
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pooch
import requests

from geogp.errors import DataError, NetworkError
from geogp.files import sha256_of, write_text

pooch.get_logger().setLevel("WARNING")  # its advice on hashes is not for our users

TIMEOUT_S = 60
"""Seconds without an answer after which a request has failed."""


class Source(Protocol):
    """A place that holds files by relative names."""

    @property
    def where(self) -> str:
        """The place as the user wrote it."""

    def has(self, name: str) -> bool:
        """Tell whether the place holds a file of that name."""

    def fetch(self, name: str) -> Path:
        """Return a local path of the file."""


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
        return (self.path / name).is_file()

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


@dataclass(frozen=True)
class Web:
    """A URL under which files stand; a file that was fetched once is taken from the cache."""

    url: str

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

    def _note(self, name: str) -> Path:
        """Return where the note on a cached file stands."""
        # The digest keeps apart addresses that read alike once they are file names.
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        readable = re.sub(r"[^\w.-]+", "_", self.url)
        file = name.replace("/", "__") + ".json"
        return cache_folder() / "downloads" / f"{readable}-{digest}" / file

    def _address(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"


_ADDRESSES = ("http://", "https://", "s3://")


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

    A bucket is read anonymously over HTTPS.

    Raises
    ------
    DataError
        There is no such folder.
    """
    if where.startswith(("http://", "https://")):
        return Web(where)
    if where.startswith("s3://"):
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        return Web(f"https://{bucket}.s3.amazonaws.com/{prefix}".rstrip("/"))
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"no folder {folder}. Give a folder, or an address that starts with https:// or s3://."
        )
    return Folder(folder)


def cache_folder() -> Path:
    """Return the cache: ``GEOGP_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("GEOGP_CACHE") or pooch.os_cache("geogp"))


def _noted_hash(note: Path) -> str | None:
    """Return the hash that a note gives, or None where there is no note that can be read."""
    try:
        found = json.loads(note.read_text())["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _unreachable(address: str, error: Exception) -> NetworkError:
    return NetworkError(f"could not read {address}: {error}. Check the connection and try again.")

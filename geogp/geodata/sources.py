"""Places that hold files: a folder, or a URL whose files are kept in the cache."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pooch
import requests

from geogp.errors import DataError, NetworkError

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
        """Ask the server for the file's header.

        Raises
        ------
        NetworkError
            The server cannot be reached, or answers neither 2xx nor 404.
        """
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
        """Download the file into the cache, beside its place first, and return its path.

        Raises
        ------
        NetworkError
            The download failed.
        """
        # The digest keeps apart addresses that read alike once they are file names.
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        readable = re.sub(r"[^\w.-]+", "_", self.url)
        folder = cache_folder() / "downloads" / f"{readable}-{digest}"
        try:
            found = pooch.retrieve(
                self._address(name),
                known_hash=None,
                fname=name.replace("/", "__"),
                path=folder,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
            )
        except (requests.RequestException, OSError, ValueError) as error:
            raise _unreachable(self._address(name), error) from error
        return Path(found)

    def _address(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"


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


def _unreachable(address: str, error: Exception) -> NetworkError:
    return NetworkError(f"could not read {address}: {error}. Check the connection and try again.")

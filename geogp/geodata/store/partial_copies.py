"""Partial local copies of remote files, from which a stopped download continues.

A copy is a local file that holds the downloaded parts; a list of these parts is next to it. A copy
belongs to one version of the remote file, which has a strong ETag. If the list belongs to another
version, the copy and the list are deleted. The list contains the SHA-256 of each part; if a part
has another hash, the part is downloaded again.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from geogp.errors import DataError
from geogp.files import output_error, read_text, remove, writing
from geogp.geodata.store.remote import CURE, RemoteFile

LARGEST = 8 << 20  # bytes of a part; a stopped download loses at most so many of each request

_MAX_LIST_BYTES = 64 << 20


class PartialCopy:
    """A local copy of an open remote file.

    `path` ends in ``.parts``, and the path of the list in ``.ranges``. `reused` is the number of
    bytes that are taken from an earlier download. The methods raise the errors of `RemoteFile`, and
    OutputError if the cache cannot be written.
    """

    def __init__(self, path: Path, remote: RemoteFile) -> None:
        self.path = path
        self.reused = 0
        self._remote = remote
        self._list = path.with_suffix(".ranges")
        self._title = json.dumps({"source": remote.address, **asdict(remote.version)})
        self._came: dict[tuple[int, int], str | None] = {}  # hashes to be checked
        self._resume()

    def load(self, spans: Iterable[tuple[int, int]]) -> None:
        """Download the parts (first, length) that the copy does not have yet."""
        for first, length in spans:
            for start in range(first, first + length, LARGEST):
                part = (start, min(LARGEST, first + length - start))
                if not self._is_here(*part):
                    self._keep(start, self._remote.read(*part))
                self._came[part] = None

    def load_all(self) -> None:
        """Download the whole file with one answer of the server."""
        self.discard()
        with writing(self.path, CURE) as stream:
            self._remote.copy(stream)

    def read(self, first: int, length: int) -> bytes:
        """Return `length` bytes of the copy from byte `first` on."""
        with self.path.open("rb") as stream:
            stream.seek(first)
            return stream.read(length)

    def discard(self) -> None:
        """Delete the copy, which was a folder in geogp 0.1, and the list."""
        self._came.clear()
        for path in (self._list, self.path):
            remove(path)

    def _resume(self) -> None:
        """Read the list of an earlier call; delete the copy and the list if the version differs."""
        with suppress(DataError):
            title, *lines = read_text(self._list, _MAX_LIST_BYTES).splitlines() or [""]
            if title == self._title and self.path.is_file():
                for line in map(str.split, lines):
                    with suppress(ValueError):  # the line is incomplete
                        first, length, digest = line
                        self._came[int(first), int(length)] = digest
                return
        self.discard()

    def _is_here(self, first: int, length: int) -> bool:
        """Return whether the copy has a part; check the hash of a part from an earlier call."""
        if (first, length) not in self._came:
            return False
        digest = self._came[first, length]
        if digest is None:
            return True
        if _digest(self.read(first, length)) != digest:
            return False
        self.reused += length
        return True

    def _keep(self, first: int, content: bytes) -> None:
        """Write a part into the copy, then add the part to the list."""
        try:
            if not self._list.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("wb") as stream:
                    stream.truncate(self._remote.version.size)
                self._list.write_text(f"{self._title}\n")
            with self.path.open("r+b") as stream:
                stream.seek(first)
                stream.write(content)
            with self._list.open("a") as lines:
                lines.write(f"{first} {len(content)} {_digest(content)}\n")
        except OSError as error:
            if not self._list.exists():
                self.path.unlink(missing_ok=True)
            raise output_error(self.path, error, CURE) from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

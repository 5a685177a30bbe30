"""Remote files on this machine, as far as they came: what a stopped download goes on from.

A copy is a file in which only the parts that came are filled in, with a list of them beside it. It
is of one version, told by its strong ETag; where the list is of another, both are deleted. Each
part is listed with its SHA-256; one that does not agree is asked for again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from geogp.errors import DataError
from geogp.files import output_error, read_text
from geogp.geodata.store.remote import CURE, RemoteFile

LARGEST = 8 << 20
"""Bytes of a part: a stopped download loses no more of each request."""

_MAX_LIST_BYTES = 64 << 20


class PartialCopy:
    """A copy of a remote file that is open.

    `path` ends in ``.parts``, its list in ``.ranges``; `reused` counts bytes that need not be asked
    for again.
    """

    def __init__(self, path: Path, remote: RemoteFile) -> None:
        self.path = path
        self.reused = 0
        self._remote = remote
        self._list = path.with_suffix(".ranges")
        self._title = json.dumps({"source": remote.address, **asdict(remote.version)})
        self._came: dict[tuple[int, int], str | None] = {}  # what is yet to be held against
        self._resume()

    def load(self, spans: Iterable[tuple[int, int]]) -> None:
        """Bring parts (first, length) here that have not come yet.

        Raises
        ------
        NetworkError, OutputError
            As `RemoteFile.read` says; the cache cannot be written.
        """
        for first, length in spans:
            for start in range(first, first + length, LARGEST):
                part = (start, min(LARGEST, first + length - start))
                if not self._is_here(*part):
                    self._keep(start, self._remote.read(*part))
                self._came[part] = None

    def load_all(self) -> None:
        """Bring the whole file here, as one answer of the server has it.

        Raises
        ------
        NetworkError, OutputError
            As `RemoteFile.copy` says.
        """
        self.discard()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            stream = self.path.open("wb")
        except OSError as error:
            raise output_error(self.path, error, CURE) from error
        try:
            with stream:
                self._remote.copy(stream)
        except BaseException:
            self.discard()
            raise

    def read(self, first: int, length: int) -> bytes:
        """Return bytes of the copy."""
        with self.path.open("rb") as stream:
            stream.seek(first)
            return stream.read(length)

    def discard(self) -> None:
        """Delete what came."""
        self._came.clear()
        for path in (self._list, self.path):
            if path.is_dir():  # as geogp 0.1 had it
                shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    def _resume(self) -> None:
        """Take up the list of an earlier call, if it is of this version."""
        try:
            title, *lines = read_text(self._list, _MAX_LIST_BYTES).splitlines()
        except (DataError, ValueError):
            self.discard()
            return
        if title != self._title or not self.path.is_file():
            self.discard()
            return
        for line in map(str.split, lines):
            with suppress(ValueError):  # of a line that is torn
                first, length, digest = line
                self._came[int(first), int(length)] = digest

    def _is_here(self, first: int, length: int) -> bool:
        """Tell whether a part came, in this call or whole before it."""
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
        """Fill a part in, then list it."""
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

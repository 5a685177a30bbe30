"""Parts of a remote file that came before a download was stopped, so that it goes on from there.

They belong to one version of the file, told by its strong ETag: those of another are deleted. Each
part is a file whose name says its place, its length and the beginning of its SHA-256; one that does
not agree with its name is deleted, too. A server without strong ETags has none kept.
"""

import hashlib
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

from geogp.errors import DataError
from geogp.files import output_error, read_json, writing
from geogp.geodata.store.remote import Version

LARGEST = 8 << 20
"""Bytes of a part: a stopped download loses no more of each request."""

_VERSION = "version.json"

_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{32})\.part")


class PartialDownload:
    """The parts of one version of a file, in a folder of their own.

    Attributes
    ----------
    reused
        Bytes that need not be asked for again.
    """

    def __init__(self, folder: Path, source: str, version: Version, cure: str) -> None:
        self.reused = 0
        self._folder = folder
        self._cure = cure
        self._used = version.strong
        self._told = {"source": source, "etag": version.etag, "size": version.size}
        self._held: dict[tuple[int, int], Path] = {}
        if not self._used or not self._is_of_this_version():
            self.discard()
            return
        for path in folder.glob("*.part"):
            found = _NAME.fullmatch(path.name)
            if found:
                self._held[int(found[1]), int(found[2])] = path

    def get(self, first: int, length: int) -> bytes | None:
        """Return a part that came before, whole and as it came; else None."""
        path = self._held.pop((first, length), None)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if path.name != _name(first, content) or len(content) != length:
            path.unlink(missing_ok=True)
            return None
        self.reused += length
        return content

    def put(self, first: int, content: bytes) -> None:
        """Keep a part that came.

        Raises
        ------
        OutputError
            The cache cannot be written.
        """
        if not self._used:
            return
        if not (self._folder / _VERSION).exists():
            with writing(self._folder / _VERSION, self._cure) as stream:
                stream.write(json.dumps(self._told).encode())
        path = self._folder / _name(first, content)
        beside = path.with_suffix(".tmp")
        try:
            beside.write_bytes(content)  # not forced to disk: the name tells what is torn
            beside.replace(path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise output_error(path, error, self._cure) from error

    def discard(self) -> None:
        """Delete all parts."""
        self._held = {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_of_this_version(self) -> bool:
        try:
            return bool(read_json(self._folder / _VERSION) == self._told)
        except DataError:
            return False


def _name(first: int, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()[:32]
    return f"{first}-{len(content)}-{digest}.part"

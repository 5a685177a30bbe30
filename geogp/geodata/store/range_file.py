"""A file object over the ranges of a remote file, as readers of Parquet take it."""

import io
from collections.abc import Iterable

from geogp.geodata.store.partial_downloads import LARGEST, PartialDownload
from geogp.geodata.store.remote import RemoteFile


class RangeFile(io.RawIOBase):
    """A remote file as a file object: bytes that were loaded before, else asked for one by one."""

    def __init__(self, remote: RemoteFile, size: int, kept: PartialDownload | None = None) -> None:
        super().__init__()
        self._kept = kept
        self._remote = remote
        self._size = size
        self._place = 0
        self._held: list[tuple[int, bytes]] = []

    def load(self, ranges: Iterable[tuple[int, int]]) -> bytes:
        """Hold the bytes of ranges (first, length) in memory, and no others; return the last."""
        self._held = []
        self._held = [(first, self._range(first, length)) for first, length in ranges]
        return self._held[-1][1] if self._held else b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Fill a buffer as far as the file goes."""
        first = self._place
        length = max(0, min(len(buffer), self._size - first))
        buffer[:length] = self._bytes(first, length)
        self._place += length
        return length

    def _range(self, first: int, length: int) -> bytes:
        """Return a range, in parts that are kept for the next time where this is stopped."""
        if self._kept is None:
            return self._remote.read(first, length)
        found = []
        for start in range(first, first + length, LARGEST):
            size = min(LARGEST, first + length - start)
            part = self._kept.get(start, size)
            if part is None:
                part = self._remote.read(start, size)
                self._kept.put(start, part)
            found.append(part)
        return b"".join(found)

    def _bytes(self, first: int, length: int) -> bytes | memoryview:
        for start, held in self._held:
            if start <= first and first + length <= start + len(held):
                return memoryview(held)[first - start : first - start + length]
        return self._range(first, length)

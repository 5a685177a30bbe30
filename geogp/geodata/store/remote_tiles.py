"""Download of a region's rows from a remote tile file into the cache."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geogp.errors import DataError
from geogp.files import output_error, read_text, remove, sha256_of, writing
from geogp.geodata.store.cache import CacheEntry, Note
from geogp.geodata.store.remote import CURE, NoRangesError, Patience, RemoteFile, Transfer
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_files import LIMITS, RowGroup, open_parquet
from geogp.geodata.tiles.tile_files import (
    GEOMETRY,
    QUADKEY,
    VALUES,
    blaming,
    check_schema,
    groups_touching,
    in_ranges,
    quadkey_codes,
)

WORLD_SHARE = 0.5  # if a region touches more row groups, the whole file is read once for all
ROW_GROUP = 16_384  # in an entry, so that one region can be read from an entry of all regions

HOLE = 1 << 16  # gaps of up to so many bytes between wanted parts are downloaded, to save requests
LARGEST = 8 << 20  # most bytes of a part; a stopped download loses at most one part per request
TAIL = 1 << 16  # bytes at the end of a file, with most of the footer, that are read first

_MAX_LIST_BYTES = 64 << 20
_WHOLE = threading.Lock()  # only one quarter at a time may have the whole world in memory


def fetch_entry(
    region: CacheEntry,
    whole: CacheEntry,
    simulated: Callable[[], bool],
    transfer: Transfer,
    patience: Patience,
) -> tuple[CacheEntry, Note] | None:
    """Download the rows of a region, or of the whole world; return the cache entry and its note.

    Returns None if there is no such file. The function `simulated` returns whether the source
    declares its tiles as simulated. Raises the errors of `RemoteFile`, DataError if the file is
    damaged, and OutputError if the cache cannot be written.
    """
    with closing(RemoteFile(region.source, patience, transfer)) as remote:
        return remote.begin(lambda: _fetch(remote, region, whole, simulated))


def _fetch(
    remote: RemoteFile, region: CacheEntry, whole: CacheEntry, simulated: Callable[[], bool]
) -> tuple[CacheEntry, Note]:
    copy = _PartialCopy(whole.copy_path, remote)
    try:
        with blaming(remote.address, at_source=True):
            made = _make(remote, copy, region, whole, simulated)
    except DataError:
        copy.discard()
        raise
    copy.discard()
    return made


def _make(
    remote: RemoteFile,
    copy: "_PartialCopy",
    region: CacheEntry,
    whole: CacheEntry,
    simulated: Callable[[], bool],
) -> tuple[CacheEntry, Note]:
    by_parts = _begin(remote, copy)
    with open_parquet(copy.path) as opened:
        # A file may lack columns of targets.
        needed, columns = (QUADKEY, "tests", "devices"), opened.schema.names
        names = [name for name in (QUADKEY, *VALUES) if name in columns or name in needed]
        check_schema(opened.schema, names)
        groups = opened.groups(names, [GEOMETRY])
        wanted = groups_touching(groups, np.asarray(region.ranges, np.int64))
        apart = by_parts and len(wanted) <= WORLD_SHARE * len(groups)
        entry = region if apart else whole
        if not apart:
            wanted = list(range(len(groups)))
        parts = [_codes_and_values(opened.read([], names), None)]
        with nullcontext() if apart else _WHOLE:
            for group in wanted:
                if by_parts:
                    copy.load(_spans(groups[group], names))
                parts.append(_codes_and_values(opened.read([group], names), entry.ranges))
            made_up = simulated()
            rows = _write(entry, parts)
    note = Note.of(
        remote,
        sha256_of(entry.path),
        entry.path.stat().st_size,
        rows=rows,
        rows_in_source=opened.rows,
        bytes_read=remote.received + copy.reused,
        groups_read=len(wanted),
        groups_in_source=len(groups),
        ranges=entry.ranges,
        columns=names,
        simulated=made_up,
    )
    entry.keep(note)
    return entry, note


def _begin(remote: RemoteFile, copy: "_PartialCopy") -> bool:
    """Download the footer and return True; without parts, download all and return False."""
    size = remote.version.size
    if size is not None:
        with suppress(NoRangesError):
            copy.load([(max(0, size - TAIL), min(size, TAIL))])
            footer = 8 + int.from_bytes(copy.read(max(0, size - 8), 4), "little")
            if TAIL < footer <= min(size, LIMITS["bytes in a footer"]):
                copy.load([(size - footer, footer)])
            return True
    copy.load_all()
    return False


def _spans(group: RowGroup, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return byte ranges (first, length) of the wanted columns; merge ranges with small gaps."""
    spans = [(name, first, first + length) for name, first, length in group.chunks]
    geometry = [(first, end) for name, first, end in spans if name == GEOMETRY]
    merged: list[tuple[int, int]] = []
    for first, end in sorted((first, end) for name, first, end in spans if name in names):
        if merged and first - merged[-1][1] <= HOLE:
            gap = (merged[-1][1], first)
            if not any(low < gap[1] and gap[0] < high for low, high in geometry):
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
                continue
        merged.append((first, end))
    return [(first, end - first) for first, end in merged]


def _codes_and_values(rows: pa.Table, ranges: list[list[int]] | None) -> pa.Table:
    """Return the rows in `ranges`, with quadkeys as integer codes instead of text."""
    codes = quadkey_codes(rows[QUADKEY].cast(pa.string()))
    rows = rows.set_column(0, QUADKEY, pa.array(codes))
    if ranges is None:
        return rows
    return rows.filter(pa.array(in_ranges(codes, np.asarray(ranges, np.int64))))


def _write(entry: CacheEntry, parts: Sequence[pa.Table]) -> int:
    """Write rows to an entry, sorted by quadkey, and return the number of rows."""
    table = pa.concat_tables(parts).replace_schema_metadata().combine_chunks()
    order = np.argsort(table[QUADKEY].to_numpy(), kind="stable")
    schema = table.schema.set(0, pa.field(QUADKEY, pa.string()))
    with (
        writing(entry.path, CURE) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        for start in range(0, max(1, len(order)), ROW_GROUP):
            rows = table.take(pa.array(order[start : start + ROW_GROUP]))
            texts = pa.array(quadkeys.format_quadkeys(rows[QUADKEY].to_numpy()), pa.string())
            writer.write_table(rows.set_column(0, QUADKEY, texts))
    return len(order)


class _PartialCopy:
    """A partial local copy of a remote file, from which a stopped download continues.

    The copy at `path` contains the downloaded parts. A list next to the copy, ``.ranges``, contains
    the version of the remote file and the SHA-256 of each part. If the version of the remote file
    changes, copy and list are deleted. A part with a wrong hash is downloaded again. `reused` is
    the number of bytes from an earlier download. The methods raise the errors of `RemoteFile`, and
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
        """Download the parts (first byte, length) that are not yet in the copy."""
        for first, length in spans:
            for start in range(first, first + length, LARGEST):
                span = (start, min(LARGEST, first + length - start))
                if not self._is_here(*span):
                    self._keep(start, self._remote.read(*span))
                self._came[span] = None

    def load_all(self) -> None:
        """Download the whole file with one request."""
        self.discard()
        with writing(self.path, CURE) as stream:
            self._remote.copy(stream)

    def read(self, first: int, length: int) -> bytes:
        """Return `length` bytes of the copy, starting at byte `first`."""
        with self.path.open("rb") as stream:
            stream.seek(first)
            return stream.read(length)

    def discard(self) -> None:
        """Delete the list and the copy (a folder, if geogp 0.1 made the copy)."""
        self._came.clear()
        for path in (self._list, self.path):
            remove(path)

    def _resume(self) -> None:
        """Read the list of an earlier download; delete list and copy if the file has changed."""
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
        """Return whether the copy contains a part with the right hash."""
        if (first, length) not in self._came:
            return False
        digest = self._came[first, length]
        if digest is None:
            return True
        if hashlib.sha256(self.read(first, length)).hexdigest() != digest:
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
                lines.write(f"{first} {len(content)} {hashlib.sha256(content).hexdigest()}\n")
        except OSError as error:
            if not self._list.exists():
                self.path.unlink(missing_ok=True)
            raise output_error(self.path, error, CURE) from error

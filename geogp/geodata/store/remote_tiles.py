"""Rows of a remote file of tiles, read once by row groups and kept in the cache."""

import datetime as dt
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geogp.errors import DataError, NetworkError, OutputError
from geogp.files import sha256_of
from geogp.geodata.store.cache import CURE, CacheEntry, Note, overlap
from geogp.geodata.store.partial_downloads import PartialDownload
from geogp.geodata.store.range_file import RangeFile
from geogp.geodata.store.remote import (
    PATIENCE,
    NoRangesError,
    Patience,
    RemoteFile,
    SourceChangedError,
    Transfer,
)
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_footer import MOST_FOOTER_BYTES, check_types
from geogp.geodata.tiles.parquet_limits import MOST_GROUP_BYTES, GroupReader, check_footer
from geogp.geodata.tiles.parquet_pages import chunk_start
from geogp.geodata.tiles.tile_files import (
    AT_SOURCE,
    GEOMETRY,
    QUADKEY,
    VALUES,
    faulty,
    groups_touching,
    quadkey_codes,
    schema_faults,
)

WORLD_SHARE = 0.5
"""A region that touches more than this share of a file's row groups has the whole file read once:
its row groups do not tell regions apart."""

ROW_GROUP = 16_384
"""Rows of a row group of an entry, so that one region's rows are found in an entry of all."""

HOLE = 1 << 16
"""Bytes between two wanted parts that are read along rather than asked around, but never text of
the geometry."""

TAIL = 1 << 16
"""Bytes read from the end of a file at first: the footer, or its greater part."""

_WHOLE = threading.Lock()
"""Of quarters that are read at once, one at a time may hold the rows of the whole world."""

RESTARTS = 3
"""How often a file is begun again that changed while it was read."""


def fetch_entry(
    region: CacheEntry,
    whole: CacheEntry,
    *,
    simulated: Callable[[], bool],
    transfer: Transfer,
    patience: Patience = PATIENCE,
) -> tuple[CacheEntry, Note] | None:
    """Read the rows of a region, or of the whole world, into the cache.

    Parameters
    ----------
    region, whole
        The places of the one and of the other.
    simulated
        Asks whether the source says that its tiles are simulated.
    transfer
        Counts the bytes, and can stop the download.
    patience
        How often and how long to try.

    Returns
    -------
    (CacheEntry, Note) or None
        The entry that was made; None where there is no such file.

    Raises
    ------
    NetworkError
        The server refuses, fails again and again, or the file keeps changing.
    DataError
        The file is damaged.
    OutputError
        The cache cannot be written.
    """
    before = 0
    for left in range(RESTARTS - 1, -1, -1):
        with closing(RemoteFile(region.source, patience, transfer)) as remote:
            remote.received = before
            if not remote.open():
                return None
            try:
                return _make(remote, region, whole, simulated=simulated)
            except SourceChangedError as error:
                if not left:
                    raise NetworkError(
                        f"{error} It was begun {RESTARTS} times; try again later."
                    ) from error
            before = remote.received
    raise AssertionError


@dataclass(frozen=True)
class _Opened:
    """A file that is being read: its reader; its parts and its end, or where it was put whole."""

    reader: pq.ParquetFile
    size: int
    parts: RangeFile | None = None
    tail: bytes = b""
    kept: PartialDownload | None = None
    path: Path | None = None

    @property
    def reused(self) -> int:
        """Bytes that came before an earlier download was stopped."""
        return 0 if self.kept is None else self.kept.reused

    def discard(self) -> None:
        """Forget what came before."""
        if self.kept is not None:
            self.kept.discard()


def _make(
    remote: RemoteFile, region: CacheEntry, whole: CacheEntry, *, simulated: Callable[[], bool]
) -> tuple[CacheEntry, Note]:
    with _opening(remote, whole) as opened, ExitStack() as turn:
        try:
            metadata = opened.reader.metadata
            names = _columns(remote.address, opened.reader.schema_arrow)
            check_footer(metadata, names=names)
            groups = groups_touching(metadata, np.asarray(region.ranges, np.int64))
            apart = opened.parts is not None and (
                len(groups) <= WORLD_SHARE * metadata.num_row_groups
            )
            entry = region if apart else whole
            if not apart:
                groups = list(range(metadata.num_row_groups))
            table = _Rows(opened.reader.schema_arrow, names)
            turn.enter_context(nullcontext() if apart else _WHOLE)
            source = opened.parts or opened.path
            assert source is not None
            reader = GroupReader(opened.reader, source, names, text=QUADKEY)
            turn.enter_context(reader)
            for group in groups:
                spans = _spans(metadata.row_group(group), names, opened.size)
                if opened.parts is not None:
                    opened.parts.load(spans)
                _keep(reader.read(group), table, entry.ranges)
        except (pa.ArrowException, OSError, UnicodeDecodeError, DataError) as error:
            opened.discard()
            _check_version(remote, opened)
            if isinstance(error, DataError):
                if remote.address in str(error):
                    raise
                raise faulty(remote.address, [str(error)], AT_SOURCE) from error
            raise DataError(
                f"{remote.address} is not a whole Parquet file ({error}). The source is damaged; "
                "leave its quarter out or try again later."
            ) from error
        _check_version(remote, opened)
        made_up = simulated()
        table.write(entry)
        note = Note(
            source=remote.address,
            etag=remote.version.etag,
            last_modified=remote.version.last_modified,
            bytes_stored=opened.size,
            date=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
            sha256=sha256_of(entry.path),
            size=entry.path.stat().st_size,
            rows=len(table),
            rows_in_source=metadata.num_rows,
            bytes_read=remote.received + opened.reused,
            groups_read=len(groups),
            groups_in_source=metadata.num_row_groups,
            ranges=entry.ranges,
            columns=names,
            simulated=made_up,
        )
        entry.keep(note)
        opened.discard()
        return entry, note


@contextmanager
def _opening(remote: RemoteFile, whole: CacheEntry) -> Iterator[_Opened]:
    """Open a file by its parts; where the server sends none, download it whole."""
    size, parts = remote.version.size, None
    kept = PartialDownload(whole.parts, remote.address, remote.version, CURE)
    if size is not None:
        with suppress(NoRangesError):
            opened = RangeFile(remote, size, kept)
            tail = opened.load([(max(0, size - TAIL), min(size, TAIL))])
            footer = 8 + int.from_bytes(tail[-8:-4], "little")
            if len(tail) < footer <= min(size, MOST_FOOTER_BYTES):  # read twice: by us, by pyarrow
                opened.load([(size - footer, footer)])
            parts = opened
    if size is None or parts is None:
        with _downloaded(remote, whole) as path, _reader(remote, path) as reader:
            yield _Opened(reader, path.stat().st_size, path=path)
        return
    try:
        with _reader(remote, parts) as reader:
            yield _Opened(reader, size, parts, tail, kept)
    except DataError:
        kept.discard()
        raise


@contextmanager
def _reader(remote: RemoteFile, source: RangeFile | Path) -> Iterator[pq.ParquetFile]:
    try:
        check_types(source)
        reader = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{remote.address} is not a whole Parquet file ({error}). The source is damaged; "
            "leave its quarter out or try again later."
        ) from error
    with reader:
        yield reader


@contextmanager
def _downloaded(remote: RemoteFile, whole: CacheEntry) -> Iterator[Path]:
    """Download a whole file beside its entry; it is deleted once its rows are taken."""
    folder = whole.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{whole.path.name}.") as stream:
            remote.copy(stream.file)
            stream.flush()
            yield Path(stream.name)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot keep {remote.address}: {error.strerror or error}. Free some space or {CURE}."
        ) from error


def _columns(address: str, schema: pa.Schema) -> list[str]:
    """Return the columns to read; those of targets may be absent."""
    counts = ("tests", "devices")
    names = [name for name in (QUADKEY, *VALUES) if name in schema.names or name in counts]
    faults = schema_faults(schema, list(dict.fromkeys([QUADKEY, *names])))
    if faults:
        raise faulty(address, faults, AT_SOURCE)
    return names


def _keep(found: pa.Table, table: "_Rows", ranges: list[list[int]] | None) -> None:
    """Keep the rows of the ranges of one row group."""
    codes = quadkey_codes(found[QUADKEY].cast(pa.string()))
    found = found.select([name for name in table.names if name != QUADKEY])
    if ranges is not None:
        kept = np.flatnonzero(overlap(codes, np.asarray(ranges, np.int64)))
        codes, found = codes[kept], found.take(kept)
    table.add(codes, found)


def _spans(group: pq.RowGroupMetaData, names: list[str], size: int) -> list[tuple[int, int]]:
    """Return the places (first, length) of the wanted columns, near ones put together.

    Raises
    ------
    DataError
        The places that the footer gives are not in a file of that size, or too large to be held,
        packed or unpacked.
    """
    wanted, geometry, unpacked = [], [], 0
    for column in range(group.num_columns):
        chunk = group.column(column)
        start = chunk_start(chunk)
        span = (start, start + chunk.total_compressed_size)
        name = chunk.path_in_schema
        if name == GEOMETRY:
            geometry.append(span)
        elif name in names:
            wanted.append(span)
            unpacked += chunk.total_uncompressed_size
            if start < 4 or not start <= span[1] <= size:
                raise DataError(
                    f"the footer puts column {name} at bytes {start} to {span[1]} of {size}."
                )
    packed = sum(end - first for first, end in wanted)
    for found in (packed, unpacked):
        if found > MOST_GROUP_BYTES:
            raise DataError(
                f"a row group of {group.num_rows} rows says to hold {found} bytes of the columns "
                f"wanted; expected at most {MOST_GROUP_BYTES}."
            )
    merged: list[tuple[int, int]] = []
    for first, end in sorted(wanted):
        if merged and first - merged[-1][1] <= HOLE:
            gap = (merged[-1][1], first)
            if not any(low < gap[1] and gap[0] < high for low, high in geometry):
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
                continue
        merged.append((first, end))
    return [(first, end - first) for first, end in merged]


def _check_version(remote: RemoteFile, opened: _Opened) -> None:
    """Where the server's word does not stand for every byte, look at the footer once more."""
    if opened.parts is None or remote.certain:
        return
    size = opened.size
    if remote.read(max(0, size - TAIL), min(size, TAIL)) != opened.tail:
        raise SourceChangedError(f"{remote.address} changed while it was read.")


class _Rows:
    """Rows that are collected group by group: codes, and columns of numbers as they are stored."""

    def __init__(self, schema: pa.Schema, names: list[str]) -> None:
        self.names = names
        self._fields = [schema.field(name) for name in names if name != QUADKEY]
        self._codes: list[NDArray[np.uint64]] = []
        self._parts: list[pa.Table] = []

    def __len__(self) -> int:
        return sum(map(len, self._codes))

    def add(self, codes: NDArray[np.uint64], table: pa.Table) -> None:
        """Add rows."""
        self._codes.append(codes)
        self._parts.append(table)

    def write(self, entry: CacheEntry) -> None:
        """Write the rows, ordered by quadkey; rows of one quadkey stay in their order.

        Raises
        ------
        OutputError
            The cache cannot be written.
        """
        codes = np.concatenate([np.zeros(0, np.uint64), *self._codes])
        order = np.argsort(codes, kind="stable")
        schema = pa.schema([pa.field(QUADKEY, pa.string()), *self._fields])
        schema = schema.remove_metadata()
        numbers = pa.concat_tables([schema.remove(0).empty_table(), *self._parts])
        self._parts.clear()
        numbers = numbers.combine_chunks()
        with (
            entry.writing() as stream,
            pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=False) as writer,
        ):
            for start in range(0, max(1, len(codes)), ROW_GROUP):
                rows = order[start : start + ROW_GROUP]
                part = numbers.take(pa.array(rows))
                texts = pa.array(quadkeys.format_quadkeys(codes[rows]), pa.string())
                columns = [texts, *part.columns]
                writer.write_table(pa.table(columns, schema=schema))

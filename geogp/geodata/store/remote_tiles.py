"""Download of rows from a remote tile file, by row groups, into the cache."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geogp.errors import DataError
from geogp.files import sha256_of, writing
from geogp.geodata.store.cache import CacheEntry, Note, overlap
from geogp.geodata.store.partial_copies import PartialCopy
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
    quadkey_codes,
)

WORLD_SHARE = 0.5
"""If a region touches more than this share of a file's row groups, the whole file is read once,
because the row groups do not separate regions."""

ROW_GROUP = 16_384  # in an entry, so that one region can be read from an entry of all regions

HOLE = 1 << 16
"""If at most this many bytes lie between two wanted parts, these bytes are downloaded too, to save
a request. Text of the geometry is never downloaded."""

TAIL = 1 << 16  # bytes that are read first, from the end of a file, with most of the footer

_WHOLE = threading.Lock()  # only one quarter at a time may have the whole world in memory


def fetch_entry(
    region: CacheEntry,
    whole: CacheEntry,
    simulated: Callable[[], bool],
    transfer: Transfer,
    patience: Patience,
) -> tuple[CacheEntry, Note] | None:
    """Download the rows of a region, or of the whole world, and return the new entry of the cache.

    Returns None if there is no such file. `simulated` returns whether the source declares its tiles
    as simulated. Raises the errors of `RemoteFile`, DataError if the file is damaged, and
    OutputError if the cache cannot be written.
    """
    with closing(RemoteFile(region.source, patience, transfer)) as remote:
        return remote.begin(lambda: _fetch(remote, region, whole, simulated))


def _fetch(
    remote: RemoteFile, region: CacheEntry, whole: CacheEntry, simulated: Callable[[], bool]
) -> tuple[CacheEntry, Note]:
    copy = PartialCopy(whole.copy_path, remote)
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
    copy: PartialCopy,
    region: CacheEntry,
    whole: CacheEntry,
    simulated: Callable[[], bool],
) -> tuple[CacheEntry, Note]:
    by_parts = _begin(remote, copy)
    with open_parquet(copy.path) as opened:
        names, in_source = _columns(opened.schema), opened.rows
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
        rows_in_source=in_source,
        bytes_read=remote.received + copy.reused,
        groups_read=len(wanted),
        groups_in_source=len(groups),
        ranges=entry.ranges,
        columns=names,
        simulated=made_up,
    )
    entry.keep(note)
    return entry, note


def _begin(remote: RemoteFile, copy: PartialCopy) -> bool:
    """Download the footer and return True, or download the whole file and return False.

    The whole file is downloaded if the server cannot send a part of the file.
    """
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


def _columns(schema: pa.Schema) -> list[str]:
    """Return the columns to read; a file may lack columns of targets."""
    needed = (QUADKEY, "tests", "devices")
    names = [name for name in (QUADKEY, *VALUES) if name in schema.names or name in needed]
    check_schema(schema, names)
    return names


def _spans(group: RowGroup, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the parts (first, length) with the wanted columns; merge parts with small gaps."""
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
    """Return the rows in `ranges`, with quadkeys as codes and not as text."""
    codes = quadkey_codes(rows[QUADKEY].cast(pa.string()))
    rows = rows.set_column(0, QUADKEY, pa.array(codes))
    if ranges is None:
        return rows
    return rows.filter(pa.array(overlap(codes, np.asarray(ranges, np.int64))))


def _write(entry: CacheEntry, parts: Sequence[pa.Table]) -> int:
    """Write rows in the order of quadkeys (a stable sort), and return the number of rows."""
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

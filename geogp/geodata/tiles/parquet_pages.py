"""What the headers of pages say: how their values are stored, and how large a page is unpacked.

The footer names the encodings of a chunk, too, but pyarrow reads pages as their headers say.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from geogp.geodata.tiles.thrift import Field, Wanted, number_of, structure, structure_of

PLAIN = 0
"""The encoding that holds each value as it is."""

DICTIONARY = frozenset({2, 8})
"""Encodings of places in a dictionary, which is a page by itself."""

UNPACKED = 1 << 26
"""Bytes that the values of one small batch may have at most, where no value is larger."""

SMALL = 64
"""Rows of a small batch, where pages are small."""

# Numbers of fields: of a header, and of what it holds for each kind of page.
_KIND, _UNPACKED, _PACKED = 1, 2, 3
_COUNT = 1
_BODIES = {0: (5, 2), 3: (8, 4), 2: (7, None)}
"""By the kind of a page: the field of what it holds, and in that the one of its encoding. The
words of a dictionary are always plain."""

_HEADER: Wanted = {
    **{number: {} for number in (_KIND, _UNPACKED, _PACKED)},
    **{body: {_COUNT: {}, encoding or _COUNT: {}} for body, encoding in _BODIES.values()},
}

_BLOCKS = (1 << 9, 1 << 14, 1 << 20)
"""Bytes that a header is sought in, as it may hold long statistics."""


@dataclass(frozen=True)
class Pages:
    """The pages of one or more chunks.

    Attributes
    ----------
    encodings
        Those of their values, as numbers of the format.
    largest
        Bytes of the largest, unpacked.
    """

    encodings: frozenset[int] = frozenset()
    largest: int = 0

    @property
    def small_batch(self) -> int:
        """Rows that may be unpacked at once: no value is larger than a page."""
        return max(1, min(SMALL, UNPACKED // max(1, self.largest)))


def chunks_of(
    metadata: pq.FileMetaData, name: str, groups: Iterable[int]
) -> Iterator[pq.ColumnChunkMetaData]:
    """Yield the chunks of a column at the top of a table."""
    schema = metadata.schema
    places = [k for k in range(metadata.num_columns) if schema.column(k).path == name]
    for group in groups:
        for place in places:
            yield metadata.row_group(group).column(place)


def chunk_start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the place of the first page of a chunk."""
    start: int = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start


def read_pages(
    source: Path | BinaryIO | io.RawIOBase, chunks: Iterable[pq.ColumnChunkMetaData]
) -> Pages:
    """Read the headers of the pages of chunks.

    Raises
    ------
    pyarrow.ArrowInvalid
        A header is damaged.
    OSError
        The file cannot be read.
    """
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return read_pages(stream, chunks)
    encodings: set[int] = set()
    largest = 0
    for chunk in chunks:
        place, left = chunk_start(chunk), chunk.num_values
        end = place + chunk.total_compressed_size
        while left > 0 and place < end:
            try:
                fields, place = _header(source, place, end)
                place += _size(fields, _PACKED)
                largest = max(largest, _size(fields, _UNPACKED))
                kind = number_of(fields, _KIND)
                if kind in _BODIES:
                    number, encoding = _BODIES[kind]
                    body = structure_of(fields, number)
                    if encoding is None:
                        continue
                    left -= _size(body, _COUNT)
                    encodings.add(_size(body, encoding))
            except (LookupError, ValueError) as error:
                raise pa.ArrowInvalid(f"the header of a page is damaged: {error}") from error
    return Pages(frozenset(encodings), largest)


def _header(source: BinaryIO | io.RawIOBase, place: int, end: int) -> tuple[dict[int, Field], int]:
    """Return the fields of a header, and the place of the page's body."""
    for block in _BLOCKS:
        source.seek(place)
        content = source.read(min(block, end - place)) or b""
        try:
            fields, length = structure(content, 0, wanted=_HEADER)
        except (LookupError, ValueError):
            if block == _BLOCKS[-1] or len(content) < block:
                raise
        else:
            return fields, place + length
    raise AssertionError


def _size(fields: dict[int, Field], number: int) -> int:
    found = number_of(fields, number)
    if found is None or found < 0:
        raise ValueError(f"field {number} is {found}")
    return found

"""Find the bytes of a Parquet file that a checksum covers: the bodies of pages with a CRC-32.

The headers of pages and the footer have no checksum. Headers are structures in Thrift's compact
protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import io
from collections.abc import Iterator

import pyarrow.parquet as pq

_PACKED_SIZE, _CRC = 3, 4
"""Field numbers of a page header."""

_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _STRUCT = {1, 2}, 3, {4, 5, 6}, 7, 8, 12


def covered(content: bytes) -> list[tuple[int, int]]:
    """Return start and end of each page body that has a checksum."""
    metadata = pq.read_metadata(io.BytesIO(content))
    found: list[tuple[int, int]] = []
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found.extend(_bodies(content, start, start + chunk.total_compressed_size))
    return found


def _bodies(content: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        fields, body = _structure(content, start)
        start = body + fields[_PACKED_SIZE]
        if _CRC in fields:
            yield body, start


def _structure(content: bytes, place: int) -> tuple[dict[int, int], int]:
    """Return the integers of a structure in a valid file, and the position after it."""
    fields: dict[int, int] = {}
    number = 0
    while content[place]:
        number, kind, place = number + (content[place] >> 4), content[place] & 15, place + 1
        if kind in _NUMBERS:
            value, place = _varint(content, place)
            fields[number] = value >> 1 ^ -(value & 1)
        elif kind == _STRUCT:
            _, place = _structure(content, place)
        elif kind == _BINARY:
            size, place = _varint(content, place)
            place += size
        elif kind in {_BYTE, _DOUBLE}:
            place += 1 if kind == _BYTE else 8
        else:
            assert kind in _BOOLEANS, f"page headers have no field of type {kind}"
    return fields, place + 1


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while content[place] > 0x7F:
        value |= (content[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | content[place] << shift, place + 1

"""Which bytes of a Parquet file a checksum covers: the bodies of pages that say their CRC-32.

Page headers are Thrift's compact protocol; only what is needed of it is read here. Nothing covers
the headers themselves, nor the footer.
"""

import io
from collections.abc import Iterator

import pyarrow.parquet as pq

_PACKED_SIZE, _CRC = 3, 4
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12


def covered(content: bytes) -> list[tuple[int, int]]:
    """Return first and last + 1 of each page body that has a checksum."""
    metadata = pq.read_metadata(io.BytesIO(content))
    found = []
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found.extend(_bodies(content, start, start + chunk.total_compressed_size))
    return found


def _bodies(content: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        fields, body = _header(content, start)
        if _CRC in fields:
            yield body, body + fields[_PACKED_SIZE]
        start = body + fields[_PACKED_SIZE]


def _header(content: bytes, start: int) -> tuple[dict[int, int], int]:
    """Return the whole numbers at the top of a structure, and the place after it."""
    fields: dict[int, int] = {}
    number, place = 0, start
    while content[place]:
        kind, step = content[place] & 15, content[place] >> 4
        place += 1
        if step:
            number += step
        else:
            raw, place = _varint(content, place)
            number = raw >> 1 ^ -(raw & 1)
        value, place = _value(content, place, kind)
        if value is not None:
            fields[number] = value
    return fields, place + 1


def _value(content: bytes, place: int, kind: int) -> tuple[int | None, int]:
    if kind in {1, 2}:  # a truth value, which is its own kind
        return None, place
    if kind == 3:
        return content[place], place + 1
    if kind in {4, 5, 6}:
        raw, place = _varint(content, place)
        return raw >> 1 ^ -(raw & 1), place
    if kind == 7:
        return None, place + 8
    if kind == _BINARY:
        size, place = _varint(content, place)
        return None, place + size
    if kind == _STRUCT:
        return None, _header(content, place)[1]
    if kind in {_LIST, _SET}:
        size, inner = content[place] >> 4, content[place] & 15
        place += 1
        if size == 15:
            size, place = _varint(content, place)
        for _ in range(size):
            place = place + 1 if inner in {1, 2} else _value(content, place, inner)[1]
        return None, place
    raise ValueError(f"kind {kind} at {place}")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place

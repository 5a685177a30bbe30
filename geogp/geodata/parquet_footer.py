"""The footer of a Parquet file, read by itself before pyarrow reads it.

pyarrow ends the process where the footer gives a column chunk another type than the schema does
(its statistics are then of no type they can be). So the types are compared here first. The footer
is a structure in Thrift's compact protocol (https://parquet.apache.org/docs/file-format/metadata).
"""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa

MOST_FOOTER_BYTES = 64 << 20
"""A footer that says to be longer is refused unread."""

_MAGIC = b"PAR1"

_DEEPEST = 16
"""Structures within structures; a footer has six."""

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

# Numbers of fields: of the footer, an element of its schema, a row group, a chunk, its metadata.
_SCHEMA, _GROUPS = 2, 4
_TYPE, _CHILDREN = 1, 5
_COLUMNS = 1
_METADATA = 3
_CHUNK_TYPE = 1

Structure = dict[int, Any]
"""Values by number of field: whole numbers, structures, lists; None for what is of no use here."""


def check_types(source: Path | io.RawIOBase) -> None:
    """Refuse a file whose chunks have other types than its schema.

    Parameters
    ----------
    source
        The file, or where it is; a file object is left at its beginning.

    Raises
    ------
    pyarrow.ArrowInvalid
        The types differ, or the footer is damaged.
    OSError
        The file cannot be read.
    """
    if isinstance(source, Path):
        with source.open("rb", buffering=0) as stream:
            content = _footer(stream)
    else:
        content = _footer(source)
        source.seek(0)
    try:
        footer, _ = structure(content, 0)
        elements = footer[_SCHEMA]
        leaves = [one[_TYPE] for one in elements if not one.get(_CHILDREN) and _TYPE in one]
        chunks = [
            [chunk[_METADATA][_CHUNK_TYPE] for chunk in group[_COLUMNS]]
            for group in footer.get(_GROUPS, [])
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise pa.ArrowInvalid(f"the footer is damaged: {error}") from error
    if any(types != leaves for types in chunks):
        raise pa.ArrowInvalid("the types of its columns are not those of its schema")


def _footer(stream: io.RawIOBase) -> bytes:
    size = stream.seek(0, io.SEEK_END)
    if size < 12:
        raise pa.ArrowInvalid(f"it has {size} bytes")
    tail = _read(stream, size - 8, 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > min(size - 12, MOST_FOOTER_BYTES):
        raise pa.ArrowInvalid(f"it does not end with a footer of at most {MOST_FOOTER_BYTES} bytes")
    return _read(stream, size - 8 - length, length)


def _read(stream: io.RawIOBase, place: int, length: int) -> bytes:
    stream.seek(place)
    parts = []
    while length:
        part = stream.read(length)
        if not part:
            raise pa.ArrowInvalid("it ends too early")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def structure(content: bytes, place: int, deep: int = 0) -> tuple[Structure, int]:
    """Read a structure of Thrift's compact protocol.

    Parameters
    ----------
    content, place
        Where it begins.
    deep
        Structures around it.

    Returns
    -------
    (Structure, int)
        Its values, and the place after it.

    Raises
    ------
    LookupError, ValueError
        There is none.
    """
    if deep > _DEEPEST:
        raise ValueError("it is nested too deeply")
    fields: Structure = {}
    number = 0
    while content[place]:
        kind, step = content[place] & 15, content[place] >> 4
        place += 1
        if step:
            number += step
        else:
            number, place = _signed(content, place)
        if kind in {_TRUE, _FALSE}:
            fields[number] = kind == _TRUE
        else:
            fields[number], place = _value(content, place, kind, deep)
    return fields, place + 1


def _value(content: bytes, place: int, kind: int, deep: int) -> tuple[Any, int]:
    """Return a value and the place after it."""
    if kind in {_LIST, _SET}:
        return _values(content, place, deep)
    if kind == _STRUCT:
        return structure(content, place, deep + 1)
    if kind in {4, 5, 6}:  # whole numbers of 16, 32 and 64 bits
        return _signed(content, place)
    if kind == _BINARY:
        size, place = _unsigned(content, place)
        return None, _within(content, place + size)
    widths = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}
    if kind not in widths:
        raise ValueError(f"type {kind} is unknown")
    return None, _within(content, place + widths[kind])


def _values(content: bytes, place: int, deep: int) -> tuple[list[Any], int]:
    size, kind = content[place] >> 4, content[place] & 15
    place += 1
    if size == 15:
        size, place = _unsigned(content, place)
    if size > len(content) - place:
        raise ValueError(f"a list of {size} is longer than the footer")
    values = []
    for _ in range(size):
        value, place = _value(content, place, kind, deep)
        values.append(value)
    return values, place


def _signed(content: bytes, place: int) -> tuple[int, int]:
    value, place = _unsigned(content, place)
    return value >> 1 ^ -(value & 1), place


def _unsigned(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number has more than 64 bits")


def _within(content: bytes, place: int) -> int:
    if place > len(content):
        raise ValueError("it ends too early")
    return place

"""The footer of a Parquet file, read by itself before pyarrow reads it.

pyarrow ends the process where the footer gives a column chunk another type than the schema does, or
statistics that such a chunk cannot have, or says that it is encrypted. So these are compared here
first. The footer is a structure in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/metadata).
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

MOST_FOOTER_BYTES = 64 << 20
"""A footer that says to be longer is refused unread."""

_MAGIC = b"PAR1"

_DEEPEST = 24
"""Structures and lists within each other; a footer has some ten."""

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE = 1, 2, 3, 4, 5, 6, 7
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12

# Numbers of fields: of the footer, an element of its schema, a row group, a chunk, its metadata.
_SCHEMA, _GROUPS = 2, 4
_TYPE, _REPETITION, _CHILDREN = 1, 3, 5
_COLUMNS = 1
_METADATA, _SECRETS = 3, frozenset({8, 9})
_CHUNK_TYPE, _SIZES = 1, 16
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3

_OPTIONAL, _REPEATED = 1, 2
"""Repetitions of an element."""

_BYTES = 6
"""The type of text and bytes."""


@dataclass(frozen=True)
class Field:
    """A field of a structure, or an element of a list.

    Attributes
    ----------
    kind
        Its type in the protocol. Readers pass over a field of another type than they expect, so
        that it is none to them.
    value
        A whole number, a structure or a list; None for what is of no use here.
    """

    kind: int
    value: Any


_Structure = dict[int, Field]
"""Fields by number."""


def check_types(source: Path | BinaryIO | io.RawIOBase) -> None:
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
        leaves = _leaves(_structures(footer, _SCHEMA))
        groups = [_structures(group, _COLUMNS) for group in _structures(footer, _GROUPS)]
        alike = all(
            len(chunks) == len(leaves) and all(map(_fits, chunks, leaves)) for chunks in groups
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise pa.ArrowInvalid(f"the footer is damaged: {error}") from error
    if not alike:
        raise pa.ArrowInvalid("the types of its columns are not those of its schema")


@dataclass(frozen=True)
class _Leaf:
    """A column of the schema: its type, and the greatest levels of its values."""

    kind: int
    repetition: int
    definition: int


def _leaves(elements: list[_Structure]) -> list[_Leaf]:
    """Return the columns of a schema, whose elements come depth first."""
    leaves: list[_Leaf] = []
    above = [(_number(elements[0], _CHILDREN) or 0, 0, 0)]  # children to come, and levels
    for element in elements[1:]:
        while above[-1][0] == 0:
            above.pop()
        left, repetition, definition = above[-1]
        above[-1] = (left - 1, repetition, definition)
        how = _number(element, _REPETITION)
        repetition += how == _REPEATED
        definition += how in {_OPTIONAL, _REPEATED}
        children = _number(element, _CHILDREN)
        if children:
            above.append((children, repetition, definition))
        else:
            leaves.append(_Leaf(element[_TYPE].value, repetition, definition))
    return leaves


def _fits(chunk: _Structure, leaf: _Leaf) -> bool:
    """Tell whether a chunk can be of a column."""
    metadata = _held(chunk, _METADATA, _STRUCT)
    sizes = _held(metadata, _SIZES, _STRUCT) or {}
    lengths = [len(_held(sizes, number, _LIST) or []) for number in (_REPETITIONS, _DEFINITIONS)]
    return (
        not _SECRETS & set(chunk)
        and _number(metadata, _CHUNK_TYPE) == leaf.kind
        and (_TEXT_BYTES not in sizes or leaf.kind == _BYTES)
        and lengths[0] in {0, leaf.repetition + 1}
        and lengths[1] in {0, leaf.definition + 1}
    )


def _held(fields: _Structure, number: int, kind: int) -> Any:
    """Return the value of a field; None where there is none.

    Raises
    ------
    ValueError
        It is of another type.
    """
    found = fields.get(number)
    if found is None:
        return None
    if found.kind != kind:
        raise ValueError(f"field {number} has the type {found.kind}, expected {kind}")
    return found.value


def _number(fields: _Structure, number: int) -> int | None:
    value: int | None = _held(fields, number, _INT)
    return value


def _structures(fields: _Structure, number: int) -> list[_Structure]:
    """Return a list of structures; empty where there is none."""
    found = _held(fields, number, _LIST) or []
    if any(one.kind != _STRUCT for one in found):
        raise ValueError(f"field {number} is no list of structures")
    return [one.value for one in found]


def _footer(stream: BinaryIO | io.RawIOBase) -> bytes:
    size = stream.seek(0, io.SEEK_END)
    if size < 12:
        raise pa.ArrowInvalid(f"it has {size} bytes")
    tail = _read(stream, size - 8, 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > min(size - 12, MOST_FOOTER_BYTES):
        raise pa.ArrowInvalid(f"it does not end with a footer of at most {MOST_FOOTER_BYTES} bytes")
    return _read(stream, size - 8 - length, length)


def _read(stream: BinaryIO | io.RawIOBase, place: int, length: int) -> bytes:
    stream.seek(place)
    parts = []
    while length:
        part = stream.read(length)
        if not part:
            raise pa.ArrowInvalid("it ends too early")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def structure(content: bytes, place: int, deep: int = 0) -> tuple[_Structure, int]:
    """Read a structure of Thrift's compact protocol.

    Parameters
    ----------
    content, place
        Where it begins.
    deep
        Structures around it.

    Returns
    -------
    (dict of int to Field, int)
        Its fields, and the place after it.

    Raises
    ------
    LookupError, ValueError
        There is none.
    """
    if deep > _DEEPEST:
        raise ValueError("it is nested too deeply")
    fields: _Structure = {}
    number = 0
    while content[place]:
        kind, step = content[place] & 15, content[place] >> 4
        place += 1
        if step:
            number += step
        else:
            number, place = _signed(content, place)
        value = None
        if kind not in {_TRUE, _FALSE}:  # which have no bytes of their own
            value, place = _value(content, place, kind, deep)
        if number in fields:
            raise ValueError(f"field {number} comes twice")
        fields[number] = Field(kind, value)
    return fields, place + 1


def _value(content: bytes, place: int, kind: int, deep: int) -> tuple[Any, int]:
    """Return a value and the place after it."""
    if kind in {_LIST, _SET}:
        return _values(content, place, deep)
    if kind == _STRUCT:
        return structure(content, place, deep + 1)
    if kind in {_SHORT, _INT, _LONG}:
        return _signed(content, place)
    if kind == _BINARY:
        size, place = _unsigned(content, place)
        return None, _within(content, place + size)
    widths = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}
    if kind not in widths:
        raise ValueError(f"type {kind} is unknown")
    return None, _within(content, place + widths[kind])


def _values(content: bytes, place: int, deep: int) -> tuple[list[Field], int]:
    size, kind = content[place] >> 4, content[place] & 15
    place += 1
    if size == 15:
        size, place = _unsigned(content, place)
    if size > len(content) - place:
        raise ValueError(f"a list of {size} is longer than the footer")
    values = []
    for _ in range(size):
        value, place = _value(content, place, kind, deep + 1)
        values.append(Field(kind, value))
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

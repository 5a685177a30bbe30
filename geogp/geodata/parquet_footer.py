"""The footer of a Parquet file, read by itself before pyarrow reads it.

pyarrow ends the process where the footer gives a column chunk another type than the schema does, or
statistics that such a chunk cannot have, or says that it is encrypted. So these are compared here
first. The footer is a structure in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/metadata).
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

MOST_FOOTER_BYTES = 8 << 20
"""A footer that says to be longer is refused unread. A chunk takes some 170 bytes of it: there is
room for four thousand row groups of eleven columns."""

_MAGIC = b"PAR1"

_DEEPEST = 24
"""Structures and lists within each other; a footer has some ten."""

_MOST_ELEMENTS = 1 << 15
"""Elements of a schema: its columns, and what holds them."""

_CHUNK_BYTES = 21
"""No chunk takes less of a footer: the fields that each must have."""

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE = 1, 2, 3, 4, 5, 6, 7
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12

_NUMBERS = frozenset({_SHORT, _INT, _LONG})

_WIDTHS = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}
"""Bytes of an element of a list."""

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

Wanted = Mapping[int, "Wanted | None"]
"""Numbers of the fields of a structure that are wanted, and of those within them; None for all."""

_ELEMENT: Wanted = {_TYPE: {}, _REPETITION: {}, _CHILDREN: {}}

_CHUNK: Wanted = {
    _METADATA: {
        _CHUNK_TYPE: {},
        _SIZES: {_TEXT_BYTES: {}, _REPETITIONS: {}, _DEFINITIONS: {}},
    },
    **{number: {} for number in _SECRETS},
}


@dataclass(frozen=True, slots=True)
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
        alike = _alike(content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise pa.ArrowInvalid(f"the footer is damaged: {error}") from error
    if not alike:
        raise pa.ArrowInvalid("the types of its columns are not those of its schema")


def _alike(content: bytes) -> bool:
    """Tell whether all chunks can be of their columns; they are read one by one.

    Raises
    ------
    LookupError, ValueError
        The footer is damaged, or has its schema after the row groups, as no writer puts it.
    """
    leaves: list[_Leaf] | None = None
    seen, number, place = set(), 0, 0
    while content[place]:
        number, kind, place = _head(content, place, number)
        if number in seen:
            raise ValueError(f"field {number} comes twice")
        seen.add(number)
        if number == _SCHEMA:
            size, place = _structures(content, place, kind)
            if size > _MOST_ELEMENTS:
                raise ValueError(f"a schema of {size} elements")
            elements = []
            for _ in range(size):
                element, place = structure(content, place, 1, _ELEMENT)
                elements.append(element)
            leaves = _leaves(elements)
        elif number == _GROUPS:
            if leaves is None:
                raise ValueError("it has row groups before a schema")
            size, place = _structures(content, place, kind)
            for _ in range(size):
                alike, place = _group(content, place, leaves)
                if not alike:
                    return False
        else:
            place = _passed(content, place, kind, 0)
    return True


def _group(content: bytes, place: int, leaves: "list[_Leaf]") -> tuple[bool, int]:
    """Tell whether a row group has the chunks of the columns, and the place after it."""
    number, found = 0, False
    while content[place]:
        number, kind, place = _head(content, place, number)
        if number != _COLUMNS:
            place = _passed(content, place, kind, 2)
            continue
        if found:
            raise ValueError(f"field {number} comes twice")
        found = True
        size, place = _structures(content, place, kind)
        if size != len(leaves):
            return False, place
        if size * _CHUNK_BYTES > len(content) - place:
            raise ValueError(f"{size} chunks are more than it has room for")
        for leaf in leaves:
            start = place
            chunk, place = structure(content, start, 3, _CHUNK)
            if not _fits(chunk, leaf):
                return False, place
            if place - start < _CHUNK_BYTES:
                raise ValueError(f"a chunk of {place - start} bytes")
    return found or not leaves, place + 1


@dataclass(frozen=True)
class _Leaf:
    """A column of the schema: its type, and the greatest levels of its values."""

    kind: int
    repetition: int
    definition: int


def _leaves(elements: list[_Structure]) -> list[_Leaf]:
    """Return the columns of a schema, whose elements come depth first."""
    leaves: list[_Leaf] = []
    above = [(number_of(elements[0], _CHILDREN) or 0, 0, 0)]  # children to come, and levels
    for element in elements[1:]:
        while above[-1][0] == 0:
            above.pop()
        left, repetition, definition = above[-1]
        above[-1] = (left - 1, repetition, definition)
        how = number_of(element, _REPETITION)
        repetition += how == _REPEATED
        definition += how in {_OPTIONAL, _REPEATED}
        children = number_of(element, _CHILDREN)
        if children:
            above.append((children, repetition, definition))
        else:
            kind = number_of(element, _TYPE)
            if kind is None:
                raise ValueError("a column has no type")
            leaves.append(_Leaf(kind, repetition, definition))
    return leaves


def _fits(chunk: _Structure, leaf: _Leaf) -> bool:
    """Tell whether a chunk can be of a column."""
    metadata = structure_of(chunk, _METADATA)
    if not _SECRETS.isdisjoint(chunk) or number_of(metadata, _CHUNK_TYPE) != leaf.kind:
        return False
    sizes = structure_of(metadata, _SIZES)
    if not sizes:
        return True
    lengths = [len(_held(sizes, number, _LIST) or ()) for number in (_REPETITIONS, _DEFINITIONS)]
    return (
        (_TEXT_BYTES not in sizes or leaf.kind == _BYTES)
        and lengths[0] in {0, leaf.repetition + 1}
        and lengths[1] in {0, leaf.definition + 1}
    )


def _held(fields: Mapping[int, Field], number: int, kind: int) -> Any:
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


def number_of(fields: Mapping[int, Field], number: int) -> int | None:
    """Return the whole number of a field, of 32 bits; None where there is none.

    Raises
    ------
    ValueError
        It is of another type, or larger.
    """
    value: int | None = _held(fields, number, _INT)
    if value is not None and not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"field {number} has more than 32 bits")
    return value


def structure_of(fields: Mapping[int, Field], number: int) -> dict[int, Field]:
    """Return the structure of a field; an empty one where there is none.

    Raises
    ------
    ValueError
        It is of another type.
    """
    found: dict[int, Field] | None = _held(fields, number, _STRUCT)
    return found or {}


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


def structure(
    content: bytes, place: int, deep: int = 0, wanted: Wanted | None = None
) -> tuple[_Structure, int]:
    """Read a structure of Thrift's compact protocol.

    Parameters
    ----------
    content, place
        Where it begins.
    deep
        Structures around it.
    wanted
        Fields that are kept, each of which may come once; None keeps all. The others are passed
        over, and nothing is made for them.

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
        number, kind, place = _head(content, place, number)
        if wanted is not None and number not in wanted:
            if _SHORT <= kind <= _LONG:
                while content[place] > 0x7F:
                    place += 1
                place += 1
            elif kind > _FALSE or not kind:
                place = _passed(content, place, kind, deep)
            continue
        value = None
        if kind not in {_TRUE, _FALSE}:  # which have no bytes of their own
            inner = None if wanted is None else wanted[number]
            value, place = _value(content, place, kind, deep, inner)
        if number in fields:
            raise ValueError(f"field {number} comes twice")
        fields[number] = Field(kind, value)
    return fields, place + 1


def _head(content: bytes, place: int, number: int) -> tuple[int, int, int]:
    """Return the number of a field after another, its type, and the place of its value."""
    byte = content[place]
    place += 1
    if byte > 0x0F:
        number += byte >> 4
    else:
        number, place = _signed(content, place)
    if not 0 <= number < 1 << 15:  # readers in C++ take other numbers for smaller ones
        raise ValueError(f"a field has the number {number}")
    return number, byte & 15, place


def _value(
    content: bytes, place: int, kind: int, deep: int, wanted: Wanted | None
) -> tuple[Any, int]:
    """Return a value and the place after it."""
    if kind in {_LIST, _SET}:
        size, kind, place = _list_head(content, place)
        if wanted is not None and kind != _STRUCT:  # its length is all that is of use
            return range(size), _elements_passed(content, place, kind, size, deep)
        values = []
        for _ in range(size):
            value, place = _value(content, place, kind, deep + 1, wanted)
            values.append(Field(kind, value))
        return values, place
    if kind == _STRUCT:
        return structure(content, place, deep + 1, wanted)
    if kind in _NUMBERS:
        return _signed(content, place)
    if kind in _WIDTHS:
        return None, _within(content, place + _WIDTHS[kind])
    return None, _passed(content, place, kind, deep)


def _passed(content: bytes, place: int, kind: int, deep: int) -> int:
    """Return the place after the value of a field, of which nothing is made."""
    if kind in _NUMBERS:
        while content[place] > 0x7F:
            place += 1
        return place + 1
    if kind == _BINARY:
        size = content[place]
        place += 1
        if size > 0x7F:
            size, place = _unsigned(content, place - 1)
        return _within(content, place + size)
    if kind == _STRUCT:
        return _structure_passed(content, place, deep + 1)
    if kind in {_LIST, _SET}:
        size, kind, place = _list_head(content, place)
        return _elements_passed(content, place, kind, size, deep + 1) if size else place
    if kind not in _WIDTHS:
        raise ValueError(f"type {kind} is unknown")
    return place if kind <= _FALSE else _within(content, place + _WIDTHS[kind])


def _structure_passed(content: bytes, place: int, deep: int) -> int:
    if deep > _DEEPEST:
        raise ValueError("it is nested too deeply")
    while byte := content[place]:
        place += 1
        if byte < 0x10:  # its number follows
            while content[place] > 0x7F:
                place += 1
            place += 1
        kind = byte & 15
        if _SHORT <= kind <= _LONG:
            while content[place] > 0x7F:
                place += 1
            place += 1
        elif kind > _FALSE or not kind:
            place = _passed(content, place, kind, deep)
    return place + 1


def _elements_passed(content: bytes, place: int, kind: int, size: int, deep: int) -> int:
    """Return the place after the elements of a list, which are no lists in any footer."""
    if kind in _WIDTHS:
        return _within(content, place + size * _WIDTHS[kind])
    if kind in _NUMBERS:
        return _numbers_passed(content, place, size)
    if kind not in {_STRUCT, _BINARY}:
        raise ValueError(f"a list has elements of type {kind}")
    for _ in range(size):
        place = _passed(content, place, kind, deep) if content[place] else place + 1
    return place


def _numbers_passed(content: bytes, place: int, size: int) -> int:
    """Return the place after so many numbers, whose last bytes alone are below 128."""
    while size:
        part = np.frombuffer(content, np.uint8, min(len(content) - place, 1 << 13), place)
        ends = np.flatnonzero(part < 0x80)[:size]
        if not len(ends):
            raise ValueError("it ends too early, or a number has more than 64 bits")
        size -= len(ends)
        place += int(ends[-1]) + 1
    return place


def _list_head(content: bytes, place: int) -> tuple[int, int, int]:
    """Return the length of a list, the type of its elements, and the place of the first."""
    size, kind = content[place] >> 4, content[place] & 15
    place += 1
    if size == 15:
        size, place = _unsigned(content, place)
    if size > len(content) - place:
        raise ValueError(f"a list of {size} is longer than the footer")
    return size, kind, place


def _structures(content: bytes, place: int, kind: int) -> tuple[int, int]:
    """Return the length of a list of structures, and the place of the first."""
    if kind != _LIST:
        raise ValueError(f"a field has the type {kind}, expected {_LIST}")
    size, kind, place = _list_head(content, place)
    if size and kind != _STRUCT:
        raise ValueError(f"a list has elements of type {kind}, expected {_STRUCT}")
    return size, place


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

"""Thrift's compact protocol, in which the footers and page headers of Parquet files are written.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_DEEPEST = 24
"""Structures and lists within each other; a footer has some ten."""

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE = 1, 2, 3, 4, 5, 6, 7
_BINARY, LIST, _SET, _STRUCT = 8, 9, 10, 12

_NUMBERS = frozenset({_SHORT, _INT, _LONG})

_WIDTHS = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}
"""Bytes of an element of a list."""

Wanted = Mapping[int, "Wanted | None"]
"""Numbers of the fields of a structure that are wanted, and of those within them; None for all."""


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


Structure = dict[int, Field]
"""Fields by number."""


def number_of(fields: Mapping[int, Field], number: int) -> int | None:
    """Return the whole number of a field, of 32 bits; None where there is none.

    Raises
    ------
    ValueError
        It is of another type, or larger.
    """
    value: int | None = held(fields, number, _INT)
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
    found: dict[int, Field] | None = held(fields, number, _STRUCT)
    return found or {}


def held(fields: Mapping[int, Field], number: int, kind: int) -> Any:
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


def structure(
    content: bytes, place: int, deep: int = 0, wanted: Wanted | None = None
) -> tuple[Structure, int]:
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
    fields: Structure = {}
    number = 0
    while content[place]:
        number, kind, place = head(content, place, number)
        if wanted is not None and number not in wanted:
            if _SHORT <= kind <= _LONG:
                while content[place] > 0x7F:
                    place += 1
                place += 1
            elif kind > _FALSE or not kind:
                place = passed(content, place, kind, deep)
            continue
        value = None
        if kind not in {_TRUE, _FALSE}:  # which have no bytes of their own
            inner = None if wanted is None else wanted[number]
            value, place = _value(content, place, kind, deep, inner)
        if number in fields:
            raise ValueError(f"field {number} comes twice")
        fields[number] = Field(kind, value)
    return fields, place + 1


def head(content: bytes, place: int, number: int) -> tuple[int, int, int]:
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
    if kind in {LIST, _SET}:
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
    return None, passed(content, place, kind, deep)


def passed(content: bytes, place: int, kind: int, deep: int) -> int:
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
    if kind in {LIST, _SET}:
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
            place = passed(content, place, kind, deep)
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
        place = passed(content, place, kind, deep) if content[place] else place + 1
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


def structures(content: bytes, place: int, kind: int) -> tuple[int, int]:
    """Return the length of a list of structures, and the place of the first."""
    if kind != LIST:
        raise ValueError(f"a field has the type {kind}, expected {LIST}")
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

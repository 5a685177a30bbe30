"""The footer of a Parquet file, read by itself before pyarrow reads it.

pyarrow ends the process where the footer gives a column chunk another type than the schema does, or
statistics that such a chunk cannot have, or says that it is encrypted. So these are compared here
first. The footer is a structure in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/metadata).
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from geogp.geodata.tiles.thrift import (
    LIST,
    Structure,
    Wanted,
    head,
    held,
    number_of,
    passed,
    structure,
    structure_of,
    structures,
)

MOST_FOOTER_BYTES = 8 << 20
"""A footer that says to be longer is refused unread. A chunk takes some 170 bytes of it: there is
room for four thousand row groups of eleven columns."""

_MAGIC = b"PAR1"

_MOST_ELEMENTS = 1 << 15
"""Elements of a schema: its columns, and what holds them."""

_CHUNK_BYTES = 21
"""No chunk takes less of a footer: the fields that each must have."""

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

_ELEMENT: Wanted = {_TYPE: {}, _REPETITION: {}, _CHILDREN: {}}

_CHUNK: Wanted = {
    _METADATA: {
        _CHUNK_TYPE: {},
        _SIZES: {_TEXT_BYTES: {}, _REPETITIONS: {}, _DEFINITIONS: {}},
    },
    **{number: {} for number in _SECRETS},
}


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
        number, kind, place = head(content, place, number)
        if number in seen:
            raise ValueError(f"field {number} comes twice")
        seen.add(number)
        if number == _SCHEMA:
            size, place = structures(content, place, kind)
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
            size, place = structures(content, place, kind)
            for _ in range(size):
                alike, place = _group(content, place, leaves)
                if not alike:
                    return False
        else:
            place = passed(content, place, kind, 0)
    return True


def _group(content: bytes, place: int, leaves: "list[_Leaf]") -> tuple[bool, int]:
    """Tell whether a row group has the chunks of the columns, and the place after it."""
    number, found = 0, False
    while content[place]:
        number, kind, place = head(content, place, number)
        if number != _COLUMNS:
            place = passed(content, place, kind, 2)
            continue
        if found:
            raise ValueError(f"field {number} comes twice")
        found = True
        size, place = structures(content, place, kind)
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


def _leaves(elements: list[Structure]) -> list[_Leaf]:
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


def _fits(chunk: Structure, leaf: _Leaf) -> bool:
    """Tell whether a chunk can be of a column."""
    metadata = structure_of(chunk, _METADATA)
    if not _SECRETS.isdisjoint(chunk) or number_of(metadata, _CHUNK_TYPE) != leaf.kind:
        return False
    sizes = structure_of(metadata, _SIZES)
    if not sizes:
        return True
    lengths = [len(held(sizes, number, LIST) or ()) for number in (_REPETITIONS, _DEFINITIONS)]
    return (
        (_TEXT_BYTES not in sizes or leaf.kind == _BYTES)
        and lengths[0] in {0, leaf.repetition + 1}
        and lengths[1] in {0, leaf.definition + 1}
    )


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

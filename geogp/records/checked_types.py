"""Converts JSON to typed structs, with error messages that name the path of a wrong value."""

import dataclasses
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

from geogp.errors import DataError
from geogp.evaluation.scores import LARGEST, LARGEST_WHOLE

Found = TypeVar("Found")

_SHOWN = 60


def checked(value: Any, kind: type[Found], whole: str) -> Found:
    """Return parsed JSON as a struct of type `kind`; `whole` names the JSON in error messages.

    Raises DataError, with the path, the expected and the found value, if a value is wrong.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DataError(_reason(value, kind, "", whole) or f"{whole}: {error}.") from error


def _reason(value: Any, kind: Any, place: str, whole: str = "") -> str | None:
    """Return the reason why a value is not of type `kind`; None if the type is right.

    The messages of msgspec are not used, because their paths leave out the keys of mappings.
    """
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    else:
        return None
    parts = _parts(value, kind)
    if parts is None:
        return f"expected {_told(kind)} under {place}, found {str(value)[:_SHOWN]!r}."
    lacking = _lacking(value, kind)
    if lacking:
        return f"{place or whole} lacks {', '.join(lacking)}."
    for end, one, needed in parts:
        reason = _reason(one, needed, f"{place}{end}".removeprefix("."))
        if reason is not None:
            return reason
    return None


def _parts(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return path, value and type of each entry; None if `value` has no entries or a wrong type."""
    bare, metas = _bare(kind)
    origin = get_origin(bare)
    if isinstance(value, dict) and origin is dict:
        keys, values = get_args(bare)
        named = [("", key, keys) for key in value]
        return iter(named + [(f".{key}", one, values) for key, one in value.items()])
    if isinstance(value, dict) and (fields := _fields(bare)):
        return ((f".{key}", value[key], kind) for key, kind, _ in fields if key in value)
    if isinstance(value, list) and origin is list and _fits(len(value), metas):
        (one,) = get_args(bare)
        return ((f"[{number}]", item, one) for number, item in enumerate(value))
    return None


def _lacking(value: Any, kind: Any) -> list[str]:
    bare, _ = _bare(kind)
    return [key for key, _, needed in _fields(bare) if needed and key not in value]


def _bare(kind: Any) -> tuple[Any, list[Meta]]:
    """Return a type without the alternatives None and UNSET; also return the limits of values."""
    metas: list[Meta] = []
    while True:
        if get_origin(kind) is Annotated:
            kind, *found = get_args(kind)
            metas += [one for one in found if isinstance(one, Meta)]
            continue
        if get_origin(kind) in {Union, types.UnionType}:
            held = [one for one in get_args(kind) if one not in {types.NoneType, UnsetType}]
            if len(held) == 1:
                kind = held[0]
                continue
        return kind, metas


def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Return, for each field of a struct, its name, its type, and whether a value is required."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return [(one.name, hints[one.name], True) for one in dataclasses.fields(kind)]
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    return [(one.encode_name, one.type, one.required) for one in msgspec.structs.fields(kind)]


def _fits(length: int, metas: list[Meta]) -> bool:
    return all(
        (one.min_length or 0) <= length and (one.max_length is None or length <= one.max_length)
        for one in metas
    )


def _told(kind: Any) -> str:
    """Return a type in words: its own description, if it has one."""
    bare, metas = _bare(kind)
    for one in metas:
        if one.description is not None:
            return one.description
    limits = metas[0] if metas else Meta()
    if bare in {int, float}:
        return f"a {'whole ' if bare is int else ''}number{_range(limits)}"
    if get_origin(bare) is Literal:
        return f"one of {', '.join(map(str, get_args(bare)))}"
    if get_origin(bare) is list:
        least, most = limits.min_length, limits.max_length
        return (
            f"a list of {least}{'' if least == most else ' or more'} entries" if least else "a list"
        )
    return {str: "text", bool: "true or false"}.get(bare, "an object")


def _range(limits: Meta) -> str:
    if limits.gt is not None:
        return f" above {limits.gt:g}"
    if limits.le is not None and limits.le not in {LARGEST, LARGEST_WHOLE}:
        return f" from {limits.ge:g} to {limits.le:g}"
    return "" if limits.ge in {None, -LARGEST} else f" of {limits.ge:g} or more"

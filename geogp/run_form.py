"""What run.json must look like where it is read, key by key; other keys may be there."""

import math
from collections.abc import Callable
from typing import Any

from geogp.errors import DataError

Check = Callable[[Any, str], None]
"""Refuses a value, whose place is given in words."""


def check_form(run: dict[str, Any]) -> None:
    """Refuse a run whose keys are of another form than geogp writes.

    Raises
    ------
    DataError
        A key is missing, or holds something else; the message names its place.
    """
    _run(run, "")


def check_again(run: dict[str, Any]) -> None:
    """Refuse a run that lacks what it is opened again by.

    Raises
    ------
    DataError
        The message names what is missing.
    """
    _again(run, "")


def _kind(told: str, right: Callable[[Any], bool]) -> Check:
    def check(value: Any, place: str) -> None:
        if not right(value):
            raise DataError(f"expected {told} under {place}, found {str(value)[:60]!r}.")

    return check


def _is_number(value: Any) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and -_MOST <= value <= _MOST and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


_MOST = 10**300

_LONGEST_NAME = 255
"""Bytes of a name in a path; systems raise at longer ones."""

_text = _kind("text", lambda value: isinstance(value, str) and "\0" not in value)
_place = _kind(
    "a path or an address",
    lambda value: (
        isinstance(value, str)
        and "\0" not in value
        and all(len(part.encode()) <= _LONGEST_NAME for part in value.split("/"))
    ),
)
_flag = _kind("true or false", lambda value: isinstance(value, bool))
_number = _kind("a number", _is_number)
_count = _kind("a whole number of 0 or more", _is_count)
_figure = _kind("a number or null", lambda value: value is None or _is_number(value))
_anything = _kind("anything", lambda _: True)


def _maybe(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:
        if value is not None:
            check(value, place)

    return checked


def _list(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise DataError(f"expected a list under {place}, found {str(value)[:60]!r}.")
        for number, one in enumerate(value):
            check(one, f"{place}[{number}]")

    return checked


def _each(check: Check) -> Check:
    """Check every value of an object, whatever its keys."""

    def checked(value: Any, place: str) -> None:
        for key, one in _object(value, place).items():
            check(one, f"{place}.{key}")

    return checked


def _keys(needed: dict[str, Check] | None = None, **known: Check) -> Check:
    """Check keys that must be there, and others where they are."""
    needed = needed or {}

    def checked(value: Any, place: str) -> None:
        held = _object(value, place)
        lacking = [key for key in needed if key not in held]
        if lacking:
            raise DataError(f"{place or 'the run'} lacks {', '.join(lacking)}.")
        for key, check in (needed | known).items():
            if key in held:
                check(held[key], f"{place}.{key}" if place else key)

    return checked


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"expected an object under {place}, found {str(value)[:60]!r}.")
    return value


def _pair_of_texts(value: Any, place: str) -> None:
    _list(_text)(value, place)
    if len(value) != 2:
        raise DataError(f"expected two texts under {place}, found {len(value)}.")


_FILE = {"name": _text, "sha256": _text, "rows": _count}

_figures = _each(_maybe(_each(_figure)))
"""Figures by stratum and name."""

_settings = _keys(
    source=_place,
    boundaries=_maybe(_place),
    inputs=_text,
    noise=_text,
    refit=_flag,
    splits=_list(_text),
    folds=_count,
    layers=_list(_place),
    conformal=_text,
    buffer_km=_number,
    region_file=_maybe(_place),
    region_name=_maybe(_text),
    urban_vintage=_maybe(_count),
    strata=_maybe(_pair_of_texts),
    strata_file=_maybe(_place),
)

_map = _keys(
    {"zoom": _count, "at": _text},
    quarter=_maybe(_text),
    tests=_maybe(_count),
    grid_sha256=_text,
    **{"for": _text},
)

_run = _keys(
    {
        "region": _text,
        "service": _text,
        "target": _text,
        "model": _text,
        "preset": _text,
        "metrics": _maybe(_each(_figures)),
    },
    region_name=_maybe(_text),
    geogp=_text,
    device=_text,
    attribution=_text,
    seed=_count,
    quarters=_list(_text),
    quarters_missing=_list(_text),
    quarters_unreached=_list(_text),
    baseline=_maybe(_each(_figures)),
    n=_each(_each(_count)),
    seconds=_each(_number),
    warnings=_list(_text),
    settings=_settings,
    map=_maybe(_keys(grid_sha256=_text)),
    drawing=_keys(thresholds=_list(_number), zoom=_count, far_km=_number),
    inputs=_list(_keys(_FILE)),
    folds=_each(_list(_keys(n=_each(_count), metrics=_figures, baseline=_maybe(_figures)))),
    files=_list(_text),
)

_REOPENED_BY = ("source", "boundaries", "inputs", "noise", "refit", "splits", "conformal")

_again = _keys(
    {
        "settings": _keys(dict.fromkeys(_REOPENED_BY, _anything)),
        "seed": _count,
        "quarters": _list(_text),
        "inputs": _list(_keys({"name": _text, "sha256": _text})),
        "map": _map,
    }
)

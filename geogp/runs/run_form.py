"""What run.json must hold where it is read, key by key; other keys may be there.

What geogp never writes is refused: another form, a name that it does not know, a value out of the
range that `geogp map` allows, and figures that contradict each other.
"""

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from geogp.choices import MOST_SEED
from geogp.errors import DataError
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.metrics import STORED_LEVELS
from geogp.evaluation.splits.row_parts import CALIBRATION, LEFT_OUT, PARTS
from geogp.evaluation.splits.split_names import MOST_FOLDS, SPLITS
from geogp.evaluation.stored_figures import check_figures
from geogp.geodata.places.census import URBAN_VINTAGES
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.targets import SERVICES, TARGETS
from geogp.geodata.tiles.thresholds import LEAST, MOST
from geogp.models.catalogue.model_names import MODELS
from geogp.models.catalogue.presets import PRESETS
from geogp.models.core.options import NOISES
from geogp.runs.question import COUNT
from geogp.runs.settings import INPUT_CHOICES, QUESTIONS

Check = Callable[[Any, str], None]
"""Refuses a value, whose place is given in words."""


def check_form(run: dict[str, Any]) -> None:
    """Refuse a run that geogp cannot have written.

    Raises
    ------
    DataError
        A key is missing, holds something else or is out of range, or figures contradict each
        other; the message names the place.
    """
    _run(run, "")
    if TARGETS[run["target"]].counted != MODELS[run["model"]].counts:
        raise DataError(f"the model {run['model']} does not predict the target {run['target']}.")
    check_figures(run)


def check_file(path: Path, run: dict[str, Any]) -> None:
    """Refuse what was read from a run.json; see `check_form`.

    Raises
    ------
    DataError
        The message names the file, and what to do.
    """
    try:
        check_form(run)
    except DataError as error:
        raise DataError(
            f"{path} is damaged: {error} Run `geogp map` again with --fresh."
        ) from error


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


_BEYOND = 10**100
"""No figure is so large: the square of one and sums of such are still numbers."""

_LONGEST_NAME = 255
"""Bytes of a name in a path; systems raise at longer ones."""


def _is_number(value: Any) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and -_BEYOND <= value <= _BEYOND and math.isfinite(value)


def _real(least: float = -_BEYOND, most: float = _BEYOND) -> Check:
    """Check a number, both ends included."""
    return _kind(
        f"a number{_range(least, most)}", lambda value: _is_number(value) and least <= value <= most
    )


def _whole(least: int = 0, most: int = _BEYOND) -> Check:
    """Check a whole number, both ends included."""
    return _kind(
        f"a whole number{_range(least, most)}",
        lambda value: _is_number(value) and isinstance(value, int) and least <= value <= most,
    )


def _range(least: float, most: float) -> str:
    if most < _BEYOND:
        return f" from {least:g} to {most:g}"
    return "" if least <= -_BEYOND else f" of {least:g} or more"


def _one_of(names: Iterable[str | int]) -> Check:
    allowed = list(names)
    told = f"one of {', '.join(map(str, allowed))}"
    return _kind(told, lambda value: not isinstance(value, float | bool) and value in allowed)


def _matches(told: str, pattern: str) -> Check:
    whole = re.compile(pattern)
    return _kind(told, lambda value: isinstance(value, str) and whole.fullmatch(value) is not None)


_text = _kind("text", lambda value: isinstance(value, str) and "\0" not in value)
_name = _kind(
    "a name", lambda value: isinstance(value, str) and "\0" not in value and bool(value.strip())
)
_place = _kind(
    "a path or an address",
    lambda value: (
        isinstance(value, str)
        and "\0" not in value
        and all(len(part.encode()) <= _LONGEST_NAME for part in value.split("/"))
    ),
)
_flag = _kind("true or false", lambda value: isinstance(value, bool))
_anything = _kind("anything", lambda _: True)
_above_0 = _kind("a number above 0", lambda value: _is_number(value) and value > 0)
_quarter = _matches("a quarter like 2019Q1", "[0-9]{4}Q[1-4]")
_hash = _matches("a SHA-256 of 64 digits", "[0-9a-f]{64}")
_model = _kind(
    "a model that `geogp models` lists",
    lambda value: isinstance(value, str) and value in MODELS,
)
_count, _some, _size, _share = _whole(), _whole(1), _real(0), _real(0, 1)


def _maybe(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:
        if value is not None:
            check(value, place)

    return checked


def _list(check: Check, least: int = 0, most: float = math.inf) -> Check:
    size = "" if not least else f" of {least}" if least == most else f" of {least} or more"

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise DataError(f"expected a list{size} under {place}, found {str(value)[:60]!r}.")
        for number, one in enumerate(value):
            check(one, f"{place}[{number}]")

    return checked


def _each(check: Check, keys: Check = _anything) -> Check:
    """Check every key and value of an object."""

    def checked(value: Any, place: str) -> None:
        for key, one in _object(value, place).items():
            keys(key, place)
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


def _by_split(check: Check) -> Check:
    return _each(check, _one_of(SPLITS))


_scores = _keys(
    {
        "n": _count,
        "nll": _maybe(_real()),
        **dict.fromkeys(("mae", "rmse", "crps", "width_95"), _maybe(_size)),
        **{f"coverage_{level}": _maybe(_share) for level in STORED_LEVELS},
    }
)
"""The fields of `Scores`."""

_strata = _each(_scores)

_parts = _keys(dict.fromkeys(PARTS, _count), **dict.fromkeys((CALIBRATION, LEFT_OUT), _count))

_question = {"for": _one_of((*QUESTIONS, COUNT)), "at": _quarter}

_zoom = _whole(1, ZOOM)

_settings = _keys(
    source=_place,
    boundaries=_maybe(_place),
    inputs=_one_of(INPUT_CHOICES[1:]),
    noise=_one_of(NOISES),
    refit=_flag,
    tune_weights=_flag,
    splits=_list(_one_of(SPLITS), 1),
    folds=_whole(1, MOST_FOLDS),
    h=_some,
    epochs=_some,
    batch=_some,
    learning_rate=_above_0,
    budget=_above_0,
    layers=_list(_place),
    conformal=_one_of(METHODS),
    buffer_km=_above_0,
    region_file=_maybe(_place),
    region_name=_maybe(_name),
    urban_vintage=_maybe(_one_of(URBAN_VINTAGES.values())),
    strata=_maybe(_list(_name, 2, 2)),
    strata_file=_maybe(_place),
)

_map = _keys(
    {},
    **_question,
    zoom=_zoom,
    quarter=_quarter,
    tests=_maybe(_some),
    tiles=_some,
    grid_sha256=_hash,
)

_cell = _keys(
    {
        "cell": _text,
        **dict.fromkeys(("calibration", "test"), _count),
        **dict.fromkeys(("level", "observed", "before"), _share),
        "band": _list(_share, 2, 2),
        "inside": _flag,
    }
)

_repaired = _keys({"statement": _text, "folds": _list(_keys({"n": _count, "cells": _list(_cell)}))})

_run = _keys(
    {
        "region": _name,
        "service": _one_of(SERVICES),
        "target": _one_of(TARGETS),
        "model": _model,
        "preset": _one_of(PRESETS),
        "metrics": _by_split(_strata),
    },
    region_name=_maybe(_name),
    geogp=_text,
    versions=_each(_text),
    device=_text,
    attribution=_text,
    seed=_whole(0, MOST_SEED),
    quarters=_list(_quarter, 1),
    quarters_missing=_list(_quarter),
    quarters_unreached=_list(_quarter),
    rows_left_out=_list(_keys({"file": _text, "quarter": _quarter, "rows": _count})),
    baseline=_by_split(_strata),
    n=_by_split(_parts),
    seconds=_each(_size),
    warnings=_list(_text),
    fit_warnings=_list(_text),
    settings=_settings,
    rank=_keys(r=_some),
    map=_map,
    drawing=_keys(
        {},
        **_question,
        thresholds=_list(_real(LEAST, MOST)),
        zoom=_zoom,
        far_km=_above_0,
        tests=_maybe(_some),
        quarters_beyond_data=_count,
    ),
    inputs=_list(_keys({"name": _text, "sha256": _hash, "rows": _count}, rows_used=_count)),
    folds=_by_split(_list(_keys({"n": _parts, "metrics": _strata, "baseline": _strata}), 1)),
    calibration=_keys(statements=_list(_text), splits=_by_split(_repaired)),
    files=_list(_text),
    file_records=_each(_keys({"bytes": _count, "sha256": _text}, modified_ns=_count)),
    threads=_maybe(_count),
)

_REOPENED_BY = ("source", "boundaries", "inputs", "noise", "refit", "splits", "conformal")

_again = _keys(
    {
        "settings": _keys(dict.fromkeys(_REOPENED_BY, _anything)),
        "map": _keys(dict.fromkeys(("zoom", "for", "at"), _anything)),
        "inputs": _list(_keys(dict.fromkeys(("name", "sha256"), _anything))),
        **dict.fromkeys(("seed", "quarters"), _anything),
    }
)

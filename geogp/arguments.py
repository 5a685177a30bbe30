"""Checks of the arguments of public functions: their kinds, by annotations, and numbers in arrays.

A kind is an annotation, such as ``int | None``. Annotations that this module does not know, such as
``Any`` and ``ArrayLike``, accept every value; the function itself then checks the value.
"""

import inspect
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, quoted

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

LARGEST = 1e30
"""Largest absolute value of a coordinate, a time or a measurement; squares of it are finite."""

ADVICE = {
    "sample_weight": "geogp has no weights of rows. A measurement that averages more tests has "
    "less noise: name the columns of tests and devices, as in FieldGP(tests='tests', "
    "devices='devices')",
    "return_std": "only predict of numbers has it. A predictive distribution has sd and interval; "
    "classes have no standard deviation, but predict_proba(X)",
    "return_cov": "predict returns no covariances. Use joint(X).weighted_sums(numpy.eye(len(X)))"
    ".covariance for the covariances of the level",
}
"""What to do instead of an argument that other libraries have."""

_SEQUENCES = (tuple, list, Sequence, Iterable)
_MAPPINGS = (dict, Mapping)


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def _is_number(value: object) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


_NONE = _Kind("None", lambda value: value is None)

_KINDS: dict[Any, _Kind] = {
    None: _NONE,
    types.NoneType: _NONE,
    bool: _Kind("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: _Kind("a whole number", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    float: _Kind("a number", _is_number),
    str: _Kind("text", _is_text),
    Path: _Kind("a path", lambda value: isinstance(value, os.PathLike) or _is_text(value)),
}
"""Simple kinds, with their words in messages, and whether a value fits."""


def checked_arguments(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return the function, which now raises RequestError if an argument is of a wrong kind."""
    signature = inspect.signature(function)
    kinds = {
        name: one.annotation
        for name, one in signature.parameters.items()
        if one.annotation is not inspect.Parameter.empty
        and one.kind is not inspect.Parameter.VAR_KEYWORD
    }

    @wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            for name in ADVICE.keys() & kwargs.keys() - kinds.keys():
                raise RequestError(f"{name}= is no argument: {ADVICE[name]}.") from None
            return function(*args, **kwargs)  # raises the usual TypeError
        for name, value in given.items():
            if name in kinds:
                check_kind(name, value, kinds[name])
        return function(*args, **kwargs)

    return checked


def check_kind(what: str, value: object, kind: Any) -> None:
    """Raise RequestError unless a value is of a kind; `what` names the value in the message."""
    if not fits(value, kind):
        raise RequestError(
            f"expected {what} as {_told(kind).rstrip(',')}, found {value_shown(value)}."
        )


def of_kind(what: str, value: Any, kind: Any) -> Any:
    """Return a value of a kind; raise the error of `check_kind`.

    For a tuple of any length, the value may also be a list, or a single entry. A path may be text.
    """
    value = value.item() if isinstance(value, np.generic) else value
    known = [part for part in alternatives(kind) if get_origin(part) is tuple]
    if known and value is not None:
        entry, *more = get_args(known[0])
        if more == [...]:
            value = (value,) if fits(value, entry) else value
            check_kind(what, value, kind)
            return tuple(of_kind(what, one, entry) for one in value)
    check_kind(what, value, kind)
    return Path(value) if isinstance(value, str) and alternatives(kind)[0] is Path else value


def value_shown(value: object) -> str:
    """Return a value as text for a message; see `quoted`."""
    if isinstance(value, str | int | float | complex | bytes | list | tuple | set | dict | None):
        return quoted(value)
    return f"a value of type {type(value).__name__}"


def numbers_of(values: object, what: str) -> NDArray[np.float64]:
    """Return real numbers as a float64 array of the same shape; infinities and NaN are kept.

    `what` names the values in the message. Raises DataError if a value is no real number, or is
    masked. Missing values of pandas and None become NaN.
    """
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise DataError(
            f"expected {what} without a mask, found {int(values.mask.sum())} masked values; drop "
            f"those rows."
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"expected {what} to be an array, found {error}.") from None
    if array.dtype.kind == "O":
        array = _of_objects(array, what)
    if array.dtype.kind not in "iuf":
        hint = " Complex data not supported." if array.dtype.kind == "c" else ""
        raise DataError(f"expected {what} to be real numbers, found dtype {array.dtype}.{hint}")
    return array.astype(np.float64, copy=False)


def rows_of(values: object, n: int, what: str, *, infinite: bool = False) -> NDArray[np.float64]:
    """Return one number for all rows, or one number for each of n rows, as float64.

    Raises DataError if `values` has another shape, or a value is NaN, or (unless `infinite`) not
    finite.
    """
    found = numbers_of(values, what)
    wrong = np.isnan(found) if infinite else ~np.isfinite(found)
    if found.shape not in {(), (n,)} or wrong.any():
        kind = "" if infinite else "finite "
        raise DataError(
            f"expected {n} {kind}{what}, one for each row, found shape {found.shape}"
            f"{' and values not finite' if wrong.any() else ''}."
        )
    return found


def places_of(
    longitude: object, latitude: object
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitudes and latitudes as float64; raise DataError if their shapes differ."""
    x, y = numbers_of(longitude, "longitudes"), numbers_of(latitude, "latitudes")
    if x.shape != y.shape:
        raise DataError(
            f"expected as many latitudes as longitudes, found shapes {y.shape} and {x.shape}."
        )
    return x, y


def check_size(values: NDArray[np.float64], what: str) -> None:
    """Raise DataError if an absolute value is above `LARGEST`."""
    largest = np.abs(values).max(initial=0.0)
    if largest > LARGEST:
        raise DataError(
            f"expected {what} from {-LARGEST:g} to {LARGEST:g}, found {largest:g}. Correct or drop "
            f"those rows."
        )


def _of_objects(array: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Return an array of objects as float64; None and the missing value of pandas become NaN."""
    flat = array.reshape(-1).tolist()
    wrong = [one for one in flat if not (_is_number(one) or _is_missing(one))]
    if wrong:
        raise DataError(
            f"expected {what} to be numbers, found other objects, such as {value_shown(wrong[0])}; "
            f"give a table (pandas.DataFrame) whose columns have names."
        )
    found = [np.nan if _is_missing(one) else float(one) for one in flat]
    return np.array(found, np.float64).reshape(array.shape)


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the alternatives of a kind."""
    return get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind."""
    return any(_fits_one(value, one) for one in alternatives(kind))


def _fits_one(value: Any, kind: Any) -> bool:
    if kind in _KINDS:
        return _KINDS[kind].fits(value)
    origin, entries = get_origin(kind), get_args(kind)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in entries)
    if origin in _SEQUENCES:
        return _fits_entries(value, entries)
    if origin in _MAPPINGS:
        return isinstance(value, Mapping) and all(
            fits(key, entries[0]) and fits(one, entries[1]) for key, one in value.items()
        )
    if origin is Callable:
        return callable(value)
    known = isinstance(kind, type) and kind is not Any and origin is None
    return not known or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _fits_entries(value: Any, entries: tuple[Any, ...]) -> bool:
    """Return whether a value is a list, a tuple or a column, with entries of the kinds."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return False
    if len(entries) == 1 or entries[1:] == (...,):
        return all(fits(one, entries[0]) for one in value)
    return len(value) == len(entries) and all(map(fits, value, entries))


def _told(kind: Any) -> str:
    """Return a kind in words."""
    return " or ".join(dict.fromkeys(_told_one(one) for one in alternatives(kind)))


def _told_one(kind: Any) -> str:
    if kind in _KINDS:
        return _KINDS[kind].words
    origin, entries = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, entries))
    if origin in _SEQUENCES:
        several = len(entries) > 1 and entries[1] is not ...
        many = f"a list of {len(entries)} entries" if several else "a list"
        return many if entries[0] is Any else f"{many}, each {_told(entries[0])},"
    if origin in _MAPPINGS:
        return "a dictionary"
    return "a function" if origin is Callable else str(getattr(kind, "__name__", kind))

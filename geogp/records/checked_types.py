"""Converts JSON to typed structs."""

from typing import Any, TypeVar

import msgspec

from geogp.errors import DataError

Checked = TypeVar("Checked")

_LONGEST = 200
"""Largest length of a reason in a message; msgspec quotes a wrong text as a whole."""


def checked(value: Any, kind: type[Checked], whole: str) -> Checked:
    """Return parsed JSON as a struct of type `kind`; `whole` names the JSON in error messages.

    Raises DataError if a value is wrong, with its path; a key of a mapping is ``[...]`` there.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, at, path = str(error).partition(" - at ")
        raise DataError(f"{reason[:_LONGEST]}{at}{path[-_LONGEST:]} in {whole}.") from error

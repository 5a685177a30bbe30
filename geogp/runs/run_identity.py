"""Compares runs by the keys of run.json that determine the fits."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import fields

from geogp.geodata.tiles.ookla import InputFile
from geogp.records.run_record import InputRecord, RunIdentity, given

_TYPES = {field.name: field.type for field in fields(RunIdentity)}

IDENTITY_KEYS = tuple(name for name in _TYPES if name not in {"schema", "drawing"})
"""Keys of run.json that determine the fits: runs with equal values have equal scores."""

FILE_KEYS = ("name", "sha256", "rows", "rows_used")
"""Keys of an input file that identify its content."""

ROWS_KEYS = ("name", "rows_sha256", "rows_used")
"""Keys of a cache entry that identify its rows; other keys depend on earlier downloads."""


def identity_in(held: Mapping[str, Any]) -> RunIdentity:
    """Return the `RunIdentity` of parsed JSON; a value of the wrong type counts as absent.

    A value with unknown settings also counts as absent: such settings may have changed the fits.
    """
    found: dict[str, object] = dict.fromkeys(_TYPES, UNSET)
    for name in found.keys() & held.keys():
        try:
            part = msgspec.convert(held[name], _TYPES[name])
        except msgspec.ValidationError:
            continue
        known = fields(part) if isinstance(part, msgspec.Struct) else None
        if known is None or set(held[name]) <= {one.encode_name for one in known}:
            found[name] = part
    return RunIdentity(**found)  # type: ignore[arg-type]


def differences(held: RunIdentity, identity: RunIdentity) -> list[str]:
    """Return the keys of `IDENTITY_KEYS` in which two runs differ; none if the fits are equal."""
    found = [key for key in IDENTITY_KEYS if getattr(held, key) != getattr(identity, key)]
    if "inputs" in found:
        pairs = zip_longest(given(held.inputs, []), given(identity.inputs, []))
        if all(one and other and same_input(one, other) for one, other in pairs):
            found.remove("inputs")
    return found


def same_map(held: RunIdentity, identity: RunIdentity) -> bool:
    """Return whether fits and map settings of two runs are equal, so that their maps are equal."""
    return not differences(held, identity) and held.drawing == identity.drawing


def input_record(file: InputFile) -> InputRecord:
    """Return the entry of run.json for an input file."""
    return InputRecord(**vars(file))


def same_input(one: InputRecord, other: InputRecord) -> bool:
    """Return whether two records of input files in run.json describe the same rows.

    If a file comes from the cache (`source` is its address), only the region's rows are compared.
    """
    known = one.rows_sha256 is not None and other.rows_sha256 is not None
    cached = one.source is not None or other.source is not None
    keys = ROWS_KEYS if known and cached else FILE_KEYS
    return all(getattr(one, key) == getattr(other, key) for key in keys)

"""Comparison of runs by the keys of run.json that determine the fits."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import fields, replace

from geogp.geodata.places.region_choice import absolute_name
from geogp.geodata.store.addresses import absolute_place
from geogp.geodata.tiles.ookla import InputFile
from geogp.records.run_record import InputRecord, RunIdentity, RunSettings, given

_TYPES = {field.name: field.type for field in fields(RunIdentity)}

IDENTITY_KEYS = tuple(name for name in _TYPES if name not in {"schema", "drawing"})
"""Keys of run.json that determine the fits: runs with equal values have equal scores."""

FILE_KEYS = ("name", "sha256", "rows", "rows_used")
"""Keys of an input file that identify its content."""

ROWS_KEYS = ("name", "rows_sha256", "rows_used")
"""Keys of a cache entry that identify its rows; other keys depend on earlier fetches."""


def identity_in(held: Mapping[str, Any]) -> RunIdentity:
    """Return the identity that a file holds; a value of the wrong type counts as absent.

    So does a value with unknown settings, because they may have changed the fits.
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
    then, now = _with_absolute_places(held), _with_absolute_places(identity)
    found = [key for key in IDENTITY_KEYS if getattr(then, key) != getattr(now, key)]
    if "inputs" in found and then.inputs is not UNSET and now.inputs is not UNSET:
        pairs = zip_longest(then.inputs, now.inputs)
        if all(one and other and same_input(one, other) for one, other in pairs):
            found.remove("inputs")
    return found


def same_map(held: RunIdentity, identity: RunIdentity) -> bool:
    """Return whether two runs have equal fits and equal questions, and therefore equal maps."""
    return not differences(held, identity) and held.drawing == identity.drawing


def input_record(file: InputFile) -> InputRecord:
    """Return the entry of run.json for an input file."""
    return InputRecord(**vars(file))


def same_input(one: InputRecord, other: InputRecord) -> bool:
    """Return whether two input files of run.json hold the same rows, however they were fetched.

    If one is a cache entry, which has the address of its source, only the region's rows count.
    """
    known = one.rows_sha256 is not None and other.rows_sha256 is not None
    cached = one.source is not None or other.source is not None
    keys = ROWS_KEYS if known and cached else FILE_KEYS
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def _with_absolute_places(run: RunIdentity) -> RunIdentity:
    """Return a run with absolute paths; older versions stored paths as the user typed them."""
    held = run.settings
    if held is UNSET:
        return run
    changed: dict[str, object] = {
        "layers": [absolute_name(text) for text in given(held.layers, [])]
    }
    if held.strata_file is not None:
        changed["strata_file"] = absolute_name(held.strata_file)
    for key in ("source", "boundaries"):
        if isinstance(place := getattr(held, key), str):
            changed[key] = absolute_place(place)
    settings: RunSettings = replace(held, **changed)
    return replace(run, settings=settings)

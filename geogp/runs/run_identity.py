"""Compares runs by the keys of run.json that determine the fits."""

import json
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, to_builtins
from msgspec.structs import fields

from geogp.geodata.places.file_choice import existing_path
from geogp.geodata.tiles.ookla import InputFile
from geogp.records.run_record import InputRecord, RunIdentity, given

_TYPES = {field.name: field.type for field in fields(RunIdentity)}

IDENTITY_KEYS = tuple(name for name in _TYPES if name not in {"schema", "drawing"})
"""Keys of run.json that determine the fits: runs with equal values have equal scores."""

FILE_KEYS = ("name", "sha256", "rows", "rows_used")
"""Keys of an input file that identify its content."""

ROWS_KEYS = ("name", "rows_sha256", "rows_used")
"""Keys of a cache entry that identify its rows; other keys depend on earlier downloads."""

PLACES = (
    *("source", "boundaries", "layers", "region_file", "strata_file", "covariates"),
    "points_file",
)
"""Settings of a run that may be local paths."""


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


def input_paths(settings: Mapping[str, Any]) -> list[Path]:
    """Return the existing files and folders that a run reads, from its settings in run.json."""
    values = (settings.get(name) for name in PLACES)
    texts = [one for value in values for one in (value if isinstance(value, list) else [value])]
    found = (existing_path(text) for text in texts if isinstance(text, str))
    return [path for path in found if path is not None]


def flat_settings(run: RunIdentity) -> dict[str, str | int | float]:
    """Return the settings of a run as simple values, for the attributes of a raster.

    Rasters are passed on to others, so of a local path only the last part stays.
    """
    identity = {k: to_builtins(getattr(run, k)) for k in IDENTITY_KEYS}
    settings, _, _ = (identity.pop(k) for k in ("settings", "inputs", "versions"))
    drawing = {f"map_{k}": v for k, v in to_builtins(run.drawing).items()}
    flat = {**identity, **settings, **drawing}
    flat |= {k: _without_folders(flat[k]) for k in PLACES if k in flat}
    return {k: v if type(v) in {str, int, float} else json.dumps(v) for k, v in flat.items()}


def _without_folders(value: Any) -> Any:
    """Return a path without its folders, or each path of a list; addresses stay."""
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    return Path(value).name if isinstance(value, str) and "://" not in value else value

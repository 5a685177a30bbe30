"""Compares runs by the keys of run.json that determine the fits."""

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, to_builtins
from msgspec.structs import asdict, fields

from geogp import choices
from geogp.geodata.places.file_choice import existing_path
from geogp.records.map_settings import MapSettings
from geogp.records.record_names import QUESTIONS
from geogp.records.run_record import InputRecord, RunDrawing, RunIdentity, RunRecord, given
from geogp.records.run_settings import GROUPS, PLACES, former_name, upgraded
from geogp.runs.run_places import reads_tiles

if TYPE_CHECKING:
    from geogp.geodata.tiles.ookla import InputFile

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
    run = upgraded({**held})
    known: dict[str, Any] = dict.fromkeys(_TYPES, UNSET)
    for name in known.keys() & run.keys():
        with suppress(msgspec.ValidationError):
            value = msgspec.convert(run[name], _TYPES[name])
            if _knows(value, run[name]):
                known[name] = value
    return RunIdentity(**known)


def _knows(value: object, parsed: Any) -> bool:
    """Return whether a struct has all keys of the parsed JSON, also in its own structs."""
    if not isinstance(value, msgspec.Struct):
        return True
    known = {field.encode_name: getattr(value, field.name) for field in fields(value)}
    return parsed.keys() <= known.keys() and all(_knows(known[key], parsed[key]) for key in parsed)


def differences(held: RunIdentity, identity: RunIdentity) -> list[str]:
    """Return the keys of `IDENTITY_KEYS` in which two runs differ; none if the fits are equal."""
    keys = [key for key in IDENTITY_KEYS if getattr(held, key) != getattr(identity, key)]
    if "inputs" in keys:
        pairs = zip_longest(given(held.inputs, []), given(identity.inputs, []))
        if all(entry and other and same_input(entry, other) for entry, other in pairs):
            keys.remove("inputs")
    return keys


def input_record(file: "InputFile") -> InputRecord:
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
    groups = upgraded({"settings": settings})["settings"] if "where" not in settings else settings
    values = [groups[group].get(name) for group in GROUPS for name in PLACES]
    texts = [
        text for value in values for text in (value if isinstance(value, list | tuple) else [value])
    ]
    paths = (existing_path(text) for text in texts if isinstance(text, str))
    return [path for path in paths if path is not None]


def flat_settings(run: RunIdentity) -> dict[str, str | int | float]:
    """Return the settings of a run as simple values, for the attributes of a raster.

    Rasters are passed on to others, so of a local path only the last part stays.
    """
    assert run.settings is not UNSET
    identity = {
        name: to_builtins(getattr(run, name))
        for name in IDENTITY_KEYS
        if name not in {"settings", "inputs", "versions"}
    }
    drawing = {f"map_{k}": v for k, v in to_builtins(run.drawing).items()}
    flat = {**identity, **run.settings.flat, **drawing}
    places = {former_name(name) for name in PLACES} & flat.keys()
    flat |= {name: _without_folders(flat[name]) for name in places}
    return {k: v if type(v) in {str, int, float} else json.dumps(v) for k, v in flat.items()}


def settings_of(record: RunRecord, **changes: Any) -> MapSettings:
    """Return the settings with which a run can be made again; `changes` replace some of them.

    Values that the run found, such as its quarters and the number of tests, count as chosen. Raises
    RequestError if the settings exclude each other.
    """
    groups, drawing = record.settings, given(record.drawing, RunDrawing())
    stored = {k: v for name in GROUPS for k, v in asdict(getattr(groups, name)).items()}
    view = {
        "zoom": drawing.zoom,
        "far_km": drawing.far_km,
        "self_contained": drawing.self_contained,
        "threshold": tuple(given(drawing.thresholds, [])) or None,
        "tier": tuple(given(drawing.tiers, [])) or None,
        "question": drawing.question if drawing.question in QUESTIONS else UNSET,
        "at": drawing.at,
    }
    if drawing.question == QUESTIONS[0]:
        view |= {"tests": drawing.tests, "devices": drawing.devices}
    values = {
        **stored,
        **{name: value for name, value in view.items() if value is not UNSET},
        "region": record.region if groups.is_state else None,
        "service": record.service,
        "target": record.target,
        "quarters": ",".join(given(record.quarters, [])) or None,
        "model": record.model,
        "preset": record.preset,
        "seed": given(record.seed, MapSettings.seed),
        "split": ",".join(groups.checks.splits),
    }
    if not reads_tiles(groups.data):
        del values["source"]
    every = choices.settings_of(MapSettings)
    chosen = {name: values[name] for name in values if name in every}
    return MapSettings(**{**chosen, **changes})


def _without_folders(value: Any) -> Any:
    """Return a path without its folders, or each path of a list; addresses stay."""
    if isinstance(value, list):
        return [_without_folders(path) for path in value]
    return Path(value).name if isinstance(value, str) and "://" not in value else value

"""Reads and checks run.json, and makes the JSON Schema of run.json.

geogp refuses a run.json with another format, an unknown name, a value out of the range that `geogp
map` allows, or numbers that contradict each other.
"""

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from geogp.errors import DataError
from geogp.evaluation.stored_figures import check_figures
from geogp.geodata.tiles.targets import TARGETS
from geogp.models.names import find_model
from geogp.records.checked_types import checked
from geogp.records.class_records import of_classes, record_kind
from geogp.records.run_record import RUN_SCHEMA, RunRecord, RunSettings, given

Kind = TypeVar("Kind", bound=RunRecord)

_LONGEST_NAME = 255
"""Largest number of bytes of a file name; operating systems refuse longer names."""


def record_of(run: dict[str, Any]) -> RunRecord:
    """Return parsed run.json as typed structs; raise DataError if a value is wrong."""
    record = checked(run, record_kind(RunRecord, run.get("target")), "the run")
    if TARGETS[record.target].kind != find_model(record.model).kind:
        raise DataError(f"the model {record.model} does not predict the target {record.target}.")
    if record.settings is not UNSET:
        _check_places(record.settings)
    check_figures(run)
    return record


def run_text(content: object) -> str:
    """Return structs or parsed JSON as text, in the format of run.json."""
    return json.dumps(msgspec.to_builtins(content), indent=1, allow_nan=False) + "\n"


def complete_record(path: Path, run: RunRecord, kind: type[Kind]) -> Kind:
    """Return `run` as a record of type `kind`; raise DataError if a required key is missing."""
    try:
        return checked(msgspec.to_builtins(run), record_kind(kind, run.target), "the run")
    except DataError as error:
        raise DataError(
            f"{path} was made by another version of geogp: {error} Make the run again with --fresh."
        ) from error


def read_record(path: Path, run: dict[str, Any]) -> RunRecord:
    """Return parsed run.json as typed structs; refuse run.json from a later version of geogp."""
    schema = run.get("schema")
    if isinstance(schema, int) and schema > RUN_SCHEMA:
        raise DataError(
            f"{path} was written by a later version of geogp: expected the schema {RUN_SCHEMA} or "
            f"no schema, found {str(schema)[:20]}. Update geogp, or run `geogp map` again with "
            f"--fresh."
        )
    try:
        return record_of(run)
    except DataError as error:
        raise DataError(
            f"{path} is damaged: {error} Run `geogp map` again with --fresh."
        ) from error


def run_schema() -> str:
    """Return the JSON Schema of run.json; `docs/schema` contains a copy."""
    types = (RunRecord, of_classes(RunRecord))
    kinds, parts = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "run.json of geogp",
        "anyOf": kinds,
        "$defs": parts,
    }
    return json.dumps(schema, indent=1) + "\n"


def _check_places(settings: RunSettings) -> None:
    """Raise DataError if a path contains a file name with more than `_LONGEST_NAME` bytes."""
    places: dict[str, object] = {
        f"{key}[{number}]": text
        for key in ("layers", "covariates")
        for number, text in enumerate(given(getattr(settings, key), []) or [])
    }
    for key in ("source", "boundaries", "region_file", "strata_file", "points_file"):
        places[key] = getattr(settings, key)
    for key, text in places.items():
        if isinstance(text, str) and any(
            len(part.encode()) > _LONGEST_NAME for part in text.split("/")
        ):
            raise DataError(
                f"expected a path or an address under settings.{key}, found {text[:60]!r}."
            )

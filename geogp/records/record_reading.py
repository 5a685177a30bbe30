"""Reads and checks run.json, and makes the JSON Schema of run.json.

geogp refuses a run.json with another format, an unknown name, a value out of the range that `geogp
map` allows, or scores that are not those of its folds.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from geogp.errors import DataError, named
from geogp.evaluation.scores import pooled
from geogp.geodata.places.stratum_names import ALL, STRATA, UNKNOWN
from geogp.geodata.tiles.targets import find_target
from geogp.models.names import find_model
from geogp.records.checked_types import checked
from geogp.records.class_records import of_classes, record_kind
from geogp.records.run_record import RUN_SCHEMA, RunRecord, given
from geogp.records.run_settings import upgraded

Kind = TypeVar("Kind", bound=RunRecord)

_ROUNDING = 1e-6
"""Largest difference between scores that rounding explains, also relative to the scores."""

_NOT_MEANS = {"ece"}
"""Scores of all rows that do not follow from the scores of parts of the rows."""


def record_of(run: dict[str, Any]) -> RunRecord:
    """Return parsed run.json as typed structs; raise DataError if a value is wrong."""
    record = checked(upgraded(run), record_kind(RunRecord, run.get("target")), "the run")
    if find_target(record.target).kind != find_model(record.model).kind:
        raise DataError(f"the model {record.model} does not predict the target {record.target}.")
    _check_scores(record)
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
            f"{path} was written by a later version of geogp: expected the schema {RUN_SCHEMA}, an "
            f"earlier one or none, found {str(schema)[:20]}. Update geogp, or run `geogp map` "
            f"again with --fresh."
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


def _check_scores(record: RunRecord) -> None:
    """Raise DataError if scores are missing, or those of a split are not those of its folds.

    This is the only check of numbers against numbers: run.json has no hash, but the other files do.
    """
    strata = [ALL, *(record.strata or STRATA)]
    if len({*strata, UNKNOWN}) < 4:
        raise DataError(f"expected two strata with different names, found {named(strata[1:])}.")
    if not record.metrics:
        raise DataError("expected scores of one split or more under metrics, found none.")
    folds, n = given(record.folds, {}), given(record.n, {})
    for key in ("metrics", "baseline"):
        table = given(getattr(record, key), {})
        if folds and table and set(table) != set(folds):
            raise DataError(f"expected {named(folds)} under {key}, found {named(table)}.")
        for split, scores in table.items():
            of_folds = [getattr(fold, key) for fold in folds.get(split, [])]
            _check_split(f"{key}.{split}", scores, of_folds, strata)
    for split, entries in folds.items():
        if n.get(split, entries[0].n) != entries[0].n:
            raise DataError(f"n.{split} differs from the first entry of folds.{split}.")


def _check_split(
    where: str, scores: Mapping[str, Any], of_folds: list[Mapping[str, Any]], strata: list[str]
) -> None:
    for table in (scores, *of_folds):
        if set(table) != set(strata):
            raise DataError(
                f"expected scores of {named(strata)} under {where}, found {named(table) or 'none'}."
            )
    for name, stated in scores.items():
        expected = pooled([table[name] for table in of_folds] or [stated])
        for figure, value in vars(expected).items():
            other = getattr(stated, figure)
            if stated.n and other is None:
                raise DataError(f"{where}.{name} lacks {figure}.")
            if figure not in _NOT_MEANS and not _agree(value, other):
                raise DataError(
                    f"expected {figure} of {where}.{name} to be {value}, as of all folds together, "
                    f"found {other}."
                )


def _agree(value: float | None, other: float | None) -> bool:
    """Return whether two scores differ only by rounding, or both are missing."""
    if value is None or other is None:
        return value is other
    return math.isclose(value, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)

"""What run.json holds, as typed structs; other keys may be there.

From these structs follow both what is refused of a run that is read and the JSON Schema that other
programs read it by. What geogp never writes is refused: another form, a name that it does not know,
a value out of the range that `geogp map` allows, and figures that contradict each other.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from geogp.errors import DataError
from geogp.evaluation.splits.row_parts import LEFT_OUT
from geogp.evaluation.splits.split_names import SPLITS
from geogp.evaluation.stored_figures import check_figures
from geogp.geodata.tiles.observations import TARGETS
from geogp.models.catalogue.model_names import MODELS
from geogp.runs.schema.checked_types import checked
from geogp.runs.schema.record_types import (
    AboveZero,
    Count,
    Folds,
    Inputs,
    Method,
    ModelText,
    Name,
    Nanoseconds,
    Noise,
    Place,
    PresetText,
    Quarter,
    QuestionText,
    Rank,
    Real,
    Seed,
    Service,
    Sha256,
    Share,
    Size,
    Some,
    Split,
    Target,
    Text,
    ThresholdValue,
    Vintage,
    WeightsAsked,
    Zoom,
)

RUN_SCHEMA = 1
"""Version of the form of run.json, its key `schema`. Runs of geogp 0.1 have none."""

_BY_SPLIT = Meta(extra_json_schema={"propertyNames": {"enum": list(SPLITS)}})
"""Keys of mappings by split, of which the JSON Schema that msgspec makes says nothing."""

_LONGEST_NAME = 255
"""Bytes of a name in a path; systems raise at longer ones."""


class StoredScores(Struct, frozen=True, kw_only=True):
    """The fields of `Scores`; null where there are no rows."""

    n: Count
    mae: Size | None
    rmse: Size | None
    nll: Real | None
    crps: Size | None
    coverage_50: Share | None
    coverage_80: Share | None
    coverage_95: Share | None
    width_95: Size | None


class PartCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of each part of a split."""

    train: Count
    validation: Count
    test: Count
    calibration: Count = 0
    left_out: Count = field(name=LEFT_OUT, default=0)

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return self.train + self.validation + self.test + self.calibration + self.left_out


Strata = dict[str, StoredScores]
"""Scores by stratum: all, urban, rural, or the user's own."""


class FoldRecord(Struct, frozen=True, kw_only=True):
    """What one fold of a split has given."""

    n: PartCounts
    metrics: Strata
    baseline: Strata


Folded = Annotated[list[FoldRecord], Meta(min_length=1)]


class RunSettings(Struct, frozen=True, kw_only=True):
    """What was asked for, and how hard was tried."""

    source: Place | UnsetType = UNSET
    boundaries: Place | UnsetType | None = UNSET
    inputs: Inputs | UnsetType = UNSET
    noise: Noise | UnsetType = UNSET
    refit: bool | UnsetType = UNSET
    tune_weights: bool | UnsetType = UNSET
    splits: Annotated[list[Split], Meta(min_length=1)] | UnsetType = UNSET
    folds: Folds | UnsetType = UNSET
    h: Some | UnsetType = UNSET
    r: Rank | UnsetType = UNSET
    epochs: Some | UnsetType = UNSET
    batch: Some | UnsetType = UNSET
    learning_rate: AboveZero | UnsetType = UNSET
    decay: Text | UnsetType = UNSET
    optimiser: Text | UnsetType = UNSET
    head_rate: Size | UnsetType = UNSET
    noise_rate: Size | None = None
    clip: Size | None = None
    average: Size | UnsetType = UNSET
    noise_start: AboveZero | UnsetType = UNSET
    placement: Text | UnsetType = UNSET
    weights: WeightsAsked | UnsetType = UNSET
    dtype: Text | UnsetType = UNSET
    budget: AboveZero | UnsetType = UNSET
    layers: list[Place] | UnsetType = UNSET
    conformal: Method | UnsetType = UNSET
    buffer_km: AboveZero | UnsetType = UNSET
    region_file: Place | None = None
    region_name: Name | None = None
    urban_vintage: Vintage | None = None
    strata: Annotated[list[Name], Meta(min_length=2, max_length=2)] | None = None
    strata_file: Place | None = None


class RunMap(Struct, frozen=True, kw_only=True):
    """The map in the run folder, and the question that it answers."""

    question: QuestionText | UnsetType = field(name="for", default=UNSET)
    at: Quarter | UnsetType = UNSET
    quarter: Quarter | UnsetType = UNSET
    tests: Some | None = None
    quarters_beyond_data: Count | UnsetType = UNSET
    zoom: Zoom | UnsetType = UNSET
    tiles: Some | UnsetType = UNSET
    other_quarters: Count | UnsetType = UNSET
    other_quarters_zoom: Zoom | None = None
    page_bytes: Count | UnsetType = UNSET
    grid_sha256: Sha256 | UnsetType = UNSET


class RunDrawing(Struct, frozen=True, kw_only=True):
    """What decides the map of a fit."""

    question: QuestionText | UnsetType = field(name="for", default=UNSET)
    at: Quarter | UnsetType = UNSET
    tests: Some | None = None
    quarters_beyond_data: Count | UnsetType = UNSET
    zoom: Zoom | UnsetType = UNSET
    far_km: AboveZero | UnsetType = UNSET
    thresholds: list[ThresholdValue] | UnsetType = UNSET
    self_contained: bool | UnsetType = UNSET


class InputRecord(Struct, frozen=True, kw_only=True):
    """A file that a run was made from; see `InputFile`."""

    name: Text
    sha256: Sha256
    rows: Count
    rows_used: Count | UnsetType = UNSET
    rows_sha256: Text | UnsetType = UNSET
    source: Text | UnsetType = UNSET
    etag: Text | UnsetType = UNSET
    bytes_read: Count | UnsetType = UNSET
    bytes_stored: Count | UnsetType = UNSET


class RowsLeftOut(Struct, frozen=True, kw_only=True):
    """Rows of a file with values that cannot be."""

    file: Text
    quarter: Quarter
    rows: Count


class RepairedCell(Struct, frozen=True, kw_only=True):
    """Coverage of one cell at one level, before and after a repair."""

    cell: Text
    calibration: Count
    test: Count
    level: Share
    observed: Share
    before: Share
    band: Annotated[list[Share], Meta(min_length=2, max_length=2)]
    inside: bool


class RepairedFold(Struct, frozen=True, kw_only=True):
    """What the repair of one fold did; see `RepairCheck`."""

    n: Count
    cells: list[RepairedCell]


class RepairedSplit(Struct, frozen=True, kw_only=True):
    """What the repairs of a split did, and what holds of them."""

    statement: Text
    folds: list[RepairedFold]


class CalibrationRecord(Struct, frozen=True, kw_only=True):
    """How intervals were repaired."""

    method: Method | UnsetType = UNSET
    n: Count | UnsetType = UNSET
    ladder: list[Share] | UnsetType = UNSET
    cells: list[dict[str, Any]] | UnsetType = UNSET
    statements: list[Text] | UnsetType = UNSET
    splits: Annotated[dict[Split, RepairedSplit], _BY_SPLIT] | UnsetType = UNSET


class RankRecord(Struct, frozen=True, kw_only=True):
    """The rank of the fits."""

    r: Some | UnsetType = UNSET
    chosen_by: Text | UnsetType = UNSET


class FileRecord(Struct, frozen=True, kw_only=True):
    """A file of the run; `modified_ns` is in nanoseconds since 1970, and a folder has none."""

    bytes: Count
    sha256: Text
    modified_ns: Nanoseconds | UnsetType = UNSET


class RunRecord(Struct, frozen=True, kw_only=True):
    """The content of run.json; what geogp 0.1 did not write from its beginning may be missing."""

    schema: Literal[1] | UnsetType = UNSET
    geogp: Text | UnsetType = UNSET
    versions: dict[str, Text] | UnsetType = UNSET
    device: Text | UnsetType = UNSET
    region: Name
    region_name: Name | None = None
    service: Service
    target: Target
    quarters: Annotated[list[Quarter], Meta(min_length=1)] | UnsetType = UNSET
    quarters_missing: list[Quarter] | UnsetType = UNSET
    quarters_unreached: list[Quarter] | UnsetType = UNSET
    rows_left_out: list[RowsLeftOut] | UnsetType = UNSET
    model: ModelText
    preset: PresetText
    seed: Seed | UnsetType = UNSET
    settings: RunSettings | UnsetType = UNSET
    drawing: RunDrawing | UnsetType = UNSET
    inputs: list[InputRecord] | UnsetType = UNSET
    weights: dict[str, Any] | UnsetType = UNSET
    rank: RankRecord | UnsetType = UNSET
    n: Annotated[dict[Split, PartCounts], _BY_SPLIT] | UnsetType = UNSET
    metrics: Annotated[dict[Split, Strata], _BY_SPLIT]
    baseline: Annotated[dict[Split, Strata], _BY_SPLIT] | UnsetType = UNSET
    folds: Annotated[dict[Split, Folded], _BY_SPLIT] | UnsetType = UNSET
    calibration: CalibrationRecord | UnsetType = UNSET
    variance_check: dict[str, Any] | None = None
    threads: Count | None = None
    seconds: dict[str, Size] | UnsetType = UNSET
    warnings: list[Text] | UnsetType = UNSET
    fit_warnings: list[Text] | UnsetType = UNSET
    map: RunMap | UnsetType = UNSET
    attribution: Text | UnsetType = UNSET
    files: list[Text] | UnsetType = UNSET
    file_records: dict[str, FileRecord] | UnsetType = UNSET


class OpenedSettings(RunSettings, frozen=True, kw_only=True):
    """Settings that say what a run is opened again by."""

    source: Place
    boundaries: Place | None
    inputs: Inputs
    noise: Noise
    refit: bool
    splits: Annotated[list[Split], Meta(min_length=1)]
    conformal: Method


class OpenedMap(RunMap, frozen=True, kw_only=True):
    """A map that says of what it is."""

    question: QuestionText = field(name="for")
    at: Quarter
    zoom: Zoom


class OpenedRecord(RunRecord, frozen=True, kw_only=True):
    """A run that says what it is opened again by."""

    quarters: Annotated[list[Quarter], Meta(min_length=1)]
    seed: Seed
    settings: OpenedSettings
    inputs: list[InputRecord]
    map: OpenedMap


def record_of(run: dict[str, Any]) -> RunRecord:
    """Return a run as typed structs, and refuse one that geogp cannot have written.

    Raises
    ------
    DataError
        A key is missing, holds something else or is out of range, or figures contradict each
        other; the message names the place.
    """
    record = checked(run, RunRecord, "the run")
    if TARGETS[record.target].counted != MODELS[record.model].counts:
        raise DataError(f"the model {record.model} does not predict the target {record.target}.")
    if record.settings is not UNSET:
        _check_places(record.settings)
    check_figures(run)
    return record


def opened_record(run: dict[str, Any]) -> OpenedRecord:
    """Return a run that has what it is opened again by.

    Raises
    ------
    DataError
        The message names what is missing.
    """
    return checked(run, OpenedRecord, "the run")


def read_record(path: Path, run: dict[str, Any]) -> RunRecord:
    """Return what was read from a run.json as typed structs; see `record_of`.

    Raises
    ------
    DataError
        The message names the file, and what to do.
    """
    schema = run.get("schema")
    if isinstance(schema, int) and schema > RUN_SCHEMA:
        raise DataError(
            f"{path} was written by a later version of geogp: expected the schema {RUN_SCHEMA}, or "
            f"none, found {str(schema)[:20]}. Update geogp, or run `geogp map` again with --fresh."
        )
    try:
        return record_of(run)
    except DataError as error:
        raise DataError(
            f"{path} is damaged: {error} Run `geogp map` again with --fresh."
        ) from error


def run_schema() -> str:
    """Return the JSON Schema of run.json, as `docs/schema` holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "run.json of geogp",
        **msgspec.json.schema(RunRecord),
    }
    return json.dumps(schema, indent=1) + "\n"


def _check_places(settings: RunSettings) -> None:
    """Refuse paths with names that no system takes, which patterns cannot tell: bytes count."""
    layers = [] if settings.layers is UNSET else settings.layers
    places = {f"layers[{number}]": text for number, text in enumerate(layers)}
    for key in ("source", "boundaries", "region_file", "strata_file"):
        found = getattr(settings, key)
        if isinstance(found, str):
            places[key] = found
    for key, text in places.items():
        if any(len(part.encode()) > _LONGEST_NAME for part in text.split("/")):
            raise DataError(
                f"expected a path or an address under settings.{key}, found {text[:60]!r}."
            )

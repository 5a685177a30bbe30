"""What run.json holds, as typed structs; other keys may be there.

From these structs follow both what is refused of a run that is read (`record_reading`) and the JSON
Schema that other programs read it by.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from geogp.evaluation.splits.row_parts import LEFT_OUT
from geogp.evaluation.splits.split_names import SPLITS
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


class FittedRank(RankRecord, frozen=True, kw_only=True):
    """A rank that is known."""

    r: Some


class FittedRecord(RunRecord, frozen=True, kw_only=True):
    """A run that says what its fits have given, so that its map can be drawn anew."""

    weights: dict[str, Any]
    rank: FittedRank
    n: Annotated[dict[Split, PartCounts], _BY_SPLIT]
    baseline: Annotated[dict[Split, Strata], _BY_SPLIT]
    folds: Annotated[dict[Split, Folded], _BY_SPLIT]
    calibration: CalibrationRecord
    seconds: dict[str, Size]
    fit_warnings: list[Text]

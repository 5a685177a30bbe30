"""The content of run.json as typed structs, for `record_reading`; there may be other keys."""

from typing import Annotated, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from geogp.evaluation.scores import Count, JointScores, Real, Scores, Share, Size
from geogp.evaluation.splits.row_parts import LEFT_OUT
from geogp.evaluation.splits.split_names import CELL_DEGREES
from geogp.records.input_records import (
    CovariateRecord,
    PointsRecord,
    ProviderRecord,
)
from geogp.records.record_types import (
    BY_SPLIT,
    AboveZero,
    ModelText,
    Name,
    Nanoseconds,
    PresetText,
    Quarter,
    QuestionText,
    Seed,
    Service,
    Sha256,
    Some,
    Split,
    Target,
    Text,
    ThresholdValue,
    VarianceReason,
    Zoom,
)
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_settings import RunSettings

Given = TypeVar("Given")

RUN_SCHEMA: Final = 2
"""Version of the format of run.json, under the key `schema`. Runs of geogp 0.1 lack the key."""


def given(value: Given | UnsetType, otherwise: Given) -> Given:
    """Return a value of run.json, or a default if the value is absent."""
    return otherwise if value is UNSET else value


class PartCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number of rows in each part of a split: training, validation, test and others."""

    train: Count
    validation: Count
    test: Count
    calibration: Count = 0
    left_out: Count = field(name=LEFT_OUT, default=0)

    @property
    def rows(self) -> int:
        """Number of rows in all parts together."""
        return self.train + self.validation + self.test + self.calibration + self.left_out


Strata = dict[str, Scores]
"""Scores by name of the stratum: all, urban, rural, or a stratum of the user."""


class FoldRecord(Struct, frozen=True, kw_only=True):
    """Number of rows in each part of one fold, and scores of the model and the baseline."""

    n: PartCounts
    metrics: Strata
    baseline: Strata


Folded = Annotated[list[FoldRecord], Meta(min_length=1)]


class TargetRecord(Struct, frozen=True, kw_only=True):
    """One of several targets, with the scores of its predictions alone and of its baseline."""

    name: Target
    metrics: Annotated[dict[Split, Strata], BY_SPLIT]
    baseline: Annotated[dict[Split, Strata], BY_SPLIT]


class RunMap(Struct, frozen=True, kw_only=True):
    """The map in the run folder, and the quantity that the map predicts.

    `first_threshold` is the threshold of the run nearest to the median of the tiles, which the page
    shows first. `one_colour` says so if nearly all tiles are on one side of it, or have one class.
    Of its `tiles`, `measured_tiles` have tests in any quarter, and `near_tiles` have none, but lie
    at most 1 km from a measured one.
    """

    quarter: Quarter | UnsetType = UNSET
    zoom: Zoom | UnsetType = UNSET
    tiles: Some | UnsetType = UNSET
    measured_tiles: Count | UnsetType = UNSET
    near_tiles: Count | UnsetType = UNSET
    far_tiles: Count | UnsetType = UNSET
    other_quarters: Count | UnsetType = UNSET
    other_quarters_zoom: Zoom | None = None
    question: QuestionText | UnsetType = field(name="for", default=UNSET)
    tests: Some | None = None
    devices: Some | UnsetType | None = UNSET
    at: Quarter | UnsetType = UNSET
    quarters_beyond_data: Count | UnsetType = UNSET
    first_threshold: ThresholdValue | None = None
    one_colour: Text | None = None
    page_bytes: Count | UnsetType = UNSET
    grid_sha256: Sha256 | UnsetType = UNSET


class RunDrawing(Struct, frozen=True, kw_only=True):
    """Settings that change the map, but not the fits of the model."""

    zoom: Zoom | UnsetType = UNSET
    far_km: AboveZero | UnsetType = UNSET
    thresholds: list[ThresholdValue] | UnsetType = UNSET
    tiers: list[Text] | UnsetType = UNSET
    self_contained: bool | UnsetType = UNSET
    question: QuestionText | UnsetType = field(name="for", default=UNSET)
    tests: Some | None = None
    devices: Some | UnsetType | None = UNSET
    at: Quarter | UnsetType = UNSET
    quarters_beyond_data: Count | UnsetType = UNSET


class InputRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input file of a run; see `InputFile`."""

    name: Text
    sha256: Sha256
    rows: Count
    rows_used: Count | None = None
    rows_sha256: Text | None = None
    source: Text | None = None
    etag: Text | None = None
    bytes_read: Count | None = None
    bytes_stored: Count | None = None


class ValueLeftOut(Struct, frozen=True, kw_only=True):
    """An impossible value, as written in the input file."""

    column: Text
    quadkey: Text
    value: Text


class RowsLeftOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number of rows left out of a file because of impossible values, and the first such values."""

    file: Text
    quarter: Quarter
    rows: Count
    first: list[ValueLeftOut] | UnsetType = UNSET


class TrialRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Weights of the objective in a trial fit, and the validation score of this fit."""

    alpha: Real | None = None
    beta: Real | None = None
    validation_nll: Real


class WeightsRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Weights of the terms of the objective, and how the weights were chosen."""

    alpha: Real | None = None
    beta: Real | None = None
    chosen_by: Text | UnsetType = UNSET
    seconds: Size | UnsetType = UNSET
    trials: list[TrialRecord] | UnsetType = UNSET


class RankRecord(Struct, frozen=True, kw_only=True):
    """The rank of the model, and how the rank was chosen."""

    r: Some | UnsetType = UNSET
    chosen_by: Text | UnsetType = UNSET
    expected_seconds: Size | UnsetType = UNSET


class VarianceCheck(Struct, frozen=True, kw_only=True):
    """Median standard deviation of the level from two calculations, and why the results differ.

    Runs of geogp 0.1 lack `differ_by`. They have this check only if the variance includes noise.
    """

    differ_by: VarianceReason | UnsetType = UNSET
    closed_form: AboveZero
    stated: Size


class AreasCheck(Struct, frozen=True, kw_only=True):
    """Means of a split's test rows in blocks of one quarter, against the model's distribution.

    `areas` is the number of checked pairs of block and quarter, which contain `rows` rows.
    `coverage_95` is the share of the means that lie in their 95 % interval;
    `coverage_95_independent` is the share with intervals that ignore the covariances between rows.
    """

    areas: Some
    rows: Some
    coverage_95: Share
    coverage_95_independent: Share


class FileRecord(Struct, frozen=True, kw_only=True):
    """Size and hash of a file or folder; its last change in ns since 1970 (only of a file)."""

    bytes: Count
    sha256: Text
    modified_ns: Nanoseconds | UnsetType = UNSET


class RunIdentity(Struct, frozen=True, kw_only=True):
    """The entries of run.json that determine the fits and the map of a run."""

    schema: Literal[2] | UnsetType = UNSET
    geogp: Text | UnsetType = UNSET
    versions: dict[str, Text] | UnsetType = UNSET
    device: Text | UnsetType = UNSET
    region: Name
    service: Service
    target: Target
    quarters: Annotated[list[Quarter], Meta(min_length=1)] | UnsetType = UNSET
    model: ModelText
    preset: PresetText
    seed: Seed | UnsetType = UNSET
    settings: RunSettings | UnsetType = UNSET
    drawing: RunDrawing | UnsetType = UNSET
    inputs: list[InputRecord] | UnsetType = UNSET


class RunNote(RunIdentity, frozen=True, kw_only=True):
    """The `RunIdentity` of an unfinished run, with the number of threads of the fits.

    `call` is the id of the command ``geogp batch --fresh`` that started the run.
    """

    threads: Some | None = None
    call: Text | UnsetType = UNSET


class RunRecord(RunIdentity, frozen=True, kw_only=True):
    """The content of run.json; some entries are optional, because geogp 0.1 did not write them.

    `block_degrees` is the side of a block, in degrees, in the splits ``blocks`` and ``buffer``.
    `same_splits` names splits that were not made because another split asks the same, by their
    names: with one row in each tile, random rows are whole tiles.
    `baseline_by_stratum` is a second baseline, for classes: the shares by quarter and stratum.
    `areas_unchecked` says why splits have no entry in `areas_check`. `providers` are those of a run
    by provider; map and answers are of the first, unless they say otherwise. `points` is what geogp
    understood of the user's own file of tests. `targets` are those of a run of several; map,
    `metrics` and `baseline` are of the first. `joint` has the scores of all targets together.
    """

    settings: RunSettings
    region_name: Name | None = None
    quarters_missing: list[Quarter] | UnsetType = UNSET
    quarters_unreached: list[Quarter] | UnsetType = UNSET
    rows_left_out: list[RowsLeftOut] | UnsetType = UNSET
    weights: WeightsRecord | UnsetType = UNSET
    rank: RankRecord | UnsetType = UNSET
    n: Annotated[dict[Split, PartCounts], BY_SPLIT] | UnsetType = UNSET
    block_degrees: AboveZero | UnsetType = UNSET
    same_splits: Annotated[dict[Split, Split], BY_SPLIT] | UnsetType = UNSET
    metrics: Annotated[dict[Split, Strata], BY_SPLIT]
    baseline: Annotated[dict[Split, Strata], BY_SPLIT] | UnsetType = UNSET
    baseline_by_stratum: Annotated[dict[Split, Strata], BY_SPLIT] | UnsetType = UNSET
    folds: Annotated[dict[Split, Folded], BY_SPLIT] | UnsetType = UNSET
    calibration: CalibrationRecord | UnsetType = UNSET
    variance_check: VarianceCheck | None = None
    areas_check: Annotated[dict[Split, AreasCheck], BY_SPLIT] | UnsetType = UNSET
    areas_unchecked: Annotated[dict[Split, Text], BY_SPLIT] | UnsetType = UNSET
    covariates: list[CovariateRecord] | UnsetType = UNSET
    providers: list[ProviderRecord] | UnsetType = UNSET
    targets: list[TargetRecord] | UnsetType = UNSET
    joint: Annotated[dict[Split, JointScores], BY_SPLIT] | UnsetType = UNSET
    points: PointsRecord | UnsetType = UNSET
    fit_warnings: list[Text] | UnsetType = UNSET
    threads: Count | None = None
    call: Text | UnsetType = UNSET
    seconds: dict[str, Size] | UnsetType = UNSET
    warnings: list[Text] | UnsetType = UNSET
    map: RunMap | UnsetType = UNSET
    attribution: Text | UnsetType = UNSET
    files: list[Text] | UnsetType = UNSET
    file_records: dict[str, FileRecord] | UnsetType = UNSET

    @property
    def region_in_words(self) -> str:
        """The region's name, followed by its code if the code differs from the name."""
        code, name = self.region, self.region_name
        return f"{name} ({code})" if name and name != code else code

    @property
    def is_of_version_0_1(self) -> bool:
        """Whether geogp 0.1 made the run."""
        return self.schema is UNSET

    @property
    def block_side(self) -> float | None:
        """Side of a block in the splits by blocks, in degrees; None if unknown."""
        return given(self.block_degrees, CELL_DEGREES if self.is_of_version_0_1 else None)

    @property
    def precision(self) -> str:
        """The precision of computations; see `geogp.precision`."""
        precision: str = self.settings.model.precision
        return precision

    @property
    def strata(self) -> list[str] | None:
        """Names of the user's own strata; None for urban and rural."""
        names: list[str] | None = self.settings.where.strata_names
        return names


class TunedWeights(WeightsRecord, frozen=True, kw_only=True, omit_defaults=True):
    """Weights of the objective that were chosen by validation scores."""

    seconds: Size
    trials: list[TrialRecord]


class OpenedMap(RunMap, frozen=True, kw_only=True):
    """The map in the run folder, with all entries that `reopen` needs."""

    question: QuestionText = field(name="for")
    at: Quarter
    zoom: Zoom


class OpenedRecord(RunRecord, frozen=True, kw_only=True):
    """The content of run.json, with all entries that `reopen` needs."""

    quarters: Annotated[list[Quarter], Meta(min_length=1)]
    seed: Seed
    inputs: list[InputRecord]
    map: OpenedMap


class FittedRank(RankRecord, frozen=True, kw_only=True):
    """The rank of the model, as the required entry `r`."""

    r: Some


class FittedRecord(RunRecord, frozen=True, kw_only=True):
    """The content of run.json, with all results of the fits that a new map needs."""

    weights: WeightsRecord
    rank: FittedRank
    n: Annotated[dict[Split, PartCounts], BY_SPLIT]
    baseline: Annotated[dict[Split, Strata], BY_SPLIT]
    folds: Annotated[dict[Split, Folded], BY_SPLIT]
    calibration: CalibrationRecord
    seconds: dict[str, Size]
    fit_warnings: list[Text]

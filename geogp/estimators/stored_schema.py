"""The description of an estimator in the file of a model, as typed structs with ranges."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from geogp.arguments import LARGEST
from geogp.errors import DataError
from geogp.models.process.architecture import MAX_COLUMNS

Described = TypeVar("Described")

_Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
_AboveZero = Annotated[float, Meta(gt=0, le=LARGEST)]
_Epoch = Annotated[int, Meta(ge=0, le=2**53)]
_Name = Annotated[str, Meta(min_length=1, pattern="^[^\\u0000]*$")]
_Columns = Annotated[int, Meta(ge=1, le=MAX_COLUMNS)]
_Labels = list[str | int | float | bool]


class StoredInputs(Struct, frozen=True):
    """The map from points to inputs; the fields are those of `PointScale`."""

    bounds: tuple[_Number, _Number, _Number, _Number]
    quarters: tuple[_Number, _Number] | None
    km: _AboveZero | None = None
    area_km2: _AboveZero | None = None
    time_kind: Literal["quarter", "date", "number"] | None = None
    covariates: list[tuple[_Name, _Number, _AboveZero]] = []
    providers: list[_Name] = []

    def __post_init__(self) -> None:
        west, south, east, north = self.bounds
        if not (west < east and south < north):
            raise ValueError(f"expected west < east and south < north, found {self.bounds}")
        if self.quarters is not None and not self.quarters[0] < self.quarters[1]:
            raise ValueError(f"expected first time < last time, found {self.quarters}")
        for names in ([covariate[0] for covariate in self.covariates], self.providers):
            if len(set(names)) < len(names):
                raise ValueError(f"expected different names, found {names}")
        if len(self.providers) == 1:
            raise ValueError("expected no providers, or two or more")


class StoredNormalScores(Struct, frozen=True):
    """The map between amounts and normal scores; fields as in `NormalScores`, None if infinite."""

    law: Literal["positive", "proportion"]
    scores: list[_Number]
    values: list[_Number]
    lower: _Number | None = None
    upper: _Number | None = None


class StoredTargetLaw(Struct, frozen=True):
    """The law of the errors of a target; fields as in `PredictiveLaw`."""

    coefficients: list[list[_Number]]
    ranges: list[list[_Number]]
    hidden: list[list[_Number]]
    outputs: list[list[_Number]]
    most_tail: _Number


class StoredTargets(Struct, frozen=True):
    """Several targets of one fit; fields as in `SeveralTargets`, `Factors` and `TargetLaws`."""

    names: list[_Name]
    centre: list[_Number]
    mixing: list[list[_Number]]
    laws: list[StoredTargetLaw]
    function: list[list[_Number]]
    noise: list[list[_Number]]


class StoredEstimator(Struct, frozen=True):
    """The estimator of a spatial model; files of geogp 0.1 lack the fields with defaults."""

    inputs: StoredInputs
    best_epoch: _Epoch
    validation_nll: _Number
    estimator: str | None = None
    params: dict[str, Any] | None = None
    n_features_in: _Columns | None = None
    feature_names_in: _Labels | None = None
    normal_scores: StoredNormalScores | None = None
    targets: StoredTargets | None = None


class StoredClasses(Struct, frozen=True):
    """The estimator of classes of any rows, `ClassGP`."""

    params: dict[str, Any]
    classes: Annotated[_Labels, Meta(min_length=2)]
    fits: Annotated[list[tuple[_Epoch, _Number]], Meta(min_length=1)]
    n_features_in: _Columns
    feature_names_in: _Labels


def described_as(kind: type[Described], context: dict[str, Any], path: Any) -> Described:
    """Return the description in a file as a struct; raise DataError if a value is wrong."""
    try:
        return msgspec.convert(context, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{path} does not describe its model: {error}.") from error

"""The content of run.json of a run whose target is a class, such as a tier of speed."""

from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

from msgspec import Meta, Struct, defstruct

from geogp.evaluation.scores import ClassScores
from geogp.geodata.tiles.targets import TARGETS
from geogp.models.names import CLASS_MODELS
from geogp.records.record_types import BY_SPLIT, Split
from geogp.records.run_record import PartCounts, RunRecord

Kind = TypeVar("Kind", bound=RunRecord)

CLASS_TARGETS = tuple(name for name, target in TARGETS.items() if target.classes)

ClassStrata = dict[str, ClassScores]
"""Scores by name of the stratum: all, urban, rural, or a stratum of the user."""


class ClassFoldRecord(Struct, frozen=True, kw_only=True):
    """Number of rows in each part of one fold, and scores of the model and the baseline."""

    n: PartCounts
    metrics: ClassStrata
    baseline: ClassStrata


@cache
def of_classes(kind: type[Kind]) -> type[Kind]:
    """Return a record type like `kind`, whose target is a class and whose scores are of classes."""
    by_split = Annotated[dict[Split, ClassStrata], BY_SPLIT]
    folds = Annotated[list[ClassFoldRecord], Meta(min_length=1)]
    fields: list[tuple[str, Any]] = [
        ("target", Literal[CLASS_TARGETS]),
        ("model", Literal[tuple(CLASS_MODELS)]),
        ("metrics", by_split),
        ("baseline", by_split),
        ("baseline_by_stratum", by_split),
        ("folds", Annotated[dict[Split, folds], BY_SPLIT]),
    ]
    name = f"Class{kind.__name__}"
    found = defstruct(name, fields, bases=(kind,), frozen=True, kw_only=True, module=__name__)
    return cast("type[Kind]", found)


def record_kind(kind: type[Kind], target: object) -> type[Kind]:
    """Return the type of record for a target: `kind`, or its variant for classes."""
    return of_classes(kind) if target in CLASS_TARGETS else kind

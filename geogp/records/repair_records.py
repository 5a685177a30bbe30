"""The repair of intervals in run.json, as typed structs."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from geogp.evaluation.scores import Count, Real, Share
from geogp.records.record_types import BY_SPLIT, Method, Split, Text


class RepairedCell(Struct, frozen=True, kw_only=True):
    """Coverage of one cell at one level, before and after a repair; see `CellCheck`."""

    cell: Text
    level: Share
    calibration: Count
    test: Count
    observed: Share
    band: Annotated[list[Share], Meta(min_length=2, max_length=2)]
    inside: bool
    before: Share


class RepairedFold(Struct, frozen=True, kw_only=True):
    """The effect of the repair of one fold on its test rows.

    `n` is the number of calibration rows. `cells` contains the coverage of each cell at each level,
    with the band that chance explains. `cells` is empty if the repair has no cells.
    """

    n: Count
    cells: list[RepairedCell]


class RepairedSplit(Struct, frozen=True, kw_only=True):
    """The effect of the repairs of a split, and a statement about their coverage."""

    statement: Text
    folds: list[RepairedFold]


class CellRecord(Struct, frozen=True, kw_only=True):
    """The repair of one cell; see `Cell`. A knot is null if there are too few rows for it."""

    name: Text
    stratum: Text
    tests: Annotated[list[Count | None], Meta(min_length=2, max_length=2)]
    n: Count
    knots: list[Real | None]


class CalibrationRecord(Struct, frozen=True, kw_only=True):
    """How intervals were repaired."""

    splits: Annotated[dict[Split, RepairedSplit], BY_SPLIT] | UnsetType = UNSET
    method: Method | UnsetType = UNSET
    n: Count | UnsetType = UNSET
    ladder: list[Share] | UnsetType = UNSET
    cells: list[CellRecord] | UnsetType = UNSET
    statements: list[Text] | UnsetType = UNSET

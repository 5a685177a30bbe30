"""Typed structs for the conformal repair in run.json."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from geogp.evaluation.scores import Count, Real, Share
from geogp.records.record_types import BY_SPLIT, Method, Split, Text


class RepairedCell(Struct, frozen=True, kw_only=True):
    """Coverage of one group of test rows at one nominal level, before and after the repair."""

    cell: Text
    level: Share
    calibration: Count
    test: Count
    observed: Share
    band: Annotated[list[Share], Meta(min_length=2, max_length=2)]
    inside: bool
    before: Share


class RepairedFold(Struct, frozen=True, kw_only=True):
    """The effect of the conformal repair on the test rows of one fold.

    `n` is the number of calibration rows. `cells` has the coverage of each cell (a group of rows)
    at each nominal level. `cells` is empty if the repair does not use cells.
    """

    n: Count
    cells: list[RepairedCell]


class RepairedSplit(Struct, frozen=True, kw_only=True):
    """The effect of the conformal repair in each fold of a split, and a text about coverage."""

    statement: Text
    folds: list[RepairedFold]


class CellRecord(Struct, frozen=True, kw_only=True):
    """The repair of one group of rows; see `Cell`. A knot is null if there are too few rows."""

    name: Text
    stratum: Text
    tests: Annotated[list[Count | None], Meta(min_length=2, max_length=2)]
    n: Count
    knots: list[Real | None]


class CalibrationRecord(Struct, frozen=True, kw_only=True):
    """The conformal repair of a run's intervals."""

    splits: Annotated[dict[Split, RepairedSplit], BY_SPLIT] | UnsetType = UNSET
    method: Method | UnsetType = UNSET
    n: Count | UnsetType = UNSET
    ladder: list[Share] | UnsetType = UNSET
    cells: list[CellRecord] | UnsetType = UNSET
    statements: list[Text] | UnsetType = UNSET

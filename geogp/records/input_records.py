"""Typed structs for covariates, providers and files of tests in run.json."""

from msgspec import Struct, field

from geogp.evaluation.scores import Count, Real, Share, Size
from geogp.records.record_types import Name, Place, Some, Text


class CovariateRecord(Struct, frozen=True, kw_only=True):
    """A covariate of a run, and its coefficient in the model of the map.

    `source` is the value of ``--covariates``. `files` are the names of the covariate's files.
    `share_with_data` is the share of the map's tiles with data near enough to change the value.
    `median_sd` is the median standard deviation of the covariate at a tile, null if unknown.
    `coefficient` is the change of the level, in the unit of the target, per standard deviation of
    the covariate; it is null if the covariate is constant.
    """

    name: Name
    source: Place
    files: list[Text]
    interpolation: Text
    share_with_data: Share
    median_sd: Size | None
    coefficient: Real | None
    coefficient_sd: Size | None


class ProviderRecord(Struct, frozen=True, kw_only=True):
    """A provider of a run, with the numbers of its rows and tests."""

    name: Name
    rows: Some
    tests: Some


EXTENT = "region"
"""The subject of `PointsRecord.understood` that says which places a map without a region shows."""


class UnitRecord(Struct, frozen=True, kw_only=True):
    """The unit of a column, and where it was read from."""

    unit: Text
    read_from: Text = field(name="from")


class PointsRecord(Struct, frozen=True, kw_only=True):
    """What geogp understood of a file of tests.

    `understood` has a text for each subject, such as the file, the time and the target, and `units`
    the unit of each column of values. `rows` is the number of rows in the file, and `left_out` the
    number of rows that were left out for each reason; left_out.csv lists them.
    """

    understood: dict[str, Text]
    units: dict[str, UnitRecord]
    rows: Count
    left_out: dict[str, Count]

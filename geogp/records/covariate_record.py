"""The entry of run.json for a covariate."""

from msgspec import Struct

from geogp.evaluation.scores import Real, Share, Size
from geogp.records.record_types import Name, Place, Text


class CovariateRecord(Struct, frozen=True, kw_only=True):
    """A covariate of a run, and its coefficient in the model of the map.

    `source` is the text of ``--covariates``, `files` are the names of its files under `inputs`.
    `share_with_data` is the share of the map's tiles with data near enough to change the value.
    `median_sd` is the median over tiles of the standard deviation of a value, in its unit, null if
    unknown. `coefficient` is the change of the level, in the unit of the target, per standard
    deviation of the covariate over the rows; it is null if the covariate is constant.
    """

    name: Name
    source: Place
    files: list[Text]
    interpolation: Text
    share_with_data: Share
    median_sd: Size | None
    coefficient: Real | None
    coefficient_sd: Size | None

"""Settings of questions about a finished run, without the code that answers the questions."""

from dataclasses import dataclass

from geogp.choices import (
    MAX_DRAWS,
    MAX_KM,
    MAX_SEED,
    MAX_TESTS,
    MIN_DRAWS,
    check_sample,
    check_settings,
    setting,
)
from geogp.errors import RequestError
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.models.core.options import CANDIDATES
from geogp.records.record_names import QUESTIONS
from geogp.runs.settings import MAX_TILES

ALL_QUARTERS = "all"
"""Value of ``--quarters`` for all quarters with data."""

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers of polygons that the boundaries contain."""


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Settings common to all questions; each question checks its values.

    Raises
    ------
    RequestError
        A value is not allowed, or two values exclude each other.
    """

    at: str | None = setting("Quarter. Default: the quarter of the run's map.")
    seed: int = setting(
        "Random seed of the draws.", default=0, noun="a seed", least=0, most=MAX_SEED
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class AreaQuestion(_Question):
    """Settings for the levels of areas; each field has a description."""

    by: str = setting("Areas: county, urban, FILE or FILE:COLUMN.", default=BY_COUNTY)
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices for the tests of a tile mean. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    draws: int = setting(
        "Number of posterior draws for medians and arithmetic means.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sample(self.tests, self.devices)


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion(_Question):
    """Settings for the choice of tiles; each field has a description."""

    tiles: int = setting("Number of tiles to choose.", default=50, least=1, most=MAX_TILES)
    among: str | None = setting(
        "Reduce only the variance in this stratum: urban, rural or your own. Default: all."
    )
    within: str | None = setting("Reduce only the variance in this county or area.", option="--in")
    by: str = setting(
        "Kind of area that --in names: county, urban, FILE or FILE:COLUMN.", default=BY_COUNTY
    )
    tests: int | None = setting(
        "Number of tests in each new measurement. Default: the region's median.",
        least=1,
        most=MAX_TESTS,
    )
    devices: int | None = setting(
        "Number of devices that made these tests. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    candidates: int = setting(
        "Number of tiles whose reduction of variance is computed exactly.",
        default=CANDIDATES,
        least=1,
        most=2 * MAX_TILES,
    )
    seed: int = setting(
        "Random seed of the estimates that choose candidates.",
        default=0,
        noun="a seed",
        least=0,
        most=MAX_SEED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sample(self.tests, self.devices)
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(
                f"--by {self.by} names a kind of area. Choose an area of this kind with --in."
            )
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}. Increase --candidates, or choose fewer tiles."
            )


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion(_Question):
    """Settings for the comparison of the level with thresholds; each field has a description."""

    threshold: tuple[float, ...] | None = setting(
        "Threshold in Mbps or ms; repeatable. Default: the thresholds of the run's map."
    )
    by: str | None = setting(
        "Also report shares of areas: county, urban, or polygons as FILE or FILE:COLUMN."
    )
    draws: int = setting(
        "Number of posterior draws, 200 or more.", default=500, least=MIN_DRAWS, most=MAX_DRAWS
    )


@dataclass(frozen=True, kw_only=True)
class PlaceQuestion:
    """Settings for the predictions at places; each field has a description.

    Raises
    ------
    RequestError
        A value is not allowed, or two values exclude each other.
    """

    quarters: str | None = setting(
        "Quarters: all, 2022Q3, 2019Q1..2023Q4, or several with commas. Default: the quarter of "
        "the run's map."
    )
    question: str | None = setting(
        "What to predict: tile-mean, single-test or level. Default: as the run's map.",
        noun="--for",
        choices=QUESTIONS,
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: as in the run's map.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices that made these tests. Default: as in the run's map, or typical.",
        least=1,
        most=MAX_TESTS,
    )
    threshold: tuple[float, ...] | None = setting(
        "Threshold in Mbps or ms; repeatable. Default: the thresholds of the run's map."
    )
    near_km: float = setting(
        "Count the tests within this distance in km.",
        default=2.0,
        noun="a distance",
        positive=True,
        most=MAX_KM,
        unit="km",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        check_sample(self.tests, self.devices)
        if self.quarters is not None and self.quarters != ALL_QUARTERS:
            parse_quarters(self.quarters)

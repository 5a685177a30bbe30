"""Settings of questions about a finished run, without the code that answers the questions."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import (
    MAX_DRAWS,
    MAX_KM,
    MAX_SEED,
    MAX_TESTS,
    MIN_DRAWS,
    REQUIRED,
    check_sample,
    check_settings,
    setting,
)
from geogp.errors import RequestError
from geogp.geodata.places.region_choice import crs_for
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.models.options import CANDIDATES
from geogp.records.map_settings import MAX_TILES
from geogp.records.record_names import QUESTIONS

ALL_QUARTERS = "all"
"""Value of ``--quarters`` for all quarters with data."""

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers of polygons that the boundaries contain."""

BY_TRACT = "tract"
"""Census tracts, from files beside the boundaries."""

CENSUS_LAYERS = (BY_COUNTY, BY_URBAN, BY_TRACT)
"""Layers of polygons that ``--by`` takes from the boundaries."""

BY_STRATUM = "stratum"
"""The region and its strata, urban and rural, as areas."""

_POLYGONS = "county, urban, tract, FILE, FILE:COLUMN or FILE:LAYER:COLUMN"
_AREAS = f"stratum, h3:RESOLUTION, {_POLYGONS}"


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Settings common to all questions; each question checks its values.

    Raises
    ------
    RequestError
        A value is not allowed, or two values exclude each other.
    """

    seed: int = setting(
        "Random seed of the draws.", default=0, noun="a seed", least=0, most=MAX_SEED
    )
    crs: str | None = setting(
        "Code of the coordinate system of the file of --by, such as EPSG:32161, if the file states "
        "none."
    )

    def __post_init__(self) -> None:
        check_settings(self)
        crs_for(Path(), self.crs)  # raises RequestError for a wrong code


@dataclass(frozen=True, kw_only=True)
class _QuarterQuestion(_Question):
    """Settings common to questions about one quarter."""

    at: str | None = setting("Quarter. Default: the quarter of the run's map.")


@dataclass(frozen=True, kw_only=True)
class _WeightedQuestion(_QuarterQuestion):
    """Settings common to questions about areas, whose tiles may have weights."""

    weights: str | None = setting(
        "Also weight the tiles, for example by people: a GeoTIFF of a density, a file of points "
        "with a column value, a column of the file of --by, or a column of tiles.parquet."
    )


@dataclass(frozen=True, kw_only=True)
class AreaQuestion(_WeightedQuestion):
    """Settings for the levels of areas; each field has a description."""

    by: str = setting(f"Areas: {_AREAS}.", default=BY_COUNTY)
    question: str = setting(
        "level (without noise), or tile-mean (averages of --tests tests, with noise).",
        default="level",
        noun="--for",
        choices=("level", "tile-mean"),
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices for the tests of a tile mean. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    draws: int = setting(
        "Number of posterior draws for medians, arithmetic means and ranks.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )
    by_provider: bool = setting(
        "Compare the levels of all providers of a run that geogp map --by-provider made.",
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sample(self.tests, self.devices)
        others = self.weights, self.tests, self.devices
        if self.by_provider and (self.question != "level" or others != (None, None, None)):
            raise RequestError(
                "--by-provider compares levels: leave out --for, --weights, --tests and --devices."
            )


@dataclass(frozen=True, kw_only=True)
class ChangeQuestion(_Question):
    """Settings for the change of the level between two quarters; each field has a description."""

    start: str = setting("The first quarter, such as 2021Q4.", default=REQUIRED, option="--from")
    end: str | None = setting(
        "The last quarter. Default: the quarter of the run's map.", option="--to"
    )
    by: str = setting(f"Areas: {_AREAS}.", default=BY_COUNTY)
    at_least: float | None = setting(
        "Also give the probability that the level rose by at least this many per cent.",
        noun="--at-least",
        positive=True,
        most=100_000,
        unit="%",
    )
    draws: int = setting(
        "Number of posterior draws for the uncertainty of single tiles.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion(_QuarterQuestion):
    """Settings for the choice of tiles; each field has a description."""

    tiles: int = setting("Number of tiles to choose.", default=50, least=1, most=MAX_TILES)
    among: str | None = setting(
        "Reduce only the variance in this stratum: urban, rural or your own. Default: all."
    )
    within: str | None = setting("Reduce only the variance in this county or area.", option="--in")
    by: str = setting(f"Kind of area that --in names: {_POLYGONS}.", default=BY_COUNTY)
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
        "Largest number of tiles whose reduction of variance is computed exactly.",
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
class ThresholdQuestion(_WeightedQuestion):
    """Settings for the comparison of the level with thresholds; each field has a description."""

    threshold: tuple[float, ...] | None = setting(
        "Threshold in Mbps or ms; repeatable. Default: the thresholds of the run's map."
    )
    by: str | None = setting(f"Also report shares of areas: {_AREAS}.")
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

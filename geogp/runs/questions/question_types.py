"""Settings of questions about a finished run, without the code that answers the questions."""

from dataclasses import dataclass

from geogp.choices import (
    MAX_DRAWS,
    MAX_SEED,
    MAX_TESTS,
    MIN_DRAWS,
    check_sample,
    check_settings,
    setting,
)
from geogp.errors import RequestError
from geogp.models.core.options import CANDIDATES
from geogp.runs.settings import MAX_TILES

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers that come with the boundaries."""


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
    """The areas, and the settings of their levels; each field has a description."""

    by: str = setting("county, urban, or polygons as FILE or FILE:COLUMN.", default=BY_COUNTY)
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices behind the tests of a tile mean. Default: the region's typical number.",
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
    """The settings for choosing tiles; each field has a description."""

    tiles: int = setting("Number of tiles to choose.", default=50, least=1, most=MAX_TILES)
    among: str | None = setting(
        "Stratum whose variance counts: urban, rural or another stratum of the run. Default: all."
    )
    within: str | None = setting("Area whose variance counts: the name of a county.", option="--in")
    by: str = setting(
        "Kind of area that --in names: county, urban, FILE or FILE:COLUMN.", default=BY_COUNTY
    )
    tests: int | None = setting(
        "Number of tests in each new measurement. Default: the region's median.",
        least=1,
        most=MAX_TESTS,
    )
    devices: int | None = setting(
        "Number of devices behind these tests. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    candidates: int = setting(
        "Number of tiles whose gain is computed exactly.",
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
                f"--by {self.by} names a kind of area. Choose one such area with --in."
            )
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}. Increase --candidates, or choose fewer tiles."
            )


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion(_Question):
    """Thresholds with which to compare the level; each field has a description."""

    threshold: tuple[float, ...] | None = setting(
        "Threshold in Mbps or ms; repeatable. Default: the thresholds of the run's map."
    )
    by: str | None = setting(
        "Also give shares by county, urban, or polygons as FILE or FILE:COLUMN."
    )
    draws: int = setting(
        "Number of posterior draws, 200 or more.", default=500, least=MIN_DRAWS, most=MAX_DRAWS
    )

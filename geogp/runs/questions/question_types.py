"""What the questions to a finished run say, known without what answers them."""

from dataclasses import dataclass

from geogp.choices import (
    MAX_DRAWS,
    MAX_SEED,
    MAX_TESTS,
    MIN_DRAWS,
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
    """What all questions say; each checks its values.

    Raises
    ------
    RequestError
        A value is not among those allowed, or two do not go together.
    """

    at: str | None = setting("Quarter. Default: the quarter of the run's map.")
    seed: int = setting(
        "Random seed of the draws.", default=0, noun="a seed", least=0, most=MAX_SEED
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class AreaQuestion(_Question):
    """The requested figures and areas; each field carries its description."""

    by: str = setting("county, urban, or polygons as FILE or FILE:COLUMN.", default=BY_COUNTY)
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    draws: int = setting(
        "Posterior draws, for medians and arithmetic means.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion(_Question):
    """The tiles to choose; each field carries its description."""

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
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(f"--by {self.by} names a kind of area; choose one area with --in.")
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}."
            )


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion(_Question):
    """Thresholds to compare the level with; each field carries its description."""

    threshold: tuple[float, ...] | None = setting(
        "In Mbps or ms; repeatable. Default: the thresholds of the run's map."
    )
    by: str | None = setting("Also shares by county, urban, or polygons as FILE or FILE:COLUMN.")
    draws: int = setting(
        "Posterior draws, 200 or more.", default=500, least=MIN_DRAWS, most=MAX_DRAWS
    )

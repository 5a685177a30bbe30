"""What the questions to a finished run say, known without what answers them."""

from dataclasses import dataclass

from geogp.choices import (
    LEAST_DRAWS,
    MOST_DRAWS,
    MOST_SEED,
    MOST_TESTS,
    check_settings,
    setting,
)
from geogp.errors import RequestError
from geogp.models.core.options import CANDIDATES
from geogp.runs.settings import MOST_TILES

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

    at: str | None = setting("Quarter. Default: that of the run's map.")
    seed: int = setting("Fixes the draws.", default=0, noun="a seed", least=0, most=MOST_SEED)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class AreaQuestion(_Question):
    """What to say of which areas; each field says what it is."""

    by: str = setting("county, urban, or polygons as FILE or FILE:COLUMN.", default=BY_COUNTY)
    tests: int | None = setting(
        "Tests of a tile mean. Default: the region's median.", least=1, most=MOST_TESTS
    )
    draws: int = setting(
        "Posterior draws, for medians and arithmetic means.",
        default=400,
        least=LEAST_DRAWS,
        most=MOST_DRAWS,
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion(_Question):
    """Which tiles to choose; each field says what it is."""

    tiles: int = setting("Tiles to choose.", default=50, least=1, most=MOST_TILES)
    among: str | None = setting(
        "urban or rural, or a stratum of the run: whose variance counts. Default: all."
    )
    within: str | None = setting("Area whose tiles count: a county's name.", option="--in")
    by: str = setting("What --in names: county, urban, or FILE or FILE:COLUMN.", default=BY_COUNTY)
    tests: int | None = setting(
        "Tests of each new measurement. Default: the region's median.", least=1, most=MOST_TESTS
    )
    candidates: int = setting(
        "Tiles whose gain is worked out exactly.", default=CANDIDATES, least=1, most=2 * MOST_TILES
    )
    seed: int = setting(
        "Fixes the estimates that choose candidates.",
        default=0,
        noun="a seed",
        least=0,
        most=MOST_SEED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(f"--by {self.by} names areas; say which one counts with --in.")
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}."
            )


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion(_Question):
    """Which thresholds to compare the level with; each field says what it is."""

    threshold: tuple[float, ...] | None = setting(
        "In Mbps, or ms; repeatable. Default: those of the run's map."
    )
    by: str | None = setting("Shares of county, urban, or polygons as FILE or FILE:COLUMN, too.")
    draws: int = setting(
        "Posterior draws, 200 or more.", default=500, least=LEAST_DRAWS, most=MOST_DRAWS
    )

"""The questions to a finished run, known without the code that answers them."""

from dataclasses import dataclass

from geogp.choices import LEAST_DRAWS, MOST_DRAWS, MOST_SEED, MOST_TESTS, whole_number
from geogp.errors import RequestError
from geogp.models.core.options import CANDIDATES
from geogp.runs.settings import MOST_TILES

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers that come with the boundaries."""


@dataclass(frozen=True, kw_only=True)
class AreaQuestion:
    """The level of which areas.

    `by` is ``county``, ``urban``, or polygons as ``FILE`` or ``FILE:COLUMN``; `tests` the tests of
    each tile mean (None: the median of the region's rows); `at` the quarter (None: of the run's
    map); `draws` from the posterior give medians and arithmetic means. RequestError for a number
    out of range.
    """

    by: str = BY_COUNTY
    tests: int | None = None
    at: str | None = None
    draws: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tests is not None:
            whole_number("tests", self.tests, 1, MOST_TESTS)
        whole_number("draws", self.draws, LEAST_DRAWS, MOST_DRAWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion:
    """Where to measure next, and for the variance of which tiles.

    `tiles` is the number to choose, by the exact gain of `candidates` tiles. Only tiles of the
    stratum `among` (None: all) and of the area `within`, a label of the polygons of `by`, count.
    `tests` and `at` are of the new measurements, as in `AreaQuestion`. RequestError for a number
    out of range, or `by` without `within`.
    """

    tiles: int = 50
    among: str | None = None
    within: str | None = None
    by: str = BY_COUNTY
    tests: int | None = None
    at: str | None = None
    candidates: int = CANDIDATES
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("tiles", self.tiles, 1, MOST_TILES)
        whole_number("candidates", self.candidates, 1, 2 * MOST_TILES)
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(f"--by {self.by} names areas; say which one counts with --in.")
        if self.tests is not None:
            whole_number("tests", self.tests, 1, MOST_TESTS)
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}."
            )
        whole_number("a seed", self.seed, 0, MOST_SEED)


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion:
    """Which thresholds to compare the level with.

    `threshold` is in the unit of the target (None: of the run's map); `by` adds shares of polygons
    to the region's (``county``, ``urban``, ``FILE`` or ``FILE:COLUMN``); `at` is the quarter (None:
    of the run's map). RequestError for a number out of range.
    """

    threshold: tuple[float, ...] | None = None
    by: str | None = None
    at: str | None = None
    draws: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("draws", self.draws, LEAST_DRAWS, MOST_DRAWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)

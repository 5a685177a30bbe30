"""What the questions to a finished run say, known without what answers them."""

from dataclasses import dataclass

from geogp.choices import LEAST_DRAWS, MOST_DRAWS, MOST_SEED, MOST_TESTS, whole_number
from geogp.errors import RequestError
from geogp.models.core.options import CANDIDATES
from geogp.runs.settings import MOST_TILES

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers that come with the boundaries."""


@dataclass(frozen=True, kw_only=True)
class AreaQuestion:
    """What to say of which areas.

    Attributes
    ----------
    by
        ``county``, ``urban``, or polygons as ``FILE`` or ``FILE:COLUMN``.
    tests
        Tests of each tile mean; None takes the median of the region's rows.
    at
        The quarter; None takes that of the run's map.
    draws
        Draws from the posterior, for medians and arithmetic means.
    seed
        Of the draws.

    Raises
    ------
    RequestError
        A number is out of range.
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
    """Which tiles to choose.

    Attributes
    ----------
    tiles
        Tiles to choose.
    among
        A stratum of the run, such as ``urban``: whose variance counts. None counts all.
    within
        Label of the area whose tiles count, as county names; None counts all.
    by
        Whose areas `within` names: ``county``, ``urban``, or polygons as ``FILE`` or
        ``FILE:COLUMN``.
    tests
        Tests of each new measurement; None takes the median of the region's rows.
    at
        The quarter of measurement; None takes that of the run's map.
    candidates
        Tiles whose gain is worked out exactly.
    seed
        Of the order of the tiles and of estimates.

    Raises
    ------
    RequestError
        A number is out of range, or `by` names areas of which none is said to count.
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

    Attributes
    ----------
    threshold
        Values in the unit of the target; None takes those of the run's map.
    by
        Shares of polygons besides those of the region: ``county``, ``urban``, ``FILE`` or
        ``FILE:COLUMN``; None for no more.
    at
        The quarter; None takes that of the run's map.
    draws
        Draws from the posterior, 200 or more.
    seed
        Of the draws.

    Raises
    ------
    RequestError
        A number is out of range.
    """

    threshold: tuple[float, ...] | None = None
    by: str | None = None
    at: str | None = None
    draws: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("draws", self.draws, LEAST_DRAWS, MOST_DRAWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)

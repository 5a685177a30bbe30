"""What a user asks to fetch or to simulate."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import MOST_SEED, one_of, whole_number
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.store.addresses import PUBLIC_SOURCE
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import SERVICES

MOST_ROWS = 100_000_000
"""What a region has room for says more; this much is refused before it is read."""


@dataclass(frozen=True)
class FetchRequest:
    """What to bring into the cache.

    Attributes
    ----------
    place
        The region, and where its boundaries are.
    source
        Where Ookla's files are.
    service, quarters
        As `MapRequest` has them.
    refresh
        Take new files where the source's changed since they were read.

    Raises
    ------
    RequestError
        There is no such service, or the quarters cannot be read.
    """

    place: RegionChoice
    source: str = PUBLIC_SOURCE
    service: str = "mobile"
    quarters: str | None = None
    refresh: bool = False

    def __post_init__(self) -> None:
        one_of("service", self.service, SERVICES)
        if self.quarters is not None:
            parse_quarters(self.quarters)


@dataclass(frozen=True)
class SimulationRequest:
    """What to simulate.

    Attributes
    ----------
    out
        Folder for the tiles, boundaries, truth and oracles.
    like
        The region whose boundary and urban areas are used; None takes a made-up one.
    rows
        Exact number of rows over all quarters.
    quarters
        As `parse_quarters` reads them.
    service
        ``mobile`` or ``fixed``.
    seed
        Fixes the data, and the splits of the oracles.
    made_up_towns
        Whether urban areas are drawn where the region of `like` has none at hand.
    oracles
        Whether the best possible scores are worked out, which takes longer than the rest.

    Raises
    ------
    RequestError
        There is no such service, a number is out of range, or the quarters cannot be read.
    """

    out: Path
    like: RegionChoice | None = None
    rows: int = 36_000
    quarters: str = "2022Q1..2023Q4"
    service: str = "mobile"
    seed: int = 0
    made_up_towns: bool = False
    oracles: bool = True

    def __post_init__(self) -> None:
        one_of("service", self.service, SERVICES)
        whole_number("rows", self.rows, 1, MOST_ROWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)
        parse_quarters(self.quarters)

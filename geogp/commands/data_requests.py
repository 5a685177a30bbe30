"""The requests of the commands `fetch` and `simulate`."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import MAX_SEED, REQUIRED, check_settings, one_of, setting
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.store.addresses import PUBLIC_SOURCE
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import SERVICES

MAX_ROWS = 100_000_000
"""Largest number of rows; when the region is read, the limit may become smaller."""


@dataclass(frozen=True)
class FetchRequest:
    """The data to bring into the cache.

    `place` is the region, with the source of its boundaries; `source` is the place of Ookla's
    files; `service` and `quarters` are as in `MapRequest`. If `refresh` is true, files that changed
    at the source are downloaded again. Raises RequestError if the service is unknown, or the
    quarters cannot be read.
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
    """The data to simulate; each field has a description.

    Raises RequestError if a value is not allowed, or the quarters cannot be read.
    """

    out: Path = setting("Folder for tiles, boundaries and the truth.", default=REQUIRED)
    like: str | None = setting("State whose boundaries are used. Default: an invented region.")
    boundaries: str | None = setting("Folder or address of the boundaries. Default: the Census.")
    region_file: str | None = setting(
        "Your own region: a file of polygons, as FILE or FILE:COLUMN=VALUE."
    )
    region_name: str | None = setting("Name of your own region. Default: the name of the file.")
    rows: int = setting(
        "Number of rows, over all quarters.", default=36_000, least=1, most=MAX_ROWS
    )
    quarters: str = setting("Quarters.", default="2022Q1..2023Q4")
    service: str = setting("mobile or fixed.", default=SERVICES[0], choices=SERVICES)
    made_up_towns: bool = setting("Simulate urban areas if the region has none.", default=False)
    no_oracles: bool = setting(
        "Do not compute the best possible scores: much faster.", default=False
    )
    seed: int = setting(
        "Random seed of the data and of the oracles' splits.",
        default=0,
        noun="a seed",
        least=0,
        most=MAX_SEED,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        parse_quarters(self.quarters)

    @property
    def place(self) -> RegionChoice | None:
        """The region with its boundary and urban areas; None means an invented region."""
        if self.like is None and self.region_file is None and self.region_name is None:
            return None
        return RegionChoice(self.like, self.region_file, self.region_name, self.boundaries)

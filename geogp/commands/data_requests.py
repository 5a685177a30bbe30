"""The requests of the commands `fetch`, `simulate` and `points`."""

from dataclasses import dataclass, field
from pathlib import Path

from geogp.choices import FORCE_TOLD, MAX_SEED, REQUIRED, check_settings, setting, settings_of
from geogp.geodata.places.region_choice import CRS_OF_REGION, RegionChoice
from geogp.geodata.places.state_names import AUTO
from geogp.geodata.points.point_options import PointOptions
from geogp.geodata.store.addresses import PUBLIC_SOURCE
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import SERVICES
from geogp.records.map_settings import MapSettings

MAX_ROWS = 100_000_000
"""Largest number of rows to simulate; a small region may have a smaller limit."""


_MAP = {name: {"setting": choice} for name, choice in settings_of(MapSettings).items()}
"""The settings of `MapSettings`, by name, for use in other requests."""


@dataclass(frozen=True)
class FetchRequest:
    """A request for data to download. Raises RequestError if a value is not allowed."""

    region: str | None = field(default=None, metadata=_MAP["region"])
    quarters: str | None = field(default=None, metadata=_MAP["quarters"])
    service: str = field(default=SERVICES[0], metadata=_MAP["service"])
    source: str = setting("Address of Ookla's files.", default=PUBLIC_SOURCE)
    boundaries: str | None = field(default=None, metadata=_MAP["boundaries"])
    region_file: str | None = field(default=None, metadata=_MAP["region_file"])
    region_name: str | None = field(default=None, metadata=_MAP["region_name"])
    crs: str | None = setting(CRS_OF_REGION)
    urban_vintage: str = field(default=AUTO, metadata=_MAP["urban_vintage"])
    refresh: bool = setting("Download a file again if it has changed at the source.", default=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.quarters is not None:
            parse_quarters(self.quarters)
        _ = self.place  # refuses a wrong region at once

    @property
    def place(self) -> RegionChoice:
        """The region, and the source of its boundaries."""
        return RegionChoice(
            self.region,
            self.region_file,
            self.region_name,
            self.boundaries,
            self.urban_vintage,
            crs=self.crs,
        )


@dataclass(frozen=True)
class SimulationRequest:
    """A request for simulated data. Raises RequestError if a value is not allowed."""

    out: Path = setting("Folder for tiles, boundaries and the true values.", default=REQUIRED)
    like: str | None = setting("State whose boundaries are used. Default: an invented region.")
    boundaries: str | None = field(default=None, metadata=_MAP["boundaries"])
    region_file: str | None = field(default=None, metadata=_MAP["region_file"])
    region_name: str | None = field(default=None, metadata=_MAP["region_name"])
    crs: str | None = setting(CRS_OF_REGION)
    rows: int = setting(
        "Number of rows in all quarters together.", default=36_000, least=1, most=MAX_ROWS
    )
    quarters: str = setting("Quarters.", default="2022Q1..2023Q4")
    service: str = field(default=SERVICES[0], metadata=_MAP["service"])
    made_up_towns: bool = setting("Simulate urban areas if the region has none.", default=False)
    no_oracles: bool = setting("Save time: leave out the best possible scores.", default=False)
    seed: int = setting(
        "Random seed of the data and of the splits.",
        default=0,
        noun="a seed",
        least=0,
        most=MAX_SEED,
    )
    force: bool = setting(FORCE_TOLD, default=False)

    def __post_init__(self) -> None:
        check_settings(self)
        parse_quarters(self.quarters)

    @property
    def place(self) -> RegionChoice | None:
        """The region with its boundary and urban areas; None means an invented region."""
        if self.like is None and self.region_file is None and self.region_name is None:
            return None
        return RegionChoice(
            self.like, self.region_file, self.region_name, self.boundaries, crs=self.crs
        )


@dataclass(frozen=True)
class PointsRequest(PointOptions):
    """A request to check a file of your own tests, or to write a template of such a file."""

    file: Path = setting(
        "A file of your own tests: CSV, Excel, JSON, Parquet, GeoPackage and others.",
        default=REQUIRED,
        option="",
    )
    template: bool = setting("Write a template to this file instead.", default=False)
    force: bool = setting(FORCE_TOLD, default=False)
    region: str | None = setting(
        "State to map, such as PR. Default: the region is the extent of the tests.",
        option="--region",
    )
    boundaries: str | None = field(default=None, metadata=_MAP["boundaries"])
    region_file: str | None = field(default=None, metadata=_MAP["region_file"])
    target: str = field(default="download", metadata=_MAP["target"])
    service: str = field(default=SERVICES[0], metadata=_MAP["service"])
    provider: str | None = field(default=None, metadata=_MAP["provider"])
    by_provider: bool = field(default=False, metadata=_MAP["by_provider"])
    technology: str | None = field(default=None, metadata=_MAP["technology"])

    @property
    def map(self) -> MapSettings:
        """The request for a map of the file."""
        names = set(settings_of(type(self))) - {"file", "template", "force"}
        return MapSettings(points=str(self.file), **{name: getattr(self, name) for name in names})

"""A small source that runs are made from."""

from dataclasses import dataclass
from pathlib import Path

from geogp.geodata.quarters import parse_quarters
from geogp.geodata.simulate import simple_region, simulate
from geogp.geodata.simulation_files import write_simulation
from geogp.settings import MapRequest


@dataclass(frozen=True)
class Small:
    """A source of 1,500 rows in two quarters of the demo's region."""

    folder: Path

    @property
    def arguments(self) -> list[str]:
        """What the command needs to map it in a few seconds."""
        return [
            "map",
            "DEMO",
            *("--source", str(self.folder)),
            *("--boundaries", str(self.folder / "boundaries")),
            *("--preset", "quick", "--epochs", "2", "--zoom", "13"),
        ]

    def request(self, out: Path, **changes: object) -> MapRequest:
        """Return a request that takes a few seconds."""
        settings = {"preset": "quick", "epochs": 2, "zoom": 13, **changes}
        return MapRequest(
            region="DEMO",
            source=str(self.folder),
            boundaries=str(self.folder / "boundaries"),
            out=out,
            **settings,
        )

    def tiles(self, quarter: int) -> Path:
        """Return the file of one of the two quarters."""
        return sorted(self.folder.rglob("*_tiles.parquet"))[quarter]


def write_small(folder: Path) -> Small:
    region = simple_region()
    made = simulate(region, rows=1500, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(made, region, folder)
    return Small(folder)

"""The demo region: its folder, and the request that maps it."""

from pathlib import Path

from geogp.errors import DataError
from geogp.records.map_settings import MapSettings


def demo_folder() -> Path:
    """Return the folder of the demo region; raise DataError if it is missing."""
    package = Path(__file__).parents[1]
    places = [package.parent / "data" / "demo", package / "demo_data"]
    for place in places:
        if (place / "simulation.json").is_file():
            return place
    raise DataError(
        f"the demo region is missing: looked in {', '.join(map(str, places))}. Install geogp again."
    )


def demo_request(
    *, out: Path | None = None, device: str = "auto", seed: int = 0, fresh: bool = False
) -> MapSettings:
    """Return the request that maps the demo region."""
    folder = demo_folder()
    return MapSettings(
        region="DEMO",
        source=str(folder),
        boundaries=str(folder / "boundaries"),
        preset="quick",
        device=device,
        seed=seed,
        out=out,
        fresh=fresh,
    )

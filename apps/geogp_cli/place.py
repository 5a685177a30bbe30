"""Options that several commands share: those of a map, and where a run's files are."""

from typing import Annotated

import typer

from geogp.runs.settings import MapRequest
from geogp_cli.setting_options import option_of

Region, RegionFile, RegionName, UrbanVintage = (
    option_of(MapRequest, name)
    for name in ("region", "region_file", "region_name", "urban_vintage")
)
Source, Boundaries, Service, Quarters, Device = (
    option_of(MapRequest, name)
    for name in ("source", "boundaries", "service", "quarters", "device")
)
RunSource = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Where the run's tiles are: a folder or address. Default: as run.json says.",
    ),
]
RunBoundaries = Annotated[
    str | None,
    typer.Option(
        "--boundaries",
        help="Where the run's boundaries are: a folder or address. Default: as run.json says.",
    ),
]

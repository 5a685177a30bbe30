"""The options that name a region, or where a run's files are, shared by several commands."""

from typing import Annotated

import typer

from geogp.runs.settings import MapRequest
from geogp_cli.setting_options import option_of

Region, Boundaries, RegionFile, RegionName, UrbanVintage = (
    option_of(MapRequest, name)
    for name in ("region", "boundaries", "region_file", "region_name", "urban_vintage")
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

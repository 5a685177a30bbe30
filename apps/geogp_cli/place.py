"""Options that several commands share."""

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
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")
]

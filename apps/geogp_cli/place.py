"""The options that name a region, shared by several commands."""

from typing import Annotated

import typer

Region = Annotated[
    str | None, typer.Argument(help="Postal code, name or FIPS number: PR. Or --region-file.")
]
Boundaries = Annotated[
    str | None, typer.Option(help="Boundaries: a folder or address. Default: the Census.")
]
RegionFile = Annotated[
    str | None,
    typer.Option(help="A region of your own: polygons, as FILE or FILE:COLUMN=VALUE."),
]
RegionName = Annotated[
    str | None, typer.Option(help="What it is called. Default: the name of the file.")
]
Strata = Annotated[
    str | None,
    typer.Option(help="Two classes in place of urban and rural: FILE (within it), or FILE:COLUMN."),
]
UrbanVintage = Annotated[
    str, typer.Option(help="Census of the urban areas: auto (the newest), 2020, 2010 or 2000.")
]

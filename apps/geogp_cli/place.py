"""The options that name a region, or where a run's files are, shared by several commands."""

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

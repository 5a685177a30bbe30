"""The command `geogp fetch`: parse, call, print."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from geogp_cli import console, place

if TYPE_CHECKING:
    from geogp.commands.fetch import FetchResult


def fetch(
    region: place.Region = None,
    quarters: place.Quarters = None,
    service: place.Service = "mobile",
    source: Annotated[
        str | None, typer.Option(help="Address of Ookla's files. Default: Ookla's bucket.")
    ] = None,
    boundaries: place.Boundaries = None,
    region_file: place.RegionFile = None,
    region_name: place.RegionName = None,
    urban_vintage: place.UrbanVintage = "auto",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Download files again if they changed at the source.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Download the tiles and boundaries of a region to the cache.

    The same command continues a stopped download. The exit code is 4 if the source of a quarter did
    not answer.
    """
    from geogp.commands.data_requests import FetchRequest
    from geogp.errors import NetworkError
    from geogp.geodata.places.region_choice import RegionChoice
    from geogp.geodata.store.addresses import PUBLIC_SOURCE

    request = FetchRequest(
        place=RegionChoice(region, region_file, region_name, boundaries, urban_vintage),
        source=source or PUBLIC_SOURCE,
        service=service,
        quarters=quarters,
        refresh=refresh,
    )
    from geogp.commands.fetch import fetch as bring

    with console.working() as listener:
        result = bring(request, listener)
    if as_json:
        print(json.dumps(result.described()))
    else:
        _show(result)
    if result.unreached:
        raise typer.Exit(NetworkError.exit_code)


def _show(result: "FetchResult") -> None:
    table = Table(title=f"{result.region}, {result.service}", title_justify="left", box=None)
    for heading in ("quarter", "from"):
        table.add_column(heading)
    for heading in ("rows", "row groups", "MB read of stored", ""):
        table.add_column(heading, justify="right")
    for one in result.quarters:
        table.add_row(
            one.quarter,
            f"{'source' if one.fresh else 'cache'}{', complete' if one.whole else ''}",
            f"{one.rows:,} of {one.rows_in_source:,}",
            f"{one.groups_read:,} of {one.groups_in_source:,}",
            f"{one.bytes_read / 1e6:.2f} of {one.bytes_stored / 1e6:.2f}",
            f"{one.bytes_read / one.bytes_stored:.1%}",
        )
    out = Console(soft_wrap=True)
    out.print(table)
    if result.missing:
        out.print(f"not at the source: {', '.join(result.missing)}", markup=False)
    if result.unreached:
        out.print(f"not reached: {', '.join(result.unreached)}", markup=False)

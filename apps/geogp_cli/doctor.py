"""The command `geogp doctor`: parse, call, print."""

import json
from typing import Annotated

import typer

from geogp_cli import place


def doctor(
    source: place.Source = None,
    boundaries: place.Boundaries = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not contact any source.")] = False,
    as_json: place.Json = False,
) -> None:
    """Print facts for a bug report: versions, devices, the cache, and which sources answer."""
    from geogp.commands.doctor import examine
    from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, PUBLIC_SOURCE

    found = examine(source or PUBLIC_SOURCE, boundaries or PUBLIC_BOUNDARIES, ask=not offline)
    print(json.dumps(found.described()) if as_json else found.text())

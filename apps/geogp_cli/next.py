"""The command `geogp next`: parse, call, print."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geogp_cli import console, place

if TYPE_CHECKING:
    from geogp.commands.run_answer import RunAnswer

_SHOWN = 10


def next_command(
    run: Annotated[
        str,
        typer.Argument(help="A finished run folder, or a region with one only in runs/: PR."),
    ],
    tiles: Annotated[int, typer.Option(help="Tiles to choose.")] = 50,
    among: Annotated[
        str | None, typer.Option(help="urban or rural: whose variance counts. Default: all.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--in", help="Area whose tiles count: a county's name.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="What --in names: county, urban, or FILE or FILE:COLUMN.")
    ] = "county",
    tests: Annotated[
        int | None,
        typer.Option(help="Tests of each new measurement. Default: the region's median."),
    ] = None,
    at: Annotated[str | None, typer.Option(help="Quarter. Default: that of the run's map.")] = None,
    candidates: Annotated[int, typer.Option(help="Tiles whose gain is worked out exactly.")] = 2000,
    device: place.Device = "auto",
    seed: Annotated[int, typer.Option(help="Fixes the estimates that choose candidates.")] = 0,
    source: place.RunSource = None,
    boundaries: place.RunBoundaries = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Where to measure next: tiles that take most variance from the map, one after the other."""
    from geogp.commands.run_requests import NextRequest
    from geogp.runs.run_names import find_run
    from geogp.runs.run_places import ReadFrom

    request = NextRequest(
        run=Path(run),
        tiles=tiles,
        among=among,
        within=within,
        by=by,
        tests=tests,
        at=at,
        candidates=candidates,
        seed=seed,
        device=device,
        read_from=ReadFrom(source, boundaries),
    )
    request = replace(request, run=find_run(run))
    from geogp.commands.next_tiles import choose_tiles, described_tiles

    with console.working() as listener:
        result = choose_tiles(request, listener)
    if as_json:
        print(json.dumps(described_tiles(result)))
        return
    _show(result)


def _show(result: "RunAnswer") -> None:
    told, out = result.described, Console(soft_wrap=True)
    chosen = result.table
    measured = f"{told['tests']} tests each" if told["tests"] else "measured as the data hold them"
    table = Table(
        title=f"{told['at']}, {measured}; first {min(_SHOWN, len(chosen))} of {len(chosen)} tiles",
        title_justify="left",
    )
    places = [name for name in ("county", "stratum") if name in chosen]
    for heading in ("rank", "longitude", "latitude", *places, "tests so far", "sd", "after"):
        table.add_column(heading, justify="left" if heading in places else "right")
    table.add_column("variance removed", justify="right")
    for row in chosen.head(_SHOWN).to_dict(orient="records"):
        table.add_row(
            str(row["rank"]),
            f"{row['longitude']:.4f}",
            f"{row['latitude']:.4f}",
            *(escape(str(row[name])) for name in places),
            f"{row['tests']:,}",
            f"{row['sd_before_log10']:.3f}",
            f"{row['sd_after_log10']:.3f}",
            f"{row['removed']:.2%}",
        )
    out.print(table)
    out.print(
        f"All {len(chosen)} take {told['removed']:.2%} of the variance of the level of "
        f"{told['counted']} ({told['counted_tiles']:,}); the widest interval left, as often, "
        f"would take {told['removed_by_widest']:.2%}.",
        markup=False,
    )
    for path in result.files:
        out.print(str(path), markup=False)

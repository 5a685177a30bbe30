"""The command `geogp exceedance`: parse, call, print."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geogp_cli import console, place

if TYPE_CHECKING:
    from geogp.commands.exceedance import ExceedanceResult


def exceedance(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="In Mbps, or ms; repeatable. Default: those of the run's map."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Shares of county, urban, or polygons as FILE or FILE:COLUMN, too."),
    ] = None,
    question: Annotated[
        str, typer.Option("--for", help="level: what measurements scatter around.")
    ] = "level",
    at: Annotated[str | None, typer.Option(help="Quarter. Default: that of the run's map.")] = None,
    draws: Annotated[int, typer.Option(help="Posterior draws, 200 or more.")] = 500,
    device: place.Device = "auto",
    seed: Annotated[int, typer.Option(help="Fixes the draws.")] = 0,
    source: place.RunSource = None,
    boundaries: place.RunBoundaries = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Share of area below thresholds with its interval, and where the level meets them for sure."""
    from geogp.commands.run_requests import ExceedanceRequest
    from geogp.runs.run_places import ReadFrom

    request = ExceedanceRequest(
        run=run,
        threshold=tuple(threshold) if threshold else None,
        by=by,
        question=question,
        at=at,
        draws=draws,
        seed=seed,
        device=device,
        read_from=ReadFrom(source, boundaries),
    )
    from geogp.commands.exceedance import make_exceedance

    with console.working() as listener:
        result = make_exceedance(request, listener)
    if as_json:
        files = [str(path) for path in result.files]
        print(json.dumps({"files": files, "thresholds": list(result.described)}))
        return
    _show(result)


def _show(result: "ExceedanceResult") -> None:
    out = Console(soft_wrap=True)
    for told in result.described:
        title = f"{told['at']}, level: share of area {told['falls_short']}"
        table = Table(title=title, title_justify="left")
        table.add_column("area")
        for heading in ("tiles", "km²", "share", "95 % interval"):
            table.add_column(heading, justify="right")
        for row in told["share_falling_short"]:
            table.add_row(
                escape(str(row["area"])),
                f"{row['tiles']:,}",
                f"{row['area_km2']:,.0f}",
                f"{100 * row['mean']:.1f} %",
                f"{100 * row['lower']:.1f} to {100 * row['upper']:.1f} %",
            )
        out.print(table)
        for region in told["joint_regions"].values():
            out.print(_words(region, told), markup=False)
    for path in result.files:
        out.print(str(path), markup=False)


def _words(region: dict[str, Any], told: dict[str, Any]) -> str:
    """Say how large a joint region is, and how sure that is."""
    low, high = region["tiles_interval"]
    if not region["tiles"]:
        return f"{region['is']}: in no region for sure (up to {high:,} tiles by other draws)."
    return (
        f"{region['is']} everywhere in {region['tiles']:,} of {told['tiles']:,} tiles, together "
        f"in {100 * region['probability']:.1f} % of {told['draws']} draws (the number of tiles is "
        f"{low:,} to {high:,}, as so many draws tell)."
    )

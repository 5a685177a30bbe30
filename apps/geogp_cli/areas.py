"""The command `geogp areas`: parse, call, print."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geogp_cli import console, place

if TYPE_CHECKING:
    from geogp.commands.run_answer import RunAnswer


def areas(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    by: Annotated[
        str, typer.Option(help="county, urban, or polygons as FILE or FILE:COLUMN.")
    ] = "county",
    question: Annotated[
        str,
        typer.Option(
            "--for", help="level, or tile-mean: of averages of so many tests, with their noise."
        ),
    ] = "level",
    tests: Annotated[
        int | None, typer.Option(help="Tests of a tile mean. Default: the region's median.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Quarter. Default: that of the run's map.")] = None,
    draws: Annotated[
        int, typer.Option(help="Posterior draws, for medians and arithmetic means.")
    ] = 400,
    device: place.Device = "auto",
    seed: Annotated[int, typer.Option(help="Fixes the draws.")] = 0,
    source: place.RunSource = None,
    boundaries: place.RunBoundaries = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Mean and median level of counties, urban areas or any polygons, with joint intervals."""
    from geogp.commands.run_requests import AreasRequest
    from geogp.runs.run_places import ReadFrom

    request = AreasRequest(
        run=run,
        by=by,
        question=question,
        tests=tests,
        at=at,
        draws=draws,
        device=device,
        seed=seed,
        read_from=ReadFrom(source, boundaries),
    )
    from geogp.commands.areas import described_table, make_areas

    with console.working() as listener:
        result = make_areas(request, listener)
    if as_json:
        print(json.dumps(described_table(result)))
        return
    _show(result)


def _show(result: "RunAnswer") -> None:
    told, out = result.described, Console(soft_wrap=True)
    level = told["for"] == "level"
    kind = "level_mean" if level else "tile_mean"
    end = told["unit"].lower()
    what = (
        "level, without measurement noise"
        if level
        else f"averages of {told['tests_per_tile'] or 'the usual'} tests a tile, with noise"
    )
    title = f"{told['at']}, {told['unit']}. mean: geometric mean of the tiles; {what}"
    table = Table(title=title, title_justify="left")
    table.add_column("area")
    headings = ("tiles", "measured", "tests", "mean", "95 % interval")
    for heading in (*headings, "median level", "95 % interval"):
        table.add_column(heading, justify="right")
    for row in result.table.to_dict(orient="records"):
        table.add_row(
            escape(str(row["area"])),
            *(f"{row[name]:,}" for name in ("tiles", "measured_tiles", "tests")),
            *_interval(row, kind, end),
            *_interval(row, "level_median", end),
        )
    out.print(table)
    for path in result.files:
        out.print(str(path), markup=False)


def _interval(row: dict[str, float], name: str, end: str) -> tuple[str, str]:
    low, high = (row[f"{name}_{side}_{end}"] for side in ("lower", "upper"))
    return f"{row[f'{name}_{end}']:.1f}", f"{low:.1f} to {high:.1f}"

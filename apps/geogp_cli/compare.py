"""The command `geogp compare`: parse, call, print."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geogp_cli import console

if TYPE_CHECKING:
    from geogp.reports.comparison.comparison import Comparison, SplitComparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Finished run folders, two or more.")],
    out: Annotated[Path, typer.Option(help="Folder for the comparison.")] = Path("comparison"),
    reference: Annotated[
        str | None, typer.Option(help="The run that others are compared with. Default: the first.")
    ] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="Write compare.tex too: a table for a paper.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Put finished runs side by side, with paired differences and their standard errors."""
    from geogp.commands.compare_runs import compare_runs

    with console.working() as listener:
        listener.stage(f"comparing {len(runs)} runs")
        found = compare_runs(runs, out=out, reference=reference, latex=latex)
    if as_json:
        print(json.dumps({"comparison": str(out), **asdict(found)}))
    else:
        _show(found, out)


def _show(found: "Comparison", out: Path) -> None:
    screen = Console(soft_wrap=True)
    screen.print(_runs(found))
    for split in found.splits.values():
        screen.print(_table(found, split))
    screen.print(
        "Differences from run 1, standard errors in parentheses; below 0 is better. "
        "*: beyond chance, all differences of the split counted.",
        markup=False,
    )
    for note in found.notes:
        screen.print(note, markup=False)
    screen.print(f"comparison: {out / 'compare.html'}", markup=False)


def _runs(found: "Comparison") -> Table:
    """List the runs with the numbers that stand for them: names may be long."""
    from geogp.reports.words import number, plain

    table = Table(title="runs", title_justify="left")
    for heading in ("", "run", "model", "preset", "seed", "seconds to fit"):
        table.add_column(heading, overflow="fold")
    for place, run in enumerate(found.runs, 1):
        told = (run.name, plain(run.model), plain(run.preset), plain(run.seed))
        table.add_row(str(place), *map(escape, told), number(run.fit_seconds, 1))
    return table


def _table(found: "Comparison", split: "SplitComparison") -> Table:
    from geogp.reports.words import count, estimate, number, percent

    table = Table(title=f"{split.title}, {count(split.n)} common test rows", title_justify="left")
    headings = ("stratum", "run", "log score", "against 1", "CRPS", "against 1", "95 % holds")
    for heading in (*headings, "width"):
        table.add_column(heading, justify="left" if heading == "stratum" else "right")
    for name, stratum in split.strata.items():
        for place, run in enumerate(found.runs, 1):
            figures, differences = stratum.figures[run.name], stratum.differences.get(run.name)
            table.add_row(
                name if place == 1 else "",
                str(place),
                number(figures.log_score),
                estimate(differences["log_score"], 3) if differences else "",
                number(figures.crps),
                estimate(differences["crps"], 3) if differences else "",
                percent(figures.coverage_95),
                number(figures.width_95, 2),
                end_section=place == len(found.runs),
            )
    return table

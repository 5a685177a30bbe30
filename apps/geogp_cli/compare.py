"""The command `geogp compare`: options and printed output."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from geogp.choices import FORCE_TOLD
from geogp_cli import console
from geogp_cli.setting_options import CommandResult

if TYPE_CHECKING:
    from geogp.reports.comparison.comparison import Comparison, SplitComparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more finished run folders.")],
    out: Annotated[Path, typer.Option(help="Folder for the comparison.")] = Path("comparison"),
    reference: Annotated[
        str | None,
        typer.Option(help="Run with which the other runs are compared. Default: the first run."),
    ] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="Also write compare.tex, a table for a paper.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help=FORCE_TOLD)] = False,
) -> CommandResult:
    """Compare the scores of finished runs on the same test rows, with standard errors."""
    from geogp.commands.compare_runs import compare_runs

    with console.working() as listener:
        listener.stage(f"comparing {len(runs)} runs")
        found = compare_runs(runs, out=out, reference=reference, latex=latex, force=force)
    legend = (
        "A difference is the score minus the score of run 1, with the standard error in "
        "parentheses; below 0 is better. * marks significant differences (Holm's method)."
    )
    told = (
        _runs(found),
        *(_table(found, split) for split in found.splits.values()),
        legend,
        *found.notes,
        f"comparison: {out / 'compare.html'}",
    )
    return CommandResult({"comparison": str(out), **asdict(found)}, told)


def _runs(found: "Comparison") -> Table:
    """Return a table of the runs and their numbers; other tables show only these numbers."""
    from geogp.reports.words import number, plain

    headings = "no., run, model, preset, seed, seconds to fit"
    rows = (
        (
            str(place),
            run.name,
            *map(plain, (run.model, run.preset, run.seed)),
            number(run.fit_seconds, 1),
        )
        for place, run in enumerate(found.runs, 1)
    )
    return console.table("runs", headings, rows, left=headings.split(", "))


def _table(found: "Comparison", split: "SplitComparison") -> Table:
    from geogp.reports.comparison.comparison_rows import score_names
    from geogp.reports.words import count, estimate, number, percent

    names, rows = score_names(found.target), []
    first, second, share, last = names.short
    for name, stratum in split.strata.items():
        for place, run in enumerate(found.runs, 1):
            figures, differences = stratum.figures[run.name], stratum.differences.get(run.name)
            cells = (
                name if place == 1 else "",
                str(place),
                number(figures[first]),
                estimate(differences[first], 3) if differences else "",
                number(figures[second]),
                estimate(differences[second], 3) if differences else "",
                percent(figures[share]),
                percent(figures[last]) if last in names.shares else number(figures[last], 2),
            )
            rows.append(cells)
        rows.append(())
    return console.table(
        f"{split.title}, {count(split.n)} common test rows",
        "stratum, run, {}, against 1, {}, against 1, {}, {}".format(
            *(names.titles[name] for name in names.short)
        ),
        rows,
    )

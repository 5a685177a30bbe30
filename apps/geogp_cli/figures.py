"""The command `geogp figures`: parse, call, print."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geogp_cli import console, place


def figures(
    run: Annotated[
        str,
        typer.Argument(help="A finished run folder, or a region with one only in runs/: PR."),
    ],
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="A finished run of another model, for the violins; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures. Default: figures in the run folder.")
    ] = None,
    device: place.Device = "auto",
    source: place.RunSource = None,
    boundaries: place.RunBoundaries = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Figures for papers, as PNG and PDF: kernel, basis, widths, spread, reliability."""
    from geogp.commands.run_requests import FiguresRequest
    from geogp.runs.run_names import find_run
    from geogp.runs.run_places import ReadFrom

    request = FiguresRequest(
        Path(run),
        tuple(beside or ()),
        out,
        device=device,
        read_from=ReadFrom(source, boundaries),
    )
    request = replace(request, run=find_run(run))
    from geogp.commands.paper_figures import make_figures

    with console.working() as listener:
        result = make_figures(request, listener)
    if as_json:
        files = [str(path) for path in result.files]
        told = {"files": files, "captions": result.captions, "left_out": result.left_out}
        print(json.dumps(told))
        return
    shown = Console(soft_wrap=True)
    for path in result.files:
        shown.print(str(path), markup=False)
    for name, reason in result.left_out.items():
        shown.print(f"{name} is left out: {reason}.", markup=False)

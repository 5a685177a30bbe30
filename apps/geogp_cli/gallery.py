"""The command `geogp gallery`: parse, call, print."""

import json
from pathlib import Path
from typing import Annotated

import typer

from geogp_cli import console
from geogp_cli.place import Json


def gallery(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Finished run folders, or folders that contain run folders."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("gallery"),
    as_json: Json = False,
) -> None:
    """Write one page about many runs, with small maps, key numbers and links."""
    from geogp.commands.gallery import make_gallery

    with console.working() as listener:
        made = make_gallery(runs, out=out, listener=listener)
    if as_json:
        described = {
            "gallery": str(made.page),
            "runs": [str(run) for run in made.runs],
            "skipped": [{"folder": str(path), "reason": reason} for path, reason in made.skipped],
        }
        print(json.dumps(described))
        return
    left_out = f", {len(made.skipped)} left out" if made.skipped else ""
    console.tell(f"{len(made.runs)} runs{left_out}", f"gallery: {made.page}")

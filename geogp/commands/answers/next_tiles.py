"""The tiles to measure next, written as GeoJSON, JSON and a figure."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from geogp.commands.answers.run_answer import RunAnswer, reopened
from geogp.commands.run_requests import NextRequest
from geogp.errors import RequestError
from geogp.files import write_bytes, write_text
from geogp.geodata.places.file_choice import existing_path
from geogp.maps.figures.numbered import numbered_figure
from geogp.maps.target_quantities import quantity_of
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.measurement_choice import NextTiles, next_tiles
from geogp.runs.reopen import Reopened


def choose_tiles(request: NextRequest, listener: ProgressListener | None = None) -> RunAnswer:
    """Choose the tiles to measure next, and write them into the run folder.

    Raises the errors of `reopened` and `next_tiles`, RequestError if the areas are a file that
    would be overwritten, and OutputError if a file cannot be written.
    """
    areas = existing_path(request.by)
    if areas is not None and areas.resolve() in {path.resolve() for path in _paths(request.run)}:
        raise RequestError(
            f"expected areas in a file that geogp next does not write, found {areas}. Copy the "
            "file to another name."
        )
    started = monotonic()
    sample = {"tests": request.tests, "devices": request.devices, "at": request.at}
    with reopened(request, listener, **sample) as opened:
        found = next_tiles(opened, request)
        described = {"run": str(request.run), **found.described}
        files = _write(opened, found, described)
    described["seconds"] = round(monotonic() - started, 1)
    return RunAnswer(files, found.table, described)


def _paths(run: Path) -> tuple[Path, ...]:
    return tuple(run / f"next_tiles.{end}" for end in ("geojson", "png", "json"))


def _write(opened: Reopened, found: NextTiles, described: dict[str, Any]) -> tuple[Path, ...]:
    """Write a GeoJSON file, a figure and a JSON file; return their paths."""
    table = found.table
    paths = _paths(opened.path)
    write_text(paths[0], found.frame.to_json(drop_id=True) + "\n")
    picture = numbered_figure(
        opened.inputs.region,
        opened.tiles,
        np.sqrt(found.variance),
        table[["longitude", "latitude"]].to_numpy(),
        label=f"standard deviation of the level, log10 {quantity_of(opened.settings.target).unit}",
        title=f"Where to measure next: {len(table)} tiles",
        subtitle=(
            f"{opened.inputs.region.name}, {opened.question.label()}; the chosen tiles remove "
            f"{described['removed']:.1%} of the variance of {described['counted']}"
        ),
        attribution=opened.inputs.ingested.attribution,
    )
    write_bytes(paths[1], picture)
    content = {**described, "chosen": table.to_dict(orient="records")}
    write_text(paths[2], json.dumps(content, indent=1) + "\n")
    return paths

"""Where to measure next: tiles of a run's map, written as GeoJSON, JSON and a figure."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from geogp.commands.run_answer import RunAnswer, open_requested
from geogp.commands.run_requests import NextRequest
from geogp.files import write_bytes, write_text
from geogp.maps.figures.numbered import numbered_figure
from geogp.maps.grid import quantity_of
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.measurement_choice import NextTiles, next_tiles
from geogp.runs.reopen import Reopened
from geogp.runs.run_folder import locked_run

STEM = "next_tiles"


def choose_tiles(request: NextRequest, listener: ProgressListener | None = None) -> RunAnswer:
    """Choose the tiles to measure next, and write them into the run folder; see `next_tiles`.

    Raises RequestError if there is no finished run, no eligible tile or too little memory, if more
    tiles are requested than exist, if the model predicts numbers of tests, or if another process is
    using the run. Raises DataError if a file is damaged or differs from the run's inputs, and
    OutputError if a file cannot be written.
    """
    started = monotonic()
    with locked_run(request.run), arithmetic():
        opened = open_requested(request, listener).reopen(
            tests=request.tests, devices=request.devices, at=request.at
        )
        found = next_tiles(opened, request)
        described = {"run": str(request.run), **found.described}
        files = _write(opened, found, described)
    described["seconds"] = round(monotonic() - started, 1)
    return RunAnswer(files, found.table, described)


def _write(opened: Reopened, found: NextTiles, described: dict[str, Any]) -> tuple[Path, ...]:
    """Write a GeoJSON file, a figure and a JSON file; return their paths."""
    job, table = opened.job, found.table
    paths = tuple(opened.path / f"{STEM}.{end}" for end in ("geojson", "png", "json"))
    write_text(paths[0], found.frame.to_json(drop_id=True) + "\n")
    picture = numbered_figure(
        job.region,
        opened.tiles,
        np.sqrt(found.variance),
        table[["longitude", "latitude"]].to_numpy(),
        label=f"standard deviation of the level, log10 {quantity_of(job.request.target).unit}",
        title=f"Where to measure next: {len(table)} tiles",
        subtitle=(
            f"{job.region.name}, {job.question.label()}; the chosen tiles remove "
            f"{described['removed']:.1%} of the variance of {described['counted']}"
        ),
    )
    write_bytes(paths[1], picture)
    content = {**described, "chosen": table.to_dict(orient="records")}
    write_text(paths[2], json.dumps(content, indent=1) + "\n")
    return paths

"""The level in areas (counties, urban areas, or polygons of the user) from a finished run."""

import io
from pathlib import Path
from time import monotonic

from geogp.commands.csv_tables import write_csv
from geogp.commands.run_answer import RunAnswer, reopened
from geogp.commands.run_requests import AreasRequest
from geogp.files import write_bytes
from geogp.maps.figures.choropleth import choropleth
from geogp.maps.grid import quantity_of
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.area_levels import REACH, AreaLevels, area_levels
from geogp.runs.reopen import Reopened


def make_areas(request: AreasRequest, listener: ProgressListener | None = None) -> RunAnswer:
    """Compute the level in areas from the model of a run, and write the result into the run folder.

    Raises the errors of `reopened` and `area_levels`, and OutputError if a file cannot be written.
    """
    started = monotonic()
    sample = {"tests": request.tests, "devices": request.devices, "at": request.at}
    with reopened(request, listener, **sample) as opened:
        found = area_levels(opened, request)
        described = {
            "run": str(request.run),
            "for": request.question,
            **found.described,
            "seconds": round(monotonic() - started, 1),
        }
        files = _write(opened, request, found)
    return RunAnswer(files, found.table, described)


def _write(opened: Reopened, request: AreasRequest, found: AreaLevels) -> tuple[Path, ...]:
    """Write a CSV file, a GeoParquet file and a figure; return their paths."""
    job, frame = opened.job, found.frame
    quantity = quantity_of(job.request.target)
    paths = tuple(request.run / f"areas_{found.tag}.{end}" for end in ("csv", "parquet", "png"))
    write_csv(paths[0], frame.drop(columns="geometry"))
    stream = io.BytesIO()
    frame.to_parquet(stream, index=False)
    write_bytes(paths[1], stream.getvalue())
    kind = "level_mean" if request.question == "level" else "tile_mean"
    of = "level" if request.question == "level" else job.question.words()
    picture = choropleth(
        job.region,
        opened.tiles,
        found.shapes,
        found.table[f"{kind}_{quantity.suffix}"].to_numpy(),
        2 * REACH * found.table[f"{kind}_sd_log10"].to_numpy(),
        unit=quantity.unit,
        title=f"Geometric mean of {quantity.subject} by area",
        subtitle=f"{job.region.name}, {job.question.label()}; {of}",
    )
    write_bytes(paths[2], picture)
    return paths

"""The level in areas (counties, strata, hexagons, or polygons of the user) from a finished run."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

from geogp.commands.answers.area_files import write_areas
from geogp.commands.answers.run_answer import RunAnswer, plain_rows, reopened
from geogp.commands.run_requests import AreasRequest
from geogp.files import write_bytes, write_text
from geogp.maps.csv_tables import write_csv
from geogp.maps.figures.choropleth import Panel, choropleth
from geogp.maps.scales import SPEED_PALETTE, WIDTH_PALETTE, linear_scale, speed_scale
from geogp.maps.target_quantities import quantity_of
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.area_levels import REACH, AreaLevels, area_levels
from geogp.runs.questions.provider_levels import provider_levels
from geogp.runs.reopen import Reopened, weights_tag

PROVIDER_NOTES = (
    (
        "Levels contain no measurement noise. They come from the joint distribution of all tiles "
        "of all providers, from the Gaussian process alone, so they can differ from the map. The "
        "intervals do not include the uncertainty of the learned basis."
    ),
    (
        "Of many areas, some have a high probability by chance. An area has no probability if most "
        "of its tiles are far from any measurement of one of the two providers."
    ),
)


def make_areas(request: AreasRequest, listener: ProgressListener | None = None) -> RunAnswer:
    """Compute the level in areas from the model of a run, and write the result into the run folder.

    Raises the errors of `reopened` and `area_levels`, and OutputError if a file cannot be written.
    """
    started = monotonic()
    sample = {"tests": request.tests, "devices": request.devices, "at": request.at}
    with reopened(request, listener, **sample) as opened:
        if request.by_provider:
            return _compare_providers(opened, request, started)
        found = area_levels(opened, request)
        described = {
            "run": str(request.run),
            "for": request.question,
            **found.described,
            "seconds": round(monotonic() - started, 1),
        }
        files = _write(opened, request, found, described)
    return RunAnswer(files, found.table, described)


def _compare_providers(opened: Reopened, request: AreasRequest, started: float) -> RunAnswer:
    """Write the levels of providers and their differences into the run folder, and return them."""
    found = provider_levels(opened, request)
    described = {
        "run": str(request.run),
        "for": "level",
        **found.described,
        "notes": list(PROVIDER_NOTES),
        "seconds": round(monotonic() - started, 1),
    }
    name = f"providers_{found.areas.tag}_{opened.settings.target}_{opened.question.at}"
    files = request.run / f"{name}.csv", request.run / f"{name}.json"
    write_csv(files[0], found.table)
    told = {**described, "areas": plain_rows(found.table)}
    write_text(files[1], json.dumps(told, indent=1, allow_nan=False) + "\n")
    return RunAnswer(files, found.table, described)


def _write(
    opened: Reopened, request: AreasRequest, found: AreaLevels, described: dict[str, Any]
) -> tuple[Path, ...]:
    """Write the table of areas as files and as a figure; return their paths.

    The names contain areas, target, question and quarter, such as
    ``areas_county_download_level_2023Q4.csv``; with weights also these.
    """
    table, kind = found.table, found.kind
    quantity, at = quantity_of(opened.settings.target), opened.question.at
    name = f"areas_{found.areas.tag}_{opened.settings.target}_{request.question}_{at}"
    name += weights_tag(request.weights)
    paths = write_areas(opened, found.areas, found.frame, described, name)
    values = table[f"{kind}_{quantity.suffix}"].to_numpy()
    widths = 2 * REACH * table[f"{kind}_sd_log10"].to_numpy()
    width = f"width of the 95 % interval, log10 {quantity.unit} (1 = tenfold)"
    of = "level" if request.question == "level" else opened.question.words()
    picture = choropleth(
        opened.inputs.region,
        opened.tiles,
        found.areas.shapes,
        (
            Panel(values, speed_scale(values, label=quantity.unit, palette=SPEED_PALETTE), "mean"),
            Panel(widths, linear_scale(widths, label=width, palette=WIDTH_PALETTE), "uncertainty"),
        ),
        title=f"Geometric mean of {quantity.subject} by area",
        subtitle=f"{opened.inputs.region.name}, {opened.question.label()}; {of}",
        attribution=opened.inputs.ingested.attribution,
    )
    paths.append(request.run / f"{name}.png")
    write_bytes(paths[-1], picture)
    return tuple(paths)

"""The change of the level between two quarters, from a finished run."""

from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from geogp.commands.answers.area_files import tile_grid, write_areas
from geogp.commands.answers.run_answer import RunAnswer, reopened
from geogp.commands.run_requests import ChangeRequest
from geogp.files import write_bytes
from geogp.maps.figures.choropleth import Panel, choropleth
from geogp.maps.qgis_styles import write_styles
from geogp.maps.rasters import write_geotiffs
from geogp.maps.scales import PROBABILITY_PALETTE, change_scale, share_scale
from geogp.maps.target_quantities import quantity_of
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.level_changes import WRONG_SHARE, LevelChanges, level_changes
from geogp.runs.reopen import Reopened

NOTES = (
    "The change is the change of the level; it contains no measurement noise.",
    (
        "Changes and intervals come from the joint distribution of all tiles in both quarters, "
        "from the Gaussian process alone. So levels can differ from levels of the map. The "
        "intervals do not include the uncertainty of the learned basis."
    ),
    (
        f"Under the model, at most {100 * WRONG_SHARE:g} % of the directions are expected to be "
        "wrong; the direction of an unchanged area counts as wrong. More can be wrong near large "
        "areas that changed. An area gets no direction if most of its tiles are far from any "
        "measurement."
    ),
)


def make_change(request: ChangeRequest, listener: ProgressListener | None = None) -> RunAnswer:
    """Compute the change of the level from the model of a run, and write it into the run folder.

    Raises the errors of `reopened` and `level_changes`, and OutputError if a file cannot be
    written.
    """
    started = monotonic()
    with reopened(request, listener) as opened:
        found = level_changes(opened, request)
        opened.listener.stage("writing tables and maps")
        described = {
            "run": str(request.run),
            "for": "level",
            **found.described,
            "notes": list(NOTES),
            "seconds": round(monotonic() - started, 1),
        }
        tiles = _write_tiles(opened, found)  # before the JSON file that the pages read
        files = (*_write_areas(opened, found, described), *tiles)
    return RunAnswer(files, found.table, described)


def _write_areas(opened: Reopened, found: LevelChanges, described: dict[str, Any]) -> list[Path]:
    """Write the table as files and as a figure; return their paths."""
    table = found.table
    name = f"change_{found.areas.tag}_{_quarters(opened, found)}"
    paths = write_areas(opened, found.areas, found.frame, described, name)
    percent = table["change_percent"].to_numpy()
    rose = table["probability_rose"].to_numpy()
    quantity, quarters = quantity_of(opened.settings.target), found.described
    picture = choropleth(
        opened.inputs.region,
        opened.tiles,
        found.areas.shapes,
        (
            Panel(percent, change_scale(percent, label="change of the level, %"), "change"),
            Panel(
                rose,
                share_scale(rose, label="probability of a rise", palette=PROBABILITY_PALETTE),
                "probability that the level rose",
            ),
        ),
        title=f"Change of {quantity.subject} by area, {quarters['from']} to {quarters['to']}",
        subtitle=f"{opened.inputs.region.name}; level; black outline: areas with a direction",
        marked=table["direction"].to_numpy() != "",
        attribution=opened.inputs.ingested.attribution,
    )
    paths.append(opened.path / f"{name}.png")
    write_bytes(paths[-1], picture)
    return paths


def _write_tiles(opened: Reopened, found: LevelChanges) -> list[Path]:
    """Write rasters of the change of each tile; return their paths."""
    quarters, told = _quarters(opened, found), found.described
    between = f"from {told['from']} to {told['to']}"
    # What nobody measured near is never called certain.
    rose = np.where(opened.far, np.nan, found.tiles.rose)
    variables = {}
    for name, values, label, unit in (
        ("change_percent", found.tiles.percent, f"median change of the level {between}", "%"),
        (
            "change_sd",
            found.tiles.sd,
            f"standard deviation of the change {between} of log10 of the level",
            "1",
        ),
        (
            "probability_rose",
            rose,
            f"probability that the level rose {between}; no data far from any measurement",
            "1",
        ),
    ):
        about = {"long_name": label, "units": unit}
        variables[f"{name}_{quarters}"] = values.astype(np.float32), np.nan, about
    grid = tile_grid(opened, variables)
    return write_styles(grid, opened.path) + write_geotiffs(grid, opened.path)


def _quarters(opened: Reopened, found: LevelChanges) -> str:
    """Return target and quarters for file names, such as ``download_2021Q4_2023Q4``."""
    return f"{opened.settings.target}_{found.described['from']}_{found.described['to']}"

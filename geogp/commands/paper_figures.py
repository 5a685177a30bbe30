"""Figures of a run for papers: kernel, basis, interval widths, spread and reliability."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.requests import FiguresRequest
from geogp.answers.run import Run, open_run
from geogp.errors import RequestError
from geogp.evaluation.assessment import split_rows, widths_by_group
from geogp.evaluation.joint_scores import target_rows
from geogp.evaluation.score_groups import Reliability, group_reports
from geogp.evaluation.splits.split_names import RANDOM, SPLITS
from geogp.evaluation.spread import CELL_DEGREES, MIN_ROWS, spread_by_cell
from geogp.files import write_bytes
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.places.stratum_names import ALL
from geogp.geodata.tiles.targets import target_names
from geogp.maps.figures.charts import reliability_panels, width_violins
from geogp.maps.figures.figure_layout import Canvas
from geogp.maps.figures.panels import cell_panels, component_panels, slices_panels
from geogp.maps.target_quantities import quantity_of
from geogp.models.joint.law import Components, leading_components
from geogp.models.names import find_model
from geogp.reports.rendering import say
from geogp.runs.output_files import OutputFiles
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.draw import reference_slices
from geogp.runs.progress import ProgressListener
from geogp.runs.reopen import Reopened
from geogp.runs.run_folder import locked_run
from geogp.runs.run_names import run_names
from geogp.runs.run_places import RunPlaces

Floats = NDArray[np.float64]
Figures = dict[str, tuple[Canvas, str]]
"""The drawing and the caption of each figure, by name."""

FOLDER = "figures"
"""Default folder of the figures, in the run folder."""

_NAMES = ("kernel_slices", "interval_widths", "spread_cells", "basis", "reliability")
_CAPTIONS = "captions.md"

COMPONENTS = 6
"""Number of components of the basis that a figure shows."""

_SPLITS_SHOWN = 3


@dataclass(frozen=True)
class FiguresResult:
    """The written files; captions, and reasons for omitted figures, by the name of the figure."""

    files: tuple[Path, ...]
    captions: dict[str, str]
    left_out: dict[str, str]


def make_figures(
    request: FiguresRequest, listener: ProgressListener | None = None
) -> FiguresResult:
    """Draw the figures of a run, each as PNG and PDF, and write their captions.

    ``kernel_slices``, ``interval_widths`` and ``spread_cells`` correspond to figures 7, 8 and 10 of
    Zhu, Yuchi and Xie. ``basis`` shows components of the basis, and ``reliability`` the observed
    and stated coverage. For numbers of tests, ``interval_widths`` and ``spread_cells`` are omitted.
    The folder of the figures of a named target ends with its name.

    Raises the errors of `open_run`. Raises RequestError if a run in `beside` has another region,
    service or target, or another process is using the run. If `out` is not the folder ``figures``
    of the run, raises the errors of `OutputFiles`. Raises DataError if no cell has enough test
    rows, and OutputError if a file cannot be written.
    """
    named = "" if request.target is None else f"-{request.target}"
    out, write = request.out or request.run / f"{FOLDER}{named}", write_bytes
    apart = os.path.realpath(out) != str(Path(os.path.realpath(request.run)) / f"{FOLDER}{named}")
    if apart:
        files = [out / f"{name}.{end}" for name in _NAMES for end in ("png", "pdf")]
        inputs, runs = (request.source, request.boundaries), (request.run, *request.beside)
        every = (*files, out / _CAPTIONS)
        write = OutputFiles("figures", every, reads=inputs, runs=runs, force=request.force).write
    with nullcontext() if apart else locked_run(request.run):
        run = open_run(
            request.run,
            device=request.device,
            read_from=RunPlaces(request.source, request.boundaries),
            listener=listener,
        )
        with arithmetic(precision=run.record.precision):
            return _figures(run, request, out, write)


def _figures(
    run: Run, request: FiguresRequest, out: Path, write: Callable[[Path, bytes], None]
) -> FiguresResult:
    record, splits = run.record, list(run.record.metrics)
    counts, model = find_model(record.model).counts, record.model
    split = RANDOM.name if RANDOM.name in splits else splits[0]
    if counts and request.beside:
        raise RequestError(
            f"the target of {request.run} is the number of tests, and --beside adds models to the "
            "figure interval_widths, which does not exist for counts. Leave --beside out."
        )
    opened = run.reopen(counts=True, target=request.target)
    target = opened.settings.target
    if not counts:
        widths = _widths(run, [open_run(path) for path in request.beside], split, target)
        cells = spread_by_cell(_rows_of(run, split, target))
    run.listener.stage("computing the kernel and the components of the basis over the region")
    slices, components = _kernel(opened)
    run.listener.stage("drawing")
    region, tiles, at = opened.inputs.region, opened.tiles, opened.record.map.at
    quantity = quantity_of(target)
    what = f"{region.name}, {record.service}, {quantity.subject}"
    drawn: Figures = {
        "kernel_slices": (
            slices_panels(region, tiles, slices, target=target),
            say("captions", "kernel_slices", what, model, at, counts),
        )
    }
    if not counts:
        unit = quantity.scale.unit(quantity.unit)
        drawn["interval_widths"] = (
            width_violins(widths, unit=unit),
            say("captions", "interval_widths", what, SPLITS[split].title),
        )
        drawn["spread_cells"] = (
            _spread_panels(region, tiles, cells, unit),
            _spread_caption(opened, cells, what, SPLITS[split].title),
        )
    drawn["basis"] = (
        component_panels(region, tiles, components.values, components.share),
        say("captions", "basis", what, model, at, components.share),
    )
    drawn["reliability"] = (
        reliability_panels(_curves(run, target)),
        say("captions", "reliability", what, model, counts),
    )
    absent = ("interval_widths", "spread_cells") if counts else ()
    left_out = {name: say("captions", "left_out", name) for name in absent}
    files = _write(out, drawn, left_out, write)
    captions = {name: caption for name, (_, caption) in drawn.items()}
    return FiguresResult(tuple(files), captions, left_out)


def _spread_panels(region: Region, tiles: Tiles, cells: pd.DataFrame, unit: str) -> Canvas:
    names = ("west", "south", "measured", "error", "predicted")
    west, south, *values = (cells[name].to_numpy() for name in names)
    titles = ("measurements", "errors of the prediction", "as predicted")
    shown = dict(zip(titles, values, strict=True))
    return cell_panels(region, tiles, west, south, shown, degrees=CELL_DEGREES, unit=unit)


def _spread_caption(opened: Reopened, cells: pd.DataFrame, what: str, split: str) -> str:
    together = cells["error"].corr(cells["predicted"]) if len(cells) > 2 else np.nan
    return say(
        "captions",
        "spread_cells",
        what,
        opened.record.model,
        split,
        cells=len(cells),
        degrees=CELL_DEGREES,
        least=MIN_ROWS,
        together=float(together) if np.isfinite(together) else None,
        conformal=opened.record.settings.checks.conformal != "none",
    )


def _write(
    folder: Path,
    drawn: Figures,
    left_out: dict[str, str],
    write: Callable[[Path, bytes], None],
) -> list[Path]:
    files = []
    for name, (canvas, _) in drawn.items():
        for end, content in (("png", canvas.png()), ("pdf", canvas.pdf())):
            files.append(folder / f"{name}.{end}")
            write(files[-1], content)
    parts = [f"**{name}.** {caption}" for name, (_, caption) in drawn.items()]
    parts += [f"**{name}** is left out: {reason}." for name, reason in left_out.items()]
    files.append(folder / _CAPTIONS)
    write(files[-1], ("\n\n".join(parts) + "\n").encode())
    return files


def _widths(run: Run, others: list[Run], split: str, target: str) -> dict[str, dict[str, Floats]]:
    """Return the widths of the intervals of a target, by run and stratum."""
    for other in others:
        for key in ("region", "service", "target"):
            expected, value = getattr(run.record, key), getattr(other.record, key)
            if expected != value:
                raise RequestError(f"{other.path} has the {key} {value}, expected {expected}.")
    runs = [run, *others]
    names = [shown.record.model for shown in runs]
    if len(set(names)) < len(names):
        names = run_names([shown.path for shown in runs])
    return {
        name: _by_stratum(widths_by_group(_rows_of(shown, split, target)))
        for name, shown in zip(names, runs, strict=True)
    }


def _rows_of(run: Run, split: str, target: str) -> pd.DataFrame:
    """Return the test rows of a split, with the columns of one of several targets."""
    rows = run.predictions[run.predictions["split"] == split]
    if rows.empty:
        raise RequestError(
            f"{run.path} has no test rows of the split {split}. Make a run with --split {split}."
        )
    return target_rows(rows, target_names(run.record.target), target)


def _by_stratum(values: dict[str, Floats]) -> dict[str, Floats]:
    """Return the values of each stratum with rows, or of all rows if strata are unknown."""
    known = {name: rows for name, rows in values.items() if name != ALL and len(rows)}
    return known or {ALL: values[ALL]}


def _kernel(opened: Reopened) -> tuple[list[Any], Components]:
    tiles = opened.tiles
    slices = reference_slices(opened.inputs, opened.question, opened.model, tiles)
    inputs = opened.model.inputs(opened.places(opened.question.quarter))
    return slices, leading_components(opened.model.network_, inputs, COMPONENTS)


def _curves(run: Run, target: str) -> dict[str, dict[str, Reliability]]:
    """Return the reliability curves of the first three splits, by title and stratum."""
    by_split = {}
    for name in list(run.record.metrics)[:_SPLITS_SHOWN]:
        rows = _rows_of(run, name, target)
        groups = group_reports(rows, split_rows(rows), {})
        curves = {
            group: report.reliability for group, report in groups.items() if report.reliability
        }
        whole = curves.pop(ALL)
        by_split[SPLITS[name].title] = curves or {ALL: whole}
    return by_split

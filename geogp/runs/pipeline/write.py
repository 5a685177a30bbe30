"""The last step of a run: writes all files of the run folder, and its reports."""

from pathlib import Path

import pandas as pd
from msgspec import UNSET, convert
from msgspec.structs import replace

from geogp.files import sha256_of, write_bytes, write_text
from geogp.geodata.points.point_tests import PointTests
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.csv_tables import write_csv
from geogp.models.numerics.threads import aside
from geogp.records.input_records import EXTENT, PointsRecord, ProviderRecord, UnitRecord
from geogp.records.run_record import RowsLeftOut, RunMap, RunRecord
from geogp.reports.beside import Beside
from geogp.runs.pipeline.draw import MapContent
from geogp.runs.pipeline.fit import Fits
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.repair import with_repair
from geogp.runs.pipeline.target_kinds import kind_of
from geogp.runs.progress import RunListener
from geogp.runs.run_folder import GRID_FILE, MODEL_FILE, PREDICTIONS_FILE, RunFolder

LEFT_OUT_FILE = "left_out.csv"
"""The rows of the user's own file that a run leaves out, with the reasons."""

PAGE_FILE = "map.html"
"""The interactive page in a run folder."""

REPORT_FILES = ("report.json", "report.md", "report.html")
"""The report in a run folder, which is made from run.json and the test predictions."""


def write_run(
    folder: RunFolder,
    inputs: Inputs,
    fits: Fits,
    content: MapContent,
    listener: RunListener,
    *,
    base_map: bool,
    keep_later: bool = False,
) -> RunRecord:
    """Write all files of a run into its folder, and return its record.

    `base_map` shows streets and names on the page, below the data. `keep_later` keeps the files of
    other commands. Raises OutputError if a file cannot be written.
    """
    listener.begin("write", "writing maps and report")
    attribution, points = inputs.ingested.attribution, inputs.points
    extent = "" if points is None else dict(points.notes).get(EXTENT, "")
    notes = [*([f"{extent[0].upper()}{extent[1:]}."] if extent else []), *listener.warnings]

    def write(staged: Path) -> RunRecord:
        with listener.timed("write"):
            fits.save_model(staged / MODEL_FILE)
            plain = fits.predictions.astype({"stratum": str})
            table = plain.to_parquet(index=False, compression="zstd", write_page_checksum=True)
            write_bytes(staged / PREDICTIONS_FILE, table)
            # The figures change settings of matplotlib meanwhile, none of which the page uses.
            with aside(
                lambda: content.html(attribution, notes, base_map=base_map),
                fits.device,
            ) as page:
                content.write(staged, attribution)
            write_text(staged / PAGE_FILE, page())
            if points is not None and len(points.left_out):
                write_csv(staged / LEFT_OUT_FILE, points.left_out)
            drawn = replace(content.record, grid_sha256=sha256_of(staged / GRID_FILE))
            run = _record(inputs, fits, content, drawn, listener)
            write_report(staged, run, fits.predictions)
        drawn = replace(drawn, page_bytes=(staged / PAGE_FILE).stat().st_size)
        return replace(run, map=drawn, seconds=dict(listener.seconds))

    run = folder.complete(write, keep_later=keep_later)
    listener.clock.end()
    return run


def write_report(folder: Path, run: RunRecord, predictions: pd.DataFrame) -> None:
    """Write `REPORT_FILES` into a folder; the report shows the picture of the map there."""
    beside = Beside.in_folder(folder, run.target)
    for name, text in kind_of(run.target).report(run, predictions, beside).items():
        write_text(folder / name, text)


def _record(
    inputs: Inputs, fits: Fits, content: MapContent, drawn: RunMap, listener: RunListener
) -> RunRecord:
    """Return the content of run.json, without its list of files; `drawn` is the map's entry."""
    ingested, rows, points = inputs.ingested, inputs.observations, inputs.points
    return replace(
        fits.record,
        region_name=inputs.region.name,
        quarters_missing=[quarter_label(quarter) for quarter in ingested.missing],
        quarters_unreached=[quarter_label(quarter) for quarter in ingested.unreached],
        rows_left_out=[convert(left.described(), RowsLeftOut) for left in ingested.left_out],
        calibration=with_repair(fits.record.calibration, content.repair),
        covariates=content.covariates or UNSET,
        providers=[_provider(rows, name) for name in inputs.providers] or UNSET,
        points=UNSET if points is None else _points_record(points),
        seconds=dict(listener.seconds),
        warnings=list(listener.warnings),
        map=drawn,
        attribution=ingested.attribution,
    )


def _points_record(points: PointTests) -> PointsRecord:
    """Return what run.json says of the user's own file of tests."""
    return PointsRecord(
        understood=dict(points.notes),
        units={
            name: UnitRecord(unit=unit, read_from=origin)
            for name, (unit, origin) in points.units.items()
        },
        rows=points.rows,
        left_out=points.counts,
    )


def _provider(rows: Observations, name: str) -> ProviderRecord:
    own = rows.of_provider(name)
    return ProviderRecord(name=name, rows=len(own), tests=int(own.tests.sum()))

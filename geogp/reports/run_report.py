"""The report on one run: how well it predicts, and whether its intervals hold.

`build_report` works every figure out again from the test predictions, and refuses a run whose
files contradict each other. The three writers only lay out what it returns.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from msgspec import to_builtins

from geogp.errors import DataError
from geogp.evaluation.assessment import (
    TABLE_LEVELS,
    check_columns,
    counted,
    widths_by_group,
)
from geogp.evaluation.splits.split_names import BLOCKS, SPLITS
from geogp.geodata.places.stratum_column import with_strata
from geogp.records.run_record import RunRecord, RunSettings, given
from geogp.reports import report_figures as figures
from geogp.reports import strata_words, words
from geogp.reports import threshold_page as exceedance_page
from geogp.reports.coverage_figure import coverage_figure
from geogp.reports.rendering import environment, html_page
from geogp.reports.split_report import SplitReport, split_report
from geogp.reports.variance_words import variances


@dataclass(frozen=True)
class Report:
    """All that a report says, in values that JSON can hold.

    Attributes
    ----------
    geogp
        Version that made the run.
    region, service, target, model, preset, seed, device
        As in run.json; the region in words.
    unit, plain_unit
        Unit of all errors and widths (``log10 Mbps``), and of the quantity where that is its
        logarithm (``Mbps``).
    quarters, quarters_missing, quarters_unreached
        Labels such as ``2019Q1``.
    rows_left_out
        How many rows of the source hold values that cannot be; the warnings name them.
    settings, inputs, seconds, warnings
        As in run.json; each input has `name`, `sha256` and `rows`.
    attribution
        Whom the data are by.
    headline
        Whether the 95 % intervals hold, in one sentence.
    findings
        One sentence for each split, with numbers.
    marks
        By split, which strata are marked, or that none is, in one sentence.
    rules
        How strata are put together and marked.
    repairs
        How the intervals were repaired, and other statements of the run.
    statements
        What to know before trusting the figures.
    splits
        By name, those that were run: ``blocks`` first, those that flatter last.
    """

    geogp: str | None
    region: str
    service: str | None
    target: str
    model: str
    preset: str | None
    seed: int | None
    device: str | None
    unit: str
    plain_unit: str
    quarters: list[str]
    quarters_missing: list[str]
    quarters_unreached: list[str]
    rows_left_out: int
    settings: dict[str, Any]
    inputs: list[dict[str, Any]]
    seconds: dict[str, float]
    warnings: list[str]
    attribution: str
    headline: str
    findings: list[str]
    marks: dict[str, str]
    rules: list[str]
    repairs: list[str]
    statements: list[str]
    splits: dict[str, SplitReport]


def build_report(run: RunRecord, predictions: pd.DataFrame) -> Report:
    """Work out the report on a run.

    Parameters
    ----------
    run
        What run.json holds. `metrics` and `baseline` may lack a split, or hold none.
    predictions
        The content of test_predictions.parquet.

    Returns
    -------
    Report

    Raises
    ------
    DataError
        Columns are missing, a split has an unknown name, or the predictions contradict the figures
        of run.json or their own bounds.
    NumericalError
        A mean or variance among the predictions is out of range.
    """
    check_columns(predictions)
    predictions = with_strata(predictions, run.strata)
    splits = _split_reports(run, predictions)
    unit, plain_unit = words.UNITS[run.target]
    return Report(
        geogp=given(run.geogp, None),
        region=run.region_in_words,
        service=run.service,
        target=run.target,
        model=run.model,
        preset=run.preset,
        seed=given(run.seed, None),
        device=given(run.device, None),
        unit=unit,
        plain_unit=plain_unit,
        quarters=given(run.quarters, []),
        quarters_missing=given(run.quarters_missing, []),
        quarters_unreached=given(run.quarters_unreached, []),
        rows_left_out=sum(one.rows for one in given(run.rows_left_out, [])),
        settings=to_builtins(given(run.settings, RunSettings())),
        inputs=to_builtins(given(run.inputs, [])),
        # The report is written while the clock for writing still runs.
        seconds={k: v for k, v in given(run.seconds, {}).items() if k != "write"},
        warnings=given(run.warnings, []),
        attribution=given(run.attribution, "") or words.DEFAULT_ATTRIBUTION,
        headline=words.headline(next(iter(splits.values()))),
        findings=[words.finding(split) for split in splits.values()],
        marks={name: strata_words.marks(split) for name, split in splits.items()},
        rules=[strata_words.POOLING, strata_words.MARKING],
        repairs=words.repairs(run) + variances(run.variance_check),
        statements=words.statements(splits, counts=counted(predictions)),
        splits=splits,
    )


def report_json(report: Report) -> str:
    """Return the report as JSON, with every figure unrounded."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def report_markdown(report: Report) -> str:
    """Return the report as Markdown, without figures; text from outside is escaped."""
    return environment().get_template("report.md.j2").render(_context(report))


def report_html(report: Report, predictions: pd.DataFrame) -> str:
    """Return the report as one HTML page that needs no other file and no network.

    Parameters
    ----------
    report
        As `build_report` returned it.
    predictions
        The same test predictions, for the violins of interval widths.

    Raises
    ------
    DataError
        The predictions are not those of the report.
    """
    drawn = {}
    predictions = with_strata(predictions, report.settings.get("strata"))
    for name, split in report.splits.items():
        rows = predictions[predictions["split"] == name]
        if len(rows) != split.groups["all"].n:
            raise DataError(
                f"expected the report's {split.groups['all'].n} rows of the split {name!r}, found "
                f"{len(rows)}. Build the report again from these predictions."
            )
        drawn[name] = [
            coverage_figure(split),
            *figures.split_figures(split, widths_by_group(rows), report.unit),
        ]
    probabilities = {
        name: exceedance_page.exceedance_figure(split.exceedances)
        for name, split in report.splits.items()
        if split.exceedances
    }
    context = {**_context(report), "figures": drawn, "probabilities": probabilities}
    return html_page("report", context)


def _split_reports(run: RunRecord, predictions: pd.DataFrame) -> dict[str, SplitReport]:
    found = [str(name) for name in pd.unique(predictions["split"])]
    odd = sorted(set(found) - set(SPLITS))
    if odd:
        raise DataError(f"expected the splits {', '.join(SPLITS)}, found {', '.join(odd)}.")
    absent = sorted(set(run.metrics) - set(found))
    if absent:
        raise DataError(
            f"run.json has figures of the split {', '.join(absent)}, but test_predictions.parquet "
            "has no rows of it. Was one of the files edited? Run `geogp map` again with --fresh."
        )
    return {
        name: split_report(name, predictions[predictions["split"] == name], run)
        for name in sorted(found, key=_place)
    }


def _place(name: str) -> tuple[bool, bool, int]:
    """Return what splits are ordered by: blocks first, those that flatter last."""
    return name != BLOCKS.name, SPLITS[name].flatters, list(SPLITS).index(name)


def _context(report: Report) -> dict[str, Any]:
    return {
        "report": report,
        "levels": TABLE_LEVELS,
        "words": words,
        "strata": strata_words,
        **exceedance_page.CONTEXT,
    }

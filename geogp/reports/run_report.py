"""The report on one run, with its scores and the coverage of its intervals.

`build_report` computes every number from the test predictions; only the scores of the baseline are
those of run.json. The other functions only format the report.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from msgspec import to_builtins

from geogp.errors import DataError, named
from geogp.evaluation.assessment import (
    TABLE_LEVELS,
    check_columns,
    counted,
    widths_by_group,
)
from geogp.evaluation.simultaneous_coverage import (
    FEW_BLOCKS,
    MIN_BLOCKS,
    MIN_SPLIT_BLOCKS,
    TOLERANCE,
)
from geogp.evaluation.splits.split_names import BLOCKS, SPLITS
from geogp.evaluation.strata import MIN_ROWS, some_devices_missing
from geogp.evaluation.threshold_reliability import MIN_EFFECTIVE
from geogp.geodata.places.stratum_column import with_strata
from geogp.records.record_names import NOISE_IN_SPREAD
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_record import RunRecord, VarianceCheck, given
from geogp.reports.beside import NOTHING_BESIDE, Beside
from geogp.reports.place_checks import PlaceCheck, place_checks
from geogp.reports.rendering import (
    environment,
    html_page,
    latex_table,
    report_json,
    say,
    say_all,
    say_labelled,
)
from geogp.reports.report_facts import ReportFacts, far_from_data, report_facts
from geogp.reports.report_figures import areas_figure, split_figures, thresholds_figure
from geogp.reports.split_report import SplitReport, split_report
from geogp.reports.summary import Summary, summary_of
from geogp.reports.words import units_of

LIMITS = {
    "rows": MIN_ROWS,
    "blocks": MIN_BLOCKS,
    "split_blocks": MIN_SPLIT_BLOCKS,
    "few": FEW_BLOCKS,
    "points": round(100 * TOLERANCE),
    "effective": MIN_EFFECTIVE,
}
"""Limits for judging and marking strata and probabilities; the report states these limits."""


@dataclass(frozen=True)
class Report(ReportFacts):
    """The content of a report, in values that can be written as JSON.

    `unit` is the unit of all errors and widths (such as ``log10 Mbps``). `plain_unit` is the unit
    without the logarithm (``Mbps``), or empty.

    `summary` is the first page. `places` says how right the intervals are in each kind of
    place. The following fields have sentences. `headline` states whether the 95 % intervals
    have the stated coverage. `reliance` says what a reader may rely on, by label, and how wide
    the intervals are. `covariates` has one sentence for each covariate, and one for all
    providers. `findings` has one sentence for each split, and one for each split with intervals
    that are too narrow in rough places (see `rough_places.py`). `areas` has one for each entry
    of `areas_check` and `areas_unchecked` of run.json. `marks` names the marked strata of each
    split. `rules` explains how strata are pooled and marked, `repairs` explains how the
    intervals were repaired, and `statements` explains the limits of the numbers. `splits` has
    the split reports by name: ``blocks`` comes first; splits with training rows near test rows
    (`splits.Split.flatters`) come last.
    """

    unit: str
    plain_unit: str
    summary: Summary
    places: list[PlaceCheck]
    headline: str
    reliance: dict[str, str]
    covariates: list[str]
    findings: list[str]
    areas: list[str]
    areas_check: dict[str, dict[str, Any]]
    marks: dict[str, str]
    rules: list[str]
    repairs: list[str]
    statements: list[str]
    splits: dict[str, SplitReport]


def build_report(
    run: RunRecord, predictions: pd.DataFrame, beside: Beside = NOTHING_BESIDE
) -> Report:
    """Build the report on a run from run.json, test_predictions.parquet and answers beside them.

    `baseline` of run.json may lack some or all splits. Raises DataError if columns are missing or a
    split is unknown, and the errors of `split_report`.
    """
    check_columns(predictions)
    predictions = with_strata(predictions, run.strata)
    splits = {
        name: split_report(name, predictions[predictions["split"] == name], run)
        for name in split_names(predictions)
    }
    unit, plain_unit = units_of(run.target)
    by_split = predictions.groupby("split", sort=False)
    main, far = next(iter(splits.values())), far_from_data(run)
    places = place_checks(run, {name: split.places_checked for name, split in splits.items()})
    same = given(run.same_splits, {})
    areas: dict[str, dict[str, Any]] = to_builtins(given(run.areas_check, {}))
    checks = {name: areas[name] for name in splits if name in areas}
    gaps = [splits[str(name)].title for name, rows in by_split if some_devices_missing(rows)]
    return Report(
        **vars(report_facts(run)),
        unit=unit,
        plain_unit=plain_unit,
        summary=summary_of(run.target, main, far, beside, places),
        places=places,
        headline=say("report", "headline", main),
        reliance=say_labelled("report", "reliance", main, far, places, bool(same), unit),
        covariates=[
            *(say("report", "covariate", one, unit) for one in given(run.covariates, [])),
            *([say("report", "providers", run.providers)] if given(run.providers, []) else []),
        ],
        findings=[
            *(say("report", "finding", split) for split in splits.values()),
            *(text for split in splits.values() if (text := say("report", "rough", split))),
            *(
                say("report", "tiers_finding", split.together, split.title)
                for split in splits.values()
                if split.together is not None and split.together.tiers
            ),
        ],
        areas=[
            *(say("report", "areas", splits[name].title, one) for name, one in checks.items()),
            *(
                f"{splits[name].title}, means over areas: not checked: {why}"
                for name, why in given(run.areas_unchecked, {}).items()
                if name in splits
            ),
        ],
        areas_check=checks,
        marks={name: say("report", "marks", split, LIMITS) for name, split in splits.items()},
        rules=say_all("report", "rules", LIMITS),
        repairs=_repairs(run) + _variances(run.variance_check),
        statements=say_all("report", "statements", splits, counted(predictions), gaps),
        splits=splits,
    )


def report_texts(
    run: RunRecord,
    predictions: pd.DataFrame,
    beside: Beside = NOTHING_BESIDE,
    *,
    latex: bool = False,
) -> dict[str, str]:
    """Return the files of the report by name; with `latex`, also report.tex; see `build_report`.

    The report shows the pictures and answers that lie beside it.
    """
    report = build_report(run, predictions, beside)
    found = {
        "report.json": report_json(report),
        "report.md": report_markdown(report, beside),
        "report.html": report_html(report, predictions, beside),
    }
    return found | ({"report.tex": report_latex(report)} if latex else {})


def report_markdown(report: Report, beside: Beside = NOTHING_BESIDE) -> str:
    """Return the report as Markdown, without figures; text from the data is escaped."""
    return environment().get_template("report.md.j2").render(_context(report), beside=beside)


def report_latex(report: Report) -> str:
    r"""Return a booktabs table of splits and strata, for ``\input`` in a document.

    The columns are: coverage at four levels, in percent; median width of the 95 % intervals, and
    CRPS, both on the scale of the target; log score; and the gain in log score over the baseline.
    The table needs the package booktabs and a line of 12 cm, as in LaTeX's class article on A4
    paper.
    """
    return latex_table("report", {**_context(report), "splits": report.splits})


def report_html(report: Report, predictions: pd.DataFrame, beside: Beside = NOTHING_BESIDE) -> str:
    """Return the report as one HTML page that needs no other file and no network.

    `predictions` are the test predictions from which the report was built, for the violins of
    interval widths.
    """
    drawn = {}
    predictions = with_strata(predictions, report.settings.get("strata"))
    for name, split in report.splits.items():
        rows = predictions[predictions["split"] == name]
        drawn[name] = split_figures(split, widths_by_group(rows), report.unit)
    probabilities = {
        name: thresholds_figure(split.exceedances)
        for name, split in report.splits.items()
        if split.exceedances
    }
    areas = {report.splits[name].title: check for name, check in report.areas_check.items()}
    context = {
        **_context(report),
        "figures": drawn,
        "probabilities": probabilities,
        "areas": areas_figure(areas) if areas else "",
        "beside": beside,
    }
    return html_page("report", context)


def split_names(predictions: pd.DataFrame) -> list[str]:
    """Return the splits of test predictions in the order of the report.

    Raises DataError if a split is unknown.
    """
    found = [str(name) for name in pd.unique(predictions["split"])]
    odd = sorted(set(found) - set(SPLITS))
    if odd:
        raise DataError(f"expected the splits {', '.join(SPLITS)}, found {named(odd)}.")
    # ``blocks`` comes first, and splits with near training rows come last.
    in_order = sorted(SPLITS, key=lambda name: (name != BLOCKS.name, SPLITS[name].flatters))
    return [name for name in in_order if name in found]


def _context(report: Report) -> dict[str, Any]:
    return {"report": report, "levels": TABLE_LEVELS, "limits": LIMITS}


def _repairs(run: RunRecord) -> list[str]:
    """Return the sentences about the repair of the intervals, if there was one."""
    method = run.settings.checks.conformal
    if method == "none":
        return []
    statements = given(given(run.calibration, CalibrationRecord()).statements, [])
    return [say("report", "repaired", method), *statements]


def _variances(check: VarianceCheck | None) -> list[str]:
    """Return sentences about `variance_check` in run.json; none if the two variances are equal."""
    if check is None:
        return []
    # Earlier versions compared the variances only if the function variance includes noise.
    why = given(check.differ_by, NOISE_IN_SPREAD)
    return [say("report", "variances", why, check.stated, check.closed_form)]

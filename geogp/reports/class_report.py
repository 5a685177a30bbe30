"""The report on a run whose target is a class, such as a tier of speed.

Every number is computed from the test predictions.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.evaluation.class_scores import class_calibration_errors
from geogp.evaluation.class_tables import (
    BY_QUARTER,
    BY_STRATUM_SHARES,
    MODEL,
    check_class_columns,
    codes_of,
    probability_columns,
    table_scores,
)
from geogp.evaluation.metrics import rows_by_group
from geogp.evaluation.scores import ClassScores
from geogp.evaluation.threshold_reliability import (
    ClassEvent,
    ExceedanceReport,
    class_events,
    exceedance_reports,
)
from geogp.geodata.places.stratum_column import with_strata
from geogp.geodata.tiles.targets import find_target
from geogp.records.run_record import RunRecord
from geogp.reports.beside import NOTHING_BESIDE, Beside
from geogp.reports.rendering import (
    environment,
    html_page,
    report_json,
    say,
    say_all,
    say_labelled,
)
from geogp.reports.report_facts import (
    ReportFacts,
    SplitFacts,
    far_from_data,
    report_facts,
    split_facts,
)
from geogp.reports.report_figures import thresholds_figure
from geogp.reports.run_report import LIMITS, split_names

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassGroup:
    """Scores of one stratum, or of all rows, in one split; None if there are no rows.

    `baseline` has the shares of the classes in the training rows of the same quarter, and
    `by_stratum` those of the same quarter and stratum. `gain` is the log score of `baseline` minus
    that of the model, and `gain_by_stratum` the same for `by_stratum`. `class_errors` is the
    calibration error of each class; see `class_calibration_errors`.
    """

    n: int
    tiles: int
    scores: ClassScores
    baseline: ClassScores
    by_stratum: ClassScores
    gain: float | None
    gain_by_stratum: float | None
    class_errors: dict[str, float]


@dataclass(frozen=True)
class ClassSplitReport(SplitFacts):
    """Scores of one split.

    `reliability` compares the stated probability of each class with its observed share, in all rows
    and in each stratum.
    """

    groups: dict[str, ClassGroup]
    reliability: list[ExceedanceReport]

    @property
    def drawn(self) -> list[str]:
        """All rows, and the strata with a report on reliability."""
        return list(dict.fromkeys(one.group for one in self.reliability))


@dataclass(frozen=True)
class ClassRunReport(ReportFacts):
    """The content of a report on classes, in values that can be written as JSON.

    `classes` are in increasing order. `headline`, `findings` and `statements` are sentences, and
    `reliance` has sentences by label.
    """

    classes: list[str]
    headline: str
    reliance: dict[str, str]
    findings: list[str]
    statements: list[str]
    splits: dict[str, ClassSplitReport]


def class_report_texts(
    run: RunRecord,
    predictions: pd.DataFrame,
    beside: Beside = NOTHING_BESIDE,
    *,
    latex: bool = False,
) -> dict[str, str]:
    """Return the files of the report by name; raise RequestError for `latex`.

    Raises DataError if columns are missing, or a split is unknown.
    """
    if latex:
        raise RequestError(
            f"report.tex is a table of intervals, which a run with the target {run.target} does "
            f"not have. Leave --latex out; report.json has all scores."
        )
    report = build_class_report(run, predictions)
    figures = {
        name: {group: thresholds_figure(split.reliability, group) for group in split.drawn}
        for name, split in report.splits.items()
    }
    context = {"report": report, "limits": LIMITS, "figures": figures, "beside": beside}
    return {
        "report.json": report_json(report),
        "report.md": environment().get_template("class_report.md.j2").render(context),
        "report.html": html_page("class_report", context, style="report.css"),
    }


def build_class_report(run: RunRecord, predictions: pd.DataFrame) -> ClassRunReport:
    """Build the report on a run of classes from run.json and test_predictions.parquet."""
    target = find_target(run.target)
    starts = (MODEL, BY_QUARTER, BY_STRATUM_SHARES)
    columns = {one: probability_columns(one, target.suffix, target.classes) for one in starts}
    check_class_columns(predictions, [name for part in columns.values() for name in part])
    predictions = with_strata(predictions, run.strata)
    splits = {
        name: _split(name, predictions[predictions["split"] == name], run, columns)
        for name in split_names(predictions)
    }
    first = next(iter(splits.values()))
    return ClassRunReport(
        **vars(report_facts(run)),
        classes=list(target.classes),
        headline=say("class_report", "headline", first, run.target),
        reliance=say_labelled("class_report", "reliance", first, far_from_data(run), run.target),
        findings=[say("class_report", "finding", one, run.target) for one in splits.values()],
        statements=[
            *say_all("class_report", "statements", run.target),
            *say_all("report", "statements", splits, counts=False, gaps=[]),
        ],
        splits=splits,
    )


def _split(
    name: str, rows: pd.DataFrame, run: RunRecord, columns: dict[str, list[str]]
) -> ClassSplitReport:
    classes = find_target(run.target).classes
    found = {start: table_scores(rows, names) for start, names in columns.items()}
    p = rows[columns[MODEL]].to_numpy(np.float64)
    judge = partial(ClassEvent.probability, p=p)
    return ClassSplitReport(
        **vars(split_facts(name, rows, run, _groups(rows, p, classes, found))),
        reliability=exceedance_reports(rows, judge, class_events(classes)),
    )


def _groups(
    rows: pd.DataFrame,
    p: Floats,
    classes: tuple[str, ...],
    found: dict[str, dict[str, ClassScores]],
) -> dict[str, ClassGroup]:
    """Return the scores of all rows and of each stratum."""
    codes, groups = codes_of(rows), {}
    for group, chosen in rows_by_group(rows["stratum"], len(rows)).items():
        own, quarter, stratum = (
            found[start][group] for start in (MODEL, BY_QUARTER, BY_STRATUM_SHARES)
        )
        errors = class_calibration_errors(p[chosen], codes[chosen]) if own.n else []
        groups[group] = ClassGroup(
            own.n,
            int(rows.loc[chosen, "quadkey"].nunique()),
            own,
            quarter,
            stratum,
            own.gain(quarter),
            own.gain(stratum),
            dict(zip(classes, errors, strict=False)),
        )
    return groups

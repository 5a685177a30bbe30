"""The report on one run: how well it predicts, and whether its intervals hold.

`build_report` works every figure out again from the test predictions, and refuses a run whose
files contradict each other. The three writers only lay out what it returns.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from geogp.calibration import figures, words
from geogp.calibration.assessment import (
    TABLE_LEVELS,
    GroupReport,
    SplitReport,
    check_bounds,
    check_columns,
    check_scores,
    counted,
    group_reports,
    prediction_of,
    widths_by_group,
)
from geogp.calibration.classes import CLASS_LEVELS, table_classes
from geogp.calibration.metrics import GROUPS, score_by_stratum
from geogp.calibration.rendering import environment
from geogp.calibration.splits import BLOCKS, SPLITS
from geogp.errors import DataError
from geogp.geodata.quarters import quarter_label

_NEEDED = ("region", "target", "model", "metrics")
_ORDER = (BLOCKS.name, *(name for name in SPLITS if name != BLOCKS.name))


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
    quarters, quarters_missing
        Labels such as ``2019Q1``.
    settings, inputs, seconds, warnings
        As in run.json; each input has `name`, `sha256` and `rows`.
    attribution
        Whom the data are by.
    headline
        Whether the 95 % intervals hold, in one sentence.
    findings
        One sentence for each split, with numbers.
    statements
        What to know before trusting the figures.
    splits
        By name: ``blocks`` before ``random``, those that were run.
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
    settings: dict[str, Any]
    inputs: list[dict[str, Any]]
    seconds: dict[str, Any]
    warnings: list[str]
    attribution: str
    headline: str
    findings: list[str]
    statements: list[str]
    splits: dict[str, SplitReport]


def build_report(run: dict[str, Any], predictions: pd.DataFrame) -> Report:
    """Work out the report on a run.

    Parameters
    ----------
    run
        The content of run.json. `metrics` and `baseline` may lack a split, or hold none.
    predictions
        The content of test_predictions.parquet.

    Returns
    -------
    Report

    Raises
    ------
    DataError
        Keys or columns are missing, a split has an unknown name, or the predictions contradict
        the figures of run.json or their own bounds.
    NumericalError
        A mean or variance among the predictions is out of range.
    """
    missing = [key for key in _NEEDED if key not in run]
    if missing:
        raise DataError(
            f"expected the keys of run.json, missing {', '.join(missing)}. Run `geogp map` again."
        )
    check_columns(predictions)
    splits = _split_reports(run, predictions)
    unit, plain_unit = words.UNITS.get(run["target"], ("the unit of the target", ""))
    return Report(
        geogp=run.get("geogp"),
        region=_region_name(run),
        service=run.get("service"),
        target=run["target"],
        model=run["model"],
        preset=run.get("preset"),
        seed=run.get("seed"),
        device=run.get("device"),
        unit=unit,
        plain_unit=plain_unit,
        quarters=_quarter_labels(run.get("quarters")),
        quarters_missing=_quarter_labels(run.get("quarters_missing")),
        settings=dict(run.get("settings") or {}),
        inputs=_inputs(run.get("inputs")),
        # The report is written while the clock for writing still runs.
        seconds={k: v for k, v in (run.get("seconds") or {}).items() if k != "write"},
        warnings=[str(warning) for warning in run.get("warnings") or []],
        attribution=run.get("attribution") or words.DEFAULT_ATTRIBUTION,
        headline=words.headline(next(iter(splits.values()))),
        findings=[words.finding(split) for split in splits.values()],
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
    for name, split in report.splits.items():
        rows = predictions[predictions["split"] == name]
        if len(rows) != split.groups["all"].n:
            raise DataError(
                f"expected the report's {split.groups['all'].n} rows of the split {name!r}, found "
                f"{len(rows)}. Build the report again from these predictions."
            )
        drawn[name] = figures.split_figures(split, widths_by_group(rows), report.unit)
    template = environment().get_template("report.html.j2")
    return template.render(_context(report), figures=drawn)


def _split_reports(run: dict[str, Any], predictions: pd.DataFrame) -> dict[str, SplitReport]:
    found = [str(name) for name in pd.unique(predictions["split"])]
    odd = sorted(set(found) - set(SPLITS))
    if odd:
        raise DataError(f"expected the splits {', '.join(SPLITS)}, found {', '.join(odd)}.")
    metrics, baseline = run["metrics"] or {}, run.get("baseline") or {}
    absent = sorted(set(metrics) - set(found))
    if absent:
        raise DataError(
            f"run.json has figures of the split {', '.join(absent)}, but test_predictions.parquet "
            "has no rows of it. Was one of the files edited? Run `geogp map` again with --fresh."
        )
    reports = {}
    for name in sorted(found, key=_ORDER.index):
        rows = predictions[predictions["split"] == name]
        prediction = prediction_of(rows)
        check_bounds(name, rows, prediction)
        if name in metrics:
            scores = score_by_stratum(prediction, rows["y"], rows["stratum"])
            check_scores(name, scores, metrics[name])
        groups = group_reports(rows, prediction, baseline.get(name) or {})
        sizes = dict((run.get("n") or {}).get(name) or {})
        split = SPLITS[name]
        pit = prediction.pit(rows["y"].to_numpy(np.float64))
        reports[name] = SplitReport(
            name,
            split.title,
            split.question,
            sizes,
            groups,
            _width_ratio(groups),
            table_classes(rows, pit),
        )
    return reports


def _width_ratio(groups: dict[str, GroupReport]) -> float | None:
    urban, rural = (groups[name].median_width_95 for name in ("urban", "rural"))
    return None if not urban or rural is None else rural / urban


def _region_name(run: dict[str, Any]) -> str:
    """Return the region's name, with its code where that is something else."""
    code, name = str(run["region"]), run.get("region_name")
    return f"{name} ({code})" if name and name != code else code


def _quarter_labels(quarters: Any) -> list[str]:
    return [quarter_label(q) if isinstance(q, int) else str(q) for q in quarters or []]


def _inputs(inputs: Any) -> list[dict[str, Any]]:
    """Return the inputs as a list, whether run.json lists them or keys them by name."""
    if isinstance(inputs, dict):
        return [{"name": name, **entry} for name, entry in inputs.items()]
    return [dict(entry) for entry in inputs or []]


def _context(report: Report) -> dict[str, Any]:
    return {
        "report": report,
        "groups": GROUPS,
        "levels": TABLE_LEVELS,
        "class_levels": CLASS_LEVELS,
        "words": words,
    }

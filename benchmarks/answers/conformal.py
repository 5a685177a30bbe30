r"""Strata before and after a conformal repair, from finished runs.

    geogp map PR --preset quick --split both --conformal strata --out RUN ...
    python -m benchmarks answers.conformal RUN [RUN ...] --table benchmarks/results/conformal

The test predictions of a run with ``--conformal`` contain both: without the columns of the repair
they are the model's own. Writes a Markdown file for each run, with every cell of the repair and
its chance band, and every stratum of the report, before and after the repair.
"""

from pathlib import Path

import pandas as pd

import geogp
from benchmarks.markdown import percent, table
from benchmarks.script import Figures, parser
from geogp.distributions.warps import REPAIR_COLUMNS
from geogp.errors import RequestError
from geogp.evaluation.assessment import TABLE_LEVELS, prediction_of, split_rows
from geogp.files import write_text
from geogp.records.run_settings import upgraded
from geogp.reports.split_report import Coverage, StratumReport, stratum_reports


def unrepaired(rows: pd.DataFrame) -> pd.DataFrame:
    """Return test rows with the model's distributions before the repair."""
    plain = rows.drop(columns=list(REPAIR_COLUMNS)).reset_index(drop=True)
    parts = [part.index for _, part in plain.groupby("fold")]
    for index in parts:
        lower, upper = prediction_of(plain.loc[index]).interval(0.95)
        plain.loc[index, "lower_95"], plain.loc[index, "upper_95"] = lower, upper
    return plain


def page(run: Figures, predictions: pd.DataFrame) -> str:
    """Return the tables of one run."""
    settings = upgraded(run)["settings"]
    title = f"{run['model']} on {run['region']}, {run['target']}"
    made = f"preset {run['preset']}, {settings['model']['epochs']} epochs, seed {run['seed']}"
    head = (
        f"# {title}: before and after `--conformal {settings['checks']['conformal']}`\n\n"
        f"Made by `benchmarks/answers/conformal.py`; {made}.\n"
        "Coverages in percent, before / after; * marks coverages off by more than 3 points\n"
        "and beyond chance, jointly for all strata and levels of a split.\n"
    )
    parts = [head]
    for name in run["metrics"]:
        check = run["calibration"]["splits"][name]
        rows = predictions[predictions["split"] == name].reset_index(drop=True)
        before, after = (
            stratum_reports(each, split_rows(each), run["target"])
            for each in (unrepaired(rows), rows)
        )
        parts += [f"## Split {name}\n", f"{check['statement']}\n"]
        parts += [_cells(check["folds"][0]["cells"]), _strata(before, after)]
    return "\n".join(parts)


def _cells(cells: list[Figures]) -> str:
    if not cells:
        return "The repair has no cells.\n"
    lines = []
    for cell in cells:
        low, high = cell["band"]
        after = percent(cell["observed"], "") + ("" if cell["inside"] else " (outside)")
        rows = f"{cell['calibration']:,}", f"{cell['test']:,}"
        band = f"{percent(low, '')} to {percent(high, '')}"
        before = percent(cell["before"], "")
        lines.append((cell["cell"], percent(cell["level"], ""), *rows, before, after, band))
    header = ("cell", "level", "calibration rows", "test rows", "before", "after", "band of 99 %")
    return (
        f"{sum(cell['inside'] for cell in cells)} of {len(cells)} coverages lie in the "
        "beta-binomial band after the\n"
        "repair; the bands hold together with 99 % (Šidák).\n\n"
    ) + table(header, lines)


def _strata(before: list[StratumReport], after: list[StratumReport]) -> str:
    lines = [
        (
            *(one.kind, one.name.replace("|", "\\|"), f"{one.n:,}"),
            *(
                f"{_marked(a)} / {_marked(b)}"
                for a, b in zip(one.coverage, other.coverage, strict=True)
            ),
            f"{one.log_score:.3f} / {other.log_score:.3f}",
            f"{one.crps:.3f} / {other.crps:.3f}",
            f"{one.median_width_95:.3f} / {other.median_width_95:.3f}",
        )
        for one, other in zip(before, after, strict=True)
    ]
    levels = (f"in {level} %" for level in TABLE_LEVELS)
    header = ("kind", "stratum", "rows", *levels, "log score", "CRPS", "median width")
    marks = [sum(len(one.off) for one in strata) for strata in (before, after)]
    told = f"Marked coverages over all strata: {marks[0]} before, {marks[1]} after."
    return f"{told}\n\n{table(header, lines, left=(0, 1))}"


def _marked(coverage: Coverage) -> str:
    return percent(coverage.observed, "*" if coverage.off else "")


def main() -> None:
    """Write the tables.

    Raises
    ------
    RequestError
        If a run was made without ``--conformal``.
    """
    asked = parser(__doc__, table="conformal")
    asked.add_argument("runs", nargs="+", type=Path)
    options = asked.parse_args()
    for folder in options.runs:
        opened = geogp.open_run(folder)
        run = opened.content
        if opened.record.settings.checks.conformal == "none":
            raise RequestError(f"{folder} was made without --conformal; nothing to compare.")
        name = f"{run['region']}-{run['target']}-{run['model']}"
        write_text(options.table / f"{name}.md", page(run, opened.predictions))

r"""Strata before and after a conformal repair, from finished runs.

    geogp map PR --preset quick --split both --conformal strata --out RUN ...
    python benchmarks/conformal.py RUN [RUN ...] --table benchmarks/results/conformal

The test predictions of a run with ``--conformal`` contain both: without the columns of the repair
they are the model's own. Writes a Markdown and a JSON file for each run, with every cell of the
repair and its chance band, and every stratum of the report, before and after the repair.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from trial import Figures, command, parser, percent, table

import geogp
from geogp.distributions.warps import REPAIR_COLUMNS
from geogp.errors import RequestError
from geogp.evaluation.assessment import TABLE_LEVELS, prediction_of, split_rows
from geogp.files import write_text
from geogp.reports.stratum_reports import StratumReport, stratum_reports

FIGURES = ("log_score", "crps", "median_width_95")


def unrepaired(rows: pd.DataFrame) -> pd.DataFrame:
    """Return test rows with the model's distributions before the repair."""
    plain = rows.drop(columns=list(REPAIR_COLUMNS)).reset_index(drop=True)
    parts = [part.index for _, part in plain.groupby("fold")]
    for index in parts:
        lower, upper = prediction_of(plain.loc[index]).interval(0.95)
        plain.loc[index, "lower_95"], plain.loc[index, "upper_95"] = lower, upper
    return plain


def result_of(folder: Path) -> Figures:
    """Return the figures of one run.

    Raises
    ------
    RequestError
        If the run was made without ``--conformal``.
    """
    opened = geogp.open_run(folder)
    run, predictions = opened.content, opened.predictions
    if run["settings"]["conformal"] == "none":
        raise RequestError(f"{folder} was made without --conformal; there is nothing to compare.")
    splits = {}
    for name in run["metrics"]:
        rows = predictions[predictions["split"] == name].reset_index(drop=True)
        before, after = (
            stratum_reports(each, split_rows(name, each), run["target"])
            for each in (unrepaired(rows), rows)
        )
        splits[name] = {
            "check": run["calibration"]["splits"][name],
            "strata": [
                {"before": asdict(one), "after": asdict(other)}
                for one, other in zip(before, after, strict=True)
            ],
            "marked": {"before": _marks(before), "after": _marks(after)},
        }
    keys = ("geogp", "versions", "region", "target", "model", "preset", "seed", "quarters")
    return {
        **{key: run[key] for key in keys},
        "conformal": run["settings"]["conformal"],
        "epochs": run["settings"]["epochs"],
        "n": run["n"],
        "splits": splits,
    }


def _marks(strata: list[StratumReport]) -> int:
    return sum(len(one.off) for one in strata)


def page(found: Figures) -> str:
    """Return the tables of one run."""
    title = f"{found['model']} on {found['region']}, {found['target']}"
    made = f"preset {found['preset']}, {found['epochs']} epochs, seed {found['seed']}"
    head = (
        f"# {title}: before and after `--conformal {found['conformal']}`\n\n"
        f"Made by `benchmarks/conformal.py`; {made}.\n"
        "Coverages in percent, before / after; * marks coverages off by more than 3 points\n"
        "and beyond chance, jointly for all strata and levels of a split.\n"
    )
    parts = [head]
    for name, split in found["splits"].items():
        parts += [f"## Split {name}\n", f"{split['check']['statement']}\n"]
        parts += [_cells(split["check"]["folds"][0]["cells"]), _strata(split)]
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


def _strata(split: Figures) -> str:
    marked = split["marked"]
    header = ("kind", "stratum", "rows", *(f"in {level} %" for level in TABLE_LEVELS))
    lines = []
    for pair in split["strata"]:
        one, other = pair["before"], pair["after"]
        lines.append(
            (
                one["kind"],
                str(one["name"]).replace("|", "\\|"),
                f"{one['n']:,}",
                *(
                    f"{_marked(a)} / {_marked(b)}"
                    for a, b in zip(one["coverage"], other["coverage"], strict=True)
                ),
                *(f"{one[key]:.3f} / {other[key]:.3f}" for key in FIGURES),
            )
        )
    return (
        f"Marked coverages over all strata: {marked['before']} before, {marked['after']} after.\n\n"
    ) + table((*header, "log score", "CRPS", "median width"), lines, left=(0, 1))


def _marked(coverage: Figures) -> str:
    return percent(coverage["observed"], "*" if coverage["off"] else "")


@command
def main() -> None:
    """Write the tables."""
    asked = parser(__doc__)
    asked.add_argument("runs", nargs="+", type=Path)
    asked.add_argument("--table", required=True, type=Path, help="folder of the results")
    options = asked.parse_args()
    for folder in options.runs:
        found = result_of(folder)
        name = f"{found['region']}-{found['target']}-{found['model']}"
        write_text(options.table / f"{name}.json", json.dumps(found) + "\n")
        write_text(options.table / f"{name}.md", page(found))


if __name__ == "__main__":
    sys.exit(main())

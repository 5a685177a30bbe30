r"""Strata before and after a conformal repair, from finished runs.

    geogp map PR --preset quick --split both --conformal strata --out RUN ...
    python benchmarks/conformal.py RUN [RUN ...] --table benchmarks/results/conformal

The test predictions of a run with ``--conformal`` hold both: without the columns of the repair they
are the model's own. Writes a Markdown and a JSON file for each run: every cell of the repair with
the band that chance allows for, and every stratum of the report, before and after.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from geogp.distributions.warps import REPAIR_COLUMNS
from geogp.errors import GeogpError
from geogp.evaluation.assessment import TABLE_LEVELS, prediction_of, split_rows
from geogp.files import write_text
from geogp.reports.stratum_reports import StratumReport, stratum_reports
from geogp.runs.open_run import open_run

FIGURES = ("log_score", "crps", "median_width_95")


def unrepaired(rows: pd.DataFrame) -> pd.DataFrame:
    """Return test rows with the distributions that the model gave."""
    plain = rows.drop(columns=list(REPAIR_COLUMNS)).reset_index(drop=True)
    parts = [part.index for _, part in plain.groupby("fold")]
    for index in parts:
        lower, upper = prediction_of(plain.loc[index]).interval(0.95)
        plain.loc[index, "lower_95"], plain.loc[index, "upper_95"] = lower, upper
    return plain


def result_of(folder: Path) -> dict[str, Any]:
    """Return the figures of one run.

    Raises
    ------
    SystemExit
        The run was made without ``--conformal``.
    """
    opened = open_run(folder)
    run, table = opened.content, opened.predictions
    if run["settings"]["conformal"] == "none":
        raise SystemExit(f"{folder} was made without --conformal; there is nothing to compare.")
    splits = {}
    for name in run["metrics"]:
        rows = table[table["split"] == name].reset_index(drop=True)
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


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of one run."""
    title = f"{found['model']} on {found['region']}, {found['target']}"
    made = f"preset {found['preset']}, {found['epochs']} epochs, seed {found['seed']}"
    lines = [
        f"# {title}: before and after `--conformal {found['conformal']}`",
        "",
        f"Made by `benchmarks/conformal.py`; {made}.",
        "Coverages in percent, before / after; * marks those that are off by more than 3 points",
        "and beyond chance, all strata and levels of a split together.",
    ]
    for name, split in found["splits"].items():
        lines += ["", f"## Split {name}", "", split["check"]["statement"], ""]
        lines += _cells(split["check"]["folds"][0]["cells"])
        lines += ["", *_strata(split)]
    return "\n".join(lines) + "\n"


def _cells(cells: list[dict[str, Any]]) -> list[str]:
    if not cells:
        return ["The repair has no cells."]
    outside = sum(not cell["inside"] for cell in cells)
    lines = [
        "| cell | level | calibration rows | test rows | before | after | band of 99 % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for cell in cells:
        low, high = cell["band"]
        lines.append(
            f"| {cell['cell']} | {_percent(cell['level'])} | {cell['calibration']:,} | "
            f"{cell['test']:,} | {_percent(cell['before'])} | {_percent(cell['observed'])}"
            f"{'' if cell['inside'] else ' (outside)'} | {_percent(low)} to {_percent(high)} |"
        )
    return [
        f"{len(cells) - outside} of {len(cells)} coverages lie in the beta-binomial band after the",
        "repair; the bands hold together with 99 % (Šidák).",
        "",
        *lines,
    ]


def _strata(split: dict[str, Any]) -> list[str]:
    marked = split["marked"]
    levels = " | ".join(f"in {level} %" for level in TABLE_LEVELS)
    lines = [
        f"Marked coverages over all strata: {marked['before']} before, {marked['after']} after.",
        "",
        f"| kind | stratum | rows | {levels} | log score | CRPS | median width |",
        "| --- | --- | ---: |" + " ---: |" * (len(TABLE_LEVELS) + len(FIGURES)),
    ]
    for pair in split["strata"]:
        one, other = pair["before"], pair["after"]
        cells = [
            f"{_marked(a)} / {_marked(b)}"
            for a, b in zip(one["coverage"], other["coverage"], strict=True)
        ]
        cells += [f"{one[key]:.3f} / {other[key]:.3f}" for key in FIGURES]
        named = str(one["name"]).replace("|", "\\|")
        lines.append(f"| {one['kind']} | {named} | {one['n']:,} | {' | '.join(cells)} |")
    return lines


def _marked(coverage: dict[str, Any]) -> str:
    return f"{_percent(coverage['observed'])}{'*' if coverage['off'] else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--table", required=True, type=Path, help="folder of the results")
    options = parser.parse_args()
    try:
        for folder in options.runs:
            found = result_of(folder)
            name = f"{found['region']}-{found['target']}-{found['model']}"
            options.table.mkdir(parents=True, exist_ok=True)
            write_text(options.table / f"{name}.json", json.dumps(found) + "\n")
            write_text(options.table / f"{name}.md", markdown(found))
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The committed table of `uci.py`: our means beside the papers' values.

    python benchmarks/uci_table.py benchmarks/out/uci --table benchmarks/results/uci

Reads the files that `uci.py` left, one for each (table, model, seed), and writes a Markdown and a
JSON file.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

TABLES = ("pol", "elevators", "protein", "keggundirected")

# Zhu, Yuchi and Xie, "Scalable Deep Basis Kernel Gaussian Processes", table 1: NLL, CRPS.
PAPER = {
    "vbll": {
        "pol": (-1.680, 0.0215),
        "elevators": (0.362, 0.1896),
        "protein": (0.823, 0.2884),
        "keggundirected": (-0.692, 0.0508),
    },
    "sv-dkl": {
        "pol": (-1.703, 0.0215),
        "elevators": (0.361, 0.1911),
        "protein": (0.826, 0.2840),
        "keggundirected": (-0.687, 0.0507),
    },
    "pp-dkl": {
        "pol": (-2.955, 0.0152),
        "elevators": (0.299, 0.1873),
        "protein": (0.745, 0.2875),
        "keggundirected": (-1.740, 0.0380),
    },
    "dbk-silu": {
        "pol": (-2.967, 0.0144),
        "elevators": (0.294, 0.1865),
        "protein": (0.741, 0.2852),
        "keggundirected": (-1.755, 0.0376),
    },
    "dbk-rbf": {
        "pol": (-2.981, 0.0144),
        "elevators": (0.297, 0.1870),
        "protein": (0.742, 0.2817),
        "keggundirected": (-1.776, 0.0368),
    },
}

ORDER = (*reversed(PAPER), "sv-rbf", "dnn", "gpytorch-ppgp", "gpytorch-svgp")

SETTINGS_FILE = "settings.json"

ALIKE = ("h", "r", "batch", "epochs", "learning_rate", "head_rate", "noise_rate", "average")
"""Settings that our models must share."""

COLUMNS = (
    *("model", "alpha, beta", "epochs", "seeds", "NLL", "paper", "CRPS", "paper", "MAE"),
    *("holds 95 %", "seconds"),
)

PREDICTIVE, BOUND = ("dbk-rbf", "dbk-silu", "pp-dkl"), ("sv-dkl", "vbll")


@dataclass(frozen=True)
class Figures:
    """Settings of one model on one table, and the figures of each seed."""

    settings: dict[str, Any]
    seeds: list[dict[str, Any]]


def read(folder: Path) -> dict[tuple[str, str], Figures]:
    """Return the figures of all seeds by table and model.

    Raises
    ------
    ValueError
        A table and model has figures of several settings, or the models differ in them.
    """
    found: dict[tuple[str, str], Figures] = {}
    for place in sorted(folder.glob("*/*")):
        seeds = [json.loads(path.read_text()) for path in sorted(place.glob("seed-*.json"))]
        key = (place.parent.name, place.name.rpartition("-")[0])
        if not seeds:
            continue
        if key in found:
            raise ValueError(f"{key} has figures of several settings; keep one folder.")
        settings = json.loads((place / SETTINGS_FILE).read_text())
        found[key] = Figures(settings, seeds)
    _check(found)
    return found


def _check(found: dict[tuple[str, str], Figures]) -> None:
    """Refuse figures of our models that were not made alike."""
    own = {key: figures for key, figures in found.items() if not key[1].startswith("gpytorch")}
    for name in ALIKE:
        values = {json.dumps(figures.settings[name]) for figures in own.values()}
        if len(values) > 1:
            raise ValueError(f"the models were run with several values of {name}: {values}.")


def mean(seeds: list[dict[str, Any]], key: str) -> float:
    """Return the mean over the seeds."""
    return float(np.mean([seed[key] for seed in seeds]))


def paired(
    found: dict[tuple[str, str], Figures], table: str, first: str, second: str
) -> tuple[float, float, int]:
    """Return mean and standard error of the difference in NLL over the seeds both have."""
    a, b = ({s["seed"]: s["nll"] for s in found[table, model].seeds} for model in (first, second))
    both = sorted(set(a) & set(b))
    differences = np.array([a[seed] - b[seed] for seed in both])
    error = differences.std(ddof=1) / math.sqrt(len(both)) if len(both) > 1 else math.nan
    return float(differences.mean()), float(error), len(both)


def markdown(found: dict[tuple[str, str], Figures]) -> str:
    """Return the tables."""
    lines = [
        "# Regression tables",
        "",
        "    python benchmarks/uci.py --data TABLE.parquet --model MODEL --seeds N --epochs N",
        "    python benchmarks/uci_table.py benchmarks/out/uci",
        "",
        "`uci.py`, protocol of Zhu, Yuchi and Xie, section 4.2; on the scale of the",
        "standardised target; mean over the seeds ± standard deviation. The paper's seeds share",
        "one split, here a seed draws the split too. The GPyTorch models have inducing",
        "points under an RBF on the inputs, and no network.",
        "",
        f"Our models: {_settings(found)}.",
    ]
    for table in TABLES:
        lines += ["", f"## {table}", "", f"| {' | '.join(COLUMNS)} |"]
        lines += ["| --- |" + " ---: |" * (len(COLUMNS) - 1)]
        for model in ORDER:
            if (table, model) in found:
                lines.append(_line(found[table, model], table, model))
    return "\n".join([*lines, "", *_comparisons(found)]) + "\n"


def _settings(found: dict[tuple[str, str], Figures]) -> str:
    own = next(f.settings for (_, model), f in found.items() if not model.startswith("gpytorch"))
    versions = ", ".join(f"{name} {version}" for name, version in own["versions"].items())
    return ", ".join(f"{name} {own[name]}" for name in ALIKE) + f"; {versions}"


def _line(figures: Figures, table: str, model: str) -> str:
    seeds, settings = figures.seeds, figures.settings
    used = settings["used_weights"]
    weights = f"{used['alpha']:g}, {used['beta']:g}" if model in PREDICTIVE else ""
    if model == "gpytorch-ppgp":
        weights = f"{used['beta']:g}"
    nll = [seed["nll"] for seed in seeds]
    spread = f" ± {np.std(nll, ddof=1):.3f}" if len(nll) > 1 else ""
    paper = PAPER.get(model, {}).get(table)
    theirs = (f"{paper[0]:.3f}", f"{paper[1]:.4f}") if paper else ("", "")
    cells = (
        f"`{model}`",
        weights,
        settings["epochs"],
        len(seeds),
        f"{np.mean(nll):.3f}{spread}",
        theirs[0],
        f"{mean(seeds, 'crps'):.4f}",
        theirs[1],
        f"{mean(seeds, 'mae'):.4f}",
        f"{100 * mean(seeds, 'coverage_95'):.1f} %",
        f"{mean(seeds, 'seconds'):.0f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _comparisons(found: dict[tuple[str, str], Figures]) -> list[str]:
    lines = [
        "## Predictive objectives against the evidence lower bound",
        "",
        "Difference in NLL on the same splits, mean ± standard error over the seeds; negative: the",
        "predictive objective is better.",
        "",
        "| table | model | against | difference |",
        "| --- | --- | --- | ---: |",
    ]
    for table in TABLES:
        for first in PREDICTIVE:
            for second in (*BOUND, *(("pp-dkl",) if first != "pp-dkl" else ())):
                if (table, first) in found and (table, second) in found:
                    difference, error, _ = paired(found, table, first, second)
                    spread = "" if math.isnan(error) else f" ± {error:.3f}"
                    lines.append(
                        f"| {table} | `{first}` | `{second}` | {difference:+.3f}{spread} |"
                    )
    return lines


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what uci.py wrote")
    here = Path(__file__).parent
    parser.add_argument("--table", type=Path, default=here / "results" / "uci")
    options = parser.parse_args()
    try:
        found = read(options.folder)
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"error: no figures of uci.py under {options.folder}.", file=sys.stderr)
        return 2
    options.table.mkdir(parents=True, exist_ok=True)
    (options.table / "table.md").write_text(markdown(found))
    flat = [{"table": t, "model": m, **asdict(figures)} for (t, m), figures in found.items()]
    (options.table / "results.json").write_text(json.dumps(flat, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The committed table of `student.py`: its figures beside those of the paper."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from scenarios_table import spread, table

from geogp.files import write_text

Figures = dict[str, Any]

# Scale table 1: NLL of NNGP and of the scale mixture.
PAPER = {
    "housing": ("2.65 ± 0.13", "2.72 ± 0.05"),
    "energy": ("1.01 ± 0.04", "0.67 ± 0.04"),
    "power": ("2.77 ± 0.02", "2.66 ± 0.01"),
    "yacht": ("1.07 ± 0.27", "0.17 ± 0.25"),
}

ANSWERS = ("nngp", "nngp, scale learned", "t-process", "t-process, vague", "burr-process")

LEVELS = ("coverage_50%", "coverage_80%", "coverage_95%")


def scale_lines(figures: list[Figures]) -> list[tuple[str, ...]]:
    """Return a line for each wrong scale, size and answer."""
    lines = []
    ordered = sorted(figures, key=lambda f: (-f["wrong"], f["n"]))
    for (wrong, n), group in groupby(ordered, key=lambda f: (f["wrong"], f["n"])):
        found = list(group)
        for answer in ANSWERS:
            scores = [f[answer] for f in found]
            lines.append(
                (
                    f"{wrong:g}",
                    f"{n:,}",
                    str(len(found)),
                    f"`{answer.split(',')[0]}`{answer.removeprefix(answer.split(',')[0])}",
                    spread([s["nll"] for s in scores]),
                    f"{np.mean([s['crps'] for s in scores]):.4f}",
                    *(f"{100 * np.mean([s[level] for s in scores]):.1f} %" for level in LEVELS),
                )
            )
    return lines


def learned_lines(figures: list[Figures]) -> list[tuple[str, ...]]:
    """Return a line for each data set with everything learned."""
    return [
        (
            str(f["seed"]),
            f"{f['n']:,}",
            f"{f['nngp']['nll']:.5f}",
            f"{f['t-process']['nll']:.5f}",
            f"{abs(f['nngp']['nll'] - f['t-process']['nll']):.1e}",
        )
        for f in figures
    ]


def table_lines(figures: list[Figures]) -> list[tuple[str, ...]]:
    """Return a line for each table, model and way of learning."""
    lines = []
    key = ("table", "model", "learn")
    ordered = sorted(figures, key=lambda f: (list(PAPER).index(f["table"]), f["model"], f["learn"]))
    for (name, model, learn), group in groupby(ordered, key=lambda f: tuple(f[k] for k in key)):
        found = list(group)
        paper = PAPER[name][model == "t-process"]
        lines.append(
            (
                name,
                f"`{model}`",
                "learned" if learn else "fixed",
                str(found[0]["n_train"]),
                str(found[0]["r"]),
                str(len(found)),
                ", ".join(str(f["depth"]) for f in found),
                str(sum(len(f["diverged"]) for f in found)),
                spread([f["nll"] for f in found]),
                paper if learn else "",
                spread([f["crps"] for f in found]),
                spread([f["rmse"] for f in found]),
                f"{100 * np.mean([f['coverage_95%'] for f in found]):.1f} %",
                f"{np.mean([f['seconds'] for f in found]):.0f}",
            )
        )
    return lines


def markdown(figures: dict[str, list[Figures]]) -> str:
    """Return all tables."""
    scale = ("wrong by", "n", "seeds", "model", "log score", "CRPS", *("50 %", "80 %", "95 %"))
    tables = (
        *("table", "model", "parameters", "rows", "r", "seeds", "depths", "lost"),
        *("NLL", "paper", "CRPS", "RMSE", "holds 95 %", "seconds"),
    )
    lines = [
        "# Student-t processes (Lee et al., Scale mixtures of neural network Gaussian processes)",
        "",
        "    python benchmarks/student.py --tables FOLDER",
        "",
        "## A scale that is wrong",
        "",
        "Data from the process itself (erf network of two layers, two inputs, 60 anchors, noise a",
        "fifth of the scale), times the factor in the first column; 500 new points. The models",
        "know the kernel and the share of noise and believe in a factor of 1: `nngp` is sure,",
        "`t-process` has InvGamma(2, 2) for its square, `burr-process` Burr XII(2, 2). *vague*:",
        "InvGamma(0.1, 0.01). *scale learned*: the scale of maximum likelihood instead of a random",
        "one. Scores are in units of the factor, mean ± standard deviation over the seeds; the",
        "last columns are coverages.",
        *table(scale, scale_lines(figures["fixed"])),
        "Kernel and noise learned by both at n = 100,000: log scores of 500 new points.",
        *table(
            ("seed", "n", "`nngp`", "`t-process`", "difference"), learned_lines(figures["learned"])
        ),
        "## Table 1 of the paper",
        "",
        "Splits 8:1:1 by the seed; inputs to [-1, 1], targets standardised by the training rows;",
        "depth 1 to 3 by the validation NLL; parameters learned by L-BFGS on the marginal",
        "likelihood (the paper: gradient descent, and the constants of the prior too), or left at",
        "their start. One anchor per training row, so nothing is approximated, but for power.",
        "Figures are those of the test rows in the unit of the published target, mean ± standard",
        "deviation. *lost*: fits, one per depth and seed, in which a step of L-BFGS left the range",
        "of numbers; the depth is then not chosen. Seconds are of one thread of a busy machine.",
        *table(tables, table_lines(figures["tables"])),
    ]
    return "\n".join(lines).rstrip() + "\n"


def write_table(figures: dict[str, list[Figures]], folder: Path) -> None:
    """Write the figures as Markdown and JSON."""
    write_text(folder / "table.md", markdown(figures))
    write_text(folder / "results.json", json.dumps(figures, indent=1) + "\n")

"""The committed table of `scenarios.py`: its figures beside those of the paper."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd
from trial import Figures, percent, plus_minus, spread, table

Studies = dict[str, list[Figures]]

# Mixed tables 2, 3 and 4 (3 and 4 with k-means anchors): mean of k(x, x), estimated noise
# variance, MAE, RMSE, MESE.
PAPER = {
    "C1": (2.132745, 0.0829, 0.263822, 0.331816, 0.233065),
    "C2": (3.769967, 0.163, 0.534228, 0.663822, 0.829185),
    "C3": (2.131981, 0.0818, 0.264066, 0.331004, 0.229287),
    "C4": (3.769044, 0.163, 0.562438, 0.705766, 0.886464),
    "C5": (2.131707, 0.0821, 0.267161, 0.334185, 0.231012),
    "C6": (3.768044, 0.164, 0.566497, 0.709567, 0.892490),
    "C7": (2.132325, 0.0833, 0.270696, 0.340753, 0.237124),
    "C8": (3.772796, 0.164, 0.581387, 0.733810, 0.929836),
}

# Mixed table 5: mean and standard deviation over 20 replicates of C1.
PAPER_C1 = {
    "mae": (0.273514, 0.004816),
    "rmse": (0.342126, 0.005893),
    "mese": (0.239397, 0.004587),
    "sdese": (0.167666, 0.005495),
    "noise_var": (0.08341, 0.00142),
    "w": (0.499987, 0.002367),
    "alpha": (0.509978, 0.001317),
    "sigma_b2": (1.028096, 0.001465),
    "sigma_v2": (0.975803, 0.006260),
    "sigma_u2": (0.982022, 0.006519),
    "sigma_a2": (0.980596, 0.007583),
}

COMMON = ("rmse", "nll", "coverage_95", "noise_var", "kernel_error", "centred_error")

NAMES = {
    "rmse": "RMSE",
    "nll": "log score",
    "coverage_95": "holds 95 %",
    "noise_var": "noise variance",
    "kernel_error": "error of k",
    "centred_error": "less its constant",
}


def cell(key: str, value: Any) -> str:
    """Return the text of a figure."""
    if not isinstance(value, float):
        return str(value)
    if key == "coverage_95":
        return percent(value)
    digits = {"seconds": 0, "nll": 3}.get(key, 4)
    return f"{value:.{digits}f}"


def replicates(figures: Studies) -> str:
    """Return the scenarios beside the paper's."""
    told: dict[str, list[float]] = {}
    for one in figures["known"]:
        told.setdefault(one["scenario"], []).append(one["rmse"])
    exact = {found["scenario"]: found["per_seed"] for found in figures["oracle"]}
    lines = []
    for name, group in groupby(figures["replicates"], lambda f: f["scenario"]):
        found, paper, best = list(group), PAPER[name], exact.get(name, [])
        mean = pd.DataFrame(found).mean(numeric_only=True)
        lines.append(
            (
                *(name, len(found), f"{mean['mean_variance']:.3f} / {paper[0]:.3f}"),
                *(spread([f["rmse"] for f in found]), f"{paper[3]:.3f}", spread(told[name])),
                spread([f["rmse"] for f in best]) if best else "",
                spread([f["nll"] for f in found]),
                spread([f["nll"] for f in best]) if best else "",
                percent(mean["coverage_95"]),
                *(f"{mean['noise_var']:.4f} / {mean['true_noise_var']:.4f}", f"{paper[1]:.4f}"),
                *(f"{mean['kernel_error']:.2f}", f"{mean['centred_error']:.2f}"),
                f"{mean['seconds']:.0f}",
            )
        )
    header = (
        *("scenario", "replicates", "mean k(x, x) / paper", "RMSE", "paper", "told", "exact"),
        *("log score", "exact", "holds 95 %", "noise variance / truth", "paper", "error of k"),
        *("less its constant", "seconds"),
    )
    return table(header, lines)


def first_scenario(figures: Studies) -> str:
    """Return the figures of C1 beside the paper's."""
    found = [f for f in figures["replicates"] if f["scenario"] == "C1"]
    lines = [
        (key, spread([f[key] for f in found], 4), plus_minus(mean, sd, 4))
        for key, (mean, sd) in PAPER_C1.items()
    ]
    return table(("figure", "geogp", "paper (20 replicates)"), lines)


def listing(figures: Sequence[Figures], *keys: str) -> str:
    """Return one line for each fit."""
    lines = [[cell(key, f[key]) for key in keys] for f in figures]
    return table([NAMES.get(key, key) for key in keys], lines)


def page(figures: Studies) -> str:
    """Return all tables."""
    first = figures["replicates"][0]
    fits = ("scenario", "model", "r", "anchors", *COMMON, "seconds")
    return f"""# The simulation study of Mixed (Antunes de Araújo and Gonçalves), section 5

    python benchmarks/scenarios.py

Truth: all variances 1, alpha = w = ½; noise variance 0.04 of the mean of k(x, x); inputs
uniform in [-½, ½]^I, or our own stratified design (C7, C8; `scenario_draws.py`). Rows
are split 85:5:10 (paper: 90:10). The model standardises the targets, so start values and
priors are in the standardised unit.
`nystrom-mixed`, r = {first["r"]}, {first["anchors"]} anchors,
kernel learned by {10 * first["epochs"]} iterations of L-BFGS on {first["batch"]} rows,
posterior from all training rows. Parameters are printed in the target's unit. *error of
k*: sqrt(Σ(k^ - k)² / Σk²) over all pairs of 500 test inputs. *less its constant*: the same
for the covariance of f minus its mean over these inputs; centred targets have information
on this covariance only. Seconds are those of one thread on a busy machine.

## Scenarios beside tables 2 to 4

The paper's figures are single runs with k-means anchors. *told*: the same rank and
anchors with the true parameters. *exact*: the process that generated the data, without
approximation (n = 10,000 only).

{replicates(figures)}
## C1 beside table 5

Mean ± standard deviation over the replicates.

{first_scenario(figures)}
## Anchors

{listing(figures["anchors"], *fits)}"""

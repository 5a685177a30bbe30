"""Effect of the weights alpha and beta on the test scores (as in DBK figure 6).

    python -m benchmarks kernels.sensitivity --data pol.parquet --seeds 10

Fits `dbk-silu` by the protocol of `uci.py` with every pair of --alphas and --betas; with
--one-at-a-time, only with the pairs where one of the weights is 0.01. Draws box plots of the scores
against each weight, over the seeds and the values of the other weight; the dashed line is `vbll`.
Writes the differences from weight 0, which are paired: the seed (and with it the split and the
initial model) and the other weight are the same.
"""

import argparse
import copy
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from numpy.typing import ArrayLike

from benchmarks.kernels import uci
from benchmarks.markdown import mean_and_error, percent, with_error
from benchmarks.markdown import table as markdown
from benchmarks.number_tables import Table
from benchmarks.script import OUT, RESULTS, Figures, write_results

mpl.use("Agg")
from matplotlib import pyplot as plt

import geogp
from geogp.models.fitting.tuning import GRID

SCORES = {"nll": "NLL", "crps": "CRPS", "mae": "mean absolute error"}

COMPARED: dict[str, Callable[[Figures], float]] = {
    "NLL": lambda seed: seed["nll"],
    f"NLL without the {uci.WORST} worst rows": lambda seed: seed["nll_without_worst"],
    "NLL, Student-t tails": lambda seed: seed["student_t"]["nll"],
    "CRPS": lambda seed: seed["crps"],
    "MAE": lambda seed: seed["mae"],
}
"""Scores of a seed in the table of differences."""

CENTRE = 0.01
"""The value of the other weight with --one-at-a-time."""

Pairs = dict[tuple[float, float], list[Figures]]
"""The figures of all seeds, by alpha and beta."""


def fitted(table: Table, options: argparse.Namespace, model: str, weights: str) -> list[Figures]:
    """Return the figures of all seeds for one model and one pair of weights."""
    own = copy.copy(options)
    own.model, own.weights = model, weights
    return uci.Benchmark(table, own).run()["per_seed"]


def draw(path: Path, pairs: Pairs, line: list[Figures]) -> None:
    """Draw one panel for each score and weight."""
    figure, axes = plt.subplots(2, len(SCORES), figsize=(10, 5.6), layout="constrained")
    for row, name in enumerate(("alpha", "beta")):
        values, others = _values(pairs, row), _others(pairs, row)
        for column, (score, label) in enumerate(SCORES.items()):
            ax = axes[row, column]
            groups = [
                [
                    seed[score]
                    for pair, seeds in pairs.items()
                    if pair[row] == g and pair[1 - row] in others
                    for seed in seeds
                ]
                for g in values
            ]
            ax.boxplot(groups, tick_labels=[f"{g:g}" for g in values], widths=0.6)
            ax.axhline(np.mean([seed[score] for seed in line]), color="0.4", ls="--", label="vbll")
            ax.set_xlabel(name)
            ax.set_ylabel(label)
            # A few test rows may change the mean log score strongly.
            if score == "nll" and max(map(max, groups)) > 10:
                ax.set_yscale("symlog", linthresh=1)
    axes[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _values(pairs: Pairs, weight: int) -> list[float]:
    """Return the values of alpha (0) or beta (1) in the pairs, in order."""
    return sorted({pair[weight] for pair in pairs})


def _others(pairs: Pairs, weight: int) -> list[float]:
    """Return the values of the other weight that were fitted with every value of a weight."""
    of = {
        other: {pair[weight] for pair in pairs if pair[1 - weight] == other}
        for other in _values(pairs, 1 - weight)
    }
    return [other for other, values in of.items() if values == {pair[weight] for pair in pairs}]


def effect(pairs: Pairs, weight: int, value: float, score: Callable[[Figures], float]) -> str:
    """Return the difference between a value of a weight and 0, mean ± standard error.

    `weight` is 0 for alpha and 1 for beta. A seed's difference is the mean over the `_others`; the
    standard error is over the seeds.
    """

    def at(own: float, other: float) -> list[Figures]:
        return pairs[(own, other) if weight == 0 else (other, own)]

    differences = [
        _paired(at(value, other), at(0.0, other), score) for other in _others(pairs, weight)
    ]
    return _difference(np.mean(differences, 0))


def page(table: Table, options: argparse.Namespace, pairs: Pairs, line: list[Figures]) -> str:
    """Return the tables."""
    alphas, betas = _values(pairs, 0), _values(pairs, 1)
    effects = [
        (name, f"{value:g}", *(effect(pairs, row, value, score) for score in COMPARED.values()))
        for row, name in enumerate(("alpha", "beta"))
        for value in _values(pairs, row)
        if value and 0.0 in _values(pairs, row)
    ]
    means = [
        (
            f"{alpha:g}",
            *(
                with_error([one["nll"] for one in pairs[alpha, beta]])
                if (alpha, beta) in pairs
                else ""
                for beta in betas
            ),
        )
        for alpha in alphas
    ]
    lowest = min(pairs)
    against = _difference(_paired(pairs[lowest], line, COMPARED["NLL"]))
    how = f"--recipe {options.recipe} --seeds {options.seeds} --epochs {options.epochs}"
    for name, values in (("alphas", alphas), ("betas", betas)):
        if values != [*GRID]:
            how += f" --{name} {' '.join(f'{value:g}' for value in values)}"
    if options.one_at_a_time:
        how += " --one-at-a-time"
    last = np.mean([s["best_epoch"] > 0.95 * options.epochs for of in pairs.values() for s in of])
    return f"""# The weights alpha and beta on {table.name}

{options.seeds} seeds and {options.epochs} epochs; the paper has 10 seeds and 400 epochs.

    python -m benchmarks kernels.sensitivity --data {table.name}.parquet \\
        {how} --batch {options.batch}

`dbk-silu` on all {len(table.y):,} rows, split 8:1:1, h {options.h}, r {options.r}; geogp
{geogp.__version__}, torch {torch.__version__}. Figures are on the scale of the standardised target.

## Differences from weight 0

Mean ± standard error over the seeds of the paired difference; a negative difference means that
the positive weight is better. A seed's difference is the mean over the values of the other weight.
Student-t tails are learned from the validation rows. {percent(last)} of the fits have their best
epoch in the last 5 % of the epochs.

{markdown(("weight", "value", *COMPARED), effects)}
## NLL by pair

Mean ± standard error over the seeds. Difference from `vbll` on the same splits, with alpha
{lowest[0]:g} and beta {lowest[1]:g}: {against}.

{markdown(("alpha", *(f"beta {beta:g}" for beta in betas)), means)}"""


def _paired(
    first: list[Figures], second: list[Figures], score: Callable[[Figures], float]
) -> list[float]:
    return [score(a) - score(b) for a, b in zip(first, second, strict=True)]


def _difference(values: ArrayLike) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:+.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")


def main() -> None:
    """Fit, draw and store the figures."""
    asked = uci.make_parser()
    asked.add_argument("--table", type=Path, default=RESULTS / "uci")
    for name in ("--alphas", "--betas"):
        asked.add_argument(name, type=float, nargs="+", default=GRID, help="values to try")
    asked.add_argument(
        "--one-at-a-time", action="store_true", help=f"vary one weight, with {CENTRE} for the other"
    )
    asked.set_defaults(out=OUT / "sensitivity")
    options = asked.parse_args(["--model", "dbk-silu", *sys.argv[1:]])
    table = Table(options.data)
    pairs = {
        (alpha, beta): fitted(table, options, "dbk-silu", f"{alpha:g},{beta:g}")
        for alpha, beta in product(options.alphas, options.betas)
        if not options.one_at_a_time or CENTRE in {alpha, beta}
    }
    line = fitted(table, options, "vbll", "auto")
    options.table.mkdir(parents=True, exist_ok=True)
    name = f"sensitivity-{table.name}-{options.epochs}"
    draw(options.table / f"{name}.png", pairs, line)
    per_pair = [{"alpha": a, "beta": b, "per_seed": seeds} for (a, b), seeds in pairs.items()]
    found = {"epochs": options.epochs, "vbll": line, "dbk-silu": per_pair}
    write_results(options.table, page(table, options, pairs, line), found, name)

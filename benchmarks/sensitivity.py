"""Effect of the weights alpha and beta on the test scores (as in DBK figure 6).

    python benchmarks/sensitivity.py --data pol.parquet --seeds 3

Fits `dbk-silu` by the protocol of `uci.py` with every pair of weights. Draws box plots of the
scores against each weight, over the seeds and the values of the other weight; the dashed line is
`vbll`.
"""

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
import uci
from number_tables import Table
from trial import OUT, RESULTS, Figures, command

mpl.use("Agg")
from matplotlib import pyplot as plt

from geogp.files import write_text
from geogp.models.training.tuning import GRID

SCORES = {"nll": "NLL", "crps": "CRPS", "mae": "mean absolute error"}


def fitted(table: Table, options: argparse.Namespace, model: str, weights: str) -> list[Figures]:
    """Return the figures of all seeds for one model and one pair of weights."""
    own = copy.copy(options)
    own.model, own.weights = model, weights
    return uci.Benchmark(table, own).run()["per_seed"]


def draw(path: Path, pairs: dict[tuple[float, float], list[Figures]], line: list[Figures]) -> None:
    """Draw one panel for each score and weight."""
    figure, axes = plt.subplots(2, len(SCORES), figsize=(10, 5.6), layout="constrained")
    for row, name in enumerate(("alpha", "beta")):
        for column, (score, label) in enumerate(SCORES.items()):
            ax = axes[row, column]
            groups = [
                [seed[score] for pair, seeds in pairs.items() if pair[row] == g for seed in seeds]
                for g in GRID
            ]
            ax.boxplot(groups, tick_labels=[f"{g:g}" for g in GRID], widths=0.6)
            ax.axhline(np.mean([seed[score] for seed in line]), color="0.4", ls="--", label="vbll")
            ax.set_xlabel(name)
            ax.set_ylabel(label)
            # A few test rows may change the mean log score strongly.
            if score == "nll" and max(map(max, groups)) > 10:
                ax.set_yscale("symlog", linthresh=1)
    axes[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, draw and store the figures."""
    asked = uci.make_parser()
    asked.add_argument("--table", type=Path, default=RESULTS / "uci")
    asked.set_defaults(out=OUT / "sensitivity")
    given = sys.argv[1:] if arguments is None else arguments
    options = asked.parse_args(["--model", "dbk-silu", *given])
    torch.set_flush_denormal(True)
    table = Table(options.data)
    pairs = {
        (alpha, beta): fitted(table, options, "dbk-silu", f"{alpha:g},{beta:g}")
        for alpha, beta in product(GRID, GRID)
    }
    line = fitted(table, options, "vbll", "auto")
    options.table.mkdir(parents=True, exist_ok=True)
    draw(options.table / f"sensitivity-{table.name}.png", pairs, line)
    per_pair = [{"alpha": a, "beta": b, "per_seed": seeds} for (a, b), seeds in pairs.items()]
    found = {"epochs": options.epochs, "vbll": line, "dbk-silu": per_pair}
    write_text(options.table / f"sensitivity-{table.name}.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

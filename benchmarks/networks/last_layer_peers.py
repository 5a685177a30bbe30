"""Bayesian last layers beside other methods, as in table 2 of the Rich paper.

    python -m benchmarks networks.last_layer_peers --data uci --seeds 5

"The Rich paper" is Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features". The splits and the figures of the last layers are those of `last_layers.py`, whose
results.json is read. Networks have its batches, epochs and rates; the validation rows choose the
epoch by the loss of the training. Each fit has its own file under --out, and the same command
continues where it stopped.
"""

import functools
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.markdown import percent, plus_minus, table, with_error
from benchmarks.networks import network_baselines as baselines
from benchmarks.networks.last_layers import PAPER, PLANS, WIDTH, Plan, split
from benchmarks.number_tables import column_scales, paper_table
from benchmarks.script import RESULTS, Figures, Floats, kept, machine, parser, say, write_results
from geogp.errors import DataError
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.deep_basis.exact_gp import ExactGP, ExactSettings, fit_exact
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

LAST_LAYERS = {"map": "noise only", "bll": "`bll`", "rich": "`rich-bll`", "s": "... 40 % of rows"}
"""Variants of `last_layers.py` and their names."""

PEERS = ("vbll", "gp", *baselines.METHODS)

NAMES = {"vbll": "`vbll`", "gp": "exact process, RBF", "swag": "SWAG"}

LIKELIHOOD_ROWS = 1000
"""Largest number of rows whose likelihood the exact process maximises."""

# Rich, table 2: NLL and standard error over 20 seeds.
PAPER_METHODS = ("vbll", "gp", "dropout", "ensemble", "swag")
PAPER_PEERS = {
    "housing": ((2.75, 0.06), (2.84, 0.09), (2.62, 0.05), (2.48, 0.09), (2.65, 0.01)),
    "energy": ((0.74, 0.04), (0.66, 0.04), (1.80, 0.03), (0.94, 0.02), (1.20, 0.06)),
    "power": ((2.78, 0.01), (2.89, 0.01), (2.81, 0.01), (2.75, 0.02), (2.79, 0.01)),
    "concrete": ((3.19, 0.05), (3.24, 0.13), (3.15, 0.02), (3.19, 0.03), (3.15, 0.03)),
    "wine": ((1.05, 0.01), (0.97, 0.01), (1.01, 0.01), (0.98, 0.01), (1.04, 0.01)),
}


def predicted(
    name: str, rows: dict[str, Data], plan: Plan, seed: int, new: Floats
) -> baselines.NormalMixture:
    """Fit a method, and return its normal predictions at new inputs, in the target's unit."""
    train, held_out = rows["train"], rows["validation"]
    if name in baselines.METHODS:
        (centre, spread), unit = column_scales(train.x), train.y.std()
        parts = [
            ((one.x - centre) / spread, (one.y - train.y.mean()) / unit)
            for one in (train, held_out)
        ]
        recipe = baselines.Recipe(
            plan.epochs, layers=2, rate=1e-3, decay=False, clip=1.0, batch=plan.batch, chosen=True
        )
        method = baselines.METHODS[name]
        law = method(*parts, (new - centre) / spread, recipe, seed).matched()
        return baselines.NormalMixture(law.means * unit + train.y.mean(), law.variances * unit**2)
    if name == "gp":
        exact = ExactGP(train.x.shape[1], seed=seed)
        fit_exact(exact, train, ExactSettings(likelihood_rows=LIKELIHOOD_ROWS, seed=seed), held_out)
        found = exact.predict(new)
    else:
        sizes = Architecture(train.x.shape[1], h=WIDTH, r=WIDTH)
        model = build(name, sizes, train.x, scaling="minmax", noise_start=0.5, seed=seed)
        settings = FitSettings(
            epochs=plan.epochs,
            batch=plan.batch,
            clip=1.0,
            decay="constant",
            noise_rate=10.0,
            seed=seed,
        )
        fit(model, train, held_out, settings)
        found = model.predict(new)
    return baselines.NormalMixture(found.mean[None], found.variance[None])


def measure(rows: dict[str, Data], name: str, plan: Plan, seed: int) -> Figures:
    """Fit a method with one seed, and score the test rows in the target's unit."""
    started, test = process_time(), rows["test"]
    law = predicted(name, rows, plan, seed, test.x)
    low, high = law.interval(0.95, draws=4000)
    return {
        "nll": float(law.log_score(test.y).mean()),
        "rmse": float(np.sqrt(np.square(law.mean() - test.y).mean())),
        "coverage_95": float(np.mean((low <= test.y) & (test.y <= high))),
        "cpu_seconds": process_time() - started,
    }


def compared(
    rows: Sequence[Figures], paper: dict[str, tuple[float, float]], name: str
) -> tuple[str, ...]:
    """Return the NLL of a method, that of the paper, and the difference from `rich-bll`."""
    scores = [row["nll"][name] for row in rows]
    gaps = [row["nll"]["rich"] - row["nll"][name] for row in rows]
    theirs = paper.get(name)
    return (
        with_error(scores),
        plus_minus(*theirs, 2) if theirs else "",
        "" if name == "rich" else with_error(gaps),
        f"{paper['rich'][0] - theirs[0]:.2f}" if theirs and name != "rich" else "",
    )


def page(found: dict[str, list[Figures]]) -> str:
    """Return the table; each seed has the NLL of all methods, and other figures of the peers."""
    lines = []
    for table_name, rows in found.items():
        peers = zip(PAPER_METHODS, PAPER_PEERS.get(table_name, ()), strict=False)
        paper = PAPER.get(table_name, {}) | dict(peers)
        for name in (*LAST_LAYERS, *PEERS):
            title = LAST_LAYERS.get(name) or NAMES.get(name, name)
            others = ("", "", "")
            if name in PEERS:
                mean = {key: np.mean([row[name][key] for row in rows]) for key in rows[0][name]}
                others = (
                    f"{mean['rmse']:.3f}",
                    percent(mean["coverage_95"]),
                    f"{mean['cpu_seconds']:.0f}",
                )
            lines.append((table_name, title, *compared(rows, paper, name), *others))
    header = ("table", "method", "NLL", "paper", "rich - method", "... paper")
    splits = ", ".join(f"{name} {len(rows)}" for name, rows in found.items())
    epochs = ", ".join(f"{name} {PLANS[name].epochs}" for name in found)
    most = max(map(len, found.values()))
    return f"""# Bayesian last layers beside other methods (Calvo-Ordoñez et al., table 2)

Splits: {splits}; the paper has 20.

    python -m benchmarks networks.last_layer_peers --data uci --seeds {most}

The splits are the first of [the last layers](../last-layers/table.md), whose figures are repeated
for these splits. Networks have two layers of 50 ReLU units, with batches, rates and numbers of
epochs as there ({epochs}: fewer than in the paper).
The validation rows choose the epoch by the loss, and are not trained on at the end.

- `vbll` is geogp's: a dense SiLU layer on a residual network of width and rank {WIDTH}, trained by
  the ELBO, its noise at ten times the rate of the network.
- The exact process has one length scale for each input. It learns its kernel from at most
  {LIKELIHOOD_ROWS:,} rows and predicts from all.
- The ensemble has {baselines.ENSEMBLE} networks with learned variances.
- The validation rows choose the rate of dropout, the rate of SWAG, and their noise.
- Bayes by backprop is not included: no library that geogp uses has it.
- Two settings were changed after the scores of the first split of housing were seen: the epoch is
  chosen by the loss instead of the squared error (the ensemble had 3.21), and the noise of `vbll`
  starts at 0.5 instead of 0.01 (it had 4.21).

The target of yacht is a logarithm here, and that of wine its quality, scores 3 to 8.

NLL of the test rows in the target's unit, mean ± standard error over the splits; differences are
paired by split. *CPU s*: one thread on a busy machine.

{table((*header, "RMSE", "holds 95 %", "CPU s"), lines, left=(0, 1))}"""


def main() -> None:
    """Make the fits whose files do not exist yet, and write the table."""
    asked = parser(
        __doc__,
        out="last-layer-peers",
        table="last-layer-peers",
        required="data",
        seeds=20,
        tables=PLANS,
    )
    figures = RESULTS / "last-layers" / "results.json"
    asked.add_argument("--last-layers", type=Path, default=figures, help="of last_layers.py")
    options = asked.parse_args()
    known = json.loads(options.last_layers.read_text())
    found: dict[str, list[Figures]] = {name: [] for name in options.tables}
    for seed, name in product(range(options.seeds), options.tables):
        plan = Plan(**known["plans"][name])
        held = {one["seed"]: one["nll"] for one in known["seeds"][name]}
        if seed not in held:
            raise DataError(
                f"{options.last_layers} has no seed {seed} of {name}; run last_layers.py with "
                "more --seeds."
            )
        source = paper_table(options.data, name)
        rows = split(source.x, source.y, seed)
        scores = {key: held[seed][key] for key in LAST_LAYERS}
        row: Figures = {"seed": seed}
        for peer in PEERS:
            make = functools.partial(measure, rows, peer, plan, seed)
            row[peer] = kept(options.out / f"{name}-{plan.epochs}-{peer}-{seed}.json", make)
            scores[peer] = row[peer]["nll"]
        found[name].append({**row, "nll": scores})
        say(name, seed, scores)
        done = {key: value for key, value in found.items() if value}
        write_results(options.table, page(done), {"machine": machine(), "seeds": done})

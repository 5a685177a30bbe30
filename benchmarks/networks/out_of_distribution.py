r"""Rows from elsewhere by their predictive variance, as in table 4 of the Rich paper.

    python -m benchmarks networks.out_of_distribution --inside red.parquet --outside white.parquet
    python -m benchmarks networks.out_of_distribution --inside uci/housing.parquet --column x5 \
        --share 0.75

"The Rich paper" is Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features"; its rows from elsewhere are white wines, and those of the training are red. A second
table has the rows from elsewhere, or they are the rows of the same table with the highest values of
a column, the rest being `--share` of the rows. The other rows are split 72:18:10; the fits are
those of `last_layers.py` and `last_layer_peers.py`. Each seed has its own file under --out, and the
same command continues where it stopped.
"""

import argparse
import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree
from sklearn.metrics import roc_auc_score

from benchmarks.markdown import plus_minus, table, with_error
from benchmarks.networks.last_layer_peers import NAMES, PEERS, predicted
from benchmarks.networks.last_layers import Plan, factors, fitted, function_variance, split
from benchmarks.networks.network_baselines import NormalMixture
from benchmarks.number_tables import TARGETS, Table, column_scales
from benchmarks.script import Figures, Floats, kept, machine, options_of, say, write_results
from geogp.errors import RequestError
from geogp.models.process.data import Data

DISTANCE = "distance to the nearest training row"

LAST_LAYERS = {
    "rich": "`rich-bll`",
    "s": "... 40 % of rows",
    "bll": "`bll`",
    "rich-raw": "`rich-bll`, prior in the target's unit",
    "bll-raw": "`bll`, prior in the target's unit",
}

# Rich, table 4: AUROC and standard error over 10 seeds, red and white wine.
PAPER = {"rich": (0.96, 0.00), "s": (0.96, 0.00), "bll": (0.88, 0.01), "vbll": (0.95, 0.00)}


def sources(options: argparse.Namespace) -> tuple[Data, Data, str]:
    """Return the rows of the training and its tests, the rows from elsewhere, and their rule.

    Raises
    ------
    RequestError
        If the options name neither or both of a second table and a column, the tables have
        different columns, or the rule leaves too few rows on a side.
    """
    target = TARGETS.get(options.inside.stem, "y")
    inside = Table(options.inside, target)
    if (options.outside is None) == (options.column is None):
        raise RequestError("expected either --outside with a second table, or --column.")
    if options.outside is not None:
        outside = Table(options.outside, target)
        if outside.columns != inside.columns:
            raise RequestError(
                f"expected the columns {list(inside.columns)} in {options.outside}, found "
                f"{list(outside.columns)}."
            )
        here, there = Data(inside.x, inside.y), Data(outside.x, outside.y)
        return here, there, f"training and tests of `{inside.name}`, outliers of `{outside.name}`"
    if options.column not in inside.columns:
        raise RequestError(
            f"expected one of the columns {list(inside.columns)}, found {options.column!r}."
        )
    values = inside.x[:, inside.columns.index(options.column)]
    limit = np.quantile(values, options.share)
    far = values > limit
    if min(far.sum(), (~far).sum()) < 20:
        raise RequestError(
            f"expected 20 rows or more on both sides of {options.column} = {limit:g}, found "
            f"{far.sum()} above it and {(~far).sum()} others; change --share or --column."
        )
    rows = Data(inside.x, inside.y)
    rule = f"outliers of `{inside.name}` have {options.column} above its {options.share:g}-quantile"
    return rows.at(~far), rows.at(far), rule


def laws(rows: dict[str, Data], plan: Plan, seed: int, new: Floats) -> dict[str, NormalMixture]:
    """Return the predictions of all methods at new inputs."""
    rich, _, _ = fitted(rows, plan, seed)
    mean = rich.predict(new).mean[None]
    noise = float(rich.noise()) * float(rich.y_sd) ** 2
    found = {
        name: NormalMixture(mean, noise + function_variance(rich, V, new)[None])
        for name, V in factors(rich, rows["train"], seed).items()
        if name in LAST_LAYERS
    }
    return found | {name: predicted(name, rows, plan, seed, new) for name in PEERS}


def distances(train: Floats, new: Floats) -> Floats:
    """Return the distances of new inputs to the nearest training row, standardised, (m,)."""
    centre, spread = column_scales(train)
    found: Floats = KDTree((train - centre) / spread, balanced_tree=False).query(
        (new - centre) / spread
    )[0]
    return found


def measure(inside: Data, outside: Data, plan: Plan, seed: int) -> Figures:
    """Fit all methods with one seed, and score the test rows and the rows from elsewhere."""
    rows = split(inside.x, inside.y, seed)
    both = rows["test"].joined(outside)
    other = np.arange(len(both.y)) >= len(rows["test"].y)
    near = distances(rows["train"].x, both.x)
    found: Figures = {
        "auroc": {DISTANCE: float(roc_auc_score(other, near))},
        "nll": {},
        "nll_outside": {},
    }
    for name, law in laws(rows, plan, seed, both.x).items():
        scores = law.log_score(both.y)
        found["auroc"][name] = float(roc_auc_score(other, law.variances[0]))
        found["nll"][name] = float(scores[~other].mean())
        found["nll_outside"][name] = float(scores[other].mean())
    counts = {"train": len(rows["train"].y), "test": int((~other).sum()), "outside": len(outside.y)}
    return {"seed": seed, **counts, **found}


def page(cases: Sequence[Figures]) -> str:
    """Return the tables; each case has a rule, a command, a plan and the figures of its seeds."""
    parts = [_part(case) for case in cases]
    counts = ", ".join(f"{case['name']} {len(case['seeds'])}" for case in cases)
    wine = ""
    if any(case["name"] == "wine, x6" for case in cases):
        wine = " That of wine\nis its total sulphur dioxide; white wines have more than red ones."
    return f"""# Rows from elsewhere, by the predictive variance (Calvo-Ordoñez et al., table 4)

Seeds: {counts}; the paper has 10.

The paper trains with red wines, and white wines are the rows from elsewhere. Only red wine is at
hand, so its figures belong to other rows than those of this page, and only the order of the methods
can be compared. The columns that divide the tables were chosen before a score was seen.{wine}

- **AUROC**: the probability that a row from elsewhere has a larger predictive variance than a test
  row of the training's kind; ½ is chance, and the figure of a method with one variance everywhere.
- **NLL**: of the test rows, and of the rows from elsewhere, in the target's unit.
- Mean ± standard error over the seeds.
- The variance of the ensemble includes the noise variances that its networks learned.
- The distance needs no model: it is that of standardised inputs.
{"".join(parts)}"""


def _part(case: Figures) -> str:
    seeds, lines = case["seeds"], []
    for name in (*LAST_LAYERS, *PEERS, DISTANCE):
        cells = [
            with_error([one[key][name] for one in seeds], digits) if name in seeds[0][key] else ""
            for key, digits in (("auroc", 3), ("nll", 3), ("nll_outside", 2))
        ]
        theirs = plus_minus(*PAPER[name], 2) if name in PAPER else ""
        title = LAST_LAYERS.get(name) or NAMES.get(name, name)
        lines.append((title, cells[0], theirs, *cells[1:]))
    first, plan = seeds[0], case["plan"]
    counts = ", ".join(
        f"{first[key]} {kind} rows"
        for key, kind in (("train", "training"), ("test", "test"), ("outside", "other"))
    )
    gaps = [one["auroc"]["rich"] - one["auroc"]["bll"] for one in seeds]
    header = ("method", "AUROC", "paper, wine", "NLL", "NLL, rows from elsewhere")
    return f"""
## {case["name"]}

    {case["command"]}

{case["rule"][0].upper()}{case["rule"][1:]}. {counts}; {plan["epochs"]} epochs,
batch {plan["batch"]}. The AUROC of `rich-bll` minus that of `bll`, paired by seed, is
{with_error(gaps)}; in the paper, it is {PAPER["rich"][0] - PAPER["bll"][0]:.2f}.

{table(header, lines)}"""


def options_asked() -> argparse.Namespace:
    """Return the options of the command line."""
    return options_of(
        __doc__,
        out="out-of-distribution",
        table="out-of-distribution",
        required="inside",
        outside=Path,
        column=str,
        share=0.75,
        seeds=10,
        epochs=300,
        batch=32,
    )


def main() -> None:
    """Make the fits whose files do not exist yet, and write this rule's case and all tables."""
    options = options_asked()
    inside, outside, rule = sources(options)
    plan = Plan(options.batch, options.epochs)
    name = f"{options.inside.stem}, {options.column or options.outside.stem}"
    rest = f"--outside {options.outside.name}" if options.outside else ""
    if options.column:
        rest = f"--column {options.column} --share {options.share:g}"
    folder = options.out / name.replace(", ", "-")
    case: Figures = {"name": name, "rule": rule, "plan": vars(plan), "seeds": []}
    case["command"] = (
        f"python -m benchmarks networks.out_of_distribution --inside {options.inside.name} {rest} "
        f"--seeds {options.seeds} --epochs {plan.epochs} --batch {plan.batch}"
    )
    for seed in range(options.seeds):
        make = functools.partial(measure, inside, outside, plan, seed)
        case["seeds"].append(kept(folder / f"{plan.epochs}-{plan.batch}-{seed}.json", make))
        say(name, seed, case["seeds"][-1]["auroc"])
    known = options.table / "results.json"
    others = json.loads(known.read_text())["cases"] if known.exists() else []
    cases = [one for one in others if one["name"] != name] + [case]
    write_results(options.table, page(cases), {"machine": machine(), "cases": cases})

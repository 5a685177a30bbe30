"""Exact and collapsed Gaussian processes: figure 3 and table 1 of DBK-1, on small machines.

    python -m benchmarks kernels.exact_tables --data pol.parquet energy.parquet --seeds 3
    python -m benchmarks kernels.exact_tables --causes --seeds 3

Figure 3: x ~ U[-1, 1], a mean with three steps and a small fast wave, noise of variance 0.01; 1,000
test points; n from 100. Table 1: tables of numbers, divided 7:1:2, figures on the scale of the
standardised target. `GP` and `DKL` are exact processes (`exact_gp.py`). Models are trained by full
batches, those whose names begin with SV by mini-batches; with more than --likelihood-rows rows,
exact processes learn their kernel from so many random rows, and predict from all rows. With
--causes, DBK and DBK-c are trained on figure 3 in several ways, which shows what decides between
them. Each fit has its own file under --out, and the same command continues where it stopped. The
results are added to those in --table, which keeps the fits with the most steps of each model; with
--collect, all fits in --out are added, and none is made. With --device cuda, models are on a GPU
and seconds are of the wall; fits are in a folder of their own in --out, and --table should name
another folder too.
"""

import argparse
import functools
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.kernels.exact_fits import (
    FIGURE,
    MODELS,
    TRAININGS,
    Case,
    measure,
    sources,
)
from benchmarks.markdown import spread, table
from benchmarks.script import (
    Figures,
    all_kept,
    fits_on,
    kept,
    parser,
    say,
    times_of,
    write_results,
)
from geogp.models.papers.deep_basis.exact_gp import MOST_ROWS

SIZES = (100, 300, 1000, 3000)
"""Training rows of figure 3."""

CAUSE_ROWS = 300
"""Training rows of figure 3 with which the trainings are compared."""


class Cause(NamedTuple):
    """Gradient steps, the trainings of DBK and of DBK-c that are compared, and most seeds."""

    steps: int
    corrected: str
    bare: str
    seeds: int = 3


CAUSES = (
    Cause(200, "slow", "fast"),
    Cause(200, "slow", "slow"),
    Cause(200, "fast", "fast"),
    Cause(200, "free noise", "free noise"),
    Cause(200, "large noise", "large noise"),
    Cause(1000, "slow", "slow"),
    Cause(1000, "fast", "fast"),
    Cause(1000, "large noise", "large noise"),
    Cause(5000, "large noise", "large noise", 1),
    Cause(1000, "paper", "paper", 1),
    Cause(10_000, "paper", "paper", 1),
)

# DBK-1, table 1: MAE, RMSE and NLL, and seconds on a V100; GP and DKL only for pol.
PAPER = {
    ("pol", "GP"): (0.0720, 0.1188, -0.4172, 1373.1),
    ("pol", "sGP"): (0.1853, 0.2594, 0.1520, 88.8),
    ("pol", "DKL"): (0.0764, 0.1956, -0.6502, 427.7),
    ("pol", "sDKL"): (0.0262, 0.0654, -1.2917, 40.7),
    ("pol", "DBK"): (0.0249, 0.0583, -1.5117, 48.0),
    ("pol", "DBK-c"): (0.0501, 0.0900, -0.9720, 21.0),
    ("pol", "DBK-r"): (0.0325, 0.0615, -1.4297, 80.3),
    ("pol", "DBK-cr"): (0.0303, 0.0599, -1.3825, 37.0),
    ("pol", "SVGP"): (0.0982, 0.1599, -0.3441, 527.0),
    ("pol", "SVDKL"): (0.0603, 0.1282, -0.5750, 89.9),
    ("pol", "SVDBK"): (0.0806, 0.1263, -0.5228, 112.4),
    ("pol", "SVDBK-c"): (0.0808, 0.1271, -0.5378, 86.7),
    ("pol", "SVDBK-r"): (0.0485, 0.0935, -0.5978, 292.9),
    ("pol", "SVDBK-cr"): (0.0558, 0.0943, -0.7012, 215.8),
    ("protein", "sGP"): (0.5870, 0.7311, 1.1092, 118.7),
    ("protein", "sDKL"): (0.4055, 0.6036, 2.3040, 93.7),
    ("protein", "DBK"): (0.4592, 0.6525, 2.2843, 85.7),
    ("protein", "DBK-c"): (0.4925, 0.7279, 4.3396, 75.6),
    ("protein", "DBK-r"): (0.4115, 0.5769, 0.9324, 107.0),
    ("protein", "DBK-cr"): (0.4239, 0.6077, 1.5096, 79.0),
    ("protein", "SVGP"): (0.6114, 0.7554, 1.1394, 1546.0),
    ("protein", "SVDKL"): (0.3924, 0.5656, 0.8634, 281.9),
    ("protein", "SVDBK"): (0.3730, 0.5519, 0.8425, 266.5),
    ("protein", "SVDBK-c"): (0.3922, 0.5631, 0.8724, 217.2),
    ("protein", "SVDBK-r"): (0.3785, 0.5590, 0.8460, 297.6),
    ("protein", "SVDBK-cr"): (0.4057, 0.5705, 0.8736, 191.0),
}

FIGURE_4_ROWS = 19_535
"""Points of figure 4 of DBK-1."""

FIGURE_4 = {
    "SVGP": (0.2533, 0.3728),
    "SVDKL": (0.2322, 0.4210),
    "SVDBK": (0.2216, 0.2880),
}
"""MAE and NLL in figure 4 of DBK-1."""

PAIRS = {"DBK": "DBK-c", "DBK-r": "DBK-cr", "SVDBK": "SVDBK-c", "SVDBK-r": "SVDBK-cr"}
"""Models with the variance correction, and the same models without it."""

SETTINGS = (
    "rate",
    "of the readout, times",
    "of the noise, times",
    "decay",
    "noise at start",
    "network",
)

Line = tuple[object, ...]
Key = tuple[str, int, str]


def _key(one: Figures) -> Key:
    return one["table"], one["n"], one["model"]


def _way(one: Figures) -> tuple[str, int, str]:
    return one["model"], one["steps"], one["training"]


WAYS = {
    way: cause.seeds
    for cause in CAUSES
    for way in (("DBK", cause.steps, cause.corrected), ("DBK-c", cause.steps, cause.bare))
}
"""Most seeds of the models, steps and trainings of `CAUSES`."""


READ = tuple(
    (model, steps, training)
    for model in ("DBK", "DBK-c")
    for steps, training in (
        *((200, training) for training in ("slow", "fast", "free noise", "large noise")),
        *((1000, training) for training in ("slow", "fast", "large noise")),
    )
)
"""The ways of `CAUSES` that `reading` needs."""


def split(found: Sequence[Figures]) -> tuple[list[Figures], list[Figures]]:
    """Return the fits of the tables, and those of `CAUSES`.

    The tables have the fits of each model with its usual training, if there are some, and of these
    the ones with the most steps.
    """
    tries, usual = [], []
    for one in found:
        compared = _key(one)[:2] == (FIGURE, CAUSE_ROWS) and _way(one) in WAYS and "last" in one
        if compared:
            tries.append(one)
        if not compared or (_is_usual(one) and WAYS[_way(one)] > 1):
            usual.append(one)
    best: dict[Key, tuple[bool, int]] = {}
    for one in usual:
        best[_key(one)] = max((_is_usual(one), one["steps"]), best.get(_key(one), (False, 0)))
    return [one for one in usual if (_is_usual(one), one["steps"]) == best[_key(one)]], tries


def _is_usual(one: Figures) -> bool:
    return bool(one["training"] == MODELS[one["model"]].training)


def in_order(found: Sequence[Figures]) -> list[Figures]:
    """Return the fits that the page shows, each once, in its order."""
    shown = {Case.of(one).name: one for part in split(found) for one in part}
    names = [*MODELS]
    return sorted(
        shown.values(), key=lambda f: (*_key(f)[:2], names.index(f["model"]), *_way(f), f["seed"])
    )


def cells(group: Sequence[Figures]) -> Line:
    """Return the scores and seconds of the seeds of a model."""
    means = [spread([one[name] for one in group]) for name in ("mae", "rmse", "nll")]
    coverage = 100 * np.mean([one["coverage_95"] for one in group])
    seconds = np.mean([one[times_of(one).key] for one in group])
    return (*means, f"{coverage:.1f}", f"{seconds:.0f}")


def scores(usual: Sequence[Figures]) -> tuple[list[Line], list[Line]]:
    """Return the lines of figure 3 and of table 1."""
    figure: list[Line] = []
    tables: list[Line] = []
    for (name, n, model), held in groupby(usual, _key):
        group = list(held)
        steps, training = f"{group[0]['steps']:,}", group[0]["training"]
        line = (f"{n:,}", model, steps, training, len(group), *cells(group))
        if name == FIGURE:
            figure.append(line)
            continue
        theirs = PAPER.get((name, model))
        shown = (
            () if theirs is None else (f"{theirs[0]:.3f}", f"{theirs[2]:.3f}", f"{theirs[3]:.0f}")
        )
        tables.append((name, *line, *(shown or ("", "", ""))))
    return figure, tables


def paired(usual: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
    """Return each corrected fit and that of the same rows and training without correction."""
    by_rows = {(_key(one), one["seed"], *_way(one)[1:]): one for one in usual if "last" in one}
    found = []
    for one in usual:
        name, n, model = _key(one)
        bare = PAIRS.get(model, "")
        other = by_rows.get(((name, n, bare), one["seed"], *_way(one)[1:]))
        if other is not None and "last" in one:
            found.append((one, other))
    return found


def gains(pairs: Sequence[tuple[Figures, Figures]]) -> list[Line]:
    """Return what the correction changes in pairs of `paired`."""
    lines: list[Line] = []
    for (name, n, model), held in groupby(pairs, lambda pair: _key(pair[0])):
        group = list(held)
        own, other = (PAPER.get((name, of)) for of in (model, PAIRS[model]))
        paper = "" if own is None or other is None else f"{own[2] - other[2]:.3f}"
        shown = [spread([a[k] - b[k] for a, b in group]) for k in ("nll", "mae")]
        last = spread([a["last"]["nll"] - b["last"]["nll"] for a, b in group])
        steps = f"{group[0][0]['steps']:,}"
        lines.append((name, f"{n:,}", model, steps, len(group), *shown, last, paper))
    return lines


def _short(value: float) -> str:
    """Return a number with two significant digits and without an exponent."""
    return f"{float(f'{value:.2g}'):,.15g}"


def causes(tries: Sequence[Figures]) -> list[Line]:
    """Return the lines of `CAUSES`: two models each."""
    lines: list[Line] = []
    for cause in CAUSES:
        for way in (("DBK", cause.steps, cause.corrected), ("DBK-c", cause.steps, cause.bare)):
            group = [one for one in tries if _way(one) == way]
            if not group:
                continue
            ends = [one["last"] for one in group]
            chosen = [spread([one[name] for one in group]) for name in ("validation_nll", "nll")]
            scores_of = ("nll", "nll_without_c", "mae")
            scored = [spread([end[name] for end in ends]) for name in scores_of]
            coverage = f"{100 * np.mean([end['coverage_95'] for end in ends]):.1f}"
            names = ("noise_variance", "effective_rank", "largest", "trace")
            kernel = [_short(np.mean([end[name] for end in ends])) for name in names]
            start = (f"{cause.steps:,}", way[2], way[0], len(group))
            lines.append((*start, *chosen, *scored, coverage, *kernel))
    return lines


def trainings() -> list[Line]:
    """Return the settings of the trainings in `CAUSES`."""
    used = dict.fromkeys(way for cause in CAUSES for way in (cause.corrected, cause.bare))
    lines: list[Line] = []
    for way in used:
        how = TRAININGS[way]
        network = "2 tanh layers of 128" if how.tanh else "2 residual blocks of 64"
        rates = f"{how.learning_rate:g}", f"{how.head_rate:g}", f"{how.noise_rate:g}"
        lines.append((way, *rates, how.decay, f"{how.noise_start:g}", network))
    return lines


def reading(tries: Sequence[Figures]) -> str:
    """Return what the fits of `CAUSES` show, or nothing if some are missing."""
    held = {way: [one for one in tries if _way(one) == way] for way in READ}
    if not all(held.values()):
        return ""

    def end(model: str, steps: int, training: str, name: str = "nll") -> float:
        return float(np.mean([one["last"][name] for one in held[model, steps, training]]))

    def both(steps: int, training: str, name: str = "nll", digits: int = 2) -> str:
        own, other = (end(model, steps, training, name) for model in ("DBK", "DBK-c"))
        return f"{own:.{digits}f} ({other:.{digits}f})"

    def validation(steps: int, training: str) -> str:
        found = (held[model, steps, training] for model in ("DBK", "DBK-c"))
        own, other = (np.mean([one["validation_nll"] for one in group]) for group in found)
        return f"{own:.3f} ({other:.3f})"

    def chosen(model: str) -> float:
        return float(np.mean([one["nll"] for one in held[model, 1000, "large noise"]]))

    pairs = [one["last"] for way, group in held.items() if way[0] == "DBK" for one in group]
    helps = [one["nll_without_c"] - one["nll"] for one in pairs]
    slow = 100 * end("DBK", 200, "slow", "coverage_95"), end("DBK", 200, "slow", "noise_variance")
    return f"""NLL after the last step, of DBK, and of DBK-c in brackets:

- **The former comparison was uneven** (first two lines). An earlier version of this page trained
  DBK as `slow` and DBK-c as `fast`. In 200 steps, `slow` changes the logarithm of the noise
  variance by about 0.5 at most. The way from 0.01 to the true noise, which is 0.033 for a
  standardised target, is 1.2. So the noise variance of DBK was {slow[1]:.4f} and its coverage
  {slow[0]:.0f} %. With `slow` for both, the NLL is {both(200, "slow")}.
- **The start of the noise variance harms DBK.** With `free noise`, which starts at 0.01, 200 steps
  give {both(200, "free noise")}. With the same training and a start at 1, they give
  {both(200, "large noise")}. The trace is divided by twice the noise variance. While this is too
  small, the prior variance stays small and even, and the mean is learned slowly: the MAE is
  {both(200, "free noise", "mae", 3)} from 0.01, and {both(200, "large noise", "mae", 3)} from 1.
- **A fast readout harms it too, and more steps repair this only in part.** `fast` gives
  {both(200, "fast")} after 200 steps, and {both(1000, "fast")} after 1,000.
- **More steps reverse the order.** After 1,000 steps, `slow` gives {both(1000, "slow")} and
  `large noise` {both(1000, "large noise")}. DBK-c fits the noise of the training rows: its noise
  variance is {end("DBK-c", 1000, "large noise", "noise_variance"):.4f}, and its coverage
  {100 * end("DBK-c", 1000, "large noise", "coverage_95"):.0f} %. The paper claims this order.
- **The validation rows hide a part of it.** They stop DBK-c early. At the step that they choose,
  `large noise` gives {chosen("DBK"):.2f} ({chosen("DBK-c"):.2f}) in 1,000 steps.
- **Not the cause:** c(x, x) in predictions. Without it, the NLL of DBK is higher in
  {sum(gain > 0 for gain in helps)} of {len(helps)} fits, by {np.mean(helps):.3f} on average. The
  maximum over all training rows is no obstacle at the end: the trace is then at most
  {max(one["trace"] for one in pairs):.2f} nats per row. A maximum over fewer rows was not tried.

`large noise` has the lowest validation NLL in 200 steps, of DBK as of DBK-c, so the tables use it.
In 1,000 steps, it has {validation(1000, "large noise")}, and `slow` {validation(1000, "slow")}.
The presets of geogp start the noise variance at 0.5, except `paper`.

"""


def page(found: Sequence[Figures]) -> str:
    """Return the tables."""
    usual, tries = split(found)
    figure, tables = scores(usual)
    times, thread = times_of(found[0]), "of one thread of a shared CPU"
    columns = ("MAE", "RMSE", "NLL", "coverage, %", times.unit)
    kernel = ("noise variance", "effective rank", "largest k(x, x)", "trace")
    last = tuple(f"{name}, last" for name in ("NLL", "NLL without c", "MAE", "coverage, %"))
    header = ("table", "n", "model", "steps", "training", "seeds", *columns)
    theirs = ("MAE, paper", "NLL, paper", "s, paper")
    start = ("steps", "training", "model", "seeds", "NLL, validation", "NLL")
    gained = ("table", "n", "model", "steps", "seeds", "NLL", "MAE", "NLL, last", "NLL, paper")
    pairs = paired(usual)
    better, better_last = (
        sum(a["nll"] < b["nll"] for a, b in ends)
        for ends in (pairs, [(a["last"], b["last"]) for a, b in pairs])
    )
    figure_4 = ", ".join(f"{name} {mae:.4f} ({nll:.4f})" for name, (mae, nll) in FIGURE_4.items())
    about = "\n".join(f"- {one}" for one in sorted({one["about"] for one in found}))
    return f"""# Exact Gaussian processes, collapsed bounds and deep basis kernels

    python -m benchmarks kernels.exact_tables --causes{times.option}
    python -m benchmarks kernels.exact_tables --steps STEPS --data TABLES{times.option}

Protocol of DBK-1, section 4. Mean ± standard deviation over the seeds; the seed determines the
data or their split, and the model. DBK has the variance correction, DBK-c has none, -r and -cr are
the same with one basis function. Models whose names begin with SV are trained by mini-batches of
256 rows, all others by full batches; the validation rows choose the step. Networks have width 64
and two residual blocks (in the paper, 2 layers of 128 and, for DKL, 2 outputs); the rank is 128.
The paper has 10 or 5 seeds, 10,000 steps, and 2,000 epochs of mini-batches. Exact processes learn
their kernel from at most {max(one["likelihood_rows"] for one in found):,} random rows, and predict
from all rows; they refuse more than {MOST_ROWS:,} rows, as the table protein has (in the paper,
they run out of memory there). Seconds are {times.wall or thread}; the paper's are of a V100.

{about}

## What the correction changes

Score of the corrected model minus that of the same model without correction, in pairs of fits with
the same rows, training and number of steps: below 0, the correction is better. "Last": after the
last step, which no validation row chooses. The corrected NLL is lower in {better} of {len(pairs)}
pairs, and after the last step in {better_last}.

{table(gained, gains(pairs), left=(0, 2))}
## Which training decides

Figure 3 with {CAUSE_ROWS} rows. These are the trainings, for DBK and for DBK-c:

{table(("training", *SETTINGS), trainings(), left=(0,))}
"NLL without c": c(x, x) is not added to the variance of predictions. Noise variance and largest
k(x, x) of the training rows have the unit of the data, where the noise variance is 0.01, and the
variance of the mean over x is 0.29. "Trace": tr(C) / (2 n noise variance), the price of an uneven
prior variance in nats per row; DBK-c does not pay it.

{table((*start, *last, *(f"{name}, last" for name in kernel)), causes(tries), left=(1, 2))}
{reading(tries)}## Figure 3: one dimension, noise variance 0.01

No model can have an NLL below that of the truth, which is -0.884 on average, or an RMSE below
0.100.

Lines of 200 steps are of the former comparison, where DBK and DBK-c were trained differently, and
these are too few for DBK-r. Compare only lines of equal steps and training, or the differences
above.

{table(header[1:], figure, left=(1, 3))}
## Table 1: tables of numbers, 7:1:2

The table `song` of the paper is not available here; the paper has `pol` and `protein`. Lines of 200
steps: see above. On pol, DBK and DBK-c differ little at the step that the validation rows choose;
after the last step, DBK-c is worse by most of the paper's gap. Here the validation rows choose
among all steps, in the paper among each 100th of up to 10,000. Whether this makes the paper's gap
was not measured.

Figure 4 of the paper compares three models by mini-batches on {FIGURE_4_ROWS:,} points of mobile
internet quality in Georgia, which are not available here. MAE, and NLL in brackets:
{figure_4}.
On tiles of [Puerto Rico](../regions/PR.md), `sv-dkl` (SVDKL) and `sv-rbf` (SVGP) have nearly equal
scores.

{table((*header, *theirs), tables, left=(0, 2, 4))}"""


def cases(options: argparse.Namespace, n: int, name: str) -> Iterator[Case]:
    """Yield the fits that the command asks for, of a table with n training rows."""
    for seed in range(options.seeds if n <= options.single_above else 1):
        if options.causes:
            for (model, steps, way), most in sorted(WAYS.items(), key=lambda item: item[0][1]):
                if seed < most:
                    yield Case(name, model, n, seed, steps, options.likelihood_rows, way)
            continue
        for model in options.models:
            training = MODELS[model].training
            steps = options.batch_steps if training == "batches" else options.steps
            yield Case(name, model, n, seed, steps, options.likelihood_rows, training)


def main() -> None:
    """Make the fits whose files do not exist yet, and add them to the tables."""
    asked = parser(
        __doc__,
        out="exact",
        devices=True,
        table="exact",
        seeds=3,
        steps=1000,
        batch_steps=3000,
        likelihood_rows=1000,
        single_above=5000,
        sizes=SIZES,
        models=tuple(MODELS),
        causes=False,
        collect=False,
    )
    asked.add_argument("--data", type=Path, nargs="*", default=[], help="tables with x0.., y")
    options = asked.parse_args()
    wanted = sources([CAUSE_ROWS], []) if options.causes else sources(options.sizes, options.data)
    folder = fits_on(options.device, options.out)
    stored = all_kept(folder, "*.json") if options.collect else []
    wanted = [] if options.collect else wanted
    earlier = options.table / "results.json"
    found = json.loads(earlier.read_text()) if earlier.exists() else []
    by_name = {Case.of(one).name: one for one in (*found, *stored)}
    for n, name, rows in wanted:
        for case in cases(options, n, name):
            if case.refused:
                say(
                    f"{case.table}: {case.model} takes at most {MOST_ROWS:,} rows, found {case.n:,}"
                )
                continue
            make = functools.partial(measure, case, rows, options.device)
            by_name[case.name] = kept(folder / case.name, make)
            say(by_name[case.name])
    found = in_order([*by_name.values()])
    write_results(options.table, page(found), found)

"""The one-dimensional example of Zhu, Yuchi and Xie (DBK, section 4.1), compared with its oracle.

    python -m benchmarks kernels.one_dimension

x ~ U[-1, 1], the mean has three steps, and the noise has standard deviation |0.4 sin 10x|. Training
rows are the first n of 100,000, and 1,000 validation rows choose the epoch. Figures are from
100,000 new points, and compared with the log score of their true density (the oracle). The paper
prints |2 sin 10x|, but reports log scores that are only possible with about 0.4; see
docs/results.md. Each result has its own file under --out, and the same command continues where it
stopped. With --device cuda, models are on a GPU and times are of the wall; fits are in a folder of
their own in --out, and --table should name another folder too.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from benchmarks.kernels.one_dimension_fits import FRESH_ROWS, VALIDATION_ROWS, Benchmark, Case
from benchmarks.markdown import spread, table
from benchmarks.script import Figures, options_of, say, times_of, write_results

RANKS = (1, 2, 4, 8, 16, 32, 64)
SEEDED, SEEDS = (1, 2), 10
"""Ranks that are fitted with several seeds, and the number of these seeds."""

COMPARED = ("dbk-silu", "dbk-mml", "dbk-exact")

STUDY: tuple[tuple[str, Sequence[int], Sequence[int], Figures], ...] = (
    ("dbk-silu", (500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000), (128,), {}),
    ("dbk-silu", (20_000,), RANKS, {}),
    ("dbk-mml dbk-exact", (500, 1000, 2000, 5000, 10_000, 20_000), (128,), {}),
    *(("dbk-silu", (20_000,), SEEDED, {"seed": seed}) for seed in range(1, SEEDS)),
    ("dbk-mml dbk-exact", (50_000, 100_000), (128,), {"steps": 200}),
    ("dbk-rbf pp-dkl sv-dkl sv-rbf sv-dbk vbll dnn", (20_000,), (128,), {"steps": 6000}),
    ("dbk-exact-rbf", (20_000,), (128,), {"steps": 200}),
)
"""Models, training rows, ranks, and settings that differ from those of `Case.of`."""

COLUMNS = (
    *("MAE of the mean", "NLL", "gap to the oracle", "coverage of 90 %", "effective rank"),
    *("gradient step, ms", "prediction of 1,000, ms", "gradient steps, at most"),
)


def cases() -> Iterator[Case]:
    """Yield the cases of the study."""
    for models, sizes, ranks, other in STUDY:
        for model, n, r in product(models.split(), sizes, ranks):
            yield Case.of(model, n, r, **other)


def line(found: Figures, *names: str) -> tuple[str, ...]:
    """Return the cells of a result, after the settings that identify it, such as n."""
    first = [found["case"][name] for name in names]
    shown = (f"{value:,}" if isinstance(value, int) else value for value in first)
    timing = [1e3 * found[k] for k in ("step_seconds", "prediction_seconds")]
    scores, cost = ("not fitted", *[""] * 4), ("0", "")
    if "nll" in found:
        scores = (
            *(f"{found[name]:.4f}" for name in ("mae", "nll", "gap")),
            *(f"{100 * found['coverage_90']:.1f}", f"{found['effective_rank']:.2f}"),
        )
        cost = f"{found['case']['steps']:,}", f"{found[f'fit_{times_of(found).key}']:.0f}"
    # Times have three significant digits.
    return *shown, *scores, *(f"{float(f'{value:.3g}'):,g}" for value in timing), *cost


def by_seeds(found: Sequence[Figures]) -> str:
    """Return the table of the ranks with several seeds: mean and best of the seeds."""
    lines = []
    for r in sorted(set(SEEDED) & {one["case"]["r"] for one in found}):
        held = [one for one in found if one["case"]["r"] == r]
        nll, gap = ([one[name] for one in held] for name in ("nll", "gap"))
        best = (f"{min(part):.4f}" for part in (nll, gap))
        lines.append((r, len(held), spread(nll, 4), spread(gap, 4), *best))
    header = ("r", "seeds", "NLL, mean ± sd", "gap, mean ± sd", "NLL, best", "gap, best")
    return table(header, lines, left=())


def settings(found: Sequence[Figures]) -> str:
    """Return how the compared models were trained."""
    lines = []
    for model in COMPARED:
        held = [Case(**one["case"]) for one in found if one["case"]["model"] == model]
        if not held:
            continue
        case = max(held, key=lambda c: (c.steps, c.n))
        rate = f"learning rate {case.learning_rate:g}, times {case.head_rate:g} for the head"
        text = f"full batch, {rate}"
        if not case.whole:
            text = (
                f"batch {case.batch}, {rate}, average over {case.average} steps, patience "
                f"{case.patience} steps, alpha {case.alpha:g}, beta {case.beta:g}, "
                f"clip {case.clip:g}"
            )
        lines.append(f"- `{model}`: {text}, cosine decay, h {case.h}, seed {case.seed}.")
    return "\n".join(lines)


def page(found: Sequence[Figures]) -> str:
    """Return all tables."""
    times = times_of(found[0])
    how = f"{times.wall or 'processor times of one thread'}, the least of several runs"
    but = "the machine was busy with other\nwork"
    if times.wall:
        but = "a fit that records its steps takes less"

    def lines(held: Sequence[Figures], *names: str) -> str:
        left = (0,) if names[0] == "model" else ()
        header = (*names, *COLUMNS, f"fit, {times.unit}")
        return table(header, [line(one, *names) for one in held], left)

    at = [(one["case"]["model"], one["case"]["n"], one["case"]["r"]) for one in found]
    keyed = list(zip(at, found, strict=True))
    scaling = [one for (model, _, r), one in keyed if model in COMPARED and r == 128]
    top = [one for (_, n, r), one in keyed if (n, r) == (20_000, 128)]
    top.sort(key=lambda one: one.get("nll", math.inf))
    seeds = [one for (model, n, _), one in keyed if (model, n) == ("dbk-silu", 20_000)]
    ranks = sorted(
        (one for one in seeds if one["case"]["seed"] == 0), key=lambda one: one["case"]["r"]
    )
    return f"""# The one-dimensional example

    python -m benchmarks kernels.one_dimension{times.option}

Data: x ~ U[-1, 1], three steps in the mean, noise of standard deviation |0.4 sin 10x|
(DBK section 4.1). Scored on {FRESH_ROWS:,} new
points, on which the oracle's log score is **{found[0]["oracle_nll"]:.4f}**; {VALIDATION_ROWS:,}
validation rows choose the epoch of the catalogue's models. One seed, except in the last table.
Times are {how}; {but}. \
Full-batch fits have fewer steps if a step takes long. [An earlier table](earlier.md) has
exact Gaussian processes of GPyTorch. The paper prints |2 sin 10x|, with which no model can have its
scores; [Results](../../../docs/results.md) says why 0.4.

{settings(found)}

## Scaling with n (r = 128, h = 64)

{lines(scaling, "model", "n")}
## All models at n = 20,000 (r = 128, h = 64), by log score

{lines(top, "model")}
## Rank of `dbk-silu` at n = 20,000

{lines(ranks, "r")}
## Seeds of `dbk-silu` at n = 20,000

The seeds differ in the initial model and the order of the rows; the data are the same. The paper
shows the best of 10 seeds by test score.

{by_seeds(seeds)}"""


def main() -> None:
    """Make the fits whose files do not exist yet, and write the table."""
    options = options_of(__doc__, out="one-dimension", table="one-dimension", devices=True)
    bench = Benchmark(options.out, options.device)
    say(f"oracle's log score on {FRESH_ROWS:,} fresh points: {bench.oracle:.4f}")
    found = [bench.result(case) for case in cases()]
    names = [*COMPARED, *(one["case"]["model"] for one in found)]
    found.sort(key=lambda one: names.index(one["case"]["model"]))
    write_results(options.table, page(found), found)

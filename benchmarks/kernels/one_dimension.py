"""The one-dimensional example of Zhu, Yuchi and Xie (DBK, section 4.1), compared with its oracle.

    python -m benchmarks kernels.one_dimension

x ~ U[-1, 1], the mean has three steps, and the noise has standard deviation |0.4 sin 10x|. Training
rows are the first n of 100,000, and 1,000 validation rows choose the epoch. Figures are from
100,000 new points, and compared with the log score of their true density (the oracle). The paper
prints |2 sin 10x|, but reports log scores that are only possible with about 0.4; see
docs/results.md. Each result has its own file under --out, and the same command continues where it
stopped. --seeds fits the cases of some seeds; the tables have all cases whose files exist. With
--device cuda, models are on a GPU and times are of the wall; fits are in a folder of their own in
--out, and --table should name another folder too.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from benchmarks.kernels.one_dimension_fits import FRESH_ROWS, VALIDATION_ROWS, Benchmark, Case
from benchmarks.markdown import spread, table
from benchmarks.script import Figures, options_of, say, times_of, write_results

RANKS = (1, 2, 4, 8, 16, 32, 64)
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

SEEDS, FEW_SEEDS = 10, 3
"""Numbers of seeds of `dbk-silu` and small exact fits, and of the expansions."""

COMPARED = ("dbk-silu", "dbk-mml", "dbk-exact")

EXPANSIONS = ("dbk-silu", "dbk-rbf", "dbk-fourier", "dbk-spline")
"""Models that differ in the expansion of the network alone."""

SHORT = {"steps": 6000}

STUDY: tuple[tuple[str, Sequence[int], Sequence[int], Figures], ...] = (
    ("dbk-silu", SIZES, (128,), {}),
    ("dbk-silu", (20_000,), RANKS, {}),
    ("dbk-mml dbk-exact", SIZES[:6], (128,), {}),
    *(
        (" ".join(EXPANSIONS), (20_000,), (128,), SHORT | {"seed": seed})
        for seed in range(FEW_SEEDS)
    ),
    *(("dbk-silu", (20_000,), RANKS, {"seed": seed}) for seed in range(1, SEEDS)),
    *(("dbk-silu", SIZES, (128,), {"seed": seed}) for seed in range(1, SEEDS)),
    *(("dbk-exact", SIZES[:4], (128,), {"seed": seed}) for seed in range(1, SEEDS)),
    ("dbk-mml dbk-exact", (50_000, 100_000), (128,), {"steps": 200}),
    ("pp-dkl sv-dkl sv-rbf sv-dbk vbll dnn", (20_000,), (128,), SHORT),
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


def by_seeds(found: Sequence[Figures], *names: str, least: int = 2) -> str:
    """Return a table of the cases with at least some seeds: mean and best of the seeds.

    `names` are the settings that differ between the lines.
    """
    cases: dict[tuple[object, ...], list[Figures]] = {}
    for one in found:
        cases.setdefault(tuple(one["case"][name] for name in names), []).append(one)
    lines = []
    for key, held in cases.items():
        if len(held) < least:
            continue
        nll, gap, mae = ([one[name] for one in held] for name in ("nll", "gap", "mae"))
        scores = (spread(values, 4) for values in (mae, nll, gap))
        shown = (f"{value:,}" if isinstance(value, int) else value for value in key)
        lines.append((*shown, len(held), *scores, f"{min(nll):.4f}", f"{min(gap):.4f}"))
    if not lines:
        return "So far each case has one seed; see above.\n"
    header = (*names, "seeds", "MAE, mean ± sd", "NLL, mean ± sd", "gap, mean ± sd")
    return table((*header, "NLL, best", "gap, best"), lines, left=(0,) if "model" in names else ())


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
        lines.append(f"- `{model}`: {text}, cosine decay, h {case.h}.")
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

    def of(one: Figures, *names: str) -> tuple[object, ...]:
        return tuple(one["case"][name] for name in names)

    expansions = [
        one
        for one in found
        if of(one, "model")[0] in EXPANSIONS and SHORT.items() <= one["case"].items()
    ]
    others = [one for one in found if one not in expansions or of(one, "model") != ("dbk-silu",)]
    first = [one for one in others if of(one, "seed") == (0,)]
    scaling = [one for one in others if of(one, "model")[0] in COMPARED and of(one, "r") == (128,)]
    top = [one for one in first if of(one, "n", "r") == (20_000, 128)]
    top.sort(key=lambda one: one.get("nll", math.inf))
    silu = [one for one in others if of(one, "model", "n") == ("dbk-silu", 20_000)]
    silu.sort(key=lambda one: of(one, "r", "seed"))
    ranks = [one for one in silu if one in first]
    return f"""# The one-dimensional example

    python -m benchmarks kernels.one_dimension{times.option}

Data: x ~ U[-1, 1], three steps in the mean, noise of standard deviation |0.4 sin 10x|
(DBK section 4.1). Scored on {FRESH_ROWS:,} new
points, on which the oracle's log score is **{found[0]["oracle_nll"]:.4f}**; {VALIDATION_ROWS:,}
validation rows choose the epoch of the catalogue's models. One seed, except in the last tables.
Times are {how}; {but}. \
Full-batch fits have fewer steps if a step takes long. [An earlier table](earlier.md) has
exact Gaussian processes of GPyTorch. The paper prints |2 sin 10x|, with which no model can have its
scores; [Results](../../../docs/results.md) says why 0.4.

{settings(found)}

## Scaling with n (r = 128, h = 64)

{lines([one for one in scaling if one in first], "model", "n")}
## All models at n = 20,000 (r = 128, h = 64), by log score

{lines(top, "model")}
## Rank of `dbk-silu` at n = 20,000

{lines(ranks, "r")}
## Expansions of the network at n = 20,000 (r = 128, h = 64)

The models differ in the expansion alone: a dense layer with SiLU, inducing points, Fourier
features, B-splines. All have at most {SHORT["steps"]:,} gradient steps. Means over the seeds:

{by_seeds(expansions, "model", least=1)}
## Seeds

The seeds differ in the initial model and the order of the rows; the data are the same. Figures 4
and 5 of the paper have 10 seeds; the columns of seeds say how many there are here.

Training rows (figure 4), r = 128:

{by_seeds(scaling, "model", "n")}
Ranks of `dbk-silu` (figure 5) at n = 20,000. The best NLL of 10 seeds in the paper (figure 9) is
0.126 for r = 1, -0.192 for 2, -0.215 for 8 and -0.225 for 64.

{by_seeds(silu, "r")}
[Pictures](figures.md) have the fits, kernels and basis functions of some of these models.
"""


def main() -> None:
    """Make the fits whose files do not exist yet, and write the table."""
    options = options_of(
        __doc__, out="one-dimension", table="one-dimension", devices=True, seeds=range(SEEDS)
    )
    bench = Benchmark(options.out, options.device)
    say(f"oracle's log score on {FRESH_ROWS:,} fresh points: {bench.oracle:.4f}")
    found = [
        bench.result(case)
        for case in cases()
        if case.seed in options.seeds or bench.path(case).exists()
    ]
    names = [*COMPARED, *(one["case"]["model"] for one in found)]
    found.sort(key=lambda one: names.index(one["case"]["model"]))
    write_results(options.table, page(found), found)

"""Pictures of fits in one dimension: figures 1, 5 and 9 of Zhu, Yuchi and Xie (DBK).

    python -m benchmarks kernels.one_dimension_figures

The data are those of `one_dimension.py`. Figure 1 has exact processes with an RBF kernel on the
inputs and on a network (DKL), the closed form of a deep basis, and dPPGP. The paper fits 20,000
rows; here an exact process has 1,000, because a step takes n³ operations. Figures 5 and 9 have
`dbk-silu` of four ranks, each with the seed whose NLL is the best in results.json of
`one_dimension`. Each fit has a file of its own under --out; the pictures stand beside the table.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from benchmarks.kernels.one_dimension_fits import (
    Benchmark,
    Case,
    oracle_nll,
    step_of,
    true_mean,
    true_sd,
)
from benchmarks.markdown import table
from benchmarks.script import RESULTS, Figures, Floats, kept, options_of, say, write_results
from geogp.distributions.prediction import Prediction
from geogp.models.papers.deep_basis.exact_gp import ExactGP, ExactSettings, fit_exact
from geogp.models.process.data import Data

mpl.use("Agg")
from matplotlib import pyplot as plt

RANKS = (1, 2, 8, 64)
"""Ranks of the paper's pictures."""

PAPER_NLL = {1: 0.126, 2: -0.192, 8: -0.215, 64: -0.225}
"""NLL in the titles of figure 9, each the best of ten seeds."""

EXACT_ROWS, EXACT_STEPS = 1000, 200
"""Training rows of figure 1, and steps of its exact processes (20,000 and 2,000 in the paper)."""

GRID, COARSE = np.linspace(-1, 1, 801), np.linspace(-1, 1, 161)
"""Points of the curves, and of the rows and columns of the kernels."""

SHOWN, SCORED = 400, 20_000
"""Training rows that are drawn, and new points that are scored."""

NAMES = {
    "rbf": "exact RBF",
    "dkl": "exact DKL",
    "dbk-exact": "DBK, exact",
    "dbk-silu": "DBK, dPPGP",
}


def rounded(values: Floats) -> list[float]:
    """Return values with five significant digits."""
    return [float(f"{value:.5g}") for value in np.ravel(values)]


def described(
    bench: Benchmark,
    predict: Callable[[Floats], Prediction],
    step: Callable[[], object],
    repeats: int,
) -> Figures:
    """Return scores on new points, times, and the curves of mean and standard deviation."""
    x, y = bench.fresh.x[:SCORED], bench.fresh.y[:SCORED]
    law, curve = predict(x), predict(GRID[:, None])
    return {
        "mae": float(np.abs(law.mean - true_mean(x[:, 0])).mean()),
        "nll": float(law.log_score(y).mean()),
        "step_seconds": bench.quickest(step, repeats),
        "prediction_seconds": bench.quickest(lambda: predict(bench.validation.x), 5),
        "mean": rounded(curve.mean),
        "sd": rounded(curve.sd),
    }


def deep_fit(bench: Benchmark, case: Case) -> Figures:
    """Fit a model of the catalogue; return its figures, kernel and basis functions."""
    model, _ = bench.fitted(case)
    step = step_of(model, bench.train(case.n), case)
    points = COARSE[:, None]
    return {
        **described(bench, model.predict, step, 20),
        "kernel": rounded(model.kernel(points, points)),
        "basis": rounded(model.features(GRID[::2, None]).T) if case.r <= max(RANKS) else [],
    }


def exact_fit(bench: Benchmark, h: int | None) -> Figures:
    """Fit an exact process with an RBF kernel on the inputs, or on a network of width h."""
    train = bench.train(EXACT_ROWS)
    model = ExactGP(1, h=h)
    fit_exact(model, train, ExactSettings(steps=EXACT_STEPS), bench.validation)
    x, y = model.scaled(train.x), model.standardised(train.y)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        (-model.log_marginal_likelihood(x, y)).backward()  # type: ignore[no-untyped-call]

    return described(bench, model.predict, step, 2)


def best_seeds(results: Path) -> dict[int, tuple[int, int]]:
    """Return for each rank the seed with the best NLL, and the number of seeds."""
    held: dict[int, list[tuple[float, int]]] = {}
    for one in json.loads((results / "results.json").read_text()):
        case = one["case"]
        if one["case"] == {**Case.of("dbk-silu", 20_000, case["r"]).__dict__, "seed": case["seed"]}:
            held.setdefault(case["r"], []).append((one["nll"], case["seed"]))
    return {rank: (min(held[rank])[1], len(held[rank])) for rank in RANKS}


def page(found: Figures) -> str:
    """Return the page of the pictures."""
    fits = [
        (
            NAMES[name],
            f"{one['mae']:.4f}",
            f"{one['nll']:.4f}",
            f"{1e3 * one['step_seconds']:,.3g}",
            f"{1e3 * one['prediction_seconds']:,.3g}",
        )
        for name, one in found["fits"].items()
    ]
    ranks = [
        (rank, one["seeds"], f"{one['nll']:.4f}", f"{PAPER_NLL[int(rank)]:.3f}")
        for rank, one in found["ranks"].items()
    ]
    return f"""# Pictures of the one-dimensional example

    python -m benchmarks kernels.one_dimension_figures

The data are those of [the tables](table.md). The NLL is that of the first {SCORED:,} new points, on
which the true density has {found["oracle"]:.4f}.

## Four processes (DBK, figure 1)

![Fits of an exact RBF, an exact DKL, DBK in closed form and DBK by dPPGP](fits.webp)

All have the same {EXACT_ROWS:,} training rows. The paper has 20,000. The fits are smaller here,
because a step of an exact process takes n³ operations. Networks have h = 64, deep bases r = 128.
The exact processes have {EXACT_STEPS} steps of Adam (2,000 in the paper); validation rows choose
the step. Dashed lines are the true mean and 95 % interval; line and band are the predicted ones. A
step uses all rows, except for dPPGP, which uses 200. Times are processor times of one thread of a
busy machine, the least of several runs.

{table(("process", "MAE of the mean", "NLL", "step, ms", "prediction of 1,000, ms"), fits)}
## Kernels, basis functions and predictions by rank (DBK, figures 5 and 9)

![Kernels, basis functions and predictions of dbk-silu with ranks 1, 2, 8 and 64](ranks.webp)

`dbk-silu` with n = 20,000. Each rank has the seed with the best test NLL, as in the paper, which
has 10 seeds. Above: k(x, x') over its largest value. In the middle: the basis functions, each with
the sign that makes its largest value positive. Below: the predicted mean and 95 % interval. The
paper's NLL is that of 1,000 other points.

{table(("r", "seeds", "NLL", "NLL, paper"), ranks, left=())}"""


def draw_law(ax: Axes, one: Figures, rows: tuple[Floats, Floats], colour: str) -> None:
    """Draw training rows, the true law and a predicted law."""
    mean, sd = np.array(one["mean"]), np.array(one["sd"])
    middle, half = true_mean(GRID), 1.96 * true_sd(GRID)
    ax.plot(*rows, ".", ms=2, color="0.6")
    ax.fill_between(GRID, mean - 1.96 * sd, mean + 1.96 * sd, color=colour, alpha=0.3, lw=0)
    ax.plot(GRID, mean, color=colour, lw=1.5, label="predicted mean, 95 %")
    lines = np.column_stack([middle, middle - half, middle + half])
    ax.plot(GRID, lines, "k--", lw=0.7, label=["true mean, 95 %", None, None])
    ax.set(xlim=(-1, 1), ylim=(-1.9, 1.9), xlabel="x")


def draw_fits(found: Figures, rows: tuple[Floats, Floats]) -> plt.Figure:
    """Return the picture of the four processes."""
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained", sharey=True)
    for k, (ax, (name, one)) in enumerate(zip(axes, found["fits"].items(), strict=True)):
        draw_law(ax, one, rows, f"C{k}")
        times = "step {:,.3g} ms, prediction {:,.3g} ms".format(
            *(1e3 * one[f"{what}_seconds"] for what in ("step", "prediction"))
        )
        ax.set_title(f"{NAMES[name]}: NLL {one['nll']:.3f}\n{times}", fontsize=9)
    axes[0].set_ylabel("y")
    axes[0].legend(fontsize=7, loc="lower right")
    return figure


def draw_ranks(found: Figures, rows: tuple[Floats, Floats]) -> plt.Figure:
    """Return the picture of the ranks: kernels, basis functions, predictions."""
    figure, axes = plt.subplots(3, len(RANKS), figsize=(12, 9), layout="constrained", sharey="row")
    for k, (rank, one) in enumerate(found["ranks"].items()):
        top, middle, bottom = axes[:, k]
        kernel = np.reshape(one["kernel"], (len(COARSE), len(COARSE)))
        image = top.imshow(
            kernel / kernel.max(), origin="lower", extent=(-1, 1, -1, 1), vmin=-1, cmap="RdBu_r"
        )
        top.set(title=f"r = {rank}: NLL {one['nll']:.3f}", xlabel="x'", xlim=(-1, 1))
        basis = np.reshape(one["basis"], (int(rank), -1))
        largest = basis[np.arange(int(rank)), np.abs(basis).argmax(1)]
        middle.plot(
            GRID[::2], (basis * np.sign(largest)[:, None]).T, lw=1, color=f"C{k}", alpha=0.6
        )
        middle.set(xlim=(-1, 1), xlabel="x")
        draw_law(bottom, one, rows, f"C{k}")
    for ax, label in zip(axes[:, 0], ("x", "basis functions, unit of y", "y"), strict=True):
        ax.set_ylabel(label)
    axes[2, 0].legend(fontsize=7, loc="lower right")
    bar = axes[0, -1].inset_axes((1.05, 0, 0.06, 1))
    figure.colorbar(image, cax=bar, label="k(x, x') / largest k")
    return figure


def fits_of(bench: Benchmark, best: dict[int, tuple[int, int]]) -> Figures:
    """Return the figures and curves of all fits, by name and by rank."""
    steps = {"rbf": partial(exact_fit, bench, None), "dkl": partial(exact_fit, bench, 64)}
    for name in ("dbk-exact", "dbk-silu"):
        steps[name] = partial(deep_fit, bench, Case.of(name, EXACT_ROWS, 128))
    ranks = {}
    for rank, (seed, seeds) in best.items():
        case = Case.of("dbk-silu", 20_000, rank, seed=seed)
        say(f"rank {rank}")
        curves = kept(bench.out / f"curves-{case.name}.json", partial(deep_fit, bench, case))
        ranks[str(rank)] = {**curves, "seed": seed, "seeds": seeds}
    fits = {}
    for name, make in steps.items():
        say(name)
        fits[name] = kept(bench.out / f"curves-{name}-n{EXACT_ROWS}.json", make)
    scored = Data(bench.fresh.x[:SCORED], bench.fresh.y[:SCORED])
    return {"oracle": oracle_nll(scored), "ranks": ranks, "fits": fits}


def main() -> None:
    """Make the fits whose files do not exist yet, the pictures and the page."""
    options = options_of(__doc__, out="one-dimension", table="one-dimension")
    bench = Benchmark(options.out)
    found = fits_of(bench, best_seeds(RESULTS / "one-dimension"))
    train = bench.train(SHOWN)
    rows = train.x[:, 0], train.y
    for name, figure in (("fits", draw_fits(found, rows)), ("ranks", draw_ranks(found, rows))):
        options.table.mkdir(parents=True, exist_ok=True)
        path = options.table / f"{name}.webp"
        figure.savefig(path, dpi=90, pil_kwargs={"quality": 80, "method": 6})
        plt.close(figure)
    for one in (*found["ranks"].values(), *found["fits"].values()):
        for curve in ("mean", "sd", "kernel", "basis"):
            one.pop(curve, None)
    write_results(options.table, page(found), found, "figures")

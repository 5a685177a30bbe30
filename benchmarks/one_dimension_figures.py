"""The figures of `one_dimension.py`, drawn from the files of its results."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from one_dimension_fits import PEERS
from one_dimension_table import COMPARED, Results
from one_dimension_world import GRID, KERNEL_GRID, ROWS, Z90, draw, true_mean, true_sd
from trial import Figures, Floats

from geogp.errors import RequestError
from geogp.models.training.training_loop import Data

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

SHOWN_RANKS = (1, 2, 8, 64)
LABELS = {
    **PEERS,
    "dbk-silu": "DBK-SiLU, dPPGP",
    "dbk-mml": "DBK exact, plain MML",
    "dbk-exact": "DBK exact, corrected",
}
COLOURS = dict(zip(COMPARED, ("C3", "C0", "C2", "C7", "C1"), strict=True))
MARKERS = dict(zip(COMPARED, "osD^v", strict=True))


def draw_figures(results: Results, folder: Path) -> None:
    """Draw the figures for which there are results."""
    mpl.rcParams.update(
        {"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    for make in (figure_bands, figure_scaling, figure_rank, figure_bases):
        figure = make(results)
        name = make.__name__.removeprefix("figure_")
        figure.savefig(folder / f"{name}.png", dpi=110)
        plt.close(figure)


def figure_bands(results: Results) -> Figure:
    """As DBK figure 1: rows, predictive bands and kernels of three models."""
    shown = [
        (model, max(fits, key=lambda f: (f["case"]["steps"], f["case"]["n"])))
        for model in ("exact-dkl", "dbk-mml", "dbk-silu")
        if (fits := [f for f in results.of(model, 128) if "nll" in f and f["case"]["n"] <= 20_000])
    ]
    sizes = {"figsize": (3.4 * len(shown), 5.6), "height_ratios": (1, 1.25)}
    figure, axes = plt.subplots(2, len(shown), layout="constrained", squeeze=False, **sizes)
    rows = draw(ROWS, 1)
    for column, (model, found) in enumerate(shown):
        arrays = results.arrays(found)
        title = f"{LABELS[model]}\nn = {found['case']['n']:,}, gap {found['gap']:.3f}"
        axes[0, column].set_title(title)
        _draw_band(axes[0, column], arrays, rows)
        image = _draw_kernel(axes[1, column], arrays["kernel"])
        for axis in axes[:, column] if column else ():
            axis.set_ylabel("")
    figure.colorbar(image, ax=axes[1], shrink=0.8, label="k(x, x') / max")
    _legend_below(figure, axes[0, 0])
    return figure


def _draw_band(axis: plt.Axes, arrays: dict[str, Floats], rows: Data) -> None:
    axis.plot(
        rows.x[:800, 0], rows.y[:800], ".", ms=2, color="0.5", label="some of the rows", zorder=1
    )
    mean, sd = arrays["mean"], arrays["sd"]
    for sign in (-1, 1):
        name = "true 90 % interval" if sign > 0 else None
        edge = true_mean(GRID) + sign * Z90 * true_sd(GRID)
        axis.plot(GRID, edge, color="k", lw=0.8, ls=":", label=name, zorder=4)
    shade = {"color": "C0", "alpha": 0.35, "lw": 0, "zorder": 2, "label": "predicted 90 %"}
    axis.fill_between(GRID, mean - Z90 * sd, mean + Z90 * sd, **shade)
    axis.plot(GRID, mean, color="C3", lw=1.2, label="predicted mean", zorder=3)
    axis.set(xlim=(-1, 1), ylim=(-1.7, 2), xlabel="x", ylabel="y")


def _draw_kernel(axis: plt.Axes, kernel: Floats) -> AxesImage:
    shown = kernel / np.abs(kernel).max()
    axis.set(xlabel="x'", ylabel="x", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    extent = (-1.0, 1.0, 1.0, -1.0)
    return axis.imshow(shown, extent=extent, cmap="RdBu_r", vmin=-1, vmax=1)


def _legend_below(figure: Figure, axis: plt.Axes, columns: int = 4) -> None:
    held = axis.get_legend_handles_labels()
    figure.legend(*held, loc="outside lower center", ncols=columns, frameon=False)


def figure_scaling(results: Results) -> Figure:
    """As DBK figure 4: MAE, log score, time of a step and of a prediction against n."""
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.2), layout="constrained")
    panels = (
        ("mae", "MAE of the mean", 1.0),
        ("nll", "NLL", 1.0),
        ("step_seconds", "gradient step, CPU ms", 1e3),
        ("prediction_seconds", "prediction of 1,000 points, CPU ms", 1e3),
    )
    for axis, (key, label, unit) in zip(axes.flat, panels, strict=True):
        for model in COMPARED:
            held = [f for f in results.of(model, 128) if key in f]
            x, y = [f["case"]["n"] for f in held], [unit * f[key] for f in held]
            style = {"color": COLOURS[model], "marker": MARKERS[model], "ms": 4.5, "lw": 1.3}
            axis.plot(x, y, label=LABELS[model], **style)
        axis.set(xscale="log", xlabel="training rows n", ylabel=label)
        if key != "nll":
            axis.set_yscale("log")
        axis.grid(alpha=0.25)
    ticks = (0.01, 0.02, 0.05, 0.1)
    axes[0, 0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0, 0].minorticks_off()
    axes[0, 1].axhline(results.oracle, color="k", ls="--", lw=1, label="oracle")
    _legend_below(figure, axes[0, 1], columns=3)
    return figure


def _ranked(results: Results) -> list[Figures]:
    held = [f for f in results.ranks("dbk-silu", 20_000) if "nll" in f]
    if not held:
        raise RequestError("expected results of `rank` for n = 20000, found none.")
    return held


def figure_rank(results: Results) -> Figure:
    """As DBK figure 5: kernels at four ranks, and the log score against the rank."""
    held = _ranked(results)
    figure = plt.figure(figsize=(9.6, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    axes = left.subplots(2, 2, sharex=True, sharey=True)
    by_rank = {f["case"]["r"]: f for f in held}
    image = None
    for axis, r in zip(axes.flat, SHOWN_RANKS, strict=True):
        axis.set_title(f"r = {r}")
        if r in by_rank:
            image = _draw_kernel(axis, results.arrays(by_rank[r])["kernel"])
        axis.label_outer()
    if image is not None:
        left.colorbar(image, ax=axes, shrink=0.8, label="k(x, x') / max")
    axis, ranks = right.subplots(), [f["case"]["r"] for f in held]
    style = {"color": COLOURS["dbk-silu"], "label": LABELS["dbk-silu"]}
    axis.plot(ranks, [f["nll"] for f in held], "o-", **style)
    axis.axhline(results.oracle, color="k", ls="--", lw=1, label="oracle")
    axis.set_xscale("log", base=2)
    axis.set_xticks(ranks, [str(r) for r in ranks])
    n = held[0]["case"]["n"]
    axis.set(xlabel="rank r", ylabel="NLL", title=f"n = {n:,}, 100,000 fresh points")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    return figure


def figure_bases(results: Results) -> Figure:
    """As DBK figure 9: basis functions and predictive distributions at four ranks."""
    by_rank = {f["case"]["r"]: f for f in _ranked(results)}
    shown = [r for r in SHOWN_RANKS if r in by_rank] or list(by_rank)
    figure, axes = plt.subplots(
        2, len(shown), figsize=(2.9 * len(shown), 5), layout="constrained", squeeze=False
    )
    rows = draw(ROWS, 1)
    for column, r in enumerate(shown):
        arrays = results.arrays(by_rank[r])
        features = arrays["features"]
        colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, r))
        for feature, colour in zip(features.T, colours, strict=True):
            axes[0, column].plot(KERNEL_GRID, feature, color=colour, lw=0.7 + 1 / r)
        axes[0, column].set(title=f"r = {r}", xlim=(-1, 1), xlabel="x")
        _draw_band(axes[1, column], arrays, rows)
        axes[1, column].set_title(f"gap to the oracle {by_rank[r]['gap']:.3f}")
        if column:
            axes[1, column].set_ylabel("")
    axes[0, 0].set_ylabel("basis functions, unit of y")
    _legend_below(figure, axes[1, 0])
    return figure

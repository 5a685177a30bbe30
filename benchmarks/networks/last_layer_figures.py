"""Toy data in one dimension, as in figures 1 and 2 of the Rich paper.

    python -m benchmarks networks.last_layer_figures

"The Rich paper" is Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features", which does not state its data. Regression: a cubic with a gap between the rows; the
process of the whole tangent kernel is beside last layers of the same network. Classes: two classes
with a gap; the network's probability, and its range for a logit two standard deviations away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import torch
from scipy.special import expit

from benchmarks.images.digits import take_share
from benchmarks.markdown import percent, table
from benchmarks.networks.last_layers import Plan, factors, fitted, function_variance
from benchmarks.script import Figures, Floats, machine, options_of, write_results
from geogp import ClassGP
from geogp.models.papers.classes.softmax_layers import EnrichedSoftmax
from geogp.models.papers.last_layers.regression import LastLayerGP, enrich, posterior_factor
from geogp.models.papers.last_layers.tangents import Tangents
from geogp.models.process.data import Data

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

NOISE_SD = 0.15

PARTS = {"at the rows": (1, 2), "in the gap": (0, 0.5), "beyond the rows": (3, 4)}
"""Ranges of |x| over which standard deviations are averaged; the rows have |x| from 1 to 2."""

RIDGE = 1e-4
"""Ridge of the map from last-layer to tangent features in one of the variants."""

VARIANTS = {
    "ntk": "NTK-GP",
    "bll": "bll",
    "rich": "rich-bll",
    "s": "rich-bll, 40 % of rows",
    "ridge": "rich-bll, ridge 1e-4",
}

FLIPPED = 0.2
"""Share of the rows with the other class."""

CLASS_MODELS = ("class-dnn", "class-bll", "class-rich-bll", "class-rich-bll, 40 %")


@dataclass(frozen=True)
class Line:
    """A mean and a standard deviation at the points of `grid`."""

    mean: Floats
    sd: Floats


def grid() -> Floats:
    """Return the points at which the figures are drawn, (m, 1)."""
    return np.linspace(-4, 4, 321)[:, None]


def draw(n: int, seed: int) -> Data:
    """Return n rows of the regression, half on each side of the gap."""
    random = np.random.default_rng(seed)
    x = random.uniform(1, 2, n) * np.where(np.arange(n) % 2, 1, -1)
    return Data(x[:, None], x**3 / 4 - x / 2 + NOISE_SD * random.standard_normal(n))


def tangent_variance(model: LastLayerGP, x: Floats, new: Floats) -> Floats:
    """Return the variance of the process of the whole tangent kernel at new inputs, (m,).

    With phi^p = (phi^r, phi^m) and weights N(0, I) for the standardised target, the variance is
    k(x, x) - k(x, X) (k(X, X) + noise I)^(-1) k(X, x), in the unit of the target.
    """
    network, readout = model.network, model.posterior.m
    rows, points = (
        tangent_features(network.tangents(model.scaled(part), readout)) for part in (x, new)
    )
    with torch.no_grad():
        across = points @ rows.T
        covariance = rows @ rows.T + model.noise().double() * torch.eye(len(x), dtype=rows.dtype)
        explained = (across * torch.linalg.solve(covariance, across.T).T).sum(1)
        found = (points.square().sum(1) - explained) * model.y_sd.square()
    return found.numpy()


def tangent_features(tangents: Tangents) -> torch.Tensor:
    """Return phi^p of `Tangents`, (n, p)."""
    blocks = [tangents.block(layer, slice(None)) for layer in range(len(tangents.layers))]
    return torch.cat([tangents.last, *blocks], 1)


def regression(n: int, epochs: int, seed: int) -> tuple[Data, float, dict[str, Line]]:
    """Return training rows, the standard deviation of the noise, and a line of each variant."""
    rows = {"train": draw(n, seed), "validation": draw(n // 4, seed + 1)}
    rich, _, _ = fitted(rows, Plan(32, epochs), seed)
    train, new = rows["train"], grid()
    mean = rich.predict(new).mean
    found = {"ntk": Line(mean, np.sqrt(tangent_variance(rich, train.x, new)))}
    x = rich.scaled(train.x)
    with torch.no_grad():
        ridge = enrich(rich.network, rich.posterior.m, x, ridge=RIDGE)
        ridged = posterior_factor(ridge.T, ridge.L, float(rich.noise()))
    for name, V in (factors(rich, train, seed) | {"ridge": ridged}).items():
        if name in VARIANTS:
            found[name] = Line(mean, np.sqrt(function_variance(rich, V, new)))
    return train, math.sqrt(float(rich.noise())) * float(rich.y_sd), found


def classes(n: int, seed: int) -> tuple[Floats, Floats, dict[str, Line]]:
    """Return rows of two classes, and the difference of the logits of each model."""
    random = np.random.default_rng(seed)
    x = (random.uniform(1, 2, n) * np.where(np.arange(n) % 2, 1, -1))[:, None]
    y = (x[:, 0] > 0) ^ (random.random(n) < FLIPPED)
    found = {}
    for model in CLASS_MODELS:
        name, _, part = model.partition(", ")
        fit = ClassGP(name, random_state=seed, device="cpu").fit(x, y)
        if part:
            network = fit.networks_[0]
            assert isinstance(network, EnrichedSoftmax)
            take_share(network, network.scaled(x[~fit.validation_]), seed)
        law = fit.predict_distribution(grid())
        mean, variance = law.mean[0], law.variance[0]
        found[model] = Line(mean[:, 1] - mean[:, 0], np.sqrt(variance.sum(1)))
    return x, y, found


def averages(lines: dict[str, Line]) -> dict[str, dict[str, float]]:
    """Return the mean standard deviation of each line in each of the `PARTS`."""
    away = abs(grid()[:, 0])
    return {
        name: {
            part: float(line.sd[(low <= away) & (away <= high)].mean())
            for part, (low, high) in PARTS.items()
        }
        for name, line in lines.items()
    }


def page(found: Figures) -> str:
    """Return the tables of the standard deviations."""
    noise = found["noise_sd"]
    lines = [
        (
            VARIANTS[name],
            *(f"{sd:.4f}" for sd in parts.values()),
            *(percent(sd / found["regression"]["ntk"][part]) for part, sd in parts.items()),
        )
        for name, parts in found["regression"].items()
    ]
    logits = [
        (f"`{name}`", *(f"{sd:.3f}" for sd in parts.values()))
        for name, parts in found["classes"].items()
    ]
    shares = [f"{part}, of NTK-GP" for part in PARTS]
    return f"""# Toy data in one dimension (Calvo-Ordoñez et al., figures 1 and 2)

One network with seed {found["seed"]} for each figure; the paper does not state its data.

    python -m benchmarks networks.last_layer_figures --seed {found["seed"]}

![Regression above, classes below](figures.webp)

{found["n"]} training rows with |x| from 1 to 2. Mean standard deviation of the function at the rows
(|x| from 1 to 2), in the gap (|x| below 0.5) and beyond the rows (|x| from 3 to 4). NTK-GP is the
process of the whole tangent kernel of the same network, which costs n² memory. The noise has the
standard deviation {NOISE_SD:g}, estimated as {noise:.3f}.

In one dimension, the last layer's features at rows in two short intervals are almost linearly
dependent. The least-squares map A from them to the tangent features is then large in directions
that no row shows, and the variance of `rich-bll` away from the rows is far above that of NTK-GP,
which it approximates. A ridge of 1e-4 (chosen after these standard deviations were seen; the
paper has a ridge for classes alone) removes most of it.

{table(("variant", *PARTS, *shares), lines)}
Classes: {2 * found["n"]} rows, of which about {percent(FLIPPED)} have the class of the other side.
The map of the classes has a ridge of 1, as in the paper. Mean standard deviation of the difference
of the two logits:

{table(("model", *PARTS), logits)}"""


def draw_all(
    rows: Data,
    noise: float,
    lines: dict[str, Line],
    classed: tuple[Floats, Floats, dict[str, Line]],
) -> plt.Figure:
    """Return the figure: regression above, classes below."""
    figure = plt.figure(figsize=(13, 5.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    above, below = top.subplots(1, len(VARIANTS)), bottom.subplots(1, len(CLASS_MODELS))
    at = grid()[:, 0]
    for ax, (name, line) in zip(above, ((name, lines[name]) for name in VARIANTS), strict=True):
        band(ax, at, line.mean, [line.mean + k * 2 * line.sd for k in (-1, 1)])
        ax.plot(rows.x[:, 0], rows.y, "k.", ms=2)
        ax.set(title=VARIANTS[name], ylim=(-6, 6))
    x, y, found = classed
    for ax, (name, line) in zip(below, found.items(), strict=True):
        band(ax, at, expit(line.mean), [expit(line.mean + k * 2 * line.sd) for k in (-1, 1)])
        ax.plot(x[:, 0], y, "k|", ms=5)
        ax.set(title=name, ylim=(-0.05, 1.05), xlabel="x")
    above[0].set_ylabel(f"y; 2 sd of the function (noise {noise:.2f})", fontsize=8)
    below[0].set_ylabel("probability; logit ± 2 sd", fontsize=8)
    return figure


def band(ax: Axes, at: Floats, middle: Floats, ends: Sequence[Floats]) -> None:
    """Draw a line with a band."""
    ax.fill_between(at, *ends, alpha=0.3, lw=0)
    ax.plot(at, middle)
    ax.title.set_fontsize(9)


def main() -> None:
    """Fit both networks, and write figure and table."""
    options = options_of(__doc__, table="last-layer-figures", seed=0, rows=200, epochs=300)
    rows, noise, lines = regression(options.rows, options.epochs, options.seed)
    classed = classes(2 * options.rows, options.seed)
    found = {
        "seed": options.seed,
        "n": options.rows,
        "noise_sd": noise,
        "regression": averages(lines),
        "classes": averages(classed[2]),
    }
    write_results(options.table, page(found), {"machine": machine(), **found})
    figure = draw_all(rows, noise, lines, classed)
    figure.savefig(options.table / "figures.webp", dpi=90, pil_kwargs={"quality": 80, "method": 6})
    plt.close(figure)

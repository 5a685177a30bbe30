"""Benefit of a random scale: `t-process` and `burr-process` compared with `nngp`.

    python -m benchmarks kernels.student

The kernel and the share of noise are known. Data are drawn from the process itself with a standard
deviation that is 10, 1 or 0.1 times the assumed one. Every figure has its own file under --out, and
the same command continues where it stopped.
"""

import argparse
import functools
import math
from dataclasses import asdict
from itertools import groupby

import numpy as np
import torch

from benchmarks.markdown import percent, spread, table
from benchmarks.script import Figures, Floats, kept, options_of, write_results
from geogp.distributions.prediction import Prediction
from geogp.evaluation import metrics
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import learn_closed_forms
from geogp.models.papers.scale_mixtures.processes import (
    BurrProcess,
    InverseGamma,
    StudentProcess,
)
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows

MODELS = ("nngp", "t-process")

WRONG = (10.0, 1.0, 0.1)
"""The true standard deviation divided by the assumed one."""

SIZES = (20, 50, 100, 200, 500, 100_000)

NOISE_SHARE = 0.2
"""t², the noise variance divided by the scale; the kernel is of order 1."""

FRESH_ROWS = 500

VAGUE = InverseGamma(0.1, 0.01)
"""A prior of the scale that contains less information than a single row."""

ANSWERS = ("nngp", "nngp, scale learned", "t-process", "t-process, vague", "burr-process")

LEVELS = (50, 80, 95)


def known_model(name: str) -> LowRankProcess:
    """Return a model of the kernel that data are drawn from: two erf layers, 60 anchors."""
    places = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    return new_model(name, places, r=60, depth=2, noise=NOISE_SHARE)


def draw(n: int, wrong: float, seed: int) -> tuple[Data, Data]:
    """Return n rows and `FRESH_ROWS` new rows of one function, times `wrong`.

    Features are those of the models, so the models know the kernel except for its scale.
    """
    rng = np.random.default_rng([n, seed])
    x = rng.uniform(-1, 1, (n + FRESH_ROWS, 2))
    phi = torch.cat(list(known_model("nngp").feature_chunks(x))).numpy()
    f = phi @ rng.standard_normal(phi.shape[1])
    y = wrong * (f + math.sqrt(NOISE_SHARE) * rng.standard_normal(len(f)))
    return Data(x[:n], y[:n]), Data(x[n:], y[n:])


def new_model(name: str, x: Floats, *, r: int, depth: int, noise: float) -> LowRankProcess:
    """Return an untrained model with weights of variance 15, so its kernel varies over [-1, 1]."""
    sizes = Architecture(x.shape[1], r=r, blocks=depth, dtype="float64")
    model = build(name, sizes, x, placement="kmeans++", noise_start=noise)
    with torch.no_grad():
        model.basis.kernel.log_weight.fill_(math.log(15.0))
    return model


def settled(name: str, train: Data) -> LowRankProcess:
    """Return a model with the known kernel and the posterior given the rows, without scaling."""
    model = known_model(name)
    condition(model, train, centre=0.0, spread=1.0)
    return model


def condition(model: LowRankProcess, train: Data, *, centre: float, spread: float) -> None:
    """Set the posterior of a model without a training step."""
    model.y_mean.fill_(centre)
    model.y_sd.fill_(spread)
    y = torch.from_numpy((train.y - centre) / spread)
    rows = Rows(model.scaled(train.x), y, y.new_ones(len(y), 2))
    learn_closed_forms(model, rows, rows)


def scale_figures(n: int, wrong: float, seed: int) -> Figures:
    """Return the scores on one data set, with all parameters fixed except a learned scale.

    In addition to `nngp` and `t-process` there are three models: the t process under a vague prior
    (`VAGUE`); the plain alternative to a random scale, which is the Gaussian process with the
    maximum-likelihood scale s² = e'A^(-1)e / n; and the process whose scale has a Burr XII prior,
    with the effective sample size of its nodes.
    """
    train, new = draw(n, wrong, seed)
    gaussian, student = (settled(name, train) for name in MODELS)
    assert isinstance(student, StudentProcess)
    plain = gaussian.predict(new.x)
    s2 = float(student.scale_terms[3]) / n
    learned = Prediction(plain.mean, s2 * plain.function_variance, s2 * plain.noise_variance)
    posterior, usual = student.scale_posterior, student.predict(new.x)
    burr = settled("burr-process", train)
    assert isinstance(burr, BurrProcess)
    student.set_prior(VAGUE)
    return {
        "n": n,
        "wrong": wrong,
        "seed": seed,
        "scale": posterior.b / (posterior.a - 1),
        "nngp": score(plain, new.y, wrong),
        "t-process": score(usual, new.y, wrong),
        "t-process, vague": score(student.predict(new.x), new.y, wrong),
        "burr-process": score(burr.predict(new.x), new.y, wrong),
        "burr_scale": burr.scale_posterior.mean,
        "burr_effective_size": 1 / float(np.square(burr.scale_posterior.weights).sum()),
        "nngp, scale learned": score(learned, new.y, wrong),
    }


def learned_figures(n: int, seed: int) -> Figures:
    """Return the scores with kernel and noise learned by L-BFGS; the last 5 % choose the epoch."""
    drawn, new = draw(n, 1.0, seed)
    first = int(0.95 * n)
    train, held_out = Data(drawn.x[:first], drawn.y[:first]), Data(drawn.x[first:], drawn.y[first:])
    found: Figures = {"n": n, "seed": seed}
    for name in MODELS:
        model = new_model(name, train.x[:2000], r=60, depth=2, noise=0.1)
        fit(model, train, held_out, FitSettings(epochs=3, batch=n, optimiser="lbfgs"))
        found[name] = score(model.predict(new.x), new.y, 1.0)
    return found


def score(prediction: Prediction, y: Floats, unit: float) -> dict[str, float]:
    """Return the scores in units of `unit`, which makes data on several scales comparable."""
    found = asdict(metrics.score(prediction, y))
    return {
        "nll": found["nll"] - math.log(unit),
        "crps": found["crps"] / unit,
        "rmse": found["rmse"] / unit,
        **{f"coverage_{level}%": found[f"coverage_{level}"] for level in LEVELS},
    }


def study(options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Return the figures of all sizes, scales and seeds."""
    folder, largest = options.out / "scale", options.sizes[-1]
    fixed = [
        kept(
            folder / f"{n}-{wrong:g}-{seed}.json",
            functools.partial(scale_figures, n, wrong, seed),
        )
        for n in options.sizes
        for wrong in WRONG
        for seed in range(options.seeds if n < max(SIZES) else options.large_seeds)
    ]
    learned = [
        kept(
            folder / f"{largest}-learned-{seed}.json",
            functools.partial(learned_figures, largest, seed),
        )
        for seed in range(options.large_seeds)
    ]
    return {"fixed": fixed, "learned": learned}


def scale_table(figures: list[Figures]) -> str:
    """Return a line for each wrong scale, size and answer."""
    lines = []
    ordered = sorted(figures, key=lambda f: (-f["wrong"], f["n"]))
    for (wrong, n), group in groupby(ordered, key=lambda f: (f["wrong"], f["n"])):
        found = list(group)
        for answer in ANSWERS:
            scores = [f[answer] for f in found]
            held = [np.mean([s[f"coverage_{level}%"] for s in scores]) for level in LEVELS]
            model, _, variant = answer.partition(",")
            lines.append(
                (
                    *(f"{wrong:g}", f"{n:,}", len(found)),
                    f"`{model}`" + (f",{variant}" if variant else ""),
                    spread([s["nll"] for s in scores]),
                    f"{np.mean([s['crps'] for s in scores]):.4f}",
                    *map(percent, held),
                )
            )
    header = ("wrong by", "n", "seeds", "model", "log score", "CRPS", "50 %", "80 %", "95 %")
    return table(header, lines)


def learned_table(figures: list[Figures]) -> str:
    """Return a line for each data set with everything learned."""
    lines = []
    for one in figures:
        scores = [one[model]["nll"] for model in MODELS]
        shown = (f"{score:.5f}" for score in scores)
        lines.append((one["seed"], f"{one['n']:,}", *shown, f"{abs(scores[0] - scores[1]):.1e}"))
    return table(("seed", "n", "`nngp`", "`t-process`", "difference"), lines)


def page(figures: dict[str, list[Figures]]) -> str:
    """Return all tables."""
    paper = "Lee et al., Scale mixtures of neural network Gaussian processes"
    return f"""# Student-t processes ({paper})

    python -m benchmarks kernels.student

## A wrong scale

Data are drawn from the process itself (erf network of two layers, two inputs, 60 anchors,
noise a fifth of the scale) and multiplied by the factor in the first column; 500 new points.
The models know the kernel and the share of noise. `nngp` fixes the factor at 1; the prior of
its square is InvGamma(2, 2) in `t-process` and Burr XII(2, 2) in `burr-process`. *vague*:
InvGamma(0.1, 0.01). *scale learned*: the maximum-likelihood scale instead of a random scale.
Scores are in units of the factor, mean ± standard deviation over the seeds; the last columns
are coverages.

{scale_table(figures["fixed"])}
Log scores of 500 new points if both models learn kernel and noise at n = 100,000:

{learned_table(figures["learned"])}"""


def main() -> None:
    """Make the figures whose files do not exist yet, and the table."""
    options = options_of(
        __doc__, out="student", table="student", seeds=20, large_seeds=3, sizes=SIZES
    )
    figures = study(options)
    write_results(options.table, page(figures), figures)

"""Bayesian last layers on small tables: the effect of the tangent kernel on the log score.

    python -m benchmarks networks.last_layers --data uci

The protocol follows Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features" (Rich), appendix C.1: rows split 72:18:10, standardised inputs, an MLP of 2 x 50 ReLU in
the maximal update parametrisation, Adam at 1e-3, gradients clipped at 1, and the epoch and the
noise variance from the validation rows. There are three differences: without --paper, the network
is not trained again on training and validation rows together, and there are fewer epochs; and the
fit standardises the target. Scores are in the target's unit. Each seed has its own file under
--out, and the same command continues where it stopped.
"""

import argparse
import functools
import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np
import torch

from benchmarks.markdown import mean_and_error, plus_minus, table, with_error
from benchmarks.number_tables import paper_table
from benchmarks.script import Figures, Floats, kept, options_of, say, write_results
from geogp.errors import DataError, RequestError
from geogp.files import write_text
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.last_layers.regression import (
    LastLayerGP,
    enrich,
    posterior_factor,
    row_factor,
)
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

WIDTH = 50

SHARES = {"s30": 0.3, "s": 0.4, "s50": 0.5, "s60": 0.6, "s70": 0.7, "s80": 0.8}
"""Shares of the rows for A and the posterior; the paper's usual share is 40 % (appendix D)."""


@dataclass(frozen=True)
class Plan:
    """Batch and epochs of a table, and the paper's largest number of epochs (None if absent).

    With `retrained`, the network is trained a second time, on training and validation rows, for the
    chosen number of epochs, as in the paper. The noise variance remains that of the first fit.
    """

    batch: int
    epochs: int
    paper_epochs: int | None = None
    retrained: bool = False


PLANS = {
    "housing": Plan(32, 300, 3000),
    "energy": Plan(32, 150, 2000),
    "power": Plan(256, 30, 3000),
    "yacht": Plan(32, 200),
    "concrete": Plan(32, 150, 3000),
    "wine": Plan(32, 100, 1000),
}

# Rich, table 2: NLL and standard error over 20 seeds.
PAPER = {
    "housing": {"map": (2.79, 0.09), "bll": (2.78, 0.06), "rich": (2.61, 0.04), "s": (2.62, 0.04)},
    "energy": {"map": (0.93, 0.03), "bll": (0.92, 0.01), "rich": (0.75, 0.03), "s": (0.78, 0.03)},
    "power": {"map": (3.28, 0.02), "bll": (2.82, 0.01), "rich": (2.78, 0.01), "s": (2.78, 0.01)},
    "concrete": {"map": (4.77, 0.15), "bll": (3.39, 0.06), "rich": (3.10, 0.03), "s": (3.10, 0.04)},
    "wine": {"map": (1.02, 0.00), "bll": (1.03, 0.01), "rich": (1.00, 0.01), "s": (1.01, 0.01)},
}

# Rich, table 6; the figures at 40 % are those of table 2.
PAPER_SHARES = {
    "housing": ((2.83, 0.08), (2.62, 0.04), *[(2.79, 0.08)] * 3, (2.79, 0.11), (2.61, 0.04)),
    "energy": ((0.79, 0.04), (0.78, 0.03), *[(0.78, 0.04)] * 4, (0.75, 0.03)),
    "power": ((2.78, 0.01),) * 7,
    "concrete": ((3.10, 0.03), (3.10, 0.04), *[(3.10, 0.03)] * 5),
    "wine": tuple((nll, 0.01) for nll in (1.03, 1.01, 1.03, 1.03, 1.02, 1.01, 1.00)),
}

MODELS = ("map", "bll", "rich", "s", "bll-raw", "rich-raw")


def split(x: Floats, y: Floats, seed: int) -> dict[str, Data]:
    """Return training, validation and test rows, 72:18:10."""
    order = np.random.default_rng(seed).permutation(len(y))
    first, second = int(0.72 * len(y)), int(0.9 * len(y))
    parts = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
    return {name: Data(x[rows], y[rows]) for name, rows in parts.items()}


def untrained(name: str, train: Data, seed: int) -> LastLayerGP:
    """Return a model whose inputs are standardised by the training rows."""
    sizes = Architecture(train.x.shape[1], h=WIDTH)
    model = build(name, sizes, train.x, scaling="minmax", seed=seed)
    # Mean minus and plus one standard deviation map to -1 and 1, so inputs are standardised.
    used = train.x[:, list(model.architecture.used)]
    centre, spread = (torch.from_numpy(v) for v in (used.mean(0), used.std(0)))
    model.x_low.copy_(centre - spread)
    model.x_high.copy_(centre + spread)
    assert isinstance(model, LastLayerGP)
    return model


def rows_of(rows: dict[str, Data], plan: Plan) -> Data:
    """Return the rows of the last training: also the validation rows if `plan.retrained`."""
    train = rows["train"]
    return train.joined(rows["validation"]) if plan.retrained else train


def fitted(rows: dict[str, Data], plan: Plan, seed: int) -> tuple[LastLayerGP, LowRankProcess, int]:
    """Return `rich-bll`, `bll` on the same network, and the chosen epoch."""
    train, validation = rows["train"], rows["validation"]
    rich = untrained("rich-bll", train, seed)
    settings = FitSettings(
        epochs=plan.epochs,
        batch=plan.batch,
        learning_rate=1e-3,
        decay="constant",
        clip=1.0,
        weight_decay=0.0,
        seed=seed,
    )
    _, state = fit(rich, train, validation, settings)
    if plan.retrained:
        noise = float(rich.noise()) * float(rich.y_sd) ** 2
        train = rows_of(rows, plan)
        rich = untrained("rich-bll", train, seed)
        fit(rich, train, train, replace(settings, epochs=state.best_epoch))
        rich.noise.variance.fill_(noise / float(rich.y_sd) ** 2)
        T = row_factor(rich.network, rich.scaled(train.x))
        rich.posterior.L.copy_(posterior_factor(T, rich.enrichment, float(rich.noise())))
    plain = untrained("bll", train, seed)
    plain.load_state_dict(rich.state_dict())
    scaled = plain.scaled(train.x)
    T = row_factor(plain.network, scaled)
    plain.enrichment.copy_(torch.eye(WIDTH + 1))
    plain.posterior.L.copy_(posterior_factor(T, plain.enrichment, float(plain.noise())))
    return rich, plain, state.best_epoch


def factors(rich: LastLayerGP, train: Data, seed: int) -> dict[str, torch.Tensor]:
    """Return the factor of the last layer's covariance under the variants, float64.

    Variants of `SHARES` use a share of the rows for A and for the Gram matrix. Variants `raw` have
    the prior w ~ N(0, I) in the unit of the target. Multiplying the last layer of a network by s
    does not change phi^r and multiplies phi^m by s, so B'B / s² = A'A + I / s² for the standardised
    target.
    """
    with torch.no_grad():
        x, noise = rich.scaled(train.x), float(rich.noise())
        T, identity = row_factor(rich.network, x), torch.eye(WIDTH + 1, dtype=torch.float64)
        sampled = {}
        for name, share in SHARES.items():
            most = max(int(share * len(x)), WIDTH + 1)
            found = enrich(rich.network, rich.posterior.m, x, most, seed=seed)
            sampled[name] = posterior_factor(found.T, found.L, noise)
        unit = 1 / float(rich.y_sd)
        values, vectors = torch.linalg.eigh(rich.enrichment @ rich.enrichment.T - identity)
        raw = vectors * (values.clamp(min=0) + unit**2).sqrt()
        _, R = torch.linalg.qr(raw.T)
        return {
            "map": torch.zeros_like(identity),
            "bll": posterior_factor(T, identity, noise),
            "rich": posterior_factor(T, rich.enrichment, noise),
            **sampled,
            "bll-raw": posterior_factor(T, unit * identity, noise),
            "rich-raw": posterior_factor(T, R.T, noise),
        }


def function_variance(model: LastLayerGP, V: torch.Tensor, x: Floats) -> Floats:
    """Return phi^r' V V' phi^r at inputs (n, d) for a factor of `factors`, in the target's unit."""
    with torch.no_grad():
        phi = model.basis(model.scaled(x)).phi.double()
        found: Floats = ((phi @ V).square().sum(1) * model.y_sd.square()).numpy()
    return found


def measure(rows: dict[str, Data], plan: Plan, seed: int) -> Figures:
    """Fit with one seed and score the test rows in the unit of the target."""
    rich, plain, best = fitted(rows, plan, seed)
    train, test = rows_of(rows, plan), rows["test"]
    noise = float(rich.noise()) * float(rich.y_sd) ** 2
    mean = rich.predict(test.x).mean
    variances = {
        name: [function_variance(rich, V, data.x) for data in (train, test)]
        for name, V in factors(rich, train, seed).items()
    }
    for model, name in ((rich, "rich"), (plain, "bll")):
        np.testing.assert_allclose(
            model.predict(test.x).function_variance, variances[name][1], rtol=1e-6
        )
    square = (test.y - mean) ** 2
    seen = float(np.square(train.y - rich.predict(train.x).mean).mean())
    rich.noise.variance.fill_(seen / float(rich.y_sd) ** 2)
    small = factors(rich, train, seed)
    return {
        "seed": seed,
        "n": len(train.y),
        "rmse": math.sqrt(square.mean()),
        "noise_var": noise,
        "best_epoch": best,
        "nll": {k: float(nll(square, noise + v[1])) for k, v in variances.items()},
        "share_train": {k: float(v[0].mean() / noise) for k, v in variances.items()},
        "share_test": {k: float(v[1].mean() / noise) for k, v in variances.items()},
        "share_largest": {k: float(v[1].max() / noise) for k, v in variances.items()},
        "noise_seen": seen,
        "nll_seen": {
            k: float(nll(square, seen + function_variance(rich, V, test.x)))
            for k, V in small.items()
        },
    }


def nll(square: Floats, variance: Floats) -> float:
    """Return the mean Gaussian negative log-likelihood of squared errors."""
    return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * square / variance))


def paired(seeds: list[Figures], first: str, second: str) -> tuple[float, float]:
    """Return mean and standard error of the differences in NLL, paired by seed."""
    return mean_and_error([seed["nll"][first] - seed["nll"][second] for seed in seeds])


def gain_of_share(square_over_noise: float, share: float) -> float:
    """Return the gain in NLL from a function variance of `share` times the noise variance.

    Let c (`square_over_noise`) be the mean squared error divided by the noise variance, and let
    every row have the same share. The gain over no function variance is
    ½ (c - c / (1 + share) - log(1 + share)).
    """
    c = square_over_noise
    return 0.5 * (c - c / (1 + share) - math.log1p(share))


def page(found: dict[str, list[Figures]], plans: dict[str, Plan]) -> str:
    """Return the tables."""
    epochs = "; ".join(
        f"{name} {plan.epochs} (batch {plan.batch}, paper {plan.paper_epochs or 'without it'})"
        for name, plan in plans.items()
    )
    retraining, options = "without", ""
    if next(iter(plans.values())).retrained:
        retraining, options = "with", f" --tables {' '.join(plans)} --paper"
    splits = ", ".join(f"{name} {len(rows)}" for name, rows in found.items())
    most = max(map(len, found.values()))
    raw = [
        (
            name,
            *(_nll(rows, model) for model in ("bll-raw", "rich-raw")),
            plus_minus(*paired(rows, "rich-raw", "bll-raw"), 4),
        )
        for name, rows in found.items()
    ]
    return f"""# Bayesian last layers on small tables

Splits: {splits}; the paper has 20.

    python -m benchmarks networks.last_layers --data uci --seeds {most}{options}

Protocol of Rich, appendix C.1 (72:18:10, standardised inputs, MLP 2 x 50 in µP, Adam at
1e-3, clip 1, noise variance from the validation rows), {retraining} the paper's final
training on training and validation rows together, and at most so many epochs: {epochs}.
Targets are in their own unit; that of yacht is a logarithm. The target of wine is its quality
(column x10 of the file, scores 3 to 8), as in the paper; column y of the file, the alcohol
content, is an input. Concrete is in MPa.

Test NLL, mean ± standard error over the seeds; differences are paired by seed.

{_scores(found)}
Mean function variance divided by the noise variance. Over the training rows this ratio cannot
exceed r/n under any prior (the trace of a ridge smoother is below r). `MSE/noise` is the mean
squared error of the test rows divided by the noise variance. `by r/n` is the reduction of the
noise-only NLL by a function variance of r/n of the noise at every test row. A larger reduction
needs test rows far from the training rows, with errors as large as their variance.

{_shares(found)}
Test NLL of `rich-bll` if A and the posterior use a share of the training rows (table 6 of the
paper, whose figure of housing at 40 % does not suit those at 30 % and 50 %):

{_subsampled(found)}
With the prior w ~ N(0, I) in the unit of the target (the paper centres targets, and does not
scale them) instead of that of the standardised target, on the same networks:

{table(("table", "`bll`", "`rich-bll`", "rich - bll"), raw)}{_seen(found)}"""


def _nll(rows: list[Figures], model: str) -> str:
    return with_error([seed["nll"][model] for seed in rows])


def _scores(found: dict[str, list[Figures]]) -> str:
    lines = []
    for name, rows in found.items():
        n = rows[0]["n"]
        scores = (_nll(rows, model) for model in MODELS[:4])
        gain = plus_minus(*paired(rows, "rich", "bll"), 4)
        lines.append((name, n, f"{(WIDTH + 1) / n:.3f}", *scores, gain))
        if name in PAPER:
            paper = PAPER[name]
            scores = (plus_minus(*paper[model], 2) for model in MODELS[:4])
            gap = paper["rich"][0] - paper["bll"][0]
            lines.append(("... in the paper", "", "", *scores, f"{gap:.2f}"))
    models = ("noise only", "`bll`", "`rich-bll`", "40 % of rows", "rich - bll")
    return table(("table", "n", "r/n", *models), lines)


def _shares(found: dict[str, list[Figures]]) -> str:
    lines = []
    for name, rows in found.items():
        share = (WIDTH + 1) / rows[0]["n"]
        excess = float(np.mean([s["rmse"] ** 2 / s["noise_var"] for s in rows]))
        means = (
            f"{np.mean([s[where][model] for s in rows]):.4f}"
            for where in ("share_train", "share_test")
            for model in ("bll", "rich")
        )
        largest = max(s["share_largest"]["rich"] for s in rows)
        gain = -paired(rows, "rich", "map")[0]
        lines.append(
            (
                *(name, f"{share:.4f}", *means, f"{largest:.2f}", f"{excess:.2f}"),
                *(f"{gain_of_share(excess, share):.3f}", f"{gain:.3f}"),
            )
        )
    header = (
        *("table", "r/n", "bll, train", "rich, train", "bll, test", "rich, test"),
        *("largest, test", "MSE/noise", "by r/n", "rich gains"),
    )
    return table(header, lines)


def _subsampled(found: dict[str, list[Figures]]) -> str:
    lines = []
    for name, rows in found.items():
        lines.append((name, *(_nll(rows, variant) for variant in (*SHARES, "rich"))))
        if name in PAPER_SHARES:
            theirs = (plus_minus(*value, 2) for value in PAPER_SHARES[name])
            lines.append(("... in the paper", *theirs))
    shares = (f"{100 * share:.0f} %" for share in SHARES.values())
    return table(("table", *shares, "all rows"), lines)


def _seen(found: dict[str, list[Figures]]) -> str:
    lines, pairs = [], (("rich", "bll"), ("rich-raw", "bll-raw"))
    for name, seeds in found.items():
        rows = [seed for seed in seeds if "nll_seen" in seed]
        if not rows:
            continue
        excess = np.mean([seed["rmse"] ** 2 / seed["noise_seen"] for seed in rows])
        scores = [{"nll": seed["nll_seen"]} for seed in rows]
        ours = (_nll(scores, model) for model in MODELS[:3])
        gains = (plus_minus(*paired(scores, *pair), 4) for pair in pairs)
        lines.append((name, len(rows), f"{excess:.2f}", *ours, *gains))
        if name in PAPER:
            paper = PAPER[name]
            theirs = (plus_minus(*paper[model], 2) for model in MODELS[:3])
            gap = f"{paper['rich'][0] - paper['bll'][0]:.2f}"
            lines.append(("... in the paper", "", "", *theirs, "", gap))
    if not lines:
        return ""
    header = ("table", "splits", "MSE/noise", "noise only", "`bll`", "`rich-bll`", "rich - bll")
    return f"""
With the noise variance from rows that the network was trained on (their mean squared error) instead
of the validation rows, on the same networks. It is too small for new rows, so that a function
variance gains more. The last column has also the prior in the unit of the target:

{table((*header, "... prior in the unit"), lines)}"""


def chosen(options: argparse.Namespace, name: str) -> Plan:
    """Return the plan of a table, or that of the paper if the options ask for it.

    Raises
    ------
    RequestError
        If the paper does not have the table.
    """
    plan = PLANS[name]
    if not options.paper:
        return plan
    if plan.paper_epochs is None:
        raise RequestError(f"the paper does not have the table {name}; leave out --paper.")
    return replace(plan, epochs=plan.paper_epochs, retrained=True)


def figures_of(options: argparse.Namespace, name: str, seed: int) -> Figures:
    """Return the figures of one seed of a table.

    Raises
    ------
    DataError
        If the folder contains fits with other rows or settings.
    """
    plan, rows = chosen(options, name), paper_table(options.data, name)
    described = {**asdict(plan), "sha256": rows.sha256}
    folder = options.out / f"{name}-{plan.epochs}{'-retrained' * plan.retrained}"
    settings = folder / "settings.json"
    if settings.exists() and json.loads(settings.read_text()) != described:
        raise DataError(f"{folder} has fits with other rows or settings; give another --out.")
    write_text(settings, json.dumps(described) + "\n")
    make = functools.partial(measure, split(rows.x, rows.y, seed), plan, seed)
    return kept(folder / f"seed-{seed}.json", make)


def main() -> None:
    """Make the fits whose files do not exist yet, and write the tables."""
    options = options_of(
        __doc__,
        out="last-layers",
        table="last-layers",
        required="data",
        seeds=20,
        tables=PLANS,
        paper=False,
    )
    plans = {name: chosen(options, name) for name in options.tables}
    found: dict[str, list[Figures]] = {name: [] for name in options.tables}
    for name, seed in product(options.tables, range(options.seeds)):
        found[name].append(figures_of(options, name, seed))
        say(name, seed, found[name][-1]["nll"])
        done = {key: value for key, value in found.items() if value}
        whole = {"plans": {key: asdict(plans[key]) for key in done}, "seeds": done}
        write_results(options.table, page(done, {key: plans[key] for key in done}), whole)

r"""Student-t noise compared with Gaussian noise, with some wrong training rows and with none.

    python -m benchmarks accuracy.robust PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4 --models sv-dkl vbll --seeds 2

In the second half of the fits, 5 % of the training and validation speeds are multiplied or divided
by 30; test rows are not changed. Each fit has its own file under --out, and the same command
continues where it stopped; the tables are made from these files.
"""

import argparse
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pandas as pd
import torch

import geogp
from benchmarks.markdown import percent, table
from benchmarks.region_trial import fitted, prepare, split
from benchmarks.script import Figures, command_given, kept, parser, write_results
from geogp.evaluation.metrics import score
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.options import NOISES
from geogp.models.papers.student_noise import StudentGP

ABLE = [name for name, row in CATALOGUE.items() if row.student is not None]
SHARE, FACTOR = 0.05, 30.0
SCORES = ("nll", "crps", "coverage_50", "coverage_80", "coverage_95")

HEADER = (
    *("model", "noise", "seeds", "log score", "CRPS", "50 % holds", "80 % holds", "95 % holds"),
    *("df", "fit (s)"),
)


def contaminated(
    y: np.ndarray, open_rows: np.ndarray, *, share: float, factor: float, seed: int
) -> np.ndarray:
    """Return log10 speeds with a share of the open rows multiplied or divided by a factor.

    `open_rows` (n,) marks the rows that may change; the given share of these rows changes.
    """
    random = np.random.default_rng([seed, 30])
    rows = np.flatnonzero(open_rows)
    chosen = random.choice(rows, round(share * len(rows)), replace=False)
    wrong = y.copy()
    wrong[chosen] += random.choice([-1.0, 1.0], len(chosen)) * np.log10(factor)
    return wrong


def measure(
    options: argparse.Namespace, share: float, model: str, noise: str, seed: int
) -> Figures:
    """Fit a model with a share of wrong rows and return its figures on clean test rows."""
    asked = {"epochs": options.epochs, "device": options.device, "preset": "quick", "seed": seed}
    trial = prepare(options, options.out / "unfinished", model=model, noise=noise, **asked)
    trial = replace(trial, model=trial.model.with_rank(options.rank or trial.model.preset.r))
    seen, rows = trial.inputs.observations, split(trial)
    y = contaminated(seen.y, ~rows["test"], share=share, factor=FACTOR, seed=seed)
    ingested = replace(trial.inputs.ingested, observations=replace(seen, y=y))
    trial = replace(trial, inputs=replace(trial.inputs, ingested=ingested))
    estimator, _ = fitted(trial, rows)
    prediction = estimator.predict_distribution(trial.inputs.table[rows["test"]])
    network = estimator.network_
    found = {
        "region": trial.inputs.region.code,
        "target": "download",
        "model": model,
        "noise": noise,
        "share": share,
        "factor": FACTOR,
        "seed": seed,
        "n": {name: int(chosen.sum()) for name, chosen in rows.items()},
        "settings": {
            "h": trial.model.preset.h,
            "r": trial.model.preset.r,
            "epochs": trial.model.epochs,
        },
        "scores": asdict(score(prediction, seen.y[rows["test"]])),
        "noise_sd": float(np.sqrt(prediction.noise_variance[0])),
        "df": float(network.noise.df.detach()) if isinstance(network, StudentGP) else None,
        "seconds": estimator.history_.seconds,
        "versions": {"geogp": geogp.__version__, "torch": torch.__version__},
        "device": str(trial.model.device),
        "threads": torch.get_num_threads(),
    }
    shown = {name: round(found["scores"][name], 4) for name in SCORES}
    print(model, noise, share, seed, shown, f"{found['seconds']:.0f} s", flush=True)
    return found


def lines_of(fits: Iterable[Figures]) -> list[Figures]:
    """Return one line for each share, model and noise: means over the seeds."""
    keys = ("share", "model", "noise")
    rows = [
        {**{key: one[key] for key in (*keys, "df", "seconds")}, **one["scores"]} for one in fits
    ]
    groups = pd.DataFrame(rows).astype({"df": float}).groupby(list(keys), sort=False)
    found: list[Figures] = (
        groups.mean().assign(seeds=groups.size()).reset_index().to_dict("records")
    )
    return found


def page(fits: list[Figures], made_by: str) -> str:
    """Return the tables with a description of the fits."""
    first, lines = fits[0], lines_of(fits)
    n, sizes = first["n"], first["settings"]
    head = (
        f"# {first['region']}, {first['target']}: Student-t noise against Gaussian noise\n\n"
        f"`{made_by}`\n\n"
        f"geogp {first['versions']['geogp']}, torch {first['versions']['torch']}, device "
        f"{first['device']}, {first['threads']} threads; random split, {n['train']} training, "
        f"{n['validation']} validation, {n['test']} test rows; h {sizes['h']}, r {sizes['r']}, "
        f"{sizes['epochs']} epochs. Means over the seeds, on test rows as measured, in log10 "
        "units; a lower score is better. `df`: the degrees of freedom that were learned.\n"
    )
    parts = [head]
    for share in dict.fromkeys(line["share"] for line in lines):
        title = "All rows as measured"
        if share:
            title = f"{100 * share:g} % of the training and validation rows times or over "
            title += f"{first['factor']:g}"
        cells = [
            (
                f"`{line['model']}`",
                *(line["noise"], line["seeds"], f"{line['nll']:.4f}", f"{line['crps']:.4f}"),
                *(percent(line[f"coverage_{level}"]) for level in (50, 80, 95)),
                "" if np.isnan(line["df"]) else f"{line['df']:.2f}",
                f"{line['seconds']:.0f}",
            )
            for line in lines
            if line["share"] == share
        ]
        parts.append(f"\n## {title}\n\n" + table(HEADER, cells, left=(0, 1)))
    return "".join(parts)


def main() -> None:
    """Make the fits whose files do not exist yet, and write the tables."""
    asked = parser(
        __doc__,
        out="robust",
        table="robust",
        region=True,
        seeds=2,
        epochs=int,
        rank=int,
        device="auto",
    )
    asked.add_argument("--models", nargs="+", default=["sv-dkl", "vbll"], choices=ABLE)
    options = asked.parse_args()
    # Fits with other data or settings have other files.
    read = hashlib.sha256(f"{options.source} {options.boundaries}".encode()).hexdigest()[:8]
    sizes = f"{options.epochs}-{options.rank}-{options.device}"
    place = f"{options.region}-{options.quarters}-{sizes}-{read}"
    fits = [
        kept(
            options.out / place / f"{model}-{noise}-{share:g}-{seed}.json",
            functools.partial(measure, options, share, model, noise, seed),
        )
        for share, model, noise, seed in product(
            (0.0, SHARE), options.models, NOISES, range(options.seeds)
        )
    ]
    write_results(options.table, page(fits, command_given()), fits, options.region)

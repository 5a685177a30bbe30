"""The regression protocol of Zhu, Yuchi and Xie (DBK, section 4.2) on any table of numbers.

    python -m benchmarks kernels.uci --data pol.parquet --model dbk-rbf --seeds 3 --json

The seed determines the split of rows, 8:1:1, and the initial model. Inputs are scaled to [-1, 1]
and targets standardised by the training rows; figures are on the standardised scale. Each fit has
its own file under --out, and the same command continues where it stopped.

With --recipe paper, the training is that of the paper (appendix B): one split for all seeds, inputs
scaled by all rows, AdamW at a constant rate, no clipping and no average. There, --weights auto fits
every pair of weights once, with split 0, seed 0 and all epochs (or --search-epochs), and --splits
repeats all seeds on other splits, with the same weights.
"""

import argparse
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

import geogp
from benchmarks.kernels.heavier_tails import student_tails, with_student_tails
from benchmarks.number_tables import Table
from benchmarks.peers.sparse_gps import PEERS, fit_peer, predict_peer
from benchmarks.script import Figures, kept, parser, say
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.evaluation.metrics import score
from geogp.files import write_text
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.tuning import TUNING_EPOCHS, choose_weights
from geogp.models.names import find_model
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

SCORES = ("mae", "rmse", "nll", "crps")

SETTINGS_FILE = "settings.json"

SETTINGS = ("model", "recipe", "h", "r", "batch", "epochs", "weights", "device")
"""Options that identify figures."""

RECIPES: dict[str, Figures] = {
    "own": {
        "learning_rate": 2e-3,
        "head_rate": 10.0,
        "noise_rate": 2.0,
        "clip": 1.0,
        "average": 10.0,
        "decay": "cosine",
    },
    "paper": {
        "learning_rate": 1e-3,
        "head_rate": 1.0,
        "noise_rate": 1.0,
        "clip": None,
        "average": 0.0,
        "decay": "constant",
    },
}
"""Settings of the training, by the name of the recipe."""

SHARED_SPLIT = 0
"""The seed of the split in the paper's recipe, if no others are given; it chooses the weights."""

PLACEMENT = "uniform"

WORST = 5
"""Number of rows with the worst log scores whose share is measured."""

FAR = 6.0
"""Rows whose error exceeds this number of standard deviations are counted."""

Predict = Callable[[Data], Prediction]


class Benchmark:
    """One model on one table."""

    def __init__(self, table: Table, options: argparse.Namespace) -> None:
        self.table, self.options = table, options
        self.shares_split = options.recipe == "paper"
        self.fitting = RECIPES[options.recipe] | (
            {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
        )
        self.settings = {
            **{name: getattr(options, name) for name in SETTINGS},
            **self.fitting,
            "split": SHARED_SPLIT if self.shares_split else "seed",
            "placement": PLACEMENT,
            "table": table.sha256,
            "versions": {"geogp": geogp.__version__, "torch": torch.__version__},
        }
        if options.search_epochs is not None:
            self.settings["search_epochs"] = options.search_epochs
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        self.folder = options.out / table.name / f"{options.model}-{digest[:10]}"

    def run(self) -> Figures:
        """Return the figures of all seeds; fit those whose files do not exist yet."""
        weights = self.weights()
        described = {**self.settings, "used_weights": asdict(weights)}
        write_text(self.folder / SETTINGS_FILE, json.dumps(described, indent=1) + "\n")
        per_seed = []
        for split, seed in self.fits():
            make = functools.partial(self.measure, split, seed, weights)
            other = self.shares_split and split != SHARED_SPLIT
            name = f"{f'split-{split}-' if other else ''}seed-{seed}.json"
            per_seed.append(kept(self.folder / name, make))
            say(f"{self.table.name} {self.options.model} {per_seed[-1]}")
        means = {k: float(np.mean([s[k] for s in per_seed])) for k in (*SCORES, "seconds")}
        return {
            "table": self.table.name,
            "model": self.options.model,
            **means,
            "per_seed": per_seed,
            "weights": asdict(weights),
            "settings": self.settings,
        }

    def fits(self) -> list[tuple[int, int]]:
        """Return split and seed of each fit."""
        seeds = range(self.options.seeds)
        if self.shares_split:
            return [*product(self.options.splits, seeds)]
        return [(seed, seed) for seed in seeds]

    def weights(self) -> Weights:
        """Return alpha and beta, as given, or chosen once on the rows of seed 0."""
        given = self.options.weights
        if given != "auto":
            return _weights(given)
        if self.options.model in PEERS:
            return Weights(alpha=0.0, beta=1.0)
        if not find_model(self.options.model).uses:
            return Weights()
        path = self.folder / "weights.json"
        if not path.exists():
            parts = self.table.split(SHARED_SPLIT)
            epochs = self.options.epochs
            searched = self.options.search_epochs or (
                epochs if self.shares_split else min(TUNING_EPOCHS, epochs)
            )
            trials = choose_weights(
                lambda: self.make(parts["train"], 0),
                parts["train"],
                parts["validation"],
                self.fit_settings(0, Weights(), searched),
                folder=self.folder,
                tell=lambda trial: say(f"{self.table.name} {self.options.model} {trial}"),
            )
            write_text(path, json.dumps([asdict(trial) for trial in trials], indent=1) + "\n")
            for old in self.folder.glob("*.safetensors"):
                old.unlink()
        return Weights(**json.loads(path.read_text())[0]["weights"])

    def measure(self, split: int, seed: int, weights: Weights) -> Figures:
        """Fit with one seed and score the test rows."""
        parts = self.table.split(split)
        predict, seconds, best = self.fitted(parts, split, seed, weights)
        predictions = {name: predict(part) for name, part in parts.items()}
        test, held_out = predictions["test"], predictions["validation"]
        scores = asdict(score(test, parts["test"].y))
        df, factor = student_tails(held_out, parts["validation"].y)
        heavier = score(with_student_tails(test, df, factor), parts["test"].y)
        return {
            "seed": seed,
            "split": split,
            **{name: scores[name] for name in (*SCORES, "coverage_95")},
            "validation_nll": float(held_out.log_score(parts["validation"].y).mean()),
            **_worst(test, parts["test"].y),
            "new": _new(test, parts["train"], parts["test"]),
            "far": {name: _far(found, parts[name].y) for name, found in predictions.items()},
            "student_t": {"df": df, "factor": factor, "nll": heavier.nll, "crps": heavier.crps},
            "seconds": seconds,
            "best_epoch": best,
            "threads": torch.get_num_threads(),
        }

    def fitted(
        self, parts: dict[str, Data], split: int, seed: int, weights: Weights
    ) -> tuple[Predict, float, int | None]:
        """Return a function that predicts rows, the seconds of the fit and the chosen epoch."""
        settings = self.fit_settings(seed, weights, self.options.epochs)
        train, validation = parts["train"], parts["validation"]
        if self.options.model in PEERS:
            low, high = train.x.min(0), train.x.max(0)
            used = high > low

            def scaled(data: Data) -> Data:
                return Data(2 * (data.x - low)[:, used] / (high - low)[used] - 1, data.y)

            start = monotonic()
            model, likelihood = fit_peer(
                self.options.model,
                scaled(train),
                scaled(validation),
                settings,
                r=self.options.r,
                device=self.options.device,
            )
            seconds = monotonic() - start
            return lambda data: predict_peer(model, likelihood, scaled(data).x), seconds, None
        path = self.folder / f"{split}-seed-{seed}.safetensors"
        own = self.make(train, seed)
        _, state = fit(own, train, validation, settings, checkpoint=path)
        path.unlink(missing_ok=True)
        return lambda data: own.predict(data.x), state.seconds, state.best_epoch

    def make(self, train: Data, seed: int) -> Any:
        """Return the untrained model."""
        options = self.options
        columns = self.table.columns
        sizes = Architecture(len(columns), h=options.h, r=options.r, columns=columns)
        made = build(
            options.model,
            sizes,
            self.table.x if self.shares_split else train.x,
            placement=PLACEMENT,
            scaling="minmax",
            seed=seed,
        )
        return made.to(options.device)

    def fit_settings(self, seed: int, weights: Weights, epochs: int) -> FitSettings:
        """Return the training settings."""
        return FitSettings(
            epochs=epochs,
            batch=self.options.batch,
            weights=weights,
            seed=seed,
            **self.fitting,
        )


def _worst(prediction: Prediction, y: np.ndarray) -> Figures:
    """Return what the rows with the worst log scores add to the mean, and the worst row."""
    scores = prediction.log_score(y)
    order = np.argsort(-scores)
    error = y[order[0]] - prediction.mean[order[0]]
    return {
        "nll_of_worst": float(scores[order[:WORST]].sum() / len(y)),
        "nll_without_worst": float(scores[order[WORST:]].mean()),
        "worst_error": float(error),
        "worst_error_in_sd": float(error / prediction.sd[order[0]]),
    }


def _new(prediction: Prediction, train: Data, test: Data) -> Figures:
    """Return share and mean scores of the test rows whose features are in no training row."""
    known = {tuple(row) for row in train.x}
    new = np.array([tuple(row) not in known for row in test.x])
    errors = np.abs(test.y - prediction.mean)[new]
    scores = prediction.log_score(test.y)[new]
    found: Figures = {"share": float(new.mean())}
    if new.any():
        found |= {"mae": float(errors.mean()), "nll": float(scores.mean())}
    return found


def _far(prediction: Prediction, y: np.ndarray) -> int:
    """Return the number of rows further than `FAR` standard deviations from their prediction."""
    return int((np.abs(y - prediction.mean) > FAR * prediction.sd).sum())


def _weights(given: str) -> Weights:
    try:
        alpha, beta = (float(value) for value in given.split(","))
    except ValueError:
        raise RequestError(
            f"expected --weights auto or two numbers with a comma, found {given!r}."
        ) from None
    return Weights(alpha, beta)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    asked = parser(
        __doc__,
        out="uci",
        devices=True,
        seeds=3,
        epochs=400,
        batch=1024,
        h=64,
        r=128,
        learning_rate=float,
        search_epochs=int,
    )
    asked.add_argument(
        "--splits", type=int, nargs="+", default=[SHARED_SPLIT], help="seeds of the shared splits"
    )
    asked.add_argument("--recipe", choices=[*RECIPES], default="own", help="settings of training")
    asked.add_argument("--data", type=Path, required=True, help="table with columns x0.., y")
    asked.add_argument("--model", required=True, choices=[*CATALOGUE, *PEERS])
    asked.add_argument("--json", action="store_true", help="print one JSON object")
    asked.add_argument("--weights", default="0.01,0.01", help="ALPHA,BETA, or auto to search")
    return asked


def main() -> None:
    """Run the benchmark and print its figures."""
    options = make_parser().parse_args()
    if options.seeds < 1:
        raise RequestError(f"expected 1 seed or more, found {options.seeds}.")
    if options.recipe == "own" and options.splits != [SHARED_SPLIT]:
        raise RequestError("expected no --splits, because in --recipe own the seed is the split.")
    found = Benchmark(Table(options.data), options).run()
    if options.json:
        print(json.dumps(found))
    else:
        print(" ".join(f"{k} {found[k]:.4f}" for k in (*SCORES, "seconds")))

"""Fits of `exact_tables.py`: the data of figure 3, the models, and how each is trained."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.kernels.one_dimension_fits import true_mean
from benchmarks.number_tables import Table
from benchmarks.script import Figures, Floats, clock, costs, machine
from geogp.distributions.prediction import Prediction
from geogp.evaluation.metrics import score
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import FitState, fit
from geogp.models.joint.law import effective_rank
from geogp.models.numerics.threads import seeded
from geogp.models.options import Decay
from geogp.models.papers.deep_basis.exact_gp import MOST_ROWS, ExactGP, ExactSettings, fit_exact
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis, Features
from geogp.models.process.data import Data
from geogp.models.process.diagonals import Diagonal
from geogp.models.process.lowrank import LowRankProcess

WAVE, NOISE_SD, TEST_ROWS = 0.01, 0.1, 1000
"""Data of figure 3: amplitude of the fast wave, standard deviation of the noise, test points."""

SHARES = (0.7, 0.1)
"""Shares of training and validation rows in table 1."""

FIGURE = "figure 3"

WIDTH, RANK = 64, 128
"""Width of the networks, and number of basis functions or inducing points."""

SCORES = ("mae", "rmse", "nll", "coverage_95")


@dataclass(frozen=True)
class Training:
    """Settings of AdamW, and the start of the noise variance.

    `batch` is None for steps over all rows. The variance is on the scale of the standardised
    target. `tanh` is whether the basis is a `TanhBasis`.
    """

    learning_rate: float = 5e-3
    head_rate: float = 1.0
    noise_rate: float = 1.0
    noise_start: float = 0.01
    batch: int | None = None
    decay: Decay = "cosine"
    tanh: bool = False


TRAININGS = {
    "slow": Training(),
    "fast": Training(head_rate=10.0, noise_rate=10.0),
    "free noise": Training(noise_rate=10.0),
    "large noise": Training(noise_rate=10.0, noise_start=1.0),
    "batches": Training(2e-3, 10.0, 2.0, batch=256),
    "paper": Training(1e-3, decay="constant", tanh=True),
}
"""Settings of the training by their names on the page."""


@dataclass(frozen=True)
class Kind:
    """A model of DBK-1: its row in the catalogue ("" if exact), rank and usual training."""

    row: str
    r: int = RANK
    training: str = "large noise"


MODELS = {
    "GP": Kind("", training=""),
    "sGP": Kind("sgp", training="fast"),
    "DKL": Kind("", training=""),
    "sDKL": Kind("sdkl", training="fast"),
    "DBK": Kind("dbk-exact"),
    "DBK-c": Kind("dbk-mml"),
    "DBK-r": Kind("dbk-exact", 1),
    "DBK-cr": Kind("dbk-mml", 1),
    "SVGP": Kind("sv-rbf", training="batches"),
    "SVDKL": Kind("sv-dkl", training="batches"),
    "SVDBK": Kind("sv-dbk", training="batches"),
    "SVDBK-c": Kind("vbll", training="batches"),
    "SVDBK-r": Kind("sv-dbk", 1, "batches"),
    "SVDBK-cr": Kind("vbll", 1, "batches"),
}
"""Models by their names in the paper, in its order."""

EXACT = tuple(name for name, kind in MODELS.items() if not kind.row)
"""Models without a low rank."""


@dataclass(frozen=True)
class Case:
    """One fit: the table or `FIGURE`, a model, its training rows and how it is trained.

    `steps` are gradient steps; a fit by batches takes the next whole number of epochs.
    """

    table: str
    model: str
    n: int
    seed: int
    steps: int
    likelihood_rows: int
    training: str

    @classmethod
    def of(cls, found: Figures) -> "Case":
        """Return the case of the figures of `measure`."""
        return cls(**{field.name: found[field.name] for field in fields(cls)})

    @property
    def per_epoch(self) -> int:
        """Gradient steps of an epoch of a low-rank model."""
        batch = TRAININGS[self.training].batch
        return 1 if batch is None else math.ceil(self.n / batch)

    @property
    def refused(self) -> bool:
        """Whether the model is exact, and does not take so many rows."""
        return self.model in EXACT and self.n > MOST_ROWS

    @property
    def name(self) -> str:
        """Name of the result's file."""
        return "-".join(str(part).replace(" ", "-") for part in asdict(self).values()) + ".json"

    def settings(self) -> FitSettings:
        """Return the settings of a low-rank model."""
        how = TRAININGS[self.training]
        return FitSettings(
            epochs=math.ceil(self.steps / self.per_epoch),
            batch=how.batch or self.n,
            learning_rate=how.learning_rate,
            head_rate=how.head_rate,
            noise_rate=how.noise_rate,
            decay=how.decay,
            weight_decay=1e-4,
            seed=self.seed,
        )


class TanhBasis(Basis):
    """The network of DBK-1 for figure 3: two tanh layers of width 128, and a linear layer to r."""

    def __init__(self, d: int, r: int) -> None:
        super().__init__()
        self.rank = r
        self.backbone = nn.Sequential(
            *(nn.Linear(d, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, r))
        )

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the residual is 0."""
        return Features.exact(self.backbone(x))


def step_mean(x: Floats) -> Floats:
    """Return the mean of figure 3 at x (n,): three steps and a fast wave (DBK-1, section 4.1)."""
    return true_mean(x) + WAVE * np.sin(50 * np.sin(10 * x))


def draw(n: int, seed: int) -> dict[str, Data]:
    """Return n training rows of figure 3, and validation and test rows."""
    random = np.random.default_rng([seed, n])

    def rows(count: int) -> Data:
        x = random.uniform(-1, 1, count)
        return Data(x[:, None], step_mean(x) + NOISE_SD * random.standard_normal(count))

    return {"train": rows(n), "validation": rows(max(20, n // 7)), "test": rows(TEST_ROWS)}


Rows = Callable[[int], dict[str, Data]]
"""A function from a seed to training, validation and test rows."""

Source = tuple[int, str, Rows]
"""Number of training rows, name, and rows."""


def sources(sizes: Sequence[int], paths: Sequence[Path]) -> list[Source]:
    """Return figure 3 at sizes above 0, and tables of numbers; those with few rows first."""
    found: list[Source] = [(n, FIGURE, functools.partial(draw, n)) for n in sizes if n]
    for path in paths:
        held = Table(path)
        n = int(SHARES[0] * len(held.y))
        found.append((n, held.name, functools.partial(held.split, shares=SHARES)))
    return sorted(found, key=lambda source: source[0])


def measure(case: Case, rows: Rows, device: str = "cpu") -> Figures:
    """Fit a case and score the test rows."""
    parts, started = rows(case.seed), clock(device)
    make = _exact if case.model in EXACT else _low_rank
    found = make(case, parts, device)
    about = ", ".join(f"{k} {v}" for k, v in machine(device).items() if k != "device")
    return {**asdict(case), **found, **costs(device, started), "about": about}


def _scores(predicted: Prediction, y: Floats) -> Figures:
    found = asdict(score(predicted, y))
    return {name: found[name] for name in SCORES}


def _exact(case: Case, parts: dict[str, Data], device: str) -> Figures:
    train, validation, test = (parts[name] for name in ("train", "validation", "test"))
    h = None if case.model == "GP" else WIDTH
    exact = ExactGP(train.x.shape[1], h=h, seed=case.seed).to(device)
    how = ExactSettings(
        case.steps, likelihood_rows=min(case.likelihood_rows, case.n), seed=case.seed
    )
    best = fit_exact(exact, train, how, validation).best_step
    return {**_scores(exact.predict(test.x), test.y), "best_step": best}


def _low_rank(case: Case, parts: dict[str, Data], device: str) -> Figures:
    train, validation, test = (parts[name] for name in ("train", "validation", "test"))
    kind, settings = MODELS[case.model], case.settings()
    sizes = Architecture(train.x.shape[1], h=WIDTH, r=min(kind.r, case.n))
    how, seed = TRAININGS[case.training], case.seed
    start = how.noise_start
    untrained = build(kind.row, sizes, train.x, scaling="minmax", seed=seed, noise_start=start)
    model: Any = untrained.to(device)
    if how.tanh:
        with seeded(seed):
            model.basis = TanhBasis(sizes.d, sizes.r).to(device)
    last: Figures = {}

    def at_the_end(state: FitState, epochs: int) -> None:
        if state.epoch == epochs:
            last.update(described(case, model, train, test))

    state = fit(model, train, validation, settings, progress=at_the_end)[1]
    steps = {"best_step": state.best_epoch * case.per_epoch, "validation_nll": state.best_nll}
    return {**described(case, model, train, test), **steps, "last": last}


def described(case: Case, model: LowRankProcess, train: Data, test: Data) -> Figures:
    """Return the scores of the test rows, and what the kernel of a deep basis has become.

    `noise_variance`, `largest` and `added` are in the square of the target's unit: the noise
    variance, and max k(x, x) and the mean of c(x, x) over the training rows (DBK-1, section 3.3).
    `trace` is tr(C) / (2 n noise variance), in nats per row. `nll_without_c` is the NLL without
    c(x, x) in the predictive variance.
    """
    found = _scores(model.predict(test.x), test.y)
    if "DBK" not in case.model:
        return found
    noise = float(model.noise().detach() * model.y_sd.square())
    norm = np.square(model.features(train.x)).sum(1)
    added = float(norm.max() - norm.mean())
    corrected, model.diagonal = model.diagonal, Diagonal()
    bare = _scores(model.predict(test.x), test.y)["nll"]
    model.diagonal = corrected
    return {
        **found,
        "nll_without_c": bare,
        "effective_rank": effective_rank(model, train.x),
        "noise_variance": noise,
        "largest": float(norm.max()),
        "added": added,
        "trace": added / (2 * noise),
    }

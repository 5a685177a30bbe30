"""Data of the scripts `one_dimension*.py`, and fits of the catalogue's models."""

import copy
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from benchmarks.script import Figures, Floats, clock, costs, fits_on, kept, say, times_of
from geogp.models.catalogue.build import build, find_spec
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import WholeData
from geogp.models.joint.law import effective_rank
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows

ROWS, VALIDATION_ROWS, FRESH_ROWS = 100_000, 1_000, 100_000

GRID = np.linspace(-1, 1, 4001)
"""Points at which the effective rank is measured."""

Z90 = 1.6448536269514722


def true_mean(x: Floats) -> Floats:
    """Return the mean of y at x: 0.3, 0.9, -0.6 and 0 between three sharp steps."""
    s1, s2, s3 = expit(200 * (x + 0.6)), expit(200 * x), expit(200 * (x - 0.4))
    return np.asarray(0.3 * (1 - s1) + 0.9 * (s1 - s2) - 0.6 * (s2 - s3), np.float64)


def true_sd(x: Floats) -> Floats:
    """Return the standard deviation of y at x, |0.4 sin 10x|."""
    return np.abs(0.4 * np.sin(10 * x))


def draw(n: int, seed: int) -> Data:
    """Draw n rows of the example."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, n)
    return Data(x[:, None], true_mean(x) + true_sd(x) * random.standard_normal(n))


def oracle_nll(data: Data) -> float:
    """Return the mean negative log density of the rows under the generating density."""
    x = data.x[:, 0]
    sd = true_sd(x)
    z = (data.y - true_mean(x)) / sd
    return float(np.mean(0.5 * z**2 + np.log(sd) + 0.5 * math.log(2 * math.pi)))


@dataclass(frozen=True)
class Case:
    """One fit: a model, its sizes and how it is trained.

    `steps` is the number of gradient steps for any n; with 0 steps the untrained model is only
    timed. `average` and `patience` are numbers of steps too.
    """

    model: str
    n: int
    r: int
    h: int = 64
    seed: int = 0
    steps: int = 18_000
    batch: int = 200
    learning_rate: float = 3e-3
    head_rate: float = 10.0
    average: int = 500
    patience: int = 4000
    alpha: float = 0.01
    beta: float = 0.01
    clip: float = 1.0

    @classmethod
    def of(cls, model: str, n: int, r: int, **other: Any) -> "Case":
        """Return a case with the default settings of its model, except for those given."""
        usual: dict[str, Any] = {}
        if cls(model, n, r).whole:
            usual = {"steps": 400, "learning_rate": 5e-3, "average": 0, "patience": 0}
        return cls(model, n, r, **usual | other)

    @property
    def name(self) -> str:
        """Name of the result's file, without its suffix."""
        text = json.dumps(asdict(self), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.model}-n{self.n}-r{self.r}-{digest}"

    @property
    def whole(self) -> bool:
        """Whether a step uses all rows."""
        return issubclass(find_spec(self.model).fit.func, WholeData)

    def settings(self) -> FitSettings:
        """Return the training settings, with steps converted to epochs."""
        per_epoch = 1 if self.whole else math.ceil(self.n / self.batch)
        return FitSettings(
            epochs=max(1, math.ceil(self.steps / per_epoch)),
            batch=self.batch,
            learning_rate=self.learning_rate,
            head_rate=self.head_rate,
            clip=self.clip,
            average=self.average / per_epoch,
            weights=Weights(self.alpha, self.beta),
            patience=math.ceil(self.patience / per_epoch) if self.patience else None,
            seed=self.seed,
        )


def step_of(model: LowRankProcess, train: Data, case: Case) -> Callable[[], object]:
    """Return a function that takes one gradient step on a copy."""
    twin = copy.deepcopy(model)
    steps = twin.make_fit(twin)
    rows = slice(0, steps.batch_rows(case.batch, case.n))
    y = (torch.from_numpy(train.y[rows]) - train.y.mean()) / train.y.std()
    x, y = twin.scaled(train.x[rows]), y.to(twin.device, twin.architecture.torch_dtype)
    optimiser = torch.optim.AdamW(twin.parameters(), lr=1e-6, fused=True)
    weights = Weights(case.alpha, case.beta)

    def take() -> None:
        optimiser.zero_grad(set_to_none=True)
        with deferred_checks():  # as in a fit
            steps.backward(Rows(x, y, y.new_ones(len(y), 2)), case.n, weights)
        optimiser.step()

    return take


class Benchmark:
    """The data, and the results of cases on a device."""

    def __init__(self, out: Path, device: str = "cpu") -> None:
        self.out, self.device = fits_on(device, out), device
        self.rows = draw(ROWS, 1)
        self.validation = draw(VALIDATION_ROWS, 2)
        self.fresh = draw(FRESH_ROWS, 3)
        self.oracle = oracle_nll(self.fresh)

    def path(self, case: Case) -> Path:
        """Return the path of the figures of a case."""
        return self.out / f"{case.name}.json"

    def result(self, case: Case) -> Figures:
        """Return the figures of a case, which is fitted if its file does not exist yet."""
        found = kept(self.path(case), lambda: self.measure(case))
        text = f"{case.model} n {case.n} r {case.r}:"
        for name in ("gap", "coverage_90", "mae", "step_seconds"):
            text += f" {name} {found[name]:.4g}" if name in found else ""
        say(f"{text}, fit {found[f'fit_{times_of(found).key}']:.0f} s")
        return found

    def train(self, n: int) -> Data:
        """Return the first n training rows."""
        return Data(self.rows.x[:n], self.rows.y[:n])

    def fitted(self, case: Case) -> tuple[LowRankProcess, int | None]:
        """Return the model of a case and its best epoch, None if it is not trained."""
        train = self.train(case.n)
        sizes = Architecture(1, h=case.h, r=case.r)
        model = build(case.model, sizes, train.x, seed=case.seed).to(self.device)
        if not case.steps:
            return model, None
        return model, fit(model, train, self.validation, case.settings())[1].best_epoch

    def measure(self, case: Case) -> Figures:
        """Fit and score a case."""
        started, worked = monotonic(), clock(self.device)
        model, epoch = self.fitted(case)
        took = {"fit_seconds": monotonic() - started, **costs(self.device, worked, "fit_")}
        repeats = 3 if case.whole and case.n >= 2000 else 20
        step = step_of(model, self.train(case.n), case)
        timing = {
            "step_seconds": self.quickest(step, repeats),
            "prediction_seconds": self.quickest(lambda: model.predict(self.validation.x), 5),
        }
        scores = self.score(model) | {"best_epoch": epoch} if case.steps else {}
        return {"case": asdict(case), **scores, **timing, **took, "oracle_nll": self.oracle}

    def score(self, model: LowRankProcess) -> Figures:
        """Return the figures on the new points."""
        x, y = self.fresh.x, self.fresh.y
        prediction = model.predict(x)
        nll = float(prediction.log_score(y).mean())
        valid = self.validation
        valid_nll = float(model.predict(valid.x).log_score(valid.y).mean())
        return {
            "mae": float(np.abs(prediction.mean - true_mean(x[:, 0])).mean()),
            "nll": nll,
            "gap": nll - self.oracle,
            "validation_gap": valid_nll - oracle_nll(valid),
            "coverage_90": float(np.mean(np.abs(y - prediction.mean) <= Z90 * prediction.sd)),
            "effective_rank": effective_rank(model, GRID[:, None]),
            "noise_variance": float(model.noise().detach() * model.y_sd.square()),
        }

    def quickest(self, action: Callable[[], object], repeats: int) -> float:
        """Return the least seconds of some runs by `clock`, after one run to warm up."""
        action()
        found = []
        for _ in range(repeats):
            started = clock(self.device)
            action()
            found.append(clock(self.device) - started)
        return min(found)

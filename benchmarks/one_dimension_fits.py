"""Data of `one_dimension.py`, and fits of the catalogue's models and of GPyTorch's."""

import copy
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from scipy.special import expit
from trial import Figures, Floats, kept, say

from geogp.distributions.prediction import Prediction
from geogp.models.bases.basis_functions import Backbone
from geogp.models.catalogue.build_model import build, find_spec
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP, Rows
from geogp.models.core.options import Weights
from geogp.models.joint.joint_law import effective_rank
from geogp.models.training.schedule import FitSettings
from geogp.models.training.steps import WholeData
from geogp.models.training.training_data import Data
from geogp.models.training.training_loop import fit

ROWS, VALIDATION_ROWS, FRESH_ROWS = 100_000, 1_000, 100_000

GRID = np.linspace(-1, 1, 4001)
"""Points at which a peer predicts before interpolation to the new points."""

KERNEL_GRID = np.linspace(-1, 1, 241)
"""Points at which the rank of a peer's kernel is measured."""

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


PEERS = ("exact-rbf", "exact-dkl")
"""Exact processes of GPyTorch, under an RBF on inputs, and on the features of a network."""


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
        if model in PEERS:
            usual |= {"steps": 200, "learning_rate": 1e-2, "head_rate": 5.0}
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
        return self.model in PEERS or isinstance(find_spec(self.model).step, WholeData)

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


@dataclass(frozen=True)
class Fitted:
    """The parts of a fitted model that are scored."""

    predict: Callable[[Floats], Prediction]
    step: Callable[[], object]
    rank: float
    epoch: int | None
    noise: float


class ExactGP(gpytorch.models.ExactGP):
    """GPyTorch's exact regression under an RBF, on the inputs or on a network's features."""

    def __init__(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        likelihood: gpytorch.likelihoods.GaussianLikelihood,
        network: torch.nn.Module | None,
    ) -> None:
        super().__init__(x, y, likelihood)
        self.network = network
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        """Return the prior at inputs (n, d)."""
        mapped = x if self.network is None else self.network(x)
        return MultivariateNormal(self.mean_module(x), self.covar_module(mapped))


class ExactPeer:
    """An exact Gaussian process of GPyTorch, fitted by its marginal likelihood with Cholesky."""

    def __init__(self, case: Case, train: Data) -> None:
        torch.manual_seed(case.seed)
        self.centre, self.spread = float(train.y.mean()), float(train.y.std())
        x = torch.from_numpy(train.x).float()
        y = torch.from_numpy((train.y - self.centre) / self.spread).float()
        network = Backbone(1, case.h) if case.model == "exact-dkl" else None
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.model = ExactGP(x, y, self.likelihood, network)
        if network is not None:
            # The features have unit scale in each of h columns.
            self.model.covar_module.base_kernel.lengthscale = math.sqrt(case.h)
        self.objective = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        own = [] if network is None else list(network.parameters())
        held = {id(value) for value in own}
        others = [p for p in self.model.parameters() if id(p) not in held]
        groups = [
            {"params": others, "lr": case.learning_rate * case.head_rate},
            {"params": own, "lr": case.learning_rate},
        ]
        self.optimiser = torch.optim.Adam([g for g in groups if g["params"]])
        self.rates = [group["lr"] for group in self.optimiser.param_groups]

    def step(self, share: float = 1.0) -> None:
        """Take one full-batch gradient step; `share` of all steps are done."""
        self.model.train()
        self.likelihood.train()
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * share))
        with gpytorch.settings.max_cholesky_size(10**6):
            self.optimiser.zero_grad()
            loss = -self.objective(self.model(*self.model.train_inputs), self.model.train_targets)
            loss.backward()
            self.optimiser.step()

    def predict(self, x: Floats) -> Prediction:
        """Predict at inputs (n, 1) in chunks."""
        self.model.eval()
        self.likelihood.eval()
        parts = []
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**6):
            for rows in torch.from_numpy(x).float().split(1000):
                found = self.model(rows)
                parts.append((found.mean.double(), found.variance.double()))
        mean, variance = (torch.cat(p).numpy() for p in zip(*parts, strict=True))
        scale = self.spread**2
        noise = np.full_like(mean, float(self.likelihood.noise.detach()) * scale)
        return Prediction(self.centre + self.spread * mean, np.maximum(variance, 0) * scale, noise)

    def kernel(self, x: Floats) -> Floats:
        """Return the prior covariance, (n, n)."""
        rows = torch.from_numpy(x).float()
        with torch.no_grad():
            mapped = rows if self.model.network is None else self.model.network(rows)
            found = self.model.covar_module(mapped).to_dense().double()
        return np.asarray(found.numpy() * self.spread**2)


def fit_own(case: Case, train: Data, validation: Data) -> Fitted:
    """Fit a model of the catalogue."""
    model = build(case.model, Architecture(1, h=case.h, r=case.r), train.x, seed=case.seed)
    epoch = None
    if case.steps:
        epoch = fit(model, train, validation, case.settings()).best_epoch
    return Fitted(
        model.predict,
        _own_step(model, train, case),
        effective_rank(model, GRID[:, None]),
        epoch,
        float(model.noise().detach() * model.y_sd.square()),
    )


def _own_step(model: LowRankGP, train: Data, case: Case) -> Callable[[], object]:
    """Return a function that takes one gradient step on a copy."""
    twin = copy.deepcopy(model)
    step = find_spec(case.model).step
    rows = slice(0, step.rows(case.batch, case.n))
    y = (torch.from_numpy(train.y[rows]) - train.y.mean()) / train.y.std()
    x, y = twin.scaled(train.x[rows]), y.to(twin.architecture.torch_dtype)
    optimiser = torch.optim.AdamW(twin.parameters(), lr=1e-6, fused=True)
    weights = Weights(case.alpha, case.beta)

    def take() -> None:
        optimiser.zero_grad(set_to_none=True)
        step.backward(twin, Rows(x, y, y.new_ones(len(y), 2)), case.n, weights)
        optimiser.step()

    return take


def fit_peer(case: Case, train: Data, _validation: Data) -> Fitted:
    """Fit a peer; predictions at many points are interpolated from `GRID`, which is fine enough."""
    peer = ExactPeer(case, train)
    for step in range(case.steps):
        peer.step(step / case.steps)

    def predict(x: Floats) -> Prediction:
        if len(x) <= len(GRID):
            return peer.predict(x)
        found = peer.predict(GRID[:, None])
        parts = (found.mean, found.function_variance, found.noise_variance)
        return Prediction(*(np.interp(x[:, 0], GRID, part) for part in parts))

    share = np.linalg.eigvalsh(peer.kernel(KERNEL_GRID[:, None])).clip(min=0)
    share = share[share > 0] / share.sum()
    rank = float(np.exp(-np.sum(share * np.log(share))))
    noise = float(peer.likelihood.noise.detach()) * peer.spread**2
    return Fitted(predict, peer.step, rank, case.steps or None, noise)


class Benchmark:
    """The data, and the results of cases."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows = draw(ROWS, 1)
        self.validation = draw(VALIDATION_ROWS, 2)
        self.fresh = draw(FRESH_ROWS, 3)
        self.oracle = oracle_nll(self.fresh)

    def result(self, case: Case) -> Figures:
        """Return the figures of a case, which is fitted if its file does not exist yet."""
        found = kept(self.out / f"{case.name}.json", lambda: self.measure(case))
        text = f"{case.model} n {case.n} r {case.r}:"
        for name in ("gap", "coverage_90", "mae", "step_seconds"):
            text += f" {name} {found[name]:.4g}" if name in found else ""
        say(f"{text}, fit {found['fit_cpu_seconds']:.0f} s")
        return found

    def measure(self, case: Case) -> Figures:
        """Fit and score a case."""
        train = Data(self.rows.x[: case.n], self.rows.y[: case.n])
        started, worked = monotonic(), process_time()
        fitter = fit_peer if case.model in PEERS else fit_own
        model = fitter(case, train, self.validation)
        took = {"fit_seconds": monotonic() - started, "fit_cpu_seconds": process_time() - worked}
        repeats = 3 if case.whole and case.n >= 2000 else 20
        timing = {
            "step_seconds": _quickest(model.step, repeats),
            "prediction_seconds": _quickest(lambda: model.predict(self.validation.x), 5),
        }
        scores = self.score(model) if case.steps else {}
        return {"case": asdict(case), **scores, **timing, **took, "oracle_nll": self.oracle}

    def score(self, model: Fitted) -> Figures:
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
            "effective_rank": model.rank,
            "noise_variance": model.noise,
            "best_epoch": model.epoch,
        }


def _quickest(action: Callable[[], object], repeats: int) -> float:
    """Return the least processor seconds of some runs, after one run to warm up."""
    action()
    found = []
    for _ in range(repeats):
        started = process_time()
        action()
        found.append(process_time() - started)
    return min(found)

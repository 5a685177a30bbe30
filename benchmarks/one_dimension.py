"""The example in one dimension of Zhu, Yuchi and Xie (DBK, section 4.1), judged by its oracle.

    python benchmarks/one_dimension.py target --json
    python benchmarks/one_dimension.py scaling
    python benchmarks/one_dimension.py models
    python benchmarks/one_dimension.py rank --n 20000
    python benchmarks/one_dimension.py figures
    python benchmarks/one_dimension.py table

x ~ U[-1, 1], three steps in the mean, and noise of standard deviation |0.4 sin 10x|. Training
rows are the first n of 100,000; 1,000 validation rows choose the epoch; figures are those of
100,000 fresh points, where the density that made them (the oracle) has a log score of its own.
Each result is kept in its own file under --out, and the same command again continues where it
stopped. `figures` and `table` read these files and write to --results.
"""

import argparse
import copy
import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import gpytorch
import matplotlib as mpl
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from numpy.typing import NDArray
from scipy.special import expit

from geogp.errors import GeogpError, RequestError
from geogp.files import write_text
from geogp.models.architecture import Architecture
from geogp.models.bases import Backbone
from geogp.models.catalogue import CATALOGUE, build, find_spec
from geogp.models.joint import effective_rank
from geogp.models.lowrank import LowRankGP, Rows
from geogp.models.objectives import Weights
from geogp.models.prediction import Prediction
from geogp.models.schedule import FitSettings
from geogp.models.steps import WholeData
from geogp.models.training import Data, fit

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

Floats = NDArray[np.float64]

ROWS, VALIDATION_ROWS, FRESH_ROWS = 100_000, 1_000, 100_000
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
RANKS = (1, 2, 4, 8, 16, 32, 64)
SHOWN_RANKS = (1, 2, 8, 64)
COMPARED = ("dbk-silu", "dbk-mml", "dbk-exact", "exact-rbf", "exact-dkl")
PEERS = {"exact-rbf": "exact RBF (GPyTorch)", "exact-dkl": "exact DKL (GPyTorch)"}
LABELS = {
    **PEERS,
    "dbk-silu": "DBK-SiLU, dPPGP",
    "dbk-mml": "DBK exact, plain MML",
    "dbk-exact": "DBK exact, corrected",
}
COLOURS = dict(zip(COMPARED, ("C3", "C0", "C2", "C7", "C1"), strict=True))
MARKERS = dict(zip(COMPARED, "osD^v", strict=True))

GRID = np.linspace(-1, 1, 4001)
"""Where curves are kept, and where a peer predicts before interpolation to the fresh points."""

KERNEL_GRID = np.linspace(-1, 1, 241)
"""Where features and kernels are kept."""

Z90 = 1.6448536269514722


def true_mean(x: Floats) -> Floats:
    """Return the mean of y at x: 0.3, 0.9, -0.6 and 0 between three sharp steps."""
    s1, s2, s3 = expit(200 * (x + 0.6)), expit(200 * x), expit(200 * (x - 0.4))
    return np.asarray(0.3 * (1 - s1) + 0.9 * (s1 - s2) - 0.6 * (s2 - s3), np.float64)


def true_sd(x: Floats) -> Floats:
    """Return the standard deviation of y at x, |0.4 sin 10x|."""
    return np.abs(0.4 * np.sin(10 * x))


def draw(n: int, seed: int) -> Data:
    """Draw n rows of the world."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, n)
    return Data(x[:, None], true_mean(x) + true_sd(x) * random.standard_normal(n))


def oracle_nll(data: Data) -> float:
    """Return the mean negative log density of the rows under the density that made them."""
    x = data.x[:, 0]
    sd = true_sd(x)
    z = (data.y - true_mean(x)) / sd
    return float(np.mean(0.5 * z**2 + np.log(sd) + 0.5 * math.log(2 * math.pi)))


@dataclass(frozen=True)
class Case:
    """One fit: a model, its sizes and how it is trained.

    `steps` counts gradient steps, whatever n; with 0 steps the untrained model is only timed.
    `average` and `patience` count steps too.
    """

    model: str
    n: int
    r: int
    h: int
    seed: int
    steps: int
    batch: int
    learning_rate: float
    head_rate: float
    average: int
    patience: int
    alpha: float
    beta: float
    clip: float = 1.0

    @property
    def name(self) -> str:
        """Name of the result's file, without its suffix."""
        text = json.dumps(asdict(self), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.model}-n{self.n}-r{self.r}-{digest}"

    @property
    def whole(self) -> bool:
        """Whether a step goes over all rows."""
        return self.model in PEERS or isinstance(find_spec(self.model).step, WholeData)

    def settings(self) -> FitSettings:
        """Return how to train, with steps turned into epochs."""
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
    """What is scored and drawn of a fitted model."""

    predict: Callable[[Floats], Prediction]
    step: Callable[[], object]
    features: Floats | None
    kernel: Floats
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
        """Take one full-batch gradient step, `share` of the steps done."""
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


def fit_own(case: Case, train: Data, validation: Data, checkpoint: Path) -> Fitted:
    """Fit a model of the catalogue."""
    model = build(case.model, Architecture(1, h=case.h, r=case.r), train.x, seed=case.seed)
    epoch = None
    if case.steps:
        state = fit(model, train, validation, case.settings(), checkpoint=checkpoint)
        checkpoint.unlink(missing_ok=True)
        epoch = state.best_epoch
    points = KERNEL_GRID[:, None]
    return Fitted(
        model.predict,
        _own_step(model, train, case),
        model.features(points),
        model.kernel(points, points),
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
        step.backward(twin, Rows(x, y, torch.ones_like(y)), case.n, weights)
        optimiser.step()

    return take


def fit_peer(case: Case, train: Data, _validation: Data, _checkpoint: Path) -> Fitted:
    """Fit a peer; at many points it is interpolated from `GRID`, on which all is smooth."""
    peer = ExactPeer(case, train)
    for step in range(case.steps):
        peer.step(step / case.steps)

    def predict(x: Floats) -> Prediction:
        if len(x) <= len(GRID):
            return peer.predict(x)
        found = peer.predict(GRID[:, None])
        parts = (found.mean, found.function_variance, found.noise_variance)
        return Prediction(*(np.interp(x[:, 0], GRID, part) for part in parts))

    kernel = peer.kernel(KERNEL_GRID[:, None])
    share = np.linalg.eigvalsh(kernel).clip(min=0)
    share = share[share > 0] / share.sum()
    rank = float(np.exp(-np.sum(share * np.log(share))))
    noise = float(peer.likelihood.noise.detach()) * peer.spread**2
    return Fitted(predict, peer.step, None, kernel, rank, case.steps or None, noise)


class Benchmark:
    """The world, and the results of cases in it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows = draw(ROWS, 1)
        self.validation = draw(VALIDATION_ROWS, 2)
        self.fresh = draw(FRESH_ROWS, 3)
        self.oracle = oracle_nll(self.fresh)

    def result(self, case: Case) -> dict[str, Any]:
        """Return the figures of a case, which is fitted where its file is not yet there."""
        path = self.out / f"{case.name}.json"
        if not path.exists():
            write_text(path, json.dumps(self.measure(case), indent=1) + "\n")
        found: dict[str, Any] = json.loads(path.read_text())
        _say(_line(found))
        return found

    def measure(self, case: Case) -> dict[str, Any]:
        """Fit and score a case, and keep its curves beside the figures.

        A fit that was interrupted and continued has no times: only its last part is known.
        """
        train = Data(self.rows.x[: case.n], self.rows.y[: case.n])
        checkpoint = self.out / f"{case.name}.safetensors"
        continued, started, worked = checkpoint.exists(), monotonic(), process_time()
        fitter = fit_peer if case.model in PEERS else fit_own
        model = fitter(case, train, self.validation, checkpoint)
        times = {"fit_seconds": monotonic() - started, "fit_cpu_seconds": process_time() - worked}
        took = dict.fromkeys(times) if continued else times
        repeats = 3 if case.whole and case.n >= 2000 else 20
        timing = {
            "step_seconds": _quickest(model.step, repeats),
            "prediction_seconds": _quickest(lambda: model.predict(self.validation.x), 5),
        }
        scores = self.score(model) if case.steps else {}
        if scores:
            curve = model.predict(GRID[:, None])
            arrays = {"mean": curve.mean, "sd": curve.sd, "kernel": model.kernel}
            if model.features is not None:
                arrays["features"] = model.features
            _write_arrays(self.out / f"{case.name}.npz", arrays)
        return {"case": asdict(case), **scores, **timing, **took, "oracle_nll": self.oracle}

    def score(self, model: Fitted) -> dict[str, Any]:
        """Return the figures on the fresh points."""
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
    """Return the least processor time of some runs, in seconds, after one to warm up."""
    action()
    found = []
    for _ in range(repeats):
        started = process_time()
        action()
        found.append(process_time() - started)
    return min(found)


def _write_arrays(path: Path, arrays: dict[str, Floats]) -> None:
    beside = path.with_name(f"{path.stem}.part.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(beside, **{k: v.astype(np.float32) for k, v in arrays.items()})
    beside.replace(path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _line(found: dict[str, Any]) -> str:
    case = found["case"]
    text = f"{case['model']} n {case['n']} r {case['r']}:"
    if "nll" in found:
        text += (
            f" gap {found['gap']:.4f} coverage {found['coverage_90']:.4f} mae {found['mae']:.4f}"
        )
    return f"{text} step {found['step_seconds']:.4g} s, fit {_seconds(found)} s"


# --- which cases a part of the study has ---------------------------------------------------


def make_case(options: argparse.Namespace, model: str, n: int, r: int) -> Case:
    """Return the case of a model under the options.

    Models whose step goes over all rows take --exact-steps, and none beyond --exact-limit rows,
    where they are only timed; peers take --peer-steps.
    """
    case = Case(
        model=model,
        n=n,
        r=r,
        h=options.h,
        seed=options.seed,
        steps=options.steps,
        batch=options.batch,
        learning_rate=options.learning_rate,
        head_rate=options.head_rate,
        average=options.average,
        patience=options.patience,
        alpha=options.alpha,
        beta=options.beta,
    )
    if not case.whole:
        return case
    case = replace(case, learning_rate=options.exact_learning_rate, average=0, patience=0)
    if model in PEERS:
        rate = options.peer_learning_rate
        return replace(case, steps=options.peer_steps, learning_rate=rate, head_rate=5.0)
    return replace(case, steps=options.exact_steps if n <= options.exact_limit else 0)


def cases(options: argparse.Namespace) -> list[Case]:
    """Return the cases of the part that the options name."""
    n = options.n or [20_000]
    if options.part == "target":
        models = options.models or ["dbk-silu"]
        return [make_case(options, m, size, options.r) for m in models for size in n]
    if options.part == "scaling":
        sizes = options.n or SIZES
        return [
            make_case(options, model, size, options.r)
            for size in sizes
            for model in options.models or COMPARED
            if model not in PEERS or size <= options.peer_limit
        ]
    if options.part == "models":
        names = options.models or list(CATALOGUE)
        return [make_case(options, name, size, options.r) for name in names for size in n]
    ranks = options.ranks or RANKS
    names = options.models or ["dbk-silu"]
    return [make_case(options, name, size, r) for name in names for size in n for r in ranks]


def commands(held: Sequence[Case]) -> list[str]:
    """Return command lines, without the program, that make exactly these cases."""
    lines: dict[tuple[Any, ...], set[int]] = {}
    for case in held:
        lines.setdefault((_flags(case), case.model, case.r), set()).add(case.n)
    by_models: dict[tuple[Any, ...], list[str]] = {}
    for (flags, model, r), sizes in lines.items():
        by_models.setdefault((flags, tuple(sorted(sizes)), r), []).append(model)
    by_ranks: dict[tuple[Any, ...], list[int]] = {}
    for (flags, sizes, r), models in by_models.items():
        by_ranks.setdefault((flags, sizes, tuple(models)), []).append(r)
    found = []
    for (flags, sizes, models), ranks in by_ranks.items():
        words = ["rank", "--models", *models, "--n", *map(str, sizes), "--ranks"]
        found.append(" ".join([*words, *map(str, sorted(ranks)), *flags]))
    return found


def _flags(case: Case) -> tuple[str, ...]:
    """Return the options of a case that are not the usual ones."""
    usual = make_case(parse(["rank"]), case.model, case.n, case.r)
    before = "peer-" if case.model in PEERS else "exact-" if case.whole else ""
    words: list[str] = []
    for name, value in asdict(case).items():
        if value != getattr(usual, name):
            prefix = before if name in {"steps", "learning_rate"} else ""
            words += [f"--{prefix}{name.replace('_', '-')}", f"{value:g}"]
    return tuple(words)


# --- what is written from the files ---------------------------------------------------------


class Results:
    """The results in a folder; of several of one model, n and r, the one with most steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_key: dict[tuple[str, int, int], dict[str, Any]] = {}
        for path in sorted(folder.glob("*-n*-r*.json")):
            found = json.loads(path.read_text())
            case = found["case"]
            key = (case["model"], case["n"], case["r"])
            old = self.by_key.get(key)
            if old is None or old["case"]["steps"] < case["steps"]:
                self.by_key[key] = found
        if not self.by_key:
            raise RequestError(f"expected results in {folder}, found none. Run `scaling` first.")

    @property
    def oracle(self) -> float:
        """The oracle's log score, the same in all results."""
        return float(next(iter(self.by_key.values()))["oracle_nll"])

    def of(self, model: str, r: int) -> list[dict[str, Any]]:
        """Return a model's results at one rank, by n."""
        keys = sorted(k for k in self.by_key if k[0] == model and k[2] == r)
        return [self.by_key[key] for key in keys]

    def ranks(self, model: str, n: int) -> list[dict[str, Any]]:
        """Return a model's results at one n, by rank."""
        keys = sorted(k for k in self.by_key if k[0] == model and k[1] == n)
        return [self.by_key[key] for key in keys]

    def arrays(self, found: dict[str, Any]) -> dict[str, Floats]:
        """Return the curves of a result."""
        path = self.folder / f"{Case(**found['case']).name}.npz"
        with np.load(path, allow_pickle=False) as held:
            return {k: np.asarray(v, np.float64) for k, v in held.items()}

    def ordered(self) -> list[dict[str, Any]]:
        """Return all results by the order of the study."""
        names = [*COMPARED, *(m for m in CATALOGUE if m not in COMPARED)]
        keys = sorted(self.by_key, key=lambda k: (names.index(k[0]), k[2] != 128, k[1], k[2]))
        return [self.by_key[key] for key in keys]


_COLUMNS = (
    "MAE of the mean",
    "NLL",
    "gap to the oracle",
    "coverage of 90 %",
    "effective rank",
    "gradient step, ms",
    "prediction of 1,000, ms",
    "gradient steps, at most",
    "fit, CPU s",
)


def _seconds(found: dict[str, Any]) -> str:
    took = found["fit_cpu_seconds"]
    return "" if took is None else f"{took:.0f}"


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _row(first: Sequence[str], found: dict[str, Any]) -> str:
    timing = [_three_digits(1e3 * found[k]) for k in ("step_seconds", "prediction_seconds")]
    case = found["case"]
    if "nll" in found:
        figures = [
            f"{found['mae']:.4f}",
            f"{found['nll']:.4f}",
            f"{found['gap']:.4f}",
            f"{100 * found['coverage_90']:.1f}",
            f"{found['effective_rank']:.2f}",
        ]
        cost = [f"{case['steps']:,}", _seconds(found)]
    else:
        figures, cost = ["not fitted", *[""] * 4], ["0", ""]
    return "| " + " | ".join([*first, *figures, *timing, *cost]) + " |"


def _table(first: Sequence[str], rows: list[str]) -> str:
    names = [*first, *_COLUMNS]
    left = ["---" if name == "model" else "---:" for name in first]
    rule = "| " + " | ".join([*left, *["---:"] * len(_COLUMNS)]) + " |"
    return "\n".join(["| " + " | ".join(names) + " |", rule, *rows])


def _settings_note(results: Results) -> str:
    lines = []
    for model in COMPARED:
        held = [f["case"] for f in results.ordered() if f["case"]["model"] == model]
        held = [case for case in held if case["steps"]]
        if not held:
            continue
        case = Case(**max(held, key=lambda c: (c["steps"], c["n"])))
        rate = f"learning rate {case.learning_rate:g}, times {case.head_rate:g} for the head"
        if case.whole:
            text = f"full batch, {rate}"
        else:
            text = (
                f"batch {case.batch}, {rate}, average over {case.average} steps, patience "
                f"{case.patience} steps, alpha {case.alpha:g}, beta {case.beta:g}, "
                f"clip {case.clip:g}"
            )
        lines.append(f"- `{model}`: {text}, cosine decay, h {case.h}, seed {case.seed}.")
    return "\n".join(lines)


def write_table(results: Results, folder: Path) -> None:
    """Write table.md and results.json from the result files."""
    found = results.ordered()
    lines = [*commands([Case(**f["case"]) for f in found]), "figures", "table"]
    made_by = "\n".join(f"    python benchmarks/one_dimension.py {line}" for line in lines)
    scaling = [f for f in found if f["case"]["r"] == 128 and f["case"]["model"] in COMPARED]
    top = [f for f in found if f["case"]["r"] == 128 and f["case"]["n"] == 20_000]
    top.sort(key=lambda f: f.get("nll", math.inf))
    ranks = [f for f in results.ranks("dbk-silu", 20_000) if f["case"]["r"] in (*RANKS, 128)]
    text = f"""# The example in one dimension

Made by

{made_by}

of which the last writes this file from the result files.

World: x ~ U[-1, 1], three steps in the mean, noise of standard deviation |0.4 sin 10x|
(DBK section 4.1). Judged on {FRESH_ROWS:,} fresh
points, on which the oracle's log score is **{results.oracle:.4f}**; {VALIDATION_ROWS:,}
validation rows choose the epoch of the catalogue's models. One seed. Times are processor times
of one thread, the least of several runs; the machine was busy with other work. Full-batch fits
have fewer steps where a step takes long, and "not fitted" ones were only timed. `exact-rbf` and
`exact-dkl` are GPyTorch's exact Gaussian processes with Cholesky factors, under an RBF on the
inputs and on the features of our network; they predict at {len(GRID):,} even points, and the
fresh points are interpolated.

{_settings_note(results)}

## Scaling with n (r = 128, h = 64)

{_table(("model", "n"), [_row((f["case"]["model"], f"{f['case']['n']:,}"), f) for f in scaling])}

The effective rank of the two peers is that of their kernel on a grid.

## All models at n = 20,000 (r = 128, h = 64), by log score

{_table(("model",), [_row((f["case"]["model"],), f) for f in top])}

## Rank of `dbk-silu` at n = 20,000

{_table(("r",), [_row((str(f["case"]["r"]),), f) for f in ranks])}
"""
    write_text(folder / "table.md", text)
    write_text(folder / "results.json", json.dumps(found, indent=1) + "\n")


def draw_figures(results: Results, folder: Path) -> None:
    """Draw the figures for which there are results."""
    mpl.rcParams.update(
        {"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    for name, make in (
        ("bands.png", figure_bands),
        ("scaling.png", figure_scaling),
        ("rank.png", figure_rank),
        ("bases.png", figure_bases),
    ):
        figure = make(results)
        figure.savefig(folder / name, dpi=110)
        plt.close(figure)


def figure_bands(results: Results) -> Figure:
    """As DBK figure 1: rows, predictive bands and kernels of three models."""
    shown = [
        (model, max(fits, key=lambda f: (f["case"]["steps"], f["case"]["n"])))
        for model in ("exact-dkl", "dbk-mml", "dbk-silu")
        if (fits := [f for f in results.of(model, 128) if "nll" in f and f["case"]["n"] <= 20_000])
    ]
    figure, axes = plt.subplots(
        2,
        len(shown),
        figsize=(3.4 * len(shown), 5.6),
        layout="constrained",
        squeeze=False,
        height_ratios=(1, 1.25),
    )
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
    axis.fill_between(
        GRID,
        mean - Z90 * sd,
        mean + Z90 * sd,
        color="C0",
        alpha=0.35,
        lw=0,
        zorder=2,
        label="predicted 90 %",
    )
    axis.plot(GRID, mean, color="C3", lw=1.2, label="predicted mean", zorder=3)
    axis.set(xlim=(-1, 1), ylim=(-1.7, 2), xlabel="x", ylabel="y")


def _draw_kernel(axis: plt.Axes, kernel: Floats) -> AxesImage:
    shown = kernel / np.abs(kernel).max()
    axis.set(xlabel="x'", ylabel="x", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    extent = (-1.0, 1.0, 1.0, -1.0)
    return axis.imshow(shown, extent=extent, cmap="RdBu_r", vmin=-1, vmax=1)


def _legend_below(figure: Figure, axis: plt.Axes) -> None:
    held = axis.get_legend_handles_labels()
    figure.legend(*held, loc="outside lower center", ncols=4, frameon=False)


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
            axis.plot(
                [f["case"]["n"] for f in held],
                [unit * f[key] for f in held],
                color=COLOURS[model],
                marker=MARKERS[model],
                ms=4.5,
                lw=1.3,
                label=LABELS[model],
            )
        axis.set(xscale="log", xlabel="training rows n", ylabel=label)
        if key != "nll":
            axis.set_yscale("log")
        axis.grid(alpha=0.25)
    ticks = (0.01, 0.02, 0.05, 0.1)
    axes[0, 0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0, 0].minorticks_off()
    axes[0, 1].axhline(results.oracle, color="k", ls="--", lw=1, label="oracle")
    figure.legend(
        *axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    return figure


def _ranked(results: Results) -> list[dict[str, Any]]:
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
    axis = right.subplots()
    axis.plot(
        [f["case"]["r"] for f in held],
        [f["nll"] for f in held],
        "o-",
        color=COLOURS["dbk-silu"],
        label=LABELS["dbk-silu"],
    )
    axis.axhline(results.oracle, color="k", ls="--", lw=1, label="oracle")
    axis.set_xscale("log", base=2)
    axis.set_xticks([f["case"]["r"] for f in held], [str(f["case"]["r"]) for f in held])
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


# --- the command line ------------------------------------------------------------------------


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {value}")
    return value


def _rows(text: str) -> int:
    value = _positive(text)
    if not 2 <= value <= ROWS:
        raise argparse.ArgumentTypeError(f"expected 2 to {ROWS} rows, found {value}")
    return value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parts = ["target", "scaling", "models", "rank", "figures", "table"]
    parser.add_argument("part", choices=parts)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--out", type=Path, default=here / "out" / "one-dimension")
    parser.add_argument("--results", type=Path, default=here / "results" / "one-dimension")
    parser.add_argument("--models", nargs="+", choices=[*CATALOGUE, *PEERS])
    parser.add_argument("--n", type=_rows, nargs="+", help="training rows; each part has its own")
    parser.add_argument("--r", type=_positive, default=128)
    parser.add_argument("--ranks", type=_positive, nargs="+", help="of `rank`")
    parser.add_argument("--h", type=_positive, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=_positive, default=18_000, help="whatever n")
    parser.add_argument("--batch", type=_positive, default=200)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--head-rate", type=float, default=10.0)
    parser.add_argument("--average", type=int, default=500, help="steps; 0 for none")
    parser.add_argument("--patience", type=int, default=4000, help="steps; 0 for none")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--beta", type=float, default=0.01)
    parser.add_argument("--exact-steps", type=_positive, default=400, help="over all rows")
    parser.add_argument("--exact-learning-rate", type=float, default=5e-3)
    parser.add_argument("--exact-limit", type=int, default=20_000, help="rows; timed only beyond")
    parser.add_argument("--peer-steps", type=_positive, default=200)
    parser.add_argument("--peer-learning-rate", type=float, default=1e-2)
    parser.add_argument("--peer-limit", type=int, default=5000, help="rows; left out beyond")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Do what the options ask, and return the results of the cases."""
    if options.part in {"figures", "table"}:
        results = Results(options.out)
        options.results.mkdir(parents=True, exist_ok=True)
        if options.part == "figures":
            draw_figures(results, options.results)
        else:
            write_table(results, options.results)
        return results.ordered()
    bench = Benchmark(options.out)
    _say(f"oracle's log score on {FRESH_ROWS:,} fresh points: {bench.oracle:.4f}")
    return [bench.result(case) for case in cases(options)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part of the study and print its figures."""
    options = parse(arguments)
    torch.set_flush_denormal(True)
    try:
        found = run(options)
    except GeogpError as error:
        _say(f"error: {error}")
        return 2
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

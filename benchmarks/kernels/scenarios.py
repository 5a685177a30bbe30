"""The simulation study of Mixed, section 5, with eight scenarios.

    python -m benchmarks kernels.scenarios
    python -m benchmarks kernels.scenarios --scenarios C1 C2 --seeds 5

"Mixed" stands for Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to
Gaussian Processes". As in the paper, all replicates have the same inputs (seed 0) and new functions
and noise, and each is fitted with two kinds of anchors. Each fit is scored with two predictive
variances, of `nystrom-mixed` and of `nystrom-mixed-dtc`. Rows are split 85:5:10; the 5 % choose
among the few epochs. Each fit has its own file under --out, and the same command continues where
it stopped.
"""

import argparse
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kernels.scenario_draws import (
    NUGGET,
    exact_draws,
    exact_means,
    kernel_errors,
    network_draws,
    stratified_design,
    truth,
    uniform_design,
)
from benchmarks.kernels.scenarios_table import Studies, page
from benchmarks.script import Figures, Floats, kept, parser, write_results
from geogp.distributions.prediction import Prediction
from geogp.evaluation import metrics
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import learn_closed_forms
from geogp.models.options import Placement
from geogp.models.papers.mixed_nystrom.kernels import MixedKernel
from geogp.models.papers.mixed_nystrom.nystrom import INPUT_SCALE, AnchorBasis
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.diagonals import PredictiveDiagonal
from geogp.models.process.lowrank import LowRankProcess

STUDIES = ("replicates", "anchors", "known", "oracle")

ANCHORS: tuple[Placement, ...] = ("kmeans++", "first")
"""Anchors of the replicates; the paper has both."""

MAX_DRAWS = 20

LARGEST_EXACT = 10_000
"""Largest number of rows with exact draws and an exact oracle."""

PAIRS = 500
"""Number of points for whose pairs a kernel is compared with the truth."""


@dataclass(frozen=True)
class Scenario:
    """A row of Mixed table 2."""

    n: int
    inputs: int
    stratified: bool = False


SCENARIOS = {
    "C1": Scenario(10_000, 20),
    "C2": Scenario(10_000, 80),
    "C3": Scenario(20_000, 20),
    "C4": Scenario(20_000, 80),
    "C5": Scenario(50_000, 20),
    "C6": Scenario(50_000, 80),
    "C7": Scenario(50_000, 20, stratified=True),
    "C8": Scenario(50_000, 80, stratified=True),
}


@dataclass(frozen=True)
class Case:
    """One fit; it starts at variances 1 of the standardised target, or at the truth."""

    scenario: str
    seed: int = 0
    model: str = "nystrom-mixed"
    r: int = 500
    batch: int = 2000
    anchors: Placement = "kmeans++"
    epochs: int = 2
    start: str = "ones"

    @property
    def name(self) -> str:
        """Name of the case's file."""
        return "-".join(str(value) for value in asdict(self).values())


@dataclass(frozen=True)
class World:
    """Inputs (n, d) of a scenario, its functions (MAX_DRAWS, n), and its noise variance."""

    x: Floats
    f: Floats
    noise_var: float
    mean_variance: float

    def targets(self, seed: int) -> Floats:
        """Return the targets of a replicate, (n,)."""
        noise = np.random.default_rng([1, seed]).standard_normal(len(self.x))
        found: Floats = self.f[seed] + math.sqrt(self.noise_var) * noise
        return found

    def parts(self) -> dict[str, NDArray[np.intp]]:
        """Return row numbers, 85:5:10, the same in every replicate."""
        order = np.random.default_rng(2).permutation(len(self.x))
        first, second = int(0.85 * len(order)), int(0.9 * len(order))
        names = ("train", "validation", "test")
        return dict(zip(names, np.split(order, [first, second]), strict=True))


def make_world(scenario: Scenario) -> World:
    """Draw inputs and functions."""
    rng = np.random.default_rng(0)
    design = stratified_design if scenario.stratified else uniform_design
    x, kernel = design(scenario.n, scenario.inputs, rng), truth()
    mean_variance = float(kernel.diagonal(torch.from_numpy(x)).mean())
    few = scenario.n <= LARGEST_EXACT
    f = exact_draws(kernel, x, rng, MAX_DRAWS) if few else network_draws(x, rng, MAX_DRAWS)
    return World(x, f, NUGGET * mean_variance, mean_variance)


class Study:
    """The scenarios and the files of figures under a folder."""

    def __init__(self, out: Path, scenarios: dict[str, Scenario] | None = None) -> None:
        self.out, self.scenarios = out, scenarios or SCENARIOS
        self.world = functools.lru_cache(maxsize=1)(self._world)

    def _world(self, name: str) -> World:
        """Return the inputs and functions of a scenario, which are stored in a file."""
        path = self.out / f"{name}.npz"
        if not path.exists():
            start = monotonic()
            world = make_world(self.scenarios[name])
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".part.npz")
            np.savez(beside, **asdict(world), seconds=monotonic() - start)
            beside.replace(path)
        with np.load(path) as held:
            return World(
                held["x"], held["f"], float(held["noise_var"]), float(held["mean_variance"])
            )

    def data(self, case: Case) -> dict[str, Data]:
        """Return the rows of a replicate."""
        world = self.world(case.scenario)
        y = world.targets(case.seed)
        return {
            name: Data(world.x[rows] / INPUT_SCALE, y[rows]) for name, rows in world.parts().items()
        }

    def measure(self, case: Case) -> Figures:
        """Fit one case and score its test rows."""
        world, data = self.world(case.scenario), self.data(case)
        train, test = data["train"], data["test"]
        model = make_model(case, train, world)
        start = monotonic()
        _, state = fit(model, train, data["validation"], settings_of(case))
        seconds = monotonic() - start
        print(case.name, flush=True)
        return {
            **asdict(case),
            **scores(model, test),
            **estimates(model, world.x[world.parts()["test"][:PAIRS]]),
            "true_noise_var": world.noise_var,
            "mean_variance": world.mean_variance,
            "n_train": len(train.y),
            "loss": state.losses[-1],
            "seconds": seconds,
        }

    def oracle(self, scenario: str, seeds: int) -> Figures:
        """Return the exact scores of the process that generated the data."""
        world = self.world(scenario)
        parts = world.parts()
        y = np.stack([world.targets(seed) for seed in range(seeds)])
        train, test = parts["train"], parts["test"]
        means, variance = exact_means(
            truth(), world.noise_var, world.x[train], y[:, train], world.x[test]
        )
        noise = np.full(len(test), world.noise_var)
        found = [
            score(Prediction(mean, variance - noise, noise), y[seed, test])
            for seed, mean in enumerate(means)
        ]
        return {"scenario": scenario, "per_seed": found}

    def known(self, fitted: Case) -> Figures:
        """Return the scores of the same model with all parameters at their true values."""
        case = replace(fitted, start="truth")
        data = self.data(case)
        train, test = data["train"], data["test"]
        model = make_model(case, train, self.world(case.scenario))
        model.take_target(train.y)
        rows = model.as_rows(train)
        learn_closed_forms(model, rows, rows)
        return {**asdict(case), **scores(model, test)}


def make_model(case: Case, train: Data, world: World) -> LowRankProcess:
    """Return the untrained model; the noise starts at the value of the paper's rule (25)."""
    own = case.start == "truth"
    spread = train.y.var()
    model = build(
        case.model,
        Architecture(train.x.shape[1], r=case.r, dtype="float64"),
        train.x,
        placement=case.anchors,
        noise_start=world.noise_var / spread if own else NUGGET,
        seed=case.seed,
    )
    if own:
        kernel = kernel_of(model)
        with torch.no_grad():
            for weight in (kernel.log_output_bias, kernel.log_output_weight):
                weight.fill_(-math.log(spread))
    return model


def settings_of(case: Case) -> FitSettings:
    """Return the training settings."""
    return FitSettings(epochs=case.epochs, batch=case.batch, optimiser="lbfgs", seed=case.seed)


def kernel_of(model: LowRankProcess) -> MixedKernel:
    """Return the mixed kernel of a model."""
    return cast("MixedKernel", cast("AnchorBasis", model.basis).kernel)


def score(prediction: Prediction, y: Floats) -> dict[str, float]:
    """Return the scores of predictions; Mixed section 5.3 defines `mese` and `sdese`."""
    found = asdict(metrics.score(prediction, y))
    expected = (y - prediction.mean) ** 2 + prediction.variance
    return {
        **{name: found[name] for name in ("mae", "rmse", "nll", "crps", "coverage_95")},
        "mese": float(expected.mean()),
        "sdese": float(expected.std(ddof=1)),
    }


def scores(model: LowRankProcess, test: Data) -> dict[str, float]:
    """Return the scores of a model, then those with the full variance, named `full_...`.

    Mean and posterior do not depend on the predictive variance, so one fit gives both.
    """
    usual = score(model.predict(test.x), test.y)
    own, model.diagonal = model.diagonal, PredictiveDiagonal()
    full = score(model.predict(test.x), test.y)
    model.diagonal = own
    return usual | {f"full_{name}": full[name] for name in ("nll", "coverage_95", "mese", "sdese")}


def estimates(model: LowRankProcess, shown: Floats) -> dict[str, float]:
    """Return the parameters in the unit of the target, and the errors of the kernel."""
    kernel, scale = kernel_of(model), float(model.y_sd.square())
    with torch.no_grad():
        noise = float(model.noise()) * scale
        found = {
            "sigma_b2": scale * float(kernel.log_output_bias.exp()),
            "sigma_v2": scale * float(kernel.log_output_weight.exp()),
            "sigma_u2": float(kernel.log_hidden_weight.exp()),
            "sigma_a2": float(kernel.log_hidden_bias.exp()),
            "alpha": float(kernel.logit_alpha.sigmoid()),
            "w": float(kernel.logit_w.sigmoid()),
        }
    plain, centred = kernel_errors(kernel, scale, shown)
    return {**found, "noise_var": noise, "kernel_error": plain, "centred_error": centred}


def cases(study: str, options: argparse.Namespace) -> Iterator[Case]:
    """Yield the fits of a study."""
    base = Case("C1", r=options.r, batch=options.batch, epochs=options.epochs)
    if study == "replicates":
        for name, anchors in itertools.product(options.scenarios, ANCHORS):
            for seed in range(options.seeds):
                yield replace(base, scenario=name, anchors=anchors, seed=seed)
    elif study == "anchors":
        for name, anchors in itertools.product(options.scenarios, (*ANCHORS, "pivoted")):
            yield replace(base, scenario=name, anchors=cast("Placement", anchors))
        yield replace(base, anchors="kmeans")
        yield replace(base, r=base.r // 2)
        yield replace(base, r=base.r // 2, model="nystrom-mixed-fitc")


def run(study: Study, name: str, options: argparse.Namespace) -> list[Figures]:
    """Return the figures of one study; make fits whose files do not exist yet."""
    if name == "known":
        made = {
            f"known/{case.scenario}-{case.anchors}-{case.seed}-{case.r}": functools.partial(
                study.known, case
            )
            for case in cases("replicates", options)
        }
    elif name == "oracle":
        made = {}
        for scenario in options.scenarios:
            if study.scenarios[scenario].n <= LARGEST_EXACT:
                make = functools.partial(study.oracle, scenario, options.seeds)
                made[f"oracle/{scenario}-{options.seeds}"] = make
    else:
        made = {
            f"fits/{case.name}": functools.partial(study.measure, case)
            for case in cases(name, options)
        }
    return [kept(study.out / f"{path}.json", make) for path, make in made.items()]


def main() -> None:
    """Make the fits whose files do not exist yet, and the table."""
    asked = parser(
        __doc__,
        out="scenarios",
        table="scenarios",
        scenarios=SCENARIOS,
        r=500,
        batch=2000,
        epochs=2,
    )
    asked.add_argument("--seeds", type=int, default=20, choices=range(1, MAX_DRAWS + 1))
    options = asked.parse_args()
    study = Study(options.out)
    figures: Studies = {name: run(study, name, options) for name in STUDIES}
    write_results(options.table, page(figures), figures)

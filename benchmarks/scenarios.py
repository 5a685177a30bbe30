"""The simulation study of Mixed, section 5: eight scenarios, and what can be learned from each.

    python benchmarks/scenarios.py              # all studies, then the table
    python benchmarks/scenarios.py replicates --scenarios C1 C2 --seeds 20
    python benchmarks/scenarios.py shapes       # anew in the table, beside what it holds

Mixed is Antunes de Araújo and Gonçalves, "From Shallow Bayesian Neural Networks to Gaussian
Processes". Inputs are those of seed 0 in every replicate and functions and noise are drawn anew,
as in the paper. Rows are split 85:5:10; the 5 % choose among the few epochs. Each fit is kept in
its own file under --out, and the same command again continues where it stopped.
"""

import argparse
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
import torch
from kernel_shapes import shape_figures
from numpy.typing import NDArray
from scenario_draws import (
    NEAREST,
    NUGGET,
    Vecchia,
    bias_figures,
    draw_figures,
    exact_means,
    kernel_errors,
    stratified_design,
    truth,
    uniform_design,
)
from scenarios_table import SHAPES, held_figures, write_table

from geogp.distributions.prediction import Prediction
from geogp.errors import GeogpError
from geogp.files import write_text
from geogp.models.bases.kernels import MixedKernel
from geogp.models.bases.nystrom import INPUT_SCALE, AnchorBasis
from geogp.models.catalogue.build_model import build
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP, Rows
from geogp.models.core.options import Optimiser, Placement
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_loop import Data, fit

Floats = NDArray[np.float64]

STUDIES = (
    *("replicates", "anchors", "optimisers", "starts", "known", "oracle", "bias", "draws", SHAPES),
)

SHARED = {10_000: 10_000, 20_000: 2_000, 50_000: 1_000}
"""Points of the exact first block, which all others are conditioned on, by n."""

MOST_DRAWS = 20

LARGEST_EXACT = 10_000
"""Scenarios with more rows have no exact oracle."""

PAIRS = 500
"""Points among whose pairs a kernel is compared with the truth."""


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

STARTS: dict[str, dict[str, float]] = {
    "ones": {},
    "small": {"log_output_weight": 0.1, "log_hidden_weight": 0.1, "log_hidden_bias": 0.1},
    "large": {"log_output_weight": 5.0, "log_hidden_weight": 5.0, "log_hidden_bias": 5.0},
    "smooth": {"logit_w": 0.95, "logit_alpha": 0.9},
    "angular": {"logit_w": 0.05, "logit_alpha": 0.1},
    "truth": {},
}
"""Where the kernel's parameters start, on their natural scale, 1 and ½ where nothing is said.

Of the standardised target, but for `truth`, which is the truth in the target's own unit.
"""


@dataclass(frozen=True)
class Case:
    """One fit."""

    scenario: str
    seed: int = 0
    model: str = "nystrom-mixed"
    r: int = 500
    batch: int = 2000
    anchors: Placement = "kmeans++"
    optimiser: Optimiser = "lbfgs"
    epochs: int = 2
    start: str = "ones"

    @property
    def name(self) -> str:
        """What tells its file from others."""
        return "-".join(str(value) for value in asdict(self).values())


@dataclass(frozen=True)
class World:
    """Inputs (n, d) of a scenario, its functions (MOST_DRAWS, n), and its noise variance."""

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
    process = Vecchia.of(kernel, x, NEAREST, SHARED.get(scenario.n, scenario.n))
    return World(x, process.draw(rng, MOST_DRAWS), NUGGET * mean_variance, mean_variance)


class Study:
    """The scenarios and the files of figures under a folder."""

    def __init__(self, out: Path, scenarios: dict[str, Scenario] | None = None) -> None:
        self.out, self.scenarios = out, scenarios or SCENARIOS
        self.world = functools.lru_cache(maxsize=1)(self._world)

    def _world(self, name: str) -> World:
        """Return the inputs and functions of a scenario; they are kept in a file."""
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

    def kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the figures of a name, making them unless they are there."""
        path = self.out / f"{name}.json"
        if not path.exists():
            write_text(path, json.dumps(make(), indent=1) + "\n")
            print(name, flush=True)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def measure(self, case: Case) -> dict[str, Any]:
        """Fit one case and score its test rows."""
        world = self.world(case.scenario)
        y, parts = world.targets(case.seed), world.parts()
        data = {name: Data(world.x[rows] / INPUT_SCALE, y[rows]) for name, rows in parts.items()}
        model = make_model(case, data["train"], world)
        start = monotonic()
        state = fit(model, data["train"], data["validation"], settings_of(case))
        seconds = monotonic() - start
        scores = score(model.predict(data["test"].x), data["test"].y)
        shown = world.x[parts["test"][:PAIRS]]
        return {
            **asdict(case),
            **scores,
            **estimates(model, shown),
            "true_noise_var": world.noise_var,
            "mean_variance": world.mean_variance,
            "n_train": len(data["train"].y),
            "loss": state.losses[-1],
            "seconds": seconds,
        }

    def oracle(self, scenario: str, seeds: int) -> dict[str, Any]:
        """Return the scores of the process that made the data, with nothing approximated."""
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

    def known(self, fitted: Case) -> dict[str, Any]:
        """Return the scores of the same model that is told all parameters and learns none."""
        world, case = self.world(fitted.scenario), replace(fitted, start="truth")
        y, parts = world.targets(case.seed), world.parts()
        data = {name: Data(world.x[rows] / INPUT_SCALE, y[rows]) for name, rows in parts.items()}
        train = data["train"]
        model = make_model(case, train, world)
        model.y_mean.fill_(train.y.mean())
        model.y_sd.fill_(train.y.std())
        target = torch.from_numpy((train.y - train.y.mean()) / train.y.std())
        rows = Rows(model.scaled(train.x), target, torch.ones_like(target))
        model.settle(rows, rows)
        return {**asdict(case), **score(model.predict(data["test"].x), data["test"].y)}


def make_model(case: Case, train: Data, world: World) -> LowRankGP:
    """Return the untrained model at its start; the noise starts at the paper's rule (25)."""
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
    kernel = kernel_of(model)
    start = dict(STARTS[case.start])
    if own:
        start = {"log_output_bias": 1 / spread, "log_output_weight": 1 / spread}
    with torch.no_grad():
        for name, value in start.items():
            natural = torch.tensor(value, dtype=torch.float64)
            scale = torch.logit if name.startswith("logit") else torch.log
            getattr(kernel, name).copy_(scale(natural))
    return model


def settings_of(case: Case) -> FitSettings:
    """Return how to train: L-BFGS, or the paper's Adam at a constant 1e-3."""
    return FitSettings(
        epochs=case.epochs,
        batch=case.batch,
        optimiser=case.optimiser,
        learning_rate=1e-3,
        decay="constant",
        seed=case.seed,
    )


def kernel_of(model: LowRankGP) -> MixedKernel:
    """Return the mixed kernel of a model."""
    return cast("MixedKernel", cast("AnchorBasis", model.basis).kernel)


def score(prediction: Prediction, y: Floats) -> dict[str, float]:
    """Return the scores of predictions; `mese` and `sdese` are those of Mixed section 5.3."""
    square = (y - prediction.mean) ** 2
    expected = square + prediction.variance
    low, high = prediction.interval(0.95)
    return {
        "mae": float(np.sqrt(square).mean()),
        "rmse": float(np.sqrt(square.mean())),
        "nll": float(prediction.log_score(y).mean()),
        "crps": float(prediction.crps(y).mean()),
        "coverage_95": float(((low <= y) & (y <= high)).mean()),
        "mese": float(expected.mean()),
        "sdese": float(expected.std(ddof=1)),
    }


def estimates(model: LowRankGP, shown: Floats) -> dict[str, float]:
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
        for name in options.scenarios:
            for seed in range(options.seeds if name == "C1" else options.other_seeds):
                yield replace(base, scenario=name, seed=seed)
    elif study == "anchors":
        for anchors in ("first", "kmeans++", "kmeans", "pivoted"):
            yield replace(base, anchors=cast("Placement", anchors))
        yield replace(base, r=base.r // 2)
        yield replace(base, r=base.r // 2, model="nystrom-mixed-fitc")
    elif study == "optimisers":
        for start in ("truth", "ones"):
            small = replace(base, start=start, r=base.r // 2)
            yield replace(small, epochs=2 * base.epochs)
            yield replace(small, optimiser="adamw", epochs=options.adam_epochs)
    elif study == "starts":
        for start in STARTS:
            yield replace(base, start=start, r=base.r // 2, epochs=2 * base.epochs)


def run(study: Study, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of one study, making those that are not there."""
    if name == "bias":
        return [study.kept(f"bias/{n}", functools.partial(bias_figures, n)) for n in (100, 1000)]
    if name == SHAPES:
        return [study.kept(SHAPES, shape_figures)]
    if name == "draws":
        sizes = (20, 80)
        return [study.kept(f"draws/{d}", functools.partial(draw_figures, d)) for d in sizes]
    if name == "known":
        replicates = list(cases("replicates", options))
        return [
            study.kept(f"known/{c.scenario}-{c.seed}-{c.r}", functools.partial(study.known, c))
            for c in replicates
        ]
    if name == "oracle":
        seeds = {"C1": options.seeds}
        return [
            study.kept(
                f"oracle/{scenario}-{seeds.get(scenario, options.other_seeds)}",
                functools.partial(study.oracle, scenario, seeds.get(scenario, options.other_seeds)),
            )
            for scenario in options.scenarios
            if study.scenarios[scenario].n <= LARGEST_EXACT
        ]
    return [
        study.kept(f"fits/{case.name}", functools.partial(study.measure, case))
        for case in cases(name, options)
    ]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", default="all", choices=["all", *STUDIES])
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=SCENARIOS)
    parser.add_argument("--seeds", type=int, default=4, choices=range(1, MOST_DRAWS + 1))
    parser.add_argument("--other-seeds", type=int, default=1, choices=range(1, MOST_DRAWS + 1))
    parser.add_argument("--r", type=int, default=500)
    parser.add_argument("--batch", type=int, default=2000, help="rows the kernel is learned from")
    parser.add_argument("--epochs", type=int, default=2, help="of ten iterations of L-BFGS")
    parser.add_argument("--adam-epochs", type=int, default=50)
    parser.add_argument("--out", type=Path, default=here / "out" / "scenarios")
    parser.add_argument("--table", type=Path, default=here / "results" / "scenarios")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Make what is not yet there, and the table."""
    options = parse(arguments)
    torch.set_flush_denormal(True)
    study = Study(options.out)
    chosen = STUDIES if options.study == "all" else (options.study,)
    try:
        figures = {name: run(study, name, options) for name in chosen}
        if options.study == SHAPES:
            figures = {**held_figures(options.table), **figures}
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.study in {"all", SHAPES}:
        write_table(figures, options.table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

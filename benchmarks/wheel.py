"""The Wheel bandit: the benefit of a posterior when actions depend on it.

    python benchmarks/wheel.py --horizon 16000          # the paper's
    python benchmarks/wheel.py --horizon 1000 --json

The bandit is from Riquelme, Tucker and Snoek (2018), used as in Calvo-Ordoñez et al., "Richer
Bayesian Last Layers with Subsampled NTK Features" (Rich), section 4.3 and appendix C.2. Contexts
are uniform in the unit disk; there are 5 actions and a rare large reward outside radius delta. Each
phase has 20 steps of Thompson sampling, each with a new draw from the posterior of the weights,
then 100 gradient steps and one new posterior. Each run has its own file under --out, and the same
command continues where it stopped.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import torch
from trial import (
    Figures,
    Floats,
    command,
    kept,
    mean_and_error,
    parser,
    plus_minus,
    say,
    table,
    write_results,
)

from geogp.models.catalogue.build_model import CATALOGUE, build
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP
from geogp.models.joint.joint_law import joint_posterior
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_data import Data
from geogp.models.training.training_loop import fit

ACTIONS, SAFE, OTHER, JACKPOT, REWARD_SD = 5, 1.2, 1.0, 50.0, 0.01
"""Rewards (Riquelme, Tucker and Snoek 2018): 1.2 for action 0, 1 for others, 50 in a quadrant."""

STEPS, PULLS, BATCH, WINDOW, FRESH = 20, 3, 512, 400, 2000
"""Steps of a phase, first pulls of each action, batch, rows for the noise, final contexts."""

FITTING = {
    "rich-bll": {"learning_rate": 3e-3},
    "bll": {"learning_rate": 3e-3},
    "vbll": {"learning_rate": 3e-3, "head_rate": 10.0, "noise_rate": 2.0},
    "dbk-silu": {"learning_rate": 3e-3, "head_rate": 10.0, "noise_rate": 2.0},
}
"""The paper's learning rate; rates of variational posteriors are those of `uci.py`."""

# Rich, table 3: cumulative regret in percent of that of the uniform policy, 10 seeds.
PAPER = {
    "rich-bll": {0.5: (0.48, 0.01), 0.95: (4.70, 0.09)},
    "bll": {0.5: (1.20, 0.03), 0.95: (12.10, 0.85)},
    "vbll": {0.5: (0.46, 0.01), 0.95: (4.82, 0.03)},
}


@dataclass(frozen=True)
class Case:
    """One run."""

    model: str
    delta: float
    seed: int
    horizon: int
    gradient_steps: int = 100
    width: int = 100

    @property
    def phases(self) -> int:
        """Number of phases after the first pulls."""
        return math.ceil(self.horizon / STEPS)


@dataclass
class Played:
    """Contexts, actions and rewards so far, and the regret of each step."""

    contexts: Floats
    actions: np.ndarray
    rewards: Floats
    regret: Floats
    uniform: Floats

    def data(self) -> Data:
        """Return all rows in the form for a model."""
        return Data(inputs(self.contexts, self.actions), self.rewards)


def draw_contexts(rng: np.random.Generator, n: int) -> Floats:
    """Return points uniform in the unit disk, (n, 2)."""
    radius, angle = np.sqrt(rng.uniform(size=n)), rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def mean_rewards(contexts: Floats, delta: float) -> Floats:
    """Return the expected reward of each action, (n, 5)."""
    found = np.full((len(contexts), ACTIONS), OTHER)
    found[:, 0] = SAFE
    outside = np.linalg.norm(contexts, axis=1) > delta
    quadrant = 1 + 2 * (contexts[:, 0] < 0) + (contexts[:, 1] < 0)
    found[outside, quadrant[outside]] = JACKPOT
    return found


def inputs(contexts: Floats, actions: np.ndarray) -> Floats:
    """Return contexts with one-hot actions, (n, 7)."""
    return np.hstack([contexts, np.eye(ACTIONS)[actions]])


def every_action(contexts: Floats) -> Floats:
    """Return the inputs of each context with each action, (5 n, 7)."""
    n = len(contexts)
    return inputs(np.repeat(contexts, ACTIONS, axis=0), np.tile(np.arange(ACTIONS), n))


class Run:
    """One bandit and its model."""

    def __init__(self, case: Case) -> None:
        self.case, self.phase = case, 0
        self.played, self.model = self._start()

    def play(self) -> Figures:
        """Play to the end, and return the result."""
        while self.phase < self.case.phases:
            self.step()
            if self.phase % 25 == 0:
                say(f"{self.case}: phase {self.phase}")
        return self.result()

    def step(self) -> None:
        """Play a phase."""
        self._learn()
        self._act()
        self.phase += 1

    def result(self) -> Figures:
        """Return the regrets in percent of the uniform policy's regrets."""
        self._learn()
        rng = self._random("last")
        contexts = draw_contexts(rng, FRESH)
        means = mean_rewards(contexts, self.case.delta)
        guess = self.model.predict(every_action(contexts)).mean.reshape(FRESH, ACTIONS)
        chosen = means[np.arange(FRESH), guess.argmax(1)]
        best = means.max(1)
        simple = (best - chosen).mean() / (best - means.mean(1)).mean()
        regret, uniform = self.played.regret.cumsum(), self.played.uniform.cumsum()
        quarters = [int(len(regret) * k / 4) - 1 for k in (1, 2, 3, 4)]
        return {
            **asdict(self.case),
            "cumulative": 100 * float(regret[-1] / uniform[-1]),
            "simple": 100 * float(simple),
            "by_quarter": [100 * float(regret[i] / uniform[i]) for i in quarters],
        }

    def _random(self, what: str) -> np.random.Generator:
        """Return a generator for one purpose and phase, independent of earlier draws."""
        code = {"act": 0, "reward": 1, "fit": 2, "draw": 3, "last": 4}[what]
        return np.random.default_rng([self.case.seed, self.phase, code])

    def _start(self) -> tuple[Played, LowRankGP]:
        """Return the first pulls and an untrained model."""
        rng = np.random.default_rng([self.case.seed, 0, 9])
        actions = np.repeat(np.arange(ACTIONS), PULLS)
        contexts = draw_contexts(rng, len(actions))
        means = mean_rewards(contexts, self.case.delta)[np.arange(len(actions)), actions]
        rewards = means + REWARD_SD * rng.standard_normal(len(actions))
        played = Played(contexts, actions, rewards, np.zeros(0), np.zeros(0))
        width = self.case.width
        # Placement and range need rows over the whole disk; they use contexts but no rewards.
        ground = every_action(draw_contexts(rng, 50))
        model = build(
            self.case.model,
            Architecture(2 + ACTIONS, h=width, r=width),
            ground,
            seed=self.case.seed,
        )
        return played, model

    def _learn(self) -> None:
        """Continue the fit with all rows; the last rows choose the epoch and give the noise."""
        data = self.played.data()
        rebase(self.model, data.y)
        n = len(data.y)
        settings = FitSettings(
            epochs=max(1, round(self.case.gradient_steps / math.ceil(n / BATCH))),
            batch=BATCH,
            decay="constant",
            clip=1.0,
            weight_decay=0.0,
            seed=int(self._random("fit").integers(2**31)),
            **FITTING[self.case.model],
        )
        recent = Data(data.x[-WINDOW:], data.y[-WINDOW:])
        fit(self.model, data, recent, settings)

    def _act(self) -> None:
        """Play the steps of a phase by Thompson sampling."""
        contexts = draw_contexts(self._random("act"), STEPS)
        joint = joint_posterior(self.model, self.played.data())
        seed = int(self._random("draw").integers(2**31))
        paths = joint.sample_paths(every_action(contexts), STEPS, seed=seed)
        own = paths.reshape(STEPS, STEPS, ACTIONS)[np.arange(STEPS), np.arange(STEPS)]
        actions = own.argmax(1)
        means = mean_rewards(contexts, self.case.delta)
        got = means[np.arange(STEPS), actions]
        noise = REWARD_SD * self._random("reward").standard_normal(STEPS)
        best, played = means.max(1), self.played
        self.played = Played(
            np.vstack([played.contexts, contexts]),
            np.concatenate([played.actions, actions]),
            np.concatenate([played.rewards, got + noise]),
            np.concatenate([played.regret, best - got]),
            np.concatenate([played.uniform, best - means.mean(1)]),
        )


def rebase(model: LowRankGP, y: Floats) -> None:
    """Change a model to another mean and spread of the target without changing its function.

    `fit` standardises targets by its own rows. Without this change, a network that continues to
    learn would start from a shifted and stretched function after every large reward.
    """
    spread, centre = float(y.std()), float(y.mean())
    factor = float(model.y_sd) / spread
    with torch.no_grad():
        posterior = model.posterior
        model.mean_constant.mul_(factor)
        if "mean_constant" in model.rates():  # its bias is the weight of the constant feature
            posterior.m.mul_(factor)
            posterior.m[-1] += (float(model.y_mean) - centre) / spread
        else:
            posterior.m.mul_(factor)
            model.mean_constant += (float(model.y_mean) - centre) / spread
        if hasattr(posterior, "log_diagonal"):
            posterior.log_diagonal += math.log(factor)
            posterior.lower.mul_(factor)
            model.noise.log_excess += 2 * math.log(factor)


def page(results: list[Figures], options: argparse.Namespace) -> str:
    """Return the Markdown of the results."""
    lines = []
    for delta, model in product(options.deltas, options.models):
        rows = [r for r in results if (r["model"], r["delta"]) == (model, delta)]
        cumulative, simple = (
            plus_minus(*mean_and_error([r[key] for r in rows]), 2)
            for key in ("cumulative", "simple")
        )
        quarters = ", ".join(f"{q:.1f}" for q in np.mean([r["by_quarter"] for r in rows], axis=0))
        paper = PAPER.get(model, {}).get(delta)
        theirs = f"{paper[0]} ± {paper[1]}" if paper else ""
        lines.append((f"{delta:g}", f"`{model}`", cumulative, quarters, simple, theirs))
    header = ("delta", "model", "cumulative", "after each quarter", "simple", "paper, cumulative")
    return f"""# The Wheel bandit

    python benchmarks/wheel.py --horizon {options.horizon} --seeds {options.seeds} \
--models {" ".join(options.models)}

Run here: {options.horizon:,} steps, {options.seeds} seeds, {options.gradient_steps} gradient
steps and one posterior per phase of {STEPS} steps; 2 x 100 network for Bayesian last
layers, residual network of width 100 and rank 100 for the others. The paper: 16,000
steps, 10 seeds, a new posterior at every gradient step. Cumulative regret includes the
exploration, which has more weight in a short run, so compare models within a column, not
with the paper.
Regret is that of expected rewards, in percent of the uniform policy's on the same contexts.
Simple regret is that of the action with the highest posterior mean, on new contexts at the
end. Mean ± standard error over seeds.

{table(header, lines, left=(1, 3))}"""


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Play the runs whose files do not exist yet, and write the table."""
    asked = parser(__doc__, out="wheel", table="wheel", horizon=16000, seeds=3, gradient_steps=100)
    asked.add_argument("--deltas", type=float, nargs="+", default=[0.5, 0.95])
    names = [name for name in CATALOGUE if name in FITTING]
    asked.add_argument("--models", nargs="+", choices=names, default=list(FITTING))
    asked.add_argument("--json", action="store_true", help="print the results as JSON")
    options = asked.parse_args(arguments)
    torch.set_flush_denormal(True)
    results = []
    for seed, delta, model in product(range(options.seeds), options.deltas, options.models):
        case = Case(model, delta, seed, options.horizon, options.gradient_steps)
        name = "-".join(str(value) for value in asdict(case).values())
        results.append(kept(options.out / f"{name}.json", lambda case=case: Run(case).play()))
        say(results[-1])
    write_results(options.table, page(results, options), results)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    sys.exit(main())

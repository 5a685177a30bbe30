"""The Wheel bandit: the benefit of a posterior when actions depend on it.

    python -m benchmarks networks.wheel --horizon 16000 --growth 0    # the paper's
    python -m benchmarks networks.wheel --horizon 2000 --json

The bandit is from Riquelme, Tucker and Snoek (2018), used as in Calvo-Ordoñez et al., "Richer
Bayesian Last Layers with Subsampled NTK Features" (Rich), section 4.3 and appendix C.2. Contexts
are uniform in the unit disk; there are 5 actions and a rare large reward outside radius delta. Each
phase has 20 steps of Thompson sampling, each with a new draw from the posterior, then 100 gradient
steps and one new posterior. With --growth g, phases become longer: a phase has g times as many
steps as were played before, and at least 20. With --draws rewards, each action's reward is drawn by
itself, with its noise, instead of one function for all actions. Each run has its own file under
--out, the table is written after each run, with the runs that it had before, and the same command
continues where it stopped. With --device cuda, models are on a GPU and seconds are of the wall;
runs are in a folder of their own in --out, and --table should name another folder too.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from benchmarks.markdown import table, with_error
from benchmarks.networks.wheel_policies import (
    ACTIONS,
    DRAWS,
    FUNCTIONS,
    POLICIES,
    REWARD_SCALE,
    SHARE,
    WINDOW,
    ModelPolicy,
    inputs,
)
from benchmarks.script import (
    Figures,
    Floats,
    clock,
    costs,
    fits_on,
    kept,
    parser,
    say,
    times_of,
    write_results,
)
from geogp.models.process.data import Data

SAFE, OTHER, JACKPOT, REWARD_SD = 1.2, 1.0, 50.0, 0.01
"""Rewards (Riquelme, Tucker and Snoek 2018): 1.2 for action 0, 1 for others, 50 in a quadrant."""

STEPS, PULLS, FRESH = 20, 3, 2000
"""Least steps of a phase, first pulls of each action, final contexts."""

DELTAS = (0.5, 0.7, 0.9, 0.95, 0.99)

# Rich, table 3: cumulative regret in percent of that of the uniform policy, 10 seeds.
PAPER = {
    "rich-bll": ((0.48, 0.01), (0.92, 0.01), (2.60, 0.09), (4.70, 0.09), (21.80, 1.60)),
    "rich-bll-s": ((0.50, 0.01), (0.88, 0.01), (2.63, 0.12), (4.76, 0.09), (22.30, 1.63)),
    "bll": ((1.20, 0.03), (1.95, 0.04), (5.30, 0.16), (12.10, 0.85), (55.80, 2.30)),
    "vbll": ((0.46, 0.01), (0.89, 0.01), (2.54, 0.02), (4.82, 0.03), (24.44, 0.71)),
    "neural-linear": ((1.10, 0.02), (1.77, 0.03), (4.32, 0.11), (11.42, 0.97), (52.64, 2.04)),
    "linear": ((1.12, 0.03), (1.80, 0.08), (5.06, 0.14), (8.99, 0.33), (37.77, 2.18)),
}


@dataclass(frozen=True)
class Case:
    """One run."""

    model: str
    delta: float
    seed: int
    horizon: int
    gradient_steps: int = 100
    growth: float = 0.0
    width: int = 100
    draws: str = FUNCTIONS


@dataclass
class Played:
    """Contexts, actions and rewards so far, and the regret of each step."""

    contexts: Floats
    actions: np.ndarray
    rewards: Floats
    regret: Floats
    uniform: Floats

    @property
    def steps(self) -> int:
        """Number of steps after the first pulls."""
        return len(self.regret)

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


class Run:
    """One bandit and its policy, whose model is on a device."""

    def __init__(self, case: Case, device: str = "cpu") -> None:
        self.case, self.device, self.phase = case, device, 0
        rng = np.random.default_rng([case.seed, 0, 9])
        actions = np.repeat(np.arange(ACTIONS), PULLS)
        contexts = draw_contexts(rng, len(actions))
        means = mean_rewards(contexts, case.delta)[np.arange(len(actions)), actions]
        rewards = means + REWARD_SD * rng.standard_normal(len(actions))
        self.played = Played(contexts, actions, rewards, np.zeros(0), np.zeros(0))
        ground = np.repeat(draw_contexts(rng, 50), ACTIONS, axis=0)
        ground = inputs(ground, np.tile(np.arange(ACTIONS), 50))
        self.policy = POLICIES[case.model](case.width, ground, case.draws)
        if isinstance(self.policy, ModelPolicy):
            self.policy.model.to(device)

    def play(self) -> Figures:
        """Play to the end, and return the result."""
        started = clock(self.device)
        while self.played.steps < self.case.horizon:
            self.step()
            if self.phase % 25 == 0:
                say(f"{self.case}: step {self.played.steps}")
        return {**self.result(), **costs(self.device, started)}

    def step(self) -> None:
        """Play a phase."""
        self._learn()
        before = self.played.steps
        longest = max(STEPS, math.floor(self.case.growth * before))
        self._act(min(longest, self.case.horizon - before))
        self.phase += 1

    def result(self) -> Figures:
        """Return the regrets in percent of the uniform policy's regrets."""
        self._learn()
        contexts = draw_contexts(self._random("last"), FRESH)
        means = mean_rewards(contexts, self.case.delta)
        chosen = means[np.arange(FRESH), self.policy.guess(contexts).argmax(1)]
        best = means.max(1)
        simple = (best - chosen).mean() / (best - means.mean(1)).mean()
        regret, uniform = self.played.regret.cumsum(), self.played.uniform.cumsum()
        quarters = [int(len(regret) * k / 4) - 1 for k in (1, 2, 3, 4)]
        return {
            **asdict(self.case),
            "cumulative": 100 * float(regret[-1] / uniform[-1]),
            "simple": 100 * float(simple),
            "by_quarter": [100 * float(regret[i] / uniform[i]) for i in quarters],
            "phases": self.phase,
        }

    def _random(self, what: str) -> np.random.Generator:
        """Return a generator for one purpose and phase, independent of earlier draws."""
        code = {"act": 0, "reward": 1, "fit": 2, "draw": 3, "last": 4}[what]
        return np.random.default_rng([self.case.seed, self.phase, code])

    def _learn(self) -> None:
        """Let the policy learn from all rows."""
        seed = int(self._random("fit").integers(2**31))
        self.policy.learn(self.played.data(), self.case.gradient_steps, seed)

    def _act(self, steps: int) -> None:
        """Play steps by Thompson sampling."""
        contexts = draw_contexts(self._random("act"), steps)
        drawn = self.policy.draw(contexts, int(self._random("draw").integers(2**31)))
        actions = drawn.argmax(1)
        means = mean_rewards(contexts, self.case.delta)
        got = means[np.arange(steps), actions]
        noise = REWARD_SD * self._random("reward").standard_normal(steps)
        best, played = means.max(1), self.played
        self.played = Played(
            np.vstack([played.contexts, contexts]),
            np.concatenate([played.actions, actions]),
            np.concatenate([played.rewards, got + noise]),
            np.concatenate([played.regret, best - got]),
            np.concatenate([played.uniform, best - means.mean(1)]),
        )


def page(results: list[Figures]) -> str:
    """Return the Markdown of the results, with a section for each kind of run."""
    kinds: dict[tuple[Any, ...], list[Figures]] = {}
    for one in sorted(results, key=_kind):
        kinds.setdefault(_kind(one), []).append(one)
    sections = "\n".join(_section(rows) for rows in kinds.values())
    return f"""# The Wheel bandit

Rich, table 3; the paper has 10 seeds and 16,000 steps. A run plays phases of Thompson sampling.
Between two phases there are 100 gradient steps and one new posterior. Networks: 2 x 100 for last
layers, residual of width 100 and rank 100 for `vbll` and `dbk-silu`. `rich-bll-s` uses
{100 * SHARE:g} % of the rows. `linear` is the full posterior of a regression for each action (in
the paper: its diagonal).

Regret is that of expected rewards, in percent of the uniform policy's on the same contexts; it
includes the exploration, which has more weight in a short run. Simple regret is that of the action
with the highest posterior mean, on new contexts at the end. Mean ± standard error over seeds,
if there are several.
{_compared(results)}
## Differences from the paper

- **Phases.** In the paper, a phase has 20 steps, and the posterior is rebuilt at every gradient
  step. Here it is rebuilt once in each phase. This gives the same actions: they depend on the last
  posterior before the phase. Phases that grow differ: with a growth of 0.1 there are 57 phases and
  5,700 gradient steps instead of 80,000.
- **Draws.** The paper draws rewards "from the posterior over function values" (section 4.1) or from
  the predictive distribution of each action (appendix C.2). Here, f is drawn for all actions
  together, as in 4.1, or each reward by itself, with its noise.
- Neither decides between `bll` and `rich-bll`. With phases of {STEPS}, and with draws of rewards,
  the means differ by less than their errors or in favour of `bll`, unless runs of `bll` fail.
- **Optimiser.** Each phase starts Adam again, and keeps the epoch with the best log score of the
  last {WINDOW} rows. The paper says nothing of either.
- **`vbll`.** The paper has one posterior for each action, here there is one for all.
- **Scale.** Targets are divided by {REWARD_SCALE:g}, the largest reward. If they are standardised
  by the rows so far, first pulls without a large reward give posterior standard deviations near
  0.01 where the actions differ by 0.2, and only action 0 is played, at 120 % of the uniform regret.
- **Rates.** All parameters have the paper's learning rate. With ten times this rate for the
  posterior and the scale of the basis, `vbll` and `dbk-silu` fitted the few large rewards as noise,
  and the squared norm of their features fell to 0.
- **`neural-linear`** has one regression for each action, as in Riquelme et al. (2018). With one for
  all actions it played only action 0 at delta 0.95: the many rows of one action narrowed the
  posterior of the others.

The scale, the rates and the form of `neural-linear` were chosen on seed 0 with the deltas 0.5 and
0.95, so these lines are not independent of the choice.

{sections}"""


def _kind(one: Figures) -> tuple[Any, ...]:
    """Return what tells kinds of runs apart; the paper's comes first."""
    return -one["horizon"], one["growth"], one["draws"], one["gradient_steps"], one["width"]


def _section(rows: list[Figures]) -> str:
    """Return the section of the runs of one kind."""
    first, times = rows[0], times_of(rows[0])
    lines = []
    for delta, model in product(DELTAS, POLICIES):
        found = [r for r in rows if (r["model"], r["delta"]) == (model, delta)]
        if not found:
            continue
        cumulative, simple = (
            with_error([r[key] for r in found], 2) for key in ("cumulative", "simple")
        )
        quarters = ", ".join(f"{q:.1f}" for q in np.mean([r["by_quarter"] for r in found], axis=0))
        paper = dict(zip(DELTAS, PAPER.get(model, ()), strict=False)).get(delta)
        theirs = f"{paper[0]:.2f} ± {paper[1]:.2f}" if paper else ""
        seconds = f"{np.mean([r[times.key] for r in found]):.0f}"
        median = f"{np.median([r['cumulative'] for r in found]):.2f}"
        cells = (cumulative, median, quarters, simple, seconds, theirs)
        lines.append((f"{delta:g}", f"`{model}`", len(found), *cells))
    header = ("delta", "policy", "seeds", "cumulative", "median", "after each quarter", "simple")
    header = (*header, times.unit)
    header = (*header, "paper, cumulative")
    horizon, growth, draws = first["horizon"], first["growth"], first["draws"]
    length = f", or {growth:g} times the steps before it if that is more" if growth else ""
    where = f" Seconds are {times.wall}; linear regressions are on the CPU." if times.wall else ""
    return f"""## {horizon:,} steps, {_style(first)}

    python -m benchmarks networks.wheel --horizon {horizon} --growth {growth:g} --draws {draws} \\
        --seeds {len({r["seed"] for r in rows})}{times.option}

A phase has {STEPS} steps{length}: {first["phases"]} phases,
{first["phases"] * first["gradient_steps"]:,} gradient steps.{where}

{table(header, lines, left=(1, 5))}"""


def _style(one: Figures) -> str:
    """Return the phases and draws of a run in words."""
    phases = "phases that grow" if one["growth"] else f"phases of {STEPS}"
    return f"{phases}, draws of {one['draws']}"


def _compared(results: list[Figures]) -> str:
    """Return the cumulative regrets of runs of equal horizon with other phases and draws."""
    found: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for one in sorted(results, key=_kind):
        key = -one["horizon"], one["delta"], list(POLICIES).index(one["model"])
        kinds = found.setdefault(key, {})
        kinds.setdefault(_style(one), {})[one["seed"]] = one["cumulative"]
    found = {key: kinds for key, kinds in sorted(found.items()) if len(kinds) > 1}
    styles = list(dict.fromkeys(style for kinds in found.values() for style in kinds))
    lines = []
    for (horizon, delta, model), kinds in found.items():
        common = sorted(set[int].intersection(*map(set, kinds.values())))
        if common:
            regrets = [
                [kinds[style][seed] for seed in common] for style in styles if style in kinds
            ]
            means = iter(with_error(one, 2) for one in regrets)
            cells = (next(means) if style in kinds else "" for style in styles)
            policy = f"`{list(POLICIES)[model]}`"
            lines.append((f"{-horizon:,}", f"{delta:g}", policy, len(common), *cells))
    if not lines:
        return ""
    return f"""
## The same seeds with other phases and draws

Cumulative regret.

{table(("steps", "delta", "policy", "seeds", *styles), lines, left=(2,))}"""


def _joined(known: list[Figures], fresh: list[Figures]) -> list[Figures]:
    """Return all runs; a fresh one replaces a known one of the same case."""
    names = [field.name for field in fields(Case)]
    by_case = {tuple(one[name] for name in names): one for one in [*known, *fresh]}
    return list(by_case.values())


def main() -> None:
    """Play the runs whose files do not exist yet, and write the table after each run."""
    asked = parser(
        __doc__,
        out="wheel",
        table="wheel",
        devices=True,
        horizon=16000,
        seeds=1,
        gradient_steps=100,
        growth=0.025,
        models=POLICIES,
        json=False,
    )
    asked.add_argument("--draws", choices=DRAWS, default=FUNCTIONS, help="of Thompson sampling")
    asked.add_argument("--deltas", type=float, nargs="+", choices=DELTAS, default=DELTAS)
    options = asked.parse_args()
    results: list[Figures] = []
    folder = fits_on(options.device, options.out)
    kept_before = options.table / "results.json"
    known = json.loads(kept_before.read_text()) if kept_before.exists() else []
    for seed, delta, model in product(range(options.seeds), options.deltas, options.models):
        case = Case(
            model,
            delta,
            seed,
            options.horizon,
            options.gradient_steps,
            options.growth,
            draws=options.draws,
        )
        path = folder / ("-".join(str(value) for value in asdict(case).values()) + ".json")
        results.append(kept(path, lambda case=case: Run(case, options.device).play()))
        say(results[-1])
        all_runs = _joined(known, results)
        write_results(options.table, page(all_runs), all_runs)
    if options.json:
        print(json.dumps(results))

"""Policies of `wheel.py`: uniform, Bayesian linear regressions, and models of the catalogue.

A policy learns from all rewards so far, draws a reward for each action at each context (Thompson
sampling; a new function for each context), and guesses the mean rewards.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.script import Floats
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import JointPosterior, joint_posterior, posterior_given
from geogp.models.papers.last_layers.regression import enrich
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import Repeats

ACTIONS, BATCH, WINDOW = 5, 512, 400
"""Number of actions, rows of a gradient step, and latest rows, which choose the epoch."""

REWARD_SCALE = 50.0
"""The largest reward of the game, which is 1 for the models.

The first pulls often have no large reward. If targets are standardised by these rows, the prior
standard deviation is that of small rewards, 0.1, and Thompson sampling never finds a large one.
"""

SHARE = 0.3
"""Share of the rows in the subsampled form of ``rich-bll`` (Rich, appendix D)."""

FUNCTIONS, REWARDS = DRAWS = ("functions", "rewards")
"""What Thompson sampling draws: f at all actions together, or y for each action by itself.

The paper (appendix C.2) draws rewards from the predictive distribution of each action.
"""

PRECISION, SHAPE, RATE = 0.25, 6.0, 6.0
"""Prior of the linear regressions (Riquelme, Tucker and Snoek 2018): of weights and of noise."""

LEARNING_RATE = 3e-3
"""The paper's learning rate, for all parameters.

With ten times this rate for the posterior and the scale of the basis, as in `uci.py`, few rows with
a large reward are fitted as noise, both fall to 0, and neither has a gradient any more.
"""


def inputs(contexts: Floats, actions: np.ndarray) -> Floats:
    """Return contexts with one-hot actions, (n, 7)."""
    return np.hstack([contexts, np.eye(ACTIONS)[actions]])


def every_action(contexts: Floats) -> Floats:
    """Return the inputs of each context with each action, (5 n, 7)."""
    n = len(contexts)
    return inputs(np.repeat(contexts, ACTIONS, axis=0), np.tile(np.arange(ACTIONS), n))


class Policy(ABC):
    """Interface of a policy."""

    @abstractmethod
    def learn(self, rows: Data, gradient_steps: int, seed: int) -> None:
        """Learn from all rows: inputs of `inputs` (n, 7), and rewards (n,)."""

    @abstractmethod
    def draw(self, contexts: Floats, seed: int) -> Floats:
        """Return rewards drawn for each action, (n, 5)."""

    @abstractmethod
    def guess(self, contexts: Floats) -> Floats:
        """Return the posterior mean of the reward of each action, (n, 5)."""


class UniformPolicy(Policy):
    """Every action has the same probability."""

    def learn(self, rows: Data, gradient_steps: int, seed: int) -> None:
        """Learn nothing."""

    def draw(self, contexts: Floats, seed: int) -> Floats:
        """Return uniform random numbers."""
        return np.random.default_rng(seed).uniform(size=(len(contexts), ACTIONS))

    def guess(self, contexts: Floats) -> Floats:
        """Return uniform random numbers."""
        return self.draw(contexts, 0)


class Regression:
    """Bayesian linear regression with a normal-inverse-gamma prior on weights and noise.

    s² ~ InvGamma(6, 6), w | s² ~ N(0, 4 s² I). Posterior: P = X'X + I/4, m = P^(-1) X'y, a = 6 +
    n/2, b = 6 + ½ (y'y - m'P m).
    """

    def __init__(self, X: Floats, y: Floats) -> None:
        P = X.T @ X + PRECISION * np.eye(X.shape[1])
        self.m = np.linalg.solve(P, X.T @ y)
        self.root = np.linalg.inv(np.linalg.cholesky(P)).T
        self.shape = SHAPE + len(y) / 2
        self.rate = RATE + 0.5 * max(0.0, float(y @ y - self.m @ P @ self.m))

    def draw(self, X: Floats, rng: np.random.Generator) -> Floats:
        """Return x'w for a new draw of (w, s²) at each group of rows; X is (n, k, r), (n, k)."""
        n, _, r = X.shape
        sd = np.sqrt(self.rate / rng.gamma(self.shape, size=n))
        w = self.m + sd[:, None] * (rng.standard_normal((n, r)) @ self.root.T)
        return np.einsum("nkr,nr->nk", X, w)


class LinearPolicy(Policy):
    """A regression on (1, context) for each action."""

    def learn(self, rows: Data, gradient_steps: int, seed: int) -> None:  # noqa: ARG002
        """Solve the five regressions."""
        X, actions = _with_one(rows.x[:, :2]), rows.x[:, 2:].argmax(1)
        self.of = [Regression(X[actions == a], rows.y[actions == a]) for a in range(ACTIONS)]

    def draw(self, contexts: Floats, seed: int) -> Floats:
        """Draw from each regression."""
        rng, X = np.random.default_rng(seed), _with_one(contexts)[:, None]
        return np.hstack([one.draw(X, rng) for one in self.of])

    def guess(self, contexts: Floats) -> Floats:
        """Return the five means."""
        return np.column_stack([_with_one(contexts) @ one.m for one in self.of])


class ModelPolicy(Policy):
    """A model of the catalogue, and the closed-form posterior of its weights."""

    joint: JointPosterior

    def __init__(self, name: str, width: int, ground: Floats, draws: str = FUNCTIONS) -> None:
        self.draws = draws
        # Placement and range need rows over the whole disk; they use contexts but no rewards.
        sizes = Architecture(2 + ACTIONS, h=width, r=width)
        self.model: LowRankProcess = build(name, sizes, ground)
        self.model.y_sd.fill_(REWARD_SCALE)
        self.model.take_target = lambda _y: None  # the scale stays

    def learn(self, rows: Data, gradient_steps: int, seed: int) -> None:
        """Continue the fit; the last rows choose the epoch and give the noise."""
        settings = FitSettings(
            epochs=max(1, round(gradient_steps / math.ceil(len(rows.y) / BATCH))),
            batch=BATCH,
            decay="constant",
            clip=1.0,
            weight_decay=0.0,
            seed=seed,
            learning_rate=LEARNING_RATE,
        )
        fit(self.model, rows, Data(rows.x[-WINDOW:], rows.y[-WINDOW:]), settings)
        self.condition(rows, seed)

    def condition(self, rows: Data, _seed: int) -> None:
        """Find the posterior of the weights."""
        self.joint = joint_posterior(self.model, rows)

    def draw(self, contexts: Floats, seed: int) -> Floats:
        """Draw functions, one for each context, or rewards, each by itself and with its noise."""
        n, x = len(contexts), every_action(contexts)
        if self.draws == REWARDS:
            noise = float(self.model.noise()) * REWARD_SCALE**2
            sd = np.sqrt(self.joint.variance(x) + noise)
            drawn: Floats = self.joint.mean(x) + sd * np.random.default_rng(seed).standard_normal(
                len(x)
            )
            return drawn.reshape(n, ACTIONS)
        paths = self.joint.sample_paths(x, n, seed=seed)
        found: Floats = paths.reshape(n, n, ACTIONS)[np.arange(n), np.arange(n)]
        return found

    def guess(self, contexts: Floats) -> Floats:
        """Return the predictions' means."""
        found: Floats = self.model.predict(every_action(contexts)).mean
        return found.reshape(-1, ACTIONS)


class SubsampledPolicy(ModelPolicy):
    """``rich-bll``, with enrichment and posterior of a random share of the rows (Rich 21)."""

    def condition(self, rows: Data, seed: int) -> None:
        """Enrich ``bll`` by k rows, whose sums count n/k times."""
        n, model = len(rows.y), self.model
        k = min(n, max(model.basis.rank, math.ceil(SHARE * n)))
        x = model.scaled(rows.x)
        enough = k if k >= model.basis.rank else None
        model.enrichment.copy_(enrich(model.network, model.posterior.m, x, enough, seed=seed).L)
        chosen = model.as_rows(rows.at(np.random.default_rng(seed).permutation(n)[:k]))
        times = torch.full_like(chosen.y, n / k)
        weighted = chosen._replace(repeats=Repeats(times, torch.zeros_like(times)))
        self.joint = posterior_given(model, weighted)


class NeuralLinearPolicy(ModelPolicy):
    """A regression for each action, on the last hidden layer of ``bll`` (Riquelme et al. 2018).

    With one regression for all actions, the many rows of action 0 also narrow the posterior of the
    others, and from delta 0.95 on only action 0 is played.
    """

    def condition(self, rows: Data, _seed: int) -> None:
        """Solve the five regressions."""
        X, actions = self._features(rows.x), rows.x[:, 2:].argmax(1)
        self.of = [Regression(X[actions == a], rows.y[actions == a]) for a in range(ACTIONS)]

    def draw(self, contexts: Floats, seed: int) -> Floats:
        """Draw from each regression."""
        rng, X = np.random.default_rng(seed), self._by_action(contexts)
        return np.hstack([one.draw(X[:, [a]], rng) for a, one in enumerate(self.of)])

    def guess(self, contexts: Floats) -> Floats:
        """Return the five means."""
        X = self._by_action(contexts)
        return np.column_stack([X[:, a] @ one.m for a, one in enumerate(self.of)])

    def _features(self, x: Floats) -> Floats:
        return self.model.features(x) / REWARD_SCALE

    def _by_action(self, contexts: Floats) -> Floats:
        return self._features(every_action(contexts)).reshape(len(contexts), ACTIONS, -1)


def _with_one(contexts: Floats) -> Floats:
    return np.column_stack([np.ones(len(contexts)), contexts])


POLICIES: dict[str, Callable[[int, Floats, str], Policy]] = {
    "uniform": lambda *_: UniformPolicy(),
    "linear": lambda *_: LinearPolicy(),
    "neural-linear": partial(NeuralLinearPolicy, "bll"),
    "bll": partial(ModelPolicy, "bll"),
    "rich-bll": partial(ModelPolicy, "rich-bll"),
    "rich-bll-s": partial(SubsampledPolicy, "bll"),
    "vbll": partial(ModelPolicy, "vbll"),
    "dbk-silu": partial(ModelPolicy, "dbk-silu"),
}
"""Makers of the policies, from the width of the network, inputs over the whole disk, and `DRAWS`.

The regressions always draw functions.
"""

"""Deep ensembles and Monte Carlo dropout for regression: baselines of `scale_regression.py`.

The settings follow the papers: Lakshminarayanan, Pritzel and Blundell (2017) for ensembles, Gal and
Ghahramani (2016) for dropout; both have one hidden layer of 50 ReLU units on tables of this size.
Inputs and targets are standardised by the caller.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from trial import Floats

Loss = Callable[[Tensor, Tensor], Tensor]

UNITS = 50

ENSEMBLE = 5
"""Networks of an ensemble."""

PASSES = 200
"""Random networks that a dropout prediction averages over."""

PRECISIONS = np.geomspace(0.5, 500, 25)
"""Noise precisions of a standardised target among which the validation rows choose."""

RATES = (0.01, 0.05, 0.1)
"""Dropout rates among which the validation rows choose."""


@dataclass(frozen=True)
class NormalMixture:
    """Equal mixtures of k normal distributions at m points: means and variances, (k, m)."""

    means: Floats
    variances: Floats

    def log_score(self, y: Floats) -> Floats:
        """Return the negative log density of targets, (m,)."""
        parts = (y - self.means) ** 2 / self.variances + np.log(2 * math.pi * self.variances)
        found: Floats = math.log(len(parts)) - np.logaddexp.reduce(-parts / 2, 0)
        return found

    def mean(self) -> Floats:
        """Return the means, (m,)."""
        found: Floats = self.means.mean(0)
        return found

    def matched(self) -> "NormalMixture":
        """Return the normal distributions with the same means and variances, with k = 1."""
        variance = self.variances.mean(0) + self.means.var(0)
        return NormalMixture(self.mean()[None], variance[None])

    def interval(self, level: float, draws: int = 20) -> tuple[Floats, Floats]:
        """Return the central interval at each point, from `draws` draws of each component."""
        random = np.random.default_rng(0)
        noise = random.standard_normal((draws, *self.means.shape))
        values = (self.means + np.sqrt(self.variances) * noise).reshape(-1, self.means.shape[1])
        low, high = np.quantile(values, ((1 - level) / 2, (1 + level) / 2), axis=0)
        return low, high


def deep_ensemble(x: Floats, y: Floats, new: Floats, epochs: int, seed: int) -> NormalMixture:
    """Return predictions of `ENSEMBLE` networks with learned variances, matched by one normal."""
    torch.manual_seed(seed)
    found = []
    for _ in range(ENSEMBLE):
        network = nn.Sequential(nn.Linear(x.shape[1], UNITS), nn.ReLU(), nn.Linear(UNITS, 2))

        def loss(output: Tensor, target: Tensor) -> Tensor:
            variance = nn.functional.softplus(output[:, 1]) + 1e-6
            return ((output[:, 0] - target).square() / variance + variance.log()).mean() / 2

        train(network, x, y, loss, epochs, weight_decay=0.0)
        with torch.no_grad():
            output = network(torch.from_numpy(new).float()).double()
        found.append((output[:, 0], nn.functional.softplus(output[:, 1]) + 1e-6))
    means, variances = (torch.stack(part).numpy() for part in zip(*found, strict=True))
    return NormalMixture(means, variances).matched()


def dropout(
    rows: tuple[Floats, Floats],
    held_out: tuple[Floats, Floats],
    new: Floats,
    epochs: int,
    seed: int,
) -> NormalMixture:
    """Return mixtures over networks with random units dropped.

    The validation rows `held_out` choose the dropout rate and the noise precision. As in the paper,
    inputs and hidden units are dropped, and the weight decay is that of a prior of length 0.01.
    """
    best: tuple[float, NormalMixture] = (math.inf, NormalMixture(new[:1], new[:1]))
    for rate in RATES:
        torch.manual_seed(seed)
        network = nn.Sequential(
            *(nn.Dropout(rate), nn.Linear(new.shape[1], UNITS), nn.ReLU()),
            *(nn.Dropout(rate), nn.Linear(UNITS, 1)),
        )

        def loss(output: Tensor, target: Tensor) -> Tensor:
            return (output[:, 0] - target).square().mean()

        decay = 1e-4 * (1 - rate) / (2 * len(rows[0]))
        train(network, *rows, loss, epochs, weight_decay=decay)
        seen, means = (passes(network, x) for x in (held_out[0], new))
        for precision in PRECISIONS:
            law = NormalMixture(seen, np.full_like(seen, 1 / precision))
            score = float(law.log_score(held_out[1]).mean())
            if score < best[0]:
                best = score, NormalMixture(means, np.full_like(means, 1 / precision))
    return best[1]


def passes(network: nn.Module, x: Floats) -> Floats:
    """Return the outputs of `PASSES` random networks, (PASSES, m); the units stay dropped."""
    network.train()
    with torch.no_grad():
        tensor = torch.from_numpy(x).float()
        found = [network(tensor)[:, 0].double() for _ in range(PASSES)]
    return torch.stack(found).numpy()


def train(
    network: nn.Module, x: Floats, y: Floats, loss: Loss, epochs: int, *, weight_decay: float
) -> None:
    """Train with Adam on batches of 32 rows (128 if there are many)."""
    inputs, target = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    size = 32 if len(x) < 5000 else 128
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(size):
            optimiser.zero_grad()
            loss(network(inputs[part]), target[part]).backward()
            optimiser.step()
        schedule.step()

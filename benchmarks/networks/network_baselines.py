"""Deep ensembles, Monte Carlo dropout and SWAG for regression: baselines of other scripts.

The methods are those of Lakshminarayanan, Pritzel and Blundell (2017), Gal and Ghahramani (2016)
and Maddox et al. (2019). The usual `Recipe` follows the first two papers, which have one hidden
layer of 50 ReLU units on tables of this size. Inputs and targets are standardised by the caller.
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.trial import Floats

Loss = Callable[[Tensor, Tensor], Tensor]
Columns = tuple[Floats, Floats]
"""Inputs (n, d) and targets (n,)."""

UNITS = 50

ENSEMBLE = 5
"""Networks of an ensemble."""

PASSES = 200
"""Random networks that a dropout prediction averages over."""

PRECISIONS = np.geomspace(0.5, 500, 25)
"""Noise precisions of a standardised target among which the validation rows choose."""

RATES = (0.01, 0.05, 0.1)
"""Dropout rates among which the validation rows choose."""

SWAG_RATES = (1e-3, 3e-3, 1e-2)
"""Learning rates of SWAG among which the validation rows choose."""

SWAG_SHARE, SWAG_RANK, SWAG_NETWORKS = 0.25, 20, 30
"""Epochs of SWAG as a share of those of Adam, deviations it keeps, and networks it draws."""


@dataclass(frozen=True)
class Recipe:
    """Sizes and training of a network; with `chosen`, the held-out rows choose the epoch.

    `batch` is the number of rows in a step; by default 32, or 128 if there are many rows.
    """

    epochs: int
    layers: int = 1
    rate: float = 0.01
    decay: bool = True
    clip: float = math.inf
    batch: int | None = None
    chosen: bool = False

    def network(self, d: int, outputs: int = 1, dropped: float = 0.0) -> nn.Sequential:
        """Return a network with ReLU units; `dropped` is the dropout rate of inputs and units."""
        widths, parts = [d, *[UNITS] * self.layers], []
        for before, after in pairwise(widths):
            parts += [nn.Dropout(dropped), nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*parts, nn.Dropout(dropped), nn.Linear(UNITS, outputs))


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


def deep_ensemble(
    rows: Columns, held_out: Columns, new: Floats, recipe: Recipe, seed: int
) -> NormalMixture:
    """Return predictions of `ENSEMBLE` networks with learned variances, matched by one normal."""
    torch.manual_seed(seed)
    found = []
    for _ in range(ENSEMBLE):
        network = recipe.network(new.shape[1], outputs=2)

        def loss(output: Tensor, target: Tensor) -> Tensor:
            variance = nn.functional.softplus(output[:, 1]) + 1e-6
            return ((output[:, 0] - target).square() / variance + variance.log()).mean() / 2

        train(network, rows, held_out, loss, recipe)
        output = outputs(network, new)
        found.append((output[:, 0], nn.functional.softplus(output[:, 1]) + 1e-6))
    means, variances = (torch.stack(part).numpy() for part in zip(*found, strict=True))
    return NormalMixture(means, variances).matched()


def dropout(
    rows: Columns, held_out: Columns, new: Floats, recipe: Recipe, seed: int
) -> NormalMixture:
    """Return mixtures over networks with random units dropped.

    The validation rows `held_out` choose the dropout rate and the noise precision. As in the paper,
    inputs and hidden units are dropped, and the weight decay is that of a prior of length 0.01.
    """
    found = []
    for rate in RATES:
        torch.manual_seed(seed)
        network = recipe.network(new.shape[1], dropped=rate)
        decay = 1e-4 * (1 - rate) / (2 * len(rows[0]))
        train(network, rows, held_out, squared_error, recipe, weight_decay=decay)
        seen, means = (passes(network, x) for x in (held_out[0], new))
        found.append(with_noise(seen, held_out[1], means))
    return min(found, key=lambda one: one[0])[1]


def swag(rows: Columns, held_out: Columns, new: Floats, recipe: Recipe, seed: int) -> NormalMixture:
    """Return mixtures over networks drawn around the average of an SGD path, matched by one normal.

    After the usual training, SGD with a constant rate and momentum 0.9 passes `SWAG_SHARE` times
    the epochs over the rows. The weights have the mean, half of the variance and half of the
    covariance of the last `SWAG_RANK` deviations of its epochs. The validation rows choose the
    rate and the noise precision.
    """
    torch.manual_seed(seed)
    start = recipe.network(new.shape[1])
    train(start, rows, held_out, squared_error, recipe)
    epochs = max(2, round(SWAG_SHARE * recipe.epochs))
    found = []
    for rate in SWAG_RATES:
        torch.manual_seed(seed)
        network = deepcopy(start)
        optimiser = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
        how = replace(recipe, epochs=epochs, decay=False, clip=min(recipe.clip, 1.0))
        path = torch.stack(
            [
                nn.utils.parameters_to_vector(network.parameters()).detach().clone()
                for _ in steps(network, rows, squared_error, optimiser, how)
            ]
        )
        drawn = [draw_weights(path) for _ in range(SWAG_NETWORKS)]
        seen, means = (with_weights(network, drawn, x) for x in (held_out[0], new))
        found.append(with_noise(seen, held_out[1], means))
    return min(found, key=lambda one: one[0])[1].matched()


def draw_weights(path: Tensor) -> Tensor:
    """Return weights (p,) drawn from the law that SWAG makes of a path, (epochs, p)."""
    mean = path.mean(0)
    # The paper's deviations are from the running mean at the time.
    count = torch.arange(1, len(path) + 1, dtype=path.dtype)[:, None]
    low_rank = (path - path.cumsum(0) / count)[-SWAG_RANK:]
    spread = path.var(0, unbiased=False).sqrt() * torch.randn_like(mean)
    shared = torch.randn(len(low_rank)) @ low_rank / math.sqrt(max(1, len(low_rank) - 1))
    return mean + (spread + shared) / math.sqrt(2)


def with_weights(network: nn.Module, drawn: list[Tensor], x: Floats) -> Floats:
    """Return the outputs of a network with each of k vectors of weights, (k, m)."""
    found = []
    for weights in drawn:
        nn.utils.vector_to_parameters(weights, network.parameters())
        found.append(outputs(network, x)[:, 0])
    return torch.stack(found).numpy()


def with_noise(seen: Floats, y: Floats, means: Floats) -> tuple[float, NormalMixture]:
    """Return the best log score of the held-out rows, and the mixture with its noise precision.

    `seen` and `means` are the outputs of k networks at the held-out rows and at new rows.
    """
    scores = [
        float(NormalMixture(seen, np.full_like(seen, 1 / one)).log_score(y).mean())
        for one in PRECISIONS
    ]
    best = int(np.argmin(scores))
    return scores[best], NormalMixture(means, np.full_like(means, 1 / PRECISIONS[best]))


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error of the first output."""
    return (output[:, 0] - target).square().mean()


def outputs(network: nn.Module, x: Floats) -> Tensor:
    """Return the outputs of a network, (m, outputs), float64."""
    with torch.no_grad():
        found: Tensor = network(torch.from_numpy(x).float()).double()
    return found


def passes(network: nn.Module, x: Floats) -> Floats:
    """Return the outputs of `PASSES` random networks, (PASSES, m); the units stay dropped."""
    network.train()
    return torch.stack([outputs(network, x)[:, 0] for _ in range(PASSES)]).numpy()


def train(
    network: nn.Module,
    rows: Columns,
    held_out: Columns,
    loss: Loss,
    recipe: Recipe,
    *,
    weight_decay: float = 0.0,
) -> None:
    """Train with Adam; with `recipe.chosen`, keep the epoch with the least held-out loss."""
    rate = recipe.rate
    optimiser = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=weight_decay)
    x, y = (torch.from_numpy(part).float() for part in held_out)
    best, kept = math.inf, deepcopy(network.state_dict())
    for _ in steps(network, rows, loss, optimiser, recipe):
        if recipe.chosen:
            network.eval()
            with torch.no_grad():
                found = float(loss(network(x), y))
            network.train()
            if found < best:
                best, kept = found, deepcopy(network.state_dict())
    if recipe.chosen:
        network.load_state_dict(kept)


def steps(
    network: nn.Module,
    rows: Columns,
    loss: Loss,
    optimiser: torch.optim.Optimizer,
    recipe: Recipe,
) -> Iterator[None]:
    """Train, and yield after every epoch."""
    inputs, target = (torch.from_numpy(part).float() for part in rows)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.epochs)
    size = recipe.batch or (32 if len(inputs) < 5000 else 128)
    for _ in range(recipe.epochs):
        for part in torch.randperm(len(inputs)).split(size):
            optimiser.zero_grad()
            loss(network(inputs[part]), target[part]).backward()
            if recipe.clip < math.inf:
                nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
            optimiser.step()
        if recipe.decay:
            decay.step()
        yield


METHODS = {"ensemble": deep_ensemble, "dropout": dropout, "swag": swag}
"""Functions of training rows, held-out rows, new inputs, recipe and seed."""

"""Probabilistic backpropagation (PBP), a baseline of `scale_regression.py`.

The method is that of Hernández-Lobato and Adams (2015). Weights have independent normal
distributions. For each row, their moments are carried forward to the output. The log density of the
target, log Z, gives the update of assumed density filtering, m += v ∂log Z/∂m and v -= v²
((∂log Z/∂m)² - 2 ∂log Z/∂v). The noise precision is a gamma variable. Unlike in the paper, the
prior N(0, 6/5) of the weights is not refined after each pass.
"""

import math

import numpy as np
import torch
from torch import Tensor

from benchmarks.networks.network_baselines import UNITS, Columns, NormalMixture, Recipe
from benchmarks.trial import Floats

SHAPE = RATE = 6.0
"""Parameters of the gamma priors, of the noise precision and of the precision of the weights."""

MOST_STEPS = 20_000
"""Largest number of rows times passes."""


def linear(mean: Tensor, var: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the moments of (input, 1) w / sqrt(inputs + 1), for moments of inputs and weights."""
    mean = torch.cat([mean, torch.ones_like(mean[:, :1])], 1)
    var = torch.cat([var, torch.zeros_like(var[:, :1])], 1)
    k = mean.shape[1]
    return mean @ m / math.sqrt(k), (var @ (m.square() + v) + mean.square() @ v) / k


def rectified(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Return the moments of max(a, 0) for a normal a."""
    sd = var.sqrt()
    z = mean / sd
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    share = torch.special.ndtr(z)
    first = mean * share + sd * density
    second = (mean.square() + var) * share + mean * sd * density
    return first, (second - first.square()).clamp(min=1e-12)


class Weights:
    """Moments of the weights of one hidden layer, and the gamma law of the noise precision."""

    def __init__(self, d: int, units: int = UNITS) -> None:
        shapes = ((d + 1, units), (units + 1, 1))
        self.m = [torch.randn(shape, dtype=torch.float64) / math.sqrt(shape[0]) for shape in shapes]
        self.v = [torch.full_like(m, RATE / (SHAPE - 1)) for m in self.m]
        self.shape, self.rate = SHAPE, RATE

    def output(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of the output at inputs (n, d), (n,) each."""
        mean, var = x, torch.zeros_like(x)
        mean, var = rectified(*linear(mean, var, self.m[0], self.v[0]))
        mean, var = linear(mean, var, self.m[1], self.v[1])
        return mean[:, 0], var[:, 0]

    @property
    def noise(self) -> float:
        """Mean of the noise variance."""
        return self.rate / (self.shape - 1)

    def learn(self, x: Tensor, y: float) -> None:
        """Update all moments by one row, (1, d)."""
        values = [*self.m, *self.v]
        for value in values:
            value.requires_grad_()
        mean, var = self.output(x)
        score = log_normal(y, mean, var + self.noise)[0]
        gradients = torch.autograd.grad(score, values)
        for value in values:
            value.requires_grad_(requires_grad=False)
        for m, v, by_m, by_v in zip(self.m, self.v, gradients[:2], gradients[2:], strict=True):
            smaller = v - v.square() * (by_m.square() - 2 * by_v)
            kept = smaller > 0
            m.add_(torch.where(kept, v * by_m, 0.0))
            v.copy_(torch.where(kept, smaller, v))
        self._learn_noise(y, mean.detach(), var.detach())

    def _learn_noise(self, y: float, mean: Tensor, var: Tensor) -> None:
        # Matches the first two moments of the precision (equations 12 and 13 of the paper).
        a, b = self.shape, self.rate
        z, z1, z2 = (
            float(log_normal(y, mean, var + variance)[0])
            for variance in (b / (a - 1), b / a, b / (a + 1))
        )
        first, second = math.exp(z1 - z), math.exp(z2 - z1)
        shape = 1 / (math.exp(z + z2 - 2 * z1) * (a + 1) / a - 1)
        rate = 1 / (second * (a + 1) / b - first * a / b)
        if shape > 1 and rate > 0 and math.isfinite(shape + rate):
            self.shape, self.rate = shape, rate


def log_normal(y: float | Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Return the log density of a normal variable."""
    return -0.5 * ((y - mean).square() / var + (2 * math.pi * var).log())


def pbp(rows: Columns, held_out: Columns, new: Floats, recipe: Recipe, seed: int) -> NormalMixture:
    """Return the normal predictions of the last pass; the held-out rows are not used."""
    del held_out
    torch.manual_seed(seed)
    x, y = (torch.from_numpy(part) for part in rows)
    found = Weights(x.shape[1])
    for _ in range(max(1, min(recipe.epochs, MOST_STEPS // len(x)))):
        for row in torch.randperm(len(x)).tolist():
            found.learn(x[row : row + 1], float(y[row]))
    mean, var = found.output(torch.from_numpy(new))
    return NormalMixture(mean.numpy()[None], np.asarray(var + found.noise)[None])

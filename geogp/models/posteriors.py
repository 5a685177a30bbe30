"""Posteriors over the weights w of f(x) = m0 + <w, phi(x)>, with prior w ~ N(0, I)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Moments(NamedTuple):
    """Mean <m, phi> and variance ||L' phi||² of the weighted basis, each (b,)."""

    mean: Tensor
    variance: Tensor


class VariationalPosterior(nn.Module):
    """q(w) = N(m, L L') with L lower triangular, its diagonal positive (DBK appendix B).

    m starts at 0, log diag L at -½ log r, the rest of L at standard normals divided by r.

    Parameters
    ----------
    r
        Number of weights.
    generator
        Source of the initial off-diagonal values.
    """

    def __init__(self, r: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(r, dtype=dtype))
        self.log_diagonal = nn.Parameter(torch.full((r,), -0.5 * math.log(r), dtype=dtype))
        self.lower = nn.Parameter(torch.randn(r, r, generator=generator, dtype=dtype).tril(-1) / r)

    def cholesky(self) -> Tensor:
        """Return L, shape (r, r)."""
        return self.lower.tril(-1) + torch.diag(self.log_diagonal.exp())

    def moments(self, phi: Tensor) -> Moments:
        """Return mean and variance of <w, phi> for features (b, r)."""
        return Moments(phi @ self.m, (phi @ self.cholesky()).square().sum(1))

    def kl(self) -> Tensor:
        """KL(N(m, LL') || N(0, I)) = ½ (||L||_F² + ||m||² - r - 2 Σ log L_ii), a scalar."""
        r = len(self.m)
        squares = self.cholesky().square().sum() + self.m.square().sum()
        return 0.5 * (squares - r) - self.log_diagonal.sum()

"""Table 1 of Mixed: how alike the kernels of four activations are as functions of the correlation.

With variances 1 on both sides each expectation E[ψ(Z) ψ(Z')] is a curve over rho = Cov(Z, Z').
Pearson's correlation of two curves takes out their means and scales ("after centering and
normalization"). The paper states no grid of rho: points at equal distances, finely enough that
more of them change nothing, give its figures.
"""

import numpy as np
import torch
from trial import Figures, Floats

from geogp.models.bases.kernels import (
    LeakyReluKernel,
    OneLayerKernel,
    ReluKernel,
    SigmoidKernel,
    TanhKernel,
)

POINTS = 20_001

PAIRS: tuple[tuple[str, OneLayerKernel, OneLayerKernel], ...] = (
    ("tanh, sigmoid", TanhKernel(), SigmoidKernel()),
    ("ReLU, leaky ReLU with alpha = 0.1", ReluKernel(), LeakyReluKernel(alpha=0.1)),
    ("ReLU, leaky ReLU with alpha = 0.3", ReluKernel(), LeakyReluKernel(alpha=0.3)),
)
"""The pairs of table 1."""


def curve(kernel: OneLayerKernel, rho: Floats) -> Floats:
    """Return E[ψ(Z) ψ(Z')] for variances 1 and covariances rho, (n,)."""
    one = torch.ones(len(rho), dtype=torch.float64)
    with torch.no_grad():
        inner = kernel.expectation(one, torch.from_numpy(rho), one)
        terms = [w * term for w, term in zip(inner.weights, inner.terms, strict=True)]
    found: Floats = inner.constant + torch.stack(terms).sum(0).numpy()
    return found


def likeness(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation of two curves."""
    return float(np.corrcoef(first, second)[0, 1])


def shape_figures(points: int = POINTS) -> Figures:
    """Return the correlations over rho in [-1, 1], as in the paper, and in [0, 1]."""
    ranges = {"whole": np.linspace(-1, 1, points), "half": np.linspace(0, 1, points)}
    lines = [
        {
            "pair": name,
            **{of: likeness(curve(a, rho), curve(b, rho)) for of, rho in ranges.items()},
        }
        for name, a, b in PAIRS
    ]
    return {"points": points, "lines": lines}

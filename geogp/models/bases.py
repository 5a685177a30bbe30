"""Basis functions phi: what the kernel k(x, x') = <phi(x), phi(x')> is made of.

Symbols follow Zhu, Yuchi and Xie, "Scalable Deep Basis Kernel Gaussian Processes" (DBK).
"""

import logging
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from geogp.errors import NumericalError
from geogp.models.linalg import jittered_cholesky

logger = logging.getLogger(__name__)

RESIDUAL_TOLERANCE = 1e-5
"""A Nyström residual this far below zero, relative to the prior variance, counts as 0."""

FEATURE_JITTER = 1e-6
"""Relative jitter of Kzz among learned features."""

COORDINATE_JITTER = 1e-4
"""Relative jitter of Kzz among raw coordinates, where inducing points lie closer."""


@dataclass(frozen=True)
class Features:
    """Features of a batch.

    Attributes
    ----------
    phi
        Basis functions, shape (b, r).
    residual
        k~(x, x) - ||phi(x)||², the prior variance that the basis misses, shape (b,);
        0 for bases that are not an approximation of another kernel.
    """

    phi: Tensor
    residual: Tensor


class Backbone(nn.Module):
    """Residual network g: R^d -> R^h of DBK, appendix B.

    A linear map to h dimensions, residual blocks [LayerNorm, linear, SiLU, linear, + input],
    then LayerNorm and SiLU.

    Parameters
    ----------
    d, h
        Input dimension and width.
    blocks
        Number of residual blocks.
    """

    def __init__(self, d: int, h: int, blocks: int = 2) -> None:
        super().__init__()
        self.project = nn.Linear(d, h)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h))
            for _ in range(blocks)
        )
        self.finish = nn.Sequential(nn.LayerNorm(h), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (b, d) to features (b, h)."""
        hidden = self.project(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.finish(hidden)  # type: ignore[no-any-return]


class InducingBasis(nn.Module):
    """Inducing points under an RBF kernel, on raw inputs or on a network's features.

    k~(a, b) = s² exp(-½ Σ_j (a_j - b_j)² / l_j²)  (DBK equation 16) and
    phi(x) = Lz^(-1) k~_Z(g(x)) with Lz the lower Cholesky factor of k~_ZZ (equation 12).

    Parameters
    ----------
    anchors
        Inducing points Z in the space of the network's output, or of the inputs where there is
        no network, shape (r, h) or (r, d).
    backbone
        The network g, or None for the RBF kernel on the inputs themselves.
    jitter
        Relative jitter of k~_ZZ; None takes 1e-6 with a network and 1e-4 without.
    """

    def __init__(
        self, anchors: Tensor, backbone: nn.Module | None = None, *, jitter: float | None = None
    ) -> None:
        super().__init__()
        if jitter is None:
            jitter = COORDINATE_JITTER if backbone is None else FEATURE_JITTER
        self.backbone = backbone
        self.jitter = jitter
        self.anchors = nn.Parameter(anchors.clone())
        dimension = anchors.shape[1]
        self.log_lengthscale = nn.Parameter(
            torch.full((dimension,), 0.5 * math.log(dimension), dtype=anchors.dtype)
        )
        self.log_variance = nn.Parameter(torch.zeros((), dtype=anchors.dtype))

    @property
    def rank(self) -> int:
        """Number r of basis functions."""
        return self.anchors.shape[0]

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the kernel part runs in float64.

        Raises
        ------
        NumericalError
            k~_ZZ does not factorise, or the basis exceeds the kernel by more than rounding.
        """
        mapped = x if self.backbone is None else self.backbone(x)
        lengthscale = self.log_lengthscale.double().exp()
        Z = self.anchors.double() / lengthscale
        X = mapped.double() / lengthscale
        variance = self.log_variance.double().exp()
        Lz, _ = jittered_cholesky(_rbf(Z, Z, variance), self.jitter)
        phi = torch.linalg.solve_triangular(Lz, _rbf(Z, X, variance), upper=False).T
        residual = variance - phi.square().sum(1)
        return Features(phi.to(x.dtype), self._checked(residual, variance).to(x.dtype))

    def _checked(self, residual: Tensor, variance: Tensor) -> Tensor:
        below = residual.detach() < 0
        if bool(below.any()):
            lowest = float(residual.detach().min() / variance.detach())
            if lowest < -RESIDUAL_TOLERANCE:
                raise NumericalError(
                    f"the basis exceeds its kernel by {-lowest:.2g} of the prior variance, "
                    f"expected at most {RESIDUAL_TOLERANCE:g}. Raise the jitter."
                )
            logger.info("%d residual variances below zero by rounding count as 0", int(below.sum()))
        return residual.clamp(min=0)


def _rbf(A: Tensor, B: Tensor, variance: Tensor) -> Tensor:
    """RBF kernel of rows already divided by the lengthscales; (a, d), (b, d) -> (a, b)."""
    squared = A.square().sum(1)[:, None] + B.square().sum(1)[None, :] - 2 * A @ B.T
    return variance * torch.exp(-0.5 * squared.clamp(min=0))


Placement = Literal["kmeans", "farthest", "uniform"]


def place_anchors(x: Tensor, r: int, placement: Placement, generator: torch.Generator) -> Tensor:
    """Choose r points among or between the inputs, over space and never by row order.

    Parameters
    ----------
    x
        Inputs, shape (n, d). Repeated rows count once for ``farthest``.
    r
        Number of points.
    placement
        ``kmeans``: centres of Lloyd's algorithm; ``farthest``: each next point is the input
        farthest from those chosen; ``uniform``: the papers' draw from [-1, 1]^d.
    generator
        Source of randomness.

    Returns
    -------
    Tensor, shape (r, d), dtype of x
    """
    if placement == "uniform":
        return torch.rand(r, x.shape[1], generator=generator, dtype=x.dtype) * 2 - 1
    distinct = torch.unique(x, dim=0)
    distinct = distinct[torch.randperm(len(distinct), generator=generator)]
    if len(distinct) <= r:
        extra = torch.rand(r - len(distinct), x.shape[1], generator=generator, dtype=x.dtype)
        return torch.cat([distinct, extra * 2 - 1])
    if placement == "farthest":
        return _farthest(distinct, r)
    return _lloyd(x, distinct[:r].clone(), generator)


def _farthest(points: Tensor, r: int) -> Tensor:
    chosen = [0]
    distance = (points - points[0]).square().sum(1)
    for _ in range(r - 1):
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(1))
    return points[chosen]


def _lloyd(
    x: Tensor, centres: Tensor, generator: torch.Generator, *, rounds: int = 10, most: int = 20_000
) -> Tensor:
    """Improve centres by k-means on at most `most` rows; an empty cell keeps its centre."""
    rows = x[torch.randperm(len(x), generator=generator)[:most]]
    for _ in range(rounds):
        nearest = torch.cat([torch.cdist(part, centres).argmin(1) for part in rows.split(4096)])
        count = torch.bincount(nearest, minlength=len(centres)).to(x.dtype)
        total = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], centres)
    return centres

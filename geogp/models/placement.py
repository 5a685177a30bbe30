"""Where inducing points start: over space, never by row order."""

from typing import Literal, get_args

import torch
from torch import Tensor

from geogp.errors import RequestError

Placement = Literal["kmeans", "farthest", "uniform"]

PLACEMENTS: tuple[str, ...] = get_args(Placement)


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

    Raises
    ------
    RequestError
        No such placement.
    """
    if placement not in PLACEMENTS:
        raise RequestError(
            f"unknown placement {placement!r}; choose one of {', '.join(PLACEMENTS)}."
        )
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

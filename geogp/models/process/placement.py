"""Initial inducing points: spread over space, and independent of the order of the rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.models.options import PLACEMENTS, Placement

MAX_CANDIDATES = 20_000
"""Largest number of distinct inputs from which pivots are drawn.

If there are more inputs, pivots are drawn from a random subset of `MAX_CANDIDATES` inputs.
"""

NEGLIGIBLE = 1e-12
"""Smallest share of its prior variance that an input must retain to become a pivot."""

PriorKernel = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]
"""Functions k(a, b) and k(a, a)."""


def place_anchors(
    x: Tensor,
    r: int,
    placement: Placement,
    generator: torch.Generator,
    kernel: PriorKernel | None = None,
) -> Tensor:
    """Return r points among or between inputs x (n, d), as an array (r, d) in the dtype of x.

    ``kmeans``: centres of Lloyd's algorithm.
    ``kmeans++``: inputs drawn one by one, with probability proportional to the squared distance
        from the drawn inputs (Arthur and Vassilvitskii 2007).
    ``farthest``: each next point is the input farthest from the chosen points.
    ``pivoted``: inputs drawn one by one, with probability proportional to the prior variance given
        the drawn inputs (randomly pivoted Cholesky; Chen, Epperly, Tropp and Webber 2022).
    ``uniform``: uniform draws from [-1, 1]^d, as in the papers.
    ``first``: the first distinct rows; only for comparison with a paper.

    Raises RequestError if the placement is unknown, or is ``pivoted`` without a kernel.
    """
    one_of("placement", placement, PLACEMENTS)
    if placement == "uniform":
        return torch.rand(r, x.shape[1], generator=generator, dtype=x.dtype) * 2 - 1
    if placement == "pivoted" and kernel is None:
        raise RequestError(
            "placement pivoted needs a fixed kernel; for learned inducing points, choose kmeans, "
            "kmeans++, farthest or uniform."
        )
    distinct, rows = torch.unique(x, dim=0, return_inverse=True)
    if placement == "first":
        earliest = torch.full((len(distinct),), len(x)).scatter_reduce(
            0, rows, torch.arange(len(x)), "amin"
        )
        distinct = distinct[earliest.argsort()]
    else:
        distinct = distinct[torch.randperm(len(distinct), generator=generator)]
    if len(distinct) <= r:
        extra = torch.rand(r - len(distinct), x.shape[1], generator=generator, dtype=x.dtype)
        return torch.cat([distinct, extra * 2 - 1])
    if kernel is not None and placement == "pivoted":
        return _pivoted(distinct[:MAX_CANDIDATES], r, kernel, generator)
    choose: dict[str, Callable[[], Tensor]] = {
        "first": lambda: distinct[:r],
        "farthest": lambda: farthest_points(distinct, r),
        "kmeans++": lambda: _plus_plus(distinct, r, generator),
        "kmeans": lambda: _lloyd(x, distinct[:r].clone(), generator),
    }
    return choose[placement]()


def farthest_points(points: Tensor, r: int) -> Tensor:
    """Return r of the points (n, d): the first, then always the point farthest from the chosen."""
    chosen = [0]
    distance = (points - points[0]).square().sum(1)
    for _ in range(r - 1):
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(1))
    return points[chosen]


def _plus_plus(points: Tensor, r: int, generator: torch.Generator) -> Tensor:
    chosen = [0]
    distance = (points - points[0]).square().sum(1).double()
    for _ in range(r - 1):
        chosen.append(int(torch.multinomial(distance, 1, generator=generator)))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(1))
    return points[chosen]


@torch.no_grad()
def _pivoted(points: Tensor, r: int, kernel: PriorKernel, generator: torch.Generator) -> Tensor:
    """Choose points by randomly pivoted Cholesky, with an (n, r) float64 factor in memory."""
    covariance, variance = kernel
    left = variance(points).double().clone()
    negligible = NEGLIGIBLE * left.sum()
    factor = torch.zeros(len(points), r, dtype=torch.float64)
    chosen: list[int] = []
    for column in range(r):
        if left.sum() <= negligible:
            # The chosen points reach the rank of the kernel, so all other points are equally good.
            rest = torch.ones(len(points)).index_fill(0, torch.tensor(chosen), 0.0)
            more = torch.multinomial(rest, r - column, generator=generator)
            return points[[*chosen, *more.tolist()]]
        pivot = int(torch.multinomial(left, 1, generator=generator))
        chosen.append(pivot)
        columns = factor[:, :column]
        remaining = covariance(points, points[[pivot]])[:, 0].double() - columns @ columns[pivot]
        factor[:, column] = remaining / left[pivot].sqrt()
        left = (left - factor[:, column].square()).clamp(min=0)
        left[chosen] = 0.0
    return points[chosen]


def _lloyd(
    x: Tensor, centres: Tensor, generator: torch.Generator, *, rounds: int = 10, most: int = 20_000
) -> Tensor:
    """Improve centres by k-means on at most `most` rows; the centre of an empty cluster stays."""
    rows = x[torch.randperm(len(x), generator=generator)[:most]]
    for _ in range(rounds):
        nearest = torch.cat([torch.cdist(chunk, centres).argmin(1) for chunk in rows.split(4096)])
        count = torch.bincount(nearest, minlength=len(centres)).to(x.dtype)
        total = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], centres)
    return centres

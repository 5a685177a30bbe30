"""The change of the level from one quarter to the next, and beyond the times of the rows."""

import torch
from torch import Tensor

MOST_TIMES = 32
"""Largest number of times whose levels are compared."""

LEAST_ROWS = 4
"""With fewer rows per time than this, there are fewer times."""


def level_drift(times: Tensor, values: Tensor) -> Tensor:
    """Return the variance and the squared mean of the change of the level per quarter, (2,).

    Both come from the changes of the mean of `values` between successive times, less the sampling
    variance of the means. If there are more than `MOST_TIMES` times, or fewer than `LEAST_ROWS`
    rows per time, successive times are joined in equal intervals. With two times, the squared mean
    is 0; with one time, both results are 0. `times` (n,) are quarters; `values` (n,) are
    measurements minus their shift, float64.
    """
    times, number = _joined_times(times)
    if len(times) < 2:
        return torch.zeros(2, dtype=torch.float64)
    count = torch.bincount(number)
    level = torch.bincount(number, values) / count
    square = (values - level[number]).square()
    # A single row at a time does not show how much rows of that time differ.
    several_rows = (count - 1).sum()
    pooled = square.sum() / several_rows if several_rows else values.var()
    sampling = torch.bincount(number, square) / count.square()
    sampling = torch.where(count > 1, sampling, pooled)
    quarters = times.diff()
    several = len(times) > 2
    slope = (level[-1] - level[0]) / quarters.sum() if several else torch.zeros_like(level[0])
    unexplained = (level.diff() - slope * quarters).square() - sampling[1:] - sampling[:-1]
    variance = (unexplained / quarters).sum() / (len(quarters) - several)
    trend = slope.square() - (sampling[-1] + sampling[0]) / quarters.sum().square()
    return torch.stack([variance, several * trend]).clamp(min=0)


def _joined_times(times: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct times, or the mean times of intervals, and the number of each row's."""
    distinct, number = torch.unique(times, return_inverse=True)
    most = min(MOST_TIMES, max(len(times) // LEAST_ROWS, 2))
    if len(distinct) <= most:
        return distinct, number
    edges = torch.linspace(float(distinct[0]), float(distinct[-1]), most + 1)[1:-1]
    _, number = torch.unique(
        torch.bucketize(times.contiguous(), edges.to(times)), return_inverse=True
    )
    return torch.bincount(number, times) / torch.bincount(number), number


def drift_factor(away: Tensor, drift: Tensor) -> Tensor:
    """Return R (n, q) with R R' the covariance of the drift of the level at n times.

    `away` (n,) are quarters after the last time of the rows, negative before the first, and 0
    between. `drift` (2,) is the variance v and the squared mean g of the change per quarter. The
    drift is a random walk with an unknown slope: Cov = v min(|s|, |t|) [same side] + g s t.
    """
    times, number = torch.unique(away, return_inverse=True)
    size = times.abs()
    same = (times[:, None] * times > 0).to(times.dtype)
    walk = torch.minimum(size[:, None], size) * same
    variance, directions = torch.linalg.eigh(drift[0] * walk + drift[1] * times[:, None] * times)
    factor: Tensor = directions * variance.clamp(min=0).sqrt()
    return factor[number]

"""The change of the level from one quarter to the next, and beyond the times of the rows."""

import torch
from torch import Tensor

MOST_TIMES = 32
"""Largest number of intervals of time."""

LEAST_ROWS = 4
"""With fewer rows per time on average, the levels of intervals of time are compared."""


def level_drift(times: Tensor, values: Tensor) -> Tensor:
    """Return the variance and the squared mean of the change of the level per quarter, (2,).

    Both come from the changes of the mean of `values` between successive times, less the sampling
    variance of the means. With fewer than `LEAST_ROWS` rows per time, the means are over intervals
    of equal length h. Such means of a random walk differ less than the walk: their difference over
    a time of t has a variance of t - h / 3 quarters. With two times, the squared mean is 0; with
    one time, both results are 0. `times` (n,) are quarters; `values` (n,) are measurements minus
    their shift, float64.
    """
    times, number, length = _times_or_intervals(times)
    if len(times) < 2:
        return torch.zeros(2, dtype=torch.float64)
    count = torch.bincount(number)
    level = torch.bincount(number, values) / count
    square = (values - level[number]).square()
    # A single row at a time does not show how much rows of that time differ.
    others = (count - 1).sum()
    pooled = square.sum() / others if others else values.var()
    sampling = torch.bincount(number, square) / count.square()
    sampling = torch.where(count > 1, sampling, pooled)
    quarters = times.diff()
    several = len(times) > 2
    slope = (level[-1] - level[0]) / quarters.sum() if several else torch.zeros_like(level[0])
    unexplained = (level.diff() - slope * quarters).square() - sampling[1:] - sampling[:-1]
    variance = (unexplained / (quarters - length / 3)).sum() / (len(quarters) - several)
    trend = slope.square() - (sampling[-1] + sampling[0]) / quarters.sum().square()
    return torch.stack([variance, several * trend]).clamp(min=0)


def _times_or_intervals(times: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return times in ascending order, the number of each row's time, and the intervals' length.

    The times are the distinct times, with a length of 0, or the centres of intervals with rows.
    """
    distinct, number = torch.unique(times, return_inverse=True)
    most = max(len(times) // LEAST_ROWS, 2)
    if len(distinct) <= most:
        return distinct, number, 0.0
    intervals = min(MOST_TIMES, most)
    edges = torch.linspace(float(distinct[0]), float(distinct[-1]), intervals + 1).to(times)
    interval = torch.bucketize(times.contiguous(), edges[1:-1])
    used, number = torch.unique(interval, return_inverse=True)
    centres = (edges[1:] + edges[:-1])[used] / 2
    return centres, number, float(edges[1] - edges[0])


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

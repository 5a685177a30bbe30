"""The change of the level from one quarter to the next, and beyond the times of the rows."""

import torch
from torch import Tensor


def level_drift(times: Tensor, values: Tensor) -> Tensor:
    """Return the variance and the squared mean of the change of the level per quarter, (2,).

    Both come from the changes of the mean of `values` between successive times, less the sampling
    variance of the means. With two times, the squared mean is 0; with one time, both results are 0.
    `times` (n,) are quarters; `values` (n,) are measurements minus their shift, float64.
    """
    times, number = torch.unique(times, return_inverse=True)
    if len(times) < 2:
        return torch.zeros(2, dtype=torch.float64)
    count = torch.bincount(number)
    level = torch.bincount(number, values) / count
    sampling = torch.bincount(number, (values - level[number]).square()) / count.square()
    quarters = times.diff()
    several = len(times) > 2
    slope = (level[-1] - level[0]) / quarters.sum() if several else torch.zeros_like(level[0])
    unexplained = (level.diff() - slope * quarters).square() - sampling[1:] - sampling[:-1]
    variance = (unexplained / quarters).sum() / (len(quarters) - several)
    trend = slope.square() - (sampling[-1] + sampling[0]) / quarters.sum().square()
    return torch.stack([variance, several * trend]).clamp(min=0)


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

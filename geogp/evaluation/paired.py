"""Mean differences between two predictions of the same rows, and their standard errors.

Rows close together have similar errors, so the bootstrap draws blocks, not rows. Let s_b be the sum
of the differences in block b, and n_b the number of rows in block b. The mean difference is the
ratio d = sum s_b / sum n_b. Each bootstrap sample has as many blocks as the data, drawn with
replacement, and gives one ratio. The standard error s of d is the standard deviation of the ratios
(Davison and Hinkley 1997, sections 2.4 and 3.8) times sqrt(B / (B - 1)). The factor corrects the
bias for B blocks of equal size. The interval is from d - t s to d + t s, with t the 97.5 % quantile
of Student's t with B - 1 degrees of freedom. B is the effective number of blocks, (sum n_b)^2 / sum
n_b^2 (Kish 1965), because a few large blocks among many small blocks contain less information than
the number of blocks suggests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geogp.arrays import Floats, Numbers

DRAWS = 1000
"""Number of bootstrap samples."""

FEW_BLOCKS = 5
"""Smallest effective number of blocks for which a standard error is computed."""

SHARE = 0.05
"""Largest probability that `mark` marks an estimate without a true difference."""

_TWO_SIDED = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean difference between two predictions, with its standard error and 95 % interval.

    `value` is None if a difference is not finite. The other numbers are None if `value` is None or
    there are too few blocks. `p` is the two-sided p-value. The function `mark` sets `marked`.
    """

    value: float | None
    error: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    marked: bool = False


def paired_estimates(
    differences: Floats, blocks: Numbers, *, draws: int = DRAWS, seed: int = 0
) -> list[Estimate]:
    """Return estimates of k mean differences, from the differences of n rows, (n, k).

    `blocks` (n,) contains the block of each row. All k estimates use the same bootstrap samples.
    """
    finite = np.isfinite(np.abs(differences).max(0))
    _, block = np.unique(blocks, return_inverse=True)
    sizes = np.bincount(block).astype(np.float64)
    sums = sums_by_block(np.where(finite, differences, 0.0), block, len(sizes))
    value = sums.sum(0) / sizes.sum()
    number = float(effective_blocks(sizes))
    if number < FEW_BLOCKS:
        found = [Estimate(float(one)) for one in value]
    else:
        weights = _samples(len(sizes), draws, seed)
        ratios = (weights @ sums) / (weights @ sizes)[:, None]
        error = ratios.std(0, ddof=1) * widening(number)
        pairs = zip(value, error, strict=True)
        found = [_estimate(float(one), float(sure), number - 1) for one, sure in pairs]
    return [one if usable else Estimate(None) for one, usable in zip(found, finite, strict=True)]


def mark(family: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates of a family, and mark the significant ones by Holm's (1979) procedure.

    Let p_(j) be the j-th smallest of m p-values. Let i be the largest number for which p_(j) <=
    0.05 / (m - j + 1) for every j <= i. Then the estimates 1 to i are marked. With a probability
    of 95 % or more, no estimate without a true difference is marked.
    """
    members = [place for place, one in enumerate(family) if one.p is not None]
    found = list(family)
    ordered = sorted(members, key=lambda place: family[place].p or 0.0)
    for taken, place in enumerate(ordered):
        if (family[place].p or 0.0) > SHARE / (len(members) - taken):
            break
        found[place] = replace(family[place], marked=True)
    return found


def effective_blocks(sizes: Floats) -> Floats:
    """Return Kish's effective number of blocks, (sum n_b)² / sum n_b², over the first axis.

    `sizes` (blocks, ...) are the numbers of rows in each block; the sum of `sizes` is 1 or more.
    """
    found: Floats = np.square(sizes.sum(0)) / np.square(sizes).sum(0)
    return found


def sums_by_block(values: Floats, blocks: NDArray[np.intp], number: int) -> Floats:
    """Return the sums of values (n, k) in each block, (number, k)."""
    return np.stack([np.bincount(blocks, one, minlength=number) for one in values.T], 1)


def widening(blocks: ArrayLike) -> Floats:
    """Return sqrt(B / (B - 1)) for an effective number of blocks B above 1."""
    number = np.asarray(blocks, np.float64)
    return np.sqrt(number / (number - 1))


def student_quantile(normal: ArrayLike, blocks: ArrayLike) -> Floats:
    """Return the quantile to use if the standard deviation comes from B > 1 effective blocks.

    The result is sqrt(B / (B - 1)) times the quantile of Student's t with B - 1 degrees of freedom,
    at the same probability.
    """
    freedom = np.asarray(blocks, np.float64) - 1
    tail = special.ndtr(-np.asarray(normal, np.float64))
    return -special.stdtrit(freedom, tail) * widening(blocks)


def simultaneous(
    sizes: Floats, sums: Floats, floor: Floats, *, risk: float, draws: int
) -> tuple[float, Floats]:
    """Return the half-width of simultaneous bands for k ratios, and standard deviations s_k, (k,).

    The half-width is in units of s_k. Let d_k be the ratio of sums to sizes, and d*_k this ratio in
    a sample of blocks. Then s_k is the standard deviation of d*_k over the samples in which ratio k
    has rows, but not less than `floor` (k,). The half-width is the 1 - risk quantile of the maximum
    of |d*_k - d_k| / s_k over k, and at least 1.96, the normal value (Davison and Hinkley 1997).
    `sizes` and `sums` (blocks, k) are numbers of rows and sums by block; `risk` is the probability
    that any band misses its true ratio.
    """
    drawing = _samples(len(sizes), draws, 0)
    drawn, value = drawing @ sizes, sums.sum(0) / sizes.sum(0)
    away = np.abs(np.where(drawn > 0, drawing @ sums / np.maximum(drawn, 1) - value, 0.0))
    sd: Floats = np.maximum(np.sqrt(np.square(away).sum(0) / (drawn > 0).sum(0)), floor)
    scaled = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0)
    return max(float(np.quantile(scaled.max(1), 1 - risk)), _TWO_SIDED), sd


def _samples(blocks: int, draws: int, seed: int) -> Floats:
    """Return how often each bootstrap sample contains each block, (draws, blocks)."""
    random = np.random.default_rng(seed)
    return random.multinomial(blocks, np.full(blocks, 1 / blocks), draws).astype(np.float64)


def _estimate(value: float, error: float, freedom: float) -> Estimate:
    half = error * float(special.stdtrit(freedom, 0.975))
    if error > 0:
        p = 2 * float(special.stdtr(freedom, -abs(value) / error))
    else:
        p = 1.0 if value == 0 else 0.0
    return Estimate(value, error, value - half, value + half, p)

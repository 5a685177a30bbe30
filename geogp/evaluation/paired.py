"""Mean differences between two predictions of the same rows, and how sure they are.

Rows of one place err alike, so what is drawn anew are blocks, not rows. With s_b the sum of
the differences of block b and n_b its rows, the mean difference is the ratio d = sum s_b / sum n_b;
each bootstrap sample draws as many blocks with replacement as there are and has a ratio of its own;
the standard error s of d is the standard deviation of these ratios (Davison and Hinkley 1997,
sections 2.4 and 3.8) times sqrt(B / (B - 1)), without which s is too small by that factor where
B blocks are of equal size. The interval is d - t s to d + t s with t the 97.5 % quantile of
Student's t with B - 1 degrees of freedom. Few large blocks among many small ones say less than
their number, so B is the effective one, (sum n_b)^2 / sum n_b^2 (Kish 1965).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geogp.errors import DataError

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

DRAWS = 1000
"""Bootstrap samples."""

FEW_BLOCKS = 5
"""Fewer effective blocks say too little of how rows of a block err alike: no error is given."""

SHARE = 0.05
"""Probability that any mark of a family is set by chance alone."""

_TWO_SIDED = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean paired difference.

    Attributes
    ----------
    value
        The mean; None where a row's difference is not finite.
    error
        Its standard error; None without a value, or where the rows lie in too few blocks.
    lower, upper
        Its own 95 % interval, or None.
    p
        Probability of a difference as large or larger, to either side, if there is none.
    marked
        Whether it is beyond chance, all of its family counted; see `mark`.
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
    """Estimate mean differences from differences by row.

    Parameters
    ----------
    differences
        (n, k) for k differences on the same n rows, 1 or more.
    blocks
        Number of the block of each row, (n,).
    draws, seed
        Bootstrap samples, and what they are drawn from; the same for all k.

    Returns
    -------
    list of Estimate, of length k
        None of them marked.

    Raises
    ------
    DataError
        There is no row, or not one block for each row.
    """
    if len(differences) == 0 or blocks.shape != differences.shape[:1]:
        raise DataError(
            f"expected rows and one block for each, found {len(differences)} rows and "
            f"{len(blocks)} blocks."
        )
    finite = np.isfinite(np.abs(differences).max(0))
    sizes, sums = _by_block(np.where(finite, differences, 0.0), blocks)
    value = sums.sum(0) / sizes.sum()
    number = float(effective_blocks(sizes))
    if number < FEW_BLOCKS:
        found = [Estimate(float(one)) for one in value]
    else:
        spread = _ratios(sizes, sums, draws, seed).std(0, ddof=1)
        error = spread * widening(number)
        pairs = zip(value, error, strict=True)
        found = [_estimate(float(one), float(sure), number - 1) for one, sure in pairs]
    return [one if told else Estimate(None) for one, told in zip(found, finite, strict=True)]


def mark(family: Sequence[Estimate], share: float = SHARE) -> list[Estimate]:
    """Return a family of estimates with those marked that are beyond chance.

    Holm's (1979) procedure: with p_(1) <= ... <= p_(m), all up to the last i are marked for which
    p_(j) <= share / (m - j + 1) holds for every j <= i. Whatever the dependence, the probability
    that any mark stands where there is no difference is `share` or less. Estimates without p
    are no members.
    """
    members = [place for place, one in enumerate(family) if one.p is not None]
    found = list(family)
    ordered = sorted(members, key=lambda place: family[place].p or 0.0)
    for taken, place in enumerate(ordered):
        if (family[place].p or 0.0) > share / (len(members) - taken):
            break
        found[place] = replace(family[place], marked=True)
    return found


def effective_blocks(sizes: Floats) -> Floats:
    """Return Kish's effective number of blocks, (sum n_b)² / sum n_b², over the first axis.

    Parameters
    ----------
    sizes
        Rows of each block, (blocks, ...), at least one in all.
    """
    found: Floats = np.square(sizes.sum(0)) / np.square(sizes).sum(0)
    return found


def widening(blocks: ArrayLike) -> Floats:
    """Return sqrt(B / (B - 1)) of an effective number of blocks B above 1."""
    number = np.asarray(blocks, np.float64)
    found: Floats = np.sqrt(number / (number - 1))
    return found


def student_quantile(normal: ArrayLike, blocks: ArrayLike) -> Floats:
    """Return what stands for a normal quantile where the deviation comes from few blocks.

    Parameters
    ----------
    normal
        Quantiles of the standard normal, as many deviations as a band is wide to each side.
    blocks
        Effective number of blocks B above 1.

    Returns
    -------
    array
        The quantile of Student's t with B - 1 degrees of freedom of the same probability, times
        sqrt(B / (B - 1)).
    """
    freedom = np.asarray(blocks, np.float64) - 1
    tail = special.ndtr(-np.asarray(normal, np.float64))
    found: Floats = -special.stdtrit(freedom, tail) * widening(blocks)
    return found


def simultaneous(
    sizes: Floats, sums: Floats, floor: Floats, *, risk: float, draws: int, seed: int
) -> tuple[float, Floats]:
    """Return how many deviations wide bands are that hold for k ratios together, and these.

    With d_k the ratio of sums to sizes and d*_k that of a sample of blocks, the deviation s_k is
    sd(d*_k), over the samples that hold any row of k, and the number the 1 - risk quantile of
    max_k |d*_k - d_k| / s_k, of the normal at least (Davison and Hinkley 1997).

    Parameters
    ----------
    sizes, sums
        Rows of each block, and sums over them, (blocks, k).
    floor
        The least deviation of each, (k,).
    risk
        Probability that any band misses.
    draws, seed
        Bootstrap samples, and what they are drawn from.
    """
    number = len(sizes)
    weights = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), draws)
    drawing = weights.astype(np.float64)
    drawn, value = drawing @ sizes, sums.sum(0) / sizes.sum(0)
    away = np.abs(np.where(drawn > 0, drawing @ sums / np.maximum(drawn, 1) - value, 0.0))
    sd: Floats = np.maximum(np.sqrt(np.square(away).sum(0) / (drawn > 0).sum(0)), floor)
    scaled = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0)
    return max(float(np.quantile(scaled.max(1), 1 - risk)), _TWO_SIDED), sd


def _by_block(values: Floats, blocks: Numbers) -> tuple[Floats, Floats]:
    """Return rows (blocks,) and sums (blocks, k) of each block."""
    _, number = np.unique(blocks, return_inverse=True)
    sizes = np.bincount(number).astype(np.float64)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, number, values)
    return sizes, sums


def _ratios(sizes: Floats, sums: Floats, draws: int, seed: int) -> Floats:
    """Return the mean differences of bootstrap samples, (draws, k)."""
    number = len(sizes)
    random = np.random.default_rng(seed)
    weights = random.multinomial(number, np.full(number, 1 / number), draws).astype(np.float64)
    ratios: Floats = (weights @ sums) / (weights @ sizes)[:, None]
    return ratios


def _estimate(value: float, error: float, freedom: float) -> Estimate:
    half = error * float(special.stdtrit(freedom, 0.975))
    if error > 0:
        p = 2 * float(special.stdtr(freedom, -abs(value) / error))
    else:
        p = 1.0 if value == 0 else 0.0
    return Estimate(value, error, value - half, value + half, p)

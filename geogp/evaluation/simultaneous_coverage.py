"""Coverage by stratum, with bands that hold for all strata and levels of a split together.

Among many strata, the coverage of some strata misses the level by chance. So each coverage has a
band, and all bands of a split contain the true coverage with a probability of 95 %. Blocks of
tiles, not rows, count as independent. B is the effective number of blocks (see `paired.py`); the B
of a stratum is at most the B of the split. The error probability of 5 % is divided between strata
in many and in few blocks, in proportion to their numbers.

A stratum in `FEW_BLOCKS` effective blocks or more has a bootstrap band. Let p_k be the observed
coverage of check k (a stratum and a level), p*_k the coverage in a sample of blocks, s_k =
sd(p*_k), and q a quantile of max_k |p*_k - p_k| / s_k. The band is

    p_k - q s_k  to  p_k + q s_k    for all k (the studentised maximum; Davison and Hinkley 1997).

Then q is replaced by sqrt(B / (B - 1)) times the quantile of Student's t at the same probability;
t has B - 1 degrees of freedom, and B is that of the stratum. Samples without rows of the stratum do
not enter s_k. No s_k is below the standard deviation that follows from the design effect (below).
So a stratum with a coverage of 100 % has a band, too.

For strata in fewer blocks, the correlation r within blocks is estimated from all blocks of the
split. A stratum with n rows, m_b of them in block b, counts as n / (1 + r (sum m_b² / n - 1))
independent rows (the design effect; Kish 1965). The band of such a stratum is the exact binomial
interval for this number of rows (Korn and Graubard 1998), with the B of the split. The checks of
all such strata share the error probability (Bonferroni). A stratum is not judged if it has fewer
than `MIN_BLOCKS` blocks or `MIN_ROWS` rows, or if its split has fewer than `MIN_SPLIT_BLOCKS`
effective blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import special

from geogp.arrays import Floats, Mask, Numbers
from geogp.evaluation.metrics import Interval, binomial_interval
from geogp.evaluation.paired import (
    effective_blocks,
    simultaneous,
    student_quantile,
    sums_by_block,
)
from geogp.evaluation.splits.split_names import CELL_DEGREES
from geogp.evaluation.splits.split_rows import cell_indices
from geogp.evaluation.strata import MIN_ROWS

CLASS_LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels at which the coverage is checked."""

FEW_BLOCKS = 20
"""Smallest effective number of blocks that a stratum needs for a bootstrap band."""

MIN_BLOCKS = 3
"""Smallest number of blocks (counted, not effective) that a stratum needs for a band."""

MIN_SPLIT_BLOCKS = 5
"""Smallest effective number of blocks that a split needs for bands."""

DRAWS = 1000
TOLERANCE = 0.03
"""Largest difference between coverage and level that is never marked, however narrow the band."""

_RISK = 0.05


@dataclass(frozen=True)
class Check:
    """Coverage of one stratum at one level (`observed`), with a band and a standard error.

    The band and the error are None if the stratum is not judged. `off` is true if the level lies
    outside the band and differs from the coverage by more than 3 percentage points.
    """

    level: float
    observed: float
    lower: float | None
    upper: float | None
    off: bool
    error: float | None


@dataclass(frozen=True)
class ClassReport:
    """Coverage of one stratum with `n` rows in `blocks` blocks, with a check for each level."""

    kind: str
    name: str
    n: int
    blocks: int
    checks: list[Check]


@dataclass(frozen=True)
class _Counts:
    """Numbers of rows (blocks, strata), and of rows in their intervals (blocks, strata, levels).

    `correlation` (levels,) is the result of `_correlation`. `split_blocks` is the effective number
    of blocks of the whole split.
    """

    sizes: Floats
    inside: Floats
    level: Floats
    correlation: Floats
    split_blocks: float

    @property
    def effective(self) -> Floats:
        """Effective number of blocks of each stratum, at most `split_blocks`, (strata,)."""
        return np.minimum(effective_blocks(self.sizes), self.split_blocks)

    @property
    def observed(self) -> Floats:
        found: Floats = self.inside.sum(0) / self.sizes.sum(0)[:, None]
        return found

    @property
    def design_effect(self) -> Floats:
        """Design effect 1 + r (sum m_b² / n - 1), (strata, levels)."""
        alike = np.square(self.sizes).sum(0) / self.sizes.sum(0) - 1
        found: Floats = 1 + np.maximum(alike, 0)[:, None] * self.correlation
        return found

    @property
    def binomial_sd(self) -> Floats:
        """Standard deviation of the coverage, from level and design effect, (strata, levels)."""
        variance = self.level * (1 - self.level) * self.design_effect
        found: Floats = np.sqrt(variance / self.sizes.sum(0)[:, None])
        return found

    def __getitem__(self, strata: Mask) -> "_Counts":
        return replace(self, sizes=self.sizes[:, strata], inside=self.inside[:, strata])


def blocks_of(longitude: Floats, latitude: Floats) -> Numbers:
    """Return the index of each row's block, (n,); a block is a cell of 0.1 by 0.1 degrees."""
    _, number = np.unique(cell_indices(longitude, latitude), axis=0, return_inverse=True)
    return number.reshape(-1)


def drives_of_rows(rows: pd.DataFrame) -> Numbers | None:
    """Return the index of each row's drive, (n,); None if the rows are of no drives."""
    return pd.factorize(rows["drive"], sort=True)[0] if "drive" in rows else None


def independent_parts(rows: pd.DataFrame) -> Numbers:
    """Return the index of each row's drive, or without drives of its block, (n,).

    Rows of different parts count as independent.
    """
    drives = drives_of_rows(rows)
    if drives is not None:
        return drives
    return blocks_of(*(rows[name].to_numpy(np.float64) for name in ("longitude", "latitude")))


def share_interval(inside: Mask, drives: Numbers | None) -> Interval:
    """Return the 95 % interval of the share of rows with `inside` (n,).

    It is the exact binomial interval. If rows are of `drives` (n,), it is that of the effective
    number of rows, for strata in few blocks (see above), with drives as the blocks.
    """
    if drives is None:
        return binomial_interval(int(np.count_nonzero(inside)), len(inside))
    number = np.unique(drives, return_inverse=True)[1]
    size = np.bincount(number).astype(np.float64)
    hits = inside[:, None].astype(np.float64)
    correlation, parts = _correlation(hits, number, size), float(effective_blocks(size))
    if parts == 1:
        return Interval(0.0, 1.0)
    counts = _Counts(
        size[:, None],
        sums_by_block(hits, number, len(size))[:, None],
        np.array([0.95]),
        correlation,
        parts,
    )
    lower, upper = _exact_bands(counts, _RISK)
    return Interval(float(lower.item()), float(upper.item()))


def most_missed(pit: Floats, longitude: Floats, latitude: Floats) -> list[float] | None:
    """Return the centre of the block with the most rows outside their 95 % intervals.

    The result is longitude and latitude, or None if no row lies outside. `pit` (n,) is as in
    `class_reports`.
    """
    outside = np.abs(pit - 0.5) > 0.475
    if not outside.any():
        return None
    cells = cell_indices(longitude[outside], latitude[outside])
    blocks, rows = np.unique(cells, axis=0, return_counts=True)
    x, y = (blocks[rows.argmax()] + 0.5) * CELL_DEGREES
    return [round(float((x + 180) % 360 - 180), 2), round(float(y), 2)]


def class_reports(
    pit: Floats,
    groups: Mapping[str, Mapping[str, Mask]],
    blocks: Numbers,
    *,
    levels: Sequence[float] = CLASS_LEVELS,
    least: int = MIN_ROWS,
    draws: int = DRAWS,
) -> list[ClassReport]:
    """Return the coverage of strata, with bands that hold for all strata at once.

    `pit` (n,) is P(Y <= y) for the measurement y. `groups` contains a mask (n,) of the rows of each
    stratum, by kind and name; no stratum is empty. `blocks` (n,) contains the block of each row,
    or its drive.
    """
    classes = [(kind, name, rows) for kind, of in groups.items() for name, rows in of.items()]
    counts = _counts(pit, [rows for _, _, rows in classes], blocks, np.array(levels))
    observed = counts.observed
    lower, upper, error = _bands(counts, least, draws)
    return [
        ClassReport(
            kind,
            name,
            int(counts.sizes[:, k].sum()),
            int(np.count_nonzero(counts.sizes[:, k])),
            [
                _check(level, observed[k, j], lower[k, j], upper[k, j], error[k, j])
                for j, level in enumerate(levels)
            ],
        )
        for k, (kind, name, _) in enumerate(classes)
    ]


def _counts(pit: Floats, classes: Sequence[Mask], blocks: Numbers, level: Floats) -> _Counts:
    hits = (np.abs(pit[:, None] - 0.5) <= 0.5 * level).astype(np.float64)
    size = np.bincount(blocks).astype(np.float64)
    own = [np.bincount(blocks[rows], minlength=len(size)) for rows in classes]
    inside = [sums_by_block(hits[rows], blocks[rows], len(size)) for rows in classes]
    sizes, correlation = np.stack(own, 1).astype(np.float64), _correlation(hits, blocks, size)
    return _Counts(sizes, np.stack(inside, 1), level, correlation, float(effective_blocks(size)))


def _correlation(hits: Floats, blocks: Numbers, size: Floats) -> Floats:
    """Return the correlation of `hits` between two rows of a block, (levels,), at least 0."""
    away = hits - hits.mean(0)
    total = sums_by_block(away, blocks, len(size))
    squares = np.square(away).sum(0)
    pairs = max(float((size * (size - 1)).sum()), 1.0)
    variance = np.maximum(squares / len(hits), 1e-12)
    found: Floats = np.maximum((np.square(total).sum(0) - squares) / pairs / variance, 0.0)
    return found


def _bands(counts: _Counts, least: int, draws: int) -> tuple[Floats, Floats, Floats]:
    """Return the lower and upper ends of bands, and standard errors, (strata, levels)."""
    lower, upper, error = (np.full(counts.observed.shape, np.nan) for _ in range(3))
    within = np.count_nonzero(counts.sizes, axis=0)
    judged = (within >= MIN_BLOCKS) & (counts.sizes.sum(0) >= least)
    judged &= counts.split_blocks >= MIN_SPLIT_BLOCKS
    many = judged & (counts.effective >= FEW_BLOCKS)
    few = judged & ~many
    if many.any():
        half, error[many] = _bootstrap(counts[many], _RISK * many.sum() / judged.sum(), draws)
        observed = counts.observed[many]
        lower[many], upper[many] = np.maximum(observed - half, 0), np.minimum(observed + half, 1)
    if few.any():
        risk = _RISK * few.sum() / judged.sum()
        lower[few], upper[few] = _exact_bands(counts[few], risk)
        error[few] = counts[few].binomial_sd
    return lower, upper, error


def _bootstrap(counts: _Counts, risk: float, draws: int) -> tuple[Floats, Floats]:
    """Return the half-widths of bootstrap bands, and s_k, each (strata, levels)."""
    blocks, _, levels = counts.inside.shape
    # If no sample differs from the whole data, the binomial standard deviation is used.
    q, sd = simultaneous(
        np.repeat(counts.sizes, levels, axis=1),
        counts.inside.reshape(blocks, -1),
        counts.binomial_sd.ravel(),
        risk=risk,
        draws=draws,
    )
    sd = sd.reshape(-1, levels)
    return student_quantile(q, counts.effective)[:, None] * sd, sd


def _exact_bands(counts: _Counts, risk: float) -> tuple[Floats, Floats]:
    """Return the ends of Korn and Graubard's intervals, each (strata, levels)."""
    observed = counts.observed
    tail = risk / observed.size / 2
    normal = -float(special.ndtri(tail))
    shrunk = (normal / student_quantile(normal, counts.split_blocks)) ** 2
    n = counts.sizes.sum(0)[:, None] / counts.design_effect * shrunk
    hits = observed * n
    lower = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1e-9), n - hits + 1, tail), 0.0)
    missed = np.maximum(n - hits, 1e-9)
    upper = np.where(observed < 1, special.betaincinv(hits + 1, missed, 1 - tail), 1.0)
    return lower, upper


def _check(level: float, observed: float, lower: float, upper: float, error: float) -> Check:
    if np.isnan(lower):
        return Check(level, float(observed), None, None, off=False, error=None)
    off = abs(observed - level) > TOLERANCE and not lower <= level <= upper
    return Check(level, float(observed), float(lower), float(upper), bool(off), float(error))

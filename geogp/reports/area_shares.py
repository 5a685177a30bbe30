"""Shares of held-out rows below a threshold in areas such as counties: stated and observed.

Let p_i be the stated probability that row i misses the threshold, and o_i 1 if the row missed it,
else 0. The difference mean o - mean p of an area has a 95 % interval for tiles drawn anew in this
area: its standard error comes from the sums of o - p over the rows of each tile, because rows of
one tile depend on each other. The standard error is at least that of independent rows with right
probabilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.evaluation.paired import effective_blocks, student_quantile
from geogp.evaluation.threshold_reliability import MIN_EFFECTIVE
from geogp.geodata.tiles.thresholds import Threshold

Floats = NDArray[np.float64]

LEAST_ROWS = 30
"""Areas with fewer rows are left out."""

_REACH = 1.96


@dataclass(frozen=True)
class AreaShare:
    """The share of an area's rows that miss a threshold, stated by the model and observed.

    `missed` describes the values that miss the threshold (``below 7 Mbps``). `lower` and `upper`
    are the 95 % interval of observed minus stated, None if there are too few effective tiles.
    """

    missed: str
    area: str
    rows: int
    tiles: int
    stated: float
    observed: float
    lower: float | None
    upper: float | None

    @property
    def difference(self) -> float:
        """Observed minus stated share."""
        return self.observed - self.stated

    @property
    def off(self) -> bool:
        """Whether 0 lies outside the interval of the difference."""
        return self.lower is not None and self.upper is not None and self.lower * self.upper > 0


def area_shares(
    rows: pd.DataFrame,
    area: str,
    probability: Callable[[Threshold], Floats],
    thresholds: Sequence[Threshold],
) -> list[AreaShare]:
    """Return the shares of each area in the column `area` of the rows, for each threshold.

    `probability` returns the probability that each row meets a threshold, (n,).
    """
    y, found = rows["y"].to_numpy(np.float64), []
    tile = pd.factorize(rows["quadkey"], sort=True)[0]
    groups = rows.reset_index(drop=True).groupby(area, sort=True).indices
    for threshold in thresholds:
        missed, p = (~threshold.holds(y)).astype(np.float64), 1 - probability(threshold)
        for name, chosen in groups.items():
            if len(chosen) >= LEAST_ROWS:
                parts = tile[chosen], missed[chosen], p[chosen]
                found.append(_share(threshold.missed, str(name), *parts))
    return found


def _share(words: str, area: str, tile: NDArray[np.intp], missed: Floats, p: Floats) -> AreaShare:
    where = np.unique(tile, return_inverse=True)[1]
    size = np.bincount(where).astype(np.float64)
    value = float((missed - p).mean())
    # Sums over tiles of the errors around their mean give the variance of a ratio.
    sums = np.bincount(where, missed - p - value)
    blocks = float(effective_blocks(size))
    bounds: tuple[float | None, float | None] = None, None
    if blocks >= MIN_EFFECTIVE:
        variance = max(float(np.square(sums).sum()), float((p * (1 - p)).sum())) / len(p) ** 2
        half = float(student_quantile(_REACH, blocks)) * float(np.sqrt(variance))
        bounds = value - half, value + half
    return AreaShare(words, area, len(p), len(size), float(p.mean()), float(missed.mean()), *bounds)

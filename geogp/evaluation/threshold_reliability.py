"""Reliability and Brier score of the probabilities that rows meet a threshold.

Let p_i be the stated probability that row i meets the threshold. Let o_i be 1 if the row met it,
else 0. The Brier score is mean (p_i - o_i)². Let c_i be the isotonic regression of o on p, and r
the share of rows that met the threshold. By the CORP decomposition (Dimitriadis et al. 2021),

    Brier = [B(p) - B(c)] - [B(r) - B(c)] + B(r) = reliability - resolution + uncertainty,

where B is the Brier score of a forecast. The reliability should be small, and the resolution large.

This module judges the difference mean o - mean p, for all rows and for each bin of rows with
similar p. Each difference has a bootstrap band as in `simultaneous_coverage.py`. The bands hold for
all differences of a split together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from geogp.arrays import Floats, Mask, Numbers
from geogp.evaluation.metrics import rows_by_group
from geogp.evaluation.paired import effective_blocks, simultaneous, student_quantile
from geogp.evaluation.simultaneous_coverage import (
    DRAWS,
    TOLERANCE,
    drives_of_rows,
    independent_parts,
    share_interval,
)
from geogp.evaluation.strata import MIN_ROWS

BINS = 10
"""Number of bins with equal numbers of rows; fewer if many rows have the same probability."""

MIN_EFFECTIVE = 10
"""Smallest effective number of blocks that a difference needs for a band."""


@dataclass(frozen=True)
class Difference:
    """Observed share minus mean stated probability; the band is None if there are too few blocks.

    `off` is true if 0 lies outside the band and the difference is more than 3 percentage points.
    """

    value: float
    lower: float | None
    upper: float | None
    off: bool

    @property
    def judged(self) -> bool:
        """Whether the difference has a band."""
        return self.lower is not None


@dataclass(frozen=True)
class ProbabilityBin:
    """A bin of rows with similar stated probabilities.

    `stated` is the mean stated probability, and `observed` the share of rows that met the
    threshold. `lower` and `upper` are the 95 % interval of `observed` (`share_interval`), for
    independent rows.
    """

    n: int
    stated: float
    observed: float
    lower: float
    upper: float
    difference: Difference


@dataclass(frozen=True)
class ExceedanceReport:
    """Reliability of the probabilities of one threshold, for all rows or for one stratum.

    `meets` describes the values that meet the threshold (``at least 7 Mbps``). `stated` is the mean
    stated probability, and `observed` the share of rows that met the threshold. `brier` is the
    Brier score; `reliability`, `resolution` and `uncertainty` are its parts. `reference` is the
    Brier score of a simple forecast: the observed share in the same quarter. `skill` is 1 - brier /
    reference, or None if the reference is 0. `bins` are in increasing order of probability.
    """

    threshold: float
    meets: str
    group: str
    n: int
    stated: float
    observed: float
    difference: Difference
    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    reference: float
    skill: float | None
    bins: list[ProbabilityBin]


class Event(Protocol):
    """An event with a stated probability, such as a threshold that is met."""

    @property
    def value(self) -> float:
        """The number of the event in the reports."""

    @property
    def met(self) -> str:
        """Words for the event."""

    def holds(self, y: Floats) -> Mask:
        """Return whether the event happened for each measurement."""


Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True)
class ClassEvent:
    """The event that the class of a row is `code`; if `or_higher`, that it is `code` or higher."""

    code: int
    met: str
    or_higher: bool = False

    @property
    def value(self) -> float:
        """The number of the class."""
        return float(self.code)

    def holds(self, y: Floats) -> Mask:
        """Return whether each class is that of the event."""
        return np.asarray(y >= self.code if self.or_higher else y == self.code)

    def probability(self, p: Floats) -> Floats:
        """Return the probability of the event from the probabilities of the classes, (n, k)."""
        found = p[:, self.code :].sum(1) if self.or_higher else p[:, self.code]
        return np.clip(found, 0.0, 1.0)


def class_events(classes: Sequence[str]) -> list[ClassEvent]:
    """Return an event for each class, and for each class or higher that is not yet in the list."""
    exact = [ClassEvent(code, name) for code, name in enumerate(classes)]
    inner = list(enumerate(classes))[2:-1]
    return exact + [ClassEvent(code, f"at least {name}", or_higher=True) for code, name in inner]


@dataclass(frozen=True)
class _Part:
    """The rows, stated probabilities, outcomes and bins of rows for one threshold and stratum."""

    threshold: Event
    group: str
    rows: Mask
    p: Floats
    met: Floats
    bin: Numbers


def exceedance_reports(
    rows: pd.DataFrame,
    probability: Callable[[Kind], Floats],
    thresholds: Sequence[Kind],
    *,
    draws: int = DRAWS,
) -> list[ExceedanceReport]:
    """Return reports on the probabilities of events, for the test rows of one split.

    The events are thresholds, or the classes of `class_events`.

    `probability` returns the probability that each row, an average of its tests, meets a threshold,
    (n,); see `Threshold.probability`. For each threshold, there is a report on all rows, then a
    report on each stratum with `MIN_ROWS` rows or more.
    """
    parts = [part for one in thresholds for part in _parts(rows, probability(one), one)]
    if not parts:
        return []
    differences = iter(_differences(parts, independent_parts(rows), draws))
    quarter, drives = rows["quarter"].to_numpy(str), drives_of_rows(rows)
    return [
        _report(
            part,
            quarter[part.rows],
            None if drives is None else drives[part.rows],
            [next(differences) for _ in range(part.bin.max() + 2)],
        )
        for part in parts
    ]


def brier_parts(p: Floats, met: Floats) -> tuple[float, float, float]:
    """Return reliability, resolution and uncertainty, the three parts of the Brier score.

    `p` (n,) are stated probabilities; `met` (n,) is 1 where the threshold was met, else 0.
    """
    # Rows with the same probability form one point of the regression.
    where = np.unique(p, return_inverse=True)[1]
    size = np.bincount(where)
    share = np.bincount(where, met) / size
    fitted = scipy.optimize.isotonic_regression(share, weights=size).x[where]
    own, best = _brier(p, met), _brier(fitted, met)
    uncertainty = _brier(np.full(len(p), met.mean()), met)
    return own - best, uncertainty - best, uncertainty


def bins_of(p: Floats) -> Numbers:
    """Return the number of each probability's bin, (n,); bins have about equal numbers of rows.

    Equal probabilities share a bin, so there may be fewer bins than `BINS`.
    """
    edges = np.unique(np.quantile(p, np.arange(1, BINS) / BINS))
    return np.unique(np.searchsorted(edges, p, side="left"), return_inverse=True)[1]


def _parts(rows: pd.DataFrame, probability: Floats, threshold: Event) -> list[_Part]:
    met = threshold.holds(rows["y"].to_numpy(np.float64)).astype(np.float64)
    return [
        _Part(
            threshold,
            name,
            chosen,
            probability[chosen],
            met[chosen],
            bins_of(probability[chosen]),
        )
        for name, chosen in rows_by_group(rows["stratum"], len(rows)).items()
        if name == "all" or chosen.sum() >= MIN_ROWS
    ]


def _report(
    part: _Part, quarter: NDArray[np.str_], drives: Numbers | None, found: list[Difference]
) -> ExceedanceReport:
    p, met = part.p, part.met
    reliability, resolution, uncertainty = brier_parts(p, met)
    brier, reference = _brier(p, met), _brier(_quarter_share(met, quarter), met)
    return ExceedanceReport(
        threshold=part.threshold.value,
        meets=part.threshold.met,
        group=part.group,
        n=len(p),
        stated=float(p.mean()),
        observed=float(met.mean()),
        difference=found[0],
        brier=brier,
        reliability=reliability,
        resolution=resolution,
        uncertainty=uncertainty,
        reference=reference,
        skill=1 - brier / reference if reference > 0 else None,
        bins=[
            _bin(p[own], met[own], None if drives is None else drives[own], one)
            for k, one in enumerate(found[1:])
            for own in [part.bin == k]
        ],
    )


def _bin(p: Floats, met: Floats, drives: Numbers | None, difference: Difference) -> ProbabilityBin:
    bounds = share_interval(met > 0, drives)
    return ProbabilityBin(
        len(p), float(p.mean()), float(met.mean()), bounds.lower, bounds.upper, difference
    )


def _quarter_share(met: Floats, quarter: NDArray[np.str_]) -> Floats:
    """Return the share that met the threshold in each row's quarter, or in all rows."""
    _, where = np.unique(quarter, return_inverse=True)
    size = np.bincount(where)
    share = np.where(size >= MIN_ROWS, np.bincount(where, met) / size, met.mean())
    return np.asarray(share[where], np.float64)


def _brier(p: Floats, met: Floats) -> float:
    return float(np.square(p - met).mean())


def _differences(parts: list[_Part], blocks: Numbers, draws: int) -> list[Difference]:
    """Return the differences, with bands: in each part, first all rows, then the single bins."""
    number = int(blocks.max()) + 1
    sizes, sums, spread = [], [], []
    for part in parts:
        own, error = blocks[part.rows], part.met - part.p
        variance = part.p * (1 - part.p)
        for chosen in (part.bin >= 0, *(part.bin == k for k in range(part.bin.max() + 1))):
            sizes.append(np.bincount(own[chosen], minlength=number))
            sums.append(np.bincount(own[chosen], error[chosen], minlength=number))
            spread.append(variance[chosen].sum() / chosen.sum() ** 2)
    n, total = (np.stack(each, 1).astype(np.float64) for each in (sizes, sums))
    value = total.sum(0) / n.sum(0)
    judged = effective_blocks(n) >= MIN_EFFECTIVE
    half = np.full(len(value), np.nan)
    if judged.any():
        floor = np.sqrt(np.array(spread)[judged])
        # The standard deviation is at least that of independent rows with right probabilities.
        most, sd = simultaneous(n[:, judged], total[:, judged], floor, risk=0.05, draws=draws)
        half[judged] = student_quantile(most, effective_blocks(n[:, judged])) * sd
    return [_difference(*pair) for pair in zip(value.tolist(), half.tolist(), strict=True)]


def _difference(value: float, half: float) -> Difference:
    if np.isnan(half):
        return Difference(value, None, None, off=False)
    return Difference(value, value - half, value + half, off=abs(value) > max(half, TOLERANCE))

"""Scores and coverages of all strata of one split."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from geogp.evaluation.metrics import binomial_interval, pit_counts
from geogp.evaluation.simultaneous_coverage import Check, ClassReport, blocks_of, class_reports
from geogp.evaluation.strata import Stratum, strata_of


@dataclass(frozen=True)
class Coverage:
    """Coverage of one stratum at one level.

    `observed` is the share of rows inside the central interval of the level, by their probability
    integral transforms (PIT). `exact` has the exact binomial 95 % bounds of this share. `band` has
    bounds that hold for all coverages of the split together, or is None if the stratum is not
    judged. `off` is true if the coverage is marked (see `simultaneous_coverage.Check`).
    """

    level: float
    observed: float
    exact: list[float]
    band: list[float] | None
    off: bool


@dataclass(frozen=True)
class StratumReport:
    """Scores and coverages of one stratum, on the scale of the target.

    `kind` is ``all``, ``stratum``, ``tests``, ``expected``, ``distance``, ``speed``, ``quarter``,
    ``county``, or ``layer_`` and a name; `name` and `members` are as in `strata.Stratum`. `n` is
    the number of test rows, and `blocks` the number of blocks of 0.1 degrees with such rows. Scores
    and errors are means over the rows; `mean_error` is measurement minus predictive mean, so it is
    above 0 if predictions are too low. `pit` counts the rows by their probability integral
    transform, in ten equal bins.
    """

    kind: str
    name: str
    members: list[str]
    n: int
    blocks: int
    coverage: list[Coverage]
    mean_width_95: float
    median_width_95: float
    crps: float
    log_score: float
    mean_error: float
    pit: list[int]

    @property
    def judged(self) -> bool:
        """Whether the stratum has enough rows and blocks to judge its coverage."""
        return self.coverage[0].band is not None

    @property
    def off(self) -> list[Coverage]:
        """The coverages that are marked."""
        return [each for each in self.coverage if each.off]

    @property
    def bars(self) -> list[float]:
        """Heights of the bars of the PIT histogram, at most 20; the mean height is 10."""
        level = self.n / len(self.pit)
        return [min(10 * count / level, 20.0) for count in self.pit]


def stratum_reports(rows: pd.DataFrame, scored: pd.DataFrame, target: str) -> list[StratumReport]:
    """Return the reports on all strata of one split; `scored` has the scores of the same rows.

    Raises DataError if a distance is out of range, or a location is not finite.
    """
    strata = strata_of(rows, scored["median"].to_numpy(), target)
    place = (rows[name].to_numpy(np.float64) for name in ("longitude", "latitude"))
    groups = {kind: {one.name: one.rows for one in of} for kind, of in strata.items()}
    found = class_reports(scored["pit"].to_numpy(), groups, blocks_of(*place))
    flat = [stratum for of in strata.values() for stratum in of]
    return [
        _report(judged, stratum, scored[stratum.rows])
        for judged, stratum in zip(found, flat, strict=True)
    ]


def _report(judged: ClassReport, stratum: Stratum, scored: pd.DataFrame) -> StratumReport:
    mean = {
        name: float(scored[name].to_numpy().mean()) for name in ("width", "crps", "nll", "error")
    }
    return StratumReport(
        judged.kind,
        stratum.name,
        stratum.members,
        judged.n,
        judged.blocks,
        [_coverage(check, judged.n) for check in judged.checks],
        mean_width_95=mean["width"],
        median_width_95=float(np.median(scored["width"])),
        crps=mean["crps"],
        log_score=mean["nll"],
        mean_error=mean["error"],
        pit=pit_counts(scored["pit"].to_numpy()).tolist(),
    )


def _coverage(check: Check, n: int) -> Coverage:
    exact = list(binomial_interval(round(check.observed * n), n))
    judged = check.lower is not None and check.upper is not None
    band = [float(check.lower or 0.0), float(check.upper or 0.0)] if judged else None
    return Coverage(check.level, check.observed, exact, band, check.off)

"""The figures of every stratum of one split, for all kinds of strata."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from geogp.evaluation.metrics import binomial_interval, pit_counts
from geogp.evaluation.simultaneous_coverage import Check, ClassReport, blocks_of, class_reports
from geogp.evaluation.strata import Stratum, strata_of


@dataclass(frozen=True)
class Coverage:
    """Coverage of one stratum at one level.

    `observed` is the share of rows whose integral transform lies within the level around the
    middle; `exact` are its exact binomial 95 % bounds; `band` holds for all coverages of the split
    together, None if not judged; `off` tells whether it is marked (see
    `simultaneous_coverage.Check`).
    """

    level: float
    observed: float
    exact: list[float]
    band: list[float] | None
    off: bool


@dataclass(frozen=True)
class StratumReport:
    """Figures of one stratum, on the scale of the target.

    `kind` is ``all``, ``stratum``, ``tests``, ``expected``, ``distance``, ``speed``, ``quarter``,
    ``county``, or ``layer_`` and a name; `name` and `members` are as in `strata.Stratum`. `n` and
    `blocks` count test rows and their blocks of 0.1 degrees. Scores and errors are means over the
    rows; `mean_error` is measurement minus predictive mean: above 0, predictions are too low. `pit`
    counts integral transforms in ten equal bins.
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
        """Whether it has enough rows and blocks to be judged."""
        return self.coverage[0].band is not None

    @property
    def off(self) -> list[Coverage]:
        """The coverages that are marked."""
        return [each for each in self.coverage if each.off]

    @property
    def bars(self) -> list[float]:
        """Heights of its PIT histogram's bars: 10 where level, at most 20."""
        level = self.n / len(self.pit)
        return [min(10 * count / level, 20.0) for count in self.pit]


def stratum_reports(rows: pd.DataFrame, scored: pd.DataFrame, target: str) -> list[StratumReport]:
    """Return the figures of all strata of one split's rows; `scored` are the same rows, scored.

    A distance out of range, or a location that is not finite, is a DataError.
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

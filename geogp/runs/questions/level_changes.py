"""The change of the level between two quarters, from one joint distribution of both quarters.

The change of an area is a sum over the tiles of both quarters, with the weights w in the second
quarter and -w in the first quarter. So its variance includes the covariances between the quarters.

The distribution is that of the Gaussian process alone. The networks that refine single predictions
of the map flatten changes: they predict from rows of all quarters (`benchmarks/answers/change.py`).
"""

from dataclasses import dataclass
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from scipy import sparse, special

from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.geodata.tiles.quarters import quarter_index, quarter_label
from geogp.maps.target_quantities import quantity_of
from geogp.models.joint.level import JointLevel
from geogp.runs.pipeline.draw import tests_on
from geogp.runs.question import check_quarter
from geogp.runs.questions.area_levels import REACH
from geogp.runs.questions.question_types import ChangeQuestion
from geogp.runs.questions.tile_areas import TileAreas, tile_areas
from geogp.runs.reopen import Reopened

Floats = NDArray[np.float64]

WRONG_SHARE = 0.05
"""Largest false discovery rate of directions: a direction is wrong if the level did not change."""

SAMPLED = 100
"""Largest number of tiles from which the prior variance of an area's change is computed."""

LEAST_KNOWN = 0.01
"""Smallest share of the prior variance that the rows must explain for a direction."""

FAR_SHARE = 0.5
"""An area gets no direction if a larger share of its tiles is far from any measurement."""


@dataclass(frozen=True)
class TileChanges:
    """The change of log10 of the level at each tile, (n,): mean and standard deviation.

    The standard deviation comes from draws; with `draws` draws, its relative standard error is 1 /
    sqrt(2 draws).
    """

    mean: Floats
    sd: Floats

    @property
    def percent(self) -> Floats:
        """The median change in per cent."""
        return as_percent(self.mean)

    @property
    def rose(self) -> Floats:
        """The probability that the level rose."""
        found: Floats = special.ndtr(self.mean / self.sd)
        return found


@dataclass(frozen=True)
class LevelChanges:
    """Changes of the level: a table of areas (see `describe_changes`), and the tiles."""

    table: pd.DataFrame
    areas: TileAreas
    tiles: TileChanges
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the polygon of each area, and both quarters."""
        quarters = {"quarter_from": self.described["from"], "quarter_to": self.described["to"]}
        return gpd.GeoDataFrame(
            self.table.assign(**quarters), geometry=list(self.areas.shapes), crs=4326
        )


def level_changes(opened: Reopened, asked: ChangeQuestion) -> LevelChanges:
    """Return the change of the level of each area and each tile between two quarters.

    Raises RequestError if the quarters are not in order, or the model cannot predict one of them;
    and the errors of `tile_areas` and `SpatialGP.joint`.
    """
    tiles = opened.tiles
    quarters = _quarters(opened, asked)
    areas = tile_areas(opened, asked.by, asked.crs)
    columns_asked = max(asked.draws, len(areas))
    level = opened.level(*quarters, seed=asked.seed, columns=columns_asked, calibrated=False)
    opened.warn_of_smooth_level(level, "changes")
    quantity = quantity_of(opened.settings.target)
    columns = describe_changes(level, areas, quantity, asked.at_least)
    opened.listener.stage(f"{asked.draws} draws for single tiles")
    changes = tile_changes(level, asked.draws, asked.seed)
    table = areas.table(opened)
    near = table["far_share"].to_numpy() <= FAR_SHARE
    rose = columns["probability_rose"]
    columns["wrong_share"] = np.ones(len(rose))
    z = unchanged_scores(level, areas, columns, asked.seed)
    columns["wrong_share"][near] = wrong_shares(z[near])
    called = columns["wrong_share"] <= WRONG_SHARE
    columns["direction"] = np.where(called, np.where(rose > 0.5, "rose", "fell"), "")
    seen = opened.mapped
    for name, quarter in zip(("from", "to"), quarters, strict=True):
        tests = tests_on(tiles, seen.taken(seen.quarter == quarter))
        table[f"tests_{name}"] = areas.totals(tests)
    described = {
        "from": quarter_label(quarters[0]),
        "to": quarter_label(quarters[1]),
        "by": asked.by,
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        "at_least_percent": asked.at_least,
        "draws": asked.draws,
        "unit": quantity.unit,
        "mean": "geometric: of log10, over tiles",
        "rose": int((called & (rose > 0.5)).sum()),
        "fell": int((called & (rose <= 0.5)).sum()),
        "wrong_share_limit": WRONG_SHARE,
        "warnings": opened.listener.warnings,
    }
    return LevelChanges(table.assign(**columns), areas, changes, described)


def describe_changes(
    level: JointLevel, areas: TileAreas, quantity: Quantity, at_least: float | None
) -> dict[str, Any]:
    """Return columns about the change of each area, (k,); `level` has all tiles at two times.

    ``level_from`` and ``level_to`` are geometric means over the tiles in the two quarters.
    ``change`` is the difference of the means of log10, with the ends of its 95 % interval, in log10
    and in per cent. ``probability_rose`` is the probability of a change above 0, and
    ``probability_rose_at_least`` of a change of `at_least` per cent or more.
    """
    count = len(level) // 2
    mean = areas.means(count)
    first, last = (mean.T @ part for part in np.split(level.mean, 2))
    change = last - first
    sd = np.sqrt(level.sum_variances(sparse.vstack([-mean, mean], format="csc")))
    columns: dict[str, Any] = {
        f"level_from_{quantity.suffix}": 10**first,
        f"level_to_{quantity.suffix}": 10**last,
    }
    ends = {"": change, "_lower": change - REACH * sd, "_upper": change + REACH * sd}
    columns |= {f"change{end}_percent": as_percent(values) for end, values in ends.items()}
    columns |= {f"change{end}_log10": values for end, values in ends.items()}
    columns["change_sd_log10"] = sd
    columns["probability_rose"] = special.ndtr(change / sd)
    if at_least is not None:
        least = np.log10(1 + at_least / 100)
        columns["probability_rose_at_least"] = special.ndtr((change - least) / sd)
    return columns


def tile_changes(level: JointLevel, draws: int, seed: int) -> TileChanges:
    """Return the change at each tile, from joint draws of the level at all tiles at two times."""
    first, last = np.split(level.mean, 2)
    n, mean, squares = len(first), (last - first).astype(np.float32), np.zeros(len(first))
    for paths in level.paths(draws, seed=seed):
        squares += np.square(paths[:, n:] - paths[:, :n] - mean).sum(0, np.float64)
    return TileChanges(last - first, np.sqrt(squares / draws))


def unchanged_scores(
    level: JointLevel, areas: TileAreas, columns: dict[str, Any], seed: int = 0
) -> Floats:
    """Return the estimated changes, (k,), in standard deviations of an unchanged area's estimate.

    Let s² be the posterior variance of the change of an area, and t² its prior variance. Under the
    model, the estimate has the variance s² (1 - s² / t²) if the area did not change. t² comes from
    at most `SAMPLED` tiles of the area, and an area about which nothing is known has the score 0.
    """
    count, random = len(level) // 2, np.random.default_rng([seed, 4])
    prior = np.empty(len(areas))
    for k, inside in enumerate(areas.tiles):
        tiles = random.permutation(inside)[:SAMPLED]
        m, n = len(tiles), len(inside)
        parts = level.prior_covariance(np.concatenate([tiles, tiles + count])).reshape(2, m, 2, m)
        own = np.trace(parts, axis1=1, axis2=3)
        # The variance of a change: both times, less twice the covariance.
        total, diagonal = (
            part[0, 0] + part[1, 1] - part[0, 1] - part[1, 0] for part in (parts.sum((1, 3)), own)
        )
        apart = (total - diagonal) / max(m * (m - 1), 1)
        prior[k] = apart * (1 - 1 / n) + diagonal / m / n
    change, sd = columns["change_log10"], columns["change_sd_log10"]
    known = (1 - sd**2 / prior).clip(min=0)
    found: Floats = np.where(known > LEAST_KNOWN, change / sd / np.sqrt(known + 1e-12), 0.0)
    return found


def wrong_shares(z: Floats) -> Floats:
    """Return the false discovery rate at which each area just gets a direction, (k,).

    `z` (k,) are standard normal for areas that did not change. The rates are the adjusted p-values
    of Benjamini and Hochberg (1995), for p = 2 P(Z > |z|).
    """
    p = 2 * special.ndtr(-np.abs(z))
    found: Floats = scipy.stats.false_discovery_control(p) if len(p) else p
    return found


def as_percent(change: Floats) -> Floats:
    """Return changes of log10 in per cent."""
    return 100 * (10**change - 1)


def _quarters(opened: Reopened, asked: ChangeQuestion) -> tuple[int, int]:
    """Return the indices of both quarters; warn if a quarter has no measurement."""
    end = opened.question.quarter if asked.end is None else quarter_index(asked.end)
    start = quarter_index(asked.start)
    if start >= end:
        raise RequestError(
            f"expected --from before --to, found {quarter_label(start)} and {quarter_label(end)}."
        )
    quarters, timeless = opened.inputs.observations.quarters, opened.plan.model.scale.times is None
    for option, quarter in (("--from", start), ("--to", end)):
        check_quarter(quarter, quarters, opened.plan.model.name, timeless=timeless, option=option)
        if quarter not in quarters:
            opened.listener.warn(f"there is no measurement of {quarter_label(quarter)} ({option}).")
    return start, end

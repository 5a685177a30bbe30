"""Levels of areas: counties, strata, hexagons, or polygons of the user."""

from dataclasses import dataclass
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from scipy import special

from geogp.distributions.quantity import Quantity
from geogp.maps.target_quantities import quantity_of
from geogp.models.joint.level import JointLevel
from geogp.runs.questions.question_types import AreaQuestion
from geogp.runs.questions.tile_areas import TileAreas, tile_areas
from geogp.runs.questions.tile_weights import tile_weights
from geogp.runs.reopen import Reopened

Floats = NDArray[np.float64]

REACH = float(special.ndtri(0.975))
"""Number of standard deviations from the middle of a 95 % interval to its end."""

_ENDS = (0.025, 0.5, 0.975)


@dataclass(frozen=True)
class AreaLevels:
    """Levels of the areas that contain the centre of a tile; see `describe_levels`.

    `kind` is the main quantity of the table, ``level_mean`` or ``tile_mean``. `described` has the
    common JSON entries.
    """

    table: pd.DataFrame
    areas: TileAreas
    kind: str
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the polygon of each area, the quarter, and the tests per tile."""
        described = self.described
        table = self.table.assign(
            quarter=described["at"], tests_per_tile=described["tests_per_tile"]
        )
        return gpd.GeoDataFrame(table, geometry=list(self.areas.shapes), crs=4326)


def area_levels(opened: Reopened, asked: AreaQuestion) -> AreaLevels:
    """Return the level of each area; raise the errors of `tile_areas` and `SpatialGP.joint`."""
    tiles = opened.tiles
    areas = tile_areas(opened, asked.by, asked.crs)
    if opened.settings.calibrated:
        opened.listener.warn(
            "the conformal repair of this run applies to single measurements. Means over areas, "
            "with and without noise, come from the model without the repair."
        )
    people = (
        None if asked.weights is None else tile_weights(opened, asked.weights, asked.by, asked.crs)
    )
    level = opened.level(seed=asked.seed, columns=max(asked.draws, len(areas)))
    quantity, tests = quantity_of(opened.settings.target), opened.question.tests
    if asked.question == "level":
        opened.listener.stage(f"{asked.draws} draws for medians, arithmetic means and ranks")
        kind, measured = "level_mean", level
        columns = describe_levels(level, areas, quantity, asked)
    else:
        kind, measured = "tile_mean", level.measured(float(tests or 1), opened.question.devices)
        columns = describe_means(measured, areas, quantity)
    if people is not None:
        of = kind.replace("mean", "weighted")
        columns |= {"weight": areas.totals(people)}
        columns |= _means(measured, areas.shares(people), of, quantity)
    described = {
        "by": asked.by,
        "weights": asked.weights,
        "at": opened.question.at,
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        "tiles_elsewhere": len(tiles) - len(np.unique(np.concatenate(areas.tiles))),
        "tests_per_tile": tests,
        "devices_per_tile": opened.question.devices,
        "draws": asked.draws,
        "unit": quantity.unit,
        "mean": "geometric: of log10, over tiles",
        "function_sd": median_sds(level),
        "warnings": opened.listener.warnings,
    }
    return AreaLevels(areas.table(opened).assign(**columns), areas, kind, described)


def describe_levels(
    level: JointLevel, areas: TileAreas, quantity: Quantity, asked: AreaQuestion
) -> dict[str, Any]:
    """Return columns about the level of each area, (k,).

    Each quantity has three columns, for the value and the ends of its 95 % interval; the column
    names end in the unit. ``level_mean`` is the geometric mean over the tiles: ten to the power of
    the mean of log10. ``level_median`` and ``level_arithmetic`` are the median and the arithmetic
    mean over the tiles. The interval of ``level_mean`` comes from the exact variance of a sum
    (`JointLevel`); other intervals are quantiles of draws. ``independent_sd_log10`` is the standard
    deviation of ``level_mean``, in log10, for independent tiles. This standard deviation is too
    small, because tiles are correlated.

    If the areas do not overlap, ``rank`` is the rank of ``level_mean``, 1 for the highest value,
    and ``rank_lower`` and ``rank_upper`` are the ends of the 95 % interval of the rank of each
    single area.
    """
    weights, unit = areas.means(len(level)), quantity.suffix
    columns: dict[str, Any] = _means(level, weights, "level_mean", quantity)
    mean = columns["level_mean_log10"]
    drawn = _drawn(level, areas, asked)
    ranked = drawn.pop("rank")
    if areas.are_apart:
        low, _, high = np.quantile(ranked, _ENDS, axis=0, method="inverted_cdf")
        ends = {"rank": _ranks(mean[None])[0], "rank_lower": low, "rank_upper": high}
        columns |= {name: values.astype(np.int64) for name, values in ends.items()}
    for name, values in drawn.items():
        low, middle, high = np.quantile(values, _ENDS, axis=0)
        columns |= {
            f"{name}_{unit}": middle,
            f"{name}_lower_{unit}": low,
            f"{name}_upper_{unit}": high,
        }
    squares = np.asarray(weights.multiply(weights).T @ level.single_variances(), np.float64)
    return columns | {"independent_sd_log10": np.sqrt(squares)}


def describe_means(measured: JointLevel, areas: TileAreas, quantity: Quantity) -> dict[str, Floats]:
    """Return columns about the mean of new measurements with noise, one for each tile, (k,).

    The columns of ``tile_mean`` are like those of ``level_mean`` in `describe_levels`.
    """
    return _means(measured, areas.means(len(measured)), "tile_mean", quantity)


def _means(level: JointLevel, weights: Any, name: str, quantity: Quantity) -> dict[str, Floats]:
    """Return columns about means with weights (n, k): NaN for an area without weight.

    The noise of new measurements is 0 unless `JointLevel.measured` has set it.
    """
    known = np.isfinite(weights.sum(0))
    mean, sd = np.full((2, len(known)), np.nan)
    mean[known] = level.sum_means(weights[:, known])
    sd[known] = np.sqrt(level.sum_variances(weights[:, known], noise=True))
    unit = quantity.suffix
    return {
        f"{name}_{unit}": 10**mean,
        f"{name}_lower_{unit}": 10 ** (mean - REACH * sd),
        f"{name}_upper_{unit}": 10 ** (mean + REACH * sd),
        f"{name}_log10": mean,
        f"{name}_sd_log10": sd,
    }


def _drawn(level: JointLevel, areas: TileAreas, asked: AreaQuestion) -> dict[str, Floats]:
    """Return rank, median and arithmetic mean of each area, for each posterior draw."""
    weights = areas.means(len(level))
    median, mean, rank = [], [], []
    for paths in level.paths(asked.draws, seed=asked.seed):
        # float32 is exact enough for draws, and faster.
        values = 10 ** paths.astype(np.float32)
        median.append(np.stack([np.median(values[:, tiles], 1) for tiles in areas.tiles], 1))
        mean.append((weights.T @ values.T).T)
        rank.append(_ranks((weights.T @ paths.T).T))
    parts = {"level_median": median, "level_arithmetic": mean, "rank": rank}
    return {name: np.concatenate(each) for name, each in parts.items()}


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value in its row, 1 for the highest value, (b, k)."""
    return np.asarray(scipy.stats.rankdata(-values, axis=1), np.float64)


def median_sds(level: JointLevel) -> dict[str, float]:
    """Return the median standard deviation of the level at the tiles, from two calculations.

    ``closed_form`` uses the closed-form posterior, ``stated`` the model's own prediction. The two
    differ most for PPGP and dPPGP, whose own variance also contains noise.
    """
    return {
        "closed_form": float(np.median(np.sqrt(level.single_variances() / level.factor**2))),
        "stated": float(np.median(np.sqrt(level.stated_variances()))),
    }

"""Levels of areas: counties, urban areas, or polygons of the user."""

from dataclasses import dataclass
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats

from geogp.distributions.quantity import Quantity
from geogp.maps.grid import quantity_of
from geogp.models.joint.joint_level import JointLevel
from geogp.runs.pipeline.drawing import tests_on
from geogp.runs.questions.question_types import AreaQuestion
from geogp.runs.reopen import Reopened, tag_of

Floats = NDArray[np.float64]

REACH = float(stats.norm.ppf(0.975))
"""Number of standard deviations from the middle of a 95 % interval to its end."""

_ENDS = (0.025, 0.975)


@dataclass(frozen=True)
class AreaLevels:
    """Levels and polygons of the areas that contain the centre of a tile; see `describe_areas`.

    `tag` is the name of the areas' layer, for file names. `described` has the common JSON entries.
    """

    table: pd.DataFrame
    shapes: list[Any]
    tag: str
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the polygon of each area, the quarter, and the tests per tile."""
        described = self.described
        table = self.table.assign(
            quarter=described["at"], tests_per_tile=described["tests_per_tile"]
        )
        return gpd.GeoDataFrame(table, geometry=self.shapes, crs=4326)


def area_levels(opened: Reopened, asked: AreaQuestion) -> AreaLevels:
    """Return the level of each area; raise the errors of `Reopened.areas` and `SpatialGP.joint`."""
    job, tiles = opened.job, opened.tiles
    layer, number = opened.areas(asked.by)
    if job.request.calibrated:
        job.warn(
            "the conformal repair of this run applies to single measurements. Means over areas, "
            "with and without noise, come from the model without the repair."
        )
    level = opened.level(seed=asked.seed, columns=max(asked.draws, len(layer)))
    measured = level.measured(float(job.question.tests or 1), job.question.devices)
    job.listener.stage(f"{asked.draws} draws for medians and arithmetic means")
    quantity = quantity_of(job.request.target)
    table = describe_areas(level, measured, number, quantity, asked)
    shown = table.index.to_numpy()
    table.insert(0, "area", [layer.labels[k] for k in shown])
    tests = tests_on(tiles, job.observations)
    sums = pd.DataFrame({"measured": tests > 0, "tests": tests}).groupby(number).sum()
    table.insert(2, "measured_tiles", sums["measured"])
    table.insert(3, "tests", sums["tests"])
    described = {
        "by": asked.by,
        "at": job.question.at,
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        "tiles_elsewhere": int((number < 0).sum()),
        "tests_per_tile": job.question.tests,
        "devices_per_tile": job.question.devices,
        "draws": asked.draws,
        "unit": quantity.unit,
        "mean": "geometric: of log10, over tiles",
        "function_sd": median_sds(level),
        "warnings": job.warnings,
    }
    return AreaLevels(table, [layer.shapes[k] for k in shown], tag_of(asked.by, layer), described)


def describe_areas(
    level: JointLevel,
    measured: JointLevel,
    number: NDArray[np.int64],
    quantity: Quantity,
    asked: AreaQuestion,
) -> pd.DataFrame:
    """Return one row for each area with a tile; the index is the number of the area.

    Each quantity has three columns, for the value and the ends of its 95 % interval; the column
    names end in the unit. ``level_mean`` is the geometric mean over the tiles: ten to the power of
    the mean of log10. ``level_median`` and ``level_arithmetic`` are the median and the arithmetic
    mean over the tiles. ``tile_mean`` is like ``level_mean``, but for new measurements with noise,
    one for each tile. The intervals of ``level_mean`` and ``tile_mean`` come from the exact
    variance of a sum (`JointLevel`); other intervals are quantiles of draws.
    ``independent_sd_log10`` is the standard deviation of ``level_mean``, in log10, for independent
    tiles. This standard deviation is too small, because tiles are correlated.

    `level` and `measured` are the joint distributions of levels and of new measurements. `number`
    is the number of each tile's area, negative if the tile lies in no area.
    """
    areas, where = np.unique(number[number >= 0], return_inverse=True)
    inside = np.flatnonzero(number >= 0)
    count = np.bincount(where)
    weights = sparse.csc_array((1 / count[where], (inside, where)), shape=(len(number), len(areas)))
    sd = np.sqrt(level.sum_variances(weights))
    noisy = np.sqrt(measured.sum_variances(weights, noise=True))
    columns: dict[str, Any] = {"tiles": count}
    unit = quantity.suffix
    columns |= _mean_columns("level_mean", unit, level.sum_means(weights), sd)
    order = np.split(inside[np.argsort(where, kind="stable")], np.cumsum(count)[:-1])
    for name, drawn in _drawn(level, order, asked).items():
        low, middle, high = np.quantile(drawn, (_ENDS[0], 0.5, _ENDS[1]), axis=0)
        columns |= {
            f"{name}_{unit}": middle,
            f"{name}_lower_{unit}": low,
            f"{name}_upper_{unit}": high,
        }
    columns |= _mean_columns("tile_mean", unit, measured.sum_means(weights), noisy)
    squares = np.asarray(weights.multiply(weights).T @ level.single_variances(), np.float64)
    columns["independent_sd_log10"] = np.sqrt(squares)
    return pd.DataFrame(columns, index=areas)


def _mean_columns(name: str, unit: str, mean: Floats, sd: Floats) -> dict[str, Floats]:
    return {
        f"{name}_{unit}": 10**mean,
        f"{name}_lower_{unit}": 10 ** (mean - REACH * sd),
        f"{name}_upper_{unit}": 10 ** (mean + REACH * sd),
        f"{name}_log10": mean,
        f"{name}_sd_log10": sd,
    }


def _drawn(
    level: JointLevel, areas: list[NDArray[np.int64]], asked: AreaQuestion
) -> dict[str, Floats]:
    """Return, for each posterior draw, the median and the arithmetic mean of each area's tiles."""
    median, mean = [], []
    for paths in level.paths(asked.draws, seed=asked.seed):
        # float32 is exact enough for draws, and faster.
        values = [10 ** paths.T[tiles].T.astype(np.float32) for tiles in areas]
        median.append(np.stack([np.median(part, 1) for part in values], 1))
        mean.append(np.stack([part.mean(1) for part in values], 1))
    return {"level_median": np.concatenate(median), "level_arithmetic": np.concatenate(mean)}


def median_sds(level: JointLevel) -> dict[str, float]:
    """Return the median standard deviation of the level at the tiles, from two calculations.

    ``closed_form`` uses the closed-form posterior, ``stated`` the model's own prediction. The two
    differ most for PPGP and dPPGP, whose own variance also contains noise.
    """
    return {
        "closed_form": float(np.median(np.sqrt(level.single_variances() / level.factor**2))),
        "stated": float(np.median(np.sqrt(level.stated_variances()))),
    }

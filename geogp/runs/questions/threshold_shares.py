"""Compares the level with thresholds: shares of areas with intervals, and joint regions."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from msgspec import UNSET
from numpy.typing import NDArray
from scipy import sparse, special

from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.models.joint.excursions import FirstMisses, JointRegion
from geogp.models.joint.level import JointLevel
from geogp.runs.questions.question_types import BY_STRATUM, ThresholdQuestion
from geogp.runs.questions.tile_areas import tile_areas
from geogp.runs.questions.tile_weights import tile_weights
from geogp.runs.reopen import WHOLE, Reopened

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Probability of the intervals and of the joint regions."""

_ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class Excursion:
    """The comparison of the level with one threshold.

    `shares` has one row per area (see `area_weights`). ``mean``, ``lower`` and ``upper`` describe
    the share of the area where the level does not reach the threshold. ``error`` is the standard
    error of ``mean`` (a mean over draws), and ``closed_form`` is the mean without draws. The same
    columns with ``weighted_`` describe the share of the weights, such as people. `met` is the joint
    region where the level reaches the threshold; `short` is the region where it does not.
    """

    threshold: Threshold
    shares: pd.DataFrame
    met: JointRegion
    short: JointRegion


def threshold_shares(opened: Reopened, asked: ThresholdQuestion) -> tuple[Excursion, ...]:
    """Compare a run's level with each threshold; return the results, smallest threshold first.

    Raises RequestError for a threshold out of range, and the errors of `area_weights` and
    `tile_weights`.
    """
    drawing = opened.record.drawing
    stored = () if drawing is UNSET or drawing.thresholds is UNSET else tuple(drawing.thresholds)
    thresholds = thresholds_of(opened.settings.target, asked.threshold or stored or None)
    people = (
        None if asked.weights is None else tile_weights(opened, asked.weights, asked.by, asked.crs)
    )
    areas, weights = area_weights(opened, asked.by, people, asked.crs)
    level = opened.level(seed=asked.seed, columns=asked.draws)
    opened.warn_of_smooth_level(level, "shares and joint regions")
    opened.listener.stage(f"{asked.draws} draws of all tiles")
    how = {"draws": asked.draws, "seed": asked.seed}
    return excursions(level, thresholds, areas, weights, far=opened.far, **how)


def area_weights(
    opened: Reopened, by: str | None, people: Floats | None = None, crs: str | None = None
) -> tuple[pd.DataFrame, sparse.csc_array]:
    """Return a table of k areas, and the share of each tile in the size of each area, (n, k).

    The table has the column ``layer``, the columns of `TileAreas.table`, and ``area_km2``. The rows
    are the region, the strata of the region (urban and rural), then the areas of ``--by`` that
    contain the centre of a tile. With the weights `people` (n,), the table has the column
    ``weight``, and k more columns (n, 2 k) have the share of each tile in the weight of each area.
    Raises the errors of `tile_areas`.
    """
    tiles = opened.tiles
    km2 = tile_areas_km2(tiles.centres[1], tiles.zoom)
    found = [tile_areas(opened, BY_STRATUM)]
    if by not in {None, BY_STRATUM}:
        found.append(tile_areas(opened, by, crs))
    sizes = {"area_km2": km2} if people is None else {"area_km2": km2, "weight": people}
    tables = [
        one.table(opened).assign(**{name: one.totals(size) for name, size in sizes.items()})
        for one in found
    ]
    for one, table in zip(found, tables, strict=True):
        table.insert(0, "layer", WHOLE if one.tag == BY_STRATUM else one.tag)
    weights = sparse.hstack(
        [one.shares(size) for size in sizes.values() for one in found], format="csc"
    )
    return pd.concat(tables, ignore_index=True), weights


def excursions(
    level: JointLevel,
    thresholds: tuple[Threshold, ...],
    areas: pd.DataFrame,
    weights: sparse.csc_array,
    *,
    draws: int,
    far: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> tuple[Excursion, ...]:
    """Compare posterior draws of the level with all thresholds, in one pass over the draws.

    The joint regions leave out tiles far from any measurement, `far` (n,). To save memory, only the
    shares and the `FirstMisses` of a draw are stored. `areas` and `weights` are as in
    `area_weights`.
    """
    sd = np.sqrt(level.single_variances())
    scores = [one.sign * (level.mean - one.log10) / sd for one in thresholds]
    out = np.zeros(len(sd), np.bool_) if far is None else far
    met, short = (
        [FirstMisses(np.where(out, -np.inf, side * z)) for z in scores] for side in (1.0, -1.0)
    )
    parts: list[list[Floats]] = [[] for _ in thresholds]
    for paths in level.paths(draws, seed=seed):
        for k, threshold in enumerate(thresholds):
            above = threshold.holds(paths)
            met[k].add(above)
            short[k].add(~above)
            parts[k].append(np.asarray((weights.T @ (~above).T.astype(np.float64)).T))
    return tuple(
        Excursion(
            threshold,
            _shares(areas, np.concatenate(parts[k]), weights.T @ special.ndtr(-scores[k])),
            met[k].region(LEVEL),
            short[k].region(LEVEL),
        )
        for k, threshold in enumerate(thresholds)
    )


def _shares(areas: pd.DataFrame, drawn: Floats, closed_form: Floats) -> pd.DataFrame:
    lower, upper = np.quantile(drawn, _ENDS, axis=0)
    columns = {
        "mean": drawn.mean(0),
        "lower": lower,
        "upper": upper,
        "error": drawn.std(0, ddof=1) / np.sqrt(len(drawn)),
        "closed_form": closed_form,
    }
    k = len(areas)
    found = areas.assign(**{name: values[:k] for name, values in columns.items()})
    if len(closed_form) == k:
        return found
    return found.assign(**{f"weighted_{name}": values[k:] for name, values in columns.items()})

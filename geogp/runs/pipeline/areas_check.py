"""The check of a run's joint intervals, on means of test rows in blocks of one quarter."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.split_names import BLOCKS
from geogp.evaluation.splits.split_rows import SplitRows, split_groups
from geogp.geodata.tiles.targets import find_target
from geogp.models.joint.area_means import LEAST_ROWS, AreaMeans, blocks_in_quarters
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import AreasCheck
from geogp.runs.pipeline.read import Inputs

MOST_IN_AREA, MOST_ROWS = 25, 3000
"""Largest numbers of rows in an area and in all areas of a fold, to save time."""


def area_means(
    settings: MapSettings,
    inputs: Inputs,
    estimator: SpatialGP,
    source_rows: SplitRows,
    test: NDArray[np.bool_],
) -> AreaMeans | str:
    """Compare means of test rows in areas with the joint distribution, for one fold.

    `source_rows` are the columns of all input rows, and `test` (n,) marks the test rows among the
    rows used. Returns the reason in words for models without stored rows, whose joint
    distribution lacks the process of single tiles, for repaired predictions, for models of the
    place alone, for regions that are too small for blocks, and for rows of drives, of shares of
    tests or with known errors.
    """
    why = _why_not(settings, inputs, estimator)
    if why is not None:
        return why
    try:
        blocks = split_groups(BLOCKS.name, source_rows)
    except RequestError as error:
        return str(error)
    assert blocks is not None, "a split by blocks has groups"
    seen, random = inputs.observations, np.random.default_rng(settings.seed)
    chosen = random.permutation(np.flatnonzero(test))
    area = blocks_in_quarters(blocks[inputs.ingested.kept][chosen], seen.quarter[chosen])
    few = pd.Series(area).groupby(area).cumcount().to_numpy() < MOST_IN_AREA
    # Areas have numbers in the order of the rows, which is random.
    few &= area < np.searchsorted(np.cumsum(np.bincount(area[few])), MOST_ROWS, "right")
    chosen, area = chosen[few], area[few]
    level = estimator.joint(inputs.table.iloc[chosen])
    counts = (each[chosen].astype(np.float64) for each in (seen.tests, seen.devices))
    measured = level.measured(*counts)
    return AreaMeans.of(measured, seen.y[chosen], area)


def _why_not(settings: MapSettings, inputs: Inputs, estimator: SpatialGP) -> str | None:
    """Return why means of areas are not checked; None if they are."""
    rows = inputs.observations
    for holds, why in (
        (
            not estimator.network_.holds_rows,
            f"the joint distribution of {settings.model} has no process of single tiles.",
        ),
        (
            rows.drive is not None,
            "the rows of a drive err together, and the check takes their noise as independent.",
        ),
        (
            find_target(settings.target).is_share,
            "the noise of a share depends on the share, and the check takes noise as given.",
        ),
        (
            rows.error_variance is not None,
            "rows have known errors, and the check takes all rows as measured alike.",
        ),
        (
            settings.calibrated,
            "the joint distribution is not repaired, but the predictions are (--conformal).",
        ),
        (
            estimator.scale_.times is None,
            "the model has only the place as an input, and blocks are checked by quarter.",
        ),
    ):
        if holds:
            return why
    return None


def areas_check(folds: list[AreaMeans | str]) -> AreasCheck | str:
    """Return the check of a split for run.json, or the reason why there is none."""
    known = [fold for fold in folds if not isinstance(fold, str)]
    if not known:
        return str(folds[0])
    together = AreaMeans.together(known)
    if not len(together.rows):
        return f"no block has {LEAST_ROWS} test rows or more in one quarter."
    return AreasCheck(
        areas=len(together.rows),
        rows=int(together.rows.sum()),
        coverage_95=together.covered(together.joint),
        coverage_95_independent=together.covered(together.independent),
    )

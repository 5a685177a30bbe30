"""Conformal repair of predictions; its calibration rows have no other use."""

import math

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_cells import RepairPlaces
from geogp.evaluation.conformal.conformal_repair import (
    NO_REPAIR,
    Repair,
    check_coverage,
    fit_repair,
    scatter,
)
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.geodata.tiles.observations import Observations
from geogp.records.repair_records import (
    CalibrationRecord,
    CellRecord,
    RepairedCell,
    RepairedFold,
    RepairedSplit,
)
from geogp.reports.rendering import say, say_all
from geogp.runs.pipeline.read import Inputs

Rows = NDArray[np.bool_]


def places_of(seen: Observations, rows: Rows) -> RepairPlaces:
    """Return the strata, tests and coordinates of the rows in a mask, for a repair."""
    tests = seen.tests[rows].astype(np.float64)
    return RepairPlaces(
        seen.stratum[rows], tests, seen.longitude[rows], seen.latitude[rows], seen.strata
    )


def repair_of(method: str, inputs: Inputs, estimator: SpatialGP, rows: Rows) -> Repair:
    """Return the conformal repair of a fitted model; `rows`, (n,), marks the calibration rows.

    The method ``none`` changes nothing.
    """
    if method == METHODS[0]:
        return NO_REPAIR
    places = places_of(inputs.observations, rows)
    prediction = estimator.predict_distribution(inputs.table[rows])
    return fit_repair(method, prediction, inputs.observations.y[rows], places)


def check_repair(
    repair: Repair, before: Prediction, y: NDArray[np.float64], places: RepairPlaces
) -> RepairedFold:
    """Return the coverage of intervals before and after a repair, for each cell of the repair."""
    if not repair.cells:
        return RepairedFold(n=repair.n, cells=[])
    after = check_coverage(repair, repair.apply(before, places), y, places)
    plain = check_coverage(repair, before, y, places)
    cells = [
        RepairedCell(**{**vars(cell), "band": list(cell.band), "before": other.observed})
        for cell, other in zip(after, plain, strict=True)
    ]
    return RepairedFold(n=repair.n, cells=cells)


def repaired_splits(
    method: str, checks: dict[str, list[RepairedFold | None]]
) -> dict[str, RepairedSplit]:
    """Return the effect of the conformal repair in each split; omit splits without a repair."""
    return {
        name: RepairedSplit(
            statement=say("conformal", "promise", method, name),
            folds=[check for check in folds if check is not None],
        )
        for name, folds in checks.items()
        if any(check is not None for check in folds)
    }


def with_repair(record: CalibrationRecord, repair: Repair) -> CalibrationRecord:
    """Return `record` with the repair of the map added."""
    cells = [
        CellRecord(
            name=cell.name,
            stratum=cell.stratum,
            tests=[cell.least, cell.most],
            n=cell.n,
            knots=[None if math.isnan(knot) else knot for knot in cell.knots],
        )
        for cell in repair.cells
    ]
    return replace(
        record,
        method=repair.method,
        n=repair.n,
        ladder=repair.ladder,
        cells=cells,
        statements=say_all(
            "conformal",
            "statements",
            repair.method,
            repair.n,
            repair.cells,
            repair.smallest,
            scatter(repair.smallest.n) if repair.smallest else None,
        ),
    )

"""Where predictions are repaired by rows that were kept for it and used for nothing else."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_cells import RepairPlaces
from geogp.evaluation.conformal.conformal_repair import NO_REPAIR, Repair, fit_repair
from geogp.evaluation.conformal.conformal_words import APPROXIMATE, EXCHANGEABLE
from geogp.evaluation.conformal.coverage_bands import check_coverage
from geogp.evaluation.conformal.repair_methods import LOCAL
from geogp.geodata.tiles.observations import Observations
from geogp.runs.pipeline.job import Job

Rows = NDArray[np.bool_]


def places_of(seen: Observations, rows: Rows) -> RepairPlaces:
    """Return what a repair may know of some of the observations."""
    tests = seen.tests[rows].astype(np.float64)
    return RepairPlaces(
        seen.stratum[rows], tests, seen.longitude[rows], seen.latitude[rows], seen.strata
    )


def repair_of(job: Job, model: SpatialGP, rows: Rows) -> Repair:
    """Return the repair that the calibration rows of a fitted model call for.

    Every prediction of a run passes through it: test rows of each fold, and the map.

    Parameters
    ----------
    job
        The run; its request says which repair.
    model
        The fitted model.
    rows
        Its calibration rows among the job's observations, (n,); none without ``--conformal``.

    Raises
    ------
    DataError
        There are too few calibration rows.
    """
    if not job.request.calibrated:
        return NO_REPAIR
    seen = job.observations
    places = places_of(seen, rows)
    prediction = model.predict_distribution(job.table[rows])
    return fit_repair(job.request.conformal, prediction, seen.y[rows], places)


@dataclass(frozen=True)
class RepairCheck:
    """What the repair of one fold did for its test rows.

    Attributes
    ----------
    n
        Calibration rows.
    cells
        Coverage of each cell and level before and after the repair, with the band that chance
        allows for; none for a repair without cells.
    """

    n: int
    cells: list[dict[str, Any]]


def check_repair(
    repair: Repair, before: Prediction, y: NDArray[np.float64], places: RepairPlaces
) -> RepairCheck | None:
    """Compare coverage by cell before and after a repair; None where there was none."""
    if not repair.n:
        return None
    if not repair.cells:
        return RepairCheck(repair.n, [])
    after = check_coverage(repair, repair.apply(before, places), y, places)
    plain = check_coverage(repair, before, y, places)
    return RepairCheck(
        repair.n,
        [
            {**asdict(one), "band": list(one.band), "before": other.observed}
            for one, other in zip(after, plain, strict=True)
        ],
    )


def described_checks(method: str, checks: dict[str, list[RepairCheck | None]]) -> dict[str, Any]:
    """Return what run.json says of the repairs of each fold, by split.

    Parameters
    ----------
    method
        Of the repair.
    checks
        Of each fold, by split.
    """
    return {
        name: {
            "statement": APPROXIMATE if method == LOCAL else EXCHANGEABLE[name],
            "folds": [asdict(check) for check in folds if check is not None],
        }
        for name, folds in checks.items()
        if any(check is not None for check in folds)
    }

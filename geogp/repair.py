"""Where predictions are put right by rows that were kept for it and used for nothing else."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from geogp.geodata.observations import Observations
from geogp.job import Job
from geogp.models.lowrank import LowRankGP
from geogp.models.prediction import Prediction

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PredictedRows:
    """What a repair may know of predicted rows, each (n,).

    Attributes
    ----------
    longitude, latitude
        Degrees.
    quarter
        Indices of quarters.
    tests
        Tests behind each value.
    stratum
        ``urban``, ``rural`` or ``unknown``.
    """

    longitude: Floats
    latitude: Floats
    quarter: NDArray[np.int64]
    tests: Floats
    stratum: NDArray[np.str_]

    @classmethod
    def of(cls, seen: Observations, rows: NDArray[np.bool_]) -> "PredictedRows":
        """Return some of the observations."""
        return cls(
            seen.longitude[rows],
            seen.latitude[rows],
            seen.quarter[rows],
            seen.tests[rows].astype(np.float64),
            seen.stratum[rows],
        )


class Repair(Protocol):
    """A rule, learned from calibration rows, that changes predictive distributions."""

    def apply(self, prediction: Prediction, rows: PredictedRows) -> Prediction:
        """Return the prediction put right, in the order of its rows."""


class NoRepair:
    """Leaves predictions as they are."""

    def apply(self, prediction: Prediction, rows: PredictedRows) -> Prediction:  # noqa: ARG002
        """Return the prediction."""
        return prediction


def repair_of(job: Job, model: LowRankGP, rows: NDArray[np.bool_]) -> Repair:  # noqa: ARG001
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
    """
    if job.request.calibrated:
        text = (
            f"--conformal {job.request.conformal}: a tenth of the rows is kept for it, but this "
            "version does not repair intervals yet; they are those of the model."
        )
        if text not in job.warnings:
            job.warn(text)
    return NoRepair()

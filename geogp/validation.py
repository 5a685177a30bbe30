"""How well a run's model predicts rows that it was not fitted to: splits, scores and baseline."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.calibration.baseline import count_baseline, quarter_baseline
from geogp.calibration.metrics import score_by_stratum
from geogp.calibration.splits import block_split, random_split
from geogp.fitting import Fitted, fit_model
from geogp.geodata.observations import Observations
from geogp.geodata.quadkeys import format_quadkeys
from geogp.geodata.quarters import quarter_label
from geogp.job import Job, timed
from geogp.models.catalogue import find_spec
from geogp.models.objectives import Weights
from geogp.models.prediction import Prediction

Floats = NDArray[np.float64]
Parts = NDArray[np.str_]


def split_parts(name: str, observations: Observations, seed: int) -> Parts:
    """Return the part of each row under a split."""
    if name == "random":
        return random_split(observations.quadkey, observations.quarter, seed)
    return block_split(observations.longitude, observations.latitude, seed)


@dataclass(frozen=True)
class Outcome:
    """What a split gave.

    Attributes
    ----------
    fitted
        The model of its training rows.
    parts
        ``train``, ``validation`` or ``test`` of each row, (n,).
    n
        Rows by part.
    metrics, baseline
        Scores of model and yardstick on the test rows, by stratum.
    table
        The test rows with their predictions.
    """

    fitted: Fitted
    parts: Parts
    n: dict[str, int]
    metrics: dict[str, dict[str, float | None]]
    baseline: dict[str, dict[str, float | None]]
    table: pd.DataFrame


def run_split(job: Job, name: str, parts: Parts, weights: Weights) -> Outcome:
    """Fit on a split's training rows, and score its test rows beside the baseline."""
    observations, test, train = job.observations, parts == "test", parts == "train"
    fitted = fit_model(job, name, train, parts == "validation", weights)
    with timed(job.seconds, "predict"):
        prediction = fitted.model.predict(
            job.inputs(test), observations.tests[test].astype(np.float64)
        )
    y, stratum = observations.y[test], observations.stratum[test]
    yardstick_of = count_baseline if find_spec(job.request.model).counts else quarter_baseline
    reference = yardstick_of(
        observations.quarter[train], observations.y[train], observations.quarter[test]
    )
    if reference.rows_pooled:
        job.warn(
            f"{reference.rows_pooled} test rows ({name} split) lie in quarters with too few "
            "training rows; their baseline is that of all quarters."
        )
    metrics = _scores(prediction, y, stratum)
    yardstick = _scores(reference.prediction, y, stratum)
    for group in losing_groups(metrics, yardstick):
        job.warn(
            f"the model's log score is worse than the baseline's ({name} split, {group}): the "
            "mean of each quarter tells more there than the map."
        )
    return Outcome(
        fitted,
        parts,
        n={part: int((parts == part).sum()) for part in ("train", "validation", "test")},
        metrics=metrics,
        baseline=yardstick,
        table=_prediction_table(name, observations, test, prediction),
    )


def _scores(
    prediction: Prediction, y: Floats, stratum: Parts
) -> dict[str, dict[str, float | None]]:
    found = score_by_stratum(prediction, y, stratum)
    return {name: asdict(scores) for name, scores in found.items()}


def losing_groups(
    metrics: dict[str, dict[str, float | None]], baseline: dict[str, dict[str, float | None]]
) -> list[str]:
    """Return the strata in which the log score is worse than the baseline's."""
    pairs = {name: (found["nll"], baseline[name]["nll"]) for name, found in metrics.items()}
    return [
        name
        for name, (own, other) in pairs.items()
        if own is not None and other is not None and own > other
    ]


def _prediction_table(
    split: str, observations: Observations, rows: NDArray[np.bool_], prediction: Prediction
) -> pd.DataFrame:
    """Return the test rows with their predictions, in the columns other programs expect."""
    lower, upper = prediction.interval(0.95)
    return pd.DataFrame(
        {
            "split": split,
            "quadkey": format_quadkeys(observations.quadkey[rows]),
            "quarter": [quarter_label(q) for q in observations.quarter[rows].tolist()],
            "longitude": observations.longitude[rows],
            "latitude": observations.latitude[rows],
            "y": observations.y[rows],
            "tests": observations.tests[rows],
            "stratum": observations.stratum[rows],
            **prediction.columns(),
            "lower_95": lower,
            "upper_95": upper,
        }
    )

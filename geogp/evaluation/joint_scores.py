"""Scores of joint predictions of several targets, and their columns in a table of test rows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from geogp.arrays import Floats, Mask
from geogp.distributions.joint_prediction import JointPrediction
from geogp.errors import DataError, named
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.scores import JointScores

DRAWS = 50
"""Pairs of draws of the energy score of a row; the mean over rows needs few."""


@dataclass(frozen=True)
class TierEvent:
    """A tier as an event of test rows: `stated` probabilities and the `outcome`, each (n,).

    `value` is the number of the tier in a list, and `met` says what the tier asks.
    """

    value: float
    met: str
    stated: Floats
    outcome: Mask

    def holds(self, _y: Floats) -> Mask:
        """Return which rows meet the tier, whatever the value of one target."""
        return self.outcome


def joint_scores(joint: JointPrediction, y: Floats, scale: Floats) -> JointScores:
    """Return the scores of joint predictions of measurements y, (n, t).

    `scale`, (t,), are the standard deviations of the targets in the training rows.
    """
    alone = replace(joint, correlation=np.broadcast_to(np.eye(y.shape[1]), joint.correlation.shape))
    z = joint.normal_scores(y)
    pairs = tuple(np.triu_indices(y.shape[1], 1))
    return JointScores(
        n=len(y),
        log_score=_mean(joint.joint_log_score(y)),
        energy_score=_mean(joint.energy_score(y, scale=scale, draws=DRAWS)),
        independent_log_score=_mean(alone.joint_log_score(y)),
        independent_energy_score=_mean(alone.energy_score(y, scale=scale, draws=DRAWS)),
        seen=np.asarray(np.corrcoef(z.T))[pairs].tolist(),
        stated=joint.correlation.mean(0)[pairs].tolist(),
    )


def together(scores: Sequence[JointScores]) -> JointScores:
    """Return the scores of all rows of several folds: means weighted by the numbers of rows."""
    n = np.array([one.n for one in scores])

    def mean(name: str) -> Any:
        return (n @ np.array([getattr(one, name) for one in scores]) / n.sum()).tolist()

    names = [field.name for field in fields(JointScores) if field.name != "n"]
    return JointScores(n=int(n.sum()), **{name: mean(name) for name in names})


def joint_columns(joint: JointPrediction, y: Floats) -> dict[str, Floats]:
    """Return the columns that tables of test rows have for targets after the first, and for pairs.

    The columns of a target are those of the first, such as ``y`` and ``mean``, with its name at the
    end: ``mean_upload``. ``correlation_download_upload`` is that of the normal scores.
    """
    columns: dict[str, Floats] = {}
    for k, name in list(enumerate(joint.names))[1:]:
        marginal = joint.marginals[k]
        lower, upper = marginal.interval(0.95)
        own = {"y": y[:, k], **marginal.columns(), "lower_95": lower, "upper_95": upper}
        columns |= {f"{column}_{name}": values for column, values in own.items()}
    for (j, one), (k, other) in combinations(enumerate(joint.names), 2):
        columns[f"correlation_{one}_{other}"] = joint.correlation[:, j, k]
    return columns


def target_rows(rows: pd.DataFrame, targets: Sequence[str], name: str) -> pd.DataFrame:
    """Return a table of test rows with the columns of one target in place of the first.

    Raises DataError if it lacks columns of the target.
    """
    if name == targets[0]:
        return rows
    end = f"_{name}"
    ends = [column for column in map(str, rows.columns) if column.endswith(end)]
    own = {
        column: column.removesuffix(end) for column in ends if not column.startswith("correlation_")
    }
    missing = [f"{column}{end}" for column in ("y", "mean") if column not in own.values()]
    if missing:
        raise DataError(f"expected the columns {named(missing)} of the target {name}, found none.")
    return rows.drop(columns=[*own.values()], errors="ignore").rename(columns=own)


def joint_of(rows: pd.DataFrame, targets: Sequence[str]) -> tuple[JointPrediction, Floats]:
    """Return the joint predictions of a table of test rows, and the measurements, (n, t).

    Raises DataError if columns are missing.
    """
    tables = [target_rows(rows, targets, name) for name in targets]
    correlation = np.broadcast_to(np.eye(len(targets)), (len(rows), *2 * (len(targets),))).copy()
    for (j, one), (k, other) in combinations(enumerate(targets), 2):
        column = f"correlation_{one}_{other}"
        if column not in rows:
            raise DataError(f"expected the column {column} of several targets, found none.")
        correlation[:, j, k] = correlation[:, k, j] = rows[column].to_numpy(np.float64)
    joint = JointPrediction(tuple(targets), tuple(map(prediction_of, tables)), correlation)
    return joint, np.column_stack([table["y"].to_numpy(np.float64) for table in tables])


def _mean(values: Floats) -> float:
    return float(values.mean())

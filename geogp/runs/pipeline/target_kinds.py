"""What a run does differently for targets that are numbers and for targets that are classes.

A kind of target scores the test rows of a fold, combines the folds, and writes the report. The
predictive distributions know the variables of the map.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.choices import AVERAGE, CLASS, COUNT
from geogp.distributions.prediction import Prediction
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.class_tables import (
    BY_QUARTER,
    BY_STRATUM_SHARES,
    MODEL,
    group_shares,
    probability_columns,
    table_scores,
)
from geogp.evaluation.joint_scores import joint_columns, joint_scores, together
from geogp.evaluation.metrics import score_by_stratum
from geogp.evaluation.scores import JointScores, pooled
from geogp.geodata.places.stratum_column import stratum_column
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.targets import find_target
from geogp.records.run_record import RunRecord, Strata
from geogp.reports.beside import Beside
from geogp.reports.class_report import class_report_texts
from geogp.reports.run_report import report_texts

Rows = NDArray[np.bool_]
Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class HeldOutScores:
    """Scores by stratum of the model and its baselines, on the test rows of a fold or of a split.

    `columns` describe the predictions of the test rows in test_predictions.parquet. `rows_pooled`
    is that of `Baseline`. Of several targets, these are the scores of the first; `each` has those
    of every target, and `joint` those of all together.
    """

    metrics: Strata
    baseline: Strata
    by_stratum: Strata | None = None
    columns: Columns = field(default_factory=dict)
    rows_pooled: int = 0
    each: "dict[str, HeldOutScores]" = field(default_factory=dict)
    joint: JointScores | None = None


class TargetKind(ABC):
    """What a run does for one kind of target.

    `yardstick` names the baseline in warnings. `later` warns of predictions of later quarters.
    """

    yardstick: str
    later: str

    @abstractmethod
    def fold(
        self, seen: Observations, train: Rows, test: Rows, prediction: Prediction
    ) -> HeldOutScores:
        """Return the scores of one fold; `prediction` is for the rows in the mask `test`."""

    @abstractmethod
    def together(
        self, seen: Observations, folds: Sequence[HeldOutScores], tables: Sequence[pd.DataFrame]
    ) -> HeldOutScores:
        """Return the scores of all folds; `tables` are their rows of test_predictions.parquet."""

    @abstractmethod
    def report(
        self, run: RunRecord, rows: pd.DataFrame, beside: Beside, *, latex: bool = False
    ) -> dict[str, str]:
        """Return the files of the report by name; with `latex`, also report.tex."""


class NumberTarget(TargetKind):
    """The target is an average over tests, or a number of tests."""

    yardstick = "the mean of each quarter predicts"
    later = (
        "The intervals do not become wider with time, so their coverage may be below the stated "
        "level."
    )

    def fold(
        self, seen: Observations, train: Rows, test: Rows, prediction: Prediction
    ) -> HeldOutScores:
        """Return scores of intervals; the baseline has the mean and variance of each quarter."""
        quarter, y, law = seen.quarter, seen.y, type(prediction)
        reference = quarter_baseline(quarter[train], y[train], quarter[test], law)
        guessed = reference.prediction.of_tests_like(prediction)
        stratum = stratum_column(seen.stratum[test], seen.strata)
        lower, upper = prediction.interval(0.95)
        return HeldOutScores(
            metrics=score_by_stratum(prediction, y[test], stratum),
            baseline=score_by_stratum(guessed, y[test], stratum),
            columns={**prediction.columns(), "lower_95": lower, "upper_95": upper},
            rows_pooled=reference.rows_pooled,
        )

    def together(
        self,
        seen: Observations,  # noqa: ARG002
        folds: Sequence[HeldOutScores],
        tables: Sequence[pd.DataFrame],  # noqa: ARG002
    ) -> HeldOutScores:
        """Return the means of the scores, weighted by the numbers of rows."""
        metrics, baseline = (
            {group: pooled([scores[group] for scores in parts]) for group in parts[0]}
            for parts in ([fold.metrics for fold in folds], [fold.baseline for fold in folds])
        )
        return HeldOutScores(metrics, baseline)

    def report(
        self, run: RunRecord, rows: pd.DataFrame, beside: Beside, *, latex: bool = False
    ) -> dict[str, str]:
        """Return the report on the coverage of the intervals."""
        return report_texts(run, rows, beside, latex=latex)


class SeveralNumbers(NumberTarget):
    """Several averages, which are predicted together."""

    def fold(self, seen: Observations, train: Rows, test: Rows, prediction: Any) -> HeldOutScores:
        """Return the scores of each target alone and of all together, of a `JointPrediction`."""
        y = cast("NDArray[np.float64]", seen.every)
        each = {
            name: super(SeveralNumbers, self).fold(seen.of_target(name), train, test, marginal)
            for name, marginal in zip(prediction.names, prediction.marginals, strict=True)
        }
        first = each[prediction.names[0]]
        return replace(
            first,
            columns=first.columns | joint_columns(prediction, y[test]),
            each=each,
            joint=joint_scores(prediction, y[test], y[train].std(0)),
        )

    def together(
        self, seen: Observations, folds: Sequence[HeldOutScores], tables: Sequence[pd.DataFrame]
    ) -> HeldOutScores:
        """Return the means of the scores, weighted by the numbers of rows."""
        pool = super().together
        each = {
            name: pool(seen, [fold.each[name] for fold in folds], tables) for name in folds[0].each
        }
        joint = [fold.joint for fold in folds if fold.joint is not None]
        return replace(pool(seen, folds, tables), each=each, joint=together(joint))


class ClassTarget(TargetKind):
    """The target is a class, such as a tier of speed."""

    yardstick = "the shares of the classes in each quarter predict"
    later = "The probabilities do not become less certain with time, so they may be too certain."

    def fold(
        self, seen: Observations, train: Rows, test: Rows, prediction: Prediction
    ) -> HeldOutScores:
        """Return scores of probabilities; the baselines are shares by quarter, and by stratum."""
        target = find_target(seen.target)
        named = np.unique(seen.stratum, return_inverse=True)[1]
        groups = {
            BY_QUARTER: seen.quarter,
            BY_STRATUM_SHARES: seen.quarter * (named.max() + 1) + named,
        }
        law = cast("Any", prediction)  # a `ClassPrediction`
        parts = {MODEL: law.probabilities}
        for start, group in groups.items():
            codes = seen.y[train]
            parts[start] = group_shares(group[train], codes, group[test], len(target.classes))
        columns: Columns = {}
        for start, values in parts.items():
            names = probability_columns(start, target.suffix, target.classes)
            columns |= dict(zip(names, values.T, strict=True))
        table = pd.DataFrame({**columns, "y": seen.y[test], "stratum": seen.stratum[test]})
        return HeldOutScores(*_class_scores(seen, table), columns=columns)

    def together(
        self,
        seen: Observations,
        folds: Sequence[HeldOutScores],
        tables: Sequence[pd.DataFrame],
    ) -> HeldOutScores:
        """Return the scores of all rows, because calibration errors have no mean over folds."""
        if len(folds) == 1:
            return folds[0]
        return HeldOutScores(*_class_scores(seen, pd.concat(tables, ignore_index=True)))

    def report(
        self, run: RunRecord, rows: pd.DataFrame, beside: Beside, *, latex: bool = False
    ) -> dict[str, str]:
        """Return the report on the probabilities of the classes."""
        return class_report_texts(run, rows, beside, latex=latex)


def _class_scores(seen: Observations, table: pd.DataFrame) -> tuple[Any, Any, Any]:
    """Return the scores by stratum of the model, and of the baselines by quarter and stratum."""
    target = find_target(seen.target)
    rows = table.assign(stratum=stratum_column(table["stratum"].to_numpy(str), seen.strata))
    model, quarter, stratum = (
        table_scores(rows, probability_columns(start, target.suffix, target.classes))
        for start in (MODEL, BY_QUARTER, BY_STRATUM_SHARES)
    )
    return model, quarter, stratum


_NUMBER, _SEVERAL = NumberTarget(), SeveralNumbers()

KINDS: dict[str, TargetKind] = {AVERAGE: _NUMBER, COUNT: _NUMBER, CLASS: ClassTarget()}
"""Each kind of target by its name."""


def kind_of(target: str) -> TargetKind:
    """Return what a run does for a target."""
    about = find_target(target)
    return _SEVERAL if about.others else KINDS[about.kind]

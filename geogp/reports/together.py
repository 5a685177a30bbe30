"""What the report says of several targets together: each alone, their correlations, and tiers."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from msgspec import to_builtins

from geogp.evaluation.joint_scores import TierEvent, joint_of
from geogp.evaluation.scores import Scores
from geogp.evaluation.strata import strata_of
from geogp.evaluation.threshold_reliability import ExceedanceReport, exceedance_reports
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.tiers import Tier, parse_tier
from geogp.records.run_record import RunDrawing, RunRecord, given
from geogp.reports.words import units_of

KINDS = ("stratum", "tests", "quarter")
"""Kinds of groups of test rows by which tiers are counted; see `strata.strata_of`."""


@dataclass(frozen=True)
class TargetRow:
    """The scores of one target alone, for all test rows or a stratum of them.

    `unit` is that of errors and widths; `gain` is the log score of the baseline minus that of the
    model.
    """

    target: str
    unit: str
    group: str
    scores: Scores
    gain: float | None


@dataclass(frozen=True)
class PairRow:
    """The correlation of the normal scores of two targets: of the measurements, and as stated."""

    pair: str
    seen: float
    stated: float


@dataclass(frozen=True)
class TierGroup:
    """Rows of one kind and name, with the `stated` and `observed` share of each tier."""

    kind: str
    name: str
    n: int
    stated: list[float]
    observed: list[float]


@dataclass(frozen=True)
class TogetherReport:
    """Several targets of one split together.

    `joint` has the fields of `JointScores`. `definitions` says what each tier asks, by its name.
    `tiers` judge their probabilities, and `groups` count them in groups of rows.
    """

    targets: list[TargetRow]
    joint: dict[str, Any]
    pairs: list[PairRow]
    definitions: dict[str, str]
    tiers: list[ExceedanceReport]
    groups: list[TierGroup]


def together_report(
    name: str, rows: pd.DataFrame, scored: pd.DataFrame, run: RunRecord
) -> TogetherReport | None:
    """Return the report on several targets, from the test rows of a split; None for one target.

    `scored` has the scores of the same rows. Raises DataError if columns are missing.
    """
    targets, joint = target_names(run.target), given(run.joint, {}).get(name)
    if len(targets) == 1 or joint is None:
        return None
    names = given(given(run.drawing, RunDrawing()).tiers, [])
    tiers = [parse_tier(text, targets) for text in names]
    events = _events(tiers, rows, targets)
    strata = strata_of(rows, scored["median"].to_numpy(), run.target)
    groups = [(kind, one) for kind in KINDS for one in strata.get(kind, [])]
    return TogetherReport(
        targets=_target_rows(name, run),
        joint=to_builtins(joint),
        pairs=[
            PairRow(" and ".join(pair), seen, stated)
            for pair, seen, stated in zip(
                combinations(targets, 2), joint.seen, joint.stated, strict=True
            )
        ],
        definitions={tier.name: tier.definition for tier in tiers},
        tiers=exceedance_reports(rows, lambda event: event.stated, events),
        groups=[
            TierGroup(
                kind,
                one.name,
                int(one.rows.sum()),
                [float(event.stated[one.rows].mean()) for event in events],
                [float(event.outcome[one.rows].mean()) for event in events],
            )
            for kind, one in groups
        ],
    )


def _events(tiers: list[Tier], rows: pd.DataFrame, targets: tuple[str, ...]) -> list[TierEvent]:
    """Return each tier with its stated probabilities and outcomes in the test rows."""
    stated, outcome = np.empty((len(rows), len(tiers))), np.empty((len(rows), len(tiers)), bool)
    # Folds may have shapes of distributions with different columns.
    folds = rows.groupby("fold").indices if "fold" in rows else {0: np.arange(len(rows))}
    for part in folds.values():
        joint, y = joint_of(rows.iloc[part], targets)
        for k, tier in enumerate(tiers):
            stated[part, k], outcome[part, k] = tier.probability(joint), tier.holds(y, targets)
    return [
        TierEvent(float(k), tier.name, stated[:, k], outcome[:, k]) for k, tier in enumerate(tiers)
    ]


def _target_rows(name: str, run: RunRecord) -> list[TargetRow]:
    found = []
    for target in given(run.targets, []):
        unit, _ = units_of(target.name)
        for group, scores in target.metrics[name].items():
            assert isinstance(scores, Scores), "targets of several are averages"
            gain = scores.gain(target.baseline[name].get(group))
            found.append(TargetRow(target.name, unit, group, scores, gain))
    return found

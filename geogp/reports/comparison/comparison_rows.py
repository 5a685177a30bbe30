"""Joins test rows of several runs by their keys, and computes their scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, named
from geogp.evaluation.assessment import check_columns, counted, prediction_of
from geogp.evaluation.class_scores import calibration_terms, class_row_scores
from geogp.evaluation.class_tables import (
    MODEL,
    check_class_columns,
    codes_of,
    probability_columns,
)
from geogp.evaluation.metrics import row_scores
from geogp.evaluation.splits.split_names import SPLITS
from geogp.geodata.tiles.targets import find_target
from geogp.records.run_record import RunRecord, given

_LEVELS = (50, 80, 90, 95)


@dataclass(frozen=True)
class ScoreNames:
    """The figures in a comparison, with their titles.

    Lower `scores` are better, and their significant differences are marked. Differences of `shares`
    are in percentage points. `widths` have no differences. `short` are two scores and two other
    figures, for tables with few columns.
    """

    scores: dict[str, str]
    shares: dict[str, str]
    widths: dict[str, str]
    short: tuple[str, ...]

    @property
    def differences(self) -> dict[str, str]:
        """The titles of the figures that have differences."""
        return self.scores | self.shares

    @property
    def titles(self) -> dict[str, str]:
        """The titles of all figures."""
        return self.differences | self.widths


NUMBERS = ScoreNames(
    {"log_score": "log score", "crps": "CRPS", "absolute_error": "absolute error"},
    {f"coverage_{level}": f"in {level} %" for level in _LEVELS},
    {"width_95": "mean width"},
    ("log_score", "crps", "coverage_95", "width_95"),
)
CLASSES = ScoreNames(
    {"log_score": "log score", "rps": "RPS", "brier": "Brier score"},
    {"accuracy": "accuracy", "ece": "ECE"},
    {},
    ("log_score", "rps", "accuracy", "ece"),
)


def score_names(target: str) -> ScoreNames:
    """Return the figures in a comparison of runs with a target."""
    return CLASSES if find_target(target).classes else NUMBERS


TOGETHER = "all providers together"
"""The providers of a run that pools their tests, in words."""

_KEYS = ("quadkey", "quarter", "fold", "provider", "drive")
_SAME = ("target", "service", "region")
_ORDER = sorted(SPLITS, key=lambda name: SPLITS[name].flatters)
_ROUNDING = 1e-6
"""Largest difference between equal measurements in two runs."""


@dataclass(frozen=True)
class RunContent:
    """A finished run: its unique name, its run.json and its test predictions."""

    name: str
    run: RunRecord
    predictions: pd.DataFrame


def check_comparable(runs: Sequence[RunContent]) -> None:
    """Raise an error if runs cannot be compared.

    Raises RequestError if targets, services, regions or technologies differ, if the runs have no
    provider in common, or only some runs predict counts. Raises DataError if columns are missing.
    """
    for one in runs:
        try:
            if find_target(one.run.target).classes:
                check_class_columns(one.predictions, _probabilities(one.run.target))
            else:
                check_columns(one.predictions)
        except DataError as error:
            raise DataError(f"{one.name}: {error}") from error
    first = runs[0]
    for one in runs[1:]:
        for key in _SAME:
            # Of several targets, the first has the columns of a run of this target alone.
            ours, theirs = (getattr(run, key).split(",")[0] for run in (first.run, one.run))
            if ours != theirs:
                raise RequestError(
                    f"expected runs of one {key}, found {ours} ({first.name}) and {theirs} "
                    f"({one.name}). Compare runs of the same target, service and region."
                )
        if counted(first.predictions) != counted(one.predictions):
            raise RequestError(
                f"expected predictions of one kind, found counts in only one of {first.name} and "
                f"{one.name}: the probability of a count cannot be compared with a density."
            )

    _check_points(runs)


def _check_points(runs: Sequence[RunContent]) -> None:
    """Raise RequestError if runs of files of tests use tests of other kinds."""
    technologies = {one.name: one.run.settings.data.technology or "all" for one in runs}
    providers = {one.name: _providers(one.run) for one in runs}
    shown = {name: ", ".join(found) or TOGETHER for name, found in providers.items()}
    apart = not set.intersection(*(set(found or [""]) for found in providers.values()))
    for what, found, wrong in (
        ("technology", technologies, len(set(technologies.values())) > 1),
        ("provider", shown, apart),
    ):
        if wrong:
            listed = "; ".join(f"{name}: {value}" for name, value in found.items())
            raise RequestError(
                f"expected runs with a common {what}, found {listed}. Their test rows are "
                f"different measurements. Compare runs of the same {what}."
            )


def _providers(run: RunRecord) -> list[str]:
    """Return the providers whose tests a run keeps apart; none if all tests are pooled."""
    single = run.settings.data.provider
    return [one.name for one in given(run.providers, [])] or ([single] if single else [])


def table_of(one: RunContent) -> pd.DataFrame:
    """Return test predictions, indexed by quadkey, quarter, fold, provider and drive.

    The fold is 0 in runs without folds; provider and drive are "" in runs of pooled tests.
    """
    table = one.predictions.copy()
    if "provider" in table:
        table["provider"] = table["provider"].astype(str)
    else:
        table["provider"] = next(iter(_providers(one.run)), "")
    table["drive"] = table["drive"].astype(str) if "drive" in table else ""
    table["fold"] = table["fold"].astype(np.int64) if "fold" in table else 0
    table["quadkey"], table["quarter"] = table["quadkey"].astype(str), table["quarter"].astype(str)
    twice = int(table.duplicated(["split", *_KEYS]).sum())
    if twice:
        raise DataError(
            f"{one.name}: expected each tile, quarter, provider and drive at most once per "
            f"fold of a split, found {twice} repeated rows. Was test_predictions.parquet edited? "
            "Run `geogp map` again with --fresh."
        )
    odd = sorted(set(table["split"]) - set(SPLITS))
    if odd:
        raise DataError(f"{one.name}: expected the splits {', '.join(SPLITS)}, found {named(odd)}.")
    return table.set_index(list(_KEYS))


def shared_splits(runs: Sequence[RunContent]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the splits that all runs have, and each other split with the runs that lack it."""
    held = {one.name: set(one.predictions["split"]) for one in runs}
    known = [split for split in _ORDER if any(split in splits for splits in held.values())]
    lacking = {split: [name for name in held if split not in held[name]] for split in known}
    return (
        [split for split in known if not lacking[split]],
        {split: names for split, names in lacking.items() if names},
    )


def check_same_rows(title: str, joined: dict[str, pd.DataFrame]) -> None:
    """Raise DataError if runs have different measurements of the same rows."""
    (first, base), *others = joined.items()
    for name, table in others:
        off = np.abs(table["y"].to_numpy(np.float64) - base["y"].to_numpy(np.float64))
        wrong = int((~(off <= _ROUNDING)).sum())
        if wrong:
            raise DataError(
                f"expected the same measurements in all runs, found {wrong} of {len(table)} common "
                f"rows ({title}) with different measurements in {first} and {name}: the runs use "
                "different data. Compare runs that were made from the same source."
            )


def scores_of(table: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return all scores of each row; for numbers fold by fold, because each fold has its own fit.

    For classes, the scores lack the calibration error, see `group_scores`.
    """
    if find_target(target).classes:
        p = table[_probabilities(target)].to_numpy(np.float64)
        return class_row_scores(p, codes_of(table)).rename(columns={"nll": "log_score"})
    found = [_scores_of_fold(part) for _, part in table.groupby(level="fold", sort=False)]
    return pd.concat(found).loc[table.index].reset_index(drop=True)


def group_scores(scores: pd.DataFrame, rows: NDArray[np.bool_]) -> pd.DataFrame:
    """Return the scores of some rows; for classes also ``ece``, whose mean is the error of these.

    Its standard error takes the sign of the error in each bin as known.
    """
    part = scores[rows]
    if "confidence" not in part:
        return part
    return part.assign(ece=calibration_terms(part["confidence"], part["accuracy"]))


def _probabilities(target: str) -> list[str]:
    about = find_target(target)
    return probability_columns(MODEL, about.suffix, about.classes)


def _scores_of_fold(rows: pd.DataFrame) -> pd.DataFrame:
    prediction, y = prediction_of(rows), rows["y"].to_numpy(np.float64)
    found = row_scores(prediction, y, _LEVELS)
    found["absolute_error"] = np.abs(y - prediction.quantile(0.5))
    return found.rename(columns={"nll": "log_score", "width": "width_95"}).set_index(rows.index)

"""How much the scores of a split differ between folds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from geogp.errors import DataError
from geogp.evaluation.assessment import TABLE_LEVELS, check_scores
from geogp.evaluation.metrics import mean_scores, rows_by_group
from geogp.evaluation.score_groups import share_of

GAIN = "gain"
"""The log score of the baseline minus that of the model; above 0 if the model is better."""


@dataclass(frozen=True)
class Spread:
    """A score over folds; the standard deviation (divisor `folds` - 1) of one fold is None."""

    folds: int
    mean: float
    sd: float | None
    values: list[float]


def fold_spread(
    name: str,
    rows: pd.DataFrame,
    scored: pd.DataFrame,
    entries: Sequence[Any],
    *,
    mae_of_mean: bool = False,
) -> dict[str, dict[str, Spread]]:
    """Return the spread of each score over folds, by stratum; empty if there is only one fold.

    `entries` are the `FoldRecord` of the folds, in order, or empty. `mae_of_mean` is as in
    `check_scores`. Raises DataError if the entries do not match the rows.
    """
    numbers = np.unique(scored["fold"])
    if entries and (len(entries) <= numbers[-1] or len(entries) != len(numbers)):
        raise DataError(
            f"expected the same number of folds of the split {name} in run.json and in "
            f"test_predictions.parquet, found {len(entries)} and {len(numbers)}. Run `geogp map` "
            "again with --fresh."
        )
    values: dict[str, dict[str, list[float]]] = {}
    for number in numbers:
        chosen = scored["fold"].to_numpy() == number
        entry = entries[int(number)] if entries else None
        groups = rows_by_group(rows["stratum"][chosen], int(chosen.sum()))
        parts = {group: scored[chosen][of_group] for group, of_group in groups.items()}
        if entry is not None:
            check_scores(f"{name}, fold {number}", parts, entry.metrics, mae_of_mean=mae_of_mean)
        figures = _figures(parts, entry)
        for group, found in figures.items():
            for figure, value in found.items():
                held = values.setdefault(group, {}).setdefault(figure, [])
                held += [] if value is None else [value]
    if len(numbers) < 2:
        return {}
    return {
        group: {figure: _spread(held) for figure, held in found.items() if held}
        for group, found in values.items()
    }


def _figures(parts: dict[str, pd.DataFrame], entry: Any) -> dict[str, dict[str, float | None]]:
    """Return the scores of one fold by stratum; `entry` is the fold's `FoldRecord`, or None."""
    found: dict[str, dict[str, float | None]] = {}
    for group, part in parts.items():
        each = mean_scores(part)
        gain = None if entry is None else each.gain(entry.baseline.get(group))
        shares = {f"coverage_{k}": share_of(part[f"coverage_{k}"]) for k in TABLE_LEVELS}
        found[group] = {**each.figures, **shares, GAIN: gain}
    return found


def _spread(values: list[float]) -> Spread:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), sd, values)

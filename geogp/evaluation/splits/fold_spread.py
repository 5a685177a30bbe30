"""How much the figures of a split differ between folds."""

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
"""The baseline's log score minus the model's; it is above 0 if the model is better."""


@dataclass(frozen=True)
class Spread:
    """One figure over the folds that have it: number of folds, mean, standard deviation, values.

    The standard deviation has the divisor folds - 1; it is None for a single fold.
    """

    folds: int
    mean: float
    sd: float | None
    values: list[float]


def fold_spread(
    name: str, rows: pd.DataFrame, scored: pd.DataFrame, entries: Sequence[Any]
) -> dict[str, dict[str, Spread]]:
    """Return the spread over folds of each figure, by stratum; empty for a single fold.

    `entries` are the `FoldRecord` of the folds in order, empty if run.json holds none; the gain
    needs their baselines. Raises DataError if their number or their figures do not match the rows.
    """
    numbers = np.unique(scored["fold"])
    if entries and (len(entries) <= numbers[-1] or len(entries) != len(numbers)):
        raise DataError(
            f"expected as many folds of the split {name} in run.json as in "
            f"test_predictions.parquet, found {len(entries)} and {len(numbers)}. "
            "Run `geogp map` again with --fresh."
        )
    values: dict[str, dict[str, list[float]]] = {}
    for number in numbers:
        chosen = scored["fold"].to_numpy() == number
        figures = _figures(f"{name}, fold {number}", rows[chosen], scored[chosen], entries)
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


def _figures(
    name: str, rows: pd.DataFrame, scored: pd.DataFrame, entries: Sequence[Any]
) -> dict[str, dict[str, float | None]]:
    """Return the figures of one fold by stratum, after a check against run.json."""
    parts = {
        group: scored[chosen] for group, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }
    scores = {group: mean_scores(part) for group, part in parts.items()}
    entry = entries[int(scored["fold"].iloc[0])] if entries else None
    if entry is not None:
        check_scores(name, scores, entry.metrics)
    found: dict[str, dict[str, float | None]] = {}
    for group, each in scores.items():
        other = None if entry is None else getattr(entry.baseline.get(group), "nll", None)
        gain = None if other is None or each.nll is None else other - each.nll
        shares = {f"coverage_{k}": share_of(parts[group][f"coverage_{k}"]) for k in TABLE_LEVELS}
        found[group] = {**each.figures, **shares, GAIN: gain}
    return found


def _spread(values: list[float]) -> Spread:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), sd, values)

"""How much the figures of a split differ from fold to fold."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from geogp.errors import DataError
from geogp.evaluation.assessment import TABLE_LEVELS, ScoredRows, check_scores
from geogp.evaluation.metrics import rows_by_group

GAIN = "gain"
"""The baseline's log score minus the model's, above 0 where the model is better."""


@dataclass(frozen=True)
class Spread:
    """One figure over the folds.

    Attributes
    ----------
    folds
        How many have the figure.
    mean, sd
        Its mean and its standard deviation (divisor folds - 1; None of a single one).
    values
        The figure of each of those folds.
    """

    folds: int
    mean: float
    sd: float | None
    values: list[float]


def fold_spread(
    name: str, rows: pd.DataFrame, scored: ScoredRows, entries: list[dict[str, Any]]
) -> dict[str, dict[str, Spread]]:
    """Return the spread over folds of each figure, by stratum; empty of a single fold.

    Parameters
    ----------
    name
        Of the split, for messages.
    rows, scored
        Rows of one split, and the same scored.
    entries
        What run.json holds under `folds` for the split, in order; empty where it holds nothing.
        The gain needs its baselines.

    Raises
    ------
    DataError
        run.json holds another number of folds than the table, or other figures.
    """
    numbers = np.unique(scored.fold)
    if entries and (len(entries) <= numbers[-1] or len(entries) != len(numbers)):
        raise DataError(
            f"expected as many folds of the split {name} in run.json as in "
            f"test_predictions.parquet, found {len(entries)} and {len(numbers)}. "
            "Run `geogp map` again with --fresh."
        )
    values: dict[str, dict[str, list[float]]] = {}
    for number in numbers:
        chosen = scored.fold == number
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
    name: str, rows: pd.DataFrame, scored: ScoredRows, entries: list[dict[str, Any]]
) -> dict[str, dict[str, float | None]]:
    """Return the figures of one fold by stratum, checked against run.json."""
    parts = {
        group: scored.scores[chosen]
        for group, chosen in rows_by_group(rows["stratum"], len(rows)).items()
    }
    scores = {group: part.mean() for group, part in parts.items()}
    entry = entries[int(scored.fold[0])] if entries else {}
    if entry.get("metrics"):
        check_scores(name, scores, entry["metrics"])
    baseline = entry.get("baseline") or {}
    found: dict[str, dict[str, float | None]] = {}
    for group, each in scores.items():
        other = (baseline.get(group) or {}).get("nll")
        gain = None if other is None or each.nll is None else other - each.nll
        held = asdict(each) | {f"coverage_{k}": parts[group].coverage(k) for k in TABLE_LEVELS}
        found[group] = {**{k: v for k, v in held.items() if k != "n"}, GAIN: gain}
    return found


def _spread(values: list[float]) -> Spread:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), sd, values)

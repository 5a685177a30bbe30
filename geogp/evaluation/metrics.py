"""Scores of predictive distributions against measurements, overall and by stratum."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from geogp.arguments import numbers_of
from geogp.arrays import Floats, Mask, Numbers
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, named
from geogp.evaluation.scores import ClassScores, Scores, no_scores
from geogp.geodata.places.stratum_column import names_of
from geogp.geodata.places.stratum_names import ALL, UNKNOWN

STORED_LEVELS = (50, 80, 95)
"""Levels, in percent, at which `Scores` and run.json contain the coverage."""

Kind = TypeVar("Kind", Scores, ClassScores)


class Interval(NamedTuple):
    """Lower and upper bound of an interval."""

    lower: float
    upper: float


def row_scores(
    prediction: Prediction, y: ArrayLike, levels: Sequence[int] = STORED_LEVELS
) -> pd.DataFrame:
    """Return the scores of each row of a prediction, from the measurements `y`, shape (n,).

    Columns: ``error``, y - mean; ``absolute``, the absolute error of the predictive median;
    ``nll``, ``crps`` and ``width`` as in `Scores`; and for each level (in percent) a column such as
    ``coverage_95``, which is true if y lies in the central interval, bounds included. Raises
    DataError if `y` has another shape or is not finite.
    """
    y = numbers_of(y, "measurements")
    if y.shape != prediction.mean.shape:
        raise DataError(
            f"expected {len(prediction)} measurements, one per prediction, found shape {y.shape}."
        )
    if not np.isfinite(y).all():
        wrong = int(np.count_nonzero(~np.isfinite(y)))
        raise DataError(f"expected finite measurements, found {wrong} that are not finite.")
    low, high = prediction.interval(0.95)
    found = {
        "error": y - prediction.mean,
        "absolute": np.abs(y - prediction.median),
        "nll": prediction.log_score(y),
        "crps": prediction.crps(y),
        "width": high - low,
    }
    for level in levels:
        lower, upper = prediction.interval(level / 100)
        found[f"coverage_{level}"] = (lower <= y) & (y <= upper)
    return pd.DataFrame(found)


def mean_scores(rows: pd.DataFrame) -> Scores:
    """Return the mean scores of rows from `row_scores`."""
    if rows.empty:
        return no_scores()

    def mean(name: str) -> float:
        return float(rows[name].to_numpy().mean())

    return Scores(
        len(rows),
        mae=mean("absolute"),
        rmse=float(np.sqrt((rows["error"].to_numpy() ** 2).mean())),
        nll=mean("nll"),
        crps=mean("crps"),
        coverage_50=mean("coverage_50"),
        coverage_80=mean("coverage_80"),
        coverage_95=mean("coverage_95"),
        width_95=mean("width"),
    )


def score(prediction: Prediction, y: ArrayLike) -> Scores:
    """Return the mean scores of a prediction; raises the errors of `row_scores`."""
    return mean_scores(row_scores(prediction, y))


def score_by_stratum(prediction: Prediction, y: ArrayLike, stratum: ArrayLike) -> dict[str, Scores]:
    """Return the mean scores of all rows, and of each stratum except ``unknown``.

    Raises the errors of `row_scores` and `rows_by_group`.
    """
    scores = row_scores(prediction, y)
    rows = rows_by_group(stratum, len(scores))
    return {name: mean_scores(scores[chosen]) for name, chosen in rows.items()}


def rows_by_group(stratum: ArrayLike, n: int) -> dict[str, Mask]:
    """Return a mask (n,) of the rows of each stratum; the key ``all`` stands for all rows.

    `stratum` determines the names of the two strata (see `stratum_column.py`). Raises DataError if
    `stratum` does not have n rows, or contains a name that is neither a stratum nor ``unknown``.
    """
    names = np.asarray(stratum, dtype=np.str_)
    if names.shape != (n,):
        raise DataError(f"expected a stratum for each of {n} rows, found shape {names.shape}.")
    own = names_of(stratum)
    odd = sorted(set(np.unique(names).tolist()) - {*own, UNKNOWN})
    if odd:
        raise DataError(f"expected the strata {own[0]}, {own[1]} or {UNKNOWN}, found {named(odd)}.")
    return {ALL: np.ones(n, np.bool_)} | {name: names == name for name in own}


def pit_counts(pit: Floats, bins: int = 10) -> Numbers:
    """Return the number of probability integral transforms in each bin, (bins,).

    The bins divide [0, 1]. If predictions are right, all bins have about equal counts (Dawid 1984).
    """
    place = pit * bins
    # The last bin includes 1, because the transform can round to 1.
    return np.bincount(np.minimum(place.astype(np.int64), bins - 1), minlength=bins)


def binomial_interval(hits: int, n: int, level: float = 0.95) -> Interval:
    """Return the exact binomial interval of the share hits / n (Clopper and Pearson 1934).

    With a = 1 - level, the interval is from the a/2 quantile of Beta(hits, n - hits + 1) to the 1 -
    a/2 quantile of Beta(hits + 1, n - hits). The interval assumes independent rows. Rows of
    neighbouring tiles are not independent, so the true uncertainty is larger.

    Examples
    --------
    >>> [round(bound, 4) for bound in binomial_interval(0, 10)]
    [0.0, 0.3085]
    """
    tail = (1 - level) / 2
    lower = float(special.betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    upper = float(special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Interval(lower, upper)


def difference_from_baseline(scores: Scores, baseline: Scores) -> dict[str, float | None]:
    """Return each score of the model minus the same score of the baseline; None if one is missing.

    Raises DataError if the numbers of rows differ.
    """
    if scores.n != baseline.n:
        raise DataError(
            "expected scores of model and baseline on the same rows, found "
            f"{scores.n} and {baseline.n} rows. Run `geogp map` again with --fresh."
        )
    pairs = zip(scores.figures.items(), baseline.figures.values(), strict=True)
    return {
        name: None if value is None or other is None else value - other
        for (name, value), other in pairs
    }

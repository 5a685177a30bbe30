"""Scores of predictive distributions against what was measured, overall and by stratum."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.geodata.places.region import UNKNOWN
from geogp.geodata.places.stratum_column import ALL, names_of

STORED_LEVELS = (50, 80, 95)
"""Levels, in percent, whose coverage `Scores` and run.json hold."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Mean scores over n rows, on the scale of the modelled target; None where n is 0.

    Counts are scored by the probability of what was counted, and intervals of counts hold their
    level or more.

    Attributes
    ----------
    n
        Number of rows.
    mae, rmse
        Mean absolute error, and root of the mean squared error, of the predictive mean; the
        absolute error of counts is that of the predictive median.
    nll
        Mean negative log predictive density of a new measurement (natural logarithm).
    crps
        Mean continuous ranked probability score.
    coverage_50, coverage_80, coverage_95
        Share of rows inside the central interval of that level, from 0 to 1.
    width_95
        Mean width of the central 95 % interval.
    """

    n: int
    mae: float | None = None
    rmse: float | None = None
    nll: float | None = None
    crps: float | None = None
    coverage_50: float | None = None
    coverage_80: float | None = None
    coverage_95: float | None = None
    width_95: float | None = None


@dataclass(frozen=True)
class RowScores:
    """Scores of each of n rows, worked out once, of which groups of rows are means.

    Attributes
    ----------
    error
        y - mean, (n,).
    absolute
        Absolute error, (n,); that of counts is from the predictive median.
    nll, crps, width
        As in `Scores`, of each row, (n,).
    inside
        Whether y lies in the central interval of a level, bounds included, (n,), by level in
        percent.
    """

    error: Floats
    absolute: Floats
    nll: Floats
    crps: Floats
    width: Floats
    inside: dict[int, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.error)

    def __getitem__(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "RowScores":
        """Return the scores of some of the rows."""
        return RowScores(
            self.error[rows],
            self.absolute[rows],
            self.nll[rows],
            self.crps[rows],
            self.width[rows],
            {level: inside[rows] for level, inside in self.inside.items()},
        )

    def coverage(self, level: int) -> float | None:
        """Return the share of rows inside the interval of a level in percent; None of no rows."""
        return int(np.count_nonzero(self.inside[level])) / len(self) if len(self) else None

    def mean(self) -> Scores:
        """Return the scores of the rows together."""
        if not len(self):
            return Scores(0)
        return Scores(
            len(self),
            mae=float(self.absolute.mean()),
            rmse=float(np.sqrt((self.error**2).mean())),
            nll=float(self.nll.mean()),
            crps=float(self.crps.mean()),
            coverage_50=self.coverage(50),
            coverage_80=self.coverage(80),
            coverage_95=self.coverage(95),
            width_95=float(self.width.mean()),
        )


class Interval(NamedTuple):
    """Lower and upper bound."""

    lower: float
    upper: float


def row_scores(
    prediction: Prediction, y: ArrayLike, levels: Sequence[int] = STORED_LEVELS
) -> RowScores:
    """Score each row of a prediction of length n at the measurements `y`, shape (n,).

    Parameters
    ----------
    prediction, y
        As for `score`.
    levels
        Levels, in percent, whose intervals are looked at.

    Raises
    ------
    DataError
        `y` has another shape or a value that is not finite.
    """
    y = _checked(prediction, y)
    return RowScores(
        y - prediction.mean,
        np.abs(y - prediction.centre),
        prediction.log_score(y),
        prediction.crps(y),
        widths(prediction),
        {level: _inside(prediction, y, level / 100) for level in levels},
    )


def score(prediction: Prediction, y: ArrayLike) -> Scores:
    """Score a prediction of length n at the measurements `y`, shape (n,).

    Raises
    ------
    DataError
        `y` has another shape or a value that is not finite.
    """
    return row_scores(prediction, y).mean() if len(_checked(prediction, y)) else Scores(0)


def score_by_stratum(prediction: Prediction, y: ArrayLike, stratum: ArrayLike) -> dict[str, Scores]:
    """Score all rows, and those of each stratum, such as the urban and the rural ones.

    Rows of stratum ``unknown`` count under ``all`` only.

    Parameters
    ----------
    prediction
        Of length n.
    y
        Measurements, shape (n,).
    stratum
        Of each row, shape (n,); see `rows_by_group`.

    Returns
    -------
    dict of str to Scores
        Always with ``all`` and the names of both strata; `asdict` makes each JSON-able.

    Raises
    ------
    DataError
        Shapes differ, a measurement is not finite, or a stratum has another name.
    """
    rows = rows_by_group(stratum, len(_checked(prediction, y)))
    if not len(prediction):
        return {name: Scores(0) for name in rows}
    scores = row_scores(prediction, y)
    return {name: scores[chosen].mean() for name, chosen in rows.items()}


def rows_by_group(stratum: ArrayLike, n: int) -> dict[str, NDArray[np.bool_]]:
    """Return which of n rows belong to ``all`` and to each stratum, each of shape (n,).

    The strata are those of the column (see `stratum_column.py`), or urban and rural.

    Raises
    ------
    DataError
        There are not n strata, or one has another name, and is not ``unknown``.
    """
    names = np.asarray(stratum, dtype=np.str_)
    if names.shape != (n,):
        raise DataError(f"expected a stratum for each of {n} rows, found shape {names.shape}.")
    own = names_of(stratum)
    odd = sorted(set(np.unique(names).tolist()) - {*own, UNKNOWN})
    if odd:
        raise DataError(
            f"expected the strata {own[0]}, {own[1]} or {UNKNOWN}, found {', '.join(odd)}."
        )
    return {ALL: np.ones(n, np.bool_)} | {name: names == name for name in own}


def pooled(parts: Sequence[Scores]) -> Scores:
    """Return the scores of all rows together from those of several sets of rows.

    Means weighted by rows; rmse the root of the weighted mean of squares.
    """
    held = [part for part in parts if part.n]
    if len(held) <= 1:
        return held[0] if held else Scores(0)
    n = sum(part.n for part in held)

    def mean(name: str, power: int = 1) -> float | None:
        values = [(part.n, getattr(part, name)) for part in held]
        if any(value is None for _, value in values):
            return None
        total = float(sum(rows * value**power for rows, value in values))
        return math.sqrt(total / n) if power == 2 else total / n

    figures = {name: mean(name) for name in asdict(held[0]) if name not in {"n", "rmse"}}
    return Scores(n, rmse=mean("rmse", 2), **figures)


def coverage_hits(prediction: Prediction, y: ArrayLike, level: float) -> int:
    """Count the measurements inside the central interval of a level, bounds included."""
    return int(np.count_nonzero(_inside(prediction, np.asarray(y, np.float64), level)))


def widths(prediction: Prediction, level: float = 0.95) -> Floats:
    """Return the widths of the central intervals of a level, shape (n,)."""
    lower, upper = prediction.interval(level)
    return upper - lower


def pit_histogram(prediction: Prediction, y: ArrayLike, bins: int = 10) -> NDArray[np.int64]:
    """Count the probability integral transforms in equal bins of [0, 1].

    Where the predictions are right, the counts are level (Dawid 1984). A hump in the middle
    means intervals too wide, two horns intervals too narrow, a slope a bias.

    Returns
    -------
    ndarray of int64, shape (bins,)

    Raises
    ------
    DataError
        `y` has another shape or a value that is not finite.
    """
    return pit_counts(prediction.pit(_checked(prediction, y)), bins)


def pit_counts(pit: Floats, bins: int = 10) -> NDArray[np.int64]:
    """Count integral transforms, shape (n,), in equal bins of [0, 1], shape (bins,)."""
    place = pit * bins
    # The last bin takes 1 itself, which the transform reaches by rounding.
    return np.bincount(np.minimum(place.astype(np.int64), bins - 1), minlength=bins)


def binomial_interval(hits: int, n: int, level: float = 0.95) -> Interval:
    """Return the exact interval of a share (Clopper and Pearson 1934).

    With a = 1 - level: from the a/2 quantile of Beta(hits, n - hits + 1) to the 1 - a/2
    quantile of Beta(hits + 1, n - hits); 0 where hits is 0, and 1 where hits is n.

    It takes rows to be independent. Rows of one tile are not, nor are neighbours, so the
    true uncertainty is larger.

    Raises
    ------
    RequestError
        Not 0 <= hits <= n with n of 1 or more, or a level not between 0 and 1.

    Examples
    --------
    >>> [round(bound, 4) for bound in binomial_interval(0, 10)]
    [0.0, 0.3085]
    """
    if not (n >= 1 and 0 <= hits <= n and 0 < level < 1):
        raise RequestError(
            "expected 0 <= hits <= n, n of 1 or more and a level between 0 and 1, found "
            f"hits {hits}, n {n}, level {level}."
        )
    tail = (1 - level) / 2
    lower = float(special.betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    upper = float(special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Interval(lower, upper)


def difference_from_baseline(scores: Scores, baseline: Scores) -> dict[str, float | None]:
    """Return model minus baseline for every figure but n; None where either is missing.

    Below 0 is better for mae, rmse, nll and crps.

    Raises
    ------
    DataError
        The two were not scored on the same number of rows.
    """
    if scores.n != baseline.n:
        raise DataError(
            "expected model and baseline on the same rows, found "
            f"{scores.n} and {baseline.n}. Run `geogp map` again with --fresh."
        )
    other = asdict(baseline)
    return {
        name: None if value is None or other[name] is None else value - other[name]
        for name, value in asdict(scores).items()
        if name != "n"
    }


def _inside(prediction: Prediction, y: Floats, level: float) -> NDArray[np.bool_]:
    lower, upper = prediction.interval(level)
    return (lower <= y) & (y <= upper)


def _checked(prediction: Prediction, y: ArrayLike) -> Floats:
    y = np.asarray(y, np.float64)
    if y.shape != prediction.mean.shape:
        raise DataError(
            f"expected {len(prediction)} measurements, one per prediction, found shape {y.shape}."
        )
    if not np.isfinite(y).all():
        wrong = int(np.count_nonzero(~np.isfinite(y)))
        raise DataError(f"expected finite measurements, found {wrong} that are not.")
    return y

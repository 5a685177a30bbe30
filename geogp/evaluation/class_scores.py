"""Scores of class probabilities: accuracy, log score, Brier score, RPS and calibration."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arrays import Floats, Mask
from geogp.errors import DataError
from geogp.evaluation.scores import ClassScores

CALIBRATION_BINS = 15
"""Number of bins of the expected calibration error (Guo et al. 2017)."""

TOLERANCE = 1e-6
"""Largest difference from 1 of the sum of a row's probabilities."""


def class_scores(probabilities: ArrayLike, codes: ArrayLike) -> ClassScores:
    """Return the scores of probabilities (n, k), from the numbers of the observed classes (n,).

    Raises DataError if a probability is not from 0 to 1, a row's sum is not 1, or a code is not the
    number of a class.
    """
    rows = class_row_scores(probabilities, codes)
    accuracy, nll, brier = (float(rows[name].mean()) for name in ("accuracy", "nll", "brier"))
    ece = calibration_terms(rows["confidence"], rows["accuracy"]).mean()
    return ClassScores(len(rows), accuracy, nll, brier, float(ece))


def class_row_scores(probabilities: ArrayLike, codes: ArrayLike) -> pd.DataFrame:
    """Return the scores of each row; the arguments and errors are those of `class_scores`.

    Columns: ``accuracy``, true if the most probable class is observed; ``confidence``, its
    probability; ``nll`` and ``brier`` as in `ClassScores`; and ``rps``, the ranked probability
    score Σ_j (F_j - O_j)² (Epstein 1969), with F_j and O_j the sums of p and o up to class j. The
    RPS is the CRPS of the number of the class.
    """
    p, y = checked_classes(probabilities, codes)
    observed = p[np.arange(len(y)), y]
    reached = y[:, None] <= np.arange(p.shape[1])
    with np.errstate(divide="ignore"):  # the score of an observed class with probability 0 is inf
        nll = -np.log(observed)
    return pd.DataFrame(
        {
            "accuracy": p.argmax(1) == y,
            "confidence": p.max(1),
            "nll": nll,
            "brier": np.square(p).sum(1) - 2 * observed + 1,
            "rps": np.square(p.cumsum(1) - reached).sum(1),
        }
    )


def reliability_of_class(
    probabilities: ArrayLike, codes: ArrayLike, code: int, bins: int = 10
) -> pd.DataFrame:
    """Return the stated probability and the observed share of one class, in bins of rows.

    The bins divide (0, 1] equally, and each includes its upper limit. Columns: ``lower`` and
    ``upper``, the limits of a bin of stated probabilities; ``n``, its number of rows; ``stated``,
    the mean probability; ``observed``, the share of the class. Empty bins are left out. Raises the
    errors of `class_scores`.
    """
    p, y = checked_classes(probabilities, codes)
    return _binned(p[:, code], y == code, bins)


def class_calibration_errors(probabilities: ArrayLike, codes: ArrayLike) -> list[float]:
    """Return, for each class, Σ_bins n_bin / n |observed share - mean stated probability|.

    This is the classwise calibration error (Kull et al. 2019), before the mean over the classes.
    The bins are made as in `reliability_of_class`.
    """
    p, y = checked_classes(probabilities, codes)
    return [float(calibration_terms(p[:, code], y == code).mean()) for code in range(p.shape[1])]


def calibration_terms(stated: ArrayLike, hit: ArrayLike) -> Floats:
    """Return values (n,) whose mean is a calibration error, from probabilities of events, (n,).

    With the confidence of each row, the mean is Σ_bins n_bin / n |accuracy - mean confidence|
    (Naeini et al. 2015, Guo et al. 2017). The bins are made as in `reliability_of_class`.

    A value is the event (`hit`, 1 or 0) minus its probability, times the sign of the sum of these
    differences in the row's bin.
    """
    away = np.asarray(hit, np.float64) - np.asarray(stated, np.float64)
    number = _bin_numbers(np.asarray(stated, np.float64), CALIBRATION_BINS)
    return away * np.sign(np.bincount(number, away))[number]


def checked_classes(probabilities: ArrayLike, codes: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """Return probabilities (n, k) and codes (n,) as arrays; raise the errors of `class_scores`."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(codes)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(y):
        raise DataError(
            f"expected probabilities of shape (n, k) and n observed classes, found shapes "
            f"{p.shape} and {y.shape}."
        )
    if not ((p >= 0) & (p <= 1 + TOLERANCE)).all() or np.abs(p.sum(1) - 1).max() > TOLERANCE:
        raise DataError("expected probabilities from 0 to 1 with the sum 1 in each row.")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise DataError(
            f"expected numbers of classes from 0 to {p.shape[1] - 1}, found {y.dtype} from "
            f"{y.min()} to {y.max()}."
        )
    return p, y.astype(np.intp)


def _bin_numbers(stated: Floats, bins: int) -> NDArray[np.intp]:
    number: NDArray[np.intp] = np.clip(np.ceil(stated * bins) - 1, 0, bins - 1).astype(np.intp)
    return number


def _binned(stated: Floats, hit: Mask, bins: int) -> pd.DataFrame:
    number = _bin_numbers(stated, bins)
    rows = pd.DataFrame({"bin": number, "stated": stated, "observed": hit.astype(np.float64)})
    grouped = rows.groupby("bin")
    found = grouped.mean()
    found.insert(0, "n", grouped.size())
    at = found.index.to_numpy()
    found.insert(0, "upper", (at + 1) / bins)
    found.insert(0, "lower", at / bins)
    return found.reset_index(drop=True)

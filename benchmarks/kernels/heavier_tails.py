"""Student-t tails for Gaussian predictions, learned from validation rows.

The log score of a Gaussian prediction with a small standard deviation s is decided by a few rows: a
row at distance e costs e² / (2 s²). Student-t tails cost only (df + 1) log(e / s).
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from geogp.distributions.heavy_shapes import StudentT
from geogp.distributions.prediction import Prediction
from geogp.models.papers.student_noise import MIN_DF

MAX_DF = 1e3
"""Upper limit of the degrees of freedom; above it, the shape is normal."""


def student_tails(held_out: Prediction, y: NDArray[np.float64]) -> tuple[float, float]:
    """Return df and factor of `with_student_tails` with the best mean log score on some rows.

    `held_out` are Gaussian predictions of rows that the model was not trained on, and `y` (n,)
    their targets. The factor multiplies the standard deviations; df is from 2.05 to 1,000.
    """

    def loss(at: NDArray[np.float64]) -> float:
        df, factor = np.exp(at)
        return float(with_student_tails(held_out, df, factor).log_score(y).mean())

    # Several starts: between nearly normal tails and the lower limit, the score may have a saddle.
    limits = (math.log(MIN_DF), math.log(MAX_DF)), (math.log(1e-3), math.log(1e3))
    starts = [(math.log(df), 0.0) for df in (2.2, 4.0, 30.0)]
    found = [
        optimize.minimize(loss, start, method="Nelder-Mead", bounds=limits) for start in starts
    ]
    df, factor = np.exp(min(found, key=lambda one: one.fun).x)
    return float(df), float(factor)


def with_student_tails(prediction: Prediction, df: float, factor: float) -> Prediction:
    """Return a prediction with Student-t tails, and standard deviations multiplied by `factor`."""
    return replace(prediction.widened(factor), shape=StudentT(df))

"""The variables of a map of numbers of tests."""

import numpy as np
from numpy.typing import NDArray

from geogp.distributions.count_prediction import CountPrediction

Floats = NDArray[np.float64]


def count_variables(
    prediction: CountPrediction, level: float
) -> dict[str, tuple[Floats, str, str]]:
    """Return values, long name and CF unit of each variable derived from predicted counts.

    The bounds are the ends of the central interval of a level, whole numbers with which it holds
    the level or more; p_none is P(Y = 0), for a Poisson law E exp(-rate).
    """
    lower, upper = prediction.interval(level)
    counted = "number of tests of the tile in the quarter"
    ends = f"end of the {100 * level:g} % interval of the {counted}"
    return {
        "expected_tests": (prediction.mean, f"expected {counted}", "1"),
        "lower_tests": (lower, f"lower {ends}", "1"),
        "upper_tests": (upper, f"upper {ends}", "1"),
        "p_none": (
            prediction.cdf(0.0),
            "probability that no test is made in the tile in the quarter",
            "1",
        ),
        "log_rate_sd": (
            np.sqrt(prediction.log_rate_variance),
            "standard deviation of the natural logarithm of the rate of tests",
            "1",
        ),
        "dispersion": (
            prediction.dispersion,
            "variance of the number of tests beyond Poisson's, over the squared rate",
            "1",
        ),
    }

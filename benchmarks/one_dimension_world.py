"""The world in one dimension of Zhu, Yuchi and Xie (DBK, section 4.1), and its oracle.

x ~ U[-1, 1], three steps in the mean, and noise of standard deviation |0.4 sin 10x|.
"""

import math

import numpy as np
from scipy.special import expit
from trial import Floats

from geogp.models.training.training_loop import Data

ROWS, VALIDATION_ROWS, FRESH_ROWS = 100_000, 1_000, 100_000

GRID = np.linspace(-1, 1, 4001)
"""Where curves are kept, and where a peer predicts before interpolation to the fresh points."""

KERNEL_GRID = np.linspace(-1, 1, 241)
"""Where features and kernels are kept."""

Z90 = 1.6448536269514722


def true_mean(x: Floats) -> Floats:
    """Return the mean of y at x: 0.3, 0.9, -0.6 and 0 between three sharp steps."""
    s1, s2, s3 = expit(200 * (x + 0.6)), expit(200 * x), expit(200 * (x - 0.4))
    return np.asarray(0.3 * (1 - s1) + 0.9 * (s1 - s2) - 0.6 * (s2 - s3), np.float64)


def true_sd(x: Floats) -> Floats:
    """Return the standard deviation of y at x, |0.4 sin 10x|."""
    return np.abs(0.4 * np.sin(10 * x))


def draw(n: int, seed: int) -> Data:
    """Draw n rows of the world."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, n)
    return Data(x[:, None], true_mean(x) + true_sd(x) * random.standard_normal(n))


def oracle_nll(data: Data) -> float:
    """Return the mean negative log density of the rows under the density that made them."""
    x = data.x[:, 0]
    sd = true_sd(x)
    z = (data.y - true_mean(x)) / sd
    return float(np.mean(0.5 * z**2 + np.log(sd) + 0.5 * math.log(2 * math.pi)))

"""The law of a measurement, the average of k tests: its variance and its shift."""

import math

import torch
from torch import Tensor, nn

from geogp.models.core.noise import NOISE_FLOOR, Noise

FLOOR_START, SINGLE_START = 0.2, 0.5
"""Start values of the two parts of the variance, for a standardised target."""


ENDLESS = 1e300
"""Bound of the counts before rows are held: saved models hold finite numbers only."""


class MeasurementLaw(Noise):
    """Variance and shift of the average of k tests around the level of a tile.

    variance(x, k) = exp(a + <c_a, phi(x)>) + exp(b + <c_b, phi(x)>) k^(-p),
    shift(k) = g (1 - k^(-s)).

    k is clamped to the counts of the training rows: the law does not extrapolate, and infinitely
    many tests are the largest count seen. No number of tests removes the first term. The shift
    exists because the target is the logarithm of an average: by Jensen's inequality the expected
    logarithm of an average of k positive values rises with k, from a single test (shift 0) to very
    many (shift g).

    Parameters
    ----------
    r
        Number of basis functions phi in the variance.
    dtype
        Of the parameters; results are float64.
    """

    tests_range: Tensor

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.log_floor = _parameter(math.log(FLOOR_START), dtype)
        self.log_single = _parameter(math.log(SINGLE_START), dtype)
        self.log_decay = _parameter(0.0, dtype)
        self.gain = _parameter(0.3, dtype)
        self.log_gain_decay = _parameter(-0.3, dtype)
        self.heads = nn.Parameter(torch.zeros(r, 2, dtype=dtype))
        self.register_buffer("tests_range", torch.tensor([1.0, ENDLESS], dtype=torch.float64))

    def keep_rows(self, tests: Tensor) -> None:
        """Take the least and the largest count of training rows (n,)."""
        self.tests_range.copy_(torch.stack([tests.min(), tests.max()]))

    def forward(self, phi: Tensor | None = None, tests: Tensor | None = None) -> Tensor:
        """Return the variance, (b,) float64, for features (b, r) and counts of tests (b,)."""
        assert phi is not None, "the law varies over the inputs"
        assert tests is not None, "the law depends on the tests"
        lift = (phi @ self.heads).double()
        floor = (self.log_floor.double() + lift[:, 0]).exp()
        single = (self.log_single.double() + lift[:, 1]).exp()
        counts = tests.clamp(*self.tests_range)
        return NOISE_FLOOR + floor + single * counts ** (-self.log_decay.double().exp())

    def shift(self, tests: Tensor) -> Tensor:
        """Return the difference of an average of `tests` tests from a single test's mean, (b,)."""
        counts = tests.clamp(*self.tests_range)
        return self.gain.double() * (1 - counts ** (-self.log_gain_decay.double().exp()))


def _parameter(value: float, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=dtype))

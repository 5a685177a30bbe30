"""Variance and shift of a measurement, which is the average of tests from several devices."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from geogp.models.process.noise import NOISE_FLOOR, Noise

FLOOR_START = 0.2
"""Start value of the term of the variance that no number of tests removes, for a standardised
target."""

SINGLE_START = 0.5
"""Start value of the term of the variance that falls with the tests, for a standardised target."""

DECAY_START = -0.7
"""Start value of log p, log q, log s and log t, the logarithms of the exponents."""

ENDLESS = 1e300
"""Stands for an infinite number or distance, because saved numbers must be finite."""


class MeasurementLaw(Noise):
    """Distribution of the average of k tests from d devices around the level of a tile.

    variance(x, k, d) = exp(a + <c_a, phi(x)>) + exp(b + <c_b, phi(x)>) k^(-p) d^(-q),
    shift(k, d) = g (1 - k^(-s) d^(-t)).

    Tests of one device resemble each other, so the number of devices has an exponent of its own.
    The counts k and d are clamped to their range in the training rows, so infinitely many tests
    count as the largest number in this range. No number of tests removes the first term of the
    variance. The shift is 0 for a single test and approaches g for many tests. It exists for two
    reasons. The target is the logarithm of an average, and by Jensen's inequality, the expected
    logarithm of an average of positive values rises with the number of values. And tiles with many
    tests differ from tiles near them with few. So the level is not the limit of many tests, but
    the mean of an average with the counts `well_measured`. Half of all tests are in averages of
    at most so many tests; half are in averages from at most so many devices.

    Parameters
    ----------
    r
        Number of basis functions phi in the variance.
    dtype
        Dtype of the parameters; results are float64.
    """

    counts_range: Tensor
    devices_power: Tensor
    well_measured: Tensor

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.log_floor = _parameter(math.log(FLOOR_START), dtype)
        self.log_single = _parameter(math.log(SINGLE_START), dtype)
        self.log_decays = _parameter([DECAY_START, DECAY_START], dtype)
        self.gain = _parameter(0.3, dtype)
        self.log_gain_decays = _parameter([DECAY_START, DECAY_START], dtype)
        self.heads = nn.Parameter(torch.zeros(r, 2, dtype=dtype))
        bounds = torch.tensor([[1.0, 1.0], [ENDLESS, ENDLESS]], dtype=torch.float64)
        self.register_buffer("counts_range", bounds)
        self.register_buffer("well_measured", torch.ones(2, dtype=torch.float64))
        self.register_buffer("devices_power", torch.ones((), dtype=torch.float64))

    def take_counts(self, counts: Tensor) -> None:
        """Learn the counts of the level, the ranges of counts and the typical number of devices.

        `counts` are those of the rows, (n, 2).
        """
        tests = counts[:, 0]
        for place, column in enumerate(counts.T):
            order = column.argsort()
            half = torch.searchsorted(tests[order].cumsum(0), tests.sum() / 2)
            self.well_measured[place] = column[order[half]]
        self.counts_range.copy_(torch.stack([counts.min(0).values, counts.max(0).values]))
        tests, devices = counts.log().unbind(1)
        square = tests.square().sum()
        # Rows with a single test do not show how many devices are typical.
        power = (tests * devices).sum() / square if float(square) > 0 else torch.ones(())
        self.devices_power.copy_(power.clamp(0, 1))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        low, high = self.counts_range
        counts = torch.stack([low, self.well_measured])
        if not bool((counts >= 1).all() and (low <= high).all() and self.devices_power >= 0):
            raise ValueError("expected counts of 1 or more, and a power of devices of 0 or more")

    def typical_devices(self, tests: Tensor) -> Tensor:
        """Return the typical number of devices behind `tests` tests, k^c, (n,).

        c is the least-squares slope of log devices on log tests in the training rows, or 1 if every
        training row is a single test.
        """
        return tests**self.devices_power

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the variance, (b,) float64, for features (b, r), tests and devices (b, 2)."""
        assert phi is not None, "expected features of the inputs, found none"
        assert counts is not None, "expected numbers of tests and devices, found none"
        lifts = pad((phi @ self.heads).double(), (1, 0))
        return self.moments(lifts, self.log_counts(counts), torch.zeros_like(self.gain))[1]

    def moments(self, lifts: Tensor, logs: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance, (b,) float64.

        `lifts` (b, 3) are the mean without `constant` and shift, <c_a, phi> and <c_b, phi>; `logs`
        (b, 2) are from `log_counts`.
        """
        scalars = (value[None] for value in (constant, self.log_floor, self.log_single, self.gain))
        law = torch.cat([*scalars, self.log_decays, self.log_gain_decays]).double()
        return _Moments.apply(lifts, logs, law)  # type: ignore[no-untyped-call, no-any-return]

    def anywhere(self, counts: Tensor) -> Tensor:
        """Return the variance without the effects of phi, (b,), for tests and devices (b, 2)."""
        single = self.log_single.double().exp() * self._power(counts, self.log_decays)
        return NOISE_FLOOR + self.log_floor.double().exp() + single

    def shift(self, counts: Tensor) -> Tensor:
        """Return shift(k, d) relative to single tests, (b,), for counts (b, 2)."""
        return self.gain.double() * (1 - self._power(counts, self.log_gain_decays))

    def _power(self, counts: Tensor, log_exponents: Tensor) -> Tensor:
        """Return k^(-p) d^(-q), (b,), or (b, c) for exponents (2, c)."""
        return (-(self.log_counts(counts) @ log_exponents.double().exp())).exp()

    def log_counts(self, counts: Tensor) -> Tensor:
        """Return the logarithms of counts (b, 2), clamped to their range in the training rows."""
        return counts.clamp(*self.counts_range.unbind()).log()


class _Moments(torch.autograd.Function):
    """Mean and variance of `MeasurementLaw`, by lifts and by (m0, a, b, g, log p, q, log s, t)."""

    @staticmethod
    def forward(ctx: Any, lifts: Tensor, logs: Tensor, law: Tensor) -> tuple[Tensor, Tensor]:
        gain, exponents = law[3], law[4:].exp().view(2, 2)
        power, rest = (exponents @ logs.T).neg_().exp_()
        terms = (law[1:3] + lifts[:, 1:]).exp_()
        terms[:, 1].mul_(power)
        ctx.save_for_backward(terms, rest, logs, exponents, gain)
        mean = torch.addcmul(lifts[:, 0] + (law[0] + gain), gain, rest, value=-1)
        return mean, terms.sum(1).add_(NOISE_FLOOR)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_mean: Tensor, by_variance: Tensor) -> tuple[Tensor | None, ...]:
        terms, rest, logs, exponents, gain = ctx.saved_tensors
        faded, by_terms = by_mean * rest, terms * by_variance[:, None]
        both = torch.cat([by_mean[:, None], by_terms, faded[:, None]], 1)
        sums = both.sum(0)
        by_single, by_shift = (both[:, 2:].T @ logs).mul_(exponents)
        by_law = [sums[:3], (sums[0] - sums[3])[None], by_single.neg(), by_shift * gain]
        return both[:, :3], None, torch.cat(by_law)


def _parameter(value: float | list[float], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=dtype))

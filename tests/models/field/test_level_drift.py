"""The change of a level from time to time, against made-up levels whose change is known."""

import numpy as np
import pytest
import torch

from geogp.models.field.level_drift import drift_factor, level_drift

WORLDS = 2000
COUNTS = (6, 40, 6)  # rows of three quarters: the means of the first and the last are noisy


def mean_drift(*, trend, step_sd):
    """Return variance and squared trend, averaged over worlds whose rows have a noise of 1."""
    random = np.random.default_rng(1)
    quarter = np.repeat(np.arange(3), COUNTS)
    level = np.cumsum(step_sd * random.standard_normal((WORLDS, 3)), axis=1)
    values = (level + trend * np.arange(3))[:, quarter]
    values += random.standard_normal(values.shape)
    times = torch.from_numpy(quarter.astype(np.float64))
    return torch.stack([level_drift(times, row) for row in torch.from_numpy(values)]).mean(0)


def test_the_noise_of_neither_end_is_a_trend():
    """The slope's square is too large by the variances of both ends' means, over 2 quarters."""
    squared = mean_drift(trend=0.6, step_sd=0.0)[1]
    of_one_end = 1 / 6 / 2**2
    assert squared == pytest.approx(0.6**2, abs=0.6 * of_one_end)


def test_the_noise_of_neither_end_is_a_change():
    """A step is the difference of two means; what they vary by is no part of its variance."""
    variance = mean_drift(trend=0.1, step_sd=1.0)[0]
    assert variance == pytest.approx(1.0, abs=0.6 / 6)


def test_two_quarters_tell_no_trend_and_one_no_change():
    times = torch.tensor([3.0, 3.0, 5.0, 5.0], dtype=torch.float64)
    values = torch.tensor([0.0, 0.0, 4.0, 4.0], dtype=torch.float64)
    assert level_drift(times, values).tolist() == [8.0, 0.0]
    assert level_drift(times[:2], values[:2]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("rows", "most"), [(20, 4.0), (600, 1.0)])
def test_noise_is_no_change_if_each_row_has_a_time_of_its_own(rows, most):
    """The noise of single rows, over the short times between them, would be a huge change."""
    random = np.random.default_rng(2)
    drifts = [
        level_drift(
            *torch.from_numpy(np.stack([random.uniform(0, 8, rows), random.normal(size=rows)]))
        )
        for _ in range(200)
    ]
    variance, squared = torch.stack(drifts).mean(0).tolist()
    assert variance * 8 < most
    assert squared * 8**2 < most


@pytest.mark.parametrize("regular", [False, True])
def test_a_walk_is_found_with_many_times(regular):
    """If each row has a time of its own, the means over intervals differ less than the walk."""
    random = np.random.default_rng(3)
    times = np.sort(random.uniform(0, 8, (400, 1600)), axis=1)
    if regular:
        times = np.broadcast_to(np.linspace(0, 8, 64).repeat(25), times.shape)
    steps = np.diff(times, axis=1, prepend=0.0)
    values = np.cumsum(np.sqrt(0.5 * steps) * random.standard_normal(steps.shape), axis=1)
    values += random.standard_normal(values.shape)
    pairs = zip(torch.tensor(times), torch.tensor(values), strict=True)
    drifts = torch.stack([level_drift(*pair) for pair in pairs])
    assert float(drifts.mean(0)[0]) == pytest.approx(0.5, abs=0.05)


def test_the_drift_at_several_times_is_a_walk_with_a_slope():
    away = torch.tensor([0.0, 2.0, 1.0, 2.0, -3.0], dtype=torch.float64)
    drift = torch.tensor([0.5, 0.25], dtype=torch.float64)
    factor = drift_factor(away, drift)
    walk = [[0, 0, 0, 0, 0], [0, 2, 1, 2, 0], [0, 1, 1, 1, 0], [0, 2, 1, 2, 0], [0, 0, 0, 0, 3]]
    expected = 0.5 * torch.tensor(walk, dtype=torch.float64) + 0.25 * torch.outer(away, away)
    torch.testing.assert_close(factor @ factor.T, expected)
    # The variance of a change is that of as many quarters, counted from the earlier one.
    change = factor[1] - factor[2]
    torch.testing.assert_close(change @ change, torch.tensor(0.75, dtype=torch.float64))

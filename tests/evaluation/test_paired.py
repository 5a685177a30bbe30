"""Mean paired differences of few blocks, against the t test of SciPy."""

import numpy as np
import pytest
from scipy import stats

from geogp.evaluation.paired import paired_estimates


@pytest.mark.parametrize("count", [5, 6, 8])
def test_few_blocks_of_equal_size_have_the_error_interval_and_p_of_the_t_test(count):
    """Of the means of the blocks, with as many degrees of freedom as blocks less one."""
    effect = 0.6 + np.random.default_rng(count).standard_normal((count, 1))
    values, blocks = np.repeat(effect, 7, axis=0), np.repeat(np.arange(count), 7)
    (found,) = paired_estimates(values, blocks, draws=100_000)
    expected = stats.ttest_1samp(effect[:, 0], 0.0)
    low, high = expected.confidence_interval(0.95)
    error = effect.std(ddof=1) / np.sqrt(count)
    assert found.error == pytest.approx(error, rel=0.01)
    assert (found.lower, found.upper) == pytest.approx((low, high), abs=0.01 * (high - low))
    assert found.p == pytest.approx(expected.pvalue, rel=0.03)
    # Exactly, from the error that was found.
    half = stats.t.ppf(0.975, count - 1) * found.error
    assert found.upper - found.value == pytest.approx(half, rel=1e-9)

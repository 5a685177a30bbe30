"""The scales of models: log10, whose differences are factors, and decibels and shares."""

import numpy as np
import pytest

from geogp.value_scales import DECIBELS, LOG10, PERCENT, scale_of, suffix_of


@pytest.mark.parametrize(
    ("unit", "scale", "value", "modelled", "change"),
    [
        ("Mbps", LOG10, 100.0, 2.0, 900.0),
        ("ms", LOG10, 0.1, -1.0, 900.0),
        ("dBm", DECIBELS, -110.0, -110.0, 1.0),
        ("dB", DECIBELS, 0.0, 0.0, 1.0),
        ("%", PERCENT, 80.0, 80.0, 1.0),
    ],
)
def test_a_unit_tells_its_scale(unit, scale, value, modelled, change):
    assert scale_of(unit) is scale
    assert scale.modelled(value) == modelled
    assert scale.values(modelled) == pytest.approx(value)
    assert scale.changes(1.0) == change  # of one unit of the scale
    assert scale.differences(change) == pytest.approx(1)


def test_draws_keep_their_type():
    for scale in (LOG10, DECIBELS):
        assert scale.values(np.ones(3, np.float32)).dtype == np.float32


def test_shares_never_leave_their_range():
    np.testing.assert_array_equal(PERCENT.values([-3.0, 40.0, 104.0]), [0, 40, 100])
    assert (suffix_of("%"), suffix_of("Mbps"), PERCENT.unit("%")) == ("percent", "mbps", "points")


def test_errors_of_logarithms_are_those_of_draws():
    values, sd = np.array([5.0, 300.0]), np.array([0.2, 9.0])
    drawn = values + sd * np.random.default_rng(0).standard_normal((50_000, 2))
    errors = LOG10.error_variance(values, sd**2)
    np.testing.assert_allclose(errors, np.log10(drawn).var(0), rtol=0.03)
    np.testing.assert_array_equal(DECIBELS.error_variance(values, sd**2), sd**2)
    assert LOG10.error_variance(0.0, 4.0) == 0  # no logarithm, and left out


def test_units_of_the_scale_have_no_logarithm_of_decibels():
    assert LOG10.unit("Mbps") == "log10 Mbps"
    assert DECIBELS.unit("dBm") == "dB"
    assert LOG10.named("latency", "ms") == "log10 latency (ms)"
    assert DECIBELS.named("RSRP", "dBm") == "RSRP (dBm)"

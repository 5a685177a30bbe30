"""The scales of models: log10, whose differences are factors, and decibels as they are."""

import numpy as np
import pytest

from geogp.value_scales import DECIBELS, LOG10, scale_of


@pytest.mark.parametrize(
    ("unit", "scale", "value", "modelled", "change"),
    [
        ("Mbps", LOG10, 100.0, 2.0, 900.0),
        ("ms", LOG10, 0.1, -1.0, 900.0),
        ("dBm", DECIBELS, -110.0, -110.0, 1.0),
        ("dB", DECIBELS, 0.0, 0.0, 1.0),
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


def test_units_of_the_scale_have_no_logarithm_of_decibels():
    assert LOG10.unit("Mbps") == "log10 Mbps"
    assert DECIBELS.unit("dBm") == "dB"
    assert LOG10.named("latency", "ms") == "log10 latency (ms)"
    assert DECIBELS.named("RSRP", "dBm") == "RSRP (dBm)"

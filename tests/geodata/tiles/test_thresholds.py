import numpy as np
import pytest

from geogp.errors import RequestError
from geogp.geodata.tiles.targets import FIXED, MOBILE, SERVICES, SPEED_TIERS
from geogp.geodata.tiles.thresholds import Threshold, nearest_threshold, thresholds_of


def test_defaults_are_tiers_of_the_target():
    """Fast mobile networks reach their highest tier nearly everywhere, so 100/20 is added."""
    usual = {
        ("download", MOBILE): [7, 35, 100],
        ("upload", MOBILE): [1, 3, 20],
        ("download", FIXED): [25, 100],
        ("upload", FIXED): [3, 20],
    }
    tiers = np.array([speeds for own in SPEED_TIERS.values() for speeds in own.values()])
    for (target, service), expected in usual.items():
        values = [one.value for one in thresholds_of(target, service=service)]
        assert values == expected
        assert set(values) <= set(tiers[:, int(target == "upload")])


@pytest.mark.parametrize("service", SERVICES)
def test_other_thresholds(service):
    assert [one.value for one in thresholds_of("latency", service=service)] == [50, 100]
    assert thresholds_of("tests", service=service) == ()
    assert [one.value for one in thresholds_of("download", (1,), service)] == [1]


def test_the_nearest_threshold_is_the_nearest_factor():
    thresholds = thresholds_of("download")  # 7, 35 and 100 Mbps
    found = [nearest_threshold(thresholds, np.log10(mbps)).value for mbps in (1, 15, 17, 300)]
    assert found == [7, 7, 35, 100]
    assert nearest_threshold(thresholds_of("rsrp"), -111).value == -115


def test_names_and_words():
    speed, latency = Threshold(1.5, "upload"), Threshold(50, "latency")
    assert (speed.variable, speed.met, speed.missed) == (
        "p_at_least_1_5_mbps",
        "at least 1.5 Mbps",
        "below 1.5 Mbps",
    )
    assert (latency.variable, latency.met, latency.missed) == (
        "p_at_most_50_ms",
        "at most 50 ms",
        "above 50 ms",
    )


def test_equality_meets_a_threshold_whichever_side_is_good():
    y = np.log10(np.array([6999, 7000, 7001]) / 1000)
    assert Threshold(7, "download").holds(y).tolist() == [False, True, True]
    y = np.log10(np.array([49.0, 50.0, 51.0]))
    assert Threshold(50, "latency").holds(y).tolist() == [True, True, False]


def test_a_threshold_of_decibels_is_not_transformed():
    threshold = Threshold(-110, "rsrp")
    assert threshold.holds(np.array([-110.1, -110.0, -109.9])).tolist() == [False, True, True]
    assert threshold.modelled == -110
    assert (threshold.variable, threshold.met, threshold.missed) == (
        "p_at_least_minus_110_dbm",
        "at least -110 dBm",
        "below -110 dBm",
    )
    assert [one.value for one in thresholds_of("rsrp", (-90.5, -110))] == [-110, -90.5]
    assert Threshold(-90.5, "rsrp").tag == "minus_90_5_dbm"
    assert [one.value for one in thresholds_of("sinr", (0,))] == [0]


def test_thresholds_are_sorted():
    assert [one.value for one in thresholds_of("download", (25, 3))] == [3, 25]


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("tests", (5,), "--target tests has no thresholds"),
        ("download", (0,), "from 0.001 to 1e.06 Mbps, found 0"),
        ("download", (-3,), "found -3"),
        ("download", (float("nan"),), "found nan"),
        ("latency", (float("inf"),), "ms, found inf"),
        ("upload", (1, 3, 1), "each threshold once, found 1, 1, 3 Mbps"),
        ("speed", (1,), "unknown target 'speed'"),
        ("rsrp", (110,), "expected a threshold from -156 to -31 dBm, found 110"),
        ("sinr", (-110,), "expected a threshold from -23 to 40 dB, found -110"),
    ],
)
def test_refusals(target, given, words):
    with pytest.raises(RequestError, match=words):
        thresholds_of(target, given)

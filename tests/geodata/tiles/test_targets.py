"""Targets and services by name, and the tiers of speed that a tile must reach."""

import numpy as np
import pytest

from geogp.errors import DataError, RequestError
from geogp.geodata.tiles.targets import (
    SIGNALS,
    SPEED_TIERS,
    TARGETS,
    check_in_tiles,
    find_target,
    speed_tiers,
    target_of,
)
from geogp.value_scales import DECIBELS, suffix_of


@pytest.mark.parametrize(("service", "target"), [("mobile", "tier"), ("fixed", "fixed-tier")])
def test_a_tile_has_the_highest_tier_that_it_reaches(service, target):
    rng, tiers = np.random.default_rng(0), SPEED_TIERS[service]
    down, up = rng.uniform(0, 160, 500), rng.uniform(0, 30, 500)
    down[:250], up[:250] = down[:250] / 4, up[:250] / 8
    found = speed_tiers(down, up, service)
    for d, u, tier in zip(down, up, found, strict=True):
        reached = [name for name, (a, b) in tiers.items() if d >= a and u >= b]
        assert tier == reached[-1]
    assert set(found) == set(tiers)
    assert TARGETS[target].classes == tuple(tiers)
    codes = TARGETS[target].modelled(np.stack([down, up])).astype(int)
    assert (np.array(list(tiers))[codes] == found).all()


def test_limits_belong_to_the_tier():
    assert speed_tiers([5, 7, 35, 35], [1, 1, 3, 2.99]).tolist() == ["5/1", "7/1", "35/3", "7/1"]


def test_a_higher_tier_asks_more():
    for tiers in SPEED_TIERS.values():
        limits = np.array(list(tiers.values()))
        assert (np.diff(limits, axis=0) >= 0).all()


def test_the_target_of_tiers_follows_the_service():
    assert target_of("tier", "fixed") == target_of("fixed-tier", "fixed") == "fixed-tier"
    assert target_of("tier", "mobile") == "tier"
    assert target_of("download", "fixed") == "download"
    with pytest.raises(RequestError, match="fixed-tier has the tiers of the fixed service, found"):
        target_of("fixed-tier", "mobile")
    with pytest.raises(RequestError, match="unknown service"):
        speed_tiers([1.0], [1.0], "cable")


def test_the_target_is_the_number_of_the_tier_and_missing_for_rows_left_out():
    speeds = np.array([[40.0, np.nan, 6.0, 8.0], [5.0, np.nan, 0.5, 1.0]])
    target = TARGETS["tier"]
    np.testing.assert_array_equal(target.modelled(speeds), [3, np.nan, 0, 2])
    np.testing.assert_allclose(TARGETS["upload"].modelled(speeds[1:]), np.log10(speeds[1]))


@pytest.mark.parametrize(
    ("down", "up", "match"),
    [
        ([1.0], [1.0, 2.0], r"shapes \(1,\) and \(2,\)"),
        ([np.nan], [1.0], "0 or more"),
        ([-1.0], [1.0], "0 or more"),
    ],
)
def test_what_are_no_speeds_is_refused(down, up, match):
    with pytest.raises(DataError, match=match):
        speed_tiers(down, up)


OWN = (*SIGNALS, "success")


@pytest.mark.parametrize(
    ("name", "column", "of_raw", "unit"),
    [
        ("download", "avg_d_kbps", 25.0, "Mbps"),
        ("upload", "avg_u_kbps", 25.0, "Mbps"),
        ("latency", "avg_lat_ms", 25_000.0, "ms"),
        ("tests", "tests", 25_000.0, "tests"),
        ("signal", "signal_dbm", 25_000.0, "dBm"),
        ("rsrp", "rsrp_dbm", 25_000.0, "dBm"),
        ("rsrq", "rsrq_db", 25_000.0, "dB"),
        ("sinr", "sinr_db", 25_000.0, "dB"),
        ("rssi", "rssi_dbm", 25_000.0, "dBm"),
        ("success", "success_percent", 25_000.0, "%"),
    ],
)
def test_targets_name_column_and_unit(name, column, of_raw, unit):
    target = find_target(name)
    assert target.columns == (column,)
    assert 25_000 / target.divisor == of_raw
    assert (target.unit, target.suffix) == (unit, suffix_of(unit))
    assert set(TARGETS) == {"download", "upload", "latency", "tests", "tier", "fixed-tier", *OWN}
    assert target.in_tiles == (name not in OWN)
    assert target.is_share == (name == "success")
    assert target.low_is_good == (name == "latency")
    assert TARGETS["tier"].columns == ("avg_d_kbps", "avg_u_kbps")
    assert target.counted == (name == "tests")


@pytest.mark.parametrize("name", SIGNALS)
def test_decibels_are_modelled_as_they_are_and_ookla_has_none(name):
    values = np.array([[-110.0, 0.0, -12.5]])
    np.testing.assert_array_equal(find_target(name).modelled(values), values[0])
    assert find_target(name).scale is DECIBELS
    with pytest.raises(RequestError, match=f"no {name}: --target {name} maps a file of your own"):
        check_in_tiles(name)


def test_an_unknown_target_is_refused():
    with pytest.raises(
        RequestError, match="'speed'; choose one of download, upload, latency, tests"
    ):
        find_target("speed")

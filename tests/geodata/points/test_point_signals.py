"""Files of signals: which column and which kind, possible values, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError
from geogp.geodata.points.point_options import PointOptions, PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.tiles.plausibility import LIMITS
from geogp.geodata.tiles.targets import find_target

N = 400


@pytest.fixture
def written(tmp_path):
    """Return a function that writes columns beside places and times, and returns the path."""

    def write(**columns):
        random = np.random.default_rng(0)
        longitude, latitude = random.uniform((-66.5, 18.0), (-66.3, 18.2), (N, 2)).T
        table = {"time": "2023-11-05", "lat": latitude, "lon": longitude, **columns}
        pd.DataFrame(table).to_csv(tmp_path / "own.csv", index=False)
        return str(tmp_path / "own.csv")

    return write


def read(path, target="signal", **options):
    return read_point_tests(
        PointSource(path, PointOptions(**options)), target=target, service="mobile"
    )


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("rsrp", "rsrp", ("dBm", "assumed")),
        ("RSRP (dBm)", "rsrp", ("dBm", "the column's name")),
        ("ss_rsrp", "rsrp", ("dBm", "assumed")),
        ("lte.rsrp_dbm", "rsrp", ("dBm", "the column's name")),
        ("RSRQ_dB", "rsrq", ("dB", "the column's name")),
        ("SNR", "sinr", ("dB", "assumed")),
        ("rssi", "rssi", ("dBm", "assumed")),
        ("Signal strength [dBm]", "signal", ("dBm", "the column's name")),
        ("Señal", "signal", ("dBm", "assumed")),
    ],
)
def test_a_column_says_its_kind(written, name, kind, unit):
    values = np.linspace(-30, -12, N) if unit[0] == "dB" else np.linspace(-118, -60, N)
    values = values + 20 if kind == "sinr" else values
    found = read(written(**{name: values}))
    assert (found.target, found.units) == (kind, {name: unit})
    np.testing.assert_allclose(found.value, values)  # no kbps, no logarithm
    assert find_target(kind).unit == unit[0]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("rsrp", -156, -31),
        ("rsrq", -43, 20),
        ("sinr", -23, 40),
        ("rssi", -120, 0),
        ("signal", -156, 0),
    ],
)
def test_impossible_values_are_left_out_and_counted(written, kind, least, most):
    values = np.full(N, (least + most) / 2)
    values[:6] = least, most, least - 0.5, most + 0.5, -999, 2147483647
    found = read(written(**{kind: values}), kind)
    assert found.rows == N
    assert len(found.value) == N - 4
    assert (found.value.min(), found.value.max()) == (least, most)
    unit = find_target(kind).unit
    assert [(f"{kind} below {least}" in name, n) for name, n in found.counts.items()] == [
        (True, 2),
        (False, 2),
    ]
    assert all(f"{unit} (" in name for name in found.counts)
    assert sorted(found.left_out["line"]) == [4, 5, 6, 7]


def test_zero_decibels_are_a_value(written):
    assert np.count_nonzero(read(written(sinr=np.zeros(N)), "sinr").value == 0) == N


def test_magnitudes_without_a_sign_are_refused(written):
    with pytest.raises(DataError, match=r"rsrp above -31 dBm \(reporting range.*unit right"):
        read(written(rsrp=np.linspace(60, 118, N)))


def test_several_kinds_are_refused_and_settled(written):
    path = written(rsrp=np.full(N, -100.0), sinr=np.linspace(-5, 20, N))
    with pytest.raises(
        DataError, match=r"several signals: rsrp, sinr. Choose one with --columns r"
    ):
        read(path)
    assert read(path, "sinr").value.max() == 20
    assert read(path, columns=("rsrp=rsrp",)).target == "rsrp"


def test_decibels_of_an_unknown_kind_are_refused_and_settled(written):
    path = written(signal_db=np.linspace(-5, 20, N))
    with pytest.raises(DataError, match=r"unit dB, but the target signal is in dBm.*--target sinr"):
        read(path)
    assert read(path, columns=("sinr=signal_db",)).target == "sinr"


def test_a_file_without_a_signal_names_the_kinds(written):
    with pytest.raises(DataError, match=r"no column for signal;.*signal \(RSRP, RSRQ, SINR, RSSI"):
        read(written(strength=np.full(N, -100.0)))


def test_an_unlike_value_is_no_matter_of_factors(written):
    """-0.001 dB is no thousandth of -10 dB."""
    values = np.full(N, 0.01)
    values[3] = 30
    assert read(written(sinr=values), "sinr").warnings == ()


def test_both_services_have_the_same_limits():
    signals = [find_target(name).columns[0] for name in ("rsrp", "rsrq", "sinr", "rssi", "signal")]
    assert [LIMITS["mobile"][name] for name in signals] == [
        LIMITS["fixed"][name] for name in signals
    ]

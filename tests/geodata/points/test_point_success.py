"""Files of tests that succeeded or failed, and files with known errors."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError, RequestError
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.points.point_options import PointOptions, PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.records.map_settings import MapSettings

N = 400


@pytest.fixture
def written(tmp_path):
    """Return a function that writes columns beside places and times, and returns the path."""

    def write(**columns):
        random = np.random.default_rng(0)
        longitude, latitude = random.uniform((-66.5, 18.0), (-66.45, 18.05), (N, 2)).T
        table = {"time": "2023-11-05", "lat": latitude, "lon": longitude, **columns}
        pd.DataFrame(table).to_csv(tmp_path / "own.csv", index=False)
        return str(tmp_path / "own.csv")

    return write


def read(path, target="success", **options):
    return read_point_tests(
        PointSource(path, PointOptions(**options)), target=target, service="mobile"
    )


def pooled(path, target, **options):
    points = read(path, target, **options)
    choice = RegionChoice(None, None, None, None, points=path)
    return points.observations(choice.read(points.extent.shape).region, None).observations


WORDS = np.array(["ok", "FAIL", "1", "0", "true", "False", "Yes", "no", "passed", "error"])


def test_words_and_digits_say_what_succeeded(written):
    found = read(written(Success=np.resize(WORDS, N)))
    np.testing.assert_array_equal(found.value, np.resize([100.0, 0.0], N))
    assert dict(found.notes)["success"] == "from the column Success: 200 of 400 tests failed"
    empty = np.resize(np.array([1.0, np.nan, 0.0]), N)  # pandas writes 1.0 and 0.0
    found = read(written(result=empty), columns=("success=result",))
    assert found.counts == {"no success": int(np.isnan(empty).sum())}
    assert set(found.value) == {0.0, 100.0}


def test_a_download_says_what_succeeded(written):
    speed = np.resize(np.array([80_000.0, np.nan, 0.0, -1.0, 4_999.0, 5_000.0]), N)
    found = read(written(download_kbps=speed), at_least=5.0)
    np.testing.assert_array_equal(found.value, np.resize([100, 0, 0, 0, 0, 100.0], N))
    assert found.counts == {}
    told = dict(found.notes)["success"]
    assert told == (
        "at least 5 Mbps in the column download_kbps: 267 of 400 tests failed, 67 of them without "
        "a download"
    )


def test_rows_are_shares_of_the_tests_of_a_tile(written):
    seen = pooled(written(ok=np.resize([1, 1, 0], N)), "success", columns=("success=ok",))
    assert seen.tests.sum() == N
    assert (seen.y @ seen.tests) / N == pytest.approx(100 * 267 / 400)
    assert len(seen) < N / 4
    np.testing.assert_allclose(seen.y * seen.tests % 100, 0, atol=1e-9)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"outcome": 1}, {}, r"no column for success;.*success=NAME. Or say.*--at-least 5: tests"),
        ({"outcome": 1}, {"at_least": 5.0}, "no column for download"),
        ({"success": 1}, {}, "all 400 tests of own.csv succeeded; there is nothing to learn"),
        ({"success": "fail"}, {}, "all 400 tests of own.csv failed; there is nothing"),
        ({"success": np.resize([0.3, 1], N)}, {}, "no success or failure in the column success, "),
        ({"download_mbps": 70.0}, {"at_least": 5.0}, "all 400 tests of own.csv succeeded"),
    ],
)
def test_what_says_nothing_is_refused(written, columns, options, message):
    with pytest.raises(DataError, match=message):
        read(written(**columns), **options)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "download", "at_least": 5.0}, "--at-least 5 says which tests succeeded, found"),
        ({"columns": ("success=a",), "at_least": 5.0}, "both say which tests succeeded"),
        ({"question": "single-test"}, "the probability that a test succeeds, with the model field"),
        ({"tests": 5}, "the probability that a test succeeds, with the model field"),
        ({"conformal": "strata"}, "the probability that a test succeeds, with the model field"),
        ({"model": "dbk-rbf"}, "the probability that a test succeeds, with the model field"),
        ({"at_least": -1.0}, "expected at_least above 0 Mbps"),
        ({"threshold": (120.0,)}, "a threshold from 0 to 100 %, found 120"),
        ({"points": None}, "Ookla's tiles have no success"),
        (
            {"target": "download", "columns": ("error_sd=e",), "epochs": 3},
            "error_sd= needs the exact process",
        ),
    ],
)
def test_settings_that_exclude_each_other(settings, message):
    given = {"points": "own.csv", "target": "success"} | settings
    with pytest.raises(RequestError, match=message):
        MapSettings(region="PR", **given)


@pytest.mark.parametrize(
    ("target", "columns", "value", "unit"),
    [
        ("download", ("download_mbps", "precision"), 20.0, 1000.0),
        ("download", ("download_kbps", "error_mbps"), 20_000.0, 1000.0),
        ("latency", ("ping_ms", "error"), 20.0, 1.0),
        ("rsrp", ("rsrp_dbm", "error_db"), -90.0, 1.0),
    ],
)
def test_known_errors_are_in_the_unit_of_their_values(written, target, columns, value, unit):
    (column, error), random = columns, np.random.default_rng(1)
    shift = 1 + 0.01 * random.standard_normal(N)
    path = written(**{column: value * shift, error: np.resize([1.5, 4.0, np.nan], N)})
    found = read(path, target, columns=(f"error_sd={error}",))
    assert found.counts == {"no error_sd": 133}
    np.testing.assert_allclose(found.error_sd, unit * np.resize([1.5, 4.0], 267))


def test_errors_of_means_reach_the_scale_of_the_model(written):
    """Var(mean) = sum of sd² / k², and for log10 divided by (mean ln 10)²."""
    path = written(download_mbps=np.full(N, 20.0), ping_ms=5.0, rsrp=-90.0, e=np.full(N, 2.0))
    for target, size in (("download", 20 * np.log(10)), ("latency", 5 * np.log(10)), ("rsrp", 1)):
        seen = pooled(path, target, columns=("error_sd=e",))
        assert seen.tests.max() > 1
        np.testing.assert_allclose(seen.error_variance, 4 / seen.tests / size**2)


def test_counts_and_shares_have_no_errors_of_an_instrument(written):
    path = written(success=np.resize([0, 1], N), e=1.0)
    for target in ("success", "tests"):
        with pytest.raises(RequestError, match=f"--target {target} counts tests, whose values"):
            read(path, target, columns=("error_sd=e",))
    with pytest.raises(DataError, match="standard deviation below 0 in the column e"):
        read(written(rsrp=-90.0, e=-1.0), "rsrp", columns=("error_sd=e",))


def test_the_unit_of_a_ratio_is_decibels_whatever_its_name_says(written):
    found = read(written(rsrq_dbm=np.linspace(-19, -5, N)), "rsrq")
    unit, origin = found.units["rsrq_dbm"]
    assert unit == "dB"
    assert origin == "the column's name says dBm, but RSRQ is in dB"

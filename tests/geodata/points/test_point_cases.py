"""Files of tests in the forms of spreadsheets, loggers, exports and GIS: one table, read alike."""

from pathlib import Path

import numpy as np
import pytest

from geogp.errors import DataError
from geogp.geodata.points.point_options import PointOptions, PointSource
from geogp.geodata.points.point_tests import read_point_tests

CASES = Path(__file__).parents[2] / "fixtures" / "cases"

GERMAN = ("time=Zeit,latitude=Breite,longitude=Länge,download=Download (Mbit/s),provider=Anbieter",)

READ = [
    ("01-excel-german/messung.csv", {"columns": GERMAN}),
    ("03-excel-unicode-text-utf16/t.txt", {}),
    ("05-thousands/t.csv", {}),
    ("05b-thousands-dot-silent/t.csv", {"thousands": ("download_kbps=.",)}),
    ("06-dates-dmy/dmy.csv", {}),
    ("06-dates-dmy/us.csv", {}),
    ("07-excel-serial-dates/t.csv", {}),
    ("09-preamble-and-sep/pre.csv", {}),
    ("09-preamble-and-sep/sep.csv", {}),
    ("10-two-header-rows/t.csv", {}),
    ("11-duplicate-and-blank-headers/comma.csv", {}),
    ("11-duplicate-and-blank-headers/dup.csv", {}),
    ("11-duplicate-and-blank-headers/index.csv", {}),
    ("13-dms/dms.csv", {}),
    ("13-dms/hemi.csv", {}),
    ("15-xlsx/t.xlsx", {}),
    ("16-gnettrack-log/log.txt", {}),
    ("18-cli-bytes-per-second/cli.csv", {"units": "B/s"}),
    ("22-json-exports/rows.json", {}),
    ("22-json-exports/rows.ndjson", {}),
    ("23-compressed-csv/t.csv.gz", {}),
    ("23-compressed-csv/t.zip", {}),
    ("24-geojson-points/dup.geojson", {}),
    ("24b-gpkg-with-lat-lon-columns/LAT_LONG.gpkg", {}),
    ("24b-gpkg-with-lat-lon-columns/zeros.gpkg", {}),
    ("26-time-zones/abbr.csv", {}),
    ("26-time-zones/name.csv", {}),
    ("26-time-zones/nosep.csv", {}),
    ("26-time-zones/slash.csv", {}),
    ("32-ndt-bigquery-csv/ndt.csv", {}),
    ("35-pandas-and-r-index/r.csv", {}),
    ("36-comments-and-blank-lines/blank.csv", {}),
    ("36-comments-and-blank-lines/c.csv", {}),
    ("36-comments-and-blank-lines/ragged.csv", {}),
    ("37-parquet-forms/disagree.gpkg", {}),
    ("37-parquet-forms/nested.parquet", {}),
    ("37-parquet-forms/strings.parquet", {}),
]


def read(name, target="download", **options):
    source = PointSource(str(CASES / name), PointOptions(**options))
    return read_point_tests(source, target=target, service="mobile")


@pytest.fixture(scope="module")
def plain():
    return read("plain.csv")


@pytest.mark.parametrize(("name", "options"), READ)
def test_every_form_has_the_rows_of_the_plain_table(plain, name, options):
    found = read(name, **options)
    np.testing.assert_allclose(found.value, plain.value, rtol=1e-12)
    np.testing.assert_allclose(found.longitude, plain.longitude, atol=5e-6)
    np.testing.assert_allclose(found.latitude, plain.latitude, atol=5e-6)
    # The zones and bare dates of these files change no quarter of their tests.
    np.testing.assert_array_equal(found.quarter, plain.quarter)


@pytest.mark.parametrize(
    ("name", "options", "subject", "note"),
    [
        ("01-excel-german/messung.csv", {"columns": GERMAN}, "file", "cp1252, semicolon"),
        ("01-excel-german/messung.csv", {"columns": GERMAN}, "position", "decimal comma"),
        ("01-excel-german/messung.csv", {"columns": GERMAN}, "time", "day before month"),
        ("03-excel-unicode-text-utf16/t.txt", {}, "file", "utf-16, tab"),
        ("05-thousands/t.csv", {}, "download", "thousands sign ',': 70,800 is 70,800"),
        ("06-dates-dmy/us.csv", {}, "time", "month before day"),
        ("07-excel-serial-dates/t.csv", {}, "time", "days since 1900"),
        ("09-preamble-and-sep/pre.csv", {}, "header", "names in line 4; 2 rows above"),
        ("10-two-header-rows/t.csv", {}, "download", "Mbps (the row of units)"),
        ("15-xlsx/t.xlsx", {}, "file", "workbook, sheet"),
        ("16-gnettrack-log/log.txt", {}, "download", "kbps (the header: a log of G-NetTrack)"),
        (
            "24b-gpkg-with-lat-lon-columns/zeros.gpkg",
            {},
            "position",
            "latitude and longitude differ",
        ),
        ("26-time-zones/abbr.csv", {}, "time", "AST as UTC-04:00"),
        ("26-time-zones/name.csv", {}, "time", "America/Puerto_Rico"),
        ("37-parquet-forms/disagree.gpkg", {}, "position", "differ by 111 km"),
        ("34-no-time-column/t.csv", {"at_quarter": "2023Q4"}, "time", "2023Q4 for all rows"),
    ],
)
def test_assumptions_are_stated(name, options, subject, note):
    assert note in dict(read(name, **options).notes)[subject]


@pytest.mark.parametrize(
    ("name", "rows", "counts"),
    [
        ("17-logger-dash-in-target/log.csv", 342, {"no download": 58}),
        (
            "19-phone-app-export/app.csv",
            197,
            {"no position (empty, or 0, 0)": 13, "not mobile": 190},
        ),
        ("24-geojson-points/line.geojson", 50, {"no position (empty, or 0, 0)": 1}),
        (
            "36-comments-and-blank-lines/ragged.csv",
            400,
            {"more values than the header has names": 1},
        ),
    ],
)
def test_rows_are_left_out_and_counted(name, rows, counts):
    found = read(name)
    assert (len(found.value), found.counts) == (rows, counts)
    assert len(found.left_out) == sum(counts.values())
    assert rows + sum(counts.values()) == found.rows


def test_signals_of_a_file_and_of_a_logger():
    found = read("30-signal-strength-dbm/sig.csv", "signal")
    assert (found.target, found.units) == ("rsrp", {"rsrp_dbm": ("dBm", "the column's name")})
    assert found.value[:4].tolist() == [-85, -78, -104, -78]
    log = "16-gnettrack-log/log.txt"
    with pytest.raises(DataError, match="--columns sinr=SNR or --columns signal=Level"):
        read(log, "signal")
    level = read(log, "signal", columns=("signal=Level",))
    assert level.target == "signal"
    assert level.units == {"Level": ("dBm", "the header: a log of G-NetTrack")}


def test_columns_of_a_logger():
    log = "16-gnettrack-log/log.txt"
    plain = {target: read("plain.csv", target).value for target in ("upload", "latency")}
    np.testing.assert_allclose(read(log, "latency").value, plain["latency"])
    np.testing.assert_allclose(read(log, "upload").value, plain["upload"])
    assert read(log, "latency").units == {"PINGAVG": ("ms", "the header: a log of G-NetTrack")}


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        (
            "05b-thousands-dot-silent/t.csv",
            "download",
            r"download_kbps, line 2: 70\.800 may be 70\.8 or 70,800.*--thousands download_kbps=\.",
        ),
        (
            "18-cli-bytes-per-second/cli.csv",
            "download",
            "unit of the column download.*--units.*B/s",
        ),
        (
            "30-signal-strength-dbm/sig.csv",
            "download",
            "rsrp_dbm seems to hold a signal: map it with --target rsrp",
        ),
        (
            "32-ndt-bigquery-csv/ndt.csv",
            "upload",
            "a.MeanThroughputMbps seems to hold the download",
        ),
        ("34-no-time-column/t.csv", "download", "no column for time.*--at-quarter 2023Q4"),
    ],
)
def test_ambiguities_are_refused_once(name, target, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        read(name, target)


def test_the_decimal_sign_settles_numbers_with_three_digits():
    assert read("05b-thousands-dot-silent/t.csv", decimal=".").value[0] == pytest.approx(70.8)

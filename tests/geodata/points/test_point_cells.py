"""Cells of users' tables: numbers, units, times, coordinates and headers, in all their forms."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geogp.errors import DataError, RequestError
from geogp.geodata.points.cell_numbers import MISSING, decimal_sign, is_missing, read_numbers
from geogp.geodata.points.cell_places import _degrees
from geogp.geodata.points.cell_times import is_clock, read_times, zone_of
from geogp.geodata.points.point_options import PointOptions, named_columns
from geogp.geodata.points.roles import (
    AMBIGUOUS,
    KBPS,
    find_columns,
    latency_unit,
    role_of,
    speed_unit,
)
from geogp.geodata.points.text_tables import decoded, rows_of, table_of
from geogp.geodata.tiles.quarters import quarter_index, quarter_label


def texts(*cells):
    return np.array(cells, object)


def numbers(*cells, file_decimal=None, most=np.inf, decimal=None, thousands=None):
    return read_numbers(
        texts(*cells),
        decimal=decimal,
        thousands=thousands,
        file_decimal=file_decimal,
        plausible=lambda values: not np.any(values > most),
    )


def times(*cells, dates=None, timezone=None):
    held = pd.Series(texts(*cells))
    return read_times(held, texts(*cells), dates=dates, timezone=timezone)


def quarters(*cells, **options):
    return [quarter_label(one) if one >= 0 else None for one in times(*cells, **options).quarter]


class TestNumbers:
    @pytest.mark.parametrize(
        ("cells", "expected"),
        [
            (("1.5", "2"), (1.5, 2)),
            (("1,5", "2"), (1.5, 2)),
            (("1,234.5", "2"), (1234.5, 2)),
            (("1.234,5", "2"), (1234.5, 2)),
            (("1,234,567",), (1234567,)),
            (("1.234.567", "1.234"), (1234567, 1234)),
            (("1 234,5", "12"), (1234.5, 12)),
            (("1'234.5",), (1234.5,)),
            (("1.5e3", "-2", "+3", ".5"), (1500, -2, 3, 0.5)),
            (("\N{MINUS SIGN}2",), (-2,)),
            (("0.532", "1.100"), (0.532, 1.1)),  # no thousands begin with a zero
            (("1.4400",), (1.44,)),
        ],
    )
    def test_signs_follow_from_the_column(self, cells, expected):
        found = numbers(*cells)
        np.testing.assert_allclose(found.numbers, expected)
        assert not found.wrong.any()
        assert not found.question

    @pytest.mark.parametrize("sign", [".", ","])
    def test_three_digits_have_two_readings(self, sign):
        cells = [f"70{sign}800", "12", f"1{sign}440"]
        found = numbers(*cells)
        assert (found.sample, found.question) == (cells[0], f"{'70.8 or 70,800'}")
        other = "," if sign == "." else "."
        assert numbers(*cells, file_decimal=sign).question
        for given_, expected in (
            ({"file_decimal": other}, 70800),
            ({"thousands": sign}, 70800),
            ({"decimal": sign}, 70.8),
            ({"decimal": other}, 70800),
            ({"most": 1000}, 70.8),
        ):
            settled = numbers(*cells, **given_)
            assert settled.numbers[0] == pytest.approx(expected)
            assert not settled.question
            assert settled.note

    def test_two_signs_follow_the_coordinates(self):
        np.testing.assert_allclose(
            numbers("1,234", "5.678", file_decimal=",").numbers, [1.234, 5678]
        )

    @pytest.mark.parametrize(
        "cell", ["fast", "1.2.3", "1,23,4", "12a", "<5", "1..2", "1e999", "inf", "0x10", "12%"]
    )
    def test_other_texts_are_wrong(self, cell):
        found = numbers("1.5", cell)
        assert found.wrong[1] or found.units[1]

    @pytest.mark.parametrize("cell", [*sorted(MISSING), "N/A", "NULL", "#N/A", "NaN"])
    def test_missing_marks(self, cell):
        found = numbers("1.5", cell)
        assert np.isnan(found.numbers[1])
        assert not found.wrong.any()

    def test_units_in_cells(self):
        found = numbers("70.8 Mbps", "5", "900kbps")
        assert found.units.tolist() == ["Mbps", "", "kbps"]
        np.testing.assert_allclose(found.numbers, [70.8, 5, 900])

    @given(st.lists(st.floats(-1e6, 1e6).map(lambda one: round(one, 2)), min_size=1))
    def test_written_numbers_are_read_back_in_both_notations(self, values):
        for write in ("{:,.2f}".format, lambda one: f"{one:,.2f}".translate({44: 46, 46: 44})):
            found = numbers(*map(write, values))
            np.testing.assert_array_equal(found.numbers, values)

    def test_the_decimal_sign_of_coordinates(self):
        assert decimal_sign(texts("18,33", "19,1", "20")) == ","
        assert decimal_sign(texts("18.33")) == "."
        assert decimal_sign(texts("18")) is None

    def test_na_is_missing_as_a_number(self):
        assert is_missing(texts("NA", "n/a", "North")).tolist() == [True, True, False]


class TestUnits:
    @pytest.mark.parametrize(
        ("name", "unit"),
        [
            ("download_mbps", "Mbps"),
            ("download_Mbps", "Mbps"),
            ("download_MBps", "MB/s"),
            ("Download (MBps)", "MB/s"),
            ("download_KBps", "kB/s"),
            ("download_kbps", "kbps"),
            ("download_Kbps", "kbps"),
            ("Download (Mbit/s)", "Mbps"),
            ("DOWNLOAD_MBIT/S", "Mbps"),
            ("speed (MB/s)", "MB/s"),
            ("speed (Mb/s)", "Mbps"),
            ("dl_Bps", "B/s"),
            ("dl_bps", "bps"),
            ("download_bytes_per_second", "B/s"),
            ("download kilobits per second", "kbps"),
            ("download_kbit", "kbps"),
            ("DOWNLOAD_MBPS", AMBIGUOUS),
            ("DOWNLOAD (KB/S)", AMBIGUOUS),
            ("speed mb/s", AMBIGUOUS),
            ("download bytes", None),
            ("download", None),
            ("DL_bitrate", None),
            ("clubs", None),
        ],
    )
    def test_case_matters_in_b_and_B(self, name, unit):  # noqa: N802
        assert speed_unit(name).unit == unit

    def test_every_choice_is_read_from_a_name(self):
        assert [speed_unit(f"download {unit}").unit for unit in KBPS] == list(KBPS)

    def test_bytes_have_eight_bits(self):
        for prefix in ("", "k", "M", "G"):
            assert KBPS[f"{prefix}B/s"] == pytest.approx(8 * KBPS[f"{prefix}bps"])

    @pytest.mark.parametrize(
        ("name", "unit"),
        [("ping_ms", "ms"), ("Latency (s)", "s"), ("rtt_us", "us"), ("ping", None), ("rtts", None)],
    )
    def test_latency(self, name, unit):
        assert latency_unit(name).unit == unit


class TestTimes:
    @pytest.mark.parametrize(
        "cell",
        [
            *("2023-09-30", "2023-09-30T14:30:00Z", "2023-09-30 14:30", "2023/09/30 14:30:59"),
            *("2023.09.30_14.30.20", "20230930", "20230930 14:30", "20230930143020", "30.09.2023"),
            *("30.09.23 14:30", "30/09/2023", "09/30/2023 02:30 PM", "30-Sep-2023", "Sep 30, 2023"),
            *(
                "30 September 2023 14:30",
                "Sat, 30 Sep 2023 14:30:20 GMT",
                "September 30, 2023 at 9:05",
            ),
            *("2023-09-30 20:00:00-0300", "2023-09-30 19:59:00 AST", "2023-10-01T03:00+04:00"),
            *("2023-09-30 19:59:00 America/Puerto_Rico", "2023-09-30 23:59:59.999 UTC", "2023Q3"),
            *("Q3 2023", "1696118399", "1696118399000", "1696118399000000", "45199.99", "45199"),
        ],
    )
    def test_the_last_day_of_a_quarter(self, cell):
        found = times(cell)
        assert quarters(cell) == ["2023Q3"], found

    @pytest.mark.parametrize(
        ("cell", "quarter"),
        [
            ("2023-09-30 20:00:00 AST", "2023Q4"),
            ("2023-09-30T20:00:00-04:00", "2023Q4"),
            ("2023-10-01T03:59:59+04:00", "2023Q3"),
            ("2023-09-30 20:00:00 America/Puerto_Rico", "2023Q4"),
        ],
    )
    def test_zones_move_a_time_into_another_quarter(self, cell, quarter):
        assert quarters(cell) == [quarter]

    def test_a_zone_is_for_times_without_one(self):
        cells = ("2023-09-30 20:00:00", "2023-09-30 20:00:00Z")
        assert quarters(*cells) == ["2023Q3", "2023Q3"]
        assert quarters(*cells, timezone="America/Puerto_Rico") == ["2023Q4", "2023Q3"]
        assert quarters(*cells, timezone="-04:00") == ["2023Q4", "2023Q3"]
        assert quarters("45199.9", timezone="-04:00") == ["2023Q4"]
        typed = pd.Series(pd.to_datetime(["2023-09-30 20:00:00"]))
        found = read_times(typed, texts("x"), dates=None, timezone="-04:00")
        assert quarter_label(found.quarter[0]) == "2023Q4"

    def test_all_rows_settle_the_order_of_day_and_month(self):
        assert quarters("03/04/2023", "13/04/2023") == ["2023Q2", "2023Q2"]
        assert quarters("03/04/2023", "04/13/2023") == ["2023Q1", "2023Q2"]
        assert quarters("23-07-04", "23-07-31") == ["2023Q3", "2023Q3"]

    def test_an_open_order_is_a_question(self):
        found = times("03/04/2023", "05/06/2023")
        assert found.sample == "03/04/2023"
        assert found.question == "2023-04-03 (--dates dmy) or 2023-03-04 (--dates mdy)"
        assert quarters("03/04/2023", dates="dmy") == ["2023Q2"]
        assert quarters("03/04/2023", dates="mdy") == ["2023Q1"]

    def test_with_points_the_day_is_first(self):
        assert quarters("07.03.2023") == ["2023Q1"]

    def test_the_afternoon_is_twelve_hours_later(self):
        cells = ("09/30/2023 08:00 AM", "09/30/2023 08:00 PM", "09/30/2023 12:30 AM")
        assert quarters(*cells, timezone="-04:00") == ["2023Q3", "2023Q4", "2023Q3"]

    def test_one_bad_date_does_not_decide(self):
        cells = ["13/04/2023"] * 50 + ["99/99/2023"]
        found = times(*cells)
        assert found.wrong.tolist() == [False] * 50 + [True]

    @pytest.mark.parametrize(
        "cell",
        ["soon", "2023-13-01", "2023-02-30", "31/31/2023", "14:30", "2023", "12:61 1/2/2023"],
    )
    def test_other_texts_are_wrong(self, cell):
        found = times(cell, "2023-09-30T00:00:00Z")
        assert found.wrong.tolist() == [True, False]

    def test_serial_dates_of_old_macs(self):
        assert quarters("43737", dates="excel-1904") == ["2023Q3"]
        assert quarters("45199", dates="excel") == ["2023Q3"]

    def test_early_and_late_times_are_marked(self):
        found = times("1970-01-01", "2123-01-01", "2023-01-01")
        assert found.early.tolist() == [True, False, False]
        assert found.ahead.tolist() == [False, True, False]

    def test_the_fast_and_the_slow_way_agree(self):
        rng = np.random.default_rng(0)
        moments = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.uniform(0, 2000, 500), unit="D")
        fast = moments.strftime("%Y-%m-%dT%H:%M:%SZ").to_numpy(object)
        slow = moments.strftime("%d %b %Y %H:%M:%S UTC").to_numpy(object)
        expected = moments.year * 4 + moments.quarter - 1
        for cells in (fast, slow):
            found = read_times(pd.Series(cells), cells, dates=None, timezone=None)
            np.testing.assert_array_equal(found.quarter, expected)

    def test_times_of_day(self):
        assert is_clock(texts("14:30:00", "2:05 PM", ""))
        assert not is_clock(texts("14:30:00", "2023-01-01 14:30"))
        assert not is_clock(texts(""))

    @pytest.mark.parametrize("name", ["Nowhere/Town", "../../etc/passwd", "+99:99", "", "/etc"])
    def test_unknown_zones(self, name):
        with pytest.raises(RequestError, match="expected --timezone with a name such as"):
            zone_of(name)


class TestCoordinates:
    @pytest.mark.parametrize(
        ("cell", "role", "degrees"),
        [
            ("18.5", "latitude", 18.5),
            ("18,5", "latitude", 18.5),
            ("18.5N", "latitude", 18.5),
            ("N 18.5", "latitude", 18.5),
            ("18.5 s", "latitude", -18.5),
            ("66.5W", "longitude", -66.5),
            ("66°30'W", "longitude", -66.5),
            ("66° 30' 00\" W", "longitude", -66.5),
            ("66°30\N{PRIME}36\N{DOUBLE PRIME}W", "longitude", -66.51),
            ("66:30:36 W", "longitude", -66.51),
            ("-66 30 36", "longitude", -66.51),
            ("18 30.6", "latitude", 18.51),
            ("18d30m36s", "latitude", 18.51),
            ("66º30'W", "longitude", -66.5),
        ],
    )
    def test_forms(self, cell, role, degrees):
        values, wrong, _ = _degrees(texts(cell), role)
        assert values[0] == pytest.approx(degrees)
        assert not wrong[0]

    @pytest.mark.parametrize(
        ("cell", "role"),
        [
            ("18.5E", "latitude"),
            ("18.5N", "longitude"),
            ("18°75'N", "latitude"),
            ("N 18.5 S", "latitude"),
            ("north", "latitude"),
            ("18.5.3", "latitude"),
        ],
    )
    def test_other_texts_are_wrong(self, cell, role):
        assert _degrees(texts(cell), role)[1].tolist() == [True]


def header(text, known=role_of):
    rows, _ = rows_of("t.csv", text, "")
    return table_of("t.csv", rows, lambda name: known(name) is not None, "line")


class TestHeaders:
    BODY = "2023-01-01,18,-66,20\n2023-01-02,18,-66,30\n"

    @pytest.mark.parametrize(
        ("head", "line"),
        [
            ("time,lat,lon,download_mbps\n", 1),
            ("\n\ntime,lat,lon,download_mbps\n", 3),
            ("Report of drives,,,\nMade 2023,,,\ntime,lat,lon,download_mbps\n", 3),
            ("# made by a program\n# v 2\ntime,lat,lon,download_mbps\n", 3),
            ("# time,lat,lon,download_mbps\n", 1),
            ('"A title, with a comma"\n\ntime,lat,lon,download_mbps\n', 3),
        ],
    )
    def test_the_names_are_found(self, head, line):
        table = header(head + self.BODY)
        assert list(table.frame) == ["time", "lat", "lon", "download_mbps"]
        assert table.number.tolist() == [line + 1, line + 2]
        assert table.frame["download_mbps"].tolist() == ["20", "30"]

    def test_units_below_the_names(self):
        table = header("time,lat,lon,speed\n(UTC),[deg],[deg],[Mbit/s]\n" + self.BODY)
        assert table.units == {"time": "UTC", "lat": "deg", "lon": "deg", "speed": "Mbit/s"}
        assert len(table.frame) == 2

    def test_a_row_of_texts_is_no_row_of_units(self):
        table = header("time,lat,lon,note\n2023-01-01,18,-66,ms\n2023-01-01,18,-66,s\n")
        assert table.units == {}
        assert len(table.frame) == 2

    def test_row_names_of_r_have_no_name(self):
        table = header('"time" "lat"\n1 "2023" 18\n2 "2024" 19\n'.replace(" ", "\t"))
        assert list(table.frame) == ["time", "lat"]
        assert table.frame["lat"].tolist() == ["18", "19"]

    def test_longer_rows_are_marked_and_empty_cells_are_not(self):
        table = header("time,lat,lon\n2023,1,2\n2023,1,2,3\n2023,1,2,,\n2023,1\n")
        assert table.ragged.tolist() == [False, True, False, False]
        assert table.frame["lon"].tolist() == ["2", "2", "2", ""]

    def test_a_table_without_names(self):
        with pytest.raises(DataError, match="expected a row with the names of the columns"):
            header(self.BODY)

    def test_lines_are_those_of_the_file(self):
        table = header('name,lat,lon\n"a\nb",18,-66\n\nc,,-66\n')
        assert table.number.tolist() == [3, 5]

    @pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
    def test_delimiters(self, sign):
        text = f"time{sign}lat{sign}lon\n2023{sign}18,5{sign}-66,1\n2024{sign}18,5{sign}-66,2\n"
        if sign == ",":
            text = (
                text.replace("18,5", '"18,5"').replace("-66,1", '"-66,1"').replace("-66,2", "-66")
            )
        rows, found = rows_of("t.csv", text, "")
        assert found == sign
        assert rows[1].cells[:2] == ["2023", "18,5"]

    def test_a_quote_without_an_end(self):
        with pytest.raises(DataError, match=r"cannot be read as CSV.*line"):
            header('time,lat,lon\n2023,"18,-66\n2023,18,-66\n')


class TestEncodings:
    TEXT = "Straße;Länge;Año\nMüllerstraße;18,5;ñ\n"

    @pytest.mark.parametrize(
        "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"]
    )
    def test_western_texts_are_decoded(self, encoding):
        assert decoded("t.csv", self.TEXT.encode(encoding), None)[0] == self.TEXT

    def test_other_alphabets_are_guessed_or_given(self):
        text = "время;широта;долгота;оператор\n2023;18,5;-66,1;Билайн\n" * 20
        assert decoded("t.csv", text.encode("cp1251"), None)[0] == text
        assert decoded("t.csv", text.encode("koi8-r"), "koi8-r")[0] == text

    def test_a_wrong_encoding_is_refused(self):
        with pytest.raises(DataError, match=r"cannot be read as text in utf-8.*--encoding"):
            decoded("t.csv", b"caf\xe9", "utf-8")


class TestColumns:
    def test_last_parts_of_nested_names(self):
        names = ["when.timestamp", "location.lat", "location.lon", "download.mbps"]
        found = find_columns(names, {}, ["latitude", "longitude", "time", "download"], "f")
        assert list(found.values()) == [names[1], names[2], names[0], names[3]]

    def test_names_of_m_lab(self):
        names = [
            *("id", "date", "a.TestTime", "a.MeanThroughputMbps", "a.MinRTT"),
            *("client.Geo.Latitude", "client.Geo.Longitude", "server.Geo.Latitude"),
            "client.Network.ASName",
        ]
        needed = ("latitude", "longitude", "time", "download", "latency", "provider")
        found = find_columns(names, {}, needed, "the file")
        assert [found[role] for role in needed] == [*names[5:7], names[2], *names[3:5], names[8]]
        with pytest.raises(DataError, match="MeanThroughputMbps seems to hold the download"):
            find_columns(names, {}, ["upload"], "the file")

    def test_two_columns_of_one_name_cannot_be_chosen(self):
        with pytest.raises(RequestError, match="several columns 'note'"):
            find_columns(["note", "note"], {"provider": "note"}, [], "f")

    def test_columns_are_named(self):
        named = named_columns(["latitude=lat, deg,longitude=x", "time=when"])
        assert named == {"latitude": "lat, deg", "longitude": "x", "time": "when"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, "unknown decimal sign"),
        ({"dates": "ydm"}, "unknown form of dates"),
        ({"timezone": "Mars"}, "expected --timezone"),
        ({"encoding": "klingon"}, "expected --encoding"),
        ({"delimiter": "ab"}, "expected --delimiter with one sign"),
        ({"thousands": ("x",)}, "expected --thousands as COLUMN=SIGN"),
        ({"thousands": ("x=y",)}, "expected --thousands as COLUMN=SIGN"),
        ({"at_quarter": "2023"}, "2023"),
        ({"most_left_out": 101.0}, "expected --most-left-out from 0 to 100"),
        ({"most_left_out": float("nan")}, "expected --most-left-out from 0 to 100"),
        ({"units": "furlongs"}, "unknown unit"),
        ({"columns": ("lat=a",)}, "unknown column 'lat'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(RequestError, match=message):
        PointOptions(**options)


def test_quarters_are_indices():
    assert times("2023-09-30").quarter.tolist() == [quarter_index("2023Q3")]

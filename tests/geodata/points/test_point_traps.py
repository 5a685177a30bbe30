"""Files of tests that are easily read wrongly without a word, or that break a reader."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from geogp import read_covariate
from geogp.errors import DataError, RequestError
from geogp.geodata.points.point_options import PointOptions, PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.points.roles import AMBIGUOUS, speed_unit
from geogp.geodata.tiles.quarters import quarter_label

N = 60


def made(**changes):
    """Return sixty tests of two weeks in a town."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "time": [f"2023-08-{1 + k % 28:02d} 10:00" for k in range(N)],
            "lat": rng.uniform(18.2, 18.3, N).round(5),
            "lon": rng.uniform(-66.4, -66.3, N).round(5),
            "download_mbps": rng.uniform(20, 200, N).round(2),
        }
    )
    return table.assign(**changes)


def read(table, folder, *, name="own.csv", service="mobile", **options):
    path = folder / name
    if isinstance(table, bytes):
        path.write_bytes(table)
    elif isinstance(table, str):
        path.write_text(table, newline="")
    else:
        table.to_csv(path, index=False)
    source = PointSource(str(path), PointOptions(**options))
    return read_point_tests(source, target="download", service=service)


class TestDates:
    def test_dates_with_points_follow_the_option(self, tmp_path):
        table = made(time="07.03.2023 10:00")
        for dates, quarter in ((None, "2023Q1"), ("dmy", "2023Q1"), ("mdy", "2023Q3")):
            found = read(table, tmp_path, dates=dates)
            assert set(map(quarter_label, found.quarter)) == {quarter}

    def test_two_digits_with_points_may_begin_with_the_year(self, tmp_path):
        table = made(time="21.07.04 10:00")
        with pytest.raises(DataError, match=r"21\.07\.04 10:00 may be 2004-07-21.* or 2021-07-04"):
            read(table, tmp_path)
        assert quarter_label(read(table, tmp_path, dates="ymd").quarter[0]) == "2021Q3"

    def test_days_and_months_that_excel_exchanged(self, tmp_path):
        days = pd.to_datetime(made()["time"])
        cells = [
            pd.Timestamp(day.year, day.day, day.month)
            if day.day <= 12
            else day.strftime("%d/%m/%Y")
            for day in days
        ]
        made(time=pd.Series(cells, dtype=object)).to_excel(tmp_path / "own.xlsx", index=False)
        source = PointSource(str(tmp_path / "own.xlsx"))
        with pytest.raises(DataError, match="a program has exchanged day and month"):
            read_point_tests(source, target="download", service="mobile")

    def test_a_time_that_is_no_clock_beside_a_date(self, tmp_path):
        table = made(date=made()["time"].str[:10], time=np.arange(36_600, 36_600 + N))
        with pytest.raises(DataError, match="numbers that are no dates, beside the dates of date"):
            read(table, tmp_path)

    def test_several_columns_of_times(self, tmp_path):
        table = made(timestamp=made()["time"], date="2020-01-01")
        with pytest.raises(DataError, match="several columns for time: time, timestamp"):
            read(table, tmp_path)

    def test_a_quarter_beside_times(self, tmp_path):
        with pytest.raises(DataError, match="has times in the column time; --at-quarter"):
            read(made(), tmp_path, at_quarter="2020Q1")

    def test_local_times_need_a_zone(self, tmp_path):
        table = made().rename(columns={"time": "time_local"})
        with pytest.raises(DataError, match=r"time_local .* has local times.*--timezone"):
            read(table, tmp_path)
        assert len(read(table, tmp_path, timezone="-04:00").value) == N

    def test_a_bad_cell_among_days_of_excel_is_one_bad_row(self, tmp_path):
        days = [str(45_140 + k / 7) for k in range(N)]
        found = read(made(time=["soon", *days[1:]]), tmp_path)
        assert len(found.value) == N - 1


class TestNumbers:
    def test_unlikely_thousands_are_a_question(self, tmp_path):
        text = made(download_mbps=[f"1,{600 + k}" for k in range(N)]).to_csv(index=False, sep=";")
        with pytest.raises(DataError, match=r"1,600 may be 1,600 or 1\.6|1,600 may be 1\.6 or"):
            read(text, tmp_path)
        assert read(text, tmp_path, decimal=",").value[0] == pytest.approx(1600)

    @pytest.mark.parametrize("cell", ["10.0.0.1", "1,23,456", "12.5"])
    def test_one_cell_does_not_decide_for_all(self, tmp_path, cell):
        cells = [cell, *(f"{100 + k}.{100 + k}" for k in range(N - 1))]
        table = made(d_kbps=cells).drop(columns="download_mbps")
        with pytest.raises(DataError, match="may be"):
            read(table, tmp_path, columns=("download=d_kbps",))

    def test_numbers_of_a_workbook_have_no_signs(self, tmp_path):
        values = np.arange(N) + 92.111
        made(download_mbps=values).to_excel(tmp_path / "own.xlsx", index=False)
        for decimal in (None, ","):
            source = PointSource(str(tmp_path / "own.xlsx"), PointOptions(decimal=decimal))
            found = read_point_tests(source, target="download", service="mobile")
            np.testing.assert_allclose(found.value, 1000 * values)

    def test_units_in_cells_stay_with_an_option(self, tmp_path):
        cells = ["70.8 Mbps", "800 kbps", "45"] * 20
        table = made(download=cells).drop(columns="download_mbps")
        with pytest.raises(DataError, match=r"unit of the column download .* is unknown"):
            read(table, tmp_path)
        found = read(table, tmp_path, units="Mbps")
        np.testing.assert_allclose(found.value[:3], [70_800, 800, 45_000])
        assert found.units == {"download": ("Mbps, kbps", "--units, and the cells")}

    @pytest.mark.parametrize("name", ["downlinkbps", "downlinkBps", "avgbps"])
    def test_a_unit_is_no_part_of_a_word(self, name):
        assert speed_unit(name).unit == AMBIGUOUS
        assert speed_unit("downloadkbps").unit == "kbps"

    def test_a_row_of_units_that_contradicts_the_name(self, tmp_path):
        text = made().to_csv(index=False).replace("\n", "\nUTC,deg,deg,kbps\n", 1)
        with pytest.raises(DataError, match="unit Mbps in its name, but kbps in the row"):
            read(text, tmp_path)

    def test_two_units_of_a_covariate(self, tmp_path):
        table = made().rename(columns={"download_mbps": "value"})
        table["value"] = ["1.2 km", "1200.0 m"] * 30
        table.to_csv(tmp_path / "own.csv", index=False)
        with pytest.raises(DataError, match="expected one unit in the column value"):
            read_covariate(tmp_path / "own.csv")


class TestRows:
    def test_dashes_are_no_units(self, tmp_path):
        table = made(up_mbps="-", ping="-", level="-", qual="-", snr="-")
        assert len(read(table, tmp_path).value) == N

    def test_a_name_that_begins_with_a_hash_is_no_comment(self, tmp_path):
        table = made()
        table.insert(0, "id", [f"#{k}" for k in range(N)])
        assert read(table, tmp_path).rows == N

    @pytest.mark.parametrize("end", [",", ",,"])
    def test_delimiters_at_the_ends_of_rows(self, tmp_path, end):
        table = made()
        table.insert(0, "note", "ok")
        head, *rows = table.to_csv(index=False).splitlines()
        found = read("\n".join([head, *(row + end for row in rows)]), tmp_path)
        np.testing.assert_allclose(found.latitude, table["lat"])

    @pytest.mark.parametrize("end", ["\r", "\r\n"])
    def test_ends_of_lines(self, tmp_path, end):
        assert len(read(made().to_csv(index=False, lineterminator=end), tmp_path).value) == N

    def test_a_column_with_a_number_for_its_name(self, tmp_path):
        assert len(read(made(**{"2023": 1}), tmp_path).value) == N


class TestMeanings:
    def test_the_place_of_a_server_is_no_place_of_a_test(self, tmp_path):
        rows = [{"timestamp": "2023-08-01", "server": {"lat": 40.7, "lon": -74}, "dl_mbps": 5}]
        with pytest.raises(DataError, match="no column for latitude and longitude"):
            read(json.dumps(rows * N), tmp_path, name="own.json")

    @pytest.mark.parametrize("name", ["own.ndjson", "own.geojson.gz"])
    def test_geometries_of_features_count_more(self, tmp_path, name):
        features = [
            {
                "type": "Feature",
                "properties": {"time": row.time, "dl_mbps": row.download_mbps, "lat": row.lat + 1},
                "geometry": {"type": "Point", "coordinates": [row.lon, row.lat]},
            }
            for row in made().itertuples()
        ]
        text = "\n".join(map(json.dumps, features))
        if name.endswith(".gz"):
            whole = {"type": "FeatureCollection", "features": features}
            text = gzip.compress(json.dumps(whole).encode())
        found = read(text, tmp_path, name=name)
        np.testing.assert_allclose(found.latitude, made()["lat"])

    def test_points_in_texts_may_begin_late(self, tmp_path):
        text = [f"POINT ({row.lon} {row.lat})" for row in made().itertuples()]
        table = pd.concat([made(wkt=""), made(wkt=""), made(wkt=text)]).assign(lat=10.0)
        found = read(table, tmp_path, most_left_out=70)
        assert found.counts == {"no position (empty, or 0, 0)": 2 * N}

    @pytest.mark.parametrize(
        ("names", "word"),
        [(("network_type", "tech"), "WiFi 6"), (("connection", "note"), "Wi-Fi")],
    )
    def test_any_column_may_say_wifi(self, tmp_path, names, word):
        table = made(**{names[0]: "LTE", names[1]: "x"})
        table.loc[:9, names[0]] = word
        assert read(table, tmp_path).counts == {"not mobile": 10}

    def test_several_columns_of_providers_are_told(self, tmp_path):
        found = read(made(operator="A", isp="B"), tmp_path)
        assert any("may name the provider (operator, isp)" in text for text in found.warnings)

    def test_an_own_column_beside_those_of_a_known_export(self, tmp_path):
        log = {"Operatorname": "A", "NetworkTech": "4G", "Level": 1, "Qual": 1, "DL_bitrate": 9000}
        with pytest.raises(
            DataError, match="several columns for download: DL_bitrate, download_mb"
        ):
            read(made(**log), tmp_path)

    def test_longitudes_from_0_to_360(self, tmp_path):
        found = read(made(lon=made()["lon"] + 360), tmp_path)
        np.testing.assert_allclose(found.longitude, made()["lon"])


class TestWorkbooks:
    def write(self, path, **how):
        import openpyxl

        book = openpyxl.Workbook()
        sheet = book.active
        table = made(technology="LTE")
        table.loc[:9, "technology"] = "Wifi"
        for row in [list(table), *table.itertuples(index=False, name=None)]:
            sheet.append(row)
        if how.get("hidden"):
            book.create_sheet("lists").append(["a", "b"])
            book["lists"].sheet_state = "hidden"
        book.save(path)
        return PointSource(str(path))

    def test_hidden_sheets_do_not_count(self, tmp_path):
        source = self.write(tmp_path / "own.xlsx", hidden=True)
        found = read_point_tests(source, target="download", service="mobile")
        assert found.counts == {"not mobile": 10}

    def test_a_wrong_dimension_does_not_matter(self, tmp_path):
        import zipfile

        source = self.write(tmp_path / "right.xlsx")
        with (
            zipfile.ZipFile(source.file) as right,
            zipfile.ZipFile(tmp_path / "own.xlsx", "w") as own,
        ):
            for name in right.namelist():
                content = right.read(name).replace(b'ref="A1:E61"', b'ref="A1:D61"')
                own.writestr(name, content)
        wrong = PointSource(str(tmp_path / "own.xlsx"))
        found = read_point_tests(wrong, target="download", service="mobile")
        assert found.counts == {"not mobile": 10}


def test_options_without_an_effect_are_refused(tmp_path):
    assert len(read(made(), tmp_path, encoding="utf-8").value) == N
    with pytest.raises(RequestError, match="--sheet has no effect"):
        read(made(), tmp_path, sheet="a")
    made().to_parquet(tmp_path / "own.parquet")
    with pytest.raises(RequestError, match="--delimiter has no effect"):
        read((tmp_path / "own.parquet").read_bytes(), tmp_path, name="own.parquet", delimiter=";")


class TestBreaking:
    def test_long_lines_and_cells(self, tmp_path):
        table = made(note="x" * 140_000)
        with pytest.raises(DataError, match="cannot be read as CSV"):
            read(table, tmp_path)
        many = pd.DataFrame(1, index=range(N), columns=[f"c{k}" for k in range(300)])
        assert len(read(pd.concat([made(), many], axis=1), tmp_path).value) == N

    def test_deep_geometries_in_texts(self, tmp_path):
        made(geometry="GEOMETRYCOLLECTION(" * 5_000).to_parquet(tmp_path / "own.parquet")
        source = PointSource(str(tmp_path / "own.parquet"))
        assert len(read_point_tests(source, target="download", service="mobile").value) == N

    def test_half_of_a_character(self, tmp_path):
        with pytest.raises(DataError, match="cannot be read as JSON"):
            read(
                '[{"lat": 1, "lon": 2, "dl_mbps": 3, "time": "\\ud800"}]', tmp_path, name="own.json"
            )

    def test_bytes_that_are_no_text(self, tmp_path):
        made(provider=[b"\xff\xfe"] * N).to_parquet(tmp_path / "own.parquet")
        source = PointSource(str(tmp_path / "own.parquet"))
        assert len(read_point_tests(source, target="download", service="mobile").value) == N

    @pytest.mark.parametrize("column", ["lat", "download_mbps", "time"])
    def test_a_long_cell_is_a_bad_row(self, tmp_path, column):
        table = made().astype({column: object})
        table.loc[0, column] = "1" + " " * 100_000 + "x"  # hangs if it is matched
        found = read(table, tmp_path)
        assert found.left_out["kind"].tolist() == ["bad"]

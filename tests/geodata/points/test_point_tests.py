"""Files of your own tests: what is read, how it is pooled, and the lines that are left out."""

import re

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from shapely.geometry import box

from geogp.errors import DataError, RequestError
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import Region
from geogp.geodata.points import point_tests
from geogp.geodata.points.checks import extent_km
from geogp.geodata.points.drives import drives_of
from geogp.geodata.points.point_options import PointOptions, PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.points.roles import KBPS
from geogp.geodata.points.tables import read_point_table
from geogp.geodata.tiles.quadkeys import format_quadkeys, tiles_at, tiles_to_codes
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index

REGION = Region.from_geometry("HERE", "Here", box(-66.5, 18, -66.3, 18.2))


@pytest.fixture
def table():
    """Return 400 tests in two hundred places, some outside the region, in three quarters."""
    random = np.random.default_rng(1)
    place = random.uniform((-66.55, 17.98), (-66.28, 18.22), (200, 2))[
        random.integers(200, size=400)
    ]
    times = pd.Timestamp("2023-01-01") + pd.to_timedelta(random.uniform(0, 270, 400), unit="D")
    return pd.DataFrame(
        {
            "time": times.strftime("%Y-%m-%dT%H:%M:%S"),
            "latitude": place[:, 1],
            "longitude": place[:, 0],
            "download_mbps": 10 ** random.normal(1.3, 0.4, 400),
            "latency_ms": random.uniform(10, 80, 400),
            "provider": random.choice(["North", "South"], 400),
        }
    )


def read(table, folder, *, target="download", service="mobile", apart=False, **source):
    path = folder / "drive.csv"
    if isinstance(table, str):
        path.write_text(table)
    else:
        table.to_csv(path, index=False)
    chosen = {k: source.pop(k) for k in ("provider", "technology", "by_provider") if k in source}
    asked = PointSource(str(path), PointOptions(**source), **chosen)
    return read_point_tests(asked, target=target, service=service, apart=apart)


def pooled(table, column):
    """Return the means and numbers of tests by tile and quarter, as pandas finds them."""
    code = tiles_to_codes(*tiles_at(table["longitude"], table["latitude"]))
    quarter = pd.to_datetime(table["time"]).dt.to_period("Q").astype(str)
    return table[column].groupby([quarter.to_numpy(), format_quadkeys(code)]).agg(["mean", "size"])


def test_rows_by_provider_are_those_of_each_provider_alone(table, tmp_path, monkeypatch):
    monkeypatch.setattr(point_tests, "LEAST_ROWS", 50)
    both = read(table, tmp_path, by_provider=True).observations(REGION, None)
    seen = both.observations
    assert (np.diff(seen.quarter) >= 0).all()
    assert both.files[0].rows_used == seen.tests.sum()
    for name in ("North", "South"):
        alone = read(table, tmp_path, provider=name).observations(REGION, None).observations
        own = seen.of_provider(name)
        for column in ("quadkey", "quarter", "y", "tests", "longitude"):
            np.testing.assert_array_equal(getattr(own, column), getattr(alone, column))
    turned = table.assign(provider=table.provider.map({"North": "South", "South": "North"}))
    other = read(turned, tmp_path, by_provider=True).observations(REGION, None).observations
    np.testing.assert_array_equal(other.y, seen.y)
    assert (other.provider != seen.provider).all()


def test_tests_without_a_provider_are_left_out(table, tmp_path, monkeypatch):
    monkeypatch.setattr(point_tests, "LEAST_ROWS", 50)
    table.loc[table.index[::10], "provider"] = ""
    found = read(table, tmp_path, by_provider=True)
    assert len(found.value) == 360
    assert any("no provider: lines 2, 12" in text for text in found.warnings)
    assert found.counts == {"no provider": 40}


def test_providers_that_cannot_be_compared(table, tmp_path):
    with pytest.raises(DataError, match="has no column for provider"):
        read(table.drop(columns="provider"), tmp_path, by_provider=True)
    one = read(table.assign(provider="North"), tmp_path, by_provider=True)
    with pytest.raises(RequestError, match="two providers or more, found only North"):
        one.observations(REGION, None)
    rare = table.assign(provider=np.where(table.index < 7, "Rare", "North"))
    with pytest.raises(DataError, match=r"100 rows or more of each provider, .* found \d of Rare"):
        read(rare, tmp_path, by_provider=True).observations(REGION, None)


@pytest.mark.parametrize("target", ["download", "latency"])
@pytest.mark.parametrize("provider", [None, "North"])
def test_means_are_those_of_pandas(table, tmp_path, target, provider):
    found = read(table, tmp_path, target=target, provider=provider)
    seen = found.observations(REGION, None).observations
    chosen = table if provider is None else table[table["provider"] == provider]
    column = "download_mbps" if target == "download" else "latency_ms"
    whole = pooled(chosen, column)
    ours = pd.DataFrame(
        {"y": seen.y, "tests": seen.tests},
        index=pd.MultiIndex.from_arrays(
            [[f"{q // 4}Q{q % 4 + 1}" for q in seen.quarter], format_quadkeys(seen.quadkey)]
        ),
    )
    assert 0 < len(ours) < len(whole)  # some tiles lie outside the region
    theirs = whole.loc[ours.index]
    np.testing.assert_allclose(10 ** ours["y"], theirs["mean"], rtol=1e-12)
    np.testing.assert_array_equal(ours["tests"], theirs["size"])
    np.testing.assert_array_equal(seen.devices, seen.tests)
    assert REGION.contains(seen.longitude, seen.latitude).all()
    # What is left lies in tiles whose centre is outside.
    lost = whole.index.difference(ours.index)
    assert whole.loc[lost, "size"].sum() + seen.tests.sum() == len(chosen)


def test_order_of_the_rows_does_not_matter(table, tmp_path):
    first = read(table, tmp_path).observations(REGION, None)
    other = read(table.sample(frac=1, random_state=2), tmp_path).observations(REGION, None)
    np.testing.assert_array_equal(first.observations.quadkey, other.observations.quadkey)
    np.testing.assert_allclose(first.observations.y, other.observations.y, rtol=1e-12)
    assert first.files[0].sha256 != other.files[0].sha256


@pytest.mark.parametrize(
    ("time", "quarter"),
    [
        ("2023-03-31T23:30:00-04:00", "2023Q2"),
        ("2023-04-01T01:30:00+04:00", "2023Q1"),
        ("2023-03-31 23:59:59", "2023Q1"),
        ("2023-03-31 23:59:59.5 UTC", "2023Q1"),
        ("2023-04-01", "2023Q2"),
    ],
)
def test_quarters_are_in_utc(tmp_path, time, quarter):
    found = read(f"time,lat,lon,download_mbps\n{time},18.1,-66.4,20\n", tmp_path)
    assert found.quarter.tolist() == [quarter_index(quarter)]


@pytest.mark.parametrize(
    ("unit", "kbps"),
    [("kbps", 20), ("Mbps", 20_000), ("bps", 0.02), ("MB/s", 160_000), ("kB/s", 160)],
)
def test_units(tmp_path, unit, kbps):
    found = read("time,lat,lon,download\n2023-04-01,18.1,-66.4,20\n", tmp_path, units=unit)
    np.testing.assert_allclose(found.value, [kbps])


def test_columns_are_named(tmp_path):
    text = "when,a,b,speed\n2023-04-01,18.1,-66.4,20\n"
    columns = ("latitude=a,longitude=b,time=when,download=speed",)
    assert read(text, tmp_path, columns=columns, units="Mbps").value.tolist() == [20_000]


def test_a_test_without_the_target_is_left_out(tmp_path):
    text = "time,lat,lon,download_mbps\n2023-04-01,18.1,-66.4,20\n2023-04-01,18.1,-66.4,\n"
    found = read(text, tmp_path)
    assert (len(found.value), found.rows) == (1, 2)
    assert found.warnings == ("left out of drive.csv, no download: line 3 (1 of 2).",)
    row = found.left_out.iloc[0]
    assert (row["line"], row["kind"], row["reason"]) == (3, "apart", "no download")
    assert read(text, tmp_path, target="tests").value.tolist() == [1, 1]


def test_counts_of_tests_have_the_empty_tiles(table, tmp_path):
    seen = read(table, tmp_path, target="tests").observations(REGION, None).observations
    tiles = len(REGION.tiles(16))
    assert len(seen) == 3 * tiles
    assert 0 < seen.y.sum() < len(table)
    assert (seen.y == 0).any()


def test_the_extent_holds_every_tile(table, tmp_path):
    found = read(table, tmp_path)
    region = Region.from_geometry("D", "drive", found.extent.shape)
    assert found.observations(region, None).observations.tests.sum() == len(table)


@pytest.mark.parametrize(("apart", "reach"), [(0.01, 2.0), (0.05, 1.5 * 0.05 * 111.195)])
def test_the_extent_reaches_as_far_as_the_spacing_of_the_tests(tmp_path, apart, reach):
    """Two towns far from each other have nothing between them, and no hole inside."""
    grid = apart * np.arange(6)
    rows = [
        f"2023-04-01,{18 + y:.5f},{x + start:.5f},20"
        for start in (-67, -66)
        for y in grid
        for x in grid / np.cos(np.deg2rad(18))
    ]
    found = read("\n".join(["time,lat,lon,download_mbps", *rows, ""]), tmp_path)
    np.testing.assert_allclose(found.extent.reach_km, reach, rtol=0.15)  # tiles are 0.6 km wide
    towns = shapely.get_parts(found.extent.shape)
    assert [len(town.interiors) for town in towns] == [0, 0]
    region = Region.from_geometry("D", "drive", found.extent.shape)
    rows = found.observations(region, None).observations
    near = nearest_km(*region.tiles(16).centres, rows.longitude, rows.latitude)
    assert near.max() < found.extent.reach_km * 1.01
    assert len(rows) == 72


def test_the_extent_crosses_the_antimeridian(tmp_path):
    text = "time,lat,lon,download_mbps\n2023-04-01,-16,179.9,20\n2023-04-01,-16.1,-179.9,30\n"
    found = read(text, tmp_path)
    region = Region.from_geometry("D", "drive", found.extent.shape)
    assert region.bounds[2] - region.bounds[0] < 1
    assert len(found.observations(region, None).observations) == 2


def test_quarters_are_chosen(table, tmp_path):
    found = read(table, tmp_path)
    one = found.observations(REGION, parse_quarters("2023Q2"))
    assert one.observations.quarters == (quarter_index("2023Q2"),)
    ranged = found.observations(REGION, parse_quarters("2022Q4..2023Q1"))
    assert ranged.missing == (quarter_index("2022Q4"),)
    with pytest.raises(DataError, match=r"no tests in Here for 2022Q4; its quarters are 2023Q1"):
        found.observations(REGION, parse_quarters("2022Q4,2023Q1"))


def test_numbers_with_empty_cells_are_read(table, tmp_path):
    codes = pd.array([310260, None] * 200, dtype="Int64")
    path = tmp_path / "drive.parquet"
    table.assign(provider=codes).to_parquet(path)
    source = PointSource(str(path), provider="310260")
    found = read_point_tests(source, target="download", service="mobile")
    observations = found.observations(REGION, None).observations
    expected = read(table[::2], tmp_path).observations(REGION, None).observations
    np.testing.assert_array_equal(observations.quadkey, expected.quadkey)
    np.testing.assert_allclose(observations.y, expected.y)


def with_rows(bad):
    """Return the text of a file with good rows and, in line 3, a bad one."""
    rows = [f"2023-04-{1 + k % 28:02d},18.{100 + k},-66.4{k:02d},20" for k in range(40)]
    return "\n".join(["time,lat,lon,download_mbps", rows[0], bad, *rows[1:], ""])


class TestBadRows:
    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("2023-04-01,,-66.4,20", r"no position \(empty, or 0, 0\)"),
            ("2023-04-01,0,0,20", r"no position \(empty, or 0, 0\)"),
            ("2023-04-01,-96.4,18.1,20", r"found -96.4 and 18.1; are latitude and .* swapped\?"),
            ("2023-04-01,18.1,-196.4,20", "longitudes from -180 to 180"),
            ("2023-04-01,181000,-664000,20", r"coordinates in metres with --crs"),
            ("2023-04-01,north,-66.4,20", "unreadable latitude, such as 'north'"),
            ("2023-04-01,18.1,18.1N,20", "unreadable longitude, such as '18.1N'"),
            ("2123-04-01,18.1,-66.4,20", "time in the future in the column time, such as '2123-04"),
            ("1970-01-01,18.1,-66.4,20", "time before 2000 in the column time"),
            (",18.1,-66.4,20", "no time in the column time"),
            ("soon,18.1,-66.4,20", "unreadable time in the column time, such as 'soon'"),
            ("2023-04-01,18.1,-66.4,fast", "no number in the column download_mbps, such as 'fast'"),
            ("2023-04-01,18.1,-66.4,inf", "no number in the column download_mbps, such as 'inf'"),
            ("2023-04-01,18.1,-66.4,-5", "download below 0"),
            ("2023-04-01,18.1,-66.4,48000", r"download above 20,000,000 kbps .*right \(Mbps\)"),
            ("2023-04-01,18.1,-66.4,20,9", "more values than the header has names"),
            ("2023-04-01,-66.4,18.1,20", "far from the other rows, but not with latitude and"),
            ("2023-04-01,18.1,66.4,20", "but not with the other sign of the longitude"),
            (
                "2023-04-01,-18.1,-66.4,20",
                "but not with the other sign of the latitude",
            ),
            ("Total,,,800", "no position|unreadable time"),
        ],
    )
    def test_few_are_left_out_and_many_are_refused(self, tmp_path, line, reason):
        found = read(with_rows(line), tmp_path)
        assert len(found.value) == 40
        assert found.left_out["line"].tolist() == [3]
        assert found.left_out["kind"].tolist() == ["bad"]
        (why,) = found.counts
        assert re.search(reason, why)
        assert any(why in text and "line 3 (1 of 41)" in text for text in found.warnings)
        with pytest.raises(DataError, match=rf"(?s)1 bad rows of 41.*line 3.*({reason})"):
            read(with_rows(line), tmp_path, most_left_out=2)

    def test_all_reasons_are_told(self, tmp_path):
        with pytest.raises(DataError) as caught:
            read("time,lat,lon,download_mbps\n,18.1,-66.4,5\n2023-04-01,,1,5\n", tmp_path)
        assert str(caught.value).count("\n  - ") == 2

    def test_tests_without_the_target_are_no_bad_rows(self, table, tmp_path):
        table.loc[table.index[:300], "download_mbps"] = np.nan
        assert len(read(table, tmp_path).value) == 100

    def test_a_file_without_a_row_to_use(self, table, tmp_path):
        with pytest.raises(DataError, match="no row that can be used: no download"):
            read(table.assign(download_mbps=""), tmp_path)


class TestPlaces:
    def test_half_of_the_rows_elsewhere(self, table, tmp_path):
        table.loc[table.index[:200], "longitude"] += 150
        with pytest.raises(DataError, match=r"extend over .* more than 2,000 km.*--region-file"):
            read(table, tmp_path)
        assert len(read(table, tmp_path, apart=True).value) == 400

    def test_more_than_five_per_cent_swapped(self, table, tmp_path):
        rows = table.index[:21]
        swapped = table[["longitude", "latitude"]].loc[rows].to_numpy().copy()
        table.loc[rows, ["latitude", "longitude"]] = swapped
        with pytest.raises(DataError, match=r"21 bad rows of 400.*(?s:.*)but not with latitude"):
            read(table, tmp_path)

    def test_rows_far_from_the_others_are_named(self, table, tmp_path):
        table.loc[table.index[:3], "latitude"] += 3
        found = read(table, tmp_path)
        assert len(found.value) == 400
        assert any("lines 2, 3, 4 (3 of 400) of drive.csv lie" in text for text in found.warnings)
        table.loc[table.index[:30], "latitude"] += 3
        with pytest.raises(DataError, match=r"\(30 of 400\) of drive.csv lie .*--region-file"):
            read(table, tmp_path)
        assert len(read(table, tmp_path, apart=True).value) == 400

    def test_values_unlike_their_neighbours_are_named(self, table, tmp_path):
        table["download_mbps"] = 2.0
        table.loc[7, "download_mbps"] = 5000.0
        found = read(table, tmp_path)
        (told,) = [text for text in found.warnings if "nearest tests" in text]
        assert "over 1,000 times" in told
        assert "line 9 (1 of 400)" in told

    def test_the_extent_is_measured_across_the_antimeridian(self):
        wide, high = extent_km(np.array([179.5, -179.5]), np.array([0.0, 1.0]))
        np.testing.assert_allclose((wide, high), 111.195, rtol=1e-3)


class TestServices:
    @pytest.mark.parametrize("word", ["Wi-Fi", "Ethernet"])
    def test_local_connections_are_no_mobile_tests(self, table, tmp_path, word):
        table["technology"] = [word, "5G"] * 200
        found = read(table, tmp_path)
        assert len(found.value) == 200
        assert found.counts == {"not mobile": 200}
        assert len(read(table, tmp_path, service="fixed").value) == 400

    def test_mobile_connections_are_no_fixed_tests(self, table, tmp_path):
        table["ConnType"] = ["Cell", "Wifi"] * 200
        assert read(table, tmp_path, service="fixed").counts == {"not fixed": 200}


class TestUnitsOfAFile:
    @pytest.mark.parametrize(
        ("head", "unit", "origin"),
        [
            ("download_mbps", "Mbps", "the column's name"),
            ("download_MBps", "MB/s", "the column's name"),
            ("Download (KBps)", "kB/s", "the column's name"),
        ],
    )
    def test_units_and_their_origin_are_stated(self, tmp_path, head, unit, origin):
        found = read(f"time,lat,lon,{head}\n2023-04-01,18.1,-66.4,20\n", tmp_path)
        assert found.units == {head: (unit, origin)}
        assert found.value[0] == pytest.approx(20 * KBPS[unit])

    def test_units_in_cells(self, tmp_path):
        cells = ["20 Mbps", "20000 kbps", "2.5 MB/s"]
        text = "".join(f"2023-04-01,18.1,-66.4,{cell}\n" for cell in cells)
        found = read(f"time,lat,lon,download\n{text}", tmp_path)
        np.testing.assert_allclose(found.value, 20_000)
        assert found.units == {"download": ("Mbps, kbps, MB/s", "the cells")}

    def test_latency_in_seconds(self, tmp_path):
        text = "time,lat,lon,ping (s)\n2023-04-01,18.1,-66.4,0.02\n"
        assert read(text, tmp_path, target="latency").value[0] == pytest.approx(20)


def test_date_and_time_of_day_are_joined(tmp_path):
    text = "Date,Time,lat,lon,dl_mbps\n09/30/2023,08:00 PM,18.1,-66.4,20\n"
    assert read(text, tmp_path).quarter.tolist() == [quarter_index("2023Q3")]
    found = read(text, tmp_path, timezone="America/Puerto_Rico")
    assert found.quarter.tolist() == [quarter_index("2023Q4")]


def test_a_provider_may_be_called_na(table, tmp_path):
    table["provider"] = ["NA", ""] * 200
    assert len(read(table, tmp_path, provider="NA").value) == 200


def test_coordinates_in_metres(table, tmp_path):
    places = gpd.GeoSeries.from_xy(table["longitude"], table["latitude"], crs=4326).to_crs(32161)
    metres = table.assign(longitude=places.x, latitude=places.y)
    found = read(metres, tmp_path, crs="EPSG:32161")
    np.testing.assert_allclose(found.longitude, table["longitude"], atol=1e-8)
    with pytest.raises(DataError, match="give the CRS of coordinates in metres with --crs"):
        read(metres, tmp_path)
    with pytest.raises(DataError, match="expected --crs with a CRS such as"):
        read(metres, tmp_path, crs="EPSG:999999")


def test_points_of_kml_and_of_a_shapefile_without_a_crs(table, tmp_path):
    places = gpd.points_from_xy(table["longitude"], table["latitude"])
    shapes = gpd.GeoDataFrame(
        {"time": table["time"], "dl_mbps": table["download_mbps"]}, geometry=places, crs=4326
    )
    shapes.to_crs(32161).to_file(tmp_path / "metres.shp")
    (tmp_path / "metres.prj").unlink()
    marks = "".join(
        f'<Placemark><ExtendedData><Data name="time"><value>{time}</value></Data>'
        f'<Data name="dl_mbps"><value>{value}</value></Data></ExtendedData>'
        f"<Point><coordinates>{place.x},{place.y},0</coordinates></Point></Placemark>"
        for time, value, place in zip(shapes["time"], shapes["dl_mbps"], places, strict=True)
    )
    head = '<?xml version="1.0" encoding="UTF-8"?><kml xmlns="http://www.opengis.net/kml/2.2">'
    (tmp_path / "points.kml").write_text(f"{head}<Document>{marks}</Document></kml>")
    with pytest.raises(DataError, match=r"metres\.shp has no CRS.*--crs"):
        read_point_table(tmp_path / "metres.shp")
    for name, options in (("metres.shp", {"crs": "EPSG:32161"}), ("points.kml", {})):
        source = PointSource(str(tmp_path / name), PointOptions(**options))
        found = read_point_tests(source, target="download", service="mobile")
        np.testing.assert_allclose(found.longitude, table["longitude"], atol=1e-8)
        np.testing.assert_allclose(found.value, 1000 * table["download_mbps"], rtol=1e-9)


def test_sheets_of_a_workbook(table, tmp_path):
    path = tmp_path / "book.xlsx"
    with pd.ExcelWriter(path) as book:
        table.to_excel(book, sheet_name="tests", index=False)
        table.head().to_excel(book, sheet_name="others", index=False)
    with pytest.raises(DataError, match=r"found 2: tests, others.*--sheet"):
        read_point_table(path)
    found = read_point_tests(
        PointSource(str(path), PointOptions(sheet="tests")), target="download", service="mobile"
    )
    np.testing.assert_allclose(found.value, 1000 * table["download_mbps"])
    with pytest.raises(RequestError, match="has no sheet 'x'"):
        read_point_table(path, PointOptions(sheet="x"))


class TestRefusals:
    HEAD = "time,lat,lon,download_mbps\n2023-04-01,18.1,-66.4,20\n"

    def test_values_in_two_units(self, table, tmp_path):
        table.loc[table.index[:20], "download_mbps"] = 9000.0
        with pytest.raises(
            DataError, match=r"over 300 times the median.*20 of 400.*in another unit"
        ):
            read(table, tmp_path)

    def test_slow_tests_are_told(self, tmp_path):
        text = self.HEAD.replace("mbps", "kbps")
        assert "the median download of drive.csv is 0.02 Mbps" in read(text, tmp_path).warnings[0]

    @pytest.mark.parametrize(
        ("head", "source", "error", "message"),
        [
            (
                "time,lat,lon,download",
                {},
                DataError,
                "the unit of the column download .* is unknown",
            ),
            ("TIME,LAT,LON,DL_MBPS", {}, DataError, "DL_MBPS .* may be bits or bytes.*--units"),
            ("time,y,x,download_mbps", {}, DataError, "has no column for latitude and longitude;"),
            ("time,lat,lon,ping", {}, DataError, "no column for download.*--columns download=NAME"),
            ("time,lat,lon,up_mbps", {}, DataError, "up_mbps seems to hold the upload"),
            ("lat,latitude,lon,dl_mbps", {}, DataError, "several columns for latitude: lat, latit"),
            ("time,lat,lon,dl_mbps", {"columns": ("latitude=a",)}, RequestError, "no column 'a'"),
        ],
    )
    def test_columns(self, tmp_path, head, source, error, message):
        with pytest.raises(error, match=message):
            read(f"{head}\n2023-04-01,18.1,-66.4,20\n", tmp_path, **source)

    def test_a_provider_that_is_not_there(self, table, tmp_path):
        with pytest.raises(RequestError, match="unknown provider 'Nord'"):
            read(table, tmp_path, provider="Nord")

    def test_another_region(self, table, tmp_path):
        found = read(table, tmp_path)
        there = Region.from_geometry("T", "There", box(0, 0, 1, 1))
        with pytest.raises(DataError, match=r"no test of .* lies in There"):
            found.observations(there, None)
        swapped = table.rename(columns={"latitude": "longitude", "longitude": "latitude"})
        with pytest.raises(DataError, match=r"with latitude and longitude swapped [\d,]+ of 400"):
            read(swapped, tmp_path).observations(REGION, None)

    def test_files(self, tmp_path):
        with pytest.raises(RequestError, match=r"ends in \.csv.*which is not a file"):
            read_point_table(tmp_path / "drive.csv")
        for text, message in (
            ("", "expected a row with the names of the columns"),
            ("1,2\n3,4\n", "expected a row with the names of the columns"),
            ("a,b\n", "expected from 1 to 5,000,000 points"),
        ):
            (tmp_path / "drive.csv").write_text(text)
            with pytest.raises(DataError, match=message):
                read_point_table(tmp_path / "drive.csv")
        (tmp_path / "drive.csv.gz").write_bytes(b"\x1f\x8b and more")
        with pytest.raises(DataError, match="cannot be read"):
            read_point_table(tmp_path / "drive.csv.gz")
        (tmp_path / "drive.json").write_text("[[[")
        with pytest.raises(DataError, match="cannot be read as JSON"):
            read_point_table(tmp_path / "drive.json")
        (tmp_path / "drive.xls").write_text("x")
        with pytest.raises(RequestError, match=r"Save the workbook as \.xlsx"):
            read_point_table(tmp_path / "drive.xls")
        (tmp_path / "drive.xlsx").write_text("x")
        with pytest.raises(DataError, match="cannot be read as a workbook"):
            read_point_table(tmp_path / "drive.xlsx")
        (tmp_path / "drive.parquet").write_bytes(b"PAR1 and more")
        with pytest.raises(DataError, match="cannot be read as points"):
            read_point_table(tmp_path / "drive.parquet")

    def test_shapes_that_are_not_points(self, tmp_path):
        shapes = gpd.GeoDataFrame(geometry=[box(0, 0, 1, 1)], crs=4326)
        shapes.to_file(tmp_path / "shapes.gpkg")
        with pytest.raises(DataError, match=r"expected points in .*found Polygon"):
            read_point_table(tmp_path / "shapes.gpkg")


@pytest.fixture
def log():
    """Return the tests of three drives, one test in two seconds, in the same quarter."""
    begins = pd.to_datetime(["2023-07-01 10:00", "2023-07-01 10:30", "2023-07-05 08:00"])
    start = np.array([[-66.40, 18.10], [-66.41, 18.10], [-66.41, 18.09]])
    parts = []
    for k, begin in enumerate(begins):
        place = start[k] + np.outer(np.arange(200), (1e-4, 5e-5))
        times = begin + pd.to_timedelta(2 * np.arange(200), unit="s")
        columns = {"time": times, "latitude": place[:, 1], "longitude": place[:, 0]}
        parts.append(pd.DataFrame(columns).assign(drive=k, download_mbps=10.0 + k))
    return pd.concat(parts, ignore_index=True)


def test_the_tests_of_a_drive_in_a_tile_are_a_row(log, tmp_path):
    found = read(log.drop(columns="drive"), tmp_path)
    np.testing.assert_array_equal(found.drive, (log["drive"] + 1).astype(str))
    assert ("drives", "3 drives: tests follow each other in time and place") in found.notes
    seen = found.observations(REGION, None).observations
    code = tiles_to_codes(*tiles_at(log["longitude"], log["latitude"]))
    rows = log.groupby([code, found.drive])["download_mbps"].agg(["mean", "size"])
    assert len(rows) == len(seen) > len(np.unique(seen.quadkey))
    own = rows.loc[list(zip(seen.quadkey, seen.drive, strict=True))]
    np.testing.assert_array_equal(seen.tests, own["size"])
    np.testing.assert_allclose(seen.y, np.log10(own["mean"]))
    assert set(seen.devices) == {1}
    # The order of the rows does not matter, and several tests of a drive have the same time.
    turned = log.sample(frac=1, random_state=1)
    again = read(pd.concat([turned, turned[::3]]), tmp_path)
    expected = pd.concat([turned, turned[::3]])["drive"] + 1
    np.testing.assert_array_equal(again.drive, expected.astype(str))


@pytest.mark.parametrize("changes", [{"target": "tests"}, {"by_provider": True}])
def test_rows_of_a_count_or_a_provider_have_no_drive(log, tmp_path, monkeypatch, changes):
    """The tests of one drive in a tile are then of one device."""
    monkeypatch.setattr(point_tests, "LEAST_ROWS", 1)
    table = log.assign(provider=np.where(np.arange(len(log)) % 2, "North", "South"))
    seen = read(table, tmp_path, **changes).observations(REGION, None).observations
    assert seen.drive is None
    code = tiles_to_codes(*tiles_at(log["longitude"], log["latitude"]))
    passes = log["drive"].groupby(code).nunique()
    tested = seen.tests > 0
    np.testing.assert_array_equal(seen.devices[tested], passes[seen.quadkey[tested]])
    assert {1, 2} <= {*seen.devices.tolist()}


def test_the_user_names_the_column_of_the_drives(log, table, tmp_path):
    days = log.assign(time="2023-07-01", car=log["drive"].map({0: "red", 1: "blue", 2: "red"}))
    found = read(days, tmp_path, columns=("session=car",))
    np.testing.assert_array_equal(found.drive, days["car"])
    assert ("drives", "2 drives: from the column car") in found.notes
    assert set(found.observations(REGION, None).observations.drive) == {"red", "blue"}
    days.loc[:9, "car"] = None
    lost = read(days, tmp_path, columns=("session=car",))
    assert lost.counts == {"no session": 10}
    assert len(lost.drive) == len(days) - 10
    with pytest.raises(RequestError, match="no column 'bus', which --columns names for session"):
        read(table, tmp_path, columns=("session=bus",))


def test_other_files_are_no_log_of_drives(table, log, tmp_path):
    several = log.assign(time=log["time"] + pd.to_timedelta(90 * np.arange(len(log)), unit="s"))
    random = np.random.default_rng(0)
    apart = log.assign(latitude=random.permutation(np.linspace(18, 18.2, len(log))))
    days = log.assign(time=log["time"].dt.strftime("%Y-%m-%d"))
    for other in (table, several, apart, days, log[:1]):
        found = read(other, tmp_path)
        assert found.drive is None
        assert not any(subject == "drives" for subject, _ in found.notes)
        assert found.observations(REGION, None).observations.drive is None
    assert read(log.drop(columns="time"), tmp_path, at_quarter="2023Q3").drive is None


def test_a_drive_ends_at_a_gap_in_time_or_place():
    seconds = np.array([0, 10, 20, 350, 360, 370, 380, 390, 400.0])
    latitude = np.array([0, 0, 0, 0, 0, 0, 0.2, 0.2, 0.2])
    found = drives_of(np.zeros(9), latitude, seconds)
    assert found.tolist() == [*"111222333"]
    assert drives_of(np.zeros(9), latitude, np.append(seconds[:-1], np.nan)) is None

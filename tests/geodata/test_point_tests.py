"""Files of your own tests: what is read, how it is pooled, and the lines that are refused."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box

from geogp.errors import DataError, RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.points import point_tests
from geogp.geodata.points.point_roles import PointSource, columns_of, named_columns, unit_in
from geogp.geodata.points.point_table import coordinates, read_point_table
from geogp.geodata.points.point_tests import read_point_tests
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


def read(table, folder, *, target="download", **source):
    path = folder / "drive.csv"
    if isinstance(table, str):
        path.write_text(table)
    else:
        table.to_csv(path, index=False)
    return read_point_tests(PointSource(str(path), **source), target=target, service="mobile")


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
    assert any("(40 of 400) of drive.csv have no provider" in text for text in found.warnings)


def test_providers_that_cannot_be_compared(table, tmp_path):
    with pytest.raises(RequestError, match="has no column for provider"):
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


def test_formats_have_equal_tests(table, tmp_path):
    path = tmp_path / "drive.csv"
    table.to_csv(path, index=False)
    dated = table.assign(time=pd.to_datetime(table["time"]))
    dated.to_parquet(tmp_path / "drive.parquet")
    places = gpd.points_from_xy(table["longitude"], table["latitude"])
    shapes = gpd.GeoDataFrame(
        dated.drop(columns=["longitude", "latitude"]), geometry=places, crs=4326
    )
    shapes.to_crs(32161).to_file(tmp_path / "drive.gpkg")
    shapes.to_parquet(tmp_path / "shapes.parquet")
    table.to_csv(tmp_path / "tabs.tsv", sep="\t", index=False)
    found = [
        read_point_tests(PointSource(str(file)), target="download", service="mobile")
        for file in sorted(tmp_path.iterdir())
    ]
    assert len(found) == 5
    for one in found[1:]:
        np.testing.assert_allclose(one.longitude, found[0].longitude, atol=1e-8)
        np.testing.assert_allclose(one.latitude, found[0].latitude, atol=1e-8)
        np.testing.assert_array_equal(one.quarter, found[0].quarter)
        np.testing.assert_allclose(one.value, found[0].value, rtol=1e-12)


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


def test_names_of_m_lab(tmp_path):
    names = [
        *("id", "date", "a.TestTime", "a.MeanThroughputMbps", "a.MinRTT", "client.Geo.Latitude"),
        *("client.Geo.Longitude", "server.Geo.Latitude", "client.Network.ASName"),
    ]
    needed = ("latitude", "longitude", "time", "download", "latency", "provider")
    found = columns_of(names, {}, needed, "the file")
    assert [found[role] for role in needed] == [*names[5:7], names[2], *names[3:5], names[8]]
    assert unit_in("a.MeanThroughputMbps") == "Mbps"
    assert unit_in("avg_d_kbps") == "kbps"
    assert unit_in("Download (Mbit/s)") == "Mbps"
    assert unit_in("download") is unit_in("speed (MB/s)") is None


def test_columns_are_named(tmp_path):
    named = named_columns(["latitude=lat, deg,longitude=x", "time=when"])
    assert named == {"latitude": "lat, deg", "longitude": "x", "time": "when"}
    text = "when,a,b,speed\n2023-04-01,18.1,-66.4,20\n"
    columns = ("latitude=a,longitude=b,time=when,download=speed",)
    assert read(text, tmp_path, columns=columns, units="Mbps").value.tolist() == [20_000]


def test_a_test_without_the_target_is_left_out(tmp_path):
    text = "time,lat,lon,download_mbps\n2023-04-01,18.1,-66.4,20\n2023-04-01,18.1,-66.4,\n"
    found = read(text, tmp_path)
    assert (len(found.value), found.rows) == (1, 2)
    assert found.warnings == ("line 3 (1 of 2) of drive.csv have no download and are left out.",)
    assert read(text, tmp_path, target="tests").value.tolist() == [1, 1]


def test_counts_of_tests_have_the_empty_tiles(table, tmp_path):
    seen = read(table, tmp_path, target="tests").observations(REGION, None).observations
    tiles = len(REGION.tiles(16))
    assert len(seen) == 3 * tiles
    assert 0 < seen.y.sum() < len(table)
    assert (seen.y == 0).any()


def test_the_extent_holds_every_tile(table, tmp_path):
    found = read(table, tmp_path)
    region = Region.from_geometry("D", "drive", found.extent)
    assert found.observations(region, None).observations.tests.sum() == len(table)


def test_the_extent_crosses_the_antimeridian(tmp_path):
    text = "time,lat,lon,download_mbps\n2023-04-01,-16,179.9,20\n2023-04-01,-16.1,-179.9,30\n"
    found = read(text, tmp_path)
    region = Region.from_geometry("D", "drive", found.extent)
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


class TestRefusals:
    HEAD = "time,lat,lon,download_mbps\n2023-04-01,18.1,-66.4,20\n"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("2023-04-01,,-66.4,20", r"expected coordinates, found none .* in line 3 \(1 of 2\)"),
            ("2023-04-01,0,0,20", "expected coordinates, found none"),
            ("2023-04-01,-96.4,18.1,20", r"found -96.4 and 18.1 .* line 3.*swapped\?"),
            ("2023-04-01,18.1,-196.4,20", r"longitudes from -180 to 180 degrees"),
            ("2123-04-01,18.1,-66.4,20", "up to now, found later ones in line 3"),
            ("1970-01-01,18.1,-66.4,20", "from 2000 on, found earlier ones in line 3"),
            (",18.1,-66.4,20", "expected a time in the column time, found none in line 3"),
            ("04/01/2023,18.1,-66.4,20", "found '04/01/2023' and the like in line 3"),
            ("20230401,18.1,-66.4,20", "found '20230401' and the like in line 3"),
            ("2023-04-01,18.1,-66.4,fast", r"numbers in the column download_mbps.*'fast'.*line 3"),
            ("2023-04-01,18.1,-66.4,inf", "found 'inf' and the like in line 3"),
            ("2023-04-01,18.1,-66.4,-5", "download of 0 or more, found less in line 3"),
            ("2023-04-01,18.1,-66.4,48000", r"up to 20,000,000 kbps.*line 3.*unit right \(Mbps\)"),
            ("2023-04-01,18.1,-66.4", "expected 4 values in line 3"),
        ],
    )
    def test_lines(self, tmp_path, line, message):
        with pytest.raises(DataError, match=message):
            read(f"{self.HEAD}{line}\n", tmp_path)

    def test_all_faults_are_told(self, tmp_path):
        with pytest.raises(DataError) as caught:
            read(f"{self.HEAD},18.1,-66.4,x\n2023-04-01,,1,5\n", tmp_path)
        assert str(caught.value).count("\n  - ") == 3

    def test_values_in_two_units(self, table, tmp_path):
        table.loc[table.index[:20], "download_mbps"] = 9000.0
        with pytest.raises(DataError, match=r"over 300 times the median.*20 of 400.*another unit"):
            read(table, tmp_path)

    def test_slow_tests_are_told(self, tmp_path):
        text = self.HEAD.replace("mbps", "kbps")
        assert "the median download of drive.csv is 0.02 Mbps" in read(text, tmp_path).warnings[0]

    @pytest.mark.parametrize(
        ("head", "source", "message"),
        [
            ("time,lat,lon,download", {}, "the unit of the column download .* is unknown"),
            ("time,lat,lon,download", {"units": "furlongs"}, "unknown unit 'furlongs'"),
            ("time,y,x,download_mbps", {}, "has no column for latitude and longitude; its columns"),
            ("time,lat,lon,ping", {}, "no column for download.*--columns download=NAME"),
            ("time,lat,lon,dl_mbps", {"columns": ("latitude=a",)}, "has no column 'a'"),
            ("lat,latitude,lon,dl_mbps", {}, "several columns for latitude: lat, latitude"),
            ("time,lat,lon,dl_mbps", {"columns": ("lat",)}, "expected --columns as latitude=NAME"),
            ("time,lat,lon,dl_mbps", {"columns": ("lat=a",)}, "unknown column 'lat'"),
        ],
    )
    def test_columns(self, tmp_path, head, source, message):
        with pytest.raises(RequestError, match=message):
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
        with pytest.raises(DataError, match="with latitude and longitude swapped some would"):
            read(swapped, tmp_path).observations(REGION, None)

    def test_files(self, tmp_path):
        with pytest.raises(RequestError, match=r"ends in \.csv.*which is not a file"):
            read_point_table(tmp_path / "drive.csv")
        for text, message in (
            ("", "expected a different name for each column"),
            ("a,a\n1,2\n", "expected a different name for each column"),
            ("a,b\n", "expected from 1 to 5,000,000 points"),
        ):
            (tmp_path / "drive.csv").write_text(text)
            with pytest.raises(DataError, match=message):
                read_point_table(tmp_path / "drive.csv")
        (tmp_path / "drive.csv").write_bytes(b"lat\n\xff\n")
        with pytest.raises(DataError, match="cannot be read as CSV in UTF-8"):
            read_point_table(tmp_path / "drive.csv")
        (tmp_path / "drive.parquet").write_bytes(b"PAR1 and more")
        with pytest.raises(DataError, match="cannot be read as points"):
            read_point_table(tmp_path / "drive.parquet")

    def test_shapes_that_are_not_points(self, tmp_path):
        shapes = gpd.GeoDataFrame(geometry=[box(0, 0, 1, 1)], crs=4326)
        shapes.to_file(tmp_path / "shapes.gpkg")
        with pytest.raises(DataError, match="must contain points only, with a CRS"):
            read_point_table(tmp_path / "shapes.gpkg")


def test_lines_are_counted_with_empty_lines_and_quotes(tmp_path):
    path = tmp_path / "places.csv"
    path.write_text('name,lat,lon\n"a\nb",18,-66\n\nc,,-66\n')
    table = read_point_table(path)
    assert table.number.tolist() == [3, 5]
    faults = []
    coordinates(table, {"latitude": "lat", "longitude": "lon"}, faults)
    assert "line 5 (1 of 2)" in faults[0]

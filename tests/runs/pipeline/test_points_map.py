"""Maps of your own tests, from the file to the answers: a tiny fit on simulated tests."""

import json
import shutil

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from run_worlds import edited_copy, run_json
from shapely.geometry import box

from geogp.answers.make_run import make_map as make_run
from geogp.answers.run import open_run
from geogp.errors import DataError, RequestError
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.points.point_options import PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import quarter_index
from geogp.models.fitting import few_rows
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

EAST, WEST = -66.3, -66.5


def made_tests(n):
    """Return tests of two providers in two quarters, six times as fast in the east."""
    random = np.random.default_rng(0)
    longitude, latitude = random.uniform((WEST, 18.0), (EAST, 18.15), (n, 2)).T
    times = pd.Timestamp("2023-07-01") + pd.to_timedelta(random.uniform(0, 183, n), unit="D")
    level = 1.2 + 0.8 * (longitude - WEST) / (EAST - WEST)
    return pd.DataFrame(
        {
            "when": times.strftime("%Y-%m-%d %H:%M:%S"),
            "lat": latitude,
            "lon": longitude,
            "download": (10 ** (level + 0.15 * random.standard_normal(n))).round(2),
            "provider": random.choice(["North", "South"], n, p=[0.8, 0.2]),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def three_folds():
    """The width of intervals from few rows has ten folds, which are of no account here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "FOLDS", 3)
        yield


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "drive.csv"
    path.write_text(f"{made_tests(1600).to_csv(index=False)}2023-10-01,,,20,\n")
    return path


def request(drive, out, **changes):
    given = {"columns": ("time=when",), "units": "Mbps", "provider": "North", "decimal": "."}
    given |= changes
    return MapSettings(points=str(drive), preset="quick", epochs=2, zoom=14, out=out, **given)


@pytest.fixture(scope="module")
def run(drive, tmp_path_factory):
    return run_map(request(drive, tmp_path_factory.mktemp("own") / "run"))


def test_the_run_says_what_it_read(run, drive):
    told = run_json(run)
    table = pd.read_csv(drive)
    assert (told["region"], told["region_name"]) == ("drive", "Coamo area")
    used = (table["provider"] == "North").sum()
    title = f"Download speed, 2023Q4: {used:,} own measurements, 2023Q3 to 2023Q4, Coamo area"
    assert f"<h1>{title}</h1>" in (run.path / "map.html").read_text("utf-8")
    extent = "o region was given: the map shows places within 2 km of a tile with tests"
    assert told["points"]["understood"]["region"] == f"n{extent}"
    assert f"<p>N{extent}.</p>" in (run.path / "map.html").read_text("utf-8")
    report = json.loads((run.path / "report.json").read_text("utf-8"))
    assert report["region"] == f"{used:,} own measurements, Coamo area (drive)"
    assert f"N{extent}." in report["reliance"]["Far from data"]
    assert told["quarters"] == ["2023Q3", "2023Q4"]
    assert told["attribution"] == "Measurements of drive.csv"
    item = json.loads((run.path / "item.json").read_text("utf-8"))
    assert item["properties"]["license"] == "proprietary"
    assert "Measurements of drive.csv" in item["properties"]["description"]
    assert "Ookla" not in json.dumps(item)
    with rasterio.open(run.path / "median_mbps.tif") as raster:
        assert raster.tags()["attribution"] == "Measurements of drive.csv"
        assert "license" not in raster.tags()
    (file,) = told["inputs"]
    assert file["name"] == "drive.csv"
    assert file["rows"] == len(table)
    assert file["rows_used"] == (table["provider"] == "North").sum()
    data = told["settings"]["data"]
    assert data["points"] == data["source"] == str(drive)
    assert data["provider"] == "North"
    assert data["columns"] == ["time=when"]
    assert (data["decimal"], data["delimiter"], data["most_left_out"]) == (".", None, 5.0)
    assert told["points"]["units"] == {"download": {"unit": "Mbps", "from": "--units"}}
    assert told["points"]["left_out"] == {"no position (empty, or 0, 0)": 1}
    assert "time zone UTC, assumed" in told["points"]["understood"]["time"]
    (row,) = pd.read_csv(run.path / "left_out.csv").to_dict("records")
    assert (row["line"], row["kind"], row["time"]) == (1602, "bad", "2023-10-01")
    assert "left_out.csv" in told["files"]
    tiles = pd.read_parquet(run.path / "tiles.parquet")
    assert tiles["tests"].sum() <= file["rows_used"]  # a map tile at the border may be missing
    assert tiles["tests"].sum() > 0.9 * file["rows_used"]
    for name in ("map.html", "report.html"):
        assert "drive" in (run.path / name).read_text()


def test_the_map_has_the_slope_of_the_speeds(run):
    places = np.full(2, 18.08), np.array([WEST + 0.02, EAST - 0.02])
    west, east = open_run(run.path).at(*places, question="level")["median_mbps"]
    assert 10**0.4 < east / west < 10**0.9  # 10^0.64 in truth


def test_the_map_ends_where_the_tests_end(run):
    found = open_run(run.path).reopen()
    assert found.inputs.region.code == "drive"
    assert len(found.tiles) == run_json(run)["map"]["tiles"]
    rows = found.inputs.observations
    near = nearest_km(*found.tiles.centres, rows.longitude, rows.latitude)
    assert near.max() < 2 * 1.01  # the circles have corners
    inside = open_run(run.path).at([18.08, 18.2], [WEST + 0.02, WEST])["in_region"]
    assert inside.tolist() == [True, False]


def test_areas_read_the_file_again(run, tmp_path):
    halves = gpd.GeoDataFrame(
        {"name": ["west", "east"]},
        geometry=[box(-67, 17, -66.4, 19), box(-66.4, 17, -66, 19)],
        crs=4326,
    )
    halves.to_file(tmp_path / "halves.gpkg")
    found = open_run(run.path).areas(f"{tmp_path / 'halves.gpkg'}:name").set_index("area")
    assert found.loc["east", "level_mean_mbps"] > 1.3 * found.loc["west", "level_mean_mbps"]
    assert found["tests"].sum() > 0


def test_a_finished_run_is_kept(run, drive):
    assert run_map(request(drive, run.path)).already_there


def test_another_file_is_another_run(run, drive, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    own = tmp_path / "drive.csv"
    shutil.copy(drive, own)
    with own.open("a") as stream:
        stream.write("2023-10-01,18.1,-66.4,20,North\n")
    with pytest.raises(RequestError, match="inputs"):
        run_map(request(own, tmp_path / "run"))
    moved = edited_copy(
        run.path,
        tmp_path / "edited",
        lambda held: held["settings"]["data"].update(points=str(own)),
    )
    with pytest.raises(DataError, match=r"drive\.csv changed or appeared since"):
        open_run(moved).reopen()


def test_another_provider_is_another_run(run, drive):
    with pytest.raises(RequestError, match="settings"):
        run_map(request(drive, run.path, provider="South"))


def test_a_region_and_strata_of_the_user(drive, tmp_path):
    area = box(-66.45, 18.02, -66.3, 18.15)
    gpd.GeoDataFrame(geometry=[area], crs=4326).to_file(tmp_path / "valley.gpkg")
    gpd.GeoDataFrame(geometry=[box(-66.4, 18, -66.3, 18.2)], crs=4326).to_file(
        tmp_path / "town.gpkg"
    )
    made = make_run(
        tmp_path / "valley.gpkg",
        points=str(drive),
        columns=("time=when",),
        units="Mbps",
        strata=str(tmp_path / "town.gpkg"),
        model="dbk-silu",
        preset="quick",
        epochs=1,
        zoom=14,
        out=tmp_path / "run",
    )
    told = json.loads((made.path / "run.json").read_text())
    assert told["region"] == "valley"
    assert told["inputs"][-1]["rows_used"] < told["inputs"][-1]["rows"] == 1601
    assert any("lie outside valley" in text for text in told["warnings"])
    assert any("2 providers together (North, South)" in text for text in told["warnings"])
    assert set(told["metrics"]["random"]) == {"all", "town", "elsewhere"}


def test_tests_of_tiles_give_the_observations_of_the_tiles(small, tmp_path):
    """A test at the centre of a tile for each of its tests, all with the mean of the tile."""
    choice = RegionChoice("DEMO", boundaries=str(small.folder / "boundaries"))
    region = choice.read().region
    seen = read_observations(open_source(str(small.folder)), region).observations
    dates = np.array([f"{q // 4}-{3 * (q % 4) + 1:02d}-15" for q in seen.quarter])
    table = pd.DataFrame(
        {"time": dates, "lat": seen.latitude, "lon": seen.longitude, "download_mbps": 10**seen.y}
    )
    path = tmp_path / "tests.parquet"
    table.loc[table.index.repeat(seen.tests)].to_parquet(path, index=False)
    own = read_point_tests(PointSource(str(path)), target="download", service="mobile")
    found = own.observations(region, None).observations
    for name in ("quadkey", "quarter", "longitude", "latitude", "tests", "stratum"):
        np.testing.assert_array_equal(getattr(found, name), getattr(seen, name))
    np.testing.assert_allclose(found.y, seen.y, rtol=1e-12)


def test_the_land_of_the_states_is_kept_and_what_was_measured_in_the_sea(small, drive):
    """A tile's tests count even if the state's coastline is drawn too far inland."""
    boundaries = str(small.folder / "boundaries")
    state = RegionChoice("DEMO", boundaries=boundaries).read().region.boundary
    west, south, _, north = state.bounds
    middle = (south + north) / 2
    around = box(west - 0.1, middle - 0.1, west + 0.1, middle + 0.1)
    sea = box(west - 0.05, middle, west - 0.045, middle + 0.005)
    choice = RegionChoice(points=str(drive), boundaries=boundaries, name="My own town")
    found = choice.read(around, np.array([sea])).region
    assert (found.code, found.name) == ("drive", "My own town")
    assert found.boundary.equals(around.intersection(state).union(sea))
    far = box(10, 10, 11, 11)
    assert choice.read(far, np.array([far])).region.boundary.equals(far)


class TestRequests:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"units": "Mbps"}, "--units describes a file of your own tests"),
            ({"provider": "North"}, "--provider describes a file"),
            ({"by_provider": True}, "--by-provider describes a file of your own tests"),
            (
                {"points": "a.csv", "by_provider": True, "provider": "North"},
                "--provider maps one provider, and --by-provider maps all",
            ),
            (
                {"points": "a.csv", "by_provider": True, "target": "tests"},
                "--by-provider is for the model field, and for a speed, a latency or a signal",
            ),
            (
                {"points": "a.csv", "by_provider": True, "model": "dbk-rbf"},
                "found --target download and --model dbk-rbf",
            ),
            ({"columns": ("latitude=a",)}, "--columns describes a file"),
            ({"points": "a.csv", "units": "mbit"}, "unknown unit 'mbit'"),
            ({"points": "a.csv", "columns": ("lat=a",)}, "unknown column 'lat'"),
        ],
    )
    def test_refusals(self, changes, message):
        with pytest.raises(RequestError, match=message):
            MapSettings(region="PR", **changes)

    def test_no_region_without_points(self):
        with pytest.raises(RequestError, match="expected a region, such as PR"):
            MapSettings()
        assert MapSettings(points="a.csv").place.is_extent
        assert not MapSettings(points="a.csv", region="PR").place.is_extent


class TestCommand:
    def test_a_template_is_a_file_that_can_be_read(self, geogp, tmp_path):
        path = tmp_path / "own.csv"
        code, out, _ = geogp("points", path, "--template")
        assert code == 0
        assert "own.csv" in out
        for target in ("download", "upload", "latency"):
            found = read_point_tests(PointSource(str(path)), target=target, service="mobile")
            assert len(found.value) == found.rows == 3
            assert set(found.quarter) == {quarter_index("2023Q4")}
            assert found.columns["provider"] == "provider"
        code, _, told = geogp("points", path)
        assert code == 3  # as a map of three tests
        assert "expected rows in each part of the split" in told
        path.write_text("time,latitude,longitude,download_mbps\n")
        code, _, told = geogp("points", path, "--template")
        assert code == 2
        assert "own.csv exists" in told
        assert "choose another file" in told

    def test_the_file_is_described(self, geogp, drive):
        code, out, told = geogp("points", drive, "--columns", "time=when", "--units", "Mbps")
        assert code == 0
        assert "1,600 tests of download" in out
        assert "from the column when, time zone UTC, assumed" in out
        assert "Mbps (--units)" in out
        assert "2 providers together" in told

    def test_faults_end_the_command(self, geogp, drive, tmp_path):
        path = tmp_path / "wrong.csv"
        path.write_text(drive.read_text().replace("2023-09", "2123-09"))
        code, _, told = geogp("map", "--points", path, "--columns", "time=when", "--units", "Mbps")
        assert code == 3
        assert "time in the future in the column when" in told

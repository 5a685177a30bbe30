"""Predictions at an address: the map's own values, every quarter, files of places, refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_worlds import write_small
from shapely.geometry import box

from geogp.answers.at import answer_at, place_answers
from geogp.answers.at_model import PlaceModel
from geogp.answers.requests import AtRequest, PlaceQuestion
from geogp.answers.run import open_run
from geogp.errors import DataError, RequestError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_model
from geogp.geodata.places.region import Region
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import ProgressListener

pytestmark = pytest.mark.usefixtures("no_pictures", "short_field_fits")


@pytest.fixture(scope="module")
def fine(small, tmp_path_factory):
    """Return a run with repaired intervals whose map has the tiles in which tests are counted."""
    out = tmp_path_factory.mktemp("at") / "run"
    return run_map(small.request(out, zoom=16, epochs=1, conformal="strata"))


@pytest.fixture(scope="module")
def tiles(fine):
    return pd.read_parquet(fine.path / "tiles.parquet")


def asked(run, tile, **changes):
    place = f"{float(tile['latitude'])!r},{float(tile['longitude'])!r}"
    return answer_at(AtRequest(run=run.path, place=place, **changes))


@pytest.mark.parametrize("number", [0, 777, -1])
def test_a_place_has_the_values_of_the_map(fine, tiles, number):
    tile = tiles.iloc[number]
    (found,) = asked(fine, tile).table.to_dict(orient="records")
    for name in ("median", "lower", "upper"):
        own = found["median_mbps" if name == "median" else f"{name}_95_mbps"]
        assert own == pytest.approx(tile[f"{name}_mbps"], rel=1e-5)
    assert found["p_at_least_35_mbps"] == pytest.approx(tile["p_at_least_35_mbps"], abs=1e-6)
    assert found["nearest_measured_km"] == pytest.approx(tile["distance_km"], abs=1e-3)
    assert found["stratum"] == tile["stratum"]
    assert found["quadkey"] == tile["quadkey"]
    assert found["lower_95_mbps"] < found["lower_80_mbps"] < found["lower_50_mbps"]
    assert found["upper_50_mbps"] < found["upper_80_mbps"] < found["upper_95_mbps"]


@pytest.mark.parametrize("changes", [{}, {"threshold": (35,)}, {"quarters": "2023Q4"}])
def test_the_map_and_the_model_give_the_same_values(fine, tiles, changes):
    """Up to float32, in which the map stores them."""
    few = tiles.iloc[:: len(tiles) // 40]
    places = few["longitude"].to_numpy(), few["latitude"].to_numpy()
    request, run = PlaceQuestion(**changes), open_run(fine.path)

    def model():
        return PlaceModel(run.path, run.record, *run.loaded, run.reopen)

    stored, computed = (
        place_answers((run.path, run.record), places, request, source, stored=stored).table
        for source, stored in ((pytest.fail, True), (model, False))
    )
    assert list(stored) == list(computed)
    assert any(name.startswith("p_at_least") for name in stored)
    pd.testing.assert_frame_equal(stored, computed, rtol=2e-6, atol=1e-7)


class _AskedError(Exception):
    pass


@pytest.mark.parametrize(
    "changes",
    [
        {"quarters": "all"},
        {"quarters": "2023Q3"},
        {"question": "level"},
        {"tests": 50},
        {"threshold": (36,)},
        {"inside": 0.004},
    ],
    ids=str,
)
def test_what_the_map_lacks_is_asked_of_the_model(fine, tiles, changes):
    run, tile = open_run(fine.path), tiles.iloc[0]
    west = changes.pop("inside", 0.0)  # in a tile beside the map, at its border

    def model():
        raise _AskedError

    place = np.array([tile["longitude"] - west]), np.array([tile["latitude"]])
    with pytest.raises(_AskedError):
        place_answers((run.path, run.record), place, PlaceQuestion(**changes), model)


def test_a_map_that_changed_is_no_answer(copy_of_fine, tiles):
    """As for a run of an older version, whose tiles have no narrower intervals."""
    edited = tiles.assign(median_mbps=1.0)
    for table in (edited, tiles.drop(columns=["lower_50_mbps"])):
        table.to_parquet(copy_of_fine.path / "tiles.parquet")
        (found,) = asked(copy_of_fine, tiles.iloc[5]).table.to_dict(orient="records")
        assert found["median_mbps"] == pytest.approx(tiles.iloc[5]["median_mbps"], rel=1e-5)


@pytest.fixture
def copy_of_fine(fine, tmp_path):
    return replace(fine, path=Path(shutil.copytree(fine.path, tmp_path / "run")))


def test_every_place_of_a_tile_has_its_prediction(fine, tiles):
    tile = tiles.iloc[500]
    here = open_run(fine.path).at(tile["latitude"] + 1e-3, tile["longitude"] - 1e-3)
    there = open_run(fine.path).at(tile["latitude"], tile["longitude"])
    assert here["median_mbps"][0] == there["median_mbps"][0]
    assert here["quadkey"][0] == there["quadkey"][0]


def test_each_tile_is_predicted_once(fine, tiles, tmp_path, monkeypatch):
    """The places of a large file lie in few tiles; a prediction of each place takes minutes."""
    counted, own = [], SpatialGP.inputs

    def inputs(self, table):
        counted.append(len(table))
        return own(self, table)

    few = tiles.iloc[[500, 3, 900]][["latitude", "longitude"]]
    many = few.iloc[[0, 1, 0, 2, 1, 0]].reset_index(drop=True)
    many["latitude"] += np.linspace(-1e-3, 1e-3, 6)
    many.loc[len(many)] = [0.0, 20.0]
    alone = open_run(fine.path).at(few["latitude"], few["longitude"], quarters="all")
    monkeypatch.setattr(SpatialGP, "inputs", inputs)
    found = open_run(fine.path).at(many["latitude"], many["longitude"], quarters="all")
    assert counted == [3 * 2]
    values = [name for name in found if name.endswith("_mbps")]
    spread = np.array([[2 * k, 2 * k + 1] for k in (0, 1, 0, 2, 1, 0)]).ravel()
    pd.testing.assert_frame_equal(
        found[values][:12], alone[values].iloc[spread].reset_index(drop=True), check_exact=True
    )
    assert found[values][12:].isna().all(axis=None)
    assert list(found["latitude"]) == list(many["latitude"].repeat(2))


def test_a_place_at_the_border(fine, tiles):
    west = tiles.loc[tiles["longitude"].idxmin()]
    width = 360 / 2**16
    places = west["longitude"] - width * np.array([0.45, 0.55, 0.95, 1.05])
    found = open_run(fine.path).at(np.full(4, west["latitude"]), places)
    assert list(found["in_region"]) == [True, True, True, False]
    assert found["quadkey"][0] == west["quadkey"]
    assert len({*found["quadkey"][:3]}) == 2  # a place keeps the quadkey of its own tile
    assert found["stratum"][2] == west["stratum"]


def test_tests_near_are_those_within_the_distance(fine, tiles):
    here = tiles.iloc[4000]
    for km in (0.3, 5.0):
        found = asked(fine, here, near_km=km).table["tests_near"][0]
        north = np.deg2rad(tiles["latitude"] - here["latitude"])
        east = np.deg2rad(tiles["longitude"] - here["longitude"])
        cosines = np.cos(np.deg2rad(tiles["latitude"])) * np.cos(np.deg2rad(here["latitude"]))
        half = np.sin(north / 2) ** 2 + cosines * np.sin(east / 2) ** 2
        inside = 2 * 6371.0088 * np.arcsin(np.sqrt(half)) <= km
        assert found == tiles["tests"][inside].sum()


def test_all_quarters_and_the_level(fine, tiles):
    answer = asked(fine, tiles.iloc[100], quarters="all", question="level")
    table = answer.table
    assert list(table["quarter"]) == ["2023Q3", "2023Q4"]
    assert set(table["speaks_of"]) == {"levels around which measurements scatter"}
    estimator = load_model(fine.path / "model.safetensors")
    rows = pd.DataFrame(
        {
            "longitude": tiles["longitude"].iloc[[100, 100]].to_numpy(),
            "latitude": tiles["latitude"].iloc[[100, 100]].to_numpy(),
            "quarter": pd.PeriodIndex(["2023Q3", "2023Q4"], freq="Q"),
        }
    )
    law = estimator.predict_distribution(rows, level=True)
    np.testing.assert_allclose(table["median_mbps"], 10**law.median, rtol=1e-6)
    np.testing.assert_allclose(table["upper_80_mbps"], 10 ** law.interval(0.8)[1], rtol=1e-6)


def test_more_tests_are_more_certain(fine, tiles):
    one = asked(fine, tiles.iloc[100], question="single-test").table.iloc[0]
    many = asked(fine, tiles.iloc[100], tests=50, devices=20).table.iloc[0]
    assert one["speaks_of"] == "single tests"
    assert many["speaks_of"] == "tile averages over 50 tests from 20 devices"
    ratio = [row["upper_95_mbps"] / row["lower_95_mbps"] for row in (one, many)]
    assert ratio[0] > ratio[1]


def test_a_local_repair_is_the_repair_of_the_map(tiles, tmp_path):
    """The repair `local` and a covariate need the data of the run, which are read again."""
    town = box(-90.15, 31.9, -89.95, 32.05)
    region = Region.from_geometry("DEMO", "Demo", town.buffer(0.03), town, 2020)
    source = write_small(tmp_path / "source", region, rows=1800)
    table = tiles.iloc[::50][["longitude", "latitude"]]
    table.assign(value=table["latitude"]).to_csv(tmp_path / "height.csv", index=False)
    run = run_map(
        source.request(
            tmp_path / "run",
            epochs=1,
            zoom=16,
            conformal="local",
            covariates=(str(tmp_path / "height.csv"),),
        )
    )
    tile = pd.read_parquet(run.path / "tiles.parquet").iloc[10]
    found = asked(run, tile).table.iloc[0]
    assert found["median_mbps"] == pytest.approx(tile["median_mbps"], rel=1e-5)
    assert found["lower_95_mbps"] == pytest.approx(tile["lower_mbps"], rel=1e-5)
    assert found["upper_95_mbps"] == pytest.approx(tile["upper_mbps"], rel=1e-5)


def test_numbers_of_tests(small, tmp_path):
    run = run_map(small.request(tmp_path / "run", target="tests", zoom=16, epochs=1))
    tile = pd.read_parquet(run.path / "tiles.parquet").iloc[10]
    found = asked(run, tile).table.iloc[0]
    assert found["speaks_of"] == "numbers of tests of a tile in a quarter"
    assert found["lower_95_tests"] == tile["lower_tests"]
    assert found["lower_95_tests"] <= found["median_tests"] <= found["upper_95_tests"]
    assert found["upper_95_tests"] == tile["upper_tests"]
    with pytest.raises(RequestError, match="the run predicts numbers of tests"):
        asked(run, tile, tests=3)


class TestFiles:
    @pytest.fixture
    def places(self, tiles, tmp_path):
        rows = tiles.iloc[[900, 3]]
        table = pd.DataFrame({"id": ["b", "far", "=a"]})
        table["lat"] = [rows["latitude"].iloc[0], 10.0, rows["latitude"].iloc[1]]
        table["lon"] = [rows["longitude"].iloc[0], 20.0, rows["longitude"].iloc[1]]
        table.to_csv(tmp_path / "places.csv", index=False)
        return tmp_path / "places.csv"

    def test_the_order_of_the_file(self, fine, tiles, places, tmp_path):
        out = tmp_path / "answers.csv"
        answer = answer_at(AtRequest(run=fine.path, place=str(places), out=out))
        assert answer.described["outside"] == 1
        table = pd.read_csv(out, dtype={"quadkey": str})
        assert list(table["id"]) == ["b", "far", "'=a"]  # no spreadsheet runs it
        assert list(table["in_region"]) == [True, False, True]
        assert list(table["quadkey"].fillna("")) == [
            tiles["quadkey"].iloc[900],
            "",
            tiles["quadkey"].iloc[3],
        ]
        assert table.loc[1, "median_mbps":"p_at_least_35_mbps"].isna().all()

    def test_json_and_parquet(self, fine, places, tmp_path):
        pd.read_csv(places).to_parquet(tmp_path / "places.parquet")
        both = []
        for file in (places, tmp_path / "places.parquet"):
            out = tmp_path / f"{file.suffix[1:]}.json"
            answer_at(AtRequest(run=fine.path, place=str(file), quarters="all", out=out))
            both.append(json.loads(out.read_text())["answers"])
        assert both[0] == both[1]
        assert [row["quarter"] for row in both[0]] == ["2023Q3", "2023Q4"] * 3
        assert both[0][2]["median_mbps"] is None

    def test_dates_and_empty_cells_are_text_and_null(self, fine, places, tmp_path):
        dates = pd.to_datetime(["2023-05-01", None, "2023-05-02"])
        pd.read_csv(places).assign(made=dates).to_parquet(tmp_path / "dated.parquet")
        out = tmp_path / "dated.json"
        answer_at(AtRequest(run=fine.path, place=str(tmp_path / "dated.parquet"), out=out))
        found = [row["made"] for row in json.loads(out.read_text())["answers"]]
        assert found == ["2023-05-01 00:00:00", None, "2023-05-02 00:00:00"]

    def test_no_place_is_refused(self, fine):
        with pytest.raises(RequestError, match="expected one place or more, found none"):
            open_run(fine.path).at([], [])

    def test_wrong_lines_are_named(self, fine, tmp_path):
        path = tmp_path / "places.csv"
        path.write_text("latitude,longitude\n32,-90\n\n,-90\nnorth,-90\n")
        with pytest.raises(DataError, match=r"(?s)1 bad rows of 3.*line 5.*latitude.*'north'"):
            answer_at(AtRequest(run=fine.path, place=str(path)))
        path.write_text("latitude,longitude\n32,-90\n\n,-90\n-90,32\n")
        with pytest.raises(DataError, match=r"(?s)1 bad rows of 3.*line 5 .*swapped"):
            answer_at(AtRequest(run=fine.path, place=str(path)))
        path.write_text("latitude,longitude\n32,-90,1\n")
        with pytest.raises(DataError, match=r"(?s)line 2 .*more values than the header"):
            answer_at(AtRequest(run=fine.path, place=str(path)))

    @pytest.mark.parametrize("name", ["index.csv", "one-missing.csv"])
    def test_addresses_of_a_spreadsheet(self, fine, tmp_path, name, monkeypatch):
        """A row without a position is kept and empty; a column of row numbers does not matter."""
        cases = Path(__file__).parents[1] / "fixtures" / "cases" / "80-addresses-from-excel"
        heard, out = [], tmp_path / "answers.csv"
        monkeypatch.setattr(ProgressListener, "warn", lambda _, text: heard.append(text))
        asked = AtRequest(run=fine.path, place=str(cases / name), out=out)
        found = answer_at(asked).table
        schools = pd.read_csv(cases / name)["School"]
        assert found["School"].tolist() == schools.tolist()
        missing = found["latitude"].isna()
        assert not found.loc[missing, "in_region"].any()
        assert found.loc[missing, "median_mbps"].isna().all()
        assert missing.tolist() == [name == "one-missing.csv" and k == 3 for k in range(30)]
        told = "no answer for no position (empty, or 0, 0): line 5 (1 of 30)."
        assert heard == [told] * missing.sum()
        np.testing.assert_array_equal(pd.read_csv(out)["median_mbps"], found["median_mbps"])

    def test_columns_can_be_named(self, fine, places, tmp_path):
        text = places.read_text().replace("id,lat,lon", "id,a,b")
        other = tmp_path / "other.csv"
        other.write_text(text)
        with pytest.raises(DataError, match="no column for latitude and longitude; its col"):
            answer_at(AtRequest(run=fine.path, place=str(other)))
        named = ("latitude=a,longitude=b",)
        found = answer_at(AtRequest(run=fine.path, place=str(other), columns=named))
        assert found.table["in_region"].sum() == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("10,20", "latitude 10 and longitude 20 lies outside Demo"),
            ("-90.25,32.29", "expected a latitude from -85.05 to 85.05"),
            ("Springfield", "expected a place as LATITUDE,LONGITUDE"),
        ],
    )
    def test_places(self, fine, place, message):
        with pytest.raises(RequestError, match=message):
            answer_at(AtRequest(run=fine.path, place=place))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"quarters": "2020Q1"}, "--quarters 2020Q1 lies before the data, which start in 2023"),
            ({"quarters": "2023"}, "expected a quarter like 2019Q1"),
            ({"question": "level", "tests": 3}, "--for level does not use these numbers"),
            ({"near_km": 0.0}, "expected a distance above 0 km"),
            ({"columns": ("latitude=a",)}, "--columns describes a file of places"),
            ({"columns": ("lat=a",)}, "unknown column 'lat'"),
            ({"decimal": ","}, "--decimal describes a file of places"),
        ],
    )
    def test_questions(self, fine, tiles, changes, message):
        with pytest.raises(RequestError, match=message):
            asked(fine, tiles.iloc[0], **changes)

    def test_output(self, fine, tiles, tmp_path):
        with pytest.raises(RequestError, match=r"ends in \.csv or \.json"):
            asked(fine, tiles.iloc[0], out=tmp_path / "answers.xlsx")

    def test_a_damaged_map(self, copy):
        (copy.path / "tiles.parquet").write_bytes(b"PAR1")
        with pytest.raises(DataError, match=r"tiles\.parquet is damaged.*Make the run again"):
            answer_at(AtRequest(run=copy.path, place="32.29,-90.25"))


def test_the_command(geogp, fine, tiles):
    tile = tiles.iloc[0]
    place = f"{tile['latitude']},{tile['longitude']}"
    code, out, _ = geogp("at", place, fine.path)
    assert code == 0
    assert (
        out.splitlines()[0].strip() == "DEMO, download: tile averages over 3 tests from 2 devices"
    )
    assert "tests of all quarters within 2 km" in out
    code, out, _ = geogp("at", place, fine.path, "--json")
    assert code == 0
    assert json.loads(out)["answers"][0]["quadkey"] == tile["quadkey"]
    code, _, told = geogp("at", "-14.3,-170.7", fine.path)
    assert code == 2
    assert "lies outside" in told

"""Where to measure next, from a finished run: figures, files, and what is refused."""

import json
import shutil

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from run_worlds import edited_copy, run_json, write_halves

from geogp.answers.make import make_answer
from geogp.answers.requests import NextRequest
from geogp.answers.run import open_run
from geogp.errors import RequestError
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_names import find_run

NEAR = "within 10 km of a measurement"


@pytest.fixture(scope="module")
def halves(small, tmp_path_factory):
    return write_halves(small, tmp_path_factory.mktemp("layer"), ("West", "East", "Far"), 0.5)


@pytest.fixture(scope="module")
def result(copy):
    return make_answer(NextRequest(copy.path, tiles=12))


def test_each_tile_takes_its_share(result, copy):
    table, told = result.table, result.described
    assert list(table["rank"]) == list(range(1, 13))
    assert table["quadkey"].nunique() == 12
    assert told["tiles"] == run_json(copy)["map"]["tiles"]
    assert told["tiles"] == told["counted_tiles"] + told["far_tiles"]
    np.testing.assert_allclose(table["removed"], table["gain"].cumsum())
    assert table["removed"].iloc[-1] == pytest.approx(told["removed"])
    assert told["variance_after"] == pytest.approx(
        told["variance_before"] - table["gain_log10"].sum()
    )
    assert (table["gain_log10"] > 0).all()
    assert (table["sd_after_log10"] < table["sd_before_log10"]).all()
    assert told["removed"] >= told["removed_by_widest"] > 0
    assert told["tests"] == 3
    assert told["evaluated"] == told["counted_tiles"]


def test_tiles_of_a_row_or_column_have_one_coordinate(copy):
    """The estimates of `geogp next` find the rows and columns by their coordinates."""
    opened = open_run(copy.path).reopen()
    places, tiles = opened.level().local.places, opened.tiles
    for values, numbers in zip(places.T, (tiles.column, tiles.row), strict=True):
        assert len(np.unique(values)) == len(np.unique(numbers)) > 10


def test_the_files_hold_the_table(result, copy):
    geojson, png, described = result.files
    assert [path.name for path in result.files] == [
        f"next_tiles.{end}" for end in ("geojson", "png", "json")
    ]
    table = gpd.read_file(geojson)
    assert table.crs.to_epsg() == 4326
    pd.testing.assert_frame_equal(
        pd.DataFrame(table.drop(columns="geometry")), result.table, check_dtype=False
    )
    edges = table.geometry.bounds
    np.testing.assert_allclose((edges["minx"] + edges["maxx"]) / 2, table["longitude"], atol=1e-9)
    np.testing.assert_allclose((edges["miny"] + edges["maxy"]) / 2, table["latitude"], atol=1e-9)
    assert all(len(key) == run_json(copy)["map"]["zoom"] for key in table["quadkey"])
    told = json.loads(described.read_text())
    assert len(told["chosen"]) == 12
    with Image.open(png) as image:
        small = np.asarray(image.convert("RGB").resize((80, 80))).reshape(-1, 3)
        assert len(np.unique(small, axis=0)) > 20


def test_the_run_stays_what_it_was(result, copy, small):
    assert result.files[0].is_file()
    assert run_map(small.request(copy.path, split="both")).already_there


def test_more_tests_take_more(copy, result):
    more = make_answer(NextRequest(copy.path, tiles=12, tests=100))
    assert more.described["removed"] > result.described["removed"]
    assert more.described["tests"] == 100
    assert more.described["variance_before"] == result.described["variance_before"]


def test_only_urban_tiles_count(copy, result):
    urban = make_answer(NextRequest(copy.path, tiles=12, among="urban"))
    assert 0 < urban.described["counted_tiles"] < result.described["counted_tiles"]
    assert urban.described["counted"] == f"urban tiles {NEAR}"
    share = (urban.table["stratum"] == "urban").mean()
    assert share > (result.table["stratum"] == "urban").mean()


def test_tiles_far_from_data_are_left_out(copy, tmp_path, result):
    run = edited_copy(copy.path, tmp_path / "run", lambda held: held["drawing"].update(far_km=0.7))
    found = make_answer(NextRequest(run, tiles=12))
    grid = pd.read_parquet(run / "tiles.parquet").set_index("quadkey")
    far = grid["distance_km"] > 0.7
    assert found.described["far_tiles"] == far.sum() > 0
    assert found.described["counted_tiles"] == (~far).sum()
    assert far[result.table["quadkey"]].any()
    assert not far[found.table["quadkey"]].any()
    assert found.described["counted"] == "all tiles within 0.7 km of a measurement"


def test_an_area_counts(copy, halves):
    east = make_answer(
        NextRequest(copy.path, tiles=12, within="east", by=f"{halves}:side", among="rural")
    )
    middle = gpd.read_parquet(halves).geometry.iloc[0].bounds[2]
    assert (east.table["longitude"] > middle).mean() > 0.8
    assert east.described["counted"] == f"rural tiles of east {NEAR}"


def test_a_model_without_tiles(plain, tmp_path):
    shutil.copytree(plain.path, tmp_path / "run")
    found = make_answer(NextRequest(tmp_path / "run", tiles=5))
    assert found.described["removed"] > found.described["removed_by_widest"] > 0
    assert found.described["tests"] is None


class TestCommand:
    def test_it_prints_the_first_ten(self, geogp, copy):
        code, out, _ = geogp("next", copy.path, "--tiles", 12)
        assert code == 0
        assert "first 10 of 12 tiles" in out
        assert "Measuring all 12 tiles removes" in out
        assert "next_tiles.geojson" in out

    def test_json_is_all_there_is(self, geogp, copy, result):
        code, out, _ = geogp("next", copy.path, "--tiles", 12, "--json")
        told = json.loads(out)
        assert code == 0
        assert told["chosen"] == result.described["chosen"]

    def test_a_region_names_its_run(self, geogp, copy, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shutil.copytree(copy.path, tmp_path / "runs" / "DEMO-mobile-download-field-quick")
        code, out, _ = geogp("next", "DEMO", "--tiles", 3, "--json")
        assert code == 0
        assert json.loads(out)["run"] == "runs/DEMO-mobile-download-field-quick"


class TestRefusals:
    def test_no_run_of_a_region(self, tmp_path):
        with pytest.raises(RequestError, match=r"finished run in .*PR-\*, found neither for 'PR'"):
            find_run("PR", tmp_path)

    def test_several_runs_of_a_region(self, tmp_path):
        for name in ("PR-mobile-download-field-quick", "PR-mobile-upload-field-quick", "PRX-a"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.json").write_text("{}")
        with pytest.raises(RequestError, match=r"PR has 2 finished runs: .*download.*, .*upload"):
            find_run("PR", tmp_path)
        assert find_run("PRX", tmp_path) == tmp_path / "PRX-a"

    def test_areas(self, copy, halves):
        with pytest.raises(RequestError, match="contain no county areas"):
            make_answer(NextRequest(copy.path, within="Ponce"))
        by = f"{halves}:side"
        with pytest.raises(RequestError, match="'North' in halves; the areas are East, Far"):
            make_answer(NextRequest(copy.path, within="North", by=by))
        with pytest.raises(RequestError, match=r"Demo has no tiles of Far .*Choose another area"):
            make_answer(NextRequest(copy.path, within="Far", by=by))

    def test_more_tiles_than_there_are(self, copy):
        with pytest.raises(RequestError, match=r"expected from 1 to 306 tiles to choose"):
            make_answer(NextRequest(copy.path, tiles=500))

    def test_a_stratum_that_the_run_has_not(self, copy):
        with pytest.raises(
            RequestError, match="unknown --among 'forest'; choose one of urban, rur"
        ):
            make_answer(NextRequest(copy.path, tiles=5, among="forest"))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tiles": 0}, "expected tiles from 1 to 1,000,000, found 0"),
            ({"tests": 0}, "expected tests from 1 to 1,000,000, found 0"),
            ({"tiles": 50, "candidates": 60}, "expected 100 candidates or more for 50 tiles"),
            ({"seed": -1}, "expected a seed from 0 to"),
        ],
    )
    def test_requests_out_of_range(self, tmp_path, changes, message):
        with pytest.raises(RequestError, match=message):
            NextRequest(tmp_path, **changes)


def test_the_areas_are_not_overwritten(finished, halves, tmp_path, geogp):
    run = shutil.copytree(finished.path, tmp_path / "run")
    gpd.read_parquet(halves).to_file(run / "next_tiles.geojson")
    before = (run / "next_tiles.geojson").read_bytes()
    by = f"{run / 'next_tiles.geojson'}:side"
    code, _, told = geogp("next", run, "--tiles", 5, "--by", by, "--in", "West")
    assert (code, "that geogp next does not write" in told) == (2, True)
    assert (run / "next_tiles.geojson").read_bytes() == before

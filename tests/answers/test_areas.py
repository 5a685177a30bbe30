"""Levels of areas from a finished run: figures, files, and what is refused."""

import json
import os
import shutil
from dataclasses import replace

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pyogrio
import pytest
import rasterio
from PIL import Image
from run_worlds import edited_copy, run_json, write_halves
from shapely.geometry import box

from geogp.answers.make import make_answer
from geogp.answers.requests import AreasRequest
from geogp.errors import DataError, RequestError
from geogp.geodata.places.layers import PolygonLayer
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.process.architecture import Architecture
from geogp.runs.file_records import damaged_files
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import RunListener
from geogp.runs.reopen import tag_of
from geogp.runs.run_folder import read_run_record


@pytest.fixture(scope="module")
def halves(small, tmp_path_factory):
    return write_halves(small, tmp_path_factory.mktemp("layer"), ("west", "east", "far"), 0.4)


@pytest.fixture(scope="module")
def result(copy, halves):
    return make_answer(AreasRequest(copy.path, by=f"{halves}:side", draws=1000))


def test_tracts_beside_the_boundaries(copy, small, halves, result, tmp_path):
    with pytest.raises(RequestError, match=r"contain no tract areas of Demo"):
        make_answer(AreasRequest(copy.path, by="tract"))
    borders = shutil.copytree(small.folder / "boundaries", tmp_path / "borders")
    tracts = gpd.read_parquet(halves).rename(columns={"side": "NAME"})
    code = gpd.read_parquet(borders / "states.parquet")["STUSPS"][0]
    tracts.assign(GEOID=["1", "2", "3"]).to_parquet(borders / f"tracts_{code}.parquet")
    found = make_answer(AreasRequest(copy.path, by="tract", boundaries=str(borders), draws=200))
    assert found.table["area"].tolist() == ["east", "west"]
    assert found.table["key"].tolist() == ["2", "1"]
    assert found.files[0].name == "areas_tract_download_level_2023Q4.csv"
    columns = ["tiles", "level_mean_log10"]
    pd.testing.assert_frame_equal(found.table[columns], result.table[columns])


@pytest.fixture(scope="module")
def noisy(copy, halves):
    return make_answer(AreasRequest(copy.path, by=f"{halves}:side", question="tile-mean"))


def test_a_row_for_each_area_with_tiles(result, copy):
    table = result.table
    assert set(table["area"]) == {"west", "east"}
    assert table["tiles"].sum() == run_json(copy)["map"]["tiles"] == result.described["tiles"]
    assert result.described["tiles_elsewhere"] == 0
    assert (table["measured_tiles"] > 0).all()
    assert (table["measured_tiles"] < table["tiles"]).all()
    grid_tests = 0
    for path in sorted(copy.path.glob("test_predictions.parquet")):
        grid_tests = pd.read_parquet(path)["tests"].sum()
    assert table["tests"].sum() > grid_tests > 0


def test_means_are_those_of_the_map(result, copy):
    model, context = load_model(copy.path / "model.safetensors")
    assert context["inputs"]["quarters"] is not None
    total = np.average(result.table["level_mean_log10"], weights=result.table["tiles"])
    import xarray as xr

    with xr.open_dataset(copy.path / "grid.nc", engine="h5netcdf") as grid:
        centre = np.nanmean(np.log10(grid["median_mbps"].to_numpy()))
    # The map's tiles are averages of 3 tests: its medians lie a shift below the level.
    assert abs(total - centre) < 0.2
    assert model.name == "field"


def test_intervals_are_joint(result, noisy):
    table = result.table.assign(**noisy.table.filter(like="tile_mean"))
    assert (table["level_mean_sd_log10"] > 1.3 * table["independent_sd_log10"]).all()
    for kind in ("level_mean", "tile_mean", "level_median", "level_arithmetic"):
        low, middle, high = (table[f"{kind}{end}_mbps"] for end in ("_lower", "", "_upper"))
        assert (low < middle).all()
        assert (middle < high).all()
    ratio = np.log10(table["level_mean_upper_mbps"] / table["level_mean_lower_mbps"])
    np.testing.assert_allclose(ratio, 2 * 1.959964 * table["level_mean_sd_log10"], rtol=1e-6)
    np.testing.assert_allclose(table["level_mean_mbps"], 10 ** table["level_mean_log10"])


def test_noise_widens_and_an_arithmetic_mean_is_above_the_geometric(result, noisy):
    table = result.table
    assert (noisy.table["tile_mean_sd_log10"] > table["level_mean_sd_log10"]).all()
    # Each table answers one question.
    assert not [name for name in table if "tile_mean" in name]
    assert not [name for name in noisy.table if "level" in name]
    assert (table["level_arithmetic_mbps"] > table["level_mean_mbps"]).all()


def test_draws_agree_with_the_exact_law(result):
    table = result.table
    # The median over tiles of a nearly symmetric field is near its mean.
    gap = np.abs(np.log10(table["level_median_mbps"]) - table["level_mean_log10"])
    assert (gap < 0.15).all()


def test_the_files_hold_the_table(result, copy):
    csv, package, parquet, told, raster, png = result.files
    assert [path.name for path in result.files] == [
        f"areas_halves_download_level_2023Q4.{end}"
        for end in ("csv", "gpkg", "parquet", "json", "tif", "png")
    ]
    with rasterio.open(raster) as opened:
        found, meanings = opened.read(1), opened.tags(1)["flag_meanings"].split()
        tags = opened.tags()
    attribution = run_json(copy)["attribution"]
    assert tags["attribution"] == attribution
    assert pyogrio.read_info(package)["layer_metadata"] == {"attribution": attribution}
    held = pq.read_schema(parquet).metadata[b"geogp"]
    assert json.loads(held) == {"attribution": attribution}
    assert json.loads(result.files[3].read_text("utf-8"))["attribution"] == attribution
    assert meanings == list(result.table["area"])
    assert [(found == k + 1).sum() for k in range(len(meanings))] == list(result.table["tiles"])
    described = json.loads(told.read_text("utf-8"))
    assert described["by"] == result.described["by"]
    assert [row["area"] for row in described["areas"]] == list(result.table["area"])
    report, links = ((copy.path / name).read_text("utf-8") for name in ("report.html", "map.html"))
    assert f'<div id="{csv.stem}">' in report
    assert f'href="report.html#{csv.stem}"' in links
    assert f'"id":"{csv.stem}"' in links
    assert f"{csv.stem} is not on this map" not in links
    assert damaged_files(copy.path, read_run_record(copy.path)[1]) == []
    read = pd.read_csv(csv)
    assert set(read.pop("quarter")) == {result.described["at"]}
    assert set(read.pop("tests_per_tile")) == {result.described["tests_per_tile"]}
    pd.testing.assert_frame_equal(read, result.table.reset_index(drop=True))
    table = gpd.read_parquet(parquet)
    assert table.crs.to_epsg() == 4326
    assert not table.geometry.is_empty.any()
    assert list(table["area"]) == list(result.table["area"])
    again = gpd.read_file(package)
    assert again.geometry.geom_equals_exact(table.geometry, 1e-9).all()
    np.testing.assert_allclose(again["level_mean_log10"], table["level_mean_log10"])
    with Image.open(png) as image:
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 20


def test_the_run_stays_what_it_was(result, copy, small):
    assert run_map(small.request(copy.path, split="both")).already_there


def test_more_tests_vary_less(copy, halves, noisy):
    asked = {"by": f"{halves}:side", "question": "tile-mean"}
    more = make_answer(AreasRequest(copy.path, tests=50, **asked))
    assert (more.table["tile_mean_sd_log10"] < noisy.table["tile_mean_sd_log10"]).all()
    assert (more.described["tests_per_tile"], noisy.described["tests_per_tile"]) == (50, 3)


def test_later_than_the_data_is_less_sure(copy, halves, result):
    later = make_answer(AreasRequest(copy.path, by=f"{halves}:side", draws=200, at="2025Q4"))
    assert (later.table["level_mean_sd_log10"] > 1.01 * result.table["level_mean_sd_log10"]).all()
    assert later.described["at"] == "2025Q4"
    assert not {path.name for path in later.files} & {path.name for path in result.files}
    assert any("the data end in 2023Q4" in text for text in later.described["warnings"])


def test_urban_areas_leave_tiles_elsewhere(copy):
    found = make_answer(AreasRequest(copy.path, by="urban", draws=200))
    assert found.described["tiles_elsewhere"] > 0
    assert found.files[0].name == "areas_urban_download_level_2023Q4.csv"
    towns = gpd.read_parquet(found.files[2])
    assert (towns["far_share"] == 0).all()
    assert set(towns["rank"]) == set(range(1, len(towns) + 1))
    assert (towns["rank_lower"] <= towns["rank"]).all()
    assert (towns["rank"] <= towns["rank_upper"]).all()


def test_strata_are_areas(copy):
    found = make_answer(AreasRequest(copy.path, by="stratum", draws=200))
    table = found.table.set_index("key")
    assert list(table.index) == ["all", "urban", "rural"]
    assert table["tiles"]["all"] == table["tiles"]["urban"] + table["tiles"]["rural"]
    mean = np.average(table["level_mean_log10"][1:], weights=table["tiles"][1:])
    assert table["level_mean_log10"]["all"] == pytest.approx(mean)
    assert "rank" not in table
    shapes = gpd.read_parquet(found.files[2]).to_crs(3857).area
    assert shapes[0] == pytest.approx(shapes[1] + shapes[2], rel=1e-6)


def test_hexagons_are_areas(copy):
    h3 = pytest.importorskip("h3")
    found = make_answer(AreasRequest(copy.path, by="h3:4", draws=200))
    table = gpd.read_parquet(found.files[2])
    assert found.files[0].name == "areas_h3-4_download_level_2023Q4.csv"
    assert table["tiles"].sum() == run_json(copy)["map"]["tiles"]
    assert {h3.get_resolution(key) for key in table["key"]} == {4}
    with pytest.raises(RequestError, match=r"expected h3: and a resolution from 0 to 15, found"):
        make_answer(AreasRequest(copy.path, by="h3:16"))


@pytest.mark.trial
def test_a_model_without_tiles(plain, halves, tmp_path):
    shutil.copytree(plain.path, tmp_path / "run")
    found, means = (
        make_answer(
            AreasRequest(tmp_path / "run", by=f"{halves}:side", draws=200, question=question)
        )
        for question in ("level", "tile-mean")
    )
    sds = found.described["function_sd"]
    assert sds["stated"] != sds["closed_form"]
    assert (means.table["tile_mean_sd_log10"] > found.table["level_mean_sd_log10"]).all()


class TestCommand:
    def test_it_prints_a_table_where_names_are_no_markup(self, geogp, copy, halves, tmp_path):
        odd = gpd.read_parquet(halves).assign(side=["Ward [/3]", "[bold]east", "far"])
        odd.to_parquet(tmp_path / "odd.parquet")
        by = f"{tmp_path / 'odd.parquet'}:side"
        code, out, _ = geogp("areas", copy.path, "--by", by, "--for", "tile-mean", "--tests", 5)
        assert code == 0
        assert out.startswith("These values are means of 5 tests from 3 devices in each tile, with")
        assert "geometric mean over the tiles" in " ".join(out.split())
        assert "areas_odd_download_tile-mean_2023Q4.csv" in out
        assert "[/3]" in out
        assert "[bold]" in out

    def test_json_is_all_there_is(self, geogp, copy, halves, result):
        code, out, _ = geogp(
            "areas", copy.path, "--by", f"{halves}:side", "--draws", 1000, "--json"
        )
        told = json.loads(out)
        assert code == 0
        expected = result.described
        assert told["areas"] == expected["areas"]
        assert told["mean"] == "geometric: of log10, over tiles"

    def test_no_run(self, geogp, tmp_path):
        code, _, told = geogp("areas", tmp_path)
        assert code == 2
        assert "is not a finished run" in told


def test_two_columns_of_a_file_make_two_sets_of_files(copy, halves, tmp_path):
    path = tmp_path / "halves.parquet"
    table = gpd.read_parquet(halves)
    table.assign(**{"kind/5 %": ["=1+1", "=1+1", "b"]}).to_parquet(path)
    made = [
        make_answer(AreasRequest(copy.path, by=f"{path}:{column}", draws=200))
        for column in ("side", "kind/5 %")
    ]
    assert [result.files[0].name for result in made] == [
        f"areas_halves_{column}_download_level_2023Q4.csv" for column in ("side", "kind%2F5%20%25")
    ]
    labels = [list(pd.read_csv(result.files[0])["area"]) for result in made]
    assert labels == [["east", "west"], ["'=1+1"]]  # a spreadsheet would add
    assert list(gpd.read_parquet(made[1].files[2])["area"]) == ["=1+1"]


@pytest.mark.parametrize(
    ("by", "layer", "expected"),
    [
        ("county", PolygonLayer("county", (), ()), "county"),
        ("urban", PolygonLayer("urban area", (), ()), "urban"),
        ("county.gpkg:NAME", PolygonLayer("county", (), ()), "county_file"),
        ("county.gpkg:NAME", PolygonLayer("county", (), (), column="NAME"), "county_NAME"),
        ("stratum.gpkg", PolygonLayer("stratum", (), ()), "stratum_file"),
        ("whole region.gpkg", PolygonLayer("whole region", (), ()), "whole region_file"),
    ],
)
def test_no_file_is_named_like_those_of_the_boundaries(by, layer, expected):
    assert tag_of(by, layer) == expected


def test_tiles_in_more_than_one_area_are_counted(copy, small, halves, result, tmp_path):
    table = gpd.read_parquet(halves)
    west, east = table.geometry[:2]
    path = tmp_path / "twice.parquet"
    names = {"side": ["whole", "east"]}
    gpd.GeoDataFrame(names, geometry=[west.union(east), east], crs=4326).to_parquet(path)
    assert not any("overlap" in text for text in result.described["warnings"])
    found = make_answer(AreasRequest(copy.path, by=f"{path}:side", draws=200))
    tiles = dict(zip(result.table["area"], result.table["tiles"], strict=True))
    said = f"{tiles['east']:,} of {sum(tiles.values()):,} tiles lie in more than one"
    assert any(said in text for text in found.described["warnings"])
    assert list(found.table["area"]) == ["whole"]
    listener = RunListener()
    inputs = read_inputs(small.request(tmp_path / "run", layers=(f"{path}:side",)), listener)
    inside = (inputs.observations.longitude > east.bounds[0]).sum()
    said = f"{inside:,} of 1,500 rows lie in more than one"
    assert any(said in text for text in listener.warnings)


@pytest.mark.trial
def test_a_run_is_opened_and_continued_from_another_folder(small, halves, tmp_path, monkeypatch):
    """Folders and files as typed relative to where the run was made."""

    def request():
        there = os.path.relpath(small.folder)
        return replace(
            small.request(tmp_path / "run", model="dbk-silu", epochs=1),
            source=there,
            boundaries=f"{there}/boundaries",
            layers=(f"{os.path.relpath(halves)}:side",),
        )

    monkeypatch.chdir(small.folder.parent)
    made = run_map(request())
    settings = run_json(made)["settings"]
    assert settings["data"]["source"] == str(small.folder.resolve())
    assert settings["where"]["boundaries"] == str(small.folder.resolve() / "boundaries")
    assert settings["checks"]["layers"] == [f"{halves.resolve()}:side"]
    monkeypatch.chdir(tmp_path)
    assert len(make_answer(AreasRequest(made.path, by="urban")).table)
    assert run_map(request()).already_there


class TestRefusals:
    @pytest.fixture
    def edited(self, copy, tmp_path):
        """A copy of the run whose run.json is changed."""
        return lambda change: edited_copy(copy.path, tmp_path / "edited", change)

    def test_changed_files(self, edited):
        folder = edited(lambda run: run["inputs"][-1].update(sha256="0" * 64))
        with pytest.raises(
            DataError, match=r"tiles\.parquet changed or appeared since .* was made"
        ):
            make_answer(AreasRequest(folder, by="urban"))

    def test_a_run_of_another_version(self, edited):
        folder = edited(lambda run: run["settings"]["checks"].pop("conformal"))
        with pytest.raises(DataError, match=r"required field `conformal` - .*\.checks`"):
            make_answer(AreasRequest(folder, by="urban"))

    def test_a_layer_may_be_called_like_a_file_of_the_boundaries(self, edited):
        def add_layer(run):
            layer = dict(run["inputs"][0], sha256="0" * 64)
            assert layer["name"] == "states.parquet"
            run["inputs"].insert(1, layer)

        assert len(make_answer(AreasRequest(edited(add_layer), by="urban")).table)

    def test_counts(self, edited):
        folder = edited(lambda run: run.update(model="cox-nb", target="tests"))
        with pytest.raises(RequestError, match="is the number of tests, which has no level"):
            make_answer(AreasRequest(folder, by="urban"))

    def test_rows_that_cannot_be_told(self, edited, halves):
        folder = edited(lambda run: run.update(seed=5, model="dbk-silu"))
        context = load_model(folder / "model.safetensors")[1]
        del context["estimator"], context["params"]  # of the field model
        sizes = Architecture(d=3, h=4, r=4, blocks=0, columns=("longitude", "latitude", "quarter"))
        plain = build("dbk-silu", sizes, None)
        save_model(plain, folder / "model.safetensors", context)
        with pytest.raises(DataError, match="expected the training rows of dbk-silu"):
            make_answer(AreasRequest(folder, by=f"{halves}:side"))

    def test_no_such_layer(self, copy):
        with pytest.raises(RequestError, match="contain no county areas"):
            make_answer(AreasRequest(copy.path))
        with pytest.raises(
            RequestError, match=r"unknown --by 'nothing\.shp', and there is no such file; choose"
        ):
            make_answer(AreasRequest(copy.path, by="nothing.shp"))

    def test_areas_without_tiles(self, copy, tmp_path):
        path = tmp_path / "far.parquet"
        gpd.GeoDataFrame({"NAME": ["far"]}, geometry=[box(10, 10, 11, 11)], crs=4326).to_parquet(
            path
        )
        with pytest.raises(RequestError, match=r"no tile of .* lies in an area"):
            make_answer(AreasRequest(copy.path, by=str(path)))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"question": "single"}, "unknown --for 'single'; choose one of level, tile-mean"),
            ({"tests": 0}, "expected tests from 1 to 1,000,000, found 0"),
            ({"draws": 50}, "expected draws from 200 to 100,000, found 50"),
            ({"seed": -1}, "expected a seed from 0 to"),
        ],
    )
    def test_requests_out_of_range(self, tmp_path, changes, message):
        with pytest.raises(RequestError, match=message):
            AreasRequest(tmp_path, **changes)

"""A region of the user's own through the commands: mapped, opened again, fetched, simulated."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from run_worlds import run_json
from shapely.geometry import box

from geogp.answers.make import make_answer
from geogp.answers.requests import AreasRequest, NextRequest
from geogp.answers.run import open_run
from geogp.commands.data_requests import FetchRequest
from geogp.commands.fetch import fetch
from geogp.errors import DataError, RequestError
from geogp.geodata.places.region_choice import RegionChoice
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_names import find_run
from geogp_cli.entry import run as command


def _middle(small):
    """Return the region's west, up to the middle."""
    states = gpd.read_parquet(small.folder / "boundaries" / "states.parquet")
    west, south, east, north = states.total_bounds
    return box(west - 1, south - 1, (west + east) / 2, north + 1)


@pytest.fixture(scope="module")
def own(small, tmp_path_factory):
    """A file whose first row is the west of the region; the second lies far away."""
    path = tmp_path_factory.mktemp("own") / "my west.geojson"
    shapes = [_middle(small), box(10, 10, 11, 11)]
    gpd.GeoDataFrame({"side": ["west", "far"]}, geometry=shapes, crs=4326).to_file(path)
    return path


def _request(small, own, out=None, **changes):
    settings = {"preset": "quick", "epochs": 2, "zoom": 12, "quarters": "2023Q4", **changes}
    return MapSettings(
        source=str(small.folder), region_file=f"{own}:side=west", out=out, **settings
    )


@pytest.fixture(scope="module")
def made(small, own, tmp_path_factory):
    out = tmp_path_factory.mktemp("own-run") / "run"
    borders = str(small.folder / "boundaries")
    request = MapSettings(
        source=str(small.folder),
        boundaries=borders,
        region_file=f"{own}:side=west",
        region_name="The <West>",
        preset="quick",
        epochs=2,
        zoom=12,
        split="random",
        out=out,
    )
    return run_map(request)


@pytest.mark.trial
def test_the_run_says_where_its_region_is_from(made, own):
    run = run_json(made)
    assert (run["region"], run["region_name"]) == ("The_West", "The <West>")
    settings = run["settings"]["where"]
    assert settings["region_file"] == f"{own.resolve()}:side=west"
    assert settings["region_name"] == "The <West>"
    inputs = {file["name"]: file for file in run["inputs"]}
    assert inputs["my west.geojson"] == {
        "name": "my west.geojson",
        "sha256": hashlib.sha256(own.read_bytes()).hexdigest(),
        "rows": 2,
        "rows_used": 1,
    }
    assert "urban_areas_DEMO.parquet" in inputs


@pytest.mark.trial
def test_urban_areas_that_touch_are_its_strata(made, small):
    rows = pd.read_parquet(made.path / "test_predictions.parquet")
    assert set(rows["stratum"]) == {"urban", "rural"}
    assert rows["longitude"].max() < _middle(small).bounds[2]
    assert run_json(made)["settings"]["where"]["urban_vintage"] == "2020"


@pytest.mark.trial
def test_a_name_of_the_users_is_never_read_as_html(made):
    for name in ("map.html", "report.html"):
        text = (made.path / name).read_text()
        assert "West" in text
        assert "<West>" not in text


@pytest.mark.trial
def test_the_run_is_opened_again(made):
    opened = open_run(made.path).reopen()
    assert opened.inputs.region.code == "The_West"
    assert len(opened.tiles) == run_json(made)["map"]["tiles"]
    table = make_answer(AreasRequest(made.path, by="urban", draws=200)).table
    assert len(table) > 0
    chosen = make_answer(NextRequest(made.path, tiles=3, among="urban"))
    assert set(chosen.table["stratum"]) == {"urban"}


@pytest.mark.trial
def test_a_file_that_changed_is_said(small, own, made, tmp_path):
    other = tmp_path / own.name
    shutil.copytree(made.path, tmp_path / "run")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    gpd.read_file(own).assign(more=1).to_file(other)
    run["settings"]["where"]["region_file"] = f"{other}:side=west"
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match=r"my west.geojson changed or appeared since"):
        open_run(tmp_path / "run").reopen()


@pytest.mark.trial
def test_without_boundaries_there_are_no_strata_and_the_folder_is_a_slug(
    small, own, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = run_map(_request(small, own))
    assert result.path.name == "my_west-mobile-download-field-quick"
    assert find_run("my_west") == result.path
    rows = pd.read_parquet(result.path / "test_predictions.parquet")
    assert set(rows["stratum"]) == {"unknown"}
    assert run_json(result)["settings"]["where"]["boundaries"] is None
    again = run_map(_request(small, own))
    assert again.already_there
    with pytest.raises(RequestError, match=r"differs in .*settings"):
        run_map(_request(small, own, out=result.path, region_name="Other"))
    with pytest.raises(
        RequestError, match="no boundaries were given, so there are no county areas"
    ):
        make_answer(AreasRequest(result.path))


def test_a_region_without_tiles_is_refused(small, own):
    request = _request(small, own)
    far = MapSettings(source=request.source, region_file=f"{own}:side=far")
    with pytest.raises(DataError, match=r"no .*my west"):
        run_map(far)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["map"], "expected a region, such as PR, or --region-file .* found neither"),
        (["map", "PR", "--region-file", "a.geojson"], "found both PR and a.geojson"),
        (["map", "PR", "--region-name", "x"], "--region-name x is only for a --region-file"),
        (["fetch"], "found neither"),
        (["fetch", "PR", "--region-file", "a.geojson"], "found both"),
        (["simulate", "--out", "x", "--region-name", "y"], "found neither"),
        (["simulate", "--out", "x", "--like", "PR", "--region-file", "a"], "found both"),
        (["map", "PR", "--urban-vintage", "1990"], "unknown vintage of urban areas '1990'"),
        (
            ["map", "--region-file", "a.geojson", "--urban-vintage", "2020"],
            "chooses among the urban areas in --boundaries",
        ),
    ],
)
def test_just_one_region_is_asked_for(monkeypatch, capsys, words, told, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["geogp", *words])
    with pytest.raises(SystemExit) as left:
        command()
    assert left.value.code == 2
    assert pd.Series([capsys.readouterr().err]).str.contains(told).all()


def test_an_own_region_is_fetched_by_its_shape(small, own):
    with pytest.raises(RequestError, match="is a folder on this machine"):
        fetch(FetchRequest(region_file=str(own), source=str(small.folder)))


def test_an_own_region_is_simulated_and_mapped_under_its_code(own, tmp_path, monkeypatch, capsys):
    out = tmp_path / "made"
    words = ["simulate", "--out", str(out), "--region-file", f"{own}:side=west"]
    words += ["--region-name", "a/b c", "--rows", "400", "--quarters", "2023Q4", "--json"]
    monkeypatch.setattr(sys, "argv", ["geogp", *words])
    with pytest.raises(SystemExit) as left:
        command()
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["region"] == "a_b_c"
    found = RegionChoice("a_b_c", boundaries=str(out / "boundaries")).read()
    assert found.region.name == "a/b c"


CASES = Path(__file__).parents[2] / "fixtures" / "cases"


@pytest.fixture(scope="module")
def caguas(tmp_path_factory):
    """A map of a shapefile without a CRS, from tests around the town."""
    random, n = np.random.default_rng(0), 400
    longitude, latitude = random.uniform((-66.19, 18.11), (-65.96, 18.34), (n, 2)).T
    table = pd.DataFrame({"time": "2023-08-01", "lat": latitude, "lon": longitude})
    folder = tmp_path_factory.mktemp("caguas")
    table["download_mbps"] = 10 ** (1 + 0.2 * random.standard_normal(n))
    table.to_csv(folder / "drive.csv", index=False)
    more = "--points", folder / "drive.csv", "--preset", "quick", "--epochs", 1, "--zoom", 12
    return "map", *more, "--out", folder / "run"


@pytest.mark.parametrize("name", ["m", "deg"])
def test_the_command_asks_for_the_crs_of_a_shapefile(geogp, caguas, name):
    shape = CASES / "41-shapefile-without-prj" / f"{name}.shp"
    code, _, told = geogp(*caguas, "--region-file", shape)
    assert (code, told.count("Give the CRS with --crs.")) == (3, 1)


@pytest.mark.trial
def test_the_crs_of_the_user_is_recorded_and_used_again(geogp, caguas):
    shape = CASES / "41-shapefile-without-prj" / "m.shp"
    code, _, told = geogp(*caguas, "--region-file", shape, "--crs", "EPSG:32161")
    assert code == 0, told
    run = caguas[-1]
    settings = json.loads((run / "run.json").read_text())["settings"]
    assert settings["where"]["crs"] == "EPSG:32161"
    asked = "areas", run, "--draws", 200, "--json", "--by"
    code, out, _ = geogp(*asked, "stratum")
    assert (code, json.loads(out)["areas"][0]["area"]) == (0, "m")
    code, _, told = geogp(*asked, shape)
    assert (code, "Give the CRS with --crs." in told) == (3, True)
    code, out, _ = geogp(*asked, shape, "--crs", "EPSG:32161")
    assert (code, json.loads(out)["areas"][0]["area"]) == (0, "Caguas")
    code, _, told = geogp(*asked, CASES / "51-mixed-geometries" / "mixed.geojson")
    assert code == 0
    assert "1 of 2 rows have no polygon, and are left out: row 2 (admin centre): Point" in told


@pytest.mark.trial
@pytest.mark.parametrize("name", ["mixed", "collection"])
def test_polygons_among_other_shapes_are_mapped(geogp, caguas, name, tmp_path):
    path = CASES / "51-mixed-geometries" / f"{name}.geojson"
    code, _, told = geogp(*caguas[:-1], tmp_path / "run", "--region-file", path)
    assert code == 0, told
    assert ("warning" in told and "row 2 (admin centre): Point" in told) == (name == "mixed")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert any("admin centre" in text for text in run["warnings"]) == (name == "mixed")


def test_a_crs_without_a_file_is_refused(geogp, small):
    code, _, told = geogp(*small.arguments, "--crs", "EPSG:4326")
    assert (code, "but there is no --region-file, --strata or --layer" in told) == (2, True)

"""Strata of the user's own through a whole run: report, page, cells, shares, tables."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import run_json
from shapely.geometry import box

from geogp.answers.make import make_answer, make_answers
from geogp.answers.pages import remake_report
from geogp.answers.requests import ExceedanceRequest, FiguresRequest, NextRequest
from geogp.answers.run import open_run
from geogp.commands.compare_runs import compare_runs
from geogp.commands.paper_figures import make_figures
from geogp.errors import RequestError
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.trial

NAMES = ("The <West> & co", "east")


@pytest.fixture(scope="module")
def sides(small, tmp_path_factory):
    states = gpd.read_parquet(small.folder / "boundaries" / "states.parquet")
    west, south, east, north = states.total_bounds
    middle = (west + east) / 2
    shapes = [
        box(west - 1, south - 1, middle, north + 1),
        box(middle, south - 1, east + 1, north + 1),
    ]
    path = tmp_path_factory.mktemp("sides") / "sides.geojson"
    gpd.GeoDataFrame({"side": NAMES}, geometry=shapes, crs=4326).to_file(path)
    return path, middle


@pytest.fixture(scope="module")
def made(small, sides, tmp_path_factory):
    out = tmp_path_factory.mktemp("strata") / "run"
    request = small.request(
        out, strata=f"{sides[0]}:side", conformal="strata", split="random", folds=2
    )
    return run_map(request)


def test_every_figure_is_by_the_users_strata(made, sides):
    run = run_json(made)
    assert run["settings"]["where"]["strata_names"] == list(NAMES)
    assert run["settings"]["where"]["strata"] == f"{sides[0].resolve()}:side"
    assert run["settings"]["where"]["urban_vintage"] == "auto"
    assert list(run["metrics"]["random"]) == ["all", *NAMES]
    assert "sides.geojson" in {file["name"] for file in run["inputs"]}
    rows = pd.read_parquet(made.path / "test_predictions.parquet")
    assert not isinstance(rows["stratum"].dtype, pd.CategoricalDtype)
    west = rows["longitude"] < sides[1]
    assert (rows["stratum"] == np.where(west, *NAMES)).all()
    report = json.loads((made.path / "report.json").read_text())
    split = report["splits"]["random"]
    assert list(split["groups"]) == ["all", *NAMES]
    assert [one["name"] for one in split["strata"] if one["kind"] == "stratum"] == list(NAMES)
    assert "in stratum east" in report["headline"]
    assert "town" not in report["headline"]


def test_cells_of_the_repair_are_those_of_the_strata(made):
    cells = run_json(made)["calibration"]["cells"]
    assert {cell["stratum"] for cell in cells} <= {*NAMES, "all"}
    assert sum(cell["n"] for cell in cells) > 0


def test_names_are_escaped_everywhere(made):
    for name in ("report.html", "map.html"):
        text = (made.path / name).read_text()
        assert "<West>" not in text
        assert "West" in text
    remake_report(made.path, latex=True)
    assert r"West\textgreater{} \& co" in (made.path / "report.tex").read_text()
    markdown = (made.path / "report.md").read_text()
    assert (
        "Median width in stratum east divided by median width in stratum The &lt;West" in markdown
    )


def test_rasters_and_tables_tell_the_strata(made, sides):
    grid = xr.open_dataset(made.path / "grid.nc")
    assert "urban" not in grid
    told = grid["stratum"].attrs
    assert (told["first_stratum"], told["second_stratum"]) == NAMES
    assert told["flag_meanings"] == "east The__West____co"
    table = pd.read_parquet(made.path / "tiles.parquet")
    assert (table["stratum"] == np.where(table["longitude"] < sides[1], *NAMES)).all()


def test_commands_on_the_run_take_the_strata(made, tmp_path):
    opened = open_run(made.path).reopen()
    assert opened.inputs.region.strata_names == NAMES
    shares = make_answers(ExceedanceRequest(made.path, threshold=(20.0,), draws=200))
    told = shares[0].content["share_falling_short"]
    assert {row["area"] for row in told} >= set(NAMES)
    chosen = make_answer(NextRequest(made.path, tiles=3, among="east"))
    assert set(chosen.table["stratum"]) == {"east"}
    with pytest.raises(RequestError, match="unknown --among 'urban'; choose one of The <West>"):
        make_answer(NextRequest(made.path, tiles=3, among="urban"))
    made_figures = make_figures(FiguresRequest(made.path, (), tmp_path / "figures", device="cpu"))
    assert made_figures.files


def test_runs_of_other_strata_are_compared_by_the_first(made, finished, tmp_path):
    found = compare_runs([made.path, finished.path], out=tmp_path / "c", reference=None)
    assert list(found.splits["random"].strata) == ["all", *NAMES]
    assert any("strat" in note for note in found.notes)


def test_cells_need_every_tile_in_a_stratum(small, sides, tmp_path):
    table = gpd.read_file(sides[0])
    table["geometry"] = [table.geometry[0], table.geometry[1].buffer(-0.3)]
    path = tmp_path / "gap.geojson"
    table.to_file(path)
    request = small.request(tmp_path / "run", strata=f"{path}:side", conformal="strata")
    with pytest.raises(RequestError, match="needs the stratum of every tile, but"):
        run_map(request)


def test_gaps_are_of_unknown_stratum(small, sides, tmp_path):
    path = tmp_path / "gap.geojson"
    table = gpd.read_file(sides[0])
    table["geometry"] = [table.geometry[0], table.geometry[1].buffer(-0.1)]
    table.to_file(path)
    run = run_map(small.request(tmp_path / "run", strata=f"{path}:side", split="random"))
    rows = pd.read_parquet(run.path / "test_predictions.parquet")
    assert set(rows["stratum"]) == {*NAMES, "unknown"}
    assert any("lies in neither stratum" in text for text in run_json(run)["warnings"])
    table = pd.read_parquet(run.path / "tiles.parquet")
    assert set(table["stratum"]) == {*NAMES, "unknown"}

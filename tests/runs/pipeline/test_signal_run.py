"""A map of RSRP from the file to the answers, against the simulated truth, all in decibels."""

import json
import re

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from run_worlds import run_json
from scipy.stats import norm
from shapely.geometry import box

from geogp.answers.make import make_answer, make_answers
from geogp.answers.requests import AreasRequest, ChangeRequest, ExceedanceRequest, NextRequest
from geogp.answers.run import open_run
from geogp.errors import RequestError
from geogp.maps.page.packing import unpack
from geogp.models.fitting import few_rows
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

WEST, EAST, SOUTH, NORTH = -66.5, -66.3, 18.0, 18.15
NOISE, ROSE, THRESHOLD = 4.0, 3.0, -100.0


def level(longitude, latitude):
    """Return the true level in the last quarter: from -120 dBm in the west to -80 in the east."""
    return -120 + 40 * (longitude - WEST) / (EAST - WEST) + 4 * np.cos(40 * latitude)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, random, n = tmp_path_factory.mktemp("signal"), np.random.default_rng(0), 2400
    longitude, latitude = random.uniform((WEST, SOUTH), (EAST, NORTH), (n, 2)).T
    days = random.uniform(0, 183, n)
    values = level(longitude, latitude) + NOISE * random.standard_normal(n) - ROSE * (days < 92)
    table = pd.DataFrame(
        {
            "time": pd.Timestamp("2023-07-01") + pd.to_timedelta(days, unit="D"),
            "lat": latitude,
            "lon": longitude,
            "RSRP (dBm)": values.round(1),
        }
    )
    table.to_csv(folder / "own.csv", index=False)
    halves = [box(WEST, SOUTH, -66.4, NORTH), box(-66.4, SOUTH, EAST, NORTH)]
    frame = gpd.GeoDataFrame({"side": ["west", "east"]}, geometry=halves, crs=4326)
    frame.to_file(folder / "halves.gpkg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "FOLDS", 3)
        yield run_map(request(folder), wait=True)


def request(folder, **changes):
    given = {"target": "signal", "threshold": (THRESHOLD,), "zoom": 15, "out": folder / "run"}
    given |= {"preset": "quick", "epochs": 4, "self_contained": True} | changes
    return MapSettings(points=str(folder / "own.csv"), **given)


@pytest.fixture(scope="module")
def mapped(run):
    """The tiles of the map, with the true level at their centres."""
    tiles = pd.read_parquet(run.path / "tiles.parquet")
    inside = tiles["longitude"].between(WEST, EAST) & tiles["latitude"].between(SOUTH, NORTH)
    tiles = tiles[inside]
    return tiles.assign(truth=level(tiles["longitude"], tiles["latitude"]))


def test_the_run_says_the_kind_and_its_values_in_decibels(run):
    told = run_json(run)
    assert told["target"] == "rsrp"
    assert told["drawing"]["thresholds"] == [THRESHOLD]
    rows = pd.read_parquet(run.path / "test_predictions.parquet")
    assert -130 < rows["y"].min() < rows["y"].max() < -65
    scores = told["metrics"]["random"]["all"]
    assert scores["mae"] < 1.2 * NOISE
    assert scores["width_95"] == pytest.approx(2 * 1.96 * NOISE, rel=0.25)


def test_the_same_request_finds_the_run_and_a_wrong_threshold_is_refused(run):
    assert run_map(request(run.path.parent)).already_there
    with pytest.raises(RequestError, match="from -156 to -31 dBm, found -20"):
        run_map(request(run.path.parent, threshold=(-20.0,)))


def test_the_grid_has_decibels(run):
    with xr.open_dataset(run.path / "grid.nc") as grid:
        units = {name: variable.attrs.get("units") for name, variable in grid.data_vars.items()}
        names = " ".join(
            variable.attrs.get("long_name", "") for variable in grid.data_vars.values()
        )
    ends = ("median", "mean", "lower", "upper")
    assert {units[f"{end}_dbm"] for end in ends} == {"dBm"}
    spreads = ("width", "function_sd", "field_sd", "tile_sd", "noise_sd")
    assert {units[f"{spread}_db"] for spread in spreads} == {"dB"}
    assert units["p_at_least_minus_100_dbm"] == "1"
    assert not re.search("log10|Mbps", names + " ".join(units))


def test_predictions_hold_for_the_truth(mapped):
    off = mapped["median_dbm"] - mapped["truth"]
    assert np.sqrt(np.mean(off**2)) < NOISE / 2
    new = mapped["truth"] + NOISE * np.random.default_rng(1).standard_normal(len(mapped))
    inside = (new > mapped["lower_dbm"]) & (new < mapped["upper_dbm"])
    assert 0.9 < inside.mean() < 0.995
    exact = norm.sf((THRESHOLD - mapped["truth"]) / NOISE)
    assert np.abs(mapped["p_at_least_minus_100_dbm"] - exact).mean() < 0.06


def in_page(run, name):
    page = (run.path / "map.html").read_text()
    return json.loads(re.search(rf'id="geogp-{name}">(.*?)</script>', page, re.DOTALL)[1])


def test_report_and_page_speak_of_decibels(run):
    report = (run.path / "report.md").read_text()
    assert "Errors, scores and widths are in dB." in report
    assert "at least -100 dBm" in report
    assert "-115 to -105 dBm" in report or "below -115 dBm" in report
    data = in_page(run, "data")
    assert data["linear"] is True
    assert (data["unit"], data["subject"], data["threshold"]["shown"]) == ("dBm", "RSRP", THRESHOLD)
    assert all(float(value).is_integer() for value in data["threshold"]["values"])
    assert {layer["group"] for layer in data["layers"]} >= {"How strong", "What changed"}
    assert {layer["unit"] for layer in data["layers"]} <= {"dBm", "dB", "dB²", "tests", ""}
    middle = unpack(data["quantiles"][data["levels"].index(0.5)])
    with xr.open_dataset(run.path / "grid.nc") as grid:
        median = grid["median_dbm"].to_numpy()
    np.testing.assert_allclose(middle, median, atol=data["steps"]["quantile_db"])
    measured = unpack(data["measured"])
    assert -130 < np.nanmin(measured) < np.nanmax(measured) < -65
    for text in (report, json.dumps(data)):
        assert not re.search(r"log10|Mbps|How fast|geometric|as a factor|tenfold", text)


@pytest.fixture(scope="module")
def opened(run):
    return open_run(run.path)


def halves(run):
    return str(run.path.parent / "halves.gpkg") + ":side"


def test_areas_have_the_true_mean_of_decibels(run, opened, mapped):
    table = opened.areas(by=halves(run)).set_index("area")
    truth = mapped.groupby(np.where(mapped["longitude"] < -66.4, "west", "east"))["truth"].mean()
    for side in ("west", "east"):
        assert table.loc[side, "level_mean_dbm"] == pytest.approx(truth[side], abs=1)
        assert table.loc[side, "level_mean_upper_dbm"] - table.loc[
            side, "level_mean_dbm"
        ] == pytest.approx(1.96 * table.loc[side, "level_mean_sd_db"], rel=1e-3)
    assert table.loc["east", "rank"] == 1
    assert not [name for name in table if "log10" in name or "arithmetic" in name]


def test_a_change_is_in_decibels(run, opened):
    table = opened.change(start="2023Q3", by=halves(run), at_least=1.0)
    # The networks of the map flatten changes a little.
    assert (np.abs(table["change_db"] - ROSE) < 2.5 * table["change_sd_db"]).all()
    ends = (
        table[["change_lower_db", "change_upper_db"]].to_numpy() - table[["change_db"]].to_numpy()
    )
    np.testing.assert_allclose(ends, 1.959964 * table[["change_sd_db"]].to_numpy() * [-1, 1])
    assert (table["direction"] == "rose").all()
    shown = table["level_to_dbm"] - table["level_from_dbm"]
    np.testing.assert_allclose(table["change_db"], shown, atol=1e-9)
    assert (table["probability_rose_at_least"] < table["probability_rose"] + 1e-12).all()
    assert not [name for name in table if "log10" in name or "percent" in name]


def test_shares_below_a_threshold_are_the_true_ones(opened, mapped):
    table = opened.exceedance(threshold=(THRESHOLD,))
    share = (mapped["truth"] < THRESHOLD).mean()
    assert table["mean"].iloc[0] == pytest.approx(share, abs=0.06)


def test_places_and_the_next_tiles_are_in_decibels(opened):
    table = opened.at([18.07], [-66.31])
    assert table["median_dbm"].iloc[0] == pytest.approx(level(-66.31, 18.07), abs=3)
    assert table["p_at_least_minus_100_dbm"].iloc[0] > 0.9
    following = opened.next(tiles=3)
    assert (following["sd_after_db"] < following["sd_before_db"]).all()
    assert following["level_dbm"].between(-130, -65).all()


def test_stored_answers_name_their_units(run):
    areas = make_answer(AreasRequest(run.path, by=halves(run)))
    change = make_answer(ChangeRequest(run.path, start="2023Q3", by=halves(run)))
    following = make_answer(NextRequest(run.path, tiles=3))
    (below,) = make_answers(ExceedanceRequest(run.path))
    assert below.title == "What is below -100 dBm, 2023Q4"
    assert {path.suffix for path in below.files if "minus_100_dbm" in path.name} >= {".csv", ".tif"}
    assert {answer.content["unit"] for answer in (areas, change)} == {"dBm"}
    assert areas.content["mean"] == "arithmetic: of decibels, over tiles"
    assert following.content["unit"].startswith("variance of the level in dB,")
    labels = {column.label for answer in (areas, change, following) for column in answer.columns}
    assert {
        *("level without noise, dBm", "level of the middle tile, dBm", "level 2023Q4, dBm"),
        "after, dB",
    } <= labels
    assert all(text.endswith(" dB") for row in change.texts for text in row[-4:-2])
    texts = json.dumps([[answer.content, answer.before] for answer in (areas, change, below)])
    assert not re.search(r"log10|Mbps|speed|geometric|percent|%\"", texts)
    with rasterio.open(run.path / "change_db_rsrp_2023Q3_2023Q4.tif") as raster:
        assert raster.units == ("dB",)
        assert np.nanmedian(raster.read(1)) == pytest.approx(ROSE, abs=1.5)
    answers = in_page(run, "answers")
    assert [layer["unit"] for layer in answers] == ["dBm", "dB", "dB"]
    change = next(layer for layer in answers if "tiles" in layer["source"])
    mean = unpack(change["source"]["tiles"]["mean"])
    assert np.nanmedian(mean) == pytest.approx(ROSE, abs=1.5)

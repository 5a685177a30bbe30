"""One question has one number, wherever a run answers it.

| question | of | asked of |
| --- | --- | --- |
| median and 95 % interval in the map's quarter | places | page, tiles.parquet, grid.nc, at |
| median and 95 % interval in another quarter | places | page, at |
| change of the median between the quarters | places | page, at |
| probability of the threshold | places | page, tiles.parquet, GeoTIFF, at |
| tests of all quarters | places | page, tiles.parquet, GeoTIFF |
| level in the map's quarter | places | page, tiles.parquet, grid.nc, GeoTIFF, at |
| change of the level between the quarters | places | page, GeoTIFF of change, at |
| mean level in each quarter | counties | page, report, areas, change, mean of at |
| change of the level between the quarters | counties | page, report, change, areas |
| mean of the map's medians in its quarter | counties | page, report, areas, change, tiles |
| mean of the map's medians in another quarter | counties | page, areas, change, mean of at |
| change of the map's medians between the quarters | counties | page, report, change |
| share in tiles whose median is below the threshold | counties | report, CSV, tiles.parquet |
| mean probability of a value below the threshold | counties | report, CSV, tiles.parquet |
| share of the area whose level is below the threshold | counties | report, CSV, without draws |

Each function of `ASKED` has the answers to one question, and the largest differences from the first
of them, which are those of rounding and of random draws.
"""

import html
import itertools
import json
import re
from pathlib import Path
from typing import NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from batch_worlds import leave_out_pictures, shorten_field_fits
from run_worlds import write_small
from shapely.geometry import box

from geogp.answers.make import make_answers
from geogp.answers.requests import AreasRequest, ChangeRequest, ExceedanceRequest
from geogp.answers.run import open_run
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.quadkeys import tile_areas_km2, tiles_at
from geogp.maps.page.packing import unpack
from geogp.maps.page.page_quantiles import probabilities, unpack_quantiles
from geogp.runs.pipeline.run_map import run_map

COUNTIES = ["Ash", "Beech", "Cedar", "Elm", "Fir"]
BEFORE, NOW = QUARTERS = ("2023Q3", "2023Q4")
THRESHOLD = 35
CHANGED = "The change of the level by county"
BAND = (0.025, 0.5, 0.975)


class World(NamedTuple):
    """The folder of a run, data of its page, its tiles, and ten of them."""

    folder: Path
    page: dict
    tiles: pd.DataFrame
    places: pd.DataFrame

    def pixels(self, frame):
        column, row = tiles_at(self.places["longitude"], self.places["latitude"])
        return np.asarray(row) - frame["row"], np.asarray(column) - frame["column"]

    def layer(self, start):
        (layer,) = [one for one in self.page["layers"] if one["id"].startswith(start)]
        return layer["source"]

    def raster(self, name):
        with rasterio.open(self.folder / f"{name}.tif") as raster:
            return raster.read(1)[self.pixels(self.page["frame"])]

    def at(self, **asked):
        """Return the answer of `geogp at` in both quarters, (10, 2) for each column."""
        places = self.places["latitude"], self.places["longitude"]
        table = open_run(self.folder).at(*places, quarters=",".join(QUARTERS), **asked)
        return {name: table[name].to_numpy().reshape(-1, 2) for name in table}

    def table(self, name):
        """Return the rows of the counties in the JSON file of an answer."""
        content = json.loads((self.folder / f"{name}.json").read_text("utf-8"))
        rows = pd.DataFrame(content.get("areas", content.get("share_falling_short")))
        return rows[rows["area"].isin(COUNTIES)].set_index("area").loc[COUNTIES]

    @property
    def change_of_counties(self):
        return self.table(f"change_county_download_{BEFORE}_{NOW}")

    def report(self, mark, column):
        """Return a column of numbers of the counties in the table of an answer in the report."""
        text = (self.folder / "report.md").read_text("utf-8")
        after = text[text.index(mark) :]
        head, *lines = itertools.takewhile(
            lambda line: line.startswith("|"), after[after.index("\n|") + 1 :].splitlines()
        )
        names = [html.unescape(name.strip()) for name in head.split("|")]
        cells = {line.split("|")[1].strip(): line.split("|") for line in lines}
        texts = [cells[name][names.index(column)] for name in COUNTIES]
        return np.array([float(re.search(r"[+-]?[\d.]+", text)[0]) for text in texts])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run with networks on tiles of zoom 16, in which all answers were asked."""
    folder = tmp_path_factory.mktemp("one")
    west, south, east, north = square = (-66.5, 18.0, -66.15, 18.3)
    town = box(west + 0.05, south + 0.05, west + 0.2, south + 0.2)
    region = Region.from_geometry("DEMO", "Demo", box(*square), town, 2020)
    small = write_small(folder / "source", region, rows=3600)
    edges = np.linspace(west, east, len(COUNTIES) + 1)
    shapes = [box(a, south, b, north) for a, b in itertools.pairwise(edges)]
    table = gpd.GeoDataFrame({"NAME": COUNTIES, "GEOID": list("12345")}, geometry=shapes, crs=4326)
    table.to_parquet(small.folder / "boundaries" / "counties_DEMO.parquet")
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)
        shorten_field_fits(patch)
        # Networks refine the predictions, as on larger regions.
        patch.setattr("geogp.models.field.fit.earns_covariates", lambda _: True)
        path = run_map(small.request(folder / "run", zoom=16)).path
        for quarter in QUARTERS:
            make_answers(AreasRequest(path, at=quarter, draws=200))
        make_answers(ChangeRequest(path, start=BEFORE, draws=200))
        make_answers(ExceedanceRequest(path, threshold=(THRESHOLD,), by="county", draws=2000))
    text = (path / "map.html").read_text("utf-8")
    page, layers = (
        json.loads(re.search(rf'id="geogp-{name}">(.*?)</script>', text, re.DOTALL)[1])
        for name in ("data", "answers")
    )
    page["layers"] += layers
    tiles = pd.read_parquet(path / "tiles.parquet")
    assert open_run(path).model.network_.errors.networks_share
    return World(path, page, tiles, tiles.iloc[np.linspace(0, len(tiles) - 1, 10).astype(int)])


def page_quantiles(world):
    """Return the quantiles of the shown quarter, and those at `BAND` in the other, as log10."""
    assert world.page["past"]["frame"] == world.page["frame"]
    pixels = world.pixels(world.page["frame"])
    shown = unpack_quantiles(world.page["quantiles"], world.page["levels"])[(slice(None), *pixels)]
    middle, lower, more = (unpack(part)[(0, *pixels)] for part in world.page["past"]["quantiles"])
    return shown, np.stack([middle - lower, middle, middle + lower + more])


def median_now(world):
    """Each end of the interval and the median, in log10 of Mbps."""
    shown, _ = page_quantiles(world)
    names = ("lower", "median", "upper")
    with xr.open_dataset(world.folder / "grid.nc", engine="h5netcdf") as grid:
        pixels = world.pixels(world.page["frame"])
        gridded = [grid[f"{name}_mbps"].to_numpy()[pixels] for name in names]
    at, half = world.at(), world.page["steps"]["quantile_log10"] / 2
    columns = ("lower_95_mbps", "median_mbps", "upper_95_mbps")
    # A question about the map's quarter alone is answered without the model.
    stored = open_run(world.folder).at(world.places["latitude"], world.places["longitude"])
    return {
        "at": (np.log10([at[name][:, 1] for name in columns]), 0),
        "at, of the map alone": (np.log10([stored[name] for name in columns]), 0),
        "page": (shown[[world.page["levels"].index(level) for level in BAND]], half),
        "tiles.parquet": (np.log10([world.places[f"{name}_mbps"] for name in names]), 0),
        "grid.nc": (np.log10(gridded), 0),
    }


def median_before(world):
    _, past = page_quantiles(world)
    at, half = world.at(), world.page["steps"]["past_quantile_log10"] / 2
    columns = ("lower_95_mbps", "median_mbps", "upper_95_mbps")
    return {"at": (np.log10([at[name][:, 0] for name in columns]), 0), "page": (past, half)}


def change_of_the_median(world):
    shown, past = page_quantiles(world)
    steps = world.page["steps"]
    half = (steps["past_quantile_log10"] + steps["quantile_log10"]) / 2
    median = np.log10(world.at()["median_mbps"])
    assert [one["id"] for one in world.page["layers"]].count("change") == 1
    drawn = shown[world.page["levels"].index(0.5)] - past[1]
    return {"at": (median[:, 1] - median[:, 0], 0), "page": (drawn, half)}


def probability(world):
    shown, _ = page_quantiles(world)
    name, error = f"p_at_least_{THRESHOLD}_mbps", world.page["steps"]["probability"]
    (drawn,) = probabilities(shown, world.page["levels"], [np.log10(THRESHOLD)], at_most=False)
    return {
        "at": (world.at()[name][:, 1], 0),
        "page": (drawn, error),
        "tiles.parquet": (world.places[name], 0),
        "GeoTIFF": (world.raster(name), 0),
    }


def number_of_tests(world):
    pixels = world.pixels(world.page["frame"])
    return {
        "tiles.parquet": (world.places["tests"], 0),
        "page": (unpack(world.page["arrays"]["tests"])[pixels], 0),
        "GeoTIFF": (world.raster("tests"), 0),
    }


def change_of_the_level(world):
    level = np.log10(world.at(question="level")["median_mbps"])
    percent = world.raster(f"change_percent_download_{BEFORE}_{NOW}")
    packed = world.layer("change_tiles")["tiles"]["mean"]
    drawn = unpack(packed)[world.pixels(world.page["frame"])]
    return {
        "at": (level[:, 1] - level[:, 0], 0),
        "GeoTIFF": (np.log10(1 + percent.astype(float) / 100), 0),
        "page": (drawn, packed["step"] / 2),
    }


def level_now(world):
    """Return the level of single tiles, in log10 of Mbps."""
    pixels = world.pixels(world.page["frame"])
    with xr.open_dataset(world.folder / "grid.nc", engine="h5netcdf") as grid:
        gridded = np.log10(grid["level_mbps"].to_numpy()[pixels])
    return {
        "at": (np.log10(world.at()["level_mbps"][:, 1]), 0),
        "at, level": (np.log10(world.at(question="level")["median_mbps"][:, 1]), 0),
        "page": (unpack(world.page["level"])[pixels], world.page["steps"]["level_log10"] / 2),
        "tiles.parquet": (np.log10(world.places["level_mbps"]), 0),
        "grid.nc": (gridded, 0),
        "GeoTIFF": (np.log10(world.raster("level_mbps")), 0),
    }


def median_of_counties(world):
    quarter = QUARTERS.index(NOW)
    medians = pd.Series(np.log10(world.tiles["median_mbps"].to_numpy(np.float64)))
    means = medians.groupby(world.tiles["county"].to_numpy()).mean().loc[COUNTIES]
    mark = f"The level without noise by county, {NOW}"
    return {
        "areas": (world.table(f"areas_county_download_level_{NOW}")["map_median_mbps"], 0),
        "change": (world.change_of_counties["map_median_to_mbps"], 0),
        "page": (world.layer("areas_county")["areas"]["medians"][quarter], 0.06),
        "report of areas": (world.report(mark, "map's median, Mbps"), 0.051),
        "report of change": (world.report(CHANGED, f"map's median {NOW}, Mbps"), 0.051),
        "tiles.parquet": (10 ** means.to_numpy(), 0.001),
    }


def median_of_counties_before(world):
    tiles, quarter = world.tiles, QUARTERS.index(BEFORE)
    places = tiles["latitude"], tiles["longitude"]
    table = open_run(world.folder).at(*places, quarters=BEFORE)
    medians = pd.Series(np.log10(table["median_mbps"].to_numpy()))
    means = medians.groupby(tiles["county"].to_numpy()).mean().loc[COUNTIES]
    return {
        "areas": (world.table(f"areas_county_download_level_{BEFORE}")["map_median_mbps"], 0),
        "change": (world.change_of_counties["map_median_from_mbps"], 0),
        "page": (world.layer("areas_county")["areas"]["medians"][quarter], 0.06),
        "at, all tiles": (10 ** means.to_numpy(), 0.001),
    }


def median_change_of_counties(world):
    change = world.change_of_counties
    ratio = change["map_median_to_mbps"] / change["map_median_from_mbps"]
    return {
        "change": (change["map_median_change_percent"], 0),
        "its ends": (100 * (ratio - 1), 1e-3),
        "page": (world.layer("change_county")["areas"]["medians"][0], 0.01),
        "report": (world.report(CHANGED, "change of map's median"), 0.051),
    }


def level_of_counties(world):
    change = world.change_of_counties
    areas = [
        world.table(f"areas_county_download_level_{quarter}")["level_mean_mbps"]
        for quarter in QUARTERS
    ]
    source = world.layer("areas_county")["areas"]
    assert (source["names"], source["times"]) == (COUNTIES, list(QUARTERS))
    bands = np.array(source["bands"])[:, :, 1]
    tiles, run = world.tiles, open_run(world.folder)
    places = tiles["latitude"], tiles["longitude"]
    table = run.at(*places, quarters=",".join(QUARTERS), question="level")
    level = np.log10(table["median_mbps"].to_numpy().reshape(-1, 2))
    means = pd.DataFrame(level).groupby(tiles["county"].to_numpy()).mean().loc[COUNTIES]
    told = [
        world.report(f"The level without noise by county, {quarter}", "level without noise, Mbps")
        for quarter in QUARTERS
    ]
    beside = [world.report(CHANGED, f"level {quarter}, Mbps") for quarter in QUARTERS]
    return {
        "areas": (areas, 0),
        "change": ([change["level_from_mbps"], change["level_to_mbps"]], 0),
        "page": (bands, 0.06),
        "report of areas": (told, 0.051),
        "report of change": (beside, 0.051),
        "at, all tiles": (10 ** means.to_numpy().T, 0.001),
    }


def change_of_counties(world):
    change = world.change_of_counties["change_percent"]
    before, now = (
        world.table(f"areas_county_download_level_{quarter}")["level_mean_mbps"]
        for quarter in QUARTERS
    )
    drawn = np.array(world.layer("change_county")["areas"]["bands"])[0, :, 1]
    told = world.report(CHANGED, "change")
    return {
        "change": (change, 0),
        "areas": (100 * (now / before - 1), 1e-3),
        "page": (drawn, 0.01),
        "report": (told, 0.051),
    }


def shares(world, name):
    """Return a share in percent from CSV and report, and values of the tiles with their weights."""
    answer = f"exceedance_download_level_{NOW}_{THRESHOLD}_mbps"
    table = pd.read_csv(world.folder / f"{answer}_county.csv").set_index("area").loc[COUNTIES]
    headings = {
        "median_short": "area of tiles whose median is",
        "probability_short": "mean probability of a tile average",
        "mean": "area whose level is",
    }
    told = world.report(f"What is below {THRESHOLD} Mbps", headings[name])
    tiles = world.tiles
    weights = pd.Series(tile_areas_km2(tiles["latitude"].to_numpy(), 16))
    by_county = tiles["county"].to_numpy()

    def mean(values):
        sums = (values * weights).groupby(by_county).sum() / weights.groupby(by_county).sum()
        return 100 * sums.loc[COUNTIES].to_numpy()

    return {"CSV": (100 * table[name], 0), "report": (told, 0.051)}, mean, table


def tiles_below(world):
    made, mean, _ = shares(world, "median_short")
    return made | {"tiles.parquet": (mean(world.tiles["median_mbps"] < THRESHOLD), 1e-3)}


def values_below(world):
    made, mean, _ = shares(world, "probability_short")
    reached = world.tiles[f"p_at_least_{THRESHOLD}_mbps"]
    return made | {"tiles.parquet": (mean(1 - reached), 1e-3)}


def levels_below(world):
    made, _, table = shares(world, "mean")
    return made | {"without draws": (100 * table["closed_form"], 1.5)}


ASKED = (
    median_now, median_before, change_of_the_median, probability, number_of_tests,
    change_of_the_level, level_now, level_of_counties, change_of_counties, median_of_counties,
    median_of_counties_before, median_change_of_counties, tiles_below, values_below, levels_below,
)  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.__name__)
def test_one_question_has_one_number(world, asked):
    answers = {name: (np.asarray(values), most) for name, (values, most) in asked(world).items()}
    (_, (first, _)), *others = answers.items()
    assert np.isfinite(first).all()
    assert first.shape[-1] in {10, len(COUNTIES)}
    assert np.ptp(first) > 0
    for name, (values, most) in others:
        rounding = 2e-5 * np.abs(first) + 1e-5  # float32
        off = np.abs(values - first) - most - rounding
        assert off.max() <= 0, f"{name} differs by {np.abs(values - first).max():.3g}"


def test_levels_and_medians_differ(world):
    """So one of them in place of the other would be seen above."""
    for table in (world.places, world.table(f"areas_county_download_level_{NOW}")):
        level, median = (
            table[next(name for name in names if name in table)]
            for names in (("level_mbps", "level_mean_mbps"), ("median_mbps", "map_median_mbps"))
        )
        assert np.abs(np.log10(level / median)).min() > 0.001


def test_the_three_answers_to_what_falls_short_differ(world):
    """So a table that shows one of them in place of another would be seen above."""
    _, _, table = shares(world, "mean")
    columns = table[["mean", "median_short", "probability_short"]].to_numpy()
    assert np.ptp(columns, axis=1).max() > 0.02

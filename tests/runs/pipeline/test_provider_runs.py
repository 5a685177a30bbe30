"""A run by provider, from the file of tests to the comparison of the providers."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_worlds import run_json
from shapely.geometry import box

from geogp.answers.run import open_run
from geogp.commands.compare_runs import compare_runs
from geogp.commands.gallery import make_gallery
from geogp.errors import RequestError
from geogp.maps.page.page_layers import layer_json
from geogp.maps.provider_layers import provider_tags
from geogp.maps.scales import SPEED_PALETTE, speed_scale
from geogp.maps.views import FAR, PROVIDER, View, provider_views
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

GAP = 0.3
"""The South is faster by this in log10, north of the middle."""

MIDDLE = 18.08


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    random, n = np.random.default_rng(0), 2600
    longitude, latitude = random.uniform((-66.5, 18.0), (-66.3, 18.15), (n, 2)).T
    times = pd.Timestamp("2023-07-01") + pd.to_timedelta(random.uniform(0, 183, n), unit="D")
    provider = random.choice(["North Net", "South"], n, p=[0.6, 0.4])
    level = 1.3 + GAP * (provider == "South") * (latitude > MIDDLE)
    table = pd.DataFrame(
        {
            "time": times.strftime("%Y-%m-%d"),
            "lat": latitude,
            "lon": longitude,
            "download_mbps": 10 ** (level + 0.15 * random.standard_normal(n)),
            "operator": provider,
        }
    )
    path = tmp_path_factory.mktemp("drive") / "drive.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(drive, tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "run"
    return run_map(
        MapSettings(points=str(drive), by_provider=True, preset="quick", epochs=4, zoom=14, out=out)
    )


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    path = tmp_path_factory.mktemp("halves") / "halves.gpkg"
    shapes = [box(-67, 17, -66, MIDDLE), box(-67, MIDDLE, -66, 19)]
    gpd.GeoDataFrame({"name": ["low", "high"]}, geometry=shapes, crs=4326).to_file(path)
    return f"{path}:name"


def test_the_record_counts_the_rows_of_each_provider(run):
    told = run_json(run)
    assert told["settings"]["data"]["by_provider"] is True
    north, south = told["providers"]
    assert (north["name"], south["name"]) == ("North Net", "South")
    assert north["rows"] + south["rows"] == sum(told["n"]["random"].values())
    assert north["tests"] + south["tests"] == told["inputs"][-1]["rows_used"]


def test_every_provider_has_layers(run):
    tiles = pd.read_parquet(run.path / "tiles.parquet")
    for name in ("median_mbps", "tests", "far"):
        assert (tiles[name] == tiles[f"{name}_north_net"]).all()
    high = tiles.latitude > MIDDLE + 0.01
    ratio = np.log10(tiles.median_mbps_south / tiles.median_mbps_north_net)
    assert ratio[high].mean() > GAP / 2 > ratio[~high].mean() + 0.05
    assert (tiles.lower_mbps_south < tiles.median_mbps_south).all()
    grid = xr.open_dataset(run.path / "grid.nc")
    assert grid.median_mbps_south.attrs["long_name"].endswith(", South")
    assert (run.path / "median_south.png").is_file()
    assert (run.path / "median_mbps_south.tif").is_file()
    page = (run.path / "map.html").read_text()
    assert "Median download speed, South" in page
    assert "2023Q4, North Net" in page


def test_the_report_has_the_coverage_of_each_provider(run):
    strata = json.loads((run.path / "report.json").read_text())["splits"]["random"]["strata"]
    assert [one["name"] for one in strata if one["kind"] == "provider"] == ["North Net", "South"]
    text = (run.path / "report.md").read_text()
    assert "The map shows North Net unless a layer names another provider." in text


def test_the_difference_is_found_where_it_is(run, halves):
    table = open_run(run.path).providers(halves).set_index("area")
    assert (table.provider == "North Net").all()
    low, high = table.loc["low"], table.loc["high"]
    truth = -GAP
    assert abs(high.difference_log10 - truth) < 3 * high.difference_sd_log10
    assert high.probability_faster < 0.001
    assert abs(low.difference_log10) < 3 * low.difference_sd_log10
    assert low.difference_lower_percent < low.difference_percent < low.difference_upper_percent
    assert high.other_level_mbps / high.level_mbps == pytest.approx(10**-high.difference_log10)


def test_the_difference_is_that_of_the_joint_level(run, halves):
    """The same law by another route: estimator, table and dense weights."""
    opened = open_run(run.path).reopen()
    parts = [opened.of_provider(name) for name in ("North Net", "South")]
    quarter = opened.question.quarter
    places = pd.concat([part.places(quarter) for part in parts])
    high = opened.tiles.centres[1] > MIDDLE
    weights = np.concatenate([high, -1.0 * high]) / high.sum()
    law = opened.model.joint(places, calibrated=False).weighted_sums(weights)
    found = open_run(run.path).providers(halves).set_index("area").loc["high"]
    assert found.difference_log10 == pytest.approx(law.mean[0])
    assert found.difference_sd_log10 == pytest.approx(law.sd[0], rel=1e-3)


def test_other_answers_say_whose_they_are(run, halves):
    opened = open_run(run.path)
    assert opened.at([18.1], [-66.4]).speaks_of.str.endswith(" (North Net)").all()
    found = opened.reopen()
    found.level()
    assert any("this answer is about North Net" in text for text in found.listener.warnings)


def test_the_command_compares_the_providers(run, halves, geogp):
    code, out, _ = geogp("areas", run.path, "--by", halves, "--by-provider", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["providers"] == ["North Net", "South"]
    assert {row["area"] for row in told["areas"]} == {"low", "high"}
    assert len(pd.read_csv(told["files"][0])) == 2
    assert "The providers by" in (run.path / "report.html").read_text()
    code, out, _ = geogp("areas", run.path, "--by", halves, "--by-provider")
    assert code == 0
    assert all(label in out for label in ("differ", "faster"))
    code, _, err = geogp("areas", run.path, "--by-provider", "--for", "tile-mean")
    assert code == 2
    assert "compares levels" in err


def test_a_run_without_providers_is_refused(pooled):
    with pytest.raises(RequestError, match="has no providers"):
        open_run(pooled.path).providers("stratum")


def test_tags_are_different_and_plain():
    names = ("A b", "a B", "Ä", "-", "AT&T 3", "AT&T", "AT T", "AT&T 2", "w" * 300, "w" * 301)
    tags = list(provider_tags(names).values())
    assert max(map(len, tags)) < 50
    assert len(set(tags)) == len(names)
    assert all(tag.replace("_", "a").isalnum() and tag.isascii() for tag in tags)


def test_a_layer_shows_the_name_of_its_provider_as_it_is():
    name = "$_{\\frac$ {unit} {predicted}"
    cells = xr.DataArray([[1.0, 2.0]], attrs={PROVIDER: name, FAR: "far_x"})
    grid = xr.Dataset({"median_mbps_x": cells})
    texts = dict.fromkeys(("label", "hint", "unit", "question"), "")
    median = View(
        "median", "median_mbps", "Median", palette=SPEED_PALETTE, make_scale=speed_scale, **texts
    )
    [view] = provider_views(grid, median)
    hint = layer_json(view, "tests", {}, grid["median_mbps_x"].values)["hint"]
    assert hint == f"The median of {name}, near its own measurements."


@pytest.fixture(scope="module")
def single(drive, tmp_path_factory):
    out = tmp_path_factory.mktemp("single") / "single"
    how = {"preset": "quick", "epochs": 1, "zoom": 12, "out": out}
    return run_map(MapSettings(points=str(drive), provider="North Net", **how))


@pytest.fixture(scope="module")
def pooled(drive, tmp_path_factory):
    out = tmp_path_factory.mktemp("pooled") / "pooled"
    return run_map(MapSettings(points=str(drive), preset="quick", epochs=1, zoom=12, out=out))


def test_runs_of_points_are_compared_where_they_share_rows(run, single, pooled, tmp_path):
    """A run by provider against itself, against one provider, and against all tests together."""
    same = compare_runs([run.path, run.path], out=tmp_path / "same", latex=True)
    assert same.splits["random"].n == run.record.n["random"].test
    own = same.splits["random"].strata["all"].figures[same.reference]
    assert own["log_score"] == pytest.approx(run.record.metrics["random"]["all"].nll, abs=1e-9)
    found = compare_runs([single.path, run.path], out=tmp_path / "one").splits["random"]
    rows = open_run(run.path).predictions
    assert found.n == (rows["provider"] == "North Net").sum() == single.record.n["random"].test
    assert compare_runs([pooled.path, pooled.path], out=tmp_path / "pooled").splits
    for other in (run, single):
        with pytest.raises(RequestError, match=r"a common provider.*all providers together"):
            compare_runs([other.path, pooled.path], out=tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


def test_a_gallery_names_the_provider_of_a_map(run, single, pooled, tmp_path):
    made = make_gallery([run.path, single.path, pooled.path], out=tmp_path)
    assert len(made.runs) == 3
    assert made.page.read_text("utf-8").count("map of North Net;") == 2


def test_a_run_by_provider_has_a_table_tiles_and_figures(run, geogp):
    assert geogp("report", run.path, "--latex", "--gpkg")[0] == 0
    assert {"report.tex", "tiles.gpkg"} <= {path.name for path in run.path.iterdir()}
    assert geogp("figures", run.path)[0] == 0

"""Maps of logs of drives: rows of drives, intervals for new drives, and the split by drives."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from rasterio.transform import rowcol
from rasterio.warp import transform
from run_worlds import run_json
from shapely.geometry import box

from geogp.answers.run import open_run
from geogp.errors import RequestError
from geogp.estimators.stored_estimators import load_model
from geogp.geodata.tiles.quadkeys import codes_to_tiles, tile_centres, tiles_at, tiles_to_codes
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

WEST, SOUTH, DEGREES_PER_KM = -66.3, 18.1, 1 / 107.0


def made_log(drives, *, seconds=200, side=8.0, seed=0, own=0.2):
    """Return the tests of drives, one a second, whose level is four times as high in the east.

    Each drive has an error of sd `own`, and tests have noise of sd .2, in log10.
    """
    random = np.random.default_rng(seed)
    turns = random.uniform(0, 2 * np.pi, (drives, 1))
    turns = turns + np.cumsum(0.05 * random.standard_normal((drives, seconds)), 1)
    steps = 0.012 * np.stack([np.cos(turns), np.sin(turns)], -1).cumsum(1)
    place = side - abs((random.uniform(0, side, (drives, 1, 2)) + steps) % (2 * side) - side)
    level = 1 + 0.6 * place[..., 0] / side + own * random.standard_normal((drives, 1))
    begin = pd.Timestamp("2023-07-03") + pd.to_timedelta(9 * np.arange(drives), unit="h")
    times = begin.repeat(seconds) + pd.to_timedelta(np.tile(range(seconds), drives), unit="s")
    noise = 0.2 * random.standard_normal((drives, seconds))
    table = {
        "time": times.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lat": SOUTH + place[..., 1].ravel() * DEGREES_PER_KM,
        "lon": WEST + place[..., 0].ravel() * DEGREES_PER_KM,
        "download_mbps": 10 ** (level + noise).ravel(),
        "car": np.repeat([f"car {k}" for k in range(drives)], seconds),
    }
    return pd.DataFrame(table)


def request(path, out, **changes):
    return MapSettings(points=str(path), out=out, **{"preset": "quick", "zoom": 14, **changes})


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    made_log(12).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(log, tmp_path_factory):
    return run_map(request(log, tmp_path_factory.mktemp("drives") / "run"))


def means_of(log):
    """Return the mean of the tests of each car in each tile, at the centre of the tile."""
    code = tiles_to_codes(*tiles_at(log["lon"].to_numpy(), log["lat"].to_numpy()))
    rows = log.groupby([code, log["car"]])["download_mbps"].agg(["mean", "size"]).reset_index()
    longitude, latitude = tile_centres(*codes_to_tiles(rows.iloc[:, 0].to_numpy(np.uint64)))
    return rows.assign(longitude=longitude, latitude=latitude)


def test_a_row_is_a_drive_in_a_tile(run, log):
    told = run_json(run)
    expected = means_of(pd.read_csv(log))
    assert {sum(parts.values()) for parts in told["n"].values()} == {len(expected)}
    rows = pd.read_parquet(run.path / "test_predictions.parquet")
    known = expected.set_index(["longitude", "latitude", "car"])["mean"]
    for row in rows.itertuples():
        car = f"car {int(row.drive) - 1}"
        assert 10**row.y == pytest.approx(known.loc[row.longitude, row.latitude, car])
    assert (rows["devices"] == 1).all()
    assert load_model(run.path / "model.safetensors").path_ == "exact"
    assert told["points"]["understood"]["drives"].startswith("12 drives: ")
    assert not any("drives" in text for text in told["warnings"])


def test_the_split_by_drives_is_beside_that_of_the_preset(run):
    told = run_json(run)
    assert told["settings"]["checks"]["splits"] == ["random", "session"]
    rows = pd.read_parquet(run.path / "test_predictions.parquet")
    tested = rows[rows["split"] == "session"]
    assert tested["drive"].nunique() == 2
    assert tested.groupby("drive").size().sum() == told["n"]["session"]["test"]
    assert told["metrics"]["session"]["all"]["n"] == len(tested)
    report = json.loads((run.path / "report.json").read_text())
    assert list(report["splits"]) == ["session", "random"]
    assert report["headline"].startswith("In new drives, the 95 % intervals")
    assert report["splits"]["session"]["question"].endswith(
        "new drive predicted from other drives?"
    )
    assert any("The tests of a drive err together" in text for text in report["statements"])
    assert any("rows of a drive err together" in text for text in report["areas"])
    for name in ("report.html", "report.md"):
        assert "Split by drives" in (run.path / name).read_text()


def test_the_map_and_its_answers_are_of_new_drives(run, tmp_path):
    opened = open_run(run.path)
    places = np.full(2, SOUTH + 0.035), WEST + np.array([0.005, 0.07])
    level, mean, single = (
        opened.at(*places, question=question) for question in ("level", "tile-mean", "single-test")
    )
    assert 1.5 < level["median_mbps"][1] / level["median_mbps"][0] < 8  # 3.6 in truth
    widths = [np.log(law["upper_95_mbps"] / law["lower_95_mbps"]) for law in (level, mean, single)]
    assert (widths[0] < widths[1]).all()
    assert (widths[1] < widths[2]).all()
    halves = gpd.GeoDataFrame(
        {"name": ["west", "east"]},
        geometry=[box(-67, 17, WEST + 0.037, 19), box(WEST + 0.037, 17, -66, 19)],
        crs=4326,
    )
    halves.to_file(tmp_path / "halves.gpkg")
    areas = opened.areas(f"{tmp_path / 'halves.gpkg'}:name").set_index("area")
    assert areas.loc["east", "level_mean_mbps"] > 1.2 * areas.loc["west", "level_mean_mbps"]
    assert len(opened.next(tiles=3)) == 3
    assert '"kernel":null' in (run.path / "map.html").read_text()


def test_a_finished_run_is_kept(run, log):
    assert run_map(request(log, run.path)).already_there


def test_the_user_names_the_drives(log, tmp_path):
    """The drives of two cars that the user joins, at times that tell nothing."""
    table = pd.read_csv(log)
    table["car"] = table["car"].replace({"car 11": "car 10"})
    table.assign(time="2023-07-03").to_csv(tmp_path / "log.csv", index=False)
    columns = ("session=car",)
    made = run_map(
        request(tmp_path / "log.csv", tmp_path / "run", columns=columns, split="session")
    )
    assert list(made.record.metrics) == ["session"]
    assert run_json(made)["points"]["understood"]["drives"] == "11 drives: from the column car"
    rows = pd.read_parquet(made.path / "test_predictions.parquet")
    assert set(rows["drive"]) <= set(table["car"])
    assert load_model(made.path / "model.safetensors").path_ == "exact"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epochs": 1}, "--epochs asks for a model that does not know drives"),
        (
            {"epochs": 1, "model": "dbk-silu"},
            "--model dbk-silu does not know drives, as field does",
        ),
    ],
)
def test_a_model_without_drives_is_a_warning(log, tmp_path, changes, why, monkeypatch):
    monkeypatch.setattr("geogp.models.fitting.few_rows.FOLDS", 3)
    made = run_map(request(log, tmp_path / "run", split="session", **changes))
    text = f"log.csv is a log of drives, whose tests err together, but the model does not .*{why}"
    assert any(pd.Series(run_json(made)["warnings"]).str.contains(text))
    assert load_model(made.path / "model.safetensors").network_.path == "basis"


def test_what_is_refused(log, tmp_path):
    with pytest.raises(RequestError, match=r"--conformal marginal repairs .* rows of known drives"):
        run_map(request(log, tmp_path / "run", conformal="marginal"))
    scattered = pd.read_csv(log).sample(600, random_state=0).assign(time="2023-07-03")
    scattered.to_csv(tmp_path / "plain.csv", index=False)
    with pytest.raises(RequestError, match="the split session needs rows of drives, found none"):
        run_map(request(tmp_path / "plain.csv", tmp_path / "other", split="session"))


def test_few_drives_are_a_warning(tmp_path):
    made_log(3).to_csv(tmp_path / "log.csv", index=False)
    made = run_map(request(tmp_path / "log.csv", tmp_path / "run"))
    told = run_json(made)
    assert list(told["metrics"]) == ["random", "session"]
    warned = [text for text in told["warnings"] if "groups say little about others" in text]
    assert warned


@pytest.mark.trial
def test_intervals_of_the_map_hold_the_tile_means_of_new_drives(tmp_path):
    inside = []
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        known = made_log(40, seconds=500, side=16.0, seed=seed)
        known.to_csv(folder / "log.csv", index=False)
        made = run_map(request(folder / "log.csv", folder / "run", zoom=16, split="session"))
        new = means_of(made_log(60, seconds=500, side=16.0, seed=100 + seed))
        bounds = []
        for name in ("lower_mbps", "upper_mbps"):
            with rasterio.open(made.path / f"{name}.tif") as raster:
                place = transform("EPSG:4326", raster.crs, new["longitude"], new["latitude"])
                row, column = rowcol(raster.transform, *map(np.array, place))
                within = (
                    (row >= 0) & (row < raster.height) & (column >= 0) & (column < raster.width)
                )
                values = np.where(within, raster.read(1)[row * within, column * within], np.nan)
                bounds.append(np.where(values == raster.nodata, np.nan, values))
        there = np.isfinite(bounds[0])
        assert there.mean() > 0.9
        held = (bounds[0] <= new["mean"]) & (new["mean"] <= bounds[1])
        inside.append(held[there].mean())
    # Without knowledge of the drives, 50 to 80 %.
    assert 0.86 < np.mean(inside) < 0.98

"""Runs with covariates: what they record, answer and refuse, from the first fit to questions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rasterio
from run_worlds import Small, write_halves, write_small

from geogp.answers.run import open_run
from geogp.errors import DataError, RequestError
from geogp.geodata.simulation.simulated_tiles import simple_region
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_covariates import read_run_covariates
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import ProgressListener

HEIGHT = "height.tif"


def write_world(folder):
    """Write a source whose fixed service equals its mobile service, and a raster of a half."""
    small = write_small(folder)
    for path in sorted(folder.rglob("*_mobile_tiles.parquet")):
        name = str(path).replace("type=mobile", "type=fixed").replace("_mobile_", "_fixed_")
        Path(name).parent.mkdir(parents=True)
        shutil.copy(path, name)
    west, south, east, north = simple_region().bounds
    cells = np.add.outer(np.arange(30.0), np.arange(20.0)).astype(np.float32)
    with rasterio.open(
        folder / HEIGHT,
        "w",
        driver="GTiff",
        height=30,
        width=20,
        count=1,
        dtype="float32",
        crs=4326,
        transform=rasterio.Affine((east - west) / 40, 0, west, 0, -(north - south) / 30, north),
    ) as raster:
        raster.write(cells, 1)
    return small


@pytest.fixture(scope="module")
def world(made_once):
    return Small(made_once("covariates", write_world))


def request_of(world, out, **changes):
    """Return a request with the other service and a raster."""
    covariates = ("fixed", str(world.folder / HEIGHT))
    return world.request(out, **{"covariates": covariates, "zoom": 12} | changes)


@pytest.fixture
def own_world(world, tmp_path):
    """A source that a test may damage."""
    return Small(Path(shutil.copytree(world.folder, tmp_path / "source")))


@pytest.fixture(scope="module")
def made(world, made_once):
    """A run with the other service and a raster; tests must not change it."""
    return made_once("covariate-run", lambda out: run_map(request_of(world, out)))


def test_run_json_has_each_covariate_and_its_files(made, world):
    run = open_run(made)
    fixed, tests, height = run.record.covariates
    assert (fixed.name, tests.name, height.name) == ("fixed", "fixed_tests", "height")
    assert run.record.settings.data.covariates == ("fixed", str(world.folder / HEIGHT))
    hashes = {one.name: one.sha256 for one in run.record.inputs}
    assert set(fixed.files) == {name for name in hashes if "type=fixed" in name}
    assert len(fixed.files) == 2
    assert height.files == [HEIGHT]
    assert HEIGHT in hashes
    assert fixed.interpolation.startswith("kriging from the 16 nearest points")
    assert fixed.median_sd > 0
    assert height.interpolation == "bilinear"
    assert height.median_sd is None
    assert 0.4 < height.share_with_data < 0.6  # the raster is of the western half
    assert 0 < fixed.share_with_data <= 1


def test_the_model_depends_on_the_covariates(made):
    """The fixed service of this source equals the mobile service, so its coefficient is large."""
    run = open_run(made)
    names = ["fixed", "fixed_support", "fixed_tests", "height", "height_missing"]
    assert run.model.covariates == names
    found = run.model.coefficients_.loc["fixed"]
    assert found["mean"] > 10 * found["sd"]
    assert found["mean"] == pytest.approx(run.record.covariates[0].coefficient)


def test_the_same_rows_are_predicted_better(made, finished):
    found = open_run(made).record
    assert found.metrics["random"]["all"].nll < finished.record.metrics["random"]["all"].nll
    assert found.n["random"] == finished.record.n["random"]


def test_the_report_has_a_line_for_each_covariate(made):
    report = json.loads((made / "report.json").read_text())
    assert len(report["covariates"]) == 3
    fixed, _, height = report["covariates"]
    assert fixed.startswith("Covariate fixed (kriging from the 16 nearest points")
    assert "one standard deviation changes the level by +" in fixed
    assert "median standard deviation" in fixed
    assert height.startswith("Covariate height (bilinear): one standard deviation changes")
    for name in ("report.html", "report.md"):
        assert "Covariate fixed" in (made / name).read_text()


def test_a_finished_run_answers_questions(made, world, tmp_path):
    run = open_run(shutil.copytree(made, tmp_path / "run"))
    halves = write_halves(world, tmp_path, ("west", "east", "far"), 0.5)
    areas = run.areas(by=f"{halves}:side")
    assert len(areas) >= 2
    assert len(run.exceedance([7.0], by=f"{halves}:side"))
    assert len(run.next(3)) == 3


def test_a_run_is_drawn_again_with_the_same_fits(made, world, tmp_path):
    path = shutil.copytree(made, tmp_path / "run")
    request = request_of(world, path, at="2023Q3")
    before = open_run(made).record
    again = open_run(run_map(request).path).record
    assert again.map.quarter == "2023Q3"
    assert again.metrics == before.metrics
    assert [one.coefficient for one in again.covariates] == [
        one.coefficient for one in before.covariates
    ]
    assert run_map(request).already_there


class Stopping(ProgressListener):
    """Stops a run when its map is predicted."""

    def stage(self, text):
        if text == "predicting the map":
            raise KeyboardInterrupt


def test_a_stopped_run_continues_to_the_same_numbers(made, world, tmp_path):
    request = request_of(world, tmp_path / "run", zoom=11)
    with pytest.raises(KeyboardInterrupt):
        run_map(request, Stopping())
    metrics = open_run(run_map(request).path).record.metrics
    assert metrics == open_run(made).record.metrics


def test_a_changed_covariate_is_noticed(made, world, own_world, tmp_path):
    path = shutil.copytree(made, tmp_path / "run")
    text = (path / "run.json").read_text()
    (path / "run.json").write_text(text.replace(str(world.folder), str(own_world.folder)))
    assert run_map(request_of(own_world, path)).already_there
    next(own_world.folder.rglob("*_fixed_tiles.parquet")).unlink()
    halves = write_halves(own_world, tmp_path, ("west", "east", "far"), 0.5)
    with pytest.raises(RequestError, match="contains a run that differs in settings, inputs"):
        run_map(request_of(own_world, path, covariates=("fixed",)))
    with pytest.raises(DataError, match=r"made with covariates from .*type=fixed.* missing now"):
        open_run(path).areas(by=f"{halves}:side")
    with rasterio.open(own_world.folder / HEIGHT, "r+") as raster:
        raster.write(np.zeros((30, 20), np.float32), 1)
    with pytest.raises(DataError, match=rf"{HEIGHT} changed or appeared since"):
        open_run(path).areas(by=f"{halves}:side")


def test_a_source_without_the_other_service_is_refused(small, tmp_path):
    with pytest.raises(DataError, match=r"no fixed tiles of Demo .* Expected files like"):
        run_map(small.request(tmp_path / "run", covariates=("fixed",)))


def test_a_raster_of_another_region_is_refused(world, tmp_path):
    with rasterio.open(world.folder / HEIGHT) as raster:
        cells, profile = raster.read(), raster.profile
    profile["transform"] = rasterio.Affine(0.1, 0, 10, 0, -0.1, 50)
    with rasterio.open(tmp_path / "far.tif", "w", **profile) as raster:
        raster.write(cells)
    with pytest.raises(DataError, match=r"has no data at any of the .* rows"):
        run_map(world.request(tmp_path / "run", covariates=(str(tmp_path / "far.tif"),)))


def test_a_raster_of_a_part_is_told_with_its_share(world):
    west, south, east, north = simple_region().bounds
    table = pd.DataFrame(
        {"longitude": np.linspace(west, east, 401)[1:-1], "latitude": (south + north) / 2}
    )
    read = read_run_covariates((str(world.folder / HEIGHT),), None, None, table, None)
    (told,) = read.warnings
    assert "height.tif has no finite value at 4" in told
    assert "of 399). The mean of the other rows replaces it, and the column height_missing" in told


def test_a_covariate_has_a_name_of_its_own(world, tmp_path):
    points = pd.DataFrame({"longitude": [1.0, 2.0], "latitude": [1.0, 2.0], "value": [1.0, 2.0]})
    points.to_csv(tmp_path / "tests.csv", index=False)
    with pytest.raises(RequestError, match=r"different name .* found tests more"):
        run_map(world.request(tmp_path / "run", covariates=(str(tmp_path / "tests.csv"),)))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model": "dbk-rbf"}, "--covariates is for the model field, found --model dbk-rbf"),
        ({"target": "tests"}, "--covariates is for the model field, found --model cox-nb"),
        ({"service": "fixed"}, "the service of the map itself. Choose --covariates mobile"),
        ({"covariates": ("fixed", "fixed")}, "found the same one twice"),
    ],
)
def test_requests_that_are_refused(changes, match):
    with pytest.raises(RequestError, match=match):
        MapSettings("PR", **{"covariates": ("fixed",), **changes})


def test_paths_of_covariates_become_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = MapSettings("PR", covariates=("fixed", HEIGHT))
    assert found.covariates == ("fixed", str(tmp_path / HEIGHT))
    assert replace(found, seed=1).covariates == found.covariates


def test_a_raster_without_gaps_at_measured_places_is_filled_with_their_mean(world):
    west, south, _, north = simple_region().bounds
    places = pd.DataFrame({"longitude": west + 0.01, "latitude": np.linspace(south, north, 7)[1:6]})
    (found,) = read_run_covariates(
        (str(world.folder / HEIGHT),), None, None, places, None
    ).covariates
    assert found.names == ("height",)
    outside = found.columns(np.array([10.0]), np.array([50.0]), np.array([8090]))["height"]
    inside = found.columns(*places.to_numpy().T, np.full(5, 8090))["height"]
    assert outside == pytest.approx(inside.mean())
    assert inside.mean() > 1

"""A finished run as an object: typed, read late, and with the answers of the commands."""

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import geopandas as gpd
import pandas as pd
import pytest
from msgspec import UNSET
from run_worlds import edited_copy

from geogp.answers.make import make_answer, make_answers
from geogp.answers.pages import remake_report
from geogp.answers.requests import (
    AreasRequest,
    ChangeRequest,
    ExceedanceRequest,
    NextRequest,
    PlaceQuestion,
)
from geogp.answers.run import Run, open_run
from geogp.choices import settings_of
from geogp.errors import DataError, GeogpError, RequestError
from geogp.records.run_record import RUN_SCHEMA
from geogp.runs.run_places import RunPlaces

FIXTURES = Path(__file__).parents[1] / "fixtures"
STORED = FIXTURES / "run-0.2"
SOURCE = RunPlaces(
    str(FIXTURES / "run-0.1" / "source"), str(FIXTURES / "run-0.1" / "source" / "boundaries")
)


@pytest.fixture
def stored(tmp_path):
    return Path(shutil.copytree(STORED / "field", tmp_path / "field"))


@pytest.fixture
def run(stored):
    return open_run(stored, device="cpu", read_from=SOURCE)


def test_it_says_what_its_file_says(run, stored):
    told = json.loads((stored / "run.json").read_text())
    assert run.content == told
    assert run.record.region == told["region"]
    assert run.record.schema == RUN_SCHEMA
    assert run.record.settings.checks.splits == told["settings"]["splits"]
    assert run.record.metrics["random"]["all"].crps == told["metrics"]["random"]["all"]["crps"]
    assert len(run.predictions) == sum(parts["test"] for parts in told["n"].values())
    assert run.model.model == told["model"]


def test_a_notebook_shows_the_coverage_and_links_to_the_pages_that_are_there(run, stored):
    found = run.record.metrics["random"]["urban"]
    line = f"<td>random</td><td>urban</td><td>{found.n}</td><td>{found.coverage_95:.4g}</td>"
    (stored / "map.html").write_text("a map")
    (stored / "report.html").unlink(missing_ok=True)
    html = run._repr_html_()
    assert line in html
    assert run.record.region_in_words in html
    assert f'<a href="{(stored / "map.html").as_uri()}">map.html</a>' in html
    assert "report.html" not in html
    assert "<script>" not in replace(run, path=stored.parent / "<script>")._repr_html_()


def test_only_what_is_asked_for_is_read(stored):
    for name in ("test_predictions.parquet", "model.safetensors"):
        (stored / name).write_bytes(b"no")
    run = open_run(str(stored))
    with pytest.raises(DataError, match=r"test_predictions\.parquet"):
        _ = run.predictions
    with pytest.raises(DataError, match=r"model\.safetensors"):
        _ = run.model


def test_areas_are_those_of_the_command(run, stored):
    found = run.areas("urban", draws=200, seed=3)
    made = make_answer(AreasRequest(stored, by="urban", draws=200, seed=3, **vars(SOURCE)))
    pd.testing.assert_frame_equal(pd.DataFrame(found)[made.table.columns], made.table)
    written = gpd.read_parquet(stored / "areas_urban_download_level_2023Q4.parquet")
    assert list(written.columns) == list(found.columns)
    assert found.crs == written.crs
    assert found.geometry.geom_equals(written.geometry, align=False).all()


def test_changes_are_those_of_the_command(run, stored):
    found = run.change("2023Q3", by="urban", at_least=10, draws=200)
    asked = ChangeRequest(
        stored, start="2023Q3", by="urban", at_least=10, draws=200, **vars(SOURCE)
    )
    made = make_answer(asked)
    pd.testing.assert_frame_equal(pd.DataFrame(found)[made.table.columns], made.table)


def test_shares_are_those_of_the_command(run, stored):
    found = run.exceedance([25, 80], by="urban", draws=200)
    asked = ExceedanceRequest(stored, threshold=(25, 80), by="urban", draws=200, **vars(SOURCE))
    low, high = make_answers(asked)
    for one in (low, high):
        part = found[found["threshold"] == one.content["threshold"]].drop(columns="threshold")
        pd.testing.assert_frame_equal(part.reset_index(drop=True), one.table)
    assert set(found["layer"]) == {"whole region", "urban"}
    assert set(run.exceedance(draws=200)["threshold"]) == set(run.record.drawing.thresholds)


def test_tiles_to_measure_are_those_of_the_command(run, stored):
    found = run.next(5, among="urban")
    made = make_answer(NextRequest(stored, tiles=5, among="urban", **vars(SOURCE)))
    pd.testing.assert_frame_equal(pd.DataFrame(found.drop(columns="geometry")), made.table)
    centres = gpd.GeoSeries.from_xy(found["longitude"], found["latitude"], crs=4326)
    assert found.geometry.contains(centres).all()


def test_numbers_out_of_range_are_refused(run):
    for ask in (
        lambda: run.areas(draws=1),
        lambda: run.exceedance(seed=-1),
        lambda: run.next(0),
        lambda: run.next(5, by="urban"),
    ):
        with pytest.raises(RequestError):
            ask()


def test_data_are_read_once_for_a_question(run):
    assert run.reopen() is run.reopen()
    later = run.reopen(at="2023Q3")
    assert later is not run.reopen()
    assert later.question.label() == "2023Q3"


def test_a_run_of_before_schemas_is_read():
    assert open_run(FIXTURES / "run-0.1" / "field").record.schema is UNSET


@pytest.mark.parametrize("refit", [False, True])
def test_what_a_reopened_run_says_follows_from_its_record(tmp_path, refit):
    """The preset quick fits no map of its own; the run may have been made by another."""
    path = edited_copy(
        STORED / "field", tmp_path / "run", lambda run: run["settings"].update(refit=refit)
    )
    opened = open_run(path, read_from=SOURCE).reopen()
    assert opened.plan.refits is refit
    assert opened.settings.splits == ("random", "blocks")


def test_keys_that_geogp_does_not_know_are_kept(tmp_path):
    def add(run):
        run["of_another"] = {"x": [1, None]}
        run["settings"]["of_another"] = 1

    path = edited_copy(STORED / "field", tmp_path / "run", add)
    remake_report(path)
    told = json.loads((path / "run.json").read_text())
    assert told["of_another"] == {"x": [1, None]}
    assert told["settings"]["of_another"] == 1
    assert told["file_records"]["report.json"]["bytes"] == (path / "report.json").stat().st_size
    assert open_run(path).content["of_another"] == {"x": [1, None]}


QUESTIONS = {
    "areas": ({}, ("by", "weights", "question", "tests", "devices", "at", "draws", "seed")),
    "providers": ({}, ("by", "at", "seed")),
    "change": ({"start": "2023Q1"}, ("start", "end", "by", "at_least", "draws", "seed")),
    "at": (
        {"latitude": 18.0, "longitude": -66.0},
        ("latitude", "longitude", "quarters", "question", "tests", "threshold", "tier", "near_km"),
    ),
    "exceedance": ({}, ("threshold", "tier", "by", "weights", "at", "draws", "seed")),
    "next": ({}, ("tiles", "among", "within", "by", "tests", "at", "candidates", "seed")),
}
"""Methods of a run, with needed arguments, and all arguments that are tried."""


REQUESTS = {
    "areas": AreasRequest,
    "providers": AreasRequest,
    "change": ChangeRequest,
    "at": PlaceQuestion,
    "exceedance": ExceedanceRequest,
    "next": NextRequest,
}


@pytest.mark.parametrize("name", REQUESTS)
def test_defaults_are_those_of_the_command(name):
    settings = settings_of(REQUESTS[name])
    arguments = inspect.signature(getattr(Run, name)).parameters
    shared = arguments.keys() & settings.keys()
    assert shared
    for argument in shared:
        assert arguments[argument].default == settings[argument].default


@pytest.mark.parametrize("name", QUESTIONS)
def test_arguments_of_wrong_kinds_are_refused(name, run):
    given, arguments = QUESTIONS[name]
    for argument in arguments:
        for wrong in (object(), {}, b"x", 1j, "a\0b", ["x"], [[1], [2, 3]], -1, float("nan")):
            with pytest.raises(GeogpError) as found:
                getattr(run, name)(**{**given, argument: wrong})
            assert len(str(found.value)) > 20


def test_no_thresholds_are_refused_and_one_needs_no_list(run):
    with pytest.raises(RequestError, match="expected one threshold or more, found none"):
        run.exceedance([])
    with pytest.raises(RequestError, match="expected threshold as a list, each a number, or None"):
        run.exceedance("x")
    pd.testing.assert_frame_equal(run.exceedance(7.0, draws=200), run.exceedance([7.0], draws=200))


def test_a_path_is_a_path():
    for wrong in (5, None, ["runs"], True):
        with pytest.raises(RequestError, match="expected path as a path or text"):
            open_run(wrong)

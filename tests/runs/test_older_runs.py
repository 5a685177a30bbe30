"""Stored runs, of version 0.1 and of this one, are read and opened again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geogp.answers.make import make_answer, make_answers
from geogp.answers.pages import remake_report
from geogp.answers.requests import AreasRequest, ExceedanceRequest, NextRequest
from geogp.answers.run import open_run
from geogp.errors import DataError
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.models.field.home import Home
from geogp.runs.run_places import RunPlaces

FIXTURES = Path(__file__).parents[1] / "fixtures"
SOURCE = RunPlaces(
    str(FIXTURES / "run-0.1" / "source"), str(FIXTURES / "run-0.1" / "source" / "boundaries")
)
RUNS = ("run-0.1/field", "run-0.1/older", "run-0.2/field")
EARLIER = RUNS[0]
"""A run whose field model this version does not read; it reads the other files of the run."""


def copied(name, folder):
    """Return a copy of a stored run."""
    return Path(shutil.copytree(FIXTURES / name, folder / "run"))


@pytest.fixture(params=RUNS)
def stored(request, tmp_path):
    return copied(request.param, tmp_path)


def test_the_older_run_lacks_what_came_later():
    field, older = (json.loads((FIXTURES / name / "run.json").read_text()) for name in RUNS[:2])
    later = {"file_records", "threads"}
    assert later <= set(field)
    assert not later & set(older)
    assert b'"widening"' in (FIXTURES / RUNS[0] / "model.safetensors").read_bytes()
    assert b'"widening"' not in (FIXTURES / RUNS[1] / "model.safetensors").read_bytes()


def predicted_rows(run):
    """Return the test rows of a run with their stored predictions.

    The model of the map is that of the random split, whose predictions are stored. Predictions
    depend on the devices of a row, which only the source has.
    """
    inputs = run.reopen().inputs
    key = ["quadkey", "quarter"]
    codes = format_quadkeys(inputs.observations.quadkey)
    devices = inputs.table.assign(quadkey=codes)
    rows = run.predictions[run.predictions["split"] == "random"]
    rows = rows.assign(quarter=pd.PeriodIndex(rows["quarter"], freq="Q"))
    rows = rows.merge(devices[[*key, "devices"]], "left", key, validate="one_to_one")
    assert len(rows) > 30
    return rows


def test_its_model_predicts_what_it_predicted(tmp_path):
    run = open_run(copied(RUNS[1], tmp_path), device="cpu", read_from=SOURCE)
    rows = predicted_rows(run)
    found = run.model.predict_distribution(rows)
    np.testing.assert_allclose(found.mean, rows["mean"], rtol=1e-5)


def test_its_field_predicts_what_it_predicted_except_far_from_rows(tmp_path):
    """There, this version lets the field return to its mean."""
    run = open_run(copied(RUNS[2], tmp_path), device="cpu", read_from=SOURCE)
    rows, model = predicted_rows(run), run.model
    found, field = model.predict_distribution(rows), model.network_
    assert field.rows.home.exists
    distance = field.rows.nearest(
        field.parameters.points(field.parameters.scaled(model.inputs(rows)))
    )
    near = distance == 0
    assert 0 < near.sum() < len(rows)
    np.testing.assert_allclose(found.mean[near], rows["mean"][near], rtol=1e-6)
    np.testing.assert_allclose(found.mean, rows["mean"], rtol=1e-4)
    model.network_ = replace(field, rows=replace(field.rows, home=Home.nowhere(field.rows.x)))
    without = model.predict_distribution(rows)
    np.testing.assert_allclose(without.mean, rows["mean"], rtol=1e-5)


@pytest.mark.parametrize("name", RUNS[1:])
def test_its_areas_have_the_levels_they_had(name, tmp_path):
    asked = AreasRequest(copied(name, tmp_path), by="urban", draws=200, **vars(SOURCE))
    found = make_answer(asked).table
    stored = FIXTURES / name
    told = json.loads((stored.parent / "levels.json").read_text())[stored.name]
    assert dict(zip(found["area"], found["level_mean_mbps"], strict=True)) == pytest.approx(
        told, rel=1e-5
    )


def test_a_field_model_of_an_earlier_version_is_refused_and_the_rest_is_read(tmp_path):
    run = open_run(copied(EARLIER, tmp_path), device="cpu", read_from=SOURCE)
    assert run.record.model == "field"
    assert len(run.predictions) == sum(parts["test"] for parts in run.content["n"].values())
    for ask in (
        lambda: run.model,
        lambda: make_answer(AreasRequest(run.path, by="urban", **vars(SOURCE))),
        lambda: make_answers(ExceedanceRequest(run.path, threshold=(25,), **vars(SOURCE))),
        lambda: make_answer(NextRequest(run.path, tiles=5, **vars(SOURCE))),
    ):
        with pytest.raises(
            DataError, match=r"model\.safetensors: .* earlier version .* Map the region again"
        ):
            ask()


def test_its_report_is_written_again(stored):
    before = json.loads((stored / "run.json").read_text())
    remake_report(stored)
    report = json.loads((stored / "report.json").read_text())
    assert set(report["splits"]) == set(before["metrics"])
    after = json.loads((stored / "run.json").read_text())
    assert after.keys() == before.keys()
    assert all(after[key] == before[key] for key in before if key != "file_records")

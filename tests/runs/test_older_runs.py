"""Runs of version 0.1, as they were written then, are read and opened again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geogp.commands.areas import make_areas
from geogp.commands.run_requests import AreasRequest
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.make_map import remake_report
from geogp.runs.run_places import RunPlaces

STORED = Path(__file__).parents[1] / "fixtures" / "run-0.1"
SOURCE = RunPlaces(str(STORED / "source"), str(STORED / "source" / "boundaries"))
RUNS = ("field", "older")


@pytest.fixture(params=RUNS)
def stored(request, tmp_path):
    """A copy of a stored run, in a folder of its name."""
    return Path(shutil.copytree(STORED / request.param, tmp_path / request.param))


def test_the_older_run_lacks_what_came_later():
    field, older = (json.loads((STORED / name / "run.json").read_text()) for name in RUNS)
    later = {"file_records", "threads"}
    assert later <= set(field)
    assert not later & set(older)
    assert b'"widening"' in (STORED / "field" / "model.safetensors").read_bytes()
    assert b'"widening"' not in (STORED / "older" / "model.safetensors").read_bytes()


def test_its_model_predicts_what_it_predicted(stored):
    """The model of the map is that of the random split, whose predictions are stored."""
    run = open_run(stored, device="cpu", read_from=SOURCE)
    rows = run.predictions[run.predictions["split"] == "random"]
    quarters = pd.PeriodIndex(rows["quarter"], freq="Q")
    found = run.model.predict_distribution(rows.assign(quarter=quarters))
    assert len(rows) > 30
    np.testing.assert_allclose(found.mean, rows["mean"], rtol=1e-5)


def test_its_areas_have_the_levels_they_had(stored):
    found = make_areas(AreasRequest(stored, by="urban", draws=200, **vars(SOURCE))).table
    told = json.loads((STORED / "levels.json").read_text())[stored.name]
    assert dict(zip(found["area"], found["level_mean_mbps"], strict=True)) == pytest.approx(
        told, rel=1e-5
    )


def test_its_report_is_written_again(stored):
    before = json.loads((stored / "run.json").read_text())
    remake_report(stored)
    report = json.loads((stored / "report.json").read_text())
    assert set(report["splits"]) == set(before["metrics"])
    after = json.loads((stored / "run.json").read_text())
    assert after.keys() == before.keys()
    assert all(after[key] == before[key] for key in before if key != "file_records")

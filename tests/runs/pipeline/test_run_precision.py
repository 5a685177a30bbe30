"""A run in single precision: recorded, kept, and its answers in the same precision."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from geogp.answers import make
from geogp.answers.make import make_answer
from geogp.answers.requests import AreasRequest, FiguresRequest
from geogp.answers.run import open_run
from geogp.commands.paper_figures import make_figures
from geogp.errors import RequestError
from geogp.models.numerics.precision import current_precision
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_folder import LEVEL_FILE


@pytest.fixture(scope="module")
def single(small, tmp_path_factory):
    request = small.request(tmp_path_factory.mktemp("precision") / "run", precision="single")
    run_map(request)
    return request


def test_no_level_is_kept(single, finished):
    name = LEVEL_FILE.format("*")
    assert list(finished.path.glob(name))
    assert not list(single.out.glob(name))


def test_it_is_in_the_record_of_the_run_and_the_fit_is_kept(single, finished):
    text = (single.out / "run.json").read_text("utf-8")
    assert json.loads(text)["settings"]["model"]["precision"] == "single"
    assert open_run(single.out).record.precision == "single"
    assert run_map(single).already_there
    double = open_run(finished.path)
    assert double.content["settings"]["model"]["precision"] == "double"
    assert double.record.precision == "double"


def test_another_precision_is_another_run(single):
    with pytest.raises(RequestError, match="precision"):
        run_map(replace(single, precision="double"))


def test_an_unknown_precision_is_refused():
    with pytest.raises(RequestError, match="precision 'half'; choose one of double, single"):
        MapSettings(region="PR", precision="half")


def test_answers_have_the_precision_of_the_run(single, monkeypatch):
    seen, real = [], make.reopen

    def reopen(*args, **given):
        seen.append(current_precision())
        return real(*args, **given)

    monkeypatch.setattr(make, "reopen", reopen)
    monkeypatch.setattr("geogp.answers.run.reopen", reopen)
    run = open_run(single.out)
    assert len(run.areas(by="stratum"))
    make_answer(AreasRequest(single.out, by="stratum"))
    make_figures(FiguresRequest(single.out))
    assert seen == ["single"] * 3
    assert current_precision() == "double"


def test_a_run_of_a_model_that_needs_its_rows_answers_and_its_model_is_of_use(small, tmp_path):
    request = small.request(tmp_path / "run", precision="single", model="nngp", epochs=1, zoom=12)
    run_map(request)
    run = open_run(request.out)
    assert len(run.areas(by="stratum"))
    tile = pd.read_parquet(request.out / "tiles.parquet").iloc[0]
    found = run.at(tile["latitude"], tile["longitude"])
    assert np.isfinite(found["median_mbps"]).all()
    assert run.model.network_.y_mean.dtype == torch.float64

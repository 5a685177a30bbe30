"""A run in single precision: recorded, kept, and its answers in the same precision."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from geogp.commands.answers.areas import make_areas
from geogp.commands.paper_figures import make_figures
from geogp.commands.run_requests import AreasRequest, FiguresRequest
from geogp.errors import RequestError
from geogp.models.numerics.precision import current_precision
from geogp.runs import open_run as opened
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.settings import MapRequest


@pytest.fixture(scope="module")
def single(small, tmp_path_factory):
    request = small.request(tmp_path_factory.mktemp("precision") / "run", precision="single")
    make_map(request)
    return request


def test_no_level_is_kept(single):
    assert not list(single.out.glob("level_*"))


def test_it_is_in_the_record_of_the_run_and_the_fit_is_kept(single, finished):
    text = (single.out / "run.json").read_text("utf-8")
    assert json.loads(text)["settings"]["precision"] == "single"
    assert open_run(single.out).record.precision == "single"
    assert make_map(single).already_there
    double = open_run(finished.path)
    assert "precision" not in double.content["settings"]
    assert double.record.precision == "double"


def test_another_precision_is_another_run(single):
    with pytest.raises(RequestError, match="precision"):
        make_map(replace(single, precision="double"))


def test_an_unknown_precision_is_refused():
    with pytest.raises(RequestError, match="precision 'half'; choose one of double, single"):
        MapRequest(region="PR", precision="half")


def test_answers_have_the_precision_of_the_run(single, monkeypatch):
    seen, real = [], opened.reopen

    def reopen(*args, **given):
        seen.append(current_precision())
        return real(*args, **given)

    monkeypatch.setattr(opened, "reopen", reopen)
    run = open_run(single.out)
    assert len(run.areas(by="stratum"))
    make_areas(AreasRequest(single.out, by="stratum"))
    make_figures(FiguresRequest(single.out))
    assert seen == ["single"] * 3
    assert current_precision() == "double"


def test_a_run_of_a_model_that_needs_its_rows_answers_and_its_model_is_of_use(small, tmp_path):
    request = small.request(tmp_path / "run", precision="single", model="nngp", split="random")
    make_map(request)
    run = open_run(request.out)
    assert len(run.areas(by="stratum"))
    tile = pd.read_parquet(request.out / "tiles.parquet").iloc[0]
    found = run.at(tile["latitude"], tile["longitude"])
    assert np.isfinite(found["median_mbps"]).all()
    assert run.model.network_.y_mean.dtype == torch.float64

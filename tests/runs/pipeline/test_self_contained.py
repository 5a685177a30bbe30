"""A page without a base map is a matter of drawing: the fit is kept, and no network is needed."""

import shutil

import pytest
from run_worlds import Heard, run_json

from geogp.runs.pipeline.run_map import run_map


@pytest.mark.trial
def test_the_page_is_drawn_anew_without_a_fit(small, finished, tmp_path):
    out = shutil.copytree(finished.path, tmp_path / "run")
    assert "cartocdn" in (out / "map.html").read_text("utf-8")
    heard = Heard()
    asked = small.request(out, split="both", self_contained=True)
    drawn = run_map(asked, heard)
    assert any("fitted model again" in stage for stage in heard.texts)
    assert run_json(drawn)["metrics"] == run_json(finished)["metrics"]
    assert "cartocdn" not in (out / "map.html").read_text("utf-8")
    assert run_json(drawn)["drawing"]["self_contained"] is True
    assert run_map(asked).already_there

"""A page without a base map is a matter of drawing: the fit is kept, and no network is needed."""

import shutil

import pytest
from run_worlds import Heard, run_json

from geogp.maps.page.interactive_page import map_page
from geogp.runs.pipeline import draw
from geogp.runs.pipeline.run_map import run_map


@pytest.mark.trial
def test_the_page_is_drawn_anew_without_a_fit(small, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished.path, tmp_path / "run")
    wanted = []

    def page(*content, base_map, **words):
        wanted.append(base_map)  # the page of the invented region has no base map either way
        return map_page(*content, base_map=base_map, **words)

    monkeypatch.setattr(draw, "map_page", page)
    for alone in (True, False):
        heard = Heard()
        asked = small.request(out, split="both", self_contained=alone)
        drawn = run_map(asked, heard)
        assert any("fitted model again" in stage for stage in heard.texts)
        assert run_json(drawn)["metrics"] == run_json(finished)["metrics"]
        assert "cartocdn" not in (out / "map.html").read_text("utf-8")
        assert run_json(drawn)["drawing"]["self_contained"] is alone
        assert run_map(asked).already_there
    assert wanted == [False, True]

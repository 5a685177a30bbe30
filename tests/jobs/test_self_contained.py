"""A page with Leaflet in it is a matter of drawing: the fit is kept."""

import hashlib
import shutil
from dataclasses import replace

import pytest

from geogp.errors import DataError, RequestError
from geogp.maps import page_assets
from geogp.watcher import Watcher
from geogp.workflow import make_map


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """A folder with small files in place of Leaflet's."""
    folder = tmp_path / "npm" / "leaflet" / "dist"
    folder.mkdir(parents=True)
    files = {"leaflet.js": b"window.L = 'stand-in';", "leaflet.css": b".stand-in {}"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(page_assets, "SHA256", hashes)
    return tmp_path / "npm"


class Heard(Watcher):
    def __init__(self):
        self.stages = []

    def stage(self, text):
        self.stages.append(text)


def test_the_page_is_drawn_anew_without_a_fit(small, finished, tmp_path, assets):
    out = shutil.copytree(finished.path, tmp_path / "run")
    assert "jsdelivr" in (out / "map.html").read_text("utf-8")
    heard = Heard()
    asked = small.request(out, split="both", self_contained=True, assets=assets)
    drawn = make_map(asked, heard)
    assert any("anew" in stage for stage in heard.stages)
    assert drawn.run["metrics"] == finished.run["metrics"]
    page = (out / "map.html").read_text("utf-8")
    assert "window.L = 'stand-in';" in page
    assert ".stand-in {}" in page
    assert "jsdelivr" not in page
    assert drawn.run["drawing"]["self_contained"] is True
    assert make_map(asked).already_there


def test_what_is_missing_is_said_before_any_work(small, tmp_path):
    heard = Heard()
    request = small.request(tmp_path / "run", self_contained=True, assets=tmp_path / "nowhere")
    with pytest.raises(RequestError, match="--assets needs one"):
        make_map(request, heard)
    with pytest.raises(DataError, match=r"no leaflet\.js in"):
        make_map(replace(request, assets=tmp_path), heard)
    assert heard.stages == []

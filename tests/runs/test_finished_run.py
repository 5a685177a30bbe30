"""A request whose run is complete is answered without its data, while all files are the same."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from geogp.geodata.store.cache_place import cache_folder
from geogp.runs.finished_run import finished_run
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import ProgressListener

pytestmark = pytest.mark.usefixtures("no_pictures", "short_field_fits")


@pytest.fixture
def known(own_small, finished, tmp_path, monkeypatch):
    """A request whose run is complete, and was asked for once; its source may be changed."""
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    out = Path(shutil.copytree(finished.path, tmp_path / "run"))
    text = (out / "run.json").read_text()  # made from the same files in another folder
    before = json.loads(text)["settings"]["data"]["source"]
    (out / "run.json").write_text(text.replace(before, str(own_small.folder)))
    request = own_small.request(out, split="both")
    assert finished_run(request) is None
    assert run_map(request).already_there
    return request


def _again(path):
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))


def test_a_run_is_known_until_a_file_of_its_source_changes(known):
    found = finished_run(known)
    assert found is not None
    assert found.already_there
    assert found == run_map(known)
    source = Path(known.source)
    for change in (
        lambda: _again(next(source.rglob("*_tiles.parquet"))),
        lambda: (source / "more.parquet").write_bytes(b""),
        lambda: _again(source / "boundaries" / "states.parquet"),
    ):
        change()
        assert finished_run(known) is None
        run_map(known)
        assert finished_run(known) == found


def test_a_run_is_complete_only_with_all_its_files(known):
    (Path(known.out) / "report.md").unlink()
    assert finished_run(known) is None
    assert not run_map(known).already_there
    assert finished_run(known) is not None
    (Path(known.out) / ".unfinished").mkdir()
    (Path(known.out) / ".unfinished" / "identity.json").write_text("{}")
    assert finished_run(known) is None


def test_other_requests_are_not_known(known, own_small, tmp_path):
    for changes in ({"seed": 1}, {"fresh": True}, {"far_km": 3.0}, {"zoom": 12}):
        request = own_small.request(known.out, **{"split": "both", **changes})
        assert finished_run(request) is None
    assert finished_run(own_small.request(tmp_path / "elsewhere", split="both")) is None
    assert not (tmp_path / "elsewhere").exists()


def test_warnings_are_told_again(known):
    class Told(ProgressListener):
        def __init__(self):
            self.texts = []

        def warn(self, text):
            self.texts.append(text)

    (note,) = (cache_folder() / "requests").glob("*.json")
    content = json.loads(note.read_text())
    note.write_text(json.dumps({**content, "warnings": ["a gap"]}))
    told = Told()
    finished_run(known, told)
    assert told.texts == ["a gap"]
    note.write_text("{")  # a damaged note is only a memory
    assert finished_run(known) is None


def test_neither_a_finished_map_nor_its_values_need_torch(known):
    """They would take most of the time."""
    code = f"""
import sys
from pathlib import Path
from geogp.answers.shown_map import make_shown_map
from geogp.records.map_settings import MapSettings
made = make_shown_map(MapSettings(region="DEMO", source={known.source!r},
    boundaries={known.boundaries!r}, preset="quick", epochs=2, zoom=13, split="both",
    out=Path({str(known.out)!r})))
assert made.already_there
heavy = ("torch", "pandas", "pyarrow", "scipy", "geopandas", "matplotlib", "xarray", "requests")
print([name for name in heavy if name in sys.modules])
import geogp.answers.at
print([name for name in ("torch", "scipy", "geopandas", "xarray") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]

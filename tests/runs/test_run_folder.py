"""The run folder."""

import json
from pathlib import Path

import pytest

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import write_text
from geogp.runs import run_folder as runs
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import IDENTITY_KEYS

IDENTITY = dict.fromkeys(IDENTITY_KEYS, 1)


def test_files_move_into_place_together(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(IDENTITY)

    def write(staged):
        write_text(staged / "map.html", "map")
        assert not (folder.path / "map.html").exists()

    folder.complete(write, {"n": 1})
    assert sorted(path.name for path in folder.path.iterdir()) == ["map.html", "run.json"]


def test_what_was_written_later_goes_with_the_run_that_it_was_made_from(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for attempt in range(2):
        folder.begin(IDENTITY)
        folder.complete(lambda staged: write_text(staged / "map.html", "map"), {"n": attempt})
        later = ("report.tex", "areas_county.csv", "excursion_7_mbps.tif", "next_tiles.json")
        left = sorted(path.name for path in folder.path.iterdir())
        assert left == ["map.html", "run.json"]
        for name in later:
            write_text(folder.path / name, "later")


def test_folders_replace_folders_and_go_with_their_run(tmp_path):
    folder = RunFolder(tmp_path / "run")

    def writer(*names):
        return lambda staged: [write_text(staged / name, "new") for name in names]

    folder.complete(writer("grid.zarr/old", "grid.zarr/a/b"), {**IDENTITY, "n": 1})
    write_text(folder.path / "figures" / "basis.png", "later")
    folder.complete(writer("grid.zarr/a/b"), {**IDENTITY, "n": 2})
    found = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    assert found == ["grid.zarr", "grid.zarr/a", "grid.zarr/a/b", "run.json"]
    assert json.loads((folder.path / "run.json").read_text())["files"] == ["grid.zarr"]
    folder.complete(writer("map.html"), {**IDENTITY, "n": 3})
    assert sorted(path.name for path in folder.path.iterdir()) == ["map.html", "run.json"]


def test_a_failure_leaves_no_file_but_what_continues_the_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(IDENTITY)

    def write(staged):
        write_text(staged / "map.html", "map")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        folder.complete(write, {})
    assert [path.name for path in folder.path.rglob("*")] == [".unfinished", "identity.json"]


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_moves_that_are_interrupted_are_ended_by_the_next_call(tmp_path, monkeypatch, moves):
    """A finished run whose map is drawn anew: no file of it is lost, and no old one stays."""
    folder = RunFolder(tmp_path / "run")
    old = {"a.png": "old", "b.png": "old", "model": "weights"}
    new = {"a.png": "new", "c.png": "new", "model": "weights"}

    def writer(files):
        return lambda staged: [write_text(staged / name, text) for name, text in files.items()]

    folder.complete(writer(old), {**IDENTITY, "n": 1})
    replace, done = Path.replace, []

    def interrupted(self, target):
        if "files" in self.parts and not self.name.startswith("."):
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(self.name)
        return replace(self, target)

    staged = []

    def write(at):
        writer(new)(at)
        staged.append(at)

    def late(path, text):
        write_text(path, text)
        if path.name == "run.json":
            monkeypatch.setattr(Path, "replace", interrupted)

    monkeypatch.setattr(runs, "write_text", late)
    with pytest.raises(KeyboardInterrupt):
        folder.complete(write, {**IDENTITY, "n": 2})
    monkeypatch.undo()
    folder.settle()
    found = {path.name: path.read_text() for path in folder.path.iterdir()}
    assert json.loads(found.pop("run.json"))["n"] == 2
    assert found == new


def test_unfinished_runs_are_told_apart(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.finished(IDENTITY) is None
    folder.begin(IDENTITY)
    assert folder.finished(IDENTITY) is None
    with pytest.raises(RequestError, match="other model, seed"):
        folder.finished({**IDENTITY, "seed": 2, "model": 2})


def test_damaged_notes_are_refused(tmp_path):
    folder = RunFolder(tmp_path)
    for content in ("{", "[]"):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(DataError, match=r"damaged.*--out"):
            folder.finished(IDENTITY)


@pytest.mark.parametrize("layers", [-1, 1.5, None, [1], [["a"]]])
def test_layers_of_another_form_are_those_of_another_run(tmp_path, layers):
    folder = RunFolder(tmp_path)
    held = {**IDENTITY, "settings": {"layers": layers}}
    (tmp_path / "run.json").write_text(json.dumps(held))
    with pytest.raises(RequestError, match="other settings"):
        folder.finished({**IDENTITY, "settings": {"layers": []}})


def test_places_that_were_kept_as_typed_are_those_of_this_folder(tmp_path, monkeypatch):
    """Versions before kept relative folders; the same command still continues the run."""
    monkeypatch.chdir(tmp_path)
    typed = {"source": "data", "boundaries": "s3://borders", "layers": ["zones.shp:NAME"]}
    whole = {
        "source": str(tmp_path.resolve() / "data"),
        "boundaries": "s3://borders",
        "layers": [f"{tmp_path.resolve() / 'zones.shp'}:NAME"],
    }
    folder = RunFolder(tmp_path / "run")
    folder.begin({**IDENTITY, "settings": typed})
    assert folder.finished({**IDENTITY, "settings": whole}) is None
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="other settings"):
        folder.finished({**IDENTITY, "settings": whole})

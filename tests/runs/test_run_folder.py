"""The run folder."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from run_worlds import changed_at, made_up_run, note_of

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import write_text
from geogp.runs import run_folder as runs
from geogp.runs.run_folder import RunFolder

RUN = made_up_run()


def writes(*names, run=RUN):
    """Return what writes such files, and says what run.json holds."""

    def write(staged):
        for name in names:
            write_text(staged / name, "new")
        return run

    return write


def test_files_move_into_place_together(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(note_of(RUN))

    def write(staged):
        write_text(staged / "map.html", "map")
        assert not (folder.path / "map.html").exists()
        return RUN

    assert folder.complete(write).files == ["map.html"]
    assert sorted(path.name for path in folder.path.iterdir()) == ["map.html", "run.json"]


def test_what_was_written_later_goes_with_the_run_that_it_was_made_from(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for _ in range(2):
        folder.begin(note_of(RUN))
        folder.complete(writes("map.html"))
        later = ("report.tex", "areas_county.csv", "excursion_7_mbps.tif", "next_tiles.json")
        later += ("providers_county_download_2023Q4.json",)
        left = sorted(path.name for path in folder.path.iterdir())
        assert left == ["map.html", "run.json"]
        for name in later:
            write_text(folder.path / name, "later")


def test_folders_replace_folders_and_go_with_their_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.complete(writes("grid.zarr/old", "grid.zarr/a/b"))
    write_text(folder.path / "figures" / "basis.png", "later")
    folder.complete(writes("grid.zarr/a/b"))
    found = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    assert found == ["grid.zarr", "grid.zarr/a", "grid.zarr/a/b", "run.json"]
    assert json.loads((folder.path / "run.json").read_text())["files"] == ["grid.zarr"]
    folder.complete(writes("map.html"))
    assert sorted(path.name for path in folder.path.iterdir()) == ["map.html", "run.json"]


def test_a_failure_leaves_no_file_but_what_continues_the_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(note_of(RUN))

    def write(staged):
        write_text(staged / "map.html", "map")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        folder.complete(write)
    assert [path.name for path in folder.path.rglob("*")] == [".unfinished", "identity.json"]


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_moves_that_are_interrupted_are_ended_by_the_next_call(tmp_path, monkeypatch, moves):
    """A finished run whose map is drawn anew: no file of it is lost, and no old one stays."""
    folder = RunFolder(tmp_path / "run")
    old = {"a.png": "old", "b.png": "old", "model": "weights"}
    new = {"a.png": "new", "c.png": "new", "model": "weights"}

    def writer(files, seed):
        def write(at):
            for name, text in files.items():
                write_text(at / name, text)
            return made_up_run(seed=seed)

        return write

    folder.complete(writer(old, 1))
    replace, done = Path.replace, []

    def interrupted(self, target):
        if "files" in self.parts and not self.name.startswith("."):
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(self.name)
        return replace(self, target)

    def late(path, text):
        write_text(path, text)
        if path.name == "run.json":
            monkeypatch.setattr(Path, "replace", interrupted)

    monkeypatch.setattr(runs, "write_text", late)
    with pytest.raises(KeyboardInterrupt):
        folder.complete(writer(new, 2))
    monkeypatch.undo()
    folder.prepare()
    found = {path.name: path.read_text() for path in folder.path.iterdir()}
    assert json.loads(found.pop("run.json"))["seed"] == 2
    assert found == new


def test_unfinished_runs_are_told_apart(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.finished(RUN) is None
    folder.begin(note_of(RUN))
    assert folder.finished(RUN) is None
    with pytest.raises(RequestError, match="a run that differs in model, seed"):
        folder.finished(made_up_run(seed=2, model="cox"))


def test_damaged_notes_are_refused(tmp_path):
    folder = RunFolder(tmp_path)
    for content in ("{", "[]"):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(DataError, match=r"damaged.*--out"):
            folder.finished(RUN)


@pytest.mark.parametrize("layers", [-1, 1.5, None, [1], [["a"]]])
def test_layers_of_another_form_are_those_of_another_run(tmp_path, layers):
    folder = RunFolder(tmp_path)
    held = to_builtins(RUN)
    held["settings"]["checks"]["layers"] = layers
    (tmp_path / "run.json").write_text(json.dumps(held))
    with pytest.raises(RequestError, match="a run that differs in settings"):
        folder.finished(RUN)


def test_a_setting_that_is_not_known_is_that_of_another_run(tmp_path):
    folder = RunFolder(tmp_path)
    for place in (("settings",), ("settings", "checks")):
        held = changed_at(to_builtins(RUN), (*place, "later"), 3)
        (tmp_path / "run.json").write_text(json.dumps(held))
        with pytest.raises(RequestError, match="a run that differs in settings"):
            folder.finished(RUN)

"""The run folder."""

import pytest

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import write_text
from geogp.runs import IDENTITY_KEYS, RunFolder

IDENTITY = dict.fromkeys(IDENTITY_KEYS, 1)


def test_files_move_into_place_together(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(IDENTITY)

    def write(staged):
        write_text(staged / "map.html", "map")
        assert not (folder.path / "map.html").exists()

    folder.complete(write, {"n": 1})
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

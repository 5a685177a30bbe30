"""A run folder that was left at any moment: the same request, and --fresh, end with a whole run."""

import os
import shutil

import pytest
from run_worlds import made_up_run, note_of

from geogp.errors import DataError, RequestError
from geogp.files import read_json, write_bytes, write_text
from geogp.records.record_reading import record_of
from geogp.runs.file_records import damaged_files
from geogp.runs.locks import LOCK_FILE, LOCK_FILES, lock_folder
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_names import RUN_FILE

OLD, NEW = made_up_run(seed=1), made_up_run(seed=2)
FILES = {1: ("a.png", "b.png", "grid.zarr"), 2: ("a.png", "c.png", "grid.zarr")}
"""Files by seed: of those of the first, the second has one no more."""


class Killed(BaseException):
    """The process is gone: nothing that it would do at its end is done."""


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch):
    """A disk that need not be waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def write_files(staged, run):
    for name in FILES[run.seed]:
        place = staged / name / "chunk" if name.endswith(".zarr") else staged / name
        write_text(place, f"{name} of {run.seed}")
    return run


def attempt(path, run, *, fresh=False):
    """Do with a folder what `make_map` does; a fit is one checkpoint."""
    folder, seed = RunFolder(path), run.seed
    folder.check()
    with lock_folder(path):
        folder.prepare(fresh=fresh)
        held = None if fresh else folder.finished(run)
        if held is not None and not damaged_files(path, held):
            return
        folder.begin(note_of(run))
        checkpoint = folder.unfinished / "random.safetensors"
        if checkpoint.exists() and checkpoint.read_text() != str(seed):
            raise DataError("the checkpoint belongs to another fit.")
        write_bytes(checkpoint, str(seed).encode())
        folder.complete(lambda staged: write_files(staged, run))


def killed_at(step, path, identity, *, fresh=False):
    """Kill an attempt before its call of that number that changes a folder; False: it ended."""
    calls = 0

    def counted(real):
        def call(*arguments, **more):
            nonlocal calls
            creates = real is not REAL["open"] or arguments[1] & os.O_CREAT
            calls += bool(creates)
            if creates and calls >= step:
                raise Killed
            return real(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, real in REAL.items():
            patch.setattr(os, name, counted(real))
        try:
            attempt(path, identity, fresh=fresh)
        except Killed:
            return True
    return False


REAL = {
    name: getattr(os, name) for name in ("mkdir", "unlink", "rmdir", "rename", "replace", "open")
}


def assert_whole(path, seed, *others):
    run = read_json(path / RUN_FILE)
    assert run["seed"] == seed
    assert damaged_files(path, record_of(run)) == []
    found = {entry.name for entry in path.iterdir()} - LOCK_FILES
    assert found == {*FILES[seed], RUN_FILE, *others}
    assert (path / "grid.zarr" / "chunk").read_text() == f"grid.zarr of {seed}"
    assert (path / "a.png").read_text() == f"a.png of {seed}"


def nothing(_path):
    """Leave no folder."""


def finished(path):
    attempt(path, OLD)
    write_text(path / "notes.txt", "mine")
    write_text(path / "areas_county.csv", "of the old run")


def lacking(path):
    attempt(path, NEW)
    write_text(path / "notes.txt", "mine")
    (path / "c.png").unlink()


WORLDS = [(nothing, False, ()), (finished, True, ("notes.txt",)), (lacking, False, ("notes.txt",))]


@pytest.mark.parametrize(("begun", "fresh", "others"), WORLDS)
def test_a_kill_at_any_moment_leaves_what_is_ended_or_cleared(tmp_path, begun, fresh, others):
    begun(tmp_path / "start")
    steps = 0
    while True:
        steps += 1
        left = tmp_path / f"left-{steps}"
        if (tmp_path / "start").exists():
            shutil.copytree(tmp_path / "start", left)
        if not killed_at(steps, left, NEW, fresh=fresh):
            break
        copy = tmp_path / f"copy-{steps}"
        if left.exists():
            shutil.copytree(left, copy)
        killed_at(1 + steps * 7 % 40, copy, NEW, fresh=fresh)  # once more, while it is put right
        attempt(copy, NEW, fresh=fresh)
        assert_whole(copy, 2, *others)
        attempt(left, NEW, fresh=True)
        assert_whole(left, 2, *others)
    assert steps > 25


@pytest.mark.parametrize(("begun", "fresh", "others"), WORLDS)
def test_after_a_kill_another_request_is_refused_or_done(tmp_path, begun, fresh, others):
    other = made_up_run(seed=1, model="dbk-silu")
    begun(tmp_path / "start")
    steps, refused = 0, 0
    while True:
        steps += 1
        left = tmp_path / f"left-{steps}"
        if (tmp_path / "start").exists():
            shutil.copytree(tmp_path / "start", left)
        if not killed_at(steps, left, NEW, fresh=fresh):
            break
        try:
            attempt(left, other)
        except RequestError as error:
            assert "contains a run that differs in" in str(error)  # noqa: PT017
            refused += 1
            attempt(left, other, fresh=True)
        assert_whole(left, 1, *others)
        shutil.rmtree(left)
    assert 0 < refused < steps or begun is not nothing


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("left", [(), (".identity.json.abcd1234",), ("files/a.png", "stale.json")])
def test_a_stop_before_the_first_note_is_no_folder_of_somebody_else(tmp_path, left, fresh):
    (tmp_path / "run" / ".unfinished").mkdir(parents=True)
    for name in left:
        write_text(tmp_path / "run" / ".unfinished" / name, "")
    attempt(tmp_path / "run", NEW, fresh=fresh)
    assert_whole(tmp_path / "run", 2)


def test_a_lock_alone_is_an_empty_folder(tmp_path):
    for name in LOCK_FILES:
        write_text(tmp_path / "run" / name, "{")
    attempt(tmp_path / "run", NEW)
    assert_whole(tmp_path / "run", 2)
    assert (tmp_path / "run" / LOCK_FILE).exists()


@pytest.mark.parametrize("list_of_old", [None, "[", '["../mine"]'])
def test_moves_whose_list_of_old_files_is_gone_or_damaged(tmp_path, list_of_old):
    path, mine = tmp_path / "run", tmp_path / "mine"
    mine.touch()
    staged = RunFolder(path).unfinished / "files"
    attempt(tmp_path / "made", NEW)
    shutil.copytree(tmp_path / "made", staged, ignore=shutil.ignore_patterns(".*"))
    if list_of_old is not None:
        write_text(RunFolder(path).unfinished / "stale.json", list_of_old)
        with pytest.raises(DataError, match=r"stale\.json.*--fresh"):
            attempt(path, NEW)
    attempt(path, NEW, fresh=list_of_old is not None)
    assert_whole(path, 2)
    assert mine.exists()


def test_files_that_were_not_written_to_the_end_go_and_others_stay(tmp_path):
    path = tmp_path / "run"
    attempt(path, NEW)
    for name in (".run.json.abcd_123", ".a.png.12345678", ".areas_county.csv.a1b2c3d4"):
        write_text(path / name, "half")
    mine = (".notes.txt.12345678", ".a.png.bak", ".profile")
    for name in mine:
        write_text(path / name, "mine")
    attempt(path, NEW)
    assert_whole(path, 2, *mine)


def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path):
    write_text(tmp_path / "own" / "notes.txt", "mine")
    with pytest.raises(RequestError, match=r"not part of a run \(notes\.txt\)"):
        attempt(tmp_path / "own", NEW)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["notes.txt"]

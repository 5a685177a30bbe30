"""A run folder is held by one process at a time."""

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from run_worlds import made_up_run

from geogp.answers.at import answer_at
from geogp.answers.make import make_answer, make_answers
from geogp.answers.pages import remake_report
from geogp.answers.requests import (
    AreasRequest,
    AtRequest,
    ChangeRequest,
    ExceedanceRequest,
    FiguresRequest,
    NextRequest,
)
from geogp.commands.paper_figures import make_figures
from geogp.errors import DataError, OutputError, RequestError
from geogp.files import read_json
from geogp.records.map_settings import MapSettings
from geogp.records.record_reading import record_of, run_text
from geogp.runs.file_records import damaged_files
from geogp.runs.locks import LOCK_FILE, NOTE_FILE, is_vacant, lock_folder
from geogp.runs.pipeline.run_map import run_map

HELD_BY_ME = rf"in use by process {os.getpid()} on {re.escape(repr(socket.gethostname()))} since 20"

PAIR = """
import os, sys
from dataclasses import replace
from pathlib import Path
from geogp.models.presets import PRESETS
import geogp.runs.pipeline.draw, geogp.runs.pipeline.run_map
from geogp_cli.entry import run
geogp.runs.pipeline.draw.write_map_figures = lambda *_, **__: None
geogp.maps.figures.figure_layout.Canvas.png = lambda *_: b"no picture"
geogp.runs.pipeline.run_map.report_html = lambda *_: "no report"
PRESETS["quick"] = replace(PRESETS["quick"], h=8, r=8)
folder, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
both = []
for number in range(2):
    both.append(os.fork())
    if not both[-1]:
        for stream in (1, 2):
            file = os.open(folder / f"{number}-{stream}", os.O_CREAT | os.O_WRONLY)
            os.dup2(file, stream)
        run()
for process in both:
    print(process, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
"""Two commands that begin at once, without the seconds that each takes to load PyTorch."""

HOLDER = """
import sys, time
from pathlib import Path
from geogp.runs.locks import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.trial
def test_of_two_commands_that_start_together_one_makes_the_run(small, tmp_path):
    out = tmp_path / "run"
    quick = ("--model", "dbk-silu", "--split", "random", "--epochs", "1", "--zoom", "11")
    done = subprocess.run(
        [sys.executable, "-c", PAIR, tmp_path, *small.arguments, *quick, "--out", out, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    ended = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    told = [[(tmp_path / f"{n}-{stream}").read_text() for stream in (1, 2)] for n in range(2)]
    assert sorted(code for _, code in ended) == [0, 2], told
    winner, loser = sorted(range(2), key=lambda n: ended[n][1])
    assert f"in use by process {ended[winner][0]} on" in told[loser][1]
    assert "Wait until this process ends, or stop it" in told[loser][1]
    assert json.loads(told[winner][0])["run"] == str(out)
    run = read_json(out / "run.json")
    assert damaged_files(out, record_of(run)) == []
    assert {path.name for path in out.iterdir()} == {*run["files"], "run.json", LOCK_FILE}


@pytest.fixture
def run(tmp_path):
    """A run of which only so much is there that it counts as finished."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(run_text(made_up_run(files=[])))
    (folder / "test_predictions.parquet").touch()
    return folder


@pytest.mark.parametrize(
    "command",
    [
        remake_report,
        lambda run: make_answer(AreasRequest(run)),
        lambda run: make_answer(ChangeRequest(run, start="2023Q3")),
        lambda run: make_answers(ExceedanceRequest(run)),
        lambda run: make_answer(NextRequest(run)),
        lambda run: make_figures(FiguresRequest(run)),
        lambda run: answer_at(AtRequest(run=run, place="18.2,-66.4")),
    ],
)
def test_a_command_on_a_run_is_refused_while_another_does(run, command):
    before = {path.name for path in run.iterdir()}
    with lock_folder(run), pytest.raises(RequestError, match=HELD_BY_ME):
        command(run)
    assert {path.name for path in run.iterdir()} == before | {LOCK_FILE}


def test_a_map_is_refused_before_anything_is_read(tmp_path, small):
    request = small.request(tmp_path / "run")
    object.__setattr__(request, "source", "/nowhere")
    with lock_folder(request.out), pytest.raises(RequestError, match=HELD_BY_ME):
        run_map(request)


def test_commands_leave_nothing_in_a_folder_that_is_no_run(tmp_path):
    for command in (remake_report, lambda path: make_answer(AreasRequest(path))):
        with pytest.raises(RequestError, match="not a finished run"):
            command(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_holds_nothing_and_its_note_says_nothing(tmp_path):
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(RequestError, match=f"in use by process {holder.pid} on"),
            lock_folder(folder),
        ):
            pass
        holder.kill()
    assert read_json(folder / NOTE_FILE)["pid"] == holder.pid
    assert is_vacant(folder)
    with lock_folder(folder):
        assert read_json(folder / NOTE_FILE)["pid"] == os.getpid()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("note", ["{", "[]", '{"pid": 1, "host": "x", "since": 3}', "9" * 9000])
def test_a_note_that_cannot_be_read_names_nobody(tmp_path, note):
    with lock_folder(tmp_path):
        (tmp_path / NOTE_FILE).write_text(note)
        with pytest.raises(RequestError, match="in use by another process"), lock_folder(tmp_path):
            pass


def test_who_waits_comes_next(tmp_path):
    order = []

    def second():
        with lock_folder(tmp_path / "run", wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    with lock_folder(tmp_path / "run"):
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_in_which_nothing_was_done_is_left_as_it_was(tmp_path, made):
    folder = tmp_path / "run"
    if made:
        folder.mkdir()
    with lock_folder(folder):
        assert is_vacant(folder)
        assert folder.is_dir()
    assert folder.exists() == made
    assert not made or not any(folder.iterdir())


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, code):
    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(OutputError, match=r"does not support locks.*on another file system"),
        lock_folder(tmp_path),
    ):
        pass
    assert not (tmp_path / NOTE_FILE).exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutputError, match=r"cannot write .*--out"),
        lock_folder(tmp_path / "file" / "run"),
    ):
        pass

    def refused(*_arguments, **_more):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    told = r"cannot write .*: Permission denied\. Name another --scratch"
    with (
        pytest.raises(OutputError, match=told),
        lock_folder(tmp_path, cure="name another --scratch"),
    ):
        pass


def test_a_worker_of_a_batch_waits_for_who_holds_the_folder(tmp_path, monkeypatch):
    from geogp.commands.batch import batch_work
    from geogp.commands.batch.batch_plan import run_of

    begun = threading.Event()

    def stop(*_, **__):
        begun.set()
        raise DataError("stopped here")

    monkeypatch.setattr(batch_work, "make_shown_map", stop)
    order = batch_work.WorkOrder(run_of(MapSettings("PR")), tmp_path)

    def make():
        with suppress(DataError):
            batch_work.make_run(order)

    thread = threading.Thread(target=make)
    with lock_folder(tmp_path / order.run.name):
        thread.start()
        assert not begun.wait(0.3)
    assert begun.wait(30)
    thread.join(30)


def test_a_folder_that_can_never_be_made_is_refused(tmp_path, monkeypatch):
    # So it is below /proc, in a deleted working directory, and on a drive that is not there.
    def never(self, *_, **__):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))

    monkeypatch.setattr("pathlib.Path.mkdir", never)
    with (
        pytest.raises(OutputError, match=r"cannot write .*run.*No such file"),
        lock_folder(tmp_path / "run"),
    ):
        pytest.fail("held")

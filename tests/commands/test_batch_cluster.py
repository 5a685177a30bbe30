"""Workers: processes of this machine, one killed; a scheduler elsewhere; GPUs; the command."""

import importlib
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import typer
from batch_worlds import CODES, Heard, direct, make_run_without_pictures
from rich.console import Console

from geogp.commands.batch import cluster
from geogp.commands.batch.batch_plan import runs_of
from geogp.commands.batch.batch_work import scratch_folder
from geogp.commands.batch.cluster import cores_here, gpus, worker_environments
from geogp.commands.batch.execution import Execution
from geogp.commands.batch.ledger import LedgerEntry
from geogp.commands.batch.make_batch import make_batch
from geogp.errors import NetworkError, RequestError
from geogp.runs.open_run import open_run
from geogp_cli.batch import _progress
from geogp_cli.main import app, run

NAMES = tuple(f"{code}-mobile-download" for code in CODES)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def geogp(monkeypatch, capsys):
    """Run the command in this process; returns exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["geogp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            run()
        told = capsys.readouterr()
        return stop.value.code or 0, told.out, told.err

    return call


class _Killing(Heard):
    """Kills the worker of a run when it begins to fit."""

    def __init__(self, name, place):
        super().__init__()
        self.name, self.scratch = name, scratch_folder(place)
        self.entries, self.killed, self.left = {}, None, []

    def changed(self, name, entry):
        super().changed(name, entry)
        self.entries[name] = entry

    def working(self, name, text):
        super().working(name, text)
        if name == self.name and self.killed is None and text.startswith("predicting"):
            self.killed = int(self.entries[name].worker.rpartition(":")[2])
            os.kill(self.killed, signal.SIGKILL)
            self.left = [path.name for path in (self.scratch / name).rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_killed_worker_costs_one_attempt(batch, states, tmp_path, monkeypatch):
    """Two processes; the one with the first run is ended as the system ends it out of memory."""
    monkeypatch.setattr("geogp.commands.batch.make_batch.make_run", make_run_without_pictures)
    place = str(tmp_path / "place")
    before = dict(os.environ)
    heard = _Killing(NAMES[0], place)
    result = make_batch(states.request("AA", "BB"), place, Execution(workers=2), listener=heard)
    assert dict(os.environ) == before
    assert result.exit_code == 0, result.described()
    assert heard.killed is not None
    attempts = {name: entry.attempts for name, entry in result.entries.items()}
    assert attempts == {NAMES[0]: 2, NAMES[1]: 1}
    states_of = [state[1:] for state in heard.states if state[0] == NAMES[0]]
    assert states_of == [("running", 1), ("waiting", 1), ("running", 2), ("done", 2)]
    # It went on from its checkpoint.
    assert "identity.json" in heard.left
    assert any(name.endswith(".safetensors") for name in heard.left)
    workers = {entry.worker for entry in result.entries.values()}
    assert not any(worker.endswith(f":{heard.killed}") for worker in workers)
    assert str(os.getpid()) not in {worker.rpartition(":")[2] for worker in workers}
    for name in NAMES[:2]:  # as in one process without interruption
        run, same = open_run(tmp_path / "place" / name), open_run(batch / name)
        assert run.record.metrics == same.record.metrics
        np.testing.assert_array_equal(run.predictions["mean"], same.predictions["mean"])
    assert (tmp_path / "place" / "national" / "mobile-download" / "map.tif").is_file()


def test_the_workers_of_a_scheduler(states, tmp_path, no_pictures):
    distributed = importlib.import_module("distributed")
    heard = Heard()
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="tcp",
        host="127.0.0.1",
    ) as local:
        result = make_batch(
            states.request("AA"),
            str(tmp_path / "place"),
            Execution(scheduler=local.scheduler_address),
            listener=heard,
        )
    assert result.exit_code == 0, result.described()
    assert (NAMES[0], "copying") in heard.texts


def test_a_scheduler_that_does_not_answer(states, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE_S", 1)
    execution = Execution(scheduler="tcp://127.0.0.1:1")
    with pytest.raises(NetworkError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1 "):
        make_batch(states.request("BB"), str(tmp_path / "place"), execution)


def test_each_worker_has_a_gpu_of_its_own():
    assert gpus(None, 3) == ("0", "1", "2")
    assert gpus("2,GPU-7f, 5", 3) == ("2", "GPU-7f", "5")
    assert gpus("", 0) == gpus(None, 0) == ()
    found = worker_environments(None, ("2", "5"), 16)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["2", "5"]
    assert {one["OMP_NUM_THREADS"] for one in found} == {"8"}
    assert len(worker_environments(1, ("2", "5"), 16)) == 1
    with pytest.raises(RequestError, match="found 3 workers and 2 GPUs"):
        worker_environments(3, ("2", "5"), 16)


def test_workers_share_the_cores(monkeypatch):
    found = worker_environments(3, (), 16)
    assert len(found) == 3
    assert {one["OMP_NUM_THREADS"] for one in found} == {"5"}
    assert not any("CUDA_VISIBLE_DEVICES" in one for one in found)
    (one,) = worker_environments(None, (), 1)
    assert one["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert cores_here() == 6
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert cores_here() == len(os.sched_getaffinity(0))


def test_without_dask_it_says_what_to_install(states, tmp_path, monkeypatch):
    def without(name, *rest):
        if name == "distributed":
            raise ImportError(name)
        return importlib.import_module(name, *rest)

    monkeypatch.setattr(cluster, "import_module", without)
    with pytest.raises(RequestError, match=r"pip install 'geogp\[batch\]'"):
        make_batch(states.request("AA"), str(tmp_path / "place"))


def test_dask_is_not_needed_to_load_the_modules():
    names = [
        f"geogp.commands.batch.{path.stem}"
        for path in Path(cluster.__file__).parent.glob("[a-z]*.py")
    ]
    assert len(names) >= 8
    code = "import sys; sys.modules.update(dask=None, distributed=None); import " + ", ".join(names)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.fixture
def here(monkeypatch, no_pictures):
    """Let the command compute in this process."""

    @contextmanager
    def crew(*_):
        yield direct()

    monkeypatch.setattr("geogp.commands.batch.make_batch.dask_crew", crew)


def test_the_command(states, tmp_path, geogp, here):
    out = tmp_path / "place"
    asked = ["batch", "--states", "AA", "--out", out, *states.options]
    code, told, heard = geogp(*asked, "--json")
    assert code == 0, heard
    found = json.loads(told)
    assert (found["place"], list(found["runs"]), found["failed"]) == (str(out), [NAMES[0]], [])
    assert "1 runs, 0 of them there already" in heard
    assert f"[1/1] {NAMES[0]}: made in" in heard
    code, told, heard = geogp("batch", "--resume", out)
    assert (code, "1 of them there already" in heard, "kept" in told) == (0, True, True)
    assert "national/mobile-download: 1 runs" in told
    code, told, _ = geogp("gallery", out, "--out", tmp_path / "gallery")
    assert (code, "1 runs" in told) == (0, True)


def test_the_command_has_all_options_of_map():
    commands = typer.main.get_command(app).commands
    options = {
        command: {name for one in commands[command].params for name in one.opts}
        for command in ("map", "batch")
    }
    apart = {"region", "--service", "--target", "--region-file", "--region-name"}
    assert options["map"] - apart <= options["batch"]
    assert {"--services", "--targets", "--states", "--resume"} <= options["batch"]


REFUSED = (
    (["--out", "x"], "needs --states and --out"),
    (["--states", "AA"], "needs --states and --out"),
    (["--states", "AA", "--out", "x", "--each-quarter"], "say which"),
    (["--resume", "x", "--seed", "3"], "leave out seed"),
    (["--resume", "x"], "no batch.json"),
    (["--states", "AA", "--out", "x", "--workers", "0"], "workers from 1 to 1,000"),
    (["--states", ",", "--out", "x"], "one or more states"),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: " ".join(case[0]))
def test_requests_the_command_refuses(states, tmp_path, monkeypatch, geogp, case):
    arguments, message = case
    monkeypatch.chdir(tmp_path)
    given = [] if "--resume" in arguments else states.options
    code, out, told = geogp("batch", *arguments, *given)
    assert (code, out, message in told) == (2, "", True), told


def test_a_failure_is_told_and_exits_3(states, tmp_path, geogp, here, monkeypatch):
    out = tmp_path / "place"
    asked = ["batch", "--states", "AA,BB", "--quarters", "2023Q3,2020Q1", "--each-quarter"]
    code, told, heard = geogp(*asked, "--out", out, *states.options)
    assert code == 3
    assert "AA-mobile-download-2020Q1 failed (data)" in told
    assert "no rows of State AA in 2020Q1" in told or "2020Q1" in told.partition("failed")[2]
    assert f"geogp batch --resume {out}" in told
    assert "[4/4]" in heard
    held = json.loads((out / "batch.json").read_text())
    found = {name: entry["state"] for name, entry in held["runs"].items()}
    assert found == {
        f"{code}-mobile-download-{quarter}": "failed" if quarter == "2020Q1" else "done"
        for code in ("AA", "BB")
        for quarter in ("2020Q1", "2023Q3")
    }
    assert list(held["national"]) == ["mobile-download-2023Q3"]


def test_the_live_table_shows_what_runs_and_what_failed(states):
    runs = runs_of(states.request())
    entries = {one.name: LedgerEntry(one) for one in runs}
    entries[NAMES[0]].state, entries[NAMES[0]].attempts = "running", 2
    entries[NAMES[1]].state, entries[NAMES[1]].error = "failed", "no [tiles]."
    screen = Console(width=120, file=io.StringIO())
    screen.print(_progress(entries, {NAMES[0]: "fit 3/8"}, dict.fromkeys(NAMES, 0.0), "now"))
    text = screen.file.getvalue()
    assert "3 runs: 0 done, 1 running, 1 waiting, 1 failed" in text
    assert "running (2)" in text
    assert "fit 3/8" in text
    assert "no [tiles]." in text
    assert NAMES[2] not in text

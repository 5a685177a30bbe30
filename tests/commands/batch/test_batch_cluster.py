"""Workers: processes of this machine, one killed, one that sees other files; GPUs; the command."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from batch_worlds import NAMES, make_nothing, make_run_without_pictures, working_here
from run_worlds import Heard

from geogp.answers.run import open_run
from geogp.choices import settings_of
from geogp.commands.batch import cluster
from geogp.commands.batch.batch_place import open_place
from geogp.commands.batch.batch_plan import Execution
from geogp.commands.batch.batch_table import read_table
from geogp.commands.batch.cluster import gpus, worker_environments
from geogp.commands.batch.make_batch import make_batch
from geogp.commands.batch.shared_folder import check_shared
from geogp.errors import NetworkError, RequestError
from geogp.geodata.points.point_options import PointOptions
from geogp.runs.locks import LOCK_FILES
from geogp.runs.machine import cores_here
from geogp_cli.entry import run
from geogp_cli.main import app


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
    """Kills the worker of a run when it begins to predict."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.killed, self.left = folder, None, []

    def progress(self, text, done, total, note):
        super().progress(text, done, total, note)
        worker = re.search(rf"{self.folder.name}, [^:]*:([0-9]+): predicting", note)
        if self.killed is None and worker:
            self.killed = int(worker[1])
            os.kill(self.killed, signal.SIGKILL)
            self.left = [path.name for path in self.folder.rglob("*") if path.is_file()]


@pytest.mark.trial
def test_a_killed_worker_costs_one_attempt(batch, states, tmp_path, monkeypatch):
    """Two processes; the one with the first run is ended as the system ends it out of memory."""
    monkeypatch.setattr("geogp.commands.batch.make_batch.make_run", make_run_without_pictures)
    monkeypatch.setattr("geogp.commands.batch.make_batch.LOOK_S", 0.05)
    place = tmp_path / "place"
    before = dict(os.environ)
    heard = _Killing(place / NAMES[0])
    request, execution = states.request("AA,BB"), Execution(workers=2)
    result = make_batch(request, str(place), execution, listener=heard)
    assert dict(os.environ) == before
    assert result.exit_code == 0, result.described()
    assert heard.killed is not None
    assert {name: row.attempts for name, row in result.rows.items()} == {NAMES[0]: 2, NAMES[1]: 1}
    assert any(text.endswith("geogp tries again.") for text in heard.texts)
    # It went on from its checkpoint.
    assert "identity.json" in heard.left
    assert any(name.endswith(".safetensors") for name in heard.left)
    workers = {row.worker for row in result.rows.values()}
    assert not any(worker.endswith(f":{heard.killed}") for worker in workers)
    assert str(os.getpid()) not in {worker.rpartition(":")[2] for worker in workers}
    for name in NAMES[:2]:  # as in one process without interruption
        run, same = open_run(place / name), open_run(batch / name)
        assert run.record.metrics == same.record.metrics
        np.testing.assert_array_equal(run.predictions["mean"], same.predictions["mean"])
    assert (place / "national" / "mobile-download" / "map.tif").is_file()


@pytest.mark.trial
def test_the_workers_of_a_scheduler(states, tmp_path, monkeypatch):
    monkeypatch.setattr("geogp.commands.batch.make_batch.make_run", make_nothing)
    monkeypatch.setattr("geogp.commands.batch.make_batch._Batch._join", lambda *_: None)
    place = tmp_path / "place"
    with one_worker() as local:
        execution = Execution(scheduler=local.scheduler_address)
        result = make_batch(states.request("AA"), str(place), execution)
    assert result.exit_code == 0, result.described()
    assert not list(place.glob(".geogp-probe*"))


def one_worker():
    """Return a cluster with one worker, which is in this process."""
    return importlib.import_module("distributed").LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="tcp",
        host="127.0.0.1",
    )


HIDING = """
import sys

def hide(event, arguments):
    if event == "open" and str(arguments[0]).startswith({folder!r}):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

sys.addaudithook(hide)
"""
"""What a worker loads that does not see the files in a folder, as in another file system."""


@pytest.mark.trial
def test_a_worker_that_does_not_see_the_folder_is_named_before_the_first_run(states, tmp_path):
    place, distributed = tmp_path / "place", importlib.import_module("distributed")
    options = {"nthreads": 1, "dashboard": False}
    blind = {"preload": [HIDING.format(folder=str(place))], "preload_argv": [[]]}
    with distributed.SpecCluster(
        scheduler={
            "cls": distributed.Scheduler,
            "options": {"host": "127.0.0.1", "port": 0, "dashboard": False},
        },
        workers={
            "good": {"cls": distributed.Nanny, "options": options},
            "blind": {"cls": distributed.Nanny, "options": options | blind},
        },
    ) as local:
        named = {about["id"]: address for address, about in workers_of(local).items()}
        execution = Execution(scheduler=local.scheduler_address)
        with pytest.raises(RequestError, match=rf"do not: {named['blind']} \(\[Errno 2\]") as told:
            make_batch(states.request("AA"), str(place), execution)
    assert named["good"] not in str(told.value)
    assert {path.name for path in place.iterdir()} - LOCK_FILES == {"batch.json"}
    assert read_table(place).runs[NAMES[0]].attempts == 0


def workers_of(local):
    """Return what the scheduler knows of the workers of a cluster, by address."""
    with importlib.import_module("distributed").Client(local) as client:
        client.wait_for_workers(2, timeout=60)
        return client.scheduler_info(n_workers=-1)["workers"]


def test_a_worker_that_comes_later_is_asked_before_its_first_run(tmp_path):
    threads, asked = {"tcp://one:1": 2}, []

    def run(function, probe, *, workers, on_error):
        asked.append(workers)
        assert on_error == "return"
        blind = RequestError("nothing there")
        return {name: blind if "blind" in name else function(probe) for name in workers}

    client = SimpleNamespace(
        run=run,
        nthreads=lambda: dict(threads),
        get_executor=lambda **_: None,
        subscribe_topic=lambda *_: None,
    )
    pool = cluster._pool(client, open_place(str(tmp_path)))
    assert (pool.size(), pool.size()) == (2, 2)
    threads["tcp://two:2"] = 1
    assert pool.size() == 3
    assert asked == [["tcp://one:1"], ["tcp://two:2"]]
    threads["tcp://blind:3"] = 1
    with pytest.raises(RequestError, match=r"do not: tcp://blind:3 \(nothing there\)"):
        pool.size()


@pytest.mark.parametrize("address", [None, "memory://shared"])
def test_workers_that_do_not_share_the_folder_are_named(tmp_path, address):
    place = open_place(address or str(tmp_path / "place"), tmp_path / "scratch")

    def ask(function, probe):
        with pytest.raises(RequestError) as refused:
            function(probe.with_name("absent"))
        return {
            "tcp://here:1": function(probe),
            "tcp://lost:2": ConnectionError("gone"),
            "tcp://blind:3": refused.value,
            "tcp://other:4": probe.with_name("written-elsewhere"),
        }

    with pytest.raises(RequestError) as told:
        check_shared(place, ask)
    assert f"share the folder of the batch, {place.folder}, " in str(told.value)
    assert re.search(r"do not: tcp://blind:3 \(.*No such file.*absent'\), tcp", str(told.value))
    assert "tcp://other:4 (its files are not here). Choose a folder" in str(told.value)
    assert f"all machines share with {'--scratch' if address else '--out'}" in str(told.value)
    assert "here:1" not in str(told.value)
    assert "lost" not in str(told.value)
    both = {"tcp://here:1": None, "tcp://lost:2": ConnectionError("gone")}
    shared = check_shared(place, lambda f, probe: both | {"tcp://here:1": f(probe)})
    assert shared == ["tcp://here:1"]  # the other is asked again
    assert list(place.folder.iterdir()) == []


def test_a_scheduler_that_does_not_answer(states, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE_S", 1)
    execution = Execution(scheduler="tcp://127.0.0.1:1")
    with pytest.raises(NetworkError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1 "):
        make_batch(states.request("BB"), str(tmp_path / "place"), execution)


def test_each_worker_has_a_gpu_of_its_own():
    assert gpus(None, 3) == ["0", "1", "2"]
    assert gpus("2,GPU-7f, 5", 3) == ["2", "GPU-7f", "5"]
    assert gpus("", 0) == gpus(None, 0) == []
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


@pytest.mark.trial
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
    with working_here(monkeypatch) as direct:
        yield direct


def test_the_command(states, tmp_path, geogp, here):
    """One of two runs has no data: it is told, and the other is made and joined."""
    out = tmp_path / "place"
    asked = ["batch", "--states", "AA", "--quarters", "2023Q3,2020Q1", "--each-quarter"]
    good, bad = (f"AA-mobile-download-{quarter}" for quarter in ("2023Q3", "2020Q1"))
    code, told, heard = geogp(*asked, "--out", out, *states.options)
    assert code == 3
    assert f"2 runs at {out}" in heard
    assert f"[2/2] {good}: made, " in heard
    assert f"{bad} failed (data): " in told
    assert "2020Q1" in told.partition("failed")[2]
    assert "national/mobile-download-2023Q3: 1 runs, " in told
    assert f"geogp batch --resume {out}" in told
    code, told, _ = geogp("batch", "--resume", out, "--json")
    found = json.loads(told)
    assert (code, found["place"], found["failed"]) == (3, str(out), [bad])
    assert {name: row["how"] for name, row in found["runs"].items()} == {good: "kept", bad: None}
    assert list(found["national"]) == ["mobile-download-2023Q3"]
    score = json.loads((out / good / "run.json").read_text())["metrics"]["random"]["all"]["nll"]
    assert found["runs"][good]["log_score"] == {"random": score}


def test_the_command_has_all_options_of_map():
    commands = typer.main.get_command(app).commands
    options = {
        command: {name for one in commands[command].params for name in one.opts}
        for command in ("map", "batch")
    }
    apart = {"region", "--service", "--target", "--region-file", "--region-name"}
    apart |= {"--points", "--provider", "--by-provider", "--technology"}
    apart |= {f"--{name.replace('_', '-')}" for name in settings_of(PointOptions)} - {"--crs"}
    assert options["map"] - apart <= options["batch"]
    assert {"--services", "--targets", "--states", "--resume"} <= options["batch"]


REFUSED = (
    (["--out", "x"], "needs states (PR VI, or --states PR,VI) and --out"),
    (["--states", "AA"], "needs states (PR VI, or --states PR,VI) and --out"),
    (["--states", "AA", "--out", "x", "--each-quarter"], "Give --quarters"),
    (["--resume", "x", "--seed", "3"], "Leave out seed"),
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

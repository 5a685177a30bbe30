"""Batches: made, left as they are, failing in part, resumed, named safely."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
from batch_worlds import CODES, NAMES, make_nothing, working_here
from msgspec import UNSET
from msgspec.structs import asdict, fields
from run_worlds import Heard, made_up_run

from geogp.answers.run import open_run
from geogp.commands.batch import batch_work
from geogp.commands.batch import make_batch as running
from geogp.commands.batch.batch_place import open_place
from geogp.commands.batch.batch_plan import Execution, run_of, runs_of, safe_name
from geogp.commands.batch.batch_table import read_table
from geogp.commands.batch.batch_work import WorkOrder, WorkOutcome, make_run
from geogp.commands.batch.cluster import WorkerPool
from geogp.commands.batch.make_batch import make_batch
from geogp.errors import DataError, NetworkError, OutputError, RequestError
from geogp.records.map_settings import MapSettings
from geogp.records.record_reading import record_of
from geogp.records.run_record import RunIdentity, RunNote
from geogp.runs.file_records import damaged_files
from geogp.runs.locks import lock_folder
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_names import RUN_FILE

NATIONAL = "national/mobile-download"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Compute in this process; it keeps the orders, and raises the faults that it is given."""
    with working_here(monkeypatch) as direct:
        yield direct


@pytest.fixture
def place(batch, tmp_path):
    """A copy of the finished batch that a test may change."""
    return shutil.copytree(batch, tmp_path / "place", copy_function=shutil.copy2)


@pytest.fixture
def stub(monkeypatch):
    """Make runs that are a run.json alone, and join none."""
    monkeypatch.setattr(running, "make_run", make_nothing)
    monkeypatch.setattr(running._Batch, "_join", lambda *_: None)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.trial
def test_a_run_of_a_batch_is_that_of_the_map_command(batch, states, tmp_path, no_pictures):
    alone = run_map(replace(runs_of(states.request("BB"))[0].request, out=tmp_path / "alone"))
    run, same = open_run(batch / NAMES[1]), open_run(alone.path)
    assert run.record.metrics == same.record.metrics
    np.testing.assert_array_equal(run.predictions["mean"], same.predictions["mean"])
    assert sorted(path.name for path in (batch / NAMES[1]).iterdir()) == sorted(
        path.name for path in alone.path.iterdir()
    )


@pytest.mark.parametrize("lost", [False, True], ids=["as it was", "without batch.json"])
def test_finished_runs_are_found_by_what_they_hold(place, states, monkeypatch, lost):
    if lost:
        (place / "batch.json").unlink()
    before = times(place)
    monkeypatch.setattr("geogp.runs.pipeline.fit.make_splits", None)  # nothing is fitted
    monkeypatch.setattr("geogp.commands.batch.make_batch.join_runs", None)
    result = make_batch(states.request(), str(place))
    assert result.exit_code == 0, result.described()
    assert {row.how for row in result.rows.values()} == {"kept"}
    after = times(place)
    assert {path.name for path in after if after[path] != before.get(path)} == {"batch.json"}
    run = json.loads((place / NAMES[0] / RUN_FILE).read_text())
    row = json.loads((place / "batch.json").read_text())["runs"][NAMES[0]]
    assert row["log_score"] == {"random": run["metrics"]["random"]["all"]["nll"]}
    assert row["coverage_95"] == {"random": run["metrics"]["random"]["all"]["coverage_95"]}
    assert row["seconds"] == pytest.approx(sum(run["seconds"].values()))


def test_of_two_batches_at_one_place_the_second_is_refused(place, states):
    with lock_folder(place):
        for call in (
            lambda: make_batch(states.request(), str(place)),
            lambda: make_batch(None, str(place)),
        ):
            with pytest.raises(RequestError, match=rf"{place} is in use by process"):
                call()


def test_a_place_at_an_address_is_said_to_have_no_lock(states, stub):
    where, heard = "memory://locked/batch", Heard()
    assert make_batch(states.request("AA"), where, listener=heard).exit_code == 0
    assert heard.texts[0].startswith(f"{where} cannot be locked")
    assert str(open_place(where).folder) in heard.texts[0]
    with (
        lock_folder(open_place(where).folder),
        pytest.raises(RequestError, match="in use by process"),
    ):
        make_batch(None, where)


def test_a_file_of_a_run_that_is_gone_is_made_again(place, states, monkeypatch, no_pictures, here):
    monkeypatch.setattr("geogp.runs.pipeline.fit.run_split", None)  # the model is there
    (place / NAMES[0] / "map.html").unlink()
    others = ("areas_county.csv", "exceedance_x.tif", "report.tex", "figures/map.pdf", "mine.txt")
    (place / NAMES[0] / "figures").mkdir()
    for other in others:
        (place / NAMES[0] / other).write_text(other)
    result = make_batch(states.request(), str(place))
    assert [row.how for row in result.rows.values()] == ["made", "kept", "kept"]
    run = json.loads((place / NAMES[0] / RUN_FILE).read_text())
    assert damaged_files(place / NAMES[0], record_of(run)) == []
    for other in others:
        assert (place / NAMES[0] / other).read_text() == other


@pytest.mark.trial
def test_changed_data_make_a_run_anew_and_what_was_stopped_goes_on(
    states, tmp_path, no_pictures, monkeypatch
):
    source = shutil.copytree(states.folder, tmp_path / "source")
    request = states.request("AA", source=str(source), boundaries=str(source / "boundaries"))
    order = WorkOrder(runs_of(request)[0], tmp_path / "out")

    def stopped(*_, **__):
        raise NetworkError("stopped.")

    with monkeypatch.context() as patch:
        patch.setattr("geogp.runs.pipeline.run_map.draw_map", stopped)
        with pytest.raises(NetworkError, match="stopped"):
            make_run(order)
    checkpoints = tmp_path / "out" / NAMES[0] / ".unfinished"
    left = {path.name for path in checkpoints.rglob("*")}
    assert left == {"identity.json", "random.safetensors"}
    assert make_run(order).how == "made"
    assert not checkpoints.exists()
    (tmp_path / "out" / NAMES[0] / "areas_county.csv").touch()
    tiles = sorted(source.rglob("*_tiles.parquet"))
    os.utime(tiles[0])
    assert make_run(order).how == "kept"
    shutil.copyfile(tiles[1], tiles[0])
    assert make_run(order).how == "made"
    assert not (tmp_path / "out" / NAMES[0] / "areas_county.csv").exists()


@pytest.mark.trial
def test_a_batch_grows_and_the_products_with_it(place, states, here, no_pictures):
    for name in (NAMES[1], "national"):
        shutil.rmtree(place / name)
    held = json.loads((place / "batch.json").read_text())
    del held["runs"][NAMES[1]], held["national"]
    (place / "batch.json").write_text(json.dumps(held | {"national": {}}))
    first = make_batch(states.request("AA"), str(place))
    assert first.national["mobile-download"].runs == [NAMES[0], NAMES[2]]
    second = make_batch(states.request("BB"), str(place))
    assert here.orders == [NAMES[0], NAMES[1]]
    assert list(second.rows) == [NAMES[1]]
    assert second.national["mobile-download"].runs == list(NAMES)
    table = read_table(place)
    assert {name: row.state for name, row in table.runs.items()} == dict.fromkeys(NAMES, "done")
    with pytest.raises(RequestError, match="contains a batch that differs in seed"):
        make_batch(states.request("AA", seed=3), str(place))


def test_a_region_that_fails_stops_no_other_and_is_resumed(states, tmp_path, stub, here):
    out = str(tmp_path / "out")
    here.faults[NAMES[1]] = [DataError("no tiles."), DataError("no tiles.")]
    result = make_batch(states.request(), out)
    assert result.exit_code == 3
    assert [row.state for row in result.rows.values()] == ["done", "failed", "done"]
    failed = result.rows[NAMES[1]]
    assert (failed.kind, failed.error, failed.attempts) == ("data", "no tiles.", 1)
    held = json.loads((tmp_path / "out" / "batch.json").read_text())
    assert held["runs"][NAMES[1]]["error"] == "no tiles."
    assert make_batch(None, out).exit_code == 3
    assert make_batch(None, out).exit_code == 0


@pytest.mark.parametrize(
    "case",
    [
        (NetworkError("down."), 1, 2, 4),
        (NetworkError("down."), 0, 1, 4),
        (ConnectionResetError("gone."), 2, 3, 4),
        (DataError("bad."), 5, 1, 3),
        (RequestError("odd."), 5, 1, 3),
        (OutputError("full."), 5, 1, 3),
        (ZeroDivisionError("ours"), 5, 1, 3),
    ],
)
def test_only_what_may_pass_is_tried_again(states, tmp_path, stub, here, case):
    error, retries, attempts, code = case
    here.faults[NAMES[0]] = [error] * 9
    result = make_batch(states.request(), str(tmp_path / "out"), Execution(retries=retries))
    assert result.rows[NAMES[0]].attempts == attempts
    assert result.exit_code == code
    assert [row.state for row in result.rows.values()] == ["failed", "done", "done"]


def test_a_network_that_comes_back_is_no_failure(states, tmp_path, stub, here):
    here.faults[NAMES[0]] = [NetworkError("down.")]
    heard = Heard()
    assert make_batch(states.request(), str(tmp_path / "out"), listener=heard).exit_code == 0
    assert here.orders == [NAMES[0], *NAMES[1:], NAMES[0]]  # the others go first
    assert f"[0/3] {NAMES[0]}: failed: down. geogp tries again." in heard.texts
    assert f"[2/3] {NAMES[0]}: started again (2)" in heard.texts
    assert heard.texts[-1].startswith(f"[3/3] {NAMES[0]}: made, 0 s, peak 1.00 GB, here:1")


def test_mixed_failures_exit_3(states, tmp_path, stub, here):
    here.faults |= {NAMES[0]: [NetworkError("down.")] * 2, NAMES[1]: [DataError("bad.")]}
    assert make_batch(states.request(), str(tmp_path / "out")).exit_code == 3


def test_a_run_that_is_nowhere_is_no_success(states, tmp_path, stub, monkeypatch):
    monkeypatch.setattr(running, "make_run", lambda _: WorkOutcome("made", 1.0, 1, "far:1"))
    result = make_batch(states.request("AA"), str(tmp_path / "out"))
    assert result.exit_code == 3
    assert f"{NAMES[0]}/run.json cannot be read" in result.rows[NAMES[0]].error


def test_an_interrupted_batch_goes_on(states, tmp_path, stub, here):
    """As by Ctrl-C."""
    out = str(tmp_path / "out")
    here.faults[NAMES[1]] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        make_batch(states.request(), out)
    table = read_table(tmp_path / "out")
    assert [row.state for row in table.runs.values()] == ["done", "waiting", "waiting"]
    assert make_batch(None, out).exit_code == 0


def test_so_many_at_once_as_there_are_workers(states, tmp_path, stub, monkeypatch):
    lock, now, most, heard = threading.Lock(), [], [], Heard()

    def slow(order):
        with lock:
            now.append(order)
            most.append(len(now))
        time.sleep(0.3)
        with lock:
            now.remove(order)
        return make_nothing(order)

    monkeypatch.setattr(running, "make_run", slow)
    monkeypatch.setattr(running, "LOOK_S", 0.05)
    with ThreadPoolExecutor(8) as pool:
        told = {name: {"text": "fit 3/8", "process": "here:1"} for name in NAMES}

        @contextmanager
        def workers(*_):
            yield WorkerPool(pool, lambda: 2, told)

        monkeypatch.setattr(running, "workers", workers)
        result = make_batch(states.request(), str(tmp_path / "out"), listener=heard)
    assert (result.exit_code, max(most)) == (0, 2)
    assert f"{NAMES[0]}, here:1: fit 3/8; {NAMES[1]}, here:1: fit 3/8" in heard.notes


def test_the_runs_are_a_product_in_order(states):
    asked = {"targets": "download, tests,download", "model": "auto"}
    runs = runs_of(states.request("02,State AA,aa", quarters="2023Q3,2023Q4", **asked))
    assert [run.name for run in runs] == [
        f"{code}-mobile-{target}-2023Q3-2023Q4"
        for code in ("CC", "AA")
        for target in ("download", "tests")
    ]
    assert [run.request.model for run in runs[:2]] == ["field", "cox-nb"]
    each = runs_of(states.request("AA", quarters="2023Q3..2024Q1,2021Q1", each_quarter=True))
    assert [run.request.quarters for run in each] == ["2021Q1", "2023Q3", "2023Q4", "2024Q1"]
    assert len({run.group for run in (*runs, *each)}) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": "ZZ"}, "unknown region 'ZZ'"),
        ({"states": ","}, "one or more states, found none"),
        ({"targets": "speed"}, "speed"),
        ({"targets": ""}, "one or more targets, found none"),
        ({"each_quarter": True}, "Give --quarters"),
        ({"model": "no-such"}, "no-such"),
        ({"preset": "quikc", "boundaries": "/none"}, "unknown preset 'quikc'"),
        ({"model": "field", "targets": "tests"}, "needs a model for numbers of tests"),
        ({"out": "x"}, "cannot set out"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(states, tmp_path, changes, message):
    with pytest.raises(RequestError, match=message):
        make_batch(states.request(**{"states": "AA"} | changes), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_execution_is_checked():
    for wrong, message in (
        ({"workers": 0}, "workers from 1 to 1,000"),
        ({"retries": -1}, "retries from 0 to 1,000"),
        ({"memory_gb": 0.0}, "above 0 GB"),
        ({"scheduler": "tcp://x:1", "workers": 2}, "leave out --workers"),
    ):
        with pytest.raises(RequestError, match=message):
            Execution(**wrong)


HOSTILE = ("..", "../../x", "/x/y", "a/b", "a\\b", ".hidden", "", "x" * 300, "A\0B", "é ü")


def test_a_name_with_a_nul_is_no_region():
    with pytest.raises(RequestError, match="expected region as text or None, found"):
        MapSettings(region="A\0B")


@pytest.mark.parametrize("code", [code for code in HOSTILE if "\0" not in code])
def test_names_from_data_stay_in_the_place(states, tmp_path, code):
    run = run_of(MapSettings(region=code, service="mobile", **states.request().maps))
    assert safe_name(run.name) == run.name
    for name in (run.name, run.group):
        assert (tmp_path / name).resolve().parent == tmp_path


def test_names_that_were_made_safe_stay_apart():
    assert safe_name("a/b") != safe_name("a_b")
    assert len({safe_name(code) for code in HOSTILE}) == len(HOSTILE)
    assert safe_name("GA-mobile-download-2019Q1-2023Q4") == "GA-mobile-download-2019Q1-2023Q4"


def test_a_table_names_no_folder(place):
    """Folders follow from what is mapped: what a table calls them is of no account."""
    path = place / "batch.json"
    held = json.loads(path.read_text())
    held["runs"] = {"../../elsewhere": held["runs"][NAMES[0]]}
    path.write_text(json.dumps(held))
    assert list(read_table(place).runs) == [NAMES[0]]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held.pop("runs"),
        lambda held: held.update(format="other"),
        lambda held: held["runs"][NAMES[0]].update(state="flying"),
        lambda held: held["runs"].update(x=3),
        lambda held: held["runs"].update(dict.fromkeys(CODES, held["runs"][NAMES[0]])),
        lambda held: held["settings"].update(no_such=1),
        lambda held: held["settings"].update(seed="0"),
        lambda held: held["settings"].update(preset="quikc"),
    ],
)
def test_a_damaged_table_is_refused(place, spoil):
    path = place / "batch.json"
    held = json.loads(path.read_text())
    spoil(held)
    for content in (json.dumps(held), "[" * 100_000):
        path.write_text(content)
        with pytest.raises(DataError, match=r"batch\.json is damaged"):
            make_batch(None, str(place))


def test_a_batch_of_an_earlier_version_goes_on(place, stub):
    """It had more and fewer among its settings, and kept other accounts."""
    path = place / "batch.json"
    held = json.loads(path.read_text())
    held["settings"] |= {"assets": None, "region_file": None, "region_name": None}
    del held["settings"]["crs"]
    held["runs"][NAMES[0]] |= {"fingerprint": "0" * 64, "mark": "0" * 64}
    held["national"]["mobile-download"]["digest"] = "0" * 64
    path.write_text(json.dumps(held))
    assert make_batch(None, str(place)).exit_code == 0
    assert "assets" not in json.loads(path.read_text())["settings"]


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no batch to continue"):
        make_batch(None, str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_fresh_makes_all_again(place, states, stub, here):
    result = make_batch(states.request(seed=7), str(place), Execution(fresh=True))
    assert (result.exit_code, here.orders) == (0, list(NAMES))
    assert json.loads((place / "batch.json").read_text())["settings"]["seed"] == 7


@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_the_batch_did_not_make_is_kept(batch, states, tmp_path):
    """Also if the call is repeated, and its data or settings are others."""
    place = tmp_path / "runs"
    shutil.copytree(batch / NAMES[0], place / NAMES[0], copy_function=shutil.copy2)
    before = times(place)
    for request in (states.request("AA", seed=7),) * 2:
        result = make_batch(request, str(place))
        assert result.exit_code == 3
        assert "contains a run that differs in seed" in result.rows[NAMES[0]].error
        assert before.items() <= times(place).items()
    assert (
        make_batch(states.request("AA", seed=7), str(place), Execution(fresh=True)).exit_code == 0
    )


def test_a_run_of_the_batch_stays_its_own_after_a_failure(states, tmp_path, monkeypatch):
    """Changed data make it anew, also if an attempt failed before it began."""
    place, orders = str(tmp_path / "place"), []

    def failing(order):
        orders.append(order.keeps)
        raise DataError("stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(running, "make_run", make_nothing)
        patch.setattr(running._Batch, "_join", lambda *_: None)
        assert make_batch(states.request("AA"), place).exit_code == 0
    monkeypatch.setattr(running, "make_run", failing)
    for fresh in (False, False, True, False):
        assert make_batch(states.request("AA"), place, Execution(fresh=fresh)).exit_code == 3
    assert make_batch(states.request("AA"), str(tmp_path / "new")).exit_code == 3
    assert orders == [False, False, False, False, True]


def test_files_that_no_batch_wrote_need_force(tmp_path, states, stub):
    for number, name in enumerate(("batch.json", f"{NATIONAL}/index.html")):
        place = tmp_path / str(number)
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text('{"runs": []}')
        for fresh in (False, True):
            with pytest.raises(RequestError, match=rf"{name} exists, .* add --force"):
                make_batch(states.request("AA"), str(place), Execution(fresh=fresh))
        assert [path.name for path in place.iterdir()] == [name.partition("/")[0]]
        assert (place / name).read_text() == '{"runs": []}'
        assert make_batch(states.request("AA"), str(place), Execution(force=True)).exit_code == 0
        assert read_table(place) is not None


def test_files_at_an_address_that_the_batch_did_not_write_need_force(states, stub):
    files = fsspec.filesystem("memory")
    for number, name in enumerate(("batch.json", f"{NATIONAL}/mine.txt", f"{NAMES[0]}/mine.txt")):
        root = f"/foreign/{number}"
        files.pipe_file(f"{root}/{name}", b"{}")
        files.pipe_file(f"{root}/other/mine.txt", b"{}")
        request, address = states.request("AA"), f"memory://{root}"
        top = name.partition("/")[0]
        with pytest.raises(
            RequestError, match=rf"contains {top}, and .* did not write it.*--force"
        ):
            make_batch(request, address)
        assert files.find(root) == sorted(f"{root}/{one}" for one in (name, "other/mine.txt"))
        assert files.cat_file(f"{root}/{name}") == b"{}"
        for force in (True, False):  # what is there now is of this batch
            assert make_batch(request, address, Execution(force=force)).exit_code == 0
        assert files.exists(f"{root}/{NAMES[0]}/{RUN_FILE}")
        assert files.cat_file(f"{root}/other/mine.txt") == b"{}"


@pytest.mark.parametrize("inner", [".", "inner"])
def test_a_run_folder_takes_no_batch(place, states, inner):
    before = times(place / NAMES[0])
    for force in (False, True):
        with pytest.raises(RequestError, match="geogp batch needs a folder of its own"):
            make_batch(states.request("BB"), str(place / NAMES[0] / inner), Execution(force=force))
    assert times(place / NAMES[0]) == before


def test_all_attempts_of_a_fresh_call_know_it_by_one_id(tmp_path, states, monkeypatch, stub, here):
    """Also where the first attempt ended before it did anything."""
    orders, place = [], tmp_path / "out"

    def made(order):
        orders.append(order)
        return make_nothing(order)

    monkeypatch.setattr(running, "make_run", made)
    here.faults[NAMES[0]] = [NetworkError("down.")]
    for _ in range(2):
        assert make_batch(states.request(), str(place), Execution(fresh=True)).exit_code == 0
    assert [len({one.call for one in part}) for part in (orders, orders[:3])] == [2, 1]


def test_an_old_run_stays_until_a_fresh_one_is_complete(place, states, monkeypatch):
    before = {path: told for path, told in times(place).items() if path.parent != place}

    def refused(_job):
        raise DataError("too few rows.")

    with monkeypatch.context() as patch:
        patch.setattr("geogp.runs.pipeline.fit.make_splits", refused)
        assert make_batch(states.request(), str(place), Execution(fresh=True)).exit_code == 3
    assert before.items() <= times(place).items()
    assert {row.how for row in make_batch(states.request(), str(place)).rows.values()} == {"kept"}


def test_a_fresh_run_is_begun_over_once(tmp_path, monkeypatch):
    """However its attempts end, what another call made does not count."""
    calls, faults = [], []
    made = made_up_run()
    identity = RunIdentity(**{one.name: getattr(made, one.name) for one in fields(RunIdentity)})

    def run_map(request, _, *, call, wait):
        assert wait  # another worker may have the same run
        if faults[0] == "reading":
            raise NetworkError("down.")
        folder = RunFolder(request.out)
        with lock_folder(folder.path):
            folder.prepare(fresh=request.fresh)
            if not request.fresh and folder.finished(identity) is not None:
                return SimpleNamespace(already_there=True)
            checkpoint = folder.unfinished / "checkpoint"
            calls.append(checkpoint.is_file())
            folder.begin(RunNote(**asdict(identity), call=call or UNSET))
            checkpoint.touch()
            if faults[0] == "fitting":
                raise NetworkError("down.")
            folder.complete(lambda _: made_up_run(call=call or UNSET))
        return SimpleNamespace(already_there=False)

    monkeypatch.setattr(batch_work, "make_shown_map", run_map)
    run = run_of(MapSettings("PR"))

    def attempt(fault, call):
        faults[:] = [fault]
        return make_run(WorkOrder(run, tmp_path, call)).how

    with pytest.raises(NetworkError):
        attempt("fitting", None)
    assert attempt("", None) == "made"
    assert attempt("", None) == "kept"
    for call in ("one", "two"):
        calls.clear()
        for fault in ("reading", "fitting"):
            with pytest.raises(NetworkError):
                attempt(fault, call)
        assert attempt("", call) == "made"
        assert attempt("", call) == "kept"  # as where the answer of the attempt before was lost
        assert calls == [False, True]

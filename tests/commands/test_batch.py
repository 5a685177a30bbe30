"""Batches: made, left as they are, failing in part, resumed, named safely."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from batch_worlds import CODES, Direct, Heard, direct
from run_worlds import made_up_run

from geogp.commands.batch import make_batch as running
from geogp.commands.batch.batch_place import Place, open_place
from geogp.commands.batch.batch_plan import each_quarter, run_of, runs_of, safe_name
from geogp.commands.batch.batch_work import Order, WorkOutcome, make_run, scratch_folder
from geogp.commands.batch.cluster import FixedCrew
from geogp.commands.batch.execution import Execution
from geogp.commands.batch.ledger import read_ledger
from geogp.commands.batch.make_batch import make_batch, resume_batch
from geogp.errors import DataError, NetworkError, OutputError, RequestError
from geogp.records.record_reading import record_of, run_text
from geogp.runs.file_records import spoilt
from geogp.runs.locks import hold, is_vacant
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.run_names import RUN_FILE
from geogp.runs.settings import MapRequest

NAMES = tuple(f"{code}-mobile-download" for code in CODES)
NATIONAL = "national/mobile-download"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def place(batch, tmp_path):
    """A copy of the finished batch that a test may change."""
    return shutil.copytree(batch, tmp_path / "place", copy_function=shutil.copy2)


@pytest.fixture
def stub(monkeypatch):
    """Make runs that are a run.json alone; `faults` holds what to raise for a name, in turn."""
    faults = {}

    def make(order):
        waiting = faults.get(order.run.name)
        if waiting:
            raise waiting.pop(0)
        where = open_place(order.place)
        where.write(run_text(made_up_run()).encode(), order.run.name, RUN_FILE)
        return WorkOutcome(
            "made", where.mark(order.run.name), 1.0, 1.0, 10**9, "here:1", ("a warning",)
        )

    make.__name__ = "make_run"
    monkeypatch.setattr("geogp.commands.batch.make_batch.make_run", make)
    monkeypatch.setattr("geogp.commands.batch.make_batch._Batch._joins", lambda _: [])
    return faults


def orders(crew, name="make_run"):
    return [order.run.name for done, order in crew.executor.done if done == name]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_run_of_a_batch_is_that_of_the_map_command(batch, states, tmp_path, no_pictures):
    alone = make_map(replace(runs_of(states.request("BB"))[0].request, out=tmp_path / "alone"))
    run, same = open_run(batch / NAMES[1]), open_run(alone.path)
    assert run.record.metrics == same.record.metrics
    np.testing.assert_array_equal(run.predictions["mean"], same.predictions["mean"])
    assert sorted(path.name for path in (batch / NAMES[1]).iterdir()) == sorted(
        path.name for path in alone.path.iterdir()
    )


def test_the_same_batch_twice_does_nothing_the_second_time(place, states, monkeypatch):
    monkeypatch.setattr("geogp.commands.batch.make_batch.make_run", None)
    before = times(place)
    for crew in (direct(), None):  # not even a cluster is started
        result = make_batch(states.request(), str(place), crew=crew)
        assert result.exit_code == 0
        assert {entry.how for entry in result.entries.values()} == {"kept"}
    after = times(place)
    assert set(after) == set(before)
    assert {path.name for path in after if after[path] != before[path]} == {"batch.json"}


def test_without_batch_json_finished_runs_are_found_by_what_they_hold(place, states, monkeypatch):
    (place / "batch.json").unlink()
    before = times(place / NAMES[0])
    monkeypatch.setattr("geogp.commands.batch.batch_work.carry_out", None)  # nothing is fitted
    crew = direct()
    result = make_batch(states.request(), str(place), crew=crew)
    assert (result.exit_code, orders(crew)) == (0, list(NAMES))
    assert {entry.how for entry in result.entries.values()} == {"kept"}
    assert times(place / NAMES[0]) == before


def test_of_two_batches_at_one_place_the_second_is_refused(place, states):
    for call in (
        lambda: make_batch(states.request(), str(place), crew=direct()),
        lambda: resume_batch(str(place), crew=direct()),
    ):
        with hold(place), pytest.raises(RequestError, match=rf"{place} is in use by process"):
            call()
    scratch = place.parent / "scratch"
    with hold(scratch), pytest.raises(RequestError, match=r"scratch is in use by process"):
        make_batch(states.request(), str(place), Execution(scratch=scratch), crew=direct())


@pytest.mark.parametrize("scratch", ["out", "out/run", ".", "link"])
def test_a_scratch_folder_in_the_place_or_around_it_is_refused_at_once(states, tmp_path, scratch):
    out, execution = tmp_path / "out", Execution(scratch=tmp_path / scratch)
    (tmp_path / "link").symlink_to(out)
    before = set(tmp_path.iterdir())
    told = rf"expected --scratch apart from the place .*{out}; found .*\. Choose a folder"
    for call in (
        lambda: make_batch(states.request("AA"), str(out), execution, crew=direct()),
        lambda: resume_batch(str(out), execution, crew=direct()),
    ):
        with pytest.raises(RequestError, match=told):
            call()
    assert set(tmp_path.iterdir()) == before


def test_a_scratch_folder_beside_the_place_serves(states, tmp_path, stub):
    execution = Execution(scratch=tmp_path / "out-scratch")
    result = make_batch(states.request("AA"), str(tmp_path / "out"), execution, crew=direct())
    assert result.exit_code == 0


def test_a_place_at_an_address_is_said_to_have_no_lock(states, stub):
    where, heard = "memory://locked/batch", Heard()
    heard.stage = heard.texts.append
    assert make_batch(states.request("AA"), where, crew=direct(), listener=heard).exit_code == 0
    assert f"no lock holds {where}: make no other batch there meanwhile" in heard.texts
    with hold(scratch_folder(where)), pytest.raises(RequestError, match="in use by process"):
        resume_batch(where, crew=direct())


def test_a_file_of_a_run_that_is_gone_from_the_place_is_made_again(
    place, states, monkeypatch, no_pictures
):
    monkeypatch.setattr("geogp.runs.pipeline.make_map.run_split", None)  # the model is there
    (place / NAMES[0] / "map.html").unlink()
    others = ("areas_county.csv", "exceedance_x.tif", "report.tex", "figures/map.pdf", "mine.txt")
    (place / NAMES[0] / "figures").mkdir()
    for other in others:
        (place / NAMES[0] / other).write_text(other)
    crew = direct()
    result = make_batch(states.request(), str(place), crew=crew)
    assert (result.exit_code, orders(crew)) == (0, [NAMES[0]])
    assert result.entries[NAMES[0]].how == "made"
    run = json.loads((place / NAMES[0] / RUN_FILE).read_text())
    assert spoilt(place / NAMES[0], record_of(run)) == []
    for other in others:
        assert (place / NAMES[0] / other).read_text() == other


def test_a_touched_file_is_read_again_and_a_changed_one_makes_runs_anew(
    place, states, tmp_path, no_pictures
):
    source = shutil.copytree(states.folder, tmp_path / "source")
    request = states.request("AA", source=str(source), boundaries=str(source / "boundaries"))
    out = str(tmp_path / "out")
    assert make_batch(request, out, crew=direct()).entries[NAMES[0]].how == "made"
    assert make_batch(request, out, crew=direct()).entries[NAMES[0]].how == "kept"
    tiles = sorted(source.rglob("*_tiles.parquet"))
    os.utime(tiles[0])
    crew = direct()
    assert make_batch(request, out, crew=crew).entries[NAMES[0]].how == "kept"
    assert orders(crew) == [NAMES[0]]
    shutil.copyfile(tiles[1], tiles[0])
    assert make_batch(request, out, crew=direct()).entries[NAMES[0]].how == "made"


def test_a_batch_grows_and_the_products_with_it(states, tmp_path, no_pictures):
    out = str(tmp_path / "out")
    first = make_batch(states.request("AA"), out, crew=direct())
    assert first.national["mobile-download"].runs == [NAMES[0]]
    crew = direct()
    second = make_batch(states.request("BB"), out, crew=crew)
    assert orders(crew) == [NAMES[1]]
    assert list(second.entries) == [NAMES[1]]
    assert second.national["mobile-download"].runs == list(NAMES[:2])
    ledger = read_ledger(open_place(out))
    assert {name: entry.state for name, entry in ledger.entries.items()} == dict.fromkeys(
        NAMES[:2], "done"
    )
    with pytest.raises(RequestError, match="holds a batch with other seed"):
        make_batch(states.request("AA", seed=3), out, crew=direct())


def test_a_region_that_fails_stops_no_other_and_is_resumed(states, tmp_path, stub):
    out = str(tmp_path / "out")
    stub[NAMES[1]] = [DataError("no tiles."), DataError("no tiles.")]
    heard = Heard()
    result = make_batch(states.request(), out, crew=direct(), listener=heard)
    assert result.exit_code == 3
    assert [entry.state for entry in result.entries.values()] == ["done", "failed", "done"]
    failed = result.entries[NAMES[1]]
    assert (failed.kind, failed.error, failed.attempts) == ("data", "no tiles.", 1)
    held = json.loads((tmp_path / "out" / "batch.json").read_text())
    assert held["runs"][NAMES[1]]["error"] == "no tiles."
    crew = direct()
    again = resume_batch(out, crew=crew)
    assert (again.exit_code, orders(crew)) == (3, [NAMES[1]])
    assert resume_batch(out, crew=direct()).exit_code == 0
    crew = direct()
    assert resume_batch(out, crew=crew).exit_code == 0
    assert orders(crew) == []


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
def test_only_what_may_pass_is_tried_again(states, tmp_path, stub, case):
    error, retries, attempts, code = case
    stub[NAMES[0]] = [error] * 9
    result = make_batch(
        states.request(), str(tmp_path / "out"), Execution(retries=retries), crew=direct()
    )
    assert result.entries[NAMES[0]].attempts == attempts
    assert result.exit_code == code
    assert [entry.state for entry in result.entries.values()] == ["failed", "done", "done"]


def test_a_network_that_comes_back_is_no_failure(states, tmp_path, stub):
    stub[NAMES[0]] = [NetworkError("down.")]
    heard = Heard()
    result = make_batch(states.request(), str(tmp_path / "out"), crew=direct(), listener=heard)
    assert result.exit_code == 0
    mine = [state[1:] for state in heard.states if state[0] == NAMES[0]]
    assert mine == [("running", 1), ("waiting", 1), ("running", 2), ("done", 2)]
    assert heard.states[-1][0] == NAMES[0]  # the others go first


def test_mixed_failures_exit_3(states, tmp_path, stub):
    stub[NAMES[0]] = [NetworkError("down.")] * 2
    stub[NAMES[1]] = [DataError("bad.")]
    assert make_batch(states.request(), str(tmp_path / "out"), crew=direct()).exit_code == 3


def test_a_run_that_is_nowhere_is_no_success(states, tmp_path, stub, monkeypatch):
    """As where workers see another folder under the same name."""
    monkeypatch.setattr(
        "geogp.commands.batch.make_batch.make_run",
        lambda _: WorkOutcome("made", "0" * 64, 1.0, 1.0, 1, "far:1", ()),
    )
    result = make_batch(states.request("AA"), str(tmp_path / "out"), crew=direct())
    assert result.exit_code == 3
    assert "not that of this machine" in result.entries[NAMES[0]].error


def test_a_store_that_fails_for_a_moment_stops_nothing(states, tmp_path, stub, monkeypatch):
    calls = {"write": iter(range(99)), "mark": iter(range(99))}
    for name, broken in (("write", 4), ("mark", 5)):  # of batch.json, and of a run that was made
        real = getattr(Place, name)

        def failing(self, *rest, name=name, broken=broken, real=real):
            if (name == "mark" or "batch.json" in rest) and next(calls[name]) == broken:
                raise NetworkError("the store was away.")
            return real(self, *rest)

        monkeypatch.setattr(Place, name, failing)
    heard = Heard()
    heard.stage = heard.texts.append
    result = make_batch(states.request(), str(tmp_path / "out"), crew=direct(), listener=heard)
    assert result.exit_code == 0
    assert "the store was away." in heard.texts
    assert sorted(entry.attempts for entry in result.entries.values()) == [1, 1, 2]
    ledger = read_ledger(open_place(str(tmp_path / "out")))
    assert {entry.state for entry in ledger.entries.values()} == {"done"}


class _Interrupting(Direct):
    """Is interrupted at the second run, as by Ctrl-C."""

    def submit(self, function, order):
        if len(self.done) == 1:
            raise KeyboardInterrupt
        return super().submit(function, order)


def test_an_interrupted_batch_goes_on(states, tmp_path, stub):
    out = str(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        make_batch(states.request(), out, crew=FixedCrew(_Interrupting()))
    ledger = read_ledger(open_place(out))
    assert [entry.state for entry in ledger.entries.values()] == ["done", "waiting", "waiting"]
    crew = direct()
    assert resume_batch(out, crew=crew).exit_code == 0
    assert orders(crew) == list(NAMES[1:])


def test_so_many_at_once_as_there_are_workers(states, tmp_path, stub, monkeypatch):
    make, lock, now, most = running.make_run, threading.Lock(), [], []

    def slow(order):
        with lock:
            now.append(order)
            most.append(len(now))
        time.sleep(0.3)
        with lock:
            now.remove(order)
        return make(order)

    monkeypatch.setattr(running, "make_run", slow)
    with ThreadPoolExecutor(8) as pool:
        result = make_batch(states.request(), str(tmp_path / "out"), crew=FixedCrew(pool, 2))
    assert (result.exit_code, max(most)) == (0, 2)


def test_a_run_goes_on_from_its_checkpoints_unless_it_is_another(
    states, tmp_path, no_pictures, monkeypatch
):
    """The scratch folder of a worker that was killed serves the next attempt."""
    run = runs_of(states.request("AA"))[0]
    order = Order(run, str(tmp_path / "out"), None)
    seen = []

    folder = scratch_folder(order.place) / run.name

    def stopped(*_):
        seen.append(sorted(path.name for path in folder.rglob("*.safetensors")))
        raise NetworkError("copying failed.")

    with monkeypatch.context() as patch:
        patch.setattr("geogp.commands.batch.batch_work.Place.put_run", stopped)
        with pytest.raises(NetworkError, match="copying failed"):
            make_run(order)
    assert seen == [["model.safetensors"]]
    with monkeypatch.context() as patch:
        patch.setattr("geogp.runs.pipeline.make_map.run_split", None)  # nothing is fitted anew
        assert make_run(replace(order, attempt=2)).how == "made"
    assert is_vacant(folder)
    shutil.rmtree(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("geogp.commands.batch.batch_work.Place.put_run", stopped)
        with pytest.raises(NetworkError, match="copying failed"):
            make_run(order)
    other = replace(order, run=replace(run, request=replace(run.request, seed=5)))
    assert make_run(other).how == "made"
    assert open_run(tmp_path / "out" / run.name).record.seed == 5


def test_the_runs_are_a_product_in_order(states):
    request = states.request(
        "02",
        "State AA",
        "aa",
        targets=("download", "tests"),
        quarters=("2023Q3", "2023Q3..2023Q4"),
        model="auto",
    )
    runs = runs_of(request)
    assert [run.name for run in runs] == [
        f"{code}-mobile-{target}-{quarters}"
        for code in ("CC", "AA")
        for target in ("download", "tests")
        for quarters in ("2023Q3", "2023Q3-2023Q4")
    ]
    assert [run.request.model for run in runs[:4]] == ["field", "field", "cox-nb", "cox-nb"]
    assert len({run.group for run in runs}) == 4
    assert each_quarter("2023Q3..2024Q1,2021Q1") == ("2021Q1", "2023Q3", "2023Q4", "2024Q1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": ("ZZ",)}, "unknown region 'ZZ'"),
        ({"targets": ("speed",)}, "speed"),
        ({"targets": ()}, "one or more targets, found none"),
        ({"model": "no-such"}, "no-such"),
        ({"model": "field", "targets": ("tests",)}, "needs a model of numbers of tests"),
        ({"out": "x"}, "cannot set out"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(states, tmp_path, changes, message):
    asked = dict(changes)
    names = asked.pop("states", ("AA",))
    with pytest.raises(RequestError, match=message):
        make_batch(states.request(*names, **asked), str(tmp_path / "out"), crew=direct())
    assert not (tmp_path / "out").exists()


def test_execution_is_checked():
    for wrong, message in (
        ({"workers": 0}, "workers from 1 to 1,000"),
        ({"retries": -1}, "retries from 0 to 1,000"),
        ({"memory_gb": 0.0}, "above 0 GB"),
        ({"scheduler": "tcp://x:1", "workers": 2}, "leave --workers"),
    ):
        with pytest.raises(RequestError, match=message):
            Execution(**wrong)
    with pytest.raises(RequestError, match="say which"):
        each_quarter(None)


HOSTILE = ("..", "../../x", "/x/y", "a/b", "a\\b", ".hidden", "", "x" * 300, "A\0B", "é ü")


@pytest.mark.parametrize("code", HOSTILE)
def test_names_from_data_stay_in_the_place(states, tmp_path, code):
    settings = states.request().settings
    run = run_of(MapRequest(region=code, service="mobile", **settings))
    assert safe_name(run.name) == run.name
    place = open_place(str(tmp_path / "place"))
    place.write(b"{}", run.name, RUN_FILE)
    (written,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert written.parent.parent == tmp_path / "place"
    if safe_name(code) != code:
        with pytest.raises(DataError, match="expected"):
            place.mark(code)
        with pytest.raises(DataError, match="expected names"):
            place.write(b"", "..", code)


def test_names_that_were_made_safe_stay_apart(states):
    assert safe_name("a/b") != safe_name("a_b")
    assert len({safe_name(code) for code in HOSTILE}) == len(HOSTILE)
    assert safe_name("GA-mobile-download-2019Q1-2023Q4") == "GA-mobile-download-2019Q1-2023Q4"


def test_a_ledger_names_no_folder(place, tmp_path):
    """Folders follow from the requests: what a ledger calls them is of no account."""
    path = place / "batch.json"
    held = json.loads(path.read_text())
    held["runs"] = {"../../elsewhere": held["runs"][NAMES[0]]}
    path.write_text(json.dumps(held))
    assert list(read_ledger(open_place(str(place))).entries) == [NAMES[0]]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held.pop("runs"),
        lambda held: held.update(format="other"),
        lambda held: held["runs"][NAMES[0]].update(state="flying"),
        lambda held: held["runs"].update(x=3),
        lambda held: held["settings"].update(no_such=1),
    ],
)
def test_a_damaged_ledger_is_refused(place, spoil):
    path = place / "batch.json"
    held = json.loads(path.read_text())
    spoil(held)
    path.write_text(json.dumps(held))
    with pytest.raises(DataError):
        resume_batch(str(place), crew=direct())
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="is damaged"):
        resume_batch(str(place), crew=direct())


def test_a_batch_of_an_earlier_version_goes_on(place, stub):
    """It named a folder with Leaflet, or none, among its settings."""
    path = place / "batch.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"settings": held["settings"] | {"assets": None}}))
    assert resume_batch(str(place), crew=direct()).exit_code == 0
    assert "assets" not in json.loads(path.read_text())["settings"]


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no batch to go on with"):
        resume_batch(str(tmp_path), crew=direct())


def test_fresh_makes_all_again(place, states, stub):
    crew = direct()
    result = make_batch(states.request(seed=7), str(place), Execution(fresh=True), crew=crew)
    assert (result.exit_code, orders(crew)) == (0, list(NAMES))
    assert json.loads((place / "batch.json").read_text())["settings"]["seed"] == 7

"""A finished run is complete where its files are what they were; what is not is made again."""

import json
import os
import shutil
import sys
from dataclasses import replace

import pytest
import torch
from msgspec import to_builtins
from run_worlds import Heard, made_up_run, run_json

from geogp.answers.pages import remake_report
from geogp.errors import DataError
from geogp.models.presets import PRESETS
from geogp.records.record_reading import record_of
from geogp.records.run_record import FileRecord
from geogp.runs.file_records import RECORDS, damaged_files, records_of
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.fitting import threads_for
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import RunListener

QUICK = {"model": "dbk-silu", "epochs": 2, "zoom": 11, "split": "random"}
REPORT = "writing the report again from run.json and the test predictions"
REDRAWN = "drawing the map of the fitted model again"
FITTED = "making the run again from its data"


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    """Runs of a second: a small network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "quick", replace(PRESETS["quick"], h=8, r=8))
        yield


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    return run_map(small.request(tmp_path_factory.mktemp("made") / "run", **QUICK)).path


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run, whose files have other times."""
    for path in shutil.copytree(made, tmp_path / "run").iterdir():
        os.utime(path)
    return tmp_path / "run"


def held(run):
    return json.loads((run / "run.json").read_text())


def again(small, run):
    heard = Heard()
    return run_map(small.request(run, **QUICK), heard), heard.texts


def assert_whole(run, before):
    assert damaged_files(run, record_of(held(run))) == []
    assert held(run)["files"] == before["files"]
    assert held(run)["metrics"] == before["metrics"]


def test_run_json_records_every_file(made):
    told = held(made)
    assert list(told[RECORDS]) == told["files"]
    assert told[RECORDS] == to_builtins(records_of(made, told["files"]))
    assert "map.html" in told["files"]


def test_a_run_that_was_copied_is_complete(small, run, monkeypatch):
    monkeypatch.setattr("geogp.runs.pipeline.fit.make_splits", None)
    before = (run / "run.json").read_bytes()
    found, heard = again(small, run)
    assert found.already_there
    assert not any(text.startswith("missing") for text in heard)
    assert (run / "run.json").read_bytes() == before


def test_a_file_of_the_same_size_and_time_is_not_read(made, tmp_path, monkeypatch):
    copy = shutil.copytree(made, tmp_path / "run", copy_function=shutil.copy2)
    monkeypatch.setattr("geogp.runs.file_records.sha256_of", None)
    assert damaged_files(copy, record_of(held(copy))) == []


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (("fit_warnings",), "Object missing required field `fit_warnings`"),
        (("rank",), "Object missing required field `rank`"),
        (("rank", "r"), "Object missing required field `r` - at"),
    ],
)
def test_a_map_is_not_drawn_anew_of_a_run_that_says_too_little(small, run, lost, told):
    changed = held(run)
    holder = changed
    *way, last = lost
    for key in way:
        holder = holder[key]
    del holder[last]
    (run / "run.json").write_text(json.dumps(changed))
    (run / "grid.nc").unlink()
    before = sorted(run.iterdir())
    with pytest.raises(DataError, match=f"made by another version of geogp: {told}.*--fresh"):
        again(small, run)
    assert sorted(run.iterdir()) == before


def test_maps_that_are_missing_or_changed_are_drawn_from_the_model(small, run, monkeypatch):
    monkeypatch.setattr("geogp.runs.pipeline.fit.run_split", None)  # nothing is fitted
    before, page = held(run), (run / "map.html").read_bytes()
    (run / "grid.nc").unlink()
    (run / "map.html").write_bytes(page.replace(b"<html", b"<HTML"))  # of the same size
    (run / "areas_county.csv").write_text("of this map still")
    found, heard = again(small, run)
    assert not found.already_there
    assert "missing, or changed since the run was made: grid.nc, map.html" in heard
    assert REDRAWN in heard
    assert_whole(run, before)
    assert b"<html" in (run / "map.html").read_bytes()
    assert (run / "areas_county.csv").exists()


def test_a_report_that_is_missing_is_written_from_the_predictions(small, run, monkeypatch):
    monkeypatch.setattr("geogp.runs.pipeline.run_map.draw_map", None)
    before = held(run)
    (run / "report.md").unlink()
    (run / "report.html").write_text("cut")
    found, heard = again(small, run)
    assert found.path == run
    assert [text for text in heard if text in {REPORT, REDRAWN, FITTED}] == [REPORT]
    assert_whole(run, before)


@pytest.mark.parametrize("name", ["model.safetensors", "test_predictions.parquet"])
def test_without_model_or_predictions_the_run_is_fitted_again(small, run, name):
    before = held(run)
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (run / "map.html").unlink()
    _, heard = again(small, run)
    assert f"missing, or changed since the run was made: map.html, {name}" in heard
    assert FITTED in heard
    assert_whole(run, before)
    assert not (run / ".unfinished").exists()


def test_runs_without_records_are_complete_by_their_names(small, run, monkeypatch):
    old = held(run)
    del old[RECORDS], old["threads"]
    (run / "run.json").write_text(json.dumps(old))
    (run / "map.html").write_text("changed, which nobody can tell")
    assert again(small, run)[0].already_there
    remake_report(run)
    assert held(run) == old
    (run / "map.html").unlink()
    monkeypatch.setattr("geogp.runs.pipeline.fit.run_split", None)
    assert REDRAWN in again(small, run)[1]
    assert_whole(run, old)
    assert held(run)["threads"] is None


def test_a_report_that_is_made_again_is_recorded(small, run, monkeypatch):
    before = held(run)
    monkeypatch.setattr("geogp.reports.run_report.report_html", lambda *_: "another")
    remake_report(run)
    after = held(run)
    changed = {name for name in after["files"] if after[RECORDS][name] != before[RECORDS][name]}
    assert "report.html" in changed <= {"report.html", "report.md", "report.json"}
    assert {**after, RECORDS: before[RECORDS]} == before
    assert again(small, run)[0].already_there


def test_a_folder_of_files_has_a_hash_of_all(tmp_path):
    for name in ("grid.zarr/a/0", "grid.zarr/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    records = records_of(tmp_path, ["grid.zarr"])
    run = made_up_run(files=["grid.zarr"], file_records=records)
    assert records["grid.zarr"].bytes == 24
    assert damaged_files(shutil.copytree(tmp_path, tmp_path.parent / "copy"), run) == []
    (tmp_path / "grid.zarr" / "b").write_text("GRID.zarr/b")
    assert damaged_files(tmp_path, run) == ["grid.zarr"]
    shutil.rmtree(tmp_path / "grid.zarr")
    assert damaged_files(tmp_path, run) == ["grid.zarr"]


THREE = FileRecord(bytes=3, sha256="0" * 64)


@pytest.mark.parametrize(
    "records", [{}, {"b": THREE}, {"a": THREE}, {"a": FileRecord(bytes=4, sha256=THREE.sha256)}]
)
def test_records_that_say_nothing_of_a_file_vouch_for_nothing(tmp_path, records):
    (tmp_path / "a").write_text("one")
    assert damaged_files(tmp_path, made_up_run(files=["a", "b"], file_records=records)) == [
        "a",
        "b",
    ]
    with pytest.raises(DataError, match="file names"):
        damaged_files(tmp_path, made_up_run(files=["../a"], file_records=records))


@pytest.mark.parametrize("key", ["metrics", RECORDS])
def test_a_run_that_other_commands_refuse_is_not_complete(small, run, key):
    (run / "run.json").write_text(json.dumps(held(run) | {key: 5}))
    with pytest.raises(DataError, match=rf"run\.json is damaged: .* at `\$\.{key}`.*--fresh"):
        again(small, run)


def test_files_without_their_records_are_made_again(small, run):
    (run / "run.json").write_text(json.dumps(held(run) | {RECORDS: {}}))
    (run / "grid.nc").write_bytes(b"spoilt")
    result, heard = again(small, run)
    assert not result.already_there
    assert any("grid.nc" in text for text in heard)
    assert damaged_files(run, record_of(held(run))) == []


@pytest.fixture
def two_cores(monkeypatch):
    """Two cores that may be used, and PyTorch's number of threads put back."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.trial
def test_a_run_goes_on_with_the_threads_it_began_with(small, tmp_path, two_cores):
    request = small.request(tmp_path / "run", **QUICK)
    torch.set_num_threads(2)
    with pytest.raises(KeyboardInterrupt):
        run_map(request, Heard(lambda text, done: text.startswith("fit") and done == 1))
    torch.set_num_threads(1)
    threads = []
    heard = Heard(
        lambda text, _: text.startswith("fit") and threads.append(torch.get_num_threads())
    )
    run = run_json(run_map(request, heard))
    assert threads == [2]
    assert any(text.startswith("continuing with 2 threads") for text in heard.texts)
    assert torch.get_num_threads() == 1
    assert run["threads"] == 2
    assert not any("threads" in text for text in run["warnings"])


def test_too_few_cores_for_the_threads_of_the_beginning_are_said(two_cores):
    torch.set_num_threads(1)
    heard = Heard()
    listener = RunListener(heard)
    assert threads_for(2, listener) == 2
    assert threads_for(None, listener) == threads_for(1, listener) == 1
    assert heard.warnings == []
    assert threads_for(3, listener) == 1
    assert "started with 3 threads and continues with 1" in heard.warnings[0]
    assert "the last digits of the results may differ" in heard.warnings[0]


def test_what_a_call_sets_is_put_back(two_cores):
    def flushes():
        return sys.float_info.min / 2 == 0

    torch.set_num_threads(1)
    for flushed in (False, True):
        torch.set_flush_denormal(flushed)
        with arithmetic(2):
            assert (flushes(), torch.get_num_threads()) == (True, 2)
        assert (flushes(), torch.get_num_threads()) == (flushed, 1)
    torch.set_flush_denormal(False)


def test_no_command_of_the_library_leaves_a_setting_behind(small, run):
    assert sys.float_info.min / 2 > 0
    before = torch.get_num_threads()
    assert run_map(small.request(run, **QUICK)).already_there
    assert sys.float_info.min / 2 > 0
    assert torch.get_num_threads() == before

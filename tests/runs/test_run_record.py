"""run.json of another form than geogp writes is refused, by place."""

import json

import pytest
from run_worlds import changed_at, run_json

from geogp.answers.run import open_run
from geogp.errors import DataError
from geogp.records.record_reading import complete_record, record_of, run_text
from geogp.records.run_record import OpenedRecord
from geogp.runs.run_folder import read_run_record


def test_what_geogp_writes_passes(finished):
    text = (finished.path / "run.json").read_text()
    assert run_text(record_of(run_json(finished))) == run_text(finished.record) == text
    complete_record(finished.path, finished.record, OpenedRecord)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (["region"], ..., "the run lacks region"),
        (["region"], 5, "expected a name under region, found '5'"),
        (["service"], "a\0b", "one of mobile, fixed under service"),
        (["metrics"], [], "expected an object under metrics"),
        (
            ["metrics", "random", "all", "nll"],
            "x",
            r"expected a number under metrics\.random\.all\.nll",
        ),
        (["metrics", "random", "all", "nll"], True, r"metrics\.random\.all\.nll"),
        (["metrics", "random", "all", "nll"], 10**400, r"metrics\.random\.all\.nll"),
        (["baseline", "random"], 1, r"expected an object under baseline\.random"),
        (["folds", "random"], {}, r"a list of 1 or more entries under folds\.random"),
        (["folds", "random", 0, "n"], 1, r"expected an object under folds\.random\[0\]\.n"),
        (["n", "random", "train"], -1, r"whole number of 0 or more under n\.random\.train"),
        (["n", "random", "train"], 1.5, r"whole number of 0 or more under n\.random\.train"),
        (["quarters"], "2023Q4", "expected a list of 1 or more entries under quarters"),
        (["quarters", 0], None, r"a quarter like 2019Q1 under quarters\[0\]"),
        (["seed"], "0", "a whole number from 0 to .* under seed"),
        (["settings", "source"], None, r"expected a path or an address under settings\.source"),
        (["settings", "refit"], 1, r"expected true or false under settings\.refit"),
        (["settings", "source"], "a/" + 300 * "9", r"a path or an address under settings\.source"),
        (["settings", "strata"], ["a"], r"expected a list of 2 entries under settings\.strata"),
        (["settings", "strata"], ["a", 2], r"expected a name under settings\.strata\[1\]"),
        (["settings", "layers"], [1], r"expected a path or an address under settings\.layers\[0\]"),
        (
            ["drawing", "thresholds"],
            ["Q"],
            r"a number from 0.001 to .* under drawing\.thresholds\[0\]",
        ),
        (["inputs", 0, "sha256"], ..., r"inputs\[0\] lacks sha256"),
        (["calibration"], [1], "expected an object under calibration"),
        (["calibration", "statements"], "one", r"expected a list under calibration\.statements"),
        (["calibration", "splits"], [1], r"expected an object under calibration\.splits"),
        (
            ["calibration", "splits"],
            {"random": {"statement": 1, "folds": []}},
            r"expected text under calibration\.splits\.random\.statement",
        ),
        (
            ["calibration", "splits"],
            {"random": {"statement": "x", "folds": 2}},
            r"expected a list under calibration\.splits\.random\.folds",
        ),
        (["variance_check"], 3, "expected an object under variance_check"),
        (["variance_check", "stated"], ..., "variance_check lacks stated"),
        (["variance_check", "stated"], -1, r"0 or more under variance_check\.stated"),
        (["variance_check", "closed_form"], 10**400, r"above 0 under variance_check\.closed_form"),
        (["variance_check", "closed_form"], True, r"above 0 under variance_check\.closed_form"),
        (["variance_check", "differ_by"], "x", r"one of .*steps.* under variance_check\.differ_by"),
        (["files"], [".."], None),
    ],
)
def test_another_form_is_refused_by_its_place(finished, place, value, told):
    checked = {"differ_by": "steps", "closed_form": 0.1, "stated": 0.1}
    run = changed_at(run_json(finished) | {"variance_check": checked}, place, value)
    if told is None:  # what names stand for is asked where they are used
        record_of(run)
        return
    with pytest.raises(DataError, match=told):
        record_of(run)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (["settings"], "the run lacks settings"),
        (["settings", "noise"], "settings lacks noise"),
        (["map"], "the run lacks map"),
        (["map", "zoom"], "map lacks zoom"),
        (["inputs", 0, "name"], r"inputs\[0\] lacks name"),
    ],
)
def test_what_a_run_is_opened_again_by(finished, place, told, tmp_path):
    run = changed_at(run_json(finished), place, ...)
    with pytest.raises(DataError, match=told):
        complete_record(finished.path, record_of(run), OpenedRecord)
    for name in ("model.safetensors", "test_predictions.parquet"):
        (tmp_path / name).write_bytes((finished.path / name).read_bytes())
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match=f"(another version of geogp|is damaged): .*{told}"):
        open_run(tmp_path).reopen()


def test_the_file_is_named(finished, tmp_path):
    (tmp_path / "test_predictions.parquet").touch()
    (tmp_path / "run.json").write_text(json.dumps({**run_json(finished), "target": None}))
    with pytest.raises(
        DataError, match=r"run\.json is damaged: expected one of download.* under target.*--fresh"
    ):
        read_run_record(tmp_path)

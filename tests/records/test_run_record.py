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
        (["region"], ..., "missing required field `region` in the run"),
        (["region"], 5, r"Expected `str`, got `int` - at `\$\.region` in the run"),
        (
            ["service"],
            "a\0b" + "x" * 999,
            r"Invalid enum value 'a.{1,5}bx{1,200} - at `\$\.service`",
        ),
        (["metrics", "random", "all", "nll"], "x", r"at `\$\.metrics\[\.\.\.\]\[\.\.\.\]\.nll`"),
        (["metrics", "random", "all", "nll"], 10**400, r"Number out of range - at `\$\.metrics"),
        (["metrics", "by-hand"], {}, r"Invalid enum value 'by-hand' - at `key` in `\$\.metrics`"),
        (["n", "random", "train"], -1, r"Expected `int` >= 0 - at `\$\.n\[\.\.\.\]\.train`"),
        (["quarters", 0], "2019", r"Expected `str` matching regex .* at `\$\.quarters\[0\]`"),
        (
            ["settings", "model", "refit"],
            1,
            r"Expected `bool`, got `int` - at `\$\.settings\.model\.refit`",
        ),
        (
            ["settings", "data", "source"],
            "a/" + 300 * "9",
            r"matching regex .* `\$\.settings\.data\.source`",
        ),
        (["inputs", 0, "sha256"], ..., r"missing required field `sha256` - at `\$\.inputs\[0\]`"),
        (["variance_check"], {"stated": 1.0, "closed_form": 0}, r"> 0\.0 - at `\$\.variance_check"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(finished, place, value, told):
    with pytest.raises(DataError, match=told):
        record_of(changed_at(run_json(finished), place, value))


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (["metrics"], {}, "one split or more under metrics"),
        (["metrics", "random", "urban"], ..., r"scores of all, urban, rural under metrics\.random"),
        (["metrics", "random", "urban", "nll"], None, r"metrics\.random\.urban lacks nll"),
        (
            ["metrics", "random", "all", "n"],
            1,
            r"n of metrics\.random\.all to be \d+, .* found 1\.",
        ),
        (["folds", "random", 0, "baseline", "all", "mae"], 9.0, r"baseline\.random\.all to be 9"),
        (["n", "random", "train"], 7, r"n\.random differs"),
        (
            ["settings", "where", "strata_names"],
            ["a", "a"],
            "two strata with different names, found a, a",
        ),
    ],
)
def test_scores_are_those_of_the_folds(finished, place, value, told):
    with pytest.raises(DataError, match=told):
        record_of(changed_at(run_json(finished), place, value))


def test_scores_of_splits_and_folds_differ_by_rounding_alone(finished):
    run = run_json(finished)
    stated = run["baseline"]["random"]["all"]["nll"]
    record_of(changed_at(run, ["baseline", "random", "all", "nll"], stated + 0.5e-6))
    with pytest.raises(DataError, match=r"nll of baseline\.random\.all"):
        record_of(changed_at(run, ["baseline", "random", "all", "nll"], stated + 4e-6))


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (["settings"], "required field `settings`"),
        (["settings", "model", "noise"], r"required field `noise` - at `\$\.settings\.model`"),
        (["map"], "required field `map`"),
        (["map", "zoom"], "required field `zoom`"),
        (["inputs", 0, "name"], "required field `name`"),
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
    with pytest.raises(DataError, match=r"run\.json is damaged: .* at `\$\.target`.*--fresh"):
        read_run_record(tmp_path)

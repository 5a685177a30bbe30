"""The JSON Schema of run.json: made from the structs, and right about runs that were written."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from run_worlds import changed_at, run_json

from geogp.errors import DataError
from geogp.records.record_reading import record_of, run_schema, run_text
from geogp.records.run_record import RUN_SCHEMA
from geogp.runs.run_folder import read_run_record

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "fixtures" / "run-0.1"
RUNS = ("field", "older")

WRONG = [
    (("region",), ...),
    (("region",), " \n"),
    (("service",), "5G"),
    (("model",), "field-9"),
    (("seed",), -1),
    (("seed",), 1.5),
    (("quarters",), ["2023Q5"]),
    (("quarters",), ["2023Q4\n"]),
    (("quarters",), []),
    (("metrics", "random", "all", "crps"), ...),
    (("metrics", "random", "all", "coverage_95"), 1.5),
    (("metrics", "by-hand"), {}),
    (("settings", "strata"), ["a"]),
    (("settings", "source"), "a\0b"),
    (("map", "zoom"), 17),
    (("drawing", "far_km"), 0),
    (("inputs", 0, "sha256"), "0"),
    (("schema",), 2),
    (("schema",), True),
]
"""Places in run.json, and what no run holds there."""


def stored(name):
    return json.loads((STORED / name / "run.json").read_text())


def test_the_file_is_what_the_structs_say():
    path = ROOT / "docs" / "schema" / f"run-{RUN_SCHEMA}.json"
    assert path.read_text() == run_schema(), "`make schema` writes it again"


@pytest.fixture(scope="module")
def validator():
    """A validator that knows nothing of geogp."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(run_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", RUNS)
def test_stored_runs_are_of_the_schema(validator, name):
    assert list(validator.iter_errors(stored(name))) == []
    assert validator.is_valid({**stored(name), "of_a_later_version": [1]})


def test_a_new_run_is_of_the_schema(validator, finished):
    assert run_json(finished)["schema"] == RUN_SCHEMA
    assert list(validator.iter_errors(run_json(finished))) == []


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_what_no_run_holds_is_refused(place, value):
    with pytest.raises(DataError, match=place[-1] if value is ... else f"at .*{place[0]}"):
        record_of(changed_at(stored("field"), place, value))


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_the_schema_refuses_what_geogp_refuses(validator, place, value):
    assert not validator.is_valid(changed_at(stored("field"), place, value))


def without_null(value):
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["finished", "counted", "plain"])
def test_every_key_that_is_written_is_in_the_schema(request, name):
    run = json.loads((request.getfixturevalue(name).path / "run.json").read_text())
    assert without_null(to_builtins(record_of(run))) == without_null(run)


def test_a_run_is_written_as_it_was_read():
    """Other programs read run.json: keys, their order and digits stay."""
    text = (STORED / "field" / "run.json").read_text()
    assert run_text(record_of(json.loads(text))) == text


def test_keys_of_a_repaired_run_are_in_the_schema():
    run = stored("older")
    assert run["calibration"]["splits"]
    assert without_null(to_builtins(record_of(run))) == without_null(run)


def test_a_run_of_a_later_version_is_refused(tmp_path):
    for name in ("run.json", "test_predictions.parquet"):
        (tmp_path / name).write_bytes((STORED / "field" / name).read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({**stored("field"), "schema": 2}))
    with pytest.raises(
        DataError, match=r"expected the schema 1 or no schema, found 2\. Update geogp"
    ):
        read_run_record(tmp_path)


def test_other_keys_are_left_alone():
    run = {**stored("field"), "of_a_later_version": {"x": [1]}}
    run["settings"]["of_a_later_version"] = None
    assert record_of(run) == record_of(stored("field"))

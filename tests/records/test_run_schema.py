"""The JSON Schema of run.json: made from the structs, and right about runs that were written."""

import json
import re
from pathlib import Path

import pytest
from run_worlds import FORMER_SETTINGS, changed_at, made_up_settings, run_json

from geogp.errors import DataError
from geogp.evaluation.splits.split_names import BUFFER_KM
from geogp.records.record_reading import record_of, run_schema, run_text
from geogp.records.run_record import RUN_SCHEMA
from geogp.records.run_settings import GROUPS, former_name
from geogp.runs.run_folder import read_run_record

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "fixtures"
RUNS = ("run-0.1/field", "run-0.1/older", "run-0.2/field")
"""Stored runs of schema 1, the older ones without the key `schema`."""

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
    (("settings", "where", "strata_names"), ["a"]),
    (("settings", "data", "source"), "a\0b"),
    (("settings", "data", "source"), ...),
    (("settings", "data", "covariates"), None),
    (("settings", "model", "precision"), "half"),
    (("settings", "checks", "folds"), 6),
    (("settings", "checks", "buffer_km"), 0),
    (("map", "zoom"), 17),
    (("drawing", "far_km"), 0),
    (("inputs", 0, "sha256"), "0"),
    (("schema",), 3),
    (("schema",), True),
]
"""Places in run.json, and what no run holds there."""


def stored(name):
    return json.loads((STORED / name / "run.json").read_text())


def written(name="run-0.2/field"):
    """Return a stored run as this version writes it."""
    return json.loads(run_text(record_of(stored(name))))


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
    run = written(name)
    assert list(validator.iter_errors(run)) == []
    assert validator.is_valid({**run, "of_a_later_version": [1]})


@pytest.mark.parametrize("name", RUNS)
def test_stored_runs_are_of_the_schema_of_their_time(name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "schema" / "run-1.json").read_text())
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(stored(name))) == []


def test_a_new_run_is_of_the_schema(validator, finished):
    assert run_json(finished)["schema"] == RUN_SCHEMA
    assert list(validator.iter_errors(run_json(finished))) == []


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_what_no_run_holds_is_refused(place, value):
    with pytest.raises(DataError, match=place[-1] if value is ... else f"at .*{place[0]}"):
        record_of(changed_at(written(), place, value))


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_the_schema_refuses_what_geogp_refuses(validator, place, value):
    assert not validator.is_valid(changed_at(written(), place, value))


def without_null(value):
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["finished", "counted", "plain"])
def test_every_key_that_is_written_is_in_the_schema(request, name):
    run = json.loads((request.getfixturevalue(name).path / "run.json").read_text())
    assert without_null(json.loads(run_text(record_of(run)))) == without_null(run)


def test_a_run_is_written_as_it_was_read(finished):
    """Other programs read run.json: keys, their order and digits stay."""
    text = (finished.path / "run.json").read_text()
    assert run_text(record_of(json.loads(text))) == text


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_schema_1_differs_in_its_settings_alone(name):
    """Keys, their order and digits stay; nulls in the older run apart."""
    run, now = stored(name), written(name)
    assert now.pop("schema", None) == (RUN_SCHEMA if run.pop("schema", None) else None)
    settings = run.pop("settings")
    assert without_null(now | {"settings": None}) == without_null(run)
    assert record_of(stored(name)).settings.flat == settings


def test_keys_of_a_repaired_run_are_in_the_schema():
    run = stored("run-0.1/older")
    assert run["calibration"]["splits"]
    assert written("run-0.1/older")["calibration"] == run["calibration"]


def test_a_run_of_a_later_version_is_refused(tmp_path):
    for name in ("run.json", "test_predictions.parquet"):
        (tmp_path / name).write_bytes((STORED / "run-0.1/field" / name).read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({**written(), "schema": 3}))
    with pytest.raises(
        DataError, match=r"expected the schema 2, an earlier one or none, found 3\. Update geogp"
    ):
        read_run_record(tmp_path)


def test_settings_in_groups_are_not_of_schema_1_of_schema_1():
    with pytest.raises(DataError, match=r"required field `boundaries` - at `\$\.settings\.where`"):
        record_of({**written(), "schema": 1})


@pytest.mark.parametrize("run", [stored("run-0.2/field"), written()])
def test_other_keys_are_left_alone(run):
    more = {**run, "of_a_later_version": {"x": [1]}}
    more["settings"] = {**run["settings"], "of_a_later_version": None}
    assert record_of(more) == record_of(run)


CHOSEN = {
    "region_file": "/own.gpkg:side=west",
    "region_name": "West",
    "strata_file": "/two.gpkg",
    "strata": ["in", "out"],
    "crs": "EPSG:32161",
    "urban_vintage": None,
    "boundaries": None,
    "source": "/a.csv",
    "points_file": "/a.csv",
    "points_columns": ["time=when"],
    "points_units": "kbps",
    "points_provider": "North",
    "points_technology": "5G",
    "points_by_provider": True,
    "points_options": {"decimal": ",", "most_left_out": 7.5},
    "covariates": ["stratum"],
    "budget": 60.0,
    "r": "budget",
    "precision": "single",
    "splits": ["random", "buffer"],
    "buffer_km": 8.0,
    "layers": ["/a.gpkg:NAME"],
}
"""Settings of schema 1 that users choose, beside those that all runs have."""


def test_settings_of_schema_1_are_found_again_in_groups():
    former = FORMER_SETTINGS | CHOSEN
    settings = made_up_settings(**CHOSEN)
    assert settings.flat == former
    assert settings.where.strata == "/two.gpkg"
    assert settings.where.strata_names == ["in", "out"]
    assert settings.data.units == "kbps"
    assert settings.data.decimal == ","
    assert settings.data.delimiter is None
    assert settings.checks.buffer_km == 8.0
    assert made_up_settings().checks.buffer_km == BUFFER_KM
    assert made_up_settings().flat == FORMER_SETTINGS


def test_the_page_names_the_former_keys():
    text = (ROOT / "docs" / "run-folder.md").read_text()
    rows = re.findall(r"^\| `settings\.(.+)` \| `settings\.(.+)` \|$", text, re.MULTILINE)
    told = [
        (former, place.replace("*", former.rpartition(".")[2]))
        for names, place in rows
        for former in names.split("`, `")
    ]
    stored = {
        former_name(name): f"{group}.{name}" for group, names in GROUPS.items() for name in names
    }
    assert dict(told) == stored
    assert len(told) == len(stored)

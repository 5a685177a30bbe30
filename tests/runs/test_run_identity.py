"""The settings of a run, from a request to run.json and back."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec import convert
from msgspec.structs import asdict
from run_worlds import edited_copy, made_up_run, run_json, write_halves

from geogp.choices import settings_of as settings_in
from geogp.records.map_settings import MapSettings
from geogp.records.record_reading import run_text
from geogp.records.run_record import RunRecord
from geogp.runs.pipeline.identity import identity_of
from geogp.runs.pipeline.plan import plan_map
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import RunListener
from geogp.runs.run_identity import differences, flat_settings, identity_in, settings_of

FOUND = {
    *("region_name", "urban_vintage", "quarters", "inputs", "epochs", "split"),
    *("tests", "devices", "at", "threshold"),
}
"""Settings that a run takes from the data, or from a preset, if the user does not choose them."""


@pytest.fixture(scope="module")
def halves(small, tmp_path_factory):
    return write_halves(small, tmp_path_factory.mktemp("halves"), ("west", "east", "east"), 0.5)


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    random = np.random.default_rng(0)
    longitude, latitude = random.uniform((-66.5, 18.0), (-66.3, 18.15), (400, 2)).T
    speeds = [f"{speed:.2f}".replace(".", ",") for speed in random.uniform(5, 50, 400)]
    table = pd.DataFrame({"when": "2023-10-01", "lat": latitude, "lon": longitude})
    table = table.assign(download=speeds, technology="5G", provider=["North", "South"] * 200)
    path = tmp_path_factory.mktemp("points") / "drive.csv"
    table.to_csv(path, sep=";", index=False, float_format=lambda x: f"{x}".replace(".", ","))
    return path


def identity_for(request):
    inputs, device = read_inputs(request, RunListener()), torch.device("cpu")
    return identity_of(inputs, plan_map(request, inputs, device, RunListener()))


def stored(identity):
    """Return the record of a run.json that was written and read."""
    content = json.loads(run_text(made_up_run(**asdict(identity))))
    return convert(content, RunRecord)


def check_round_trip(request):
    """Check that settings are those of a request, and determine the same run."""
    identity = identity_for(request)
    again = settings_of(stored(identity), out=request.out)
    chosen = {
        name
        for name, about in settings_in(MapSettings).items()
        if name not in FOUND or getattr(request, name) != about.default
    } - {"split"}
    assert {name: getattr(again, name) for name in chosen} == {
        name: getattr(request, name) for name in chosen
    }
    assert again.splits == tuple(identity.settings.checks.splits)
    lacks = set(request.splits) - set(again.splits)
    assert lacks == ({"tiles"} if request.points and "tiles" in request.splits else set())
    found = identity_for(again)
    assert differences(identity, found) == []
    assert found.drawing == identity.drawing


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"split": "all", "buffer_km": 3.0, "folds": 2, "conformal": "local", "seed": 3},
        {"question": "level", "threshold": (25.0, 50.0), "far_km": 2.0, "self_contained": True},
        {"question": "single-test", "at": "2023Q3", "preset": "standard", "epochs": None},
        {"tests": 5, "devices": 2, "quarters": "2023Q4", "noise": "gaussian"},
        {"target": "tests"},
        {"target": "tier", "model": "class-dbk"},
        {"target": "tier", "tier": ("7/1", "9/2")},
        {"target": "latency", "service": "mobile", "model": "vbll", "noise": "student-t"},
        {"model": "nystrom-mixed", "budget": 60.0, "precision": "single", "covariates": ()},
        {"covariates": ("stratum",), "tune_weights": False, "device": "auto"},
        {"model": "dbk-rbf", "tune_weights": True, "inputs": "place"},
    ],
)
def test_settings_of_a_run_are_those_it_was_made_with(small, tmp_path, changes):
    check_round_trip(small.request(tmp_path / "run", **changes))


def test_regions_strata_and_layers_of_the_user_are_found_again(small, halves, tmp_path):
    check_round_trip(
        MapSettings(
            region_file=f"{halves}:side=west",
            region_name="The West",
            strata=f"{halves}:side",
            layers=(f"{halves}:side",),
            crs="EPSG:4326",
            source=str(small.folder),
            out=tmp_path / "run",
        )
    )


def test_how_points_are_read_is_found_again(drive, tmp_path):
    request = MapSettings(
        points=str(drive),
        columns=("time=when",),
        units="Mbps",
        delimiter=";",
        decimal=",",
        provider="North",
        technology="5G",
        most_left_out=7.5,
        dates="ymd",
        timezone="UTC",
        out=tmp_path / "run",
    )
    check_round_trip(request)
    both = stored(identity_for(replace(request, provider=None, by_provider=True)))
    assert settings_of(both).by_provider
    assert both.settings.data.source == str(drive)


def as_schema_1(record):
    """Return a change that writes the settings into a run.json as schema 1 has them."""
    return lambda run: run.update(schema=1, settings=record.settings.flat)


def test_a_run_of_schema_1_has_the_identity_that_it_has_today(small, tmp_path):
    changes = {"split": "buffer", "buffer_km": 3.0, "covariates": ("stratum",)}
    for request in (
        small.request(tmp_path / "run", **changes),
        small.request(tmp_path / "run", precision="single", at="2023Q3"),
    ):
        record = stored(identity_for(request))
        run = json.loads(run_text(record))
        as_schema_1(record)(run)
        assert identity_in(run) == identity_in(json.loads(run_text(record)))
        run["settings"]["noise"] = "student-t"
        assert differences(identity_in(run), record) == ["settings"]


def test_a_finished_run_of_schema_1_is_found_again(finished, small, tmp_path):
    path = edited_copy(finished.path, tmp_path / "run", as_schema_1(finished.record))
    assert "where" not in json.loads((path / "run.json").read_text())["settings"]
    again = run_map(small.request(path, split="both"))
    assert again.already_there
    assert again.record.settings == finished.record.settings


def test_rasters_have_the_names_of_schema_1(finished):
    run = run_json(finished)
    flat = flat_settings(finished.record)
    assert flat["h"] == run["settings"]["model"]["h"]
    assert flat["splits"] == '["random", "blocks"]'
    assert (flat["urban_vintage"], flat["dtype"], flat["layers"]) == (2020, "float32", "[]")
    assert (flat["map_zoom"], flat["map_for"]) == (13, "tile-mean")
    absent = {"precision", "buffer_km", "points_file", "strata", "region_name", "covariates"}
    assert absent.isdisjoint(flat)
